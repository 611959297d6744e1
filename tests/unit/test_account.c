/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker's account of itself: which turns are sampled, where their time goes, when the board is
 * told, and that everything listed has a name.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "dataplane/account.h"
#include "hw/net/net.h"
#include "hw/port.h"

static struct account account;
static struct board_worker row;
static struct port *port;

static void set_up(void)
{
    struct port_kernel_options options;
    memset(&options, 0, sizeof options);
    cr_assert_eq(port_address_parse("127.0.0.1:0", &options.bind), 0);
    cr_assert_eq(port_kernel_open(&options, &port), 0);
    memset(&row, 0, sizeof row);
    account_init(&account, 7);
}

static void tear_down(void)
{
    port_close(port);
}
TestSuite(account, .init = set_up, .fini = tear_down);

static void burn(uint64_t cycles)
{
    for (uint64_t start = clock_cycles(); clock_cycles() - start < cycles;) {
    }
}

/* One turn of the given requests; true if its stages were timed. */
static bool turn(bool worked, uint64_t requests)
{
    account_turn_begin(&account, &row);
    bool sampled = account.sampling;
    BOARD_SET(row.requests, BOARD_GET(row.requests) + requests);
    account_turn_end(&account, worked, &row);
    return sampled;
}

Test(account, about_one_busy_turn_in_so_many_is_sampled_and_no_idle_one_counts)
{
    enum { TURNS = 32000 };
    uint64_t sampled = 0;
    for (int i = 0; i < TURNS; i++) {
        for (int idle = 0; idle < 5; idle++)
            (void)turn(false, 0);
        sampled += turn(true, 3);
    }
    cr_assert_eq(BOARD_GET(row.sampled_turns), sampled);
    cr_assert_eq(BOARD_GET(row.sampled_requests), 3 * sampled);
    /* 1,000 are expected; the distance is drawn evenly, so its spread is 18 % of that over 32. */
    cr_assert(sampled > 900 && sampled < 1100, "%llu", (unsigned long long)sampled);
    cr_assert_eq(account.turns, 6 * TURNS);
    cr_assert_eq(account.turns_busy, TURNS);
}

Test(account, time_goes_to_the_stage_that_was_entered_and_nested_ones_give_it_back)
{
    while (account.turns_left > 0)
        (void)turn(true, 0);
    account_turn_begin(&account, &row);
    cr_assert(account.sampling);
    uint64_t begin = account.since_cycles;
    cr_assert_eq(account_enter(&account, WIRE_STAGE_DECODE), WIRE_STAGE_OTHER);
    burn(200000);
    enum wire_stage before = account_enter(&account, WIRE_STAGE_PROPOSE);
    cr_assert_eq(before, WIRE_STAGE_DECODE);
    burn(600000);
    (void)account_enter(&account, before);
    burn(100000);
    (void)account_enter(&account, WIRE_STAGE_TX);
    account_turn_end(&account, true, &row);
    uint64_t decode = BOARD_GET(row.stage_cycles[WIRE_STAGE_DECODE]);
    uint64_t propose = BOARD_GET(row.stage_cycles[WIRE_STAGE_PROPOSE]);
    cr_assert(decode >= 300000, "%llu", (unsigned long long)decode);
    cr_assert(propose >= 600000, "%llu", (unsigned long long)propose);
    uint64_t sum = 0;
    for (int i = 0; i < WIRE_STAGES; i++)
        sum += BOARD_GET(row.stage_cycles[i]);
    /* All of the turn, and nothing twice. */
    cr_assert_eq(sum, account.since_cycles - begin);
}

Test(account, a_turn_that_is_not_sampled_is_not_timed)
{
    account.turns_left = 1;
    account_turn_begin(&account, &row);
    cr_assert_not(account.sampling);
    (void)account_enter(&account, WIRE_STAGE_APPLY);
    account_turn_end(&account, true, &row);
    for (int i = 0; i < WIRE_STAGES; i++)
        cr_assert_eq(BOARD_GET(row.stage_cycles[i]), 0);
    cr_assert_eq(account.turns_left, 0);
}

Test(account, the_board_is_told_now_and_then_and_when_work_runs_out)
{
    uint64_t now_ns = 1000 * UINT64_C(1000000000);
    account_took(&account, true, 10, now_ns, port, port, &row); /* nothing was told yet */
    cr_assert_eq(BOARD_GET(row.busy_ns), 10);
    account_took(&account, true, 20, now_ns + 1000, port, port, &row);
    cr_assert_eq(BOARD_GET(row.busy_ns), 10);
    account_took(&account, false, 5, now_ns + 2000, port, port, &row);
    cr_assert_eq(BOARD_GET(row.busy_ns), 30, "an idle turn is no busy time");
    (void)turn(false, 0);
    account_took(&account, false, 5, now_ns + 3000, port, port, &row);
    cr_assert_eq(BOARD_GET(row.turns), 0, "idle turns are not told one by one");
    account_took(&account, false, 5, now_ns + 2000 + ACCOUNT_PUBLISH_NS, port, port, &row);
    cr_assert_eq(BOARD_GET(row.turns), 1);
}

Test(account, everything_listed_has_a_name_of_its_own)
{
    struct wire_counter counters[ACCOUNT_COUNTERS_MAX];
    cr_assert_eq(account_list(&row, counters), 0, "zeros are left out");
    /* Every field is an _Atomic uint64_t; those of "accepted" are never counted. */
    _Atomic uint64_t *fields = (_Atomic uint64_t *)&row;
    for (size_t i = 0; i < sizeof row / sizeof *fields; i++)
        BOARD_SET(fields[i], i + 1);
    BOARD_SET(row.rejects_client[WIRE_ACCEPTED], 0);
    BOARD_SET(row.rejects_peer[WIRE_ACCEPTED], 0);
    uint16_t count = account_list(&row, counters);
    cr_assert_eq(count, ACCOUNT_COUNTERS_MAX);
    cr_assert_eq(count, sizeof row / sizeof *fields - 2, "every field is listed");
    for (uint16_t i = 0; i < count; i++) {
        const char *name = wire_count_name(counters[i].counter);
        const char *detail = wire_count_detail(counters[i].counter, counters[i].detail);
        cr_assert_not_null(name);
        cr_assert(detail != NULL || counters[i].detail == 0, "%s %u", name, counters[i].detail);
        for (uint16_t k = 0; k < i; k++)
            cr_assert(counters[k].value != counters[i].value, "%s is listed twice", name);
    }
}

Test(account, frames_are_lost_by_the_same_names_on_the_wire)
{
    for (unsigned i = 0; i < NET_LOSSES; i++)
        cr_assert_str_eq(wire_count_detail(WIRE_COUNT_FRAMES_LOST, i), net_loss_name(i));
    cr_assert_null(wire_count_detail(WIRE_COUNT_FRAMES_LOST, NET_LOSSES));
    cr_assert_null(wire_count_detail(WIRE_COUNT_REQUESTS, 0));
    cr_assert_null(wire_count_name(0));
    cr_assert_null(wire_count_name(WIRE_COUNTS));
}
