/* SPDX-License-Identifier: Apache-2.0
 *
 * Hugepages, what moves or pages out memory, and the limits of a process.
 */
#include <stdio.h>
#include <string.h>

#include "client/cli/host/judge_internal.h"

static const char SECTION[] = "Memory";

/* Only a PCI device that is not the kernel's needs them; whoever asks about an interface by its
 * name means kernel UDP. */
static bool wants_dpdk(const struct host_facts *facts)
{
    return facts->card.device.asked && facts->card.device.is_pci;
}

static const char *asked_for(const struct host_facts *facts)
{
    bool asked = facts->cmdline.state == HOST_KNOWN && facts->cmdline.hugepages;
    return asked ? ", though the kernel's command line asks for some" : "";
}

static void judge_hugepages(const struct host_facts *facts, struct host_findings *findings)
{
    static const struct host_check check = {"hugepages", SECTION};
    const struct host_memory *memory = &facts->memory;
    const struct host_number *numbers[] = {&memory->hugepages_total, &memory->hugepages_free,
                                           &memory->hugepage_kib};
    for (size_t i = 0; i < 3; i++) {
        if (numbers[i]->state != HOST_KNOWN) {
            finding_unknown(findings, &check, numbers[i]->state, "/proc/meminfo");
            return;
        }
    }
    long long total = memory->hugepages_total.value, unused = memory->hugepages_free.value;
    long long kib = memory->hugepage_kib.value;
    if (unused > 0) {
        (void)finding_add(findings, &check, HOST_OK, "%lld of %lld pages of %lld kB are free",
                          unused, total, kib);
        return;
    }
    struct host_finding *finding;
    if (total > 0) {
        /* A belayd that runs has them, or somebody else. */
        finding = finding_add(findings, &check, HOST_ADVICE, "%lld pages of %lld kB, none is free",
                              total, kib);
        finding_costs(finding, "nothing, if belayd runs and has them; else it gets none");
    } else if (wants_dpdk(facts)) {
        finding = finding_add(findings, &check, HOST_ERROR, "there are none%s", asked_for(facts));
        finding_costs(finding, "belayd does not start with a PCI device");
    } else {
        finding = finding_add(findings, &check, HOST_ADVICE, "there are none%s", asked_for(facts));
        finding_costs(finding, "tables on ordinary pages: more address translation");
    }
    finding_should(finding,
                   "what `belayd --check-config` and dpdk.memory ask for; 512 of 2 MiB are "
                   "enough for one device and a million locks");
    finding_set(finding, "kernel command line: default_hugepagesz=2M hugepagesz=2M hugepages=512; "
                         "or sysctl vm.nr_hugepages=512");
}

/* The node of the first core. -1 = unknown. */
static int node_of_cores(const struct host_facts *facts)
{
    for (size_t i = 0; i < HOST_NODES_MAX && facts->cores_count > 0; i++)
        if (facts->memory.nodes[i].cpus.state == HOST_KNOWN &&
            host_cpus_has(&facts->memory.nodes[i].cpus.cpus, facts->core[0].cpu))
            return (int)i;
    return -1;
}

static void judge_node_hugepages(const struct host_facts *facts, struct host_findings *findings)
{
    static const struct host_check check = {"node_hugepages", SECTION};
    const struct host_memory *memory = &facts->memory;
    size_t present = 0;
    for (size_t i = 0; i < HOST_NODES_MAX; i++)
        present += memory->nodes[i].present;
    int index = node_of_cores(facts);
    if (memory->nodes_state != HOST_KNOWN || present == 0) {
        finding_unknown(findings, &check,
                        memory->nodes_state == HOST_KNOWN ? HOST_MISSING : memory->nodes_state,
                        "/sys/devices/system/node");
        return;
    }
    if (present == 1 || facts->cores_count == 0)
        return; /* judge_hugepages() has said all */
    if (index < 0) {
        (void)finding_add(findings, &check, HOST_NOT_KNOWN,
                          "/sys/devices/system/node/nodeN/cpulist: no node has the core %u",
                          facts->core[0].cpu);
        return;
    }
    const struct host_node *node = &memory->nodes[index];
    char path[HOST_LIST_BYTES];
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/hugepages", index);
    if (node->hugepages_2m.state != HOST_KNOWN && node->hugepages_1g.state != HOST_KNOWN) {
        finding_unknown(findings, &check, node->hugepages_2m.state, path);
        return;
    }
    if ((node->hugepages_2m.state == HOST_KNOWN && node->hugepages_2m.value > 0) ||
        (node->hugepages_1g.state == HOST_KNOWN && node->hugepages_1g.value > 0)) {
        (void)finding_add(findings, &check, HOST_OK, "node %d, that of the cores, has some", index);
        return;
    }
    struct host_finding *finding = finding_add(
        findings, &check, HOST_WARNING, "node %d, that of the cores, has none of its own", index);
    finding_should(finding, "hugepages on the node that the workers run on");
    finding_set(finding, "echo 512 > %s/hugepages-2048kB/nr_hugepages", path);
    finding_costs(finding, "workers get memory of another node: each touch that misses the caches "
                           "goes there and back");
}

static void judge_transparent(const struct host_facts *facts, struct host_findings *findings)
{
    static const struct host_check check = {"transparent_hugepage", SECTION};
    const struct host_word *word = &facts->memory.transparent;
    if (word->state != HOST_KNOWN) {
        finding_unknown(findings, &check, word->state,
                        "/sys/kernel/mm/transparent_hugepage/enabled");
    } else if (strcmp(word->text, "madvise") == 0) {
        (void)finding_add(findings, &check, HOST_OK, "madvise: belayd asks for them");
    } else {
        bool never = strcmp(word->text, "never") == 0;
        struct host_finding *finding = finding_add(findings, &check, HOST_ADVICE, "%s", word->text);
        finding_should(finding, "madvise");
        finding_set(finding, "kernel command line: transparent_hugepage=madvise; or echo madvise > "
                             "/sys/kernel/mm/transparent_hugepage/enabled");
        finding_costs(finding, never ? "where no hugepages are reserved, belayd's tables lie on "
                                       "ordinary pages: more address translation"
                                     : "the kernel gathers pages of every process, and whoever "
                                       "touches one then waits for it");
    }
}

static void judge_swap(const struct host_facts *facts, struct host_findings *findings)
{
    static const struct host_check check = {"swap", SECTION};
    const struct host_memory *memory = &facts->memory;
    if (memory->swap_total_kib.state != HOST_KNOWN || memory->swap_free_kib.state != HOST_KNOWN) {
        finding_unknown(findings, &check,
                        memory->swap_total_kib.state != HOST_KNOWN ? memory->swap_total_kib.state
                                                                   : memory->swap_free_kib.state,
                        "/proc/meminfo");
        return;
    }
    long long total = memory->swap_total_kib.value, unused = memory->swap_free_kib.value;
    if (total == 0) {
        (void)finding_add(findings, &check, HOST_OK, "none");
        return;
    }
    bool in_use = unused < total;
    struct host_finding *finding =
        in_use ? finding_add(findings, &check, HOST_WARNING, "%lld of %lld kB are in use",
                             total - unused, total)
               : finding_add(findings, &check, HOST_ADVICE, "there are %lld kB, not in use", total);
    finding_should(finding, "no swap on a node with busy workers");
    if (memory->swappiness.state == HOST_KNOWN)
        finding_set(finding,
                    "swapoff -a, and out of /etc/fstab; or at least sysctl vm.swappiness=1 "
                    "(now %lld)",
                    (long long)memory->swappiness.value);
    else
        finding_set(finding, "swapoff -a, and out of /etc/fstab");
    finding_costs(finding, "a page that has gone to disk is a stall of milliseconds");
}

static void judge_balancing(const struct host_facts *facts, struct host_findings *findings)
{
    static const struct host_check check = {"numa_balancing", SECTION};
    const struct host_number *balancing = &facts->memory.numa_balancing;
    if (balancing->state != HOST_KNOWN) {
        finding_unknown(findings, &check, balancing->state, "/proc/sys/kernel/numa_balancing");
    } else if (balancing->value != 0) {
        struct host_finding *finding = finding_add(findings, &check, HOST_ADVICE, "on");
        finding_should(finding, "off: workers are pinned beside their memory");
        finding_set(finding, "sysctl kernel.numa_balancing=0");
        finding_costs(finding,
                      "the kernel takes pages away to see who touches them: each is a page "
                      "fault of the worker that does");
    } else {
        (void)finding_add(findings, &check, HOST_OK, "off");
    }
}

static void judge_locked(const struct host_facts *facts, struct host_findings *findings)
{
    static const struct host_check check = {"memlock", SECTION};
    const struct host_number *limit = &facts->memory.locked_bytes;
    if (limit->state != HOST_KNOWN) {
        finding_unknown(findings, &check, limit->state, "/proc/self/limits");
    } else if (limit->value == HOST_UNLIMITED) {
        (void)finding_add(findings, &check, HOST_OK, "unlimited, in this shell");
    } else {
        struct host_finding *finding =
            finding_add(findings, &check, wants_dpdk(facts) ? HOST_WARNING : HOST_ADVICE,
                        "%lld bytes, in this shell", (long long)limit->value);
        finding_should(finding, "unlimited, for whoever starts belayd");
        finding_set(finding, "LimitMEMLOCK=infinity, which the installed unit has; or ulimit -l "
                             "unlimited");
        finding_costs(finding,
                      "vfio cannot pin what the device may reach: belayd started from here "
                      "has no PCI device");
    }
}

static void judge_files(const struct host_facts *facts, struct host_findings *findings)
{
    static const struct host_check check = {"nofile", SECTION};
    enum { FILES_MIN = 1024 }; /* what every process has where nobody lowered it */
    const struct host_number *limit = &facts->memory.files;
    if (limit->state != HOST_KNOWN) {
        finding_unknown(findings, &check, limit->state, "/proc/self/limits");
    } else if (limit->value >= FILES_MIN) {
        (void)finding_add(findings, &check, HOST_OK, "%lld, in this shell",
                          (long long)limit->value);
    } else {
        struct host_finding *finding = finding_add(findings, &check, HOST_WARNING,
                                                   "%lld, in this shell", (long long)limit->value);
        finding_should(finding,
                       "at least %d, for whoever starts belayd: one for each log segment of each "
                       "worker, and some dozens",
                       (int)FILES_MIN);
        finding_set(finding, "LimitNOFILE=65536, which the installed unit has; or ulimit -n 65536");
        finding_costs(finding, "a socket or a file that cannot be opened: a start that fails, or a "
                               "snapshot that a node does not get");
    }
}

void judge_memory(const struct host_facts *facts, struct host_findings *findings)
{
    judge_hugepages(facts, findings);
    judge_node_hugepages(facts, findings);
    judge_transparent(facts, findings);
    judge_swap(facts, findings);
    judge_balancing(facts, findings);
    judge_locked(facts, findings);
    judge_files(facts, findings);
}
