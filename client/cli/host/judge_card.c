/* SPDX-License-Identifier: Apache-2.0
 *
 * The network card: with DPDK if it is asked about by its PCI address, with the kernel else.
 */
#include <stdio.h>
#include <string.h>

#include "client/cli/host/judge_internal.h"

static const char SECTION[] = "The card";
static const char UDP[] = "Kernel UDP";

enum { MTU_MIN = 1280, MTU_MAX = 1500 };

static bool is(const struct host_word *word, const char *text)
{
    return word->state == HOST_KNOWN && strcmp(word->text, text) == 0;
}

static bool is_uio(const struct host_word *driver)
{
    return is(driver, "uio_pci_generic") || is(driver, "igb_uio");
}

/* ---- driver ---------------------------------------------------------------------------------- */

static void judge_driver(const struct host_device *device, struct host_findings *findings)
{
    static const struct host_check check = {"driver", SECTION};
    const struct host_word *driver = &device->driver;
    char path[HOST_LIST_BYTES];
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%.40s/driver", device->address.text);
    if (driver->state != HOST_KNOWN) {
        finding_unknown(findings, &check, driver->state, path);
    } else if (is(driver, "vfio-pci") || is(driver, "mlx5_core")) {
        (void)finding_add(findings, &check, HOST_OK, "%s%s", driver->text,
                          is(driver, "mlx5_core") ? ", with which its DPDK driver works" : "");
    } else if (is_uio(driver)) {
        struct host_finding *finding =
            finding_add(findings, &check, HOST_WARNING, "%s", driver->text);
        finding_should(finding, "vfio-pci, behind an IOMMU");
        finding_set(finding, "driverctl set-override %s vfio-pci", device->name);
        finding_costs(finding,
                      "belayd must be root; nothing protects its memory from a faulty card; "
                      "no interrupts for sleepers, which look again after at most half a "
                      "millisecond");
    } else {
        struct host_finding *finding =
            finding_add(findings, &check, HOST_ERROR, "%s%s",
                        driver->text[0] ? driver->text : "no driver is bound",
                        driver->text[0] ? ": the card is the kernel's" : "");
        finding_should(finding, "vfio-pci");
        finding_set(finding,
                    "modprobe vfio-pci; driverctl set-override %s vfio-pci (whatever else "
                    "goes by this card stops)",
                    device->name);
        finding_costs(finding, "belayd does not start with this dpdk.device");
    }
}

static void judge_vfio(const struct host_card *card, struct host_findings *findings)
{
    static const struct host_check check = {"vfio", SECTION};
    if (is(&card->device.driver, "mlx5_core") || is_uio(&card->device.driver))
        return; /* no use for it, or judge_driver() has said so */
    if (card->vfio_pci.state != HOST_KNOWN) {
        finding_unknown(findings, &check, card->vfio_pci.state, "/sys/module");
    } else if (card->vfio_pci.value == 0) {
        struct host_finding *finding = finding_add(
            findings, &check, HOST_ERROR, "vfio-pci is not loaded%s",
            card->uio.state == HOST_KNOWN && card->uio.value != 0 ? "; a uio driver is" : "");
        finding_should(finding, "it is, at every boot");
        finding_set(finding,
                    "modprobe vfio-pci; echo vfio-pci > /etc/modules-load.d/vfio-pci.conf");
        finding_costs(finding, "the card cannot be given to belayd");
    } else {
        (void)finding_add(findings, &check, HOST_OK, "vfio-pci is loaded");
    }
}

/* ---- IOMMU ----------------------------------------------------------------------------------- */

static void judge_iommu(const struct host_facts *facts, struct host_findings *findings)
{
    static const struct host_check check = {"iommu", SECTION};
    const struct host_card *card = &facts->card;
    bool unsafe = is(&card->no_iommu, "Y") || is(&card->no_iommu, "1");
    if (unsafe) {
        struct host_finding *finding =
            finding_add(findings, &check, HOST_WARNING, "vfio accepts devices without an IOMMU");
        finding_should(finding, "enable_unsafe_noiommu_mode=N, and an IOMMU that is on");
        finding_set(finding, "kernel command line: intel_iommu=on iommu=pt (AMD: on by default)");
        finding_costs(finding,
                      "nothing protects belayd's memory, and all other, from a faulty card");
    }
    if (card->iommu_groups.state != HOST_KNOWN) {
        finding_unknown(findings, &check, card->iommu_groups.state, "/sys/kernel/iommu_groups");
    } else if (card->iommu_groups.value == 0 && !unsafe) {
        bool off = facts->cmdline.state == HOST_KNOWN && facts->cmdline.iommu_off;
        bool on = facts->cmdline.state == HOST_KNOWN && facts->cmdline.iommu_on;
        /* uio works without one, and judge_driver() has told its price. */
        struct host_finding *finding =
            finding_add(findings, &check, is_uio(&card->device.driver) ? HOST_WARNING : HOST_ERROR,
                        "it is off%s",
                        off  ? ": the kernel's command line says so"
                        : on ? ": the firmware does not offer it, for the command line asks for it"
                             : "");
        finding_should(finding, "it is on");
        finding_set(finding, "VT-d or AMD-Vi in the firmware; kernel command line: intel_iommu=on "
                             "iommu=pt (AMD: on by default)");
        finding_costs(finding, "vfio-pci does not take the card");
    } else if (card->iommu_groups.value > 0 && !unsafe) {
        (void)finding_add(findings, &check, HOST_OK, "it is on");
    }
}

static void judge_passthrough(const struct host_facts *facts, struct host_findings *findings)
{
    static const struct host_check check = {"iommu_passthrough", SECTION};
    if (facts->cmdline.state != HOST_KNOWN) {
        finding_unknown(findings, &check, facts->cmdline.state, "/proc/cmdline");
    } else if (facts->cmdline.iommu_passthrough) {
        (void)finding_add(findings, &check, HOST_OK, "the kernel's own devices are not translated");
    } else if (facts->card.iommu_groups.state == HOST_KNOWN && facts->card.iommu_groups.value > 0) {
        struct host_finding *finding = finding_add(
            findings, &check, HOST_ADVICE, "the kernel's own devices may be translated too");
        finding_should(finding, "iommu=pt");
        finding_set(finding, "kernel command line: iommu=pt");
        finding_costs(finding, "the kernel sets up a translation for each transfer of its own "
                               "devices, disks and other cards among them");
    }
}

static void judge_group(const struct host_device *device, struct host_findings *findings)
{
    static const struct host_check check = {"iommu_group", SECTION};
    char path[HOST_LIST_BYTES];
    snprintf(path, sizeof path, "/sys/kernel/iommu_groups/%.20s/devices", device->iommu_group.text);
    if (is(&device->driver, "mlx5_core") || is_uio(&device->driver) || is(&device->iommu_group, ""))
        return; /* groups are vfio's; without an IOMMU judge_iommu() has said so */
    if (device->iommu_group.state != HOST_KNOWN) {
        finding_unknown(findings, &check, device->iommu_group.state,
                        "/sys/bus/pci/devices/PCI/iommu_group");
    } else if (device->group_others.value > 0) {
        struct host_finding *finding = finding_add(findings, &check, HOST_ERROR,
                                                   "group %s has devices that are the kernel's: %s",
                                                   device->iommu_group.text, device->group_names);
        finding_should(finding, "all devices of the group are bound together");
        finding_set(finding, "driverctl set-override PCI vfio-pci for each; or a slot with a group "
                             "of its own");
        finding_costs(finding, "vfio does not open the group");
    } else if (device->group_others.state != HOST_KNOWN) {
        finding_unknown(findings, &check, device->group_others.state, path);
    } else {
        (void)finding_add(findings, &check, HOST_OK, "group %s, with no device of the kernel's",
                          device->iommu_group.text);
    }
}

/* ---- place and size -------------------------------------------------------------------------- */

static void judge_node(const struct host_facts *facts, struct host_findings *findings)
{
    static const struct host_check check = {"card_node", "Cores"};
    const struct host_number *card_node = &facts->card.device.numa_node;
    const struct host_memory *memory = &facts->memory;
    size_t present = 0;
    char list[HOST_LIST_BYTES];
    for (size_t i = 0; i < HOST_NODES_MAX; i++)
        present += memory->nodes[i].present;
    if (card_node->state != HOST_KNOWN) {
        finding_unknown(findings, &check, card_node->state, "/sys/bus/pci/devices/PCI/numa_node");
        return;
    }
    if (memory->nodes_state != HOST_KNOWN || present == 0) {
        finding_unknown(findings, &check,
                        memory->nodes_state == HOST_KNOWN ? HOST_MISSING : memory->nodes_state,
                        "/sys/devices/system/node");
        return;
    }
    if (present == 1) {
        (void)finding_add(findings, &check, HOST_OK, "this machine has one node");
        return;
    }
    if (facts->cores_count == 0)
        return; /* judge_cores() has said so */
    bool in_range = card_node->value >= 0 && card_node->value < HOST_NODES_MAX;
    const struct host_set *near = in_range ? &memory->nodes[card_node->value].cpus : NULL;
    if (!near || near->state != HOST_KNOWN) {
        (void)finding_add(findings, &check, HOST_NOT_KNOWN,
                          "/sys/bus/pci/devices/PCI/numa_node: it says %lld, whose cores are not "
                          "known",
                          (long long)card_node->value);
        return;
    }
    struct host_cpus far = host_cpus_without(&facts->cores, &near->cpus);
    if (host_cpus_count(&far) == 0) {
        (void)finding_add(findings, &check, HOST_OK, "the cores are on the card's node");
        return;
    }
    struct host_finding *finding =
        finding_add(findings, &check, HOST_WARNING, "the card is on node %lld, %s not",
                    (long long)card_node->value, host_cores_text(&far, list));
    finding_should(finding, "cores of the card's node: %s",
                   host_cpus_text(&near->cpus, list, sizeof list));
    finding_set(finding, "pin_first_core, and the same cores on the kernel's command line");
    finding_costs(finding, "a datagram that crosses nodes costs about 100 ns at each touch");
}

static void judge_mtu(const struct host_device *device, struct host_findings *findings)
{
    static const struct host_check check = {"mtu", UDP};
    long long mtu = (long long)device->mtu.value;
    if (device->mtu.state == HOST_NOT_ASKED)
        return; /* a card by its PCI address: dpdk.mtu says it */
    if (mtu >= MTU_MIN && mtu <= MTU_MAX) {
        (void)finding_add(findings, &check, HOST_OK, "%s: %lld", device->name, mtu);
        return;
    }
    bool small = mtu < MTU_MIN;
    struct host_finding *finding = finding_add(findings, &check, small ? HOST_WARNING : HOST_ADVICE,
                                               "%s: %lld", device->name, mtu);
    finding_should(finding, "%d to %d", (int)MTU_MIN, (int)MTU_MAX);
    finding_set(finding, "ip link set %s mtu 1500", device->name);
    finding_costs(finding, small
                               ? "datagrams of Belay, up to 1,400 bytes, go in fragments: one that "
                                 "is lost loses all"
                               : "nothing is won: no datagram of Belay is longer than 1,400 bytes");
}

void judge_card(const struct host_facts *facts, struct host_findings *findings)
{
    static const struct host_check present = {"device", SECTION};
    const struct host_device *device = &facts->card.device;
    char path[HOST_LIST_BYTES + 32];
    if (!device->asked)
        return;
    if (device->address.state != HOST_KNOWN) {
        snprintf(path, sizeof path, "/sys/%s/%s", device->is_pci ? "bus/pci/devices" : "class/net",
                 device->name);
        finding_unknown(findings, &present, device->address.state, path);
        return;
    }
    if (!device->is_pci) {
        (void)finding_add(findings, &present, HOST_OK, "%s is the kernel's%s%s", device->name,
                          device->driver.text[0] ? ", with the driver " : "", device->driver.text);
        judge_mtu(device, findings);
        if (device->numa_node.state != HOST_NOT_ASKED)
            judge_node(facts, findings);
        return;
    }
    (void)finding_add(findings, &present, HOST_OK, "%s is there", device->name);
    judge_driver(device, findings);
    judge_vfio(&facts->card, findings);
    judge_iommu(facts, findings);
    judge_passthrough(facts, findings);
    judge_group(device, findings);
    judge_node(facts, findings);
}

/* ---- kernel UDP ------------------------------------------------------------------------------ */

static void judge_buffer(struct host_findings *findings, const struct host_check *check,
                         const struct host_number *most, const char *direction)
{
    enum { BUFFER_BYTES_MIN = 1 << 20 }; /* what `belayd --dev` asks for */
    char path[HOST_LIST_BYTES];
    snprintf(path, sizeof path, "/proc/sys/net/core/%s", check->id);
    if (most->state != HOST_KNOWN) {
        finding_unknown(findings, check, most->state, path);
    } else if (most->value >= BUFFER_BYTES_MIN) {
        (void)finding_add(findings, check, HOST_OK, "%lld bytes", (long long)most->value);
    } else {
        struct host_finding *finding =
            finding_add(findings, check, HOST_ADVICE, "%lld bytes", (long long)most->value);
        finding_should(finding, "what socket_buffer asks for, such as %d", (int)BUFFER_BYTES_MIN);
        finding_set(finding, "sysctl net.core.%s=%d", check->id, (int)BUFFER_BYTES_MIN);
        finding_costs(finding,
                      "in a burst the kernel refuses datagrams %s; they are sent again, "
                      "which shows as latency",
                      direction);
    }
}

void judge_udp(const struct host_facts *facts, struct host_findings *findings)
{
    static const struct host_check receive = {"rmem_max", UDP};
    static const struct host_check transmit = {"wmem_max", UDP};
    judge_buffer(findings, &receive, &facts->rmem_max, "that came");
    judge_buffer(findings, &transmit, &facts->wmem_max, "that are to go");
}
