/* SPDX-License-Identifier: Apache-2.0
 *
 * What interrupts the cores, what the kernel does on its own account, and its clock.
 */
#include <string.h>

#include "client/cli/host/judge_internal.h"

static const char CORES[] = "Cores";
static const char CLOCK[] = "Clock and scheduler";

/* ---- interrupts ------------------------------------------------------------------------------ */

static void judge_affinity(const struct host_interrupts *interrupts, struct host_findings *findings)
{
    static const struct host_check check = {"irq_affinity", CORES};
    if (interrupts->state != HOST_KNOWN) {
        finding_unknown(findings, &check, interrupts->state, "/proc/interrupts");
        return;
    }
    if (interrupts->touching > 0) {
        struct host_finding *finding =
            finding_add(findings, &check, HOST_WARNING,
                        "%u of %u interrupts may come to the cores for workers: %s",
                        interrupts->touching, interrupts->seen, interrupts->names);
        finding_should(finding, "all go to other cores");
        finding_set(finding, "with irqbalance off, for each number N: echo OTHER-CORES > "
                             "/proc/irq/N/smp_affinity_list");
        finding_costs(finding, "2 to 20 us each: it stops the worker of that core");
    }
    if (interrupts->unknown > 0)
        (void)finding_add(findings, &check, HOST_NOT_KNOWN,
                          "%u of %u interrupts: /proc/irq/N/smp_affinity_list: %s",
                          interrupts->unknown, interrupts->seen,
                          host_state_text(interrupts->unknown_state));
    else if (interrupts->seen == 0) /* no machine is without any: a container's view */
        (void)finding_add(findings, &check, HOST_NOT_KNOWN,
                          "/proc/interrupts: no interrupt of a device can be seen here");
    else if (interrupts->touching == 0)
        (void)finding_add(findings, &check, HOST_OK,
                          "none of %u interrupts comes to the cores for workers", interrupts->seen);
}

static void judge_default_affinity(const struct host_facts *facts, struct host_findings *findings)
{
    static const struct host_check check = {"irq_default", CORES};
    const struct host_set *set = &facts->interrupts.default_affinity;
    char list[HOST_LIST_BYTES];
    if (set->state != HOST_KNOWN) {
        finding_unknown(findings, &check, set->state, "/proc/irq/default_smp_affinity");
        return;
    }
    if (!host_cpus_meet(&set->cpus, &facts->cores)) {
        (void)finding_add(findings, &check, HOST_OK,
                          "interrupts to come go to cores that are not for workers");
        return;
    }
    struct host_finding *finding = finding_add(findings, &check, HOST_ADVICE,
                                               "an interrupt that is set up later may come to %s",
                                               host_cores_text(&facts->cores, list));
    finding_should(finding, "a mask without these cores");
    finding_set(finding, "kernel command line: irqaffinity=OTHER-CORES; or a mask into "
                         "/proc/irq/default_smp_affinity");
    finding_costs(finding, "2 to 20 us each: it stops the worker of that core");
}

static void judge_balancer(const struct host_facts *facts, struct host_findings *findings)
{
    static const struct host_check check = {"irqbalance", CORES};
    const struct host_number *running = &facts->interrupts.balancer;
    if (running->state != HOST_KNOWN) {
        finding_unknown(findings, &check, running->state, "/proc/PID/comm");
    } else if (running->value > 0) {
        struct host_finding *finding =
            finding_add(findings, &check, HOST_WARNING, "irqbalance runs");
        finding_should(finding, "it does not, or leaves the workers' cores alone");
        finding_set(finding, "systemctl disable --now irqbalance");
        finding_costs(finding, "it moves interrupts to whatever core it likes, now or later: 2 to "
                               "20 us each");
    } else {
        (void)finding_add(findings, &check, HOST_OK, "irqbalance does not run");
    }
}

void judge_interrupts(const struct host_facts *facts, struct host_findings *findings)
{
    if (facts->cores_count == 0)
        return; /* judge_cores() has said so */
    judge_affinity(&facts->interrupts, findings);
    judge_default_affinity(facts, findings);
    judge_balancer(facts, findings);
}

/* ---- the kernel's own ------------------------------------------------------------------------ */

static void judge_watchdog(const struct host_facts *facts, struct host_findings *findings)
{
    static const struct host_check check = {"nmi_watchdog", CORES};
    if (facts->nmi_watchdog.state != HOST_KNOWN) {
        finding_unknown(findings, &check, facts->nmi_watchdog.state,
                        "/proc/sys/kernel/nmi_watchdog");
    } else if (facts->nmi_watchdog.value != 0) {
        struct host_finding *finding = finding_add(findings, &check, HOST_ADVICE, "on");
        finding_should(finding, "off");
        finding_set(finding,
                    "kernel command line: nmi_watchdog=0; or sysctl kernel.nmi_watchdog=0");
        finding_costs(finding, "a periodic interrupt on every core: some us each");
    } else {
        (void)finding_add(findings, &check, HOST_OK, "off");
    }
}

static void judge_machine_checks(const struct host_facts *facts, struct host_findings *findings)
{
    static const struct host_check check = {"mce", CORES};
    if (facts->cmdline.state != HOST_KNOWN) {
        finding_unknown(findings, &check, facts->cmdline.state, "/proc/cmdline");
    } else if (!facts->cmdline.machine_checks_quiet) {
        struct host_finding *finding = finding_add(
            findings, &check, HOST_ADVICE, "corrected memory errors are polled for on every core");
        finding_should(finding, "they are not, where something else watches the memory");
        finding_set(finding, "kernel command line: mce=ignore_ce");
        finding_costs(finding, "some us, periodically");
    } else {
        (void)finding_add(findings, &check, HOST_OK, "corrected memory errors are not polled for");
    }
}

static void judge_clock(const struct host_facts *facts, struct host_findings *findings)
{
    static const struct host_check check = {"clocksource", CLOCK};
    const struct host_word *clock = &facts->clocksource;
    if (clock->state != HOST_KNOWN) {
        finding_unknown(findings, &check, clock->state,
                        "/sys/devices/system/clocksource/clocksource0/current_clocksource");
        return;
    }
    /* Those that a process reads without entering the kernel. kvm-clock is one where the host's
     * counter is stable, which cannot be seen from here. */
    static const char *const fast[] = {"tsc", "arch_sys_counter", "riscv_clocksource"};
    for (size_t i = 0; i < sizeof fast / sizeof fast[0]; i++) {
        if (strcmp(clock->text, fast[i]) == 0) {
            (void)finding_add(findings, &check, HOST_OK, "%s", clock->text);
            return;
        }
    }
    bool guest = strcmp(clock->text, "kvm-clock") == 0 ||
                 strncmp(clock->text, "hyperv_clocksource", 18) == 0;
    struct host_finding *finding =
        finding_add(findings, &check, guest ? HOST_ADVICE : HOST_WARNING, "%s", clock->text);
    finding_should(finding, "tsc (arch_sys_counter on ARM)");
    finding_set(finding,
                "kernel command line: tsc=reliable clocksource=tsc, if the counters of all "
                "cores agree; the kernel's log says why it did not take tsc");
    finding_costs(finding,
                  guest ? "some hosts' clocks are read without a system call, others' with one"
                        : "each look at the clock is a system call, or waits for a device");
}

static void judge_rt(const struct host_facts *facts, struct host_findings *findings)
{
    static const struct host_check check = {"rt_runtime", CLOCK};
    if (facts->rt_runtime_us.state != HOST_KNOWN) {
        finding_unknown(findings, &check, facts->rt_runtime_us.state,
                        "/proc/sys/kernel/sched_rt_runtime_us");
    } else if (facts->rt_runtime_us.value < 0) {
        struct host_finding *finding =
            finding_add(findings, &check, HOST_ADVICE, "real-time threads have no limit");
        finding_should(finding, "a limit (950000), as long as nothing needs it otherwise: belayd's "
                                "workers are no real-time threads");
        finding_set(finding, "sysctl kernel.sched_rt_runtime_us=950000");
        finding_costs(finding, "a real-time thread that spins on a worker's core stops the worker "
                               "for good");
    } else {
        (void)finding_add(findings, &check, HOST_OK,
                          "real-time threads are limited; belayd's workers are none");
    }
}

void judge_kernel(const struct host_facts *facts, struct host_findings *findings)
{
    if (facts->cores_count > 0) {
        judge_watchdog(facts, findings);
        judge_machine_checks(facts, findings);
    }
    judge_clock(facts, findings);
    judge_rt(facts, findings);
}
