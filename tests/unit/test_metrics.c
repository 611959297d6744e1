/* SPDX-License-Identifier: Apache-2.0
 *
 * What /metrics says of a board with known numbers, line by line.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "mgmt/metrics.h"

static struct node_options options = {
    .node = 2,
    .shards = 2,
    .workers = 1,
    .durability = NODE_MEMORY,
    .limits = {.leases_max = 100, .resources_max = 90, .sessions_max = 80, .waiters_max = 70}};
static struct board board;

static void set_up(void)
{
    memset(&board, 0, sizeof board);
    board.options = &options;
    board.cluster_id = 0xabc;
    board.started_ns = 1000000000;
}
TestSuite(metrics, .init = set_up);

static char *written(uint64_t now_ns)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    cr_assert_not_null(out);
    metrics_write(out, &board, now_ns);
    fclose(out);
    return text;
}

/* As a whole line. */
static void assert_says(const char *line)
{
    char *text = written(UINT64_C(3500000000)), whole[256];
    snprintf(whole, sizeof whole, "\n%s\n", line);
    cr_assert_not_null(strstr(text, whole), "not said: %s\n%s", line, text);
    free(text);
}

static void assert_silent(const char *part)
{
    char *text = written(UINT64_C(3500000000));
    cr_assert_null(strstr(text, part), "said: %s", part);
    free(text);
}

Test(metrics, the_node)
{
    BOARD_SET(board.state, 2);
    assert_says("belay_node_info{node=\"2\",cluster=\"0000000000000abc\",durability=\"memory\"} 1");
    assert_says("belay_node_state{state=\"running\"} 0");
    assert_says("belay_node_state{state=\"stepping_down\"} 1");
    assert_says("belay_uptime_seconds 2.5");
    assert_says("belay_shard_limit{table=\"waiters\"} 70");
}

Test(metrics, every_width_of_a_field_is_read_as_it_is)
{
    BOARD_SET(board.shards[1].term, UINT64_C(0xffffffffff));
    BOARD_SET(board.shards[1].leases, UINT32_C(0xfffffff0));
    BOARD_SET(board.shards[1].sessions, 7u);
    BOARD_SET(board.shards[1].voters, 3);
    BOARD_SET(board.shards[1].learners, 255);
    assert_says("belay_shard_term{shard=\"1\"} 1099511627775");
    assert_says("belay_shard_leases{shard=\"1\"} 4294967280");
    assert_says("belay_shard_sessions{shard=\"1\"} 7");
    assert_says("belay_shard_voters{shard=\"1\"} 3");
    assert_says("belay_shard_learners{shard=\"1\"} 255");
    assert_says("belay_shard_term{shard=\"0\"} 0");
}

Test(metrics, who_leads)
{
    BOARD_SET(board.shards[0].role, 2);
    BOARD_SET(board.shards[0].leader_node, 2);
    BOARD_SET(board.shards[1].role, 1);
    assert_says("belay_shard_is_leader{shard=\"0\"} 1");
    assert_says("belay_shard_is_leader{shard=\"1\"} 0");
    assert_says("belay_shard_has_leader{shard=\"0\"} 1");
    assert_says("belay_shard_has_leader{shard=\"1\"} 0");
}

Test(metrics, contact_of_a_leader_is_an_age)
{
    BOARD_SET(board.shards[0].contact_ns, UINT64_C(3000000000));
    assert_says("belay_shard_leader_contact_seconds{shard=\"0\"} 0.5");
    assert_silent("belay_shard_leader_contact_seconds{shard=\"1\"}");
    BOARD_SET(board.shards[0].contact_ns, UINT64_C(3600000000)); /* published after the look */
    assert_says("belay_shard_leader_contact_seconds{shard=\"0\"} 0");
}

Test(metrics, workers_and_what_they_refuse)
{
    BOARD_SET(board.workers[0].requests, UINT64_C(12));
    BOARD_SET(board.workers[0].pushes_dropped, UINT64_C(3));
    BOARD_SET(board.workers[0].turn_ns_max, UINT64_C(1500000));
    BOARD_SET(board.workers[0].rejects_peer[WIRE_REJECT_TAG], UINT64_C(4));
    assert_says("belay_requests_total{worker=\"0\"} 12");
    assert_says("belay_pushes_dropped_total{worker=\"0\"} 3");
    assert_says("belay_turn_seconds_max{worker=\"0\"} 0.0015");
    assert_says("belay_datagrams_rejected_total{worker=\"0\",port=\"peer\",reason=\"tag\"} 4");
    assert_says("belay_datagrams_rejected_total{worker=\"0\",port=\"client\",reason=\"tag\"} 0");
    BOARD_SET(board.workers[0].frames_lost[0], UINT64_C(9));
    BOARD_SET(board.workers[0].busy_ns, UINT64_C(2500000000));
    assert_says("belay_frames_lost_total{worker=\"0\",of=\"runt\"} 9");
    assert_says("belay_datagrams_total{worker=\"0\",of=\"peers_unsent\"} 0");
    assert_says("belay_busy_seconds_total{worker=\"0\"} 2.5");
    assert_silent("accepted");
    assert_silent("worker=\"1\"");
    assert_silent("shard=\"2\"");
}

Test(metrics, counts_come_from_the_lock_machine)
{
    struct lock_limits limits = lock_limits_for(64);
    void *memory = aligned_alloc(4096, (lock_machine_memory(&limits).total + 4095) / 4096 * 4096);
    memset(memory, 0, lock_machine_memory(&limits).total);
    struct lock_machine *machine = lock_machine_init(memory, &limits);
    board.machines[1] = machine;
    assert_says("belay_granted_total{shard=\"1\"} 0");
    assert_says("belay_expiry_lateness_seconds_max{shard=\"1\"} 0");
    assert_silent("belay_granted_total{shard=\"0\"}"); /* it has none: of a shard being made */
    free(memory);
}
