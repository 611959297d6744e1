/* SPDX-License-Identifier: Apache-2.0
 *
 * Which file says what. Nothing is judged here.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/cli/host/source.h"

enum { NAME_TEXT_MAX = 64 }; /* names of a directory that are worth a path; none here is longer */

static const char *path_of(char path[HOST_PATH_BYTES], const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static const char *path_of(char path[HOST_PATH_BYTES], const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(path, HOST_PATH_BYTES, format, arguments);
    va_end(arguments);
    return path;
}

static struct host_number number_at(const struct host_source *source, const char *path)
{
    struct host_text text;
    enum host_state state = source->read(source->context, path, &text);
    return state == HOST_KNOWN ? host_parse_number(text)
                               : (struct host_number){.state = (uint8_t)state};
}

/* A number that the kernel never lets be negative. */
static struct host_number count_at(const struct host_source *source, const char *path)
{
    struct host_number number = number_at(source, path);
    return number.state == HOST_KNOWN && number.value < 0
               ? (struct host_number){.state = HOST_GARBLED}
               : number;
}

static struct host_word word_at(const struct host_source *source, const char *path,
                                struct host_word (*parse)(struct host_text))
{
    struct host_text text;
    enum host_state state = source->read(source->context, path, &text);
    return state == HOST_KNOWN ? parse(text) : (struct host_word){.state = (uint8_t)state};
}

static struct host_set set_at(const struct host_source *source, const char *path,
                              struct host_set (*parse)(struct host_text))
{
    struct host_text text;
    enum host_state state = source->read(source->context, path, &text);
    return state == HOST_KNOWN ? parse(text) : (struct host_set){.state = (uint8_t)state};
}

/* ---- cores ----------------------------------------------------------------------------------- */

static void collect_idle(const struct host_source *source, struct host_core *core)
{
    char path[HOST_PATH_BYTES];
    core->idle_latency_us = (struct host_number){.state = HOST_MISSING};
    for (int i = 0; i < HOST_IDLE_STATES_MAX; i++) {
        const char *const at = "sys/devices/system/cpu/cpu%d/cpuidle/state%d/%s";
        struct host_number latency = count_at(source, path_of(path, at, core->cpu, i, "latency"));
        if (latency.state == HOST_MISSING && i > 0)
            break;
        struct host_number disabled = count_at(source, path_of(path, at, core->cpu, i, "disable"));
        if (latency.state != HOST_KNOWN || disabled.state != HOST_KNOWN) {
            core->idle_latency_us.state =
                latency.state != HOST_KNOWN ? latency.state : disabled.state;
            return;
        }
        if (disabled.value != 0 || (core->idle_latency_us.state == HOST_KNOWN &&
                                    latency.value <= core->idle_latency_us.value)) {
            if (core->idle_latency_us.state != HOST_KNOWN)
                core->idle_latency_us = (struct host_number){HOST_KNOWN, 0};
            continue;
        }
        core->idle_latency_us = latency;
        struct host_word name =
            word_at(source, path_of(path, at, core->cpu, i, "name"), host_parse_word);
        snprintf(core->idle_name, sizeof core->idle_name, "%s",
                 name.state == HOST_KNOWN ? name.text : "?");
    }
}

static void collect_cores(const struct host_source *source, struct host_facts *facts)
{
    char path[HOST_PATH_BYTES];
    for (size_t cpu = 0; cpu < HOST_CPUS_MAX && facts->cores_count < HOST_CORES_MAX; cpu++) {
        if (!host_cpus_has(&facts->cores, cpu))
            continue;
        struct host_core *core = &facts->core[facts->cores_count++];
        const char *const at = "sys/devices/system/cpu/cpu%d/%s";
        core->cpu = (uint16_t)cpu;
        core->siblings = set_at(
            source, path_of(path, at, core->cpu, "topology/thread_siblings_list"), host_parse_cpus);
        core->governor = word_at(source, path_of(path, at, core->cpu, "cpufreq/scaling_governor"),
                                 host_parse_word);
        collect_idle(source, core);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

struct node_taker {
    const struct host_source *source;
    struct host_memory *memory;
};

static void take_node(void *taker, const char *name)
{
    struct node_taker *at = taker;
    char path[HOST_PATH_BYTES];
    if (strncmp(name, "node", 4) != 0)
        return;
    struct host_number number = host_parse_number(host_text_of(name + 4));
    if (number.state != HOST_KNOWN || number.value < 0 || number.value >= HOST_NODES_MAX)
        return;
    struct host_node *node = &at->memory->nodes[number.value];
    const char *const pages =
        "sys/devices/system/node/node%d/hugepages/hugepages-%dkB/nr_hugepages";
    int index = (int)number.value;
    node->present = true;
    node->cpus = set_at(at->source, path_of(path, "sys/devices/system/node/node%d/cpulist", index),
                        host_parse_cpus);
    node->hugepages_2m = count_at(at->source, path_of(path, pages, index, 2048));
    node->hugepages_1g = count_at(at->source, path_of(path, pages, index, 1048576));
}

static void collect_memory(const struct host_source *source, struct host_memory *memory)
{
    struct host_text text;
    enum host_state state = source->read(source->context, "proc/meminfo", &text);
    host_parse_meminfo(state == HOST_KNOWN ? text : (struct host_text){"", 0}, memory);
    if (state != HOST_KNOWN)
        memory->hugepages_total.state = memory->hugepages_free.state = memory->hugepage_kib.state =
            memory->swap_total_kib.state = memory->swap_free_kib.state = (uint8_t)state;
    state = source->read(source->context, "proc/self/limits", &text);
    host_parse_limits(state == HOST_KNOWN ? text : (struct host_text){"", 0}, memory);
    if (state != HOST_KNOWN)
        memory->locked_bytes.state = memory->files.state = (uint8_t)state;
    memory->swappiness = count_at(source, "proc/sys/vm/swappiness");
    memory->numa_balancing = count_at(source, "proc/sys/kernel/numa_balancing");
    memory->transparent =
        word_at(source, "sys/kernel/mm/transparent_hugepage/enabled", host_parse_choice);
    struct node_taker taker = {source, memory};
    memory->nodes_state =
        (uint8_t)source->list(source->context, "sys/devices/system/node", take_node, &taker);
}

/* ---- interrupts ------------------------------------------------------------------------------ */

static void add_name(char names[HOST_NAMES_BYTES], const char *name)
{
    size_t used = strlen(names), count = strlen(name);
    if (used + count + 8 > HOST_NAMES_BYTES) {
        if (used >= 3 && strcmp(names + used - 3, "...") != 0)
            snprintf(names + used, HOST_NAMES_BYTES - used, ", ...");
        return;
    }
    snprintf(names + used, HOST_NAMES_BYTES - used, "%s%s", used ? ", " : "", name);
}

struct interrupt {
    uint32_t number;
    char name[24];
};

/* The rows first, their affinities afterwards: reading the next file ends the text of this one. */
static size_t list_interrupts(const struct host_source *source, struct interrupt *list,
                              uint8_t *state)
{
    struct host_text text, line, name;
    size_t count = 0;
    *state = (uint8_t)source->read(source->context, "proc/interrupts", &text);
    if (*state != HOST_KNOWN)
        return 0;
    size_t cpus = host_next_line(&text, &line) ? host_parse_interrupts_heading(line) : 0;
    if (cpus == 0) {
        *state = HOST_GARBLED;
        return 0;
    }
    while (host_next_line(&text, &line)) {
        struct interrupt row;
        if (!host_parse_interrupt(line, cpus, &row.number, &name))
            continue;
        if (count == HOST_INTERRUPTS_MAX) {
            *state = HOST_GARBLED;
            return 0;
        }
        if (name.count >= sizeof row.name)
            name.count = sizeof row.name - 1;
        struct host_word word = host_parse_word(name);
        snprintf(row.name, sizeof row.name, "%.20s", word.state == HOST_KNOWN ? word.text : "?");
        list[count++] = row;
    }
    return count;
}

static void collect_interrupts(const struct host_source *source, const struct host_cpus *cores,
                               struct host_interrupts *interrupts)
{
    char path[HOST_PATH_BYTES];
    static struct interrupt list[HOST_INTERRUPTS_MAX];
    size_t count = list_interrupts(source, list, &interrupts->state);
    interrupts->seen = (uint32_t)count;
    for (size_t i = 0; i < count; i++) {
        const char *const at = "proc/irq/%u/%s";
        struct host_set set = set_at(
            source, path_of(path, at, list[i].number, "effective_affinity_list"), host_parse_cpus);
        /* Not every kernel tells the core that it really goes to. */
        if (set.state == HOST_MISSING)
            set = set_at(source, path_of(path, at, list[i].number, "smp_affinity_list"),
                         host_parse_cpus);
        if (set.state != HOST_KNOWN) {
            interrupts->unknown++;
            if (interrupts->unknown_state == HOST_NOT_ASKED)
                interrupts->unknown_state = set.state;
        } else if (host_cpus_meet(&set.cpus, cores)) {
            char name[40];
            interrupts->touching++;
            snprintf(name, sizeof name, "%u %s", list[i].number, list[i].name);
            add_name(interrupts->names, name);
        }
    }
    interrupts->default_affinity = set_at(source, "proc/irq/default_smp_affinity", host_parse_mask);
}

struct process_taker {
    const struct host_source *source;
    bool kernel_thread; /* "kthreadd" was seen: these are the machine's own processes */
    int64_t balancers;
};

static void take_process(void *taker, const char *name)
{
    struct process_taker *at = taker;
    char path[HOST_PATH_BYTES];
    if (name[0] < '0' || name[0] > '9' || strlen(name) > NAME_TEXT_MAX)
        return;
    struct host_word command =
        word_at(at->source, path_of(path, "proc/%s/comm", name), host_parse_word);
    if (command.state != HOST_KNOWN)
        return;
    at->kernel_thread = at->kernel_thread || strcmp(command.text, "kthreadd") == 0;
    at->balancers += strcmp(command.text, "irqbalance") == 0;
}

static struct host_number collect_balancer(const struct host_source *source)
{
    struct process_taker taker = {.source = source};
    enum host_state state = source->list(source->context, "proc", take_process, &taker);
    if (state != HOST_KNOWN)
        return (struct host_number){.state = (uint8_t)state};
    if (taker.balancers == 0 && !taker.kernel_thread)
        return (struct host_number){.state = HOST_HIDDEN};
    return (struct host_number){HOST_KNOWN, taker.balancers};
}

/* ---- the card -------------------------------------------------------------------------------- */

static struct host_word link_at(const struct host_source *source, const char *path)
{
    struct host_word word = {.state = HOST_KNOWN};
    enum host_state state = source->link(source->context, path, word.text);
    /* Those who ask have seen the directory: no link says "none". */
    if (state == HOST_MISSING)
        return (struct host_word){.state = HOST_KNOWN};
    if (state == HOST_KNOWN && word.text[0] == '.') /* it becomes part of paths */
        return (struct host_word){.state = HOST_GARBLED};
    return state == HOST_KNOWN ? word : (struct host_word){.state = (uint8_t)state};
}

static bool is_user_driver(const char *driver)
{
    return strcmp(driver, "vfio-pci") == 0 || strcmp(driver, "uio_pci_generic") == 0 ||
           strcmp(driver, "igb_uio") == 0;
}

struct group_taker {
    const struct host_source *source;
    struct host_device *device;
};

/* A bridge of the group may keep the kernel's driver for such (pcieport): vfio accepts it. */
static void take_group_device(void *taker, const char *name)
{
    struct group_taker *at = taker;
    char path[HOST_PATH_BYTES];
    if (strlen(name) > NAME_TEXT_MAX || strcmp(name, at->device->address.text) == 0)
        return;
    struct host_word driver =
        link_at(at->source, path_of(path, "sys/bus/pci/devices/%s/driver", name));
    if (driver.state != HOST_KNOWN) {
        at->device->group_others.state = driver.state;
    } else if (driver.text[0] != '\0' && !is_user_driver(driver.text) &&
               strcmp(driver.text, "pcieport") != 0 && strcmp(driver.text, "pci-stub") != 0) {
        at->device->group_others.value++;
        add_name(at->device->group_names, name);
    }
}

static void collect_pci(const struct host_source *source, struct host_device *device)
{
    char path[HOST_PATH_BYTES];
    const char *const at = "sys/bus/pci/devices/%s/%s", *address = device->address.text;
    device->driver = link_at(source, path_of(path, at, address, "driver"));
    device->iommu_group = link_at(source, path_of(path, at, address, "iommu_group"));
    device->numa_node = number_at(source, path_of(path, at, address, "numa_node"));
    if (device->iommu_group.state != HOST_KNOWN || device->iommu_group.text[0] == '\0')
        return;
    struct group_taker taker = {source, device};
    device->group_others = (struct host_number){HOST_KNOWN, 0};
    enum host_state state =
        source->list(source->context,
                     path_of(path, "sys/kernel/iommu_groups/%s/devices", device->iommu_group.text),
                     take_group_device, &taker);
    if (state != HOST_KNOWN)
        device->group_others.state = (uint8_t)state;
}

static void take_nothing(void *taker, const char *name)
{
    (void)taker;
    (void)name;
}

static void take_count(void *taker, const char *name)
{
    (void)name;
    ++*(int64_t *)taker;
}

/* "0000:3b:00.0", by its colons: no interface's name has one. */
static bool looks_like_pci(const char *name)
{
    return strchr(name, ':') != NULL;
}

static void collect_device(const struct host_source *source, const char *name,
                           struct host_device *device)
{
    char path[HOST_PATH_BYTES];
    device->asked = true;
    device->is_pci = looks_like_pci(name);
    struct host_word given = host_parse_word(host_text_of(name));
    snprintf(device->name, sizeof device->name, "%s", given.text);
    if (!device->is_pci) {
        device->mtu = count_at(source, path_of(path, "sys/class/net/%s/mtu", device->name));
        device->address.state = device->mtu.state;
        if (device->mtu.state != HOST_KNOWN)
            return;
        /* A virtual interface has no device behind it, a virtio one has a device of its own kind.
         */
        device->address = link_at(source, path_of(path, "sys/class/net/%s/device", device->name));
        if (!looks_like_pci(device->address.text))
            return;
    } else {
        device->address = given;
    }
    path_of(path, "sys/bus/pci/devices/%s", device->address.text);
    enum host_state state = source->list(source->context, path, take_nothing, NULL);
    if (state != HOST_KNOWN)
        device->address.state = (uint8_t)state;
    else
        collect_pci(source, device);
}

/* Modules have a directory each; where /sys/module cannot be listed nothing is known. */
static struct host_number module_at(const struct host_source *source, const char *name)
{
    char path[HOST_PATH_BYTES];
    int64_t modules = 0;
    enum host_state all = source->list(source->context, "sys/module", take_count, &modules);
    if (all != HOST_KNOWN || modules == 0)
        return (struct host_number){.state = (uint8_t)(all != HOST_KNOWN ? all : HOST_MISSING)};
    enum host_state state =
        source->list(source->context, path_of(path, "sys/module/%s", name), take_nothing, NULL);
    if (state == HOST_MISSING)
        return (struct host_number){HOST_KNOWN, 0};
    return (struct host_number){.state = (uint8_t)state, .value = state == HOST_KNOWN};
}

static void collect_card(const struct host_source *source, const char *device,
                         struct host_card *card)
{
    collect_device(source, device, &card->device);
    card->vfio_pci = module_at(source, "vfio_pci");
    card->uio = module_at(source, "uio_pci_generic");
    if (card->uio.state == HOST_KNOWN && card->uio.value == 0)
        card->uio = module_at(source, "igb_uio");
    int64_t groups = 0;
    enum host_state state =
        source->list(source->context, "sys/kernel/iommu_groups", take_count, &groups);
    card->iommu_groups = (struct host_number){(uint8_t)state, groups};
    card->no_iommu =
        word_at(source, "sys/module/vfio/parameters/enable_unsafe_noiommu_mode", host_parse_word);
}

/* ---- the data directory's disk --------------------------------------------------------------- */

/* "write back" or "write through". */
static struct host_word parse_cache(struct host_text text)
{
    text = host_text_trim(text);
    if (!host_text_is(text, "write back") && !host_text_is(text, "write through"))
        return (struct host_word){.state = HOST_GARBLED};
    return host_parse_word(host_text_of(text.bytes[6] == 'b' ? "back" : "through"));
}

static void collect_queue(const struct host_source *source, const char *queue,
                          struct host_disk *disk)
{
    char path[HOST_PATH_BYTES];
    disk->write_cache = word_at(source, path_of(path, "%s/write_cache", queue), parse_cache);
    disk->scheduler = word_at(source, path_of(path, "%s/scheduler", queue), host_parse_choice);
    disk->rotational = count_at(source, path_of(path, "%s/rotational", queue));
}

/* The mount that the directory lies in; of several at one place the last covers the others. */
static enum host_state find_mount(const struct host_source *source, struct host_disk *disk,
                                  struct host_word *device)
{
    struct host_text text, line;
    struct host_mount mount;
    size_t best = 0;
    enum host_state state = source->read(source->context, "proc/self/mountinfo", &text);
    if (state != HOST_KNOWN)
        return state;
    while (host_next_line(&text, &line)) {
        size_t covers =
            host_parse_mount(line, &mount) ? host_mount_covers(mount.point, disk->path) : 0;
        if (covers == 0 || covers < best)
            continue;
        best = covers;
        *device = host_parse_word(mount.device);
        disk->filesystem = host_parse_word(mount.filesystem);
        disk->source = host_parse_word(mount.source);
    }
    return best > 0 ? HOST_KNOWN : HOST_GARBLED;
}

static void collect_disk(const struct host_source *source, const char *directory,
                         struct host_disk *disk)
{
    struct host_word device = {.state = HOST_GARBLED};
    char queue[HOST_PATH_BYTES - 32];
    disk->asked = true;
    snprintf(disk->path, sizeof disk->path, "%s", directory);
    enum host_state state = find_mount(source, disk, &device);
    if (state != HOST_KNOWN) {
        disk->filesystem.state = disk->write_cache.state = disk->scheduler.state =
            disk->rotational.state = (uint8_t)state;
        return;
    }
    /* A file system over several devices (btrfs) has a number of its own; its source still names
     * one of them. Of a partition the queue is its disk's, one directory up. */
    const char *slash = disk->source.state == HOST_KNOWN ? strrchr(disk->source.text, '/') : NULL;
    for (size_t i = 0; i < 4; i++) {
        const char *name = i < 2 ? device.text : slash ? slash + 1 : "";
        if (name[0] == '\0' || strchr(name, '/') || name[0] == '.')
            continue;
        bool up = i % 2 == 1;
        snprintf(queue, sizeof queue, "sys/%s/block/%.63s%s/queue", i < 2 ? "dev" : "class", name,
                 up ? "/.." : "");
        collect_queue(source, queue, disk);
        if (disk->write_cache.state != HOST_MISSING)
            return;
    }
    if (disk->write_cache.state == HOST_NOT_ASKED)
        disk->write_cache.state = disk->scheduler.state = disk->rotational.state = HOST_MISSING;
}

/* ---- all of it ------------------------------------------------------------------------------- */

void host_collect(const struct host_source *source, const struct host_request *request,
                  struct host_facts *facts)
{
    struct host_text text;
    *facts = (struct host_facts){.cores_given = request->cores_given, .cores = request->cores};
    enum host_state state = source->read(source->context, "proc/cmdline", &text);
    if (state == HOST_KNOWN)
        host_parse_cmdline(text, &facts->cmdline);
    else
        facts->cmdline.state = (uint8_t)state;
    facts->online = set_at(source, "sys/devices/system/cpu/online", host_parse_cpus);
    if (!facts->cores_given && facts->cmdline.state == HOST_KNOWN) {
        facts->cores = facts->cmdline.isolated;
        if (facts->online.state == HOST_KNOWN) { /* "2-N" */
            struct host_cpus beyond = host_cpus_without(&facts->cores, &facts->online.cpus);
            facts->cores = host_cpus_without(&facts->cores, &beyond);
        }
    }
    collect_cores(source, facts);
    collect_memory(source, &facts->memory);
    collect_interrupts(source, &facts->cores, &facts->interrupts);
    facts->interrupts.balancer = collect_balancer(source);
    facts->clocksource = word_at(
        source, "sys/devices/system/clocksource/clocksource0/current_clocksource", host_parse_word);
    facts->rt_runtime_us = number_at(source, "proc/sys/kernel/sched_rt_runtime_us");
    facts->nmi_watchdog = count_at(source, "proc/sys/kernel/nmi_watchdog");
    facts->io_uring_disabled = count_at(source, "proc/sys/kernel/io_uring_disabled");
    state = source->read(source->context, "proc/sys/kernel/osrelease", &text);
    facts->release = state == HOST_KNOWN ? host_parse_release(text)
                                         : (struct host_number){.state = (uint8_t)state};
    facts->rmem_max = count_at(source, "proc/sys/net/core/rmem_max");
    facts->wmem_max = count_at(source, "proc/sys/net/core/wmem_max");
    if (request->device)
        collect_card(source, request->device, &facts->card);
    if (request->data_dir)
        collect_disk(source, request->data_dir, &facts->disk);
}
