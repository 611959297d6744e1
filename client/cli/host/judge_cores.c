/* SPDX-License-Identifier: Apache-2.0
 *
 * The cores that workers are to have, and what else runs on them.
 */
#include <stdio.h>
#include <string.h>

#include "client/cli/host/judge_internal.h"

static const char SECTION[] = "Cores";

enum {
    /* A rule of this command: it lets C1 and its like pass. docs/tuning.md names it. */
    IDLE_LATENCY_US_MAX = 2,
};

/* ---- the command line ------------------------------------------------------------------------ */

static void judge_isolated(const struct host_facts *facts, struct host_findings *findings)
{
    static const struct host_check check = {"isolcpus", SECTION};
    const struct host_cmdline *cmdline = &facts->cmdline;
    char list[HOST_LIST_BYTES], given[HOST_LIST_BYTES];
    if (cmdline->state != HOST_KNOWN) {
        finding_unknown(findings, &check, cmdline->state, "/proc/cmdline");
        return;
    }
    struct host_cpus open = host_cpus_without(&facts->cores, &cmdline->isolated);
    host_cpus_text(&facts->cores, given, sizeof given);
    if (host_cpus_count(&open) == 0) {
        (void)finding_add(findings, &check, HOST_OK, "the scheduler keeps off %s",
                          host_cores_text(&facts->cores, list));
        return;
    }
    struct host_finding *finding =
        finding_add(findings, &check, HOST_WARNING, "the scheduler may put other threads on %s",
                    host_cores_text(&open, list));
    finding_should(finding, "they are isolated");
    finding_set(finding, "kernel command line: isolcpus=managed_irq,domain,%s", given);
    finding_costs(finding, "another thread's time slice: 1 to 4 ms now and then");
}

static void judge_managed(const struct host_facts *facts, struct host_findings *findings)
{
    static const struct host_check check = {"managed_irq", SECTION};
    char given[HOST_LIST_BYTES];
    if (facts->cmdline.state != HOST_KNOWN || host_cpus_count(&facts->cmdline.isolated) == 0)
        return; /* judge_isolated() has said so */
    if (facts->cmdline.managed_irq) {
        (void)finding_add(findings, &check, HOST_OK,
                          "interrupts that the kernel places keep off the isolated cores");
        return;
    }
    struct host_finding *finding =
        finding_add(findings, &check, HOST_ADVICE,
                    "isolcpus has no flag managed_irq: the kernel may place queues of disks and "
                    "cards on these cores");
    finding_should(finding, "isolcpus=managed_irq,domain,...");
    finding_set(finding, "kernel command line: isolcpus=managed_irq,domain,%s",
                host_cpus_text(&facts->cores, given, sizeof given));
    finding_costs(finding, "2 to 20 us for each interrupt that comes");
}

static void judge_kernel_work(const struct host_facts *facts, struct host_findings *findings,
                              const struct host_check *check, const struct host_cpus *spared,
                              const char *spared_from, const char *what)
{
    char list[HOST_LIST_BYTES], given[HOST_LIST_BYTES];
    if (facts->cmdline.state != HOST_KNOWN) {
        finding_unknown(findings, check, facts->cmdline.state, "/proc/cmdline");
        return;
    }
    struct host_cpus open = host_cpus_without(&facts->cores, spared);
    host_cpus_text(&facts->cores, given, sizeof given);
    if (host_cpus_count(&open) == 0) {
        (void)finding_add(findings, check, HOST_OK, "%s: spared %s",
                          host_cores_text(&facts->cores, list), spared_from);
        return;
    }
    struct host_finding *finding =
        finding_add(findings, check, HOST_ADVICE, "%s on %s", what, host_cores_text(&open, list));
    finding_should(finding, "%s=%s", check->id, given);
    finding_set(finding, "kernel command line: %s=%s", check->id, given);
    finding_costs(finding, "some us, 100 to 1,000 times a second");
}

/* ---- each core ------------------------------------------------------------------------------- */

/* Sorts cores into those where a fact is bad and those where it is not known. */
struct sorted {
    struct host_cpus bad;
    struct host_cpus unknown;
    uint8_t unknown_state; /* why, of the first */
};

static void sort_unknown(struct sorted *sorted, uint16_t cpu, uint8_t state)
{
    if (host_cpus_count(&sorted->unknown) == 0)
        sorted->unknown_state = state;
    host_cpus_add(&sorted->unknown, cpu);
}

/* Says which cores are not known; true if none is left to say that all is well. */
static bool report_unknown(struct host_findings *findings, const struct host_check *check,
                           const struct sorted *sorted, const char *file)
{
    char list[HOST_LIST_BYTES];
    if (host_cpus_count(&sorted->unknown) == 0)
        return false;
    (void)finding_add(findings, check, HOST_NOT_KNOWN, "%s: %s: %s",
                      host_cores_text(&sorted->unknown, list), file,
                      host_state_text(sorted->unknown_state));
    return true;
}

static void judge_online(const struct host_facts *facts, struct host_findings *findings)
{
    static const struct host_check check = {"online", SECTION};
    char list[HOST_LIST_BYTES];
    if (facts->online.state != HOST_KNOWN) {
        finding_unknown(findings, &check, facts->online.state, "/sys/devices/system/cpu/online");
        return;
    }
    struct host_cpus absent = host_cpus_without(&facts->cores, &facts->online.cpus);
    struct host_cpus others = host_cpus_without(&facts->online.cpus, &facts->cores);
    if (host_cpus_count(&absent) > 0) {
        struct host_finding *finding =
            finding_add(findings, &check, HOST_ERROR, "%s: not there, or not online",
                        host_cores_text(&absent, list));
        finding_should(finding, "cores of this machine: %s",
                       host_cores_text(&facts->online.cpus, list));
        finding_set(finding,
                    "another pin_first_core; or echo 1 > /sys/devices/system/cpu/cpuN/online");
        finding_costs(finding, "belayd cannot pin a worker there");
    } else if (host_cpus_count(&others) == 0) {
        struct host_finding *finding =
            finding_add(findings, &check, HOST_WARNING, "all cores of the machine are for workers");
        finding_should(finding, "one more for belayd's other threads and the system");
        finding_set(finding, "fewer workers, or another machine; polling: adaptive until then");
        finding_costs(finding,
                      "a busy worker takes half of its neighbour's time, and the neighbour "
                      "takes half of the worker's");
    } else {
        (void)finding_add(findings, &check, HOST_OK, "%s: online, and others are left",
                          host_cores_text(&facts->cores, list));
    }
}

static void judge_siblings(const struct host_facts *facts, struct host_findings *findings)
{
    static const struct host_check check = {"smt", SECTION};
    struct sorted sorted = {.unknown_state = HOST_NOT_ASKED};
    struct host_cpus in_use = {{0}};
    char list[HOST_LIST_BYTES], threads[HOST_LIST_BYTES];
    for (size_t i = 0; i < facts->cores_count; i++) {
        const struct host_core *core = &facts->core[i];
        if (core->siblings.state != HOST_KNOWN || !host_cpus_has(&core->siblings.cpus, core->cpu)) {
            sort_unknown(&sorted, core->cpu,
                         core->siblings.state == HOST_KNOWN ? HOST_GARBLED : core->siblings.state);
            continue;
        }
        struct host_cpus self = {{0}};
        host_cpus_add(&self, core->cpu);
        struct host_cpus others = host_cpus_without(&core->siblings.cpus, &self);
        if (host_cpus_count(&others) == 0)
            continue;
        host_cpus_add(&sorted.bad, core->cpu);
        for (size_t word = 0; word < HOST_CPUS_MAX / 64; word++)
            in_use.words[word] |= others.words[word];
    }
    if (host_cpus_count(&sorted.bad) > 0) {
        host_cpus_text(&in_use, threads, sizeof threads);
        struct host_finding *finding = finding_add(
            findings, &check, HOST_WARNING, "%s share their units and caches with the threads %s",
            host_cores_text(&sorted.bad, list), threads);
        finding_should(finding, "no sibling is in use");
        finding_set(finding,
                    "for each: echo 0 > /sys/devices/system/cpu/cpuN/online (N of %s, but "
                    "one of each pair stays); or for all: echo off > "
                    "/sys/devices/system/cpu/smt/control",
                    threads);
        finding_costs(finding, "up to half of the rate, and jitter");
    }
    bool unknown = report_unknown(findings, &check, &sorted,
                                  "/sys/devices/system/cpu/cpuN/topology/thread_siblings_list");
    if (!unknown && host_cpus_count(&sorted.bad) == 0)
        (void)finding_add(findings, &check, HOST_OK, "no core has a sibling that is online");
}

static void judge_governor(const struct host_facts *facts, struct host_findings *findings)
{
    static const struct host_check check = {"governor", SECTION};
    struct sorted sorted = {.unknown_state = HOST_NOT_ASKED};
    char list[HOST_LIST_BYTES];
    const char *found = "";
    for (size_t i = 0; i < facts->cores_count; i++) {
        const struct host_core *core = &facts->core[i];
        if (core->governor.state != HOST_KNOWN) {
            sort_unknown(&sorted, core->cpu, core->governor.state);
        } else if (strcmp(core->governor.text, "performance") != 0) {
            host_cpus_add(&sorted.bad, core->cpu);
            found = core->governor.text;
        }
    }
    if (host_cpus_count(&sorted.bad) > 0) {
        struct host_finding *finding = finding_add(findings, &check, HOST_WARNING, "%s on %s",
                                                   found, host_cores_text(&sorted.bad, list));
        finding_should(finding, "performance");
        finding_set(finding, "cpupower frequency-set --governor performance");
        finding_costs(finding, "the clock sinks: tens of us after a quiet time");
    }
    bool unknown = report_unknown(findings, &check, &sorted,
                                  "/sys/devices/system/cpu/cpuN/cpufreq/scaling_governor");
    if (!unknown && host_cpus_count(&sorted.bad) == 0)
        (void)finding_add(findings, &check, HOST_OK, "performance");
}

static void judge_idle(const struct host_facts *facts, struct host_findings *findings)
{
    static const struct host_check check = {"idle", SECTION};
    struct sorted sorted = {.unknown_state = HOST_NOT_ASKED};
    const struct host_core *slowest = NULL;
    char list[HOST_LIST_BYTES];
    for (size_t i = 0; i < facts->cores_count; i++) {
        const struct host_core *core = &facts->core[i];
        if (core->idle_latency_us.state != HOST_KNOWN) {
            sort_unknown(&sorted, core->cpu, core->idle_latency_us.state);
        } else if (core->idle_latency_us.value > IDLE_LATENCY_US_MAX) {
            host_cpus_add(&sorted.bad, core->cpu);
            if (!slowest || core->idle_latency_us.value > slowest->idle_latency_us.value)
                slowest = core;
        }
    }
    if (slowest) {
        struct host_finding *finding =
            finding_add(findings, &check, HOST_ADVICE, "%s may sleep as deep as %s",
                        host_cores_text(&sorted.bad, list), slowest->idle_name);
        finding_should(finding, "no state deeper than C1 (a latency of at most %d us)",
                       (int)IDLE_LATENCY_US_MAX);
        finding_set(finding,
                    "kernel command line: processor.max_cstate=1 "
                    "intel_idle.max_cstate=0; or cpupower idle-set --disable-by-latency %d",
                    IDLE_LATENCY_US_MAX + 1);
        finding_costs(finding,
                      "a core that sleeps (polling: adaptive) wakes up to %lld us late, as the "
                      "kernel states it; a busy worker never sleeps",
                      (long long)slowest->idle_latency_us.value);
    }
    bool unknown =
        report_unknown(findings, &check, &sorted, "/sys/devices/system/cpu/cpuN/cpuidle");
    if (!unknown && !slowest)
        (void)finding_add(findings, &check, HOST_OK, "no core sleeps deeper than C1");
}

void judge_cores(const struct host_facts *facts, struct host_findings *findings)
{
    static const struct host_check cores = {"cores", SECTION};
    static const struct host_check nohz = {"nohz_full", SECTION};
    static const struct host_check rcu = {"rcu_nocbs", SECTION};
    char list[HOST_LIST_BYTES];
    if (facts->cores_count == 0) {
        if (!facts->cores_given && facts->cmdline.state != HOST_KNOWN) {
            finding_unknown(findings, &cores, facts->cmdline.state, "/proc/cmdline");
            return;
        }
        struct host_finding *finding =
            finding_add(findings, &cores, HOST_ADVICE,
                        "no core is isolated, and --cores names none: nothing was judged core by "
                        "core");
        finding_should(finding, "a core for each worker that polls busy");
        finding_set(finding, "belay check-host --cores LIST; or polling: adaptive, which shares");
        finding_costs(finding, "nothing, where polling: adaptive is what is wanted");
        return;
    }
    (void)finding_add(findings, &cores, HOST_OK, "%s for workers (%s)",
                      host_cores_text(&facts->cores, list),
                      facts->cores_given ? "--cores" : "those that are isolated");
    judge_online(facts, findings);
    judge_isolated(facts, findings);
    judge_managed(facts, findings);
    judge_kernel_work(facts, findings, &nohz, &facts->cmdline.nohz_full, "the timer tick",
                      "the timer ticks");
    judge_kernel_work(facts, findings, &rcu, &facts->cmdline.rcu_nocbs,
                      "the kernel's deferred work", "the kernel's deferred work runs");
    judge_siblings(facts, findings);
    judge_governor(facts, findings);
    judge_idle(facts, findings);
}
