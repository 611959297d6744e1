/* SPDX-License-Identifier: Apache-2.0
 *
 * check-host: parsers at their edges, and every judgement both ways. One machine is as
 * docs/tuning.md wants it; each row changes one file of it and names the one finding that changes
 * with it.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/host/judge.h"
#include "tests/unit/host_rig.h"

#define COUNT_OF(list) (sizeof(list) / sizeof((list)[0]))

/* ---- parsers --------------------------------------------------------------------------------- */

static void list_is(const char *text, const char *expected)
{
    struct host_set set = host_parse_cpus(host_text_of(text));
    char shown[64];
    cr_assert_eq(set.state, expected ? HOST_KNOWN : HOST_GARBLED, "'%s': state %d", text,
                 set.state);
    if (expected)
        cr_assert_str_eq(host_cpus_text(&set.cpus, shown, sizeof shown), expected, "'%s'", text);
}

Test(host, lists_of_cpus)
{
    list_is("0\n", "0");
    list_is("2-3,8", "2-3,8");
    list_is("", "none");
    list_is("\n", "none");
    list_is("8,2-4,3", "2-4,8");
    list_is("1022-N", "1022-1023");
    list_is("all", "0-1023");
    list_is("0-9:2/4", "0-1,4-5,8-9");
    list_is("3-3", "3");
    static const char *const bad[] = {
        "3-1",  "-1",  "1-",      "1024",    "0-1024",  "1,",   ",1",
        "1,,2", "a",   "0-7:0/4", "0-7:5/4", "0-7:1/0", "0-7:", "99999999999999999999",
        "1 2",  "all,"};
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        list_is(bad[i], NULL);
}

Test(host, a_list_that_does_not_fit_is_cut)
{
    struct host_set set = host_parse_cpus(host_text_of("0,2,4,6,8,10,12,14,16"));
    char shown[16];
    host_cpus_text(&set.cpus, shown, sizeof shown);
    cr_assert_str_eq(shown, "0,2,4,6,8,...", "%s", shown);
}

Test(host, masks)
{
    static const struct {
        const char *text;
        const char *expected;
    } cases[] = {
        {"f3\n", "0-1,4-7"}, {"1,00000000", "32"}, {"ffffffff,ffffffff", "0-63"},
        {"0", "none"},       {"1,0000000", NULL},  {"", NULL},
        {"g", NULL},         {",", NULL},          {"1,,00000000", NULL},
        {"123456789", NULL}, {",00000001", NULL},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct host_set set = host_parse_mask(host_text_of(cases[i].text));
        char shown[64];
        cr_assert_eq(set.state, cases[i].expected ? HOST_KNOWN : HOST_GARBLED, "'%s'",
                     cases[i].text);
        if (cases[i].expected)
            cr_assert_str_eq(host_cpus_text(&set.cpus, shown, sizeof shown), cases[i].expected);
    }
    char endless[8 * HOST_CPUS_MAX];
    memset(endless, 'f', sizeof endless);
    cr_assert_eq(host_parse_mask((struct host_text){endless, sizeof endless}).state, HOST_GARBLED);
}

Test(host, numbers_and_words)
{
    cr_assert_eq(host_parse_number(host_text_of(" 950000\n")).value, 950000);
    cr_assert_eq(host_parse_number(host_text_of("-1")).value, -1);
    cr_assert_eq(host_parse_number(host_text_of("9223372036854775806")).value, INT64_MAX - 1);
    static const char *const bad[] = {
        "", "-", "--1", "1 2", "0x1", "1e9", "9223372036854775807", "18446744073709551616", "+1"};
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        cr_assert_eq(host_parse_number(host_text_of(bad[i])).state, HOST_GARBLED, "'%s'", bad[i]);
    cr_assert_eq(host_parse_number((struct host_text){"1\0", 2}).state, HOST_GARBLED);
    cr_assert_str_eq(host_parse_choice(host_text_of("always [madvise] never\n")).text, "madvise");
    static const char *const none[] = {"always", "[]", "[a b]", "[[a]", "", "]a["};
    for (size_t i = 0; i < COUNT_OF(none); i++)
        cr_assert_eq(host_parse_choice(host_text_of(none[i])).state, HOST_GARBLED, "'%s'", none[i]);
    cr_assert_eq(host_parse_word(host_text_of("\x1b[31m")).state, HOST_GARBLED);
}

Test(host, releases)
{
    cr_assert_eq(host_parse_release(host_text_of("6.1.0-18-amd64\n")).value, HOST_RELEASE(6, 1));
    cr_assert_eq(host_parse_release(host_text_of("6.12-rc1")).value, HOST_RELEASE(6, 12));
    cr_assert_lt(HOST_RELEASE(5, 19), HOST_RELEASE(6, 0));
    static const char *const bad[] = {"",    "6",    "6.",     ".1",     "x.1",
                                      "6.x", "-6.1", "1000.1", "6.10000"};
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        cr_assert_eq(host_parse_release(host_text_of(bad[i])).state, HOST_GARBLED, "'%s'", bad[i]);
}

Test(host, command_line)
{
    struct host_cmdline line;
    struct host_cpus none = {{0}};
    host_parse_cmdline(host_text_of("a=\"x isolcpus=7 y\" isolcpus=nohz,domain,2-3 nohz-full=1 "
                                    "rcu_nocbs=4 intel_iommu=on,sm_on iommu=pt hugepages=4 "
                                    "mce=ignore_ce -- isolcpus=6 mce=off\n"),
                       &line);
    cr_assert(host_cpus_has(&line.isolated, 2) && host_cpus_has(&line.isolated, 3));
    cr_assert_eq(host_cpus_count(&line.isolated), 2, "neither a quoted one nor init's");
    cr_assert(host_cpus_has(&line.nohz_full, 1), "a dash for an underscore");
    cr_assert(host_cpus_has(&line.rcu_nocbs, 1) && host_cpus_has(&line.rcu_nocbs, 4));
    cr_assert(line.iommu_on && line.iommu_passthrough && line.hugepages &&
              line.machine_checks_quiet && !line.managed_irq && !line.iommu_off);
    host_parse_cmdline(host_text_of("isolcpus=managed_irq,2-3 intel_iommu=off"), &line);
    cr_assert(line.managed_irq && line.iommu_off && !line.iommu_on);
    cr_assert_arr_eq(&line.isolated, &none, sizeof none, "without the flag `domain`");
    host_parse_cmdline(host_text_of("isolcpus=2-3 isolcpus=4"), &line);
    cr_assert(host_cpus_has(&line.isolated, 4) && host_cpus_count(&line.isolated) == 1, "the last");
    host_parse_cmdline(host_text_of("isolcpus=2-3 isolcpus=x"), &line);
    cr_assert(host_cpus_has(&line.isolated, 2), "what the kernel refuses changes nothing");
}

Test(host, mounts)
{
    cr_assert_eq(host_mount_covers(host_text_of("/var"), "/var/lib"), 4);
    cr_assert_eq(host_mount_covers(host_text_of("/var"), "/variable"), 0);
    cr_assert_eq(host_mount_covers(host_text_of("/var"), "/var"), 4);
    cr_assert_eq(host_mount_covers(host_text_of("/"), "/var"), 1);
    cr_assert_eq(host_mount_covers(host_text_of("/a\\040b"), "/a b/c"), 4);
    cr_assert_eq(host_mount_covers(host_text_of("/a\\04"), "/a b"), 0);
    cr_assert_eq(host_mount_covers(host_text_of("/longer"), "/l"), 0);
}

/* ---- judgements ------------------------------------------------------------------------------ */

static char *machine_text(size_t *count)
{
    FILE *file = fopen(BELAY_GOLDEN_DIR "/tuned.root", "r");
    cr_assert(file, "no " BELAY_GOLDEN_DIR "/tuned.root");
    char *text = calloc(1, (1 << 16) + 1);
    *count = fread(text, 1, 1 << 16, file);
    (void)fclose(file);
    return text;
}

static struct host_request request_of(const char *cores, const char *device, const char *directory)
{
    struct host_request request = {
        .cores_given = cores != NULL, .device = device, .data_dir = directory};
    if (cores)
        request.cores = host_parse_cpus(host_text_of(cores)).cpus;
    return request;
}

static struct host_rig rig;
static struct host_facts facts;
static struct host_findings findings;

static void judge_with(const char *cores, const char *device, const char *directory)
{
    struct host_source source = host_rig_source(&rig);
    struct host_request request = request_of(cores, device, directory);
    host_collect(&source, &request, &facts);
    host_judge(&facts, &findings);
}

static void judge(void)
{
    judge_with("2-3", "0000:3b:00.0", "/var/lib/belay");
}

static const struct host_finding *found(const char *id, uint8_t severity)
{
    for (size_t i = 0; i < findings.count; i++)
        if (strcmp(findings.items[i].id, id) == 0 && findings.items[i].severity == severity)
            return &findings.items[i];
    return NULL;
}

static size_t worse_than_ok(void)
{
    return findings.count - host_findings_count(&findings, HOST_OK);
}

static char *load_tuned(void)
{
    size_t count = 0;
    char *text = machine_text(&count);
    host_rig_load(&rig, (struct host_text){text, count});
    return text;
}

#define CPU2   "sys/devices/system/cpu/cpu2/"
#define CARD   "sys/bus/pci/devices/0000:3b:00.0/"
#define DISK   "sys/dev/block/259:5/../queue/"
#define KERNEL "proc/sys/kernel/"
#define CMDLINE                                                                                    \
    "isolcpus=managed_irq,domain,2-3 nohz_full=2-3 rcu_nocbs=2-3 iommu=pt mce=ignore_ce "
#define HUGE    "HugePages_Total: 9\nHugePages_Free: 9\nHugepagesize: 2048 kB\n"
#define NO_SWAP "SwapTotal: 0 kB\nSwapFree: 0 kB\n"
#define LIMITS(locked, files)                                                                      \
    "Max locked memory " locked " x bytes\nMax open files " files " x files"
#define MOUNT(filesystem) "40 22 259:5 / /var/lib/belay rw - " filesystem " /dev/nvme1n1p1 rw"
#define COLUMNS           "CPU0 CPU1\n"

struct change {
    const char *id;
    uint8_t severity;
    const char *path;
    const char *text;
    const char *word; /* of what is said */
};

static const struct change changes[] = {
    {"online", HOST_ERROR, "sys/devices/system/cpu/online", "0-2", "core 3"},
    {"online", HOST_WARNING, "sys/devices/system/cpu/online", "2-3", "all cores"},
    {"isolcpus", HOST_WARNING, "proc/cmdline",
     "isolcpus=managed_irq,domain,2 nohz_full=2-3 iommu=pt mce=ignore_ce", "core 3"},
    {"managed_irq", HOST_ADVICE, "proc/cmdline",
     "isolcpus=2-3 nohz_full=2-3 iommu=pt mce=ignore_ce", "managed_irq"},
    {"nohz_full", HOST_ADVICE, "proc/cmdline",
     "isolcpus=managed_irq,domain,2-3 nohz_full=3 rcu_nocbs=2-3 iommu=pt mce=ignore_ce", "core 2"},
    {"mce", HOST_ADVICE, "proc/cmdline", "isolcpus=managed_irq,domain,2-3 nohz_full=2-3 iommu=pt",
     "polled"},
    {"iommu_passthrough", HOST_ADVICE, "proc/cmdline",
     "isolcpus=managed_irq,domain,2-3 nohz_full=2-3 mce=ignore_ce", "translated"},
    {"smt", HOST_WARNING, CPU2 "topology/thread_siblings_list", "2,10", "core 2 "},
    {"governor", HOST_WARNING, CPU2 "cpufreq/scaling_governor", "ondemand", "ondemand on core 2"},
    {"idle", HOST_ADVICE, CPU2 "cpuidle/state1/latency", "133", "core 2 "},
    {"irq_affinity", HOST_WARNING, "proc/irq/41/effective_affinity_list", "3", "1 of 3"},
    {"irq_default", HOST_ADVICE, "proc/irq/default_smp_affinity", "8", "cores 2-3"},
    {"irqbalance", HOST_WARNING, "proc/812/comm", "irqbalance\n", "runs"},
    {"nmi_watchdog", HOST_ADVICE, KERNEL "nmi_watchdog", "1", "on"},
    {"clocksource", HOST_WARNING, "sys/devices/system/clocksource/clocksource0/current_clocksource",
     "acpi_pm", "acpi_pm"},
    {"clocksource", HOST_ADVICE, "sys/devices/system/clocksource/clocksource0/current_clocksource",
     "kvm-clock", "kvm-clock"},
    {"rt_runtime", HOST_ADVICE, KERNEL "sched_rt_runtime_us", "-1", "no limit"},
    {"hugepages", HOST_ERROR, "proc/meminfo",
     NO_SWAP "HugePages_Total: 0\nHugePages_Free: 0\nHugepagesize: 2048 kB\n", "none, though"},
    {"hugepages", HOST_ADVICE, "proc/meminfo",
     NO_SWAP "HugePages_Total: 9\nHugePages_Free: 0\nHugepagesize: 2048 kB\n", "none is free"},
    {"node_hugepages", HOST_WARNING,
     "sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages", "0", "node 0"},
    {"transparent_hugepage", HOST_ADVICE, "sys/kernel/mm/transparent_hugepage/enabled",
     "[always] madvise never", "always"},
    {"transparent_hugepage", HOST_ADVICE, "sys/kernel/mm/transparent_hugepage/enabled",
     "always madvise [never]", "never"},
    {"swap", HOST_ADVICE, "proc/meminfo", HUGE "SwapTotal: 8 kB\nSwapFree: 8 kB\n", "not in use"},
    {"swap", HOST_WARNING, "proc/meminfo", HUGE "SwapTotal: 8 kB\nSwapFree: 5 kB\n", "3 of 8"},
    {"numa_balancing", HOST_ADVICE, KERNEL "numa_balancing", "1", "on"},
    {"memlock", HOST_WARNING, "proc/self/limits", LIMITS("65536", "1024"), "65536"},
    {"nofile", HOST_WARNING, "proc/self/limits", LIMITS("unlimited", "1023"), "1023"},
    {"driver", HOST_ERROR, CARD "driver", "../drivers/ixgbe", "ixgbe"},
    {"iommu", HOST_WARNING, "sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y",
     "without an IOMMU"},
    {"card_node", HOST_WARNING, CARD "numa_node", "1", "node 1"},
    {"rmem_max", HOST_ADVICE, "proc/sys/net/core/rmem_max", "1048575", "1048575"},
    {"wmem_max", HOST_ADVICE, "proc/sys/net/core/wmem_max", "212992", "212992"},
    {"io_uring", HOST_WARNING, KERNEL "io_uring_disabled", "1", "without rights"},
    {"io_uring", HOST_WARNING, KERNEL "io_uring_disabled", "2", "everybody"},
    {"filesystem", HOST_ERROR, "proc/self/mountinfo", MOUNT("tmpfs"), "memory"},
    {"filesystem", HOST_WARNING, "proc/self/mountinfo", MOUNT("nfs4"), "nfs4"},
    {"filesystem", HOST_NOT_KNOWN, "proc/self/mountinfo", MOUNT("zfs"), "zfs"},
    {"write_cache", HOST_ADVICE, DISK "write_cache", "write back", "write back"},
    {"io_scheduler", HOST_ADVICE, DISK "scheduler", "none [bfq]", "bfq"},
    {"io_scheduler", HOST_WARNING, DISK "rotational", "1", "turns"},
    /* What cannot be made out is not known, whatever it looks like. */
    {"isolcpus", HOST_NOT_KNOWN, "proc/cmdline", NULL, ""},
    {"nohz_full", HOST_NOT_KNOWN, "proc/cmdline", NULL, ""},
    {"rcu_nocbs", HOST_NOT_KNOWN, "proc/cmdline", NULL, ""},
    {"mce", HOST_NOT_KNOWN, "proc/cmdline", NULL, ""},
    {"iommu_passthrough", HOST_NOT_KNOWN, "proc/cmdline", NULL, ""},
    {"online", HOST_NOT_KNOWN, "sys/devices/system/cpu/online", NULL, ""},
    {"smt", HOST_NOT_KNOWN, CPU2 "topology/thread_siblings_list", NULL, "core 2"},
    {"smt", HOST_NOT_KNOWN, CPU2 "topology/thread_siblings_list", "3", "core 2"},
    {"governor", HOST_NOT_KNOWN, CPU2 "cpufreq/scaling_governor", NULL, "core 2"},
    {"idle", HOST_NOT_KNOWN, CPU2 "cpuidle/state1/disable", NULL, "core 2"},
    {"idle", HOST_NOT_KNOWN, CPU2 "cpuidle/state0/latency", NULL, "core 2"},
    {"irq_affinity", HOST_NOT_KNOWN, "proc/interrupts", NULL, ""},
    {"irq_affinity", HOST_NOT_KNOWN, "proc/interrupts", COLUMNS " LOC: 1 2 Local", "no interrupt"},
    {"irq_affinity", HOST_NOT_KNOWN, "proc/irq/42/smp_affinity_list", NULL, "1 of 3"},
    {"irq_default", HOST_NOT_KNOWN, "proc/irq/default_smp_affinity", NULL, ""},
    {"irqbalance", HOST_NOT_KNOWN, "proc/2/comm", NULL, "container"},
    {"nmi_watchdog", HOST_NOT_KNOWN, KERNEL "nmi_watchdog", NULL, ""},
    {"clocksource", HOST_NOT_KNOWN,
     "sys/devices/system/clocksource/clocksource0/current_clocksource", NULL, ""},
    {"rt_runtime", HOST_NOT_KNOWN, KERNEL "sched_rt_runtime_us", NULL, ""},
    {"hugepages", HOST_NOT_KNOWN, "proc/meminfo", NO_SWAP "HugePages_Total: -1\n", ""},
    {"swap", HOST_NOT_KNOWN, "proc/meminfo", HUGE "SwapTotal: 0 kB\n", ""},
    {"swap", HOST_NOT_KNOWN, "proc/meminfo", HUGE "SwapTotal: 0\nSwapFree: 0 kB", ""},
    {"node_hugepages", HOST_NOT_KNOWN, "sys/devices/system/node/node0/cpulist", NULL, "core 2"},
    {"transparent_hugepage", HOST_NOT_KNOWN, "sys/kernel/mm/transparent_hugepage/enabled", NULL,
     ""},
    {"numa_balancing", HOST_NOT_KNOWN, KERNEL "numa_balancing", NULL, ""},
    {"memlock", HOST_NOT_KNOWN, "proc/self/limits", "Max open files 4096", ""},
    {"memlock", HOST_NOT_KNOWN, "proc/self/limits", LIMITS("-1", "4096"), ""},
    {"nofile", HOST_NOT_KNOWN, "proc/self/limits", "Max locked memory unlimited", ""},
    {"card_node", HOST_NOT_KNOWN, CARD "numa_node", NULL, ""},
    {"card_node", HOST_NOT_KNOWN, CARD "numa_node", "-1", "-1"},
    {"rmem_max", HOST_NOT_KNOWN, "proc/sys/net/core/rmem_max", NULL, ""},
    {"wmem_max", HOST_NOT_KNOWN, "proc/sys/net/core/wmem_max", NULL, ""},
    {"io_uring", HOST_NOT_KNOWN, KERNEL "osrelease", NULL, "osrelease"},
    {"io_uring", HOST_NOT_KNOWN, KERNEL "osrelease", "6.6.0-1-amd64", "io_uring_disabled"},
    {"io_uring", HOST_NOT_KNOWN, KERNEL "io_uring_disabled", "-1", "io_uring_disabled"},
    {"filesystem", HOST_NOT_KNOWN, "proc/self/mountinfo", NULL, ""},
    {"write_cache", HOST_NOT_KNOWN, DISK "write_cache", "write around", ""},
    {"io_scheduler", HOST_NOT_KNOWN, DISK "scheduler", NULL, ""},
};

static void changed(const struct change *change, const char *id)
{
    const struct host_finding *finding = found(id, change->severity);
    cr_assert(finding, "%s, '%s': no finding %s %s", change->path,
              change->text ? change->text : "(missing)", host_severity_name(change->severity), id);
    cr_assert(strstr(finding->is, change->word), "%s: '%s' is not in '%s'", change->path,
              change->word, finding->is);
}

Test(host, a_machine_made_ready_is_well)
{
    char *text = load_tuned();
    judge();
    for (size_t i = 0; i < findings.count; i++)
        cr_expect_eq(findings.items[i].severity, HOST_OK, "%s: %s", findings.items[i].id,
                     findings.items[i].is);
    cr_assert_geq(findings.count, 30);
    free(text);
}

Test(host, each_file_decides_its_finding)
{
    for (size_t i = 0; i < COUNT_OF(changes); i++) {
        char *text = load_tuned();
        if (changes[i].text)
            host_rig_set(&rig, changes[i].path, changes[i].text);
        else
            host_rig_break(&rig, changes[i].path, HOST_MISSING);
        judge();
        changed(&changes[i], changes[i].id);
        cr_assert_null(found(changes[i].id, HOST_OK), "%s is said to be well too", changes[i].id);
        /* A change concerns one check; where a whole file is replaced or missing, more than one. */
        bool whole = strncmp(changes[i].path, "proc/", 5) == 0 &&
                     strncmp(changes[i].path, "proc/sys", 8) != 0 &&
                     strncmp(changes[i].path, "proc/irq", 8) != 0;
        if (!whole && strcmp(changes[i].path, "sys/devices/system/node/node0/cpulist") != 0)
            cr_assert_eq(worse_than_ok(), 1, "%s: %zu findings", changes[i].path, worse_than_ok());
        free(text);
    }
}

/* Every check that a machine made ready passes has a row where it does not. */
Test(host, no_check_without_its_fault)
{
    char *text = load_tuned();
    judge();
    for (size_t i = 0; i < findings.count; i++) {
        const char *id = findings.items[i].id;
        size_t faults = 0, unknown = 0;
        for (size_t j = 0; j < COUNT_OF(changes); j++) {
            if (strcmp(changes[j].id, id) != 0)
                continue;
            unknown += changes[j].severity == HOST_NOT_KNOWN;
            faults += changes[j].severity != HOST_NOT_KNOWN;
        }
        /* Those have tests of their own below. */
        static const char *const apart[] = {"cores",       "device", "vfio",      "iommu",
                                            "iommu_group", "driver", "rcu_nocbs", "managed_irq"};
        for (size_t j = 0; j < COUNT_OF(apart); j++)
            if (strcmp(id, apart[j]) == 0)
                faults = unknown = 1;
        cr_expect(faults > 0 && unknown > 0, "%s: %zu faults, %zu unknown", id, faults, unknown);
    }
    free(text);
}

Test(host, nobody_may_read_anything)
{
    char *text = load_tuned();
    for (size_t i = 0; i < rig.count; i++)
        rig.files[i].state = HOST_DENIED;
    static const char *const directories[] = {"proc", "sys/devices/system/node", "sys/module",
                                              "sys/kernel/iommu_groups",
                                              "sys/bus/pci/devices/0000:3b:00.0"};
    for (size_t i = 0; i < COUNT_OF(directories); i++)
        host_rig_break(&rig, directories[i], HOST_DENIED);
    judge();
    for (size_t i = 0; i < findings.count; i++) {
        const struct host_finding *finding = &findings.items[i];
        if (strcmp(finding->id, "cores") == 0)
            continue;
        cr_expect_eq(finding->severity, HOST_NOT_KNOWN, "%s: %s", finding->id, finding->is);
        cr_expect(strstr(finding->is, "may not be read"), "%s: %s", finding->id, finding->is);
    }
    free(text);
}

Test(host, cores_not_named)
{
    char *text = load_tuned();
    judge_with(NULL, NULL, NULL);
    cr_assert_eq(facts.cores_count, 2, "those that are isolated");
    cr_assert_null(found("driver", HOST_OK), "no device was asked about");
    cr_assert_null(found("filesystem", HOST_OK), "no directory was asked about");
    host_rig_set(&rig, "proc/cmdline", "isolcpus=6-N");
    judge_with(NULL, NULL, NULL);
    cr_assert_eq(facts.cores_count, 2, "N is the last one that is online");
    host_rig_set(&rig, "proc/cmdline", "quiet");
    judge_with(NULL, NULL, NULL);
    cr_assert(found("cores", HOST_ADVICE), "none is isolated, none is named");
    host_rig_break(&rig, "proc/cmdline", HOST_DENIED);
    judge_with(NULL, NULL, NULL);
    cr_assert(found("cores", HOST_NOT_KNOWN), "which are isolated is not known");
    free(text);
}

Test(host, the_innermost_mount)
{
    char *text = load_tuned();
    host_rig_set(&rig, "proc/self/mountinfo",
                 MOUNT("ext4") "\n41 22 0:9 / /var rw - tmpfs none rw\n22 1 0:8 / / rw - nfs x rw");
    judge();
    cr_assert(found("filesystem", HOST_OK), "wherever it stands");
    host_rig_set(&rig, "proc/self/mountinfo", MOUNT("ext4") "\n" MOUNT("tmpfs"));
    judge();
    cr_assert(found("filesystem", HOST_ERROR), "the last one at a place covers the others");
    free(text);
}

Test(host, deferred_work)
{
    char *text = load_tuned();
    host_rig_set(&rig, "proc/cmdline", "isolcpus=managed_irq,domain,2-3 nohz_full=2 iommu=pt");
    judge();
    cr_assert(found("rcu_nocbs", HOST_ADVICE) &&
                  strstr(found("rcu_nocbs", HOST_ADVICE)->is, "core 3"),
              "nohz_full implies it, for its own cores");
    free(text);
}

static void break_below(const char *directory, enum host_state state)
{
    for (size_t i = 0; i < rig.count; i++)
        if (rig.files[i].path.count > strlen(directory) &&
            memcmp(rig.files[i].path.bytes, directory, strlen(directory)) == 0)
            rig.files[i].state = (uint8_t)state;
}

Test(host, the_card)
{
    char *text = load_tuned();
    break_below("sys/bus/pci/devices/0000:3b:00.0", HOST_MISSING);
    judge();
    cr_assert(found("device", HOST_NOT_KNOWN), "no such card");
    cr_assert_null(found("driver", HOST_ERROR), "of no card nothing else is said");

    host_rig_load(&rig, (struct host_text){text, strlen(text)});
    host_rig_break(&rig, CARD "driver", HOST_MISSING);
    judge();
    cr_assert(found("driver", HOST_ERROR) && strstr(found("driver", HOST_ERROR)->is, "no driver"));
    host_rig_break(&rig, CARD "driver", HOST_DENIED);
    judge();
    cr_assert(found("driver", HOST_NOT_KNOWN));

    host_rig_load(&rig, (struct host_text){text, strlen(text)});
    host_rig_set(&rig, CARD "driver", "../uio_pci_generic");
    judge();
    cr_assert(found("driver", HOST_WARNING));
    cr_assert_null(found("iommu_group", HOST_OK), "groups are vfio's");
    host_rig_set(&rig, CARD "driver", "../mlx5_core");
    judge();
    cr_assert(found("driver", HOST_OK));

    host_rig_load(&rig, (struct host_text){text, strlen(text)});
    host_rig_break(&rig, "sys/module/vfio_pci", HOST_MISSING);
    judge();
    cr_assert(found("vfio", HOST_ERROR));
    break_below("sys/module", HOST_MISSING);
    judge();
    cr_assert(found("vfio", HOST_NOT_KNOWN), "without a list of modules no module is missing");
    free(text);
}

Test(host, the_iommu)
{
    char *text = load_tuned();
    host_rig_set(&rig, "sys/kernel/iommu_groups/17/devices/0000:3b:00.1", "");
    host_rig_set(&rig, "sys/bus/pci/devices/0000:3b:00.1/driver", "x");
    rig.files[rig.count - 1].kind = '-';
    host_rig_set(&rig, "sys/bus/pci/devices/0000:3b:00.1/driver", "../drivers/ixgbe");
    judge();
    cr_assert(found("iommu_group", HOST_ERROR), "half of a group");
    cr_assert(strstr(found("iommu_group", HOST_ERROR)->is, "0000:3b:00.1"));
    host_rig_set(&rig, "sys/bus/pci/devices/0000:3b:00.1/driver", "../drivers/vfio-pci");
    judge();
    cr_assert(found("iommu_group", HOST_OK), "a whole group");
    host_rig_break(&rig, "sys/bus/pci/devices/0000:3b:00.1/driver", HOST_DENIED);
    judge();
    cr_assert(found("iommu_group", HOST_NOT_KNOWN));

    host_rig_load(&rig, (struct host_text){text, strlen(text)});
    break_below("sys/kernel/iommu_groups", HOST_MISSING);
    host_rig_break(&rig, CARD "iommu_group", HOST_MISSING);
    judge();
    cr_assert(found("iommu", HOST_NOT_KNOWN), "a kernel without the directory");
    host_rig_break(&rig, "sys/kernel/iommu_groups", HOST_KNOWN);
    judge();
    cr_assert(found("iommu", HOST_ERROR), "an empty one");
    host_rig_set(&rig, CARD "driver", "../igb_uio");
    judge();
    cr_assert(found("iommu", HOST_WARNING), "uio works without");
    free(text);
}

Test(host, an_interface)
{
    char *text = load_tuned();
    judge_with("2-3", "eth0", NULL);
    cr_assert(found("device", HOST_NOT_KNOWN), "there is none");
    host_rig_set(&rig, "sys/class/net/eth0/mtu", "1500\n");
    judge_with("2-3", "eth0", NULL);
    cr_assert(found("device", HOST_OK) && found("mtu", HOST_OK));
    host_rig_set(&rig, "sys/class/net/eth0/mtu", "9000\n");
    judge_with("2-3", "eth0", NULL);
    cr_assert(found("mtu", HOST_ADVICE));
    host_rig_set(&rig, "sys/class/net/eth0/mtu", "1279\n");
    judge_with("2-3", "eth0", NULL);
    cr_assert(found("mtu", HOST_WARNING));
    host_rig_set(&rig, "proc/meminfo",
                 NO_SWAP "HugePages_Total: 0\nHugePages_Free: 0\n"
                         "Hugepagesize: 2048 kB");
    judge_with("2-3", "eth0", NULL);
    cr_assert(found("hugepages", HOST_ADVICE), "kernel UDP does without");
    free(text);
}
