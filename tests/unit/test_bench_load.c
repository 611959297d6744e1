/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine against a lock service that can be told to misbehave (bench_fake.h): what it must find
 * is found, and latency is counted from the time at which a command was to begin.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "bench/load/load.h"
#include "tests/unit/bench_fake.h"

/* ---- runs ------------------------------------------------------------------------------------ */

static struct load_result result; /* copied out; its pointers are no longer valid */
static struct happenings happenings;
static char error[LOAD_ERROR_BYTES];

static bool run(enum fault fault, const char *text)
{
    struct scenario scenario;
    char endpoint[2] = {(char)('A' + fault), 0};
    struct load_options options = {.class = &bench_fake,
                                   .endpoints = endpoint,
                                   .scenario = &scenario,
                                   .happenings = &happenings,
                                   .seed = 4,
                                   .drain_ms = 1000};
    scenario_init(&scenario);
    scenario.seconds = 1;
    scenario.warm_up_ms = 0;
    cr_assert(scenario_read(&scenario, "test", text, strlen(text), error, sizeof error), "%s",
              error);
    cr_assert(scenario_settle(&scenario, error, sizeof error), "%s", error);
    struct load *load = load_open(&options, error, sizeof error);
    cr_assert(load, "%s", error);
    bool done = load_run(load, error, sizeof error);
    memcpy(&result, load_result(load), sizeof result);
    load_close(load);
    return done;
}

static const struct load_command *command(enum target_op op)
{
    return &result.commands[op];
}

static double millis(enum target_op op, uint32_t millionths)
{
    return (double)histogram_quantile(&command(op)->latency_ns, millionths) / 1e6;
}

Test(bench_load, a_sound_service_passes)
{
    cr_assert(run(FAULT_NONE, "pick = own\nclients = 8"));
    cr_assert_eq(checks_violations(&result.checks), 0, "%s", result.checks.first);
    cr_assert_gt(result.grants, 1000);
    cr_assert_gt(command(TARGET_RELEASE)->ended, 1000);
    cr_assert_eq(command(TARGET_ACQUIRE)->statuses[TARGET_OK],
                 command(TARGET_ACQUIRE)->latency_ns.count);
    cr_assert_float_eq(result.fairness, 1.0, 0.01);
}

Test(bench_load, one_hot_lock_passes_too)
{
    cr_assert(run(FAULT_NONE, "pick = uniform\nnames = 1\nclients = 20"));
    cr_assert_eq(checks_violations(&result.checks), 0, "%s", result.checks.first);
    cr_assert_gt(result.grants, 1000);
}

Test(bench_load, readers_and_writers_pass_too)
{
    cr_assert(run(FAULT_NONE, "pick = uniform\nnames = 3\nclients = 20\nshared-percent = 80"));
    cr_assert_eq(checks_violations(&result.checks), 0, "%s", result.checks.first);
    cr_assert_gt(result.grants, 1000);
}

Test(bench_load, a_second_holder_is_found)
{
    cr_assert(run(FAULT_DOUBLE, "pick = uniform\nnames = 1\nclients = 20"));
    cr_assert_gt(result.checks.doubled, 10);
    cr_assert_eq(result.checks.tokens_back, 0);
    cr_assert(strstr(result.checks.first, "granted exclusively"), "%s", result.checks.first);
}

Test(bench_load, a_writer_beside_readers_is_found)
{
    cr_assert(run(FAULT_SHARED, "pick = uniform\nnames = 1\nclients = 20\nshared-percent = 80"));
    cr_assert_gt(result.checks.doubled, 1);
}

Test(bench_load, a_token_that_does_not_rise_is_found)
{
    cr_assert(run(FAULT_TOKENS_BACK, "pick = uniform\nnames = 1\nclients = 20"));
    cr_assert_gt(result.checks.tokens_back, 10);
    cr_assert_eq(result.checks.doubled, 0);
}

Test(bench_load, a_query_that_misses_the_holder_is_found)
{
    cr_assert(run(FAULT_NONE, "work = queries\nheld = 100\nclients = 4"));
    cr_assert_eq(checks_violations(&result.checks), 0, "%s", result.checks.first);
    cr_assert_gt(command(TARGET_QUERY)->ended, 1000);
    cr_assert(run(FAULT_EMPTY_READS, "work = queries\nheld = 100\nclients = 4"));
    cr_assert_gt(result.checks.empty_reads, 1000);
    cr_assert(run(FAULT_EMPTY_READS, "work = queries\nstale = yes\nheld = 100\nclients = 4"));
    cr_assert_eq(result.checks.empty_reads, 0, "a stale read may miss it");
}

Test(bench_load, lost_locks_are_counted)
{
    cr_assert(run(FAULT_LOSES, "held = 100\nclients = 4"));
    cr_assert_eq(result.lost_held, 10);
    cr_assert_gt(result.lost, 10);
    cr_assert_eq(result.held_gone, 0, "these were told");
    cr_assert(run(FAULT_FORGETS, "held = 100\nclients = 4"));
    cr_assert_eq(result.lost, 0);
    cr_assert_eq(result.held_gone, 100);
    cr_assert_gt(command(TARGET_RELEASE)->statuses[TARGET_LOST], 1000);
}

Test(bench_load, renewals_are_of_what_is_held)
{
    cr_assert(run(FAULT_NONE, "work = renewals\nheld = 100\nclients = 4\nrate = 2000"));
    cr_assert_eq(result.held, 100);
    cr_assert(command(TARGET_RENEW)->ended > 1800 && command(TARGET_RENEW)->ended < 2200);
    cr_assert_eq(command(TARGET_ACQUIRE)->latency_ns.count, 0, "filling is not measured");
}

Test(bench_load, what_cannot_be_held_is_said)
{
    cr_assert_not(run(FAULT_FULL, "held = 100\nclients = 4"));
    cr_assert(strstr(error, "only 50 of 100 locks could be held: the servers refused one"), "%s",
              error);
}

/* 1,000 arrivals in a second, no answers for 400 ms of it: two fifths of them must have waited,
 * half of those more than 200 ms. Counted from when each was sent, there would be as many slow ones
 * as there are clients: four. */
Test(bench_load, a_stall_counts_for_all_that_were_due_meanwhile)
{
    cr_assert(run(FAULT_STALLS, "pick = own\nclients = 4\nrate = 2000\nspacing = fixed"));
    uint64_t count = command(TARGET_ACQUIRE)->latency_ns.count;
    cr_assert(count >= 995 && count <= 1001, "%lu", (unsigned long)count);
    cr_assert(millis(TARGET_ACQUIRE, 500000) < 50, "%f", millis(TARGET_ACQUIRE, 500000));
    cr_assert(millis(TARGET_ACQUIRE, 800000) > 150 && millis(TARGET_ACQUIRE, 800000) < 350, "%f",
              millis(TARGET_ACQUIRE, 800000));
    cr_assert(millis(TARGET_ACQUIRE, 1000000) > 380, "%f", millis(TARGET_ACQUIRE, 1000000));
    cr_assert_eq(command(TARGET_ACQUIRE)->unsent, 0);
    cr_assert(result.timeline.longest.length_ns > 380000000 &&
              result.timeline.longest.length_ns < 600000000);
}

Test(bench_load, what_has_no_answer_at_the_end_counts_with_its_age)
{
    cr_assert(run(FAULT_DEAF, "pick = own\nclients = 4\nrate = 2000\nspacing = fixed"));
    cr_assert_eq(command(TARGET_ACQUIRE)->unfinished + command(TARGET_RELEASE)->unfinished, 4);
    cr_assert(command(TARGET_ACQUIRE)->unsent > 850, "%lu",
              (unsigned long)command(TARGET_ACQUIRE)->unsent);
    cr_assert(millis(TARGET_ACQUIRE, 500000) > 300, "%f", millis(TARGET_ACQUIRE, 500000));
}

static void check_arrivals(const char *text)
{
    cr_assert(run(FAULT_NONE, text));
    uint64_t count = command(TARGET_ACQUIRE)->latency_ns.count;
    cr_assert(count > 9500 && count < 10500, "%lu", (unsigned long)count);
    cr_assert_gt(result.grants, 5000); /* a busy machine may have been late */
}

Test(bench_load, arrivals_come_at_the_rate)
{
    check_arrivals("pick = own\nclients = 100\nrate = 20000");
    check_arrivals("pick = own\nclients = 100\nrate = 20000\nspacing = fixed");
    check_arrivals("pick = own\nclients = 100\nrate = 20000\nhold-ms = 5");
    cr_assert(millis(TARGET_RELEASE, 0) < 5, "a release counts from the end of the hold");
}

Test(bench_load, every_client_has_its_share)
{
    cr_assert(run(FAULT_NONE, "pick = own\nclients = 1000\nin-flight = 10\nnames = 3000"));
    cr_assert_gt(result.client_grants_least, 0);
    cr_assert_geq(result.client_grants_least + 3, result.client_grants_most);
}

Test(bench_load, commands_are_run_at_their_time)
{
    cr_assert(happenings_add(&happenings, "600ms", "exit 7", error, sizeof error));
    cr_assert(happenings_add(&happenings, "0.3s", "true", error, sizeof error));
    cr_assert_not(happenings_add(&happenings, "soon", "true", error, sizeof error));
    cr_assert(strstr(error, "found \"soon\""), "%s", error);
    cr_assert(run(FAULT_STALLS, "pick = own\nclients = 4"));
    const struct happening *first = &happenings.list[0], *second = &happenings.list[1];
    cr_assert_eq(first->exit_code, 0);
    cr_assert_eq(second->exit_code, 7);
    uint64_t after_ns = first->at_ns - result.timeline.begin_ns;
    cr_assert(after_ns >= 300000000 && after_ns < 450000000);
    cr_assert_eq(first->longest.length_ns, 0, "the stall ended after the second");
    cr_assert(second->longest.length_ns > 350000000 && second->longest.length_ns < 600000000);
    cr_assert(second->first_ns > second->at_ns + 50000000 &&
              second->first_ns < second->at_ns + 300000000);
    cr_assert_gt(second->slowest_ns, 350000000);
}
