/* SPDX-License-Identifier: Apache-2.0
 *
 * cowsql's C-Raft on its own fixture: servers, network and disks in one process, time moved by
 * hand.
 */
#include <assert.h>
#include <raft.h>
#include <raft/fixture.h>
#include <stdlib.h>
#include <string.h>

#include "tests/differential/group.h"

struct theirs {
    struct raft_fixture fixture; /* first: its hook gets nothing else */
    struct raft_fsm machines[GROUP_NODES_MAX];
    struct group_trace *trace;
    struct raft_transfer transfers[GROUP_NODES_MAX];
    bool transferring[GROUP_NODES_MAX];
    uint32_t nodes;
};

static int machine_apply(struct raft_fsm *machine, const struct raft_buffer *buffer, void **result)
{
    struct theirs *theirs = machine->data;
    uint64_t value;

    assert(buffer->len == sizeof(value));
    memcpy(&value, buffer->base, sizeof(value));
    trace_applied(theirs->trace, (uint32_t)(machine - theirs->machines), value);
    *result = NULL;
    return 0;
}

static void on_event(struct raft_fixture *fixture, struct raft_fixture_event *event)
{
    struct theirs *theirs = (struct theirs *)fixture;
    struct raft *raft = raft_fixture_get(fixture, event->server_index);

    if (raft_fixture_alive(fixture, event->server_index) && raft_state(raft) == RAFT_LEADER)
        trace_leads(theirs->trace, event->server_index, raft->current_term);
}

static void must(int result)
{
    assert(result == 0);
}

static void *theirs_open(const struct group_options *options, struct group_trace *trace)
{
    struct theirs *theirs = calloc(1, sizeof(*theirs));
    struct raft_configuration configuration;

    assert(theirs != NULL);
    theirs->trace = trace;
    theirs->nodes = options->nodes;
    must(raft_fixture_initialize(&theirs->fixture));
    for (uint32_t i = 0; i < options->nodes; i++) {
        theirs->machines[i] =
            (struct raft_fsm){.version = 1, .data = theirs, .apply = machine_apply};
        must(raft_fixture_grow(&theirs->fixture, &theirs->machines[i]));
    }
    must(raft_fixture_configuration(&theirs->fixture, options->nodes, &configuration));
    must(raft_fixture_bootstrap(&theirs->fixture, &configuration));
    raft_configuration_close(&configuration);
    for (uint32_t i = 0; i < options->nodes; i++) {
        struct raft *raft = raft_fixture_get(&theirs->fixture, i);
        raft_set_pre_vote(raft, true);
        raft_set_election_timeout(raft, GROUP_ELECTION_MS);
        raft_set_heartbeat_timeout(raft, GROUP_HEARTBEAT_MS);
        raft_set_snapshot_threshold(raft, 1u << 20);
        raft_fixture_set_randomized_election_timeout(&theirs->fixture, i, options->timeout_ms[i]);
        raft_fixture_set_network_latency(&theirs->fixture, i, options->network_ms[i]);
        raft_fixture_set_disk_latency(&theirs->fixture, i, options->disk_ms[i]);
    }
    must(raft_fixture_start(&theirs->fixture));
    raft_fixture_hook(&theirs->fixture, on_event);
    return theirs;
}

static void theirs_close(void *group)
{
    struct theirs *theirs = group;

    raft_fixture_hook(&theirs->fixture, NULL);
    raft_fixture_close(&theirs->fixture);
    free(theirs);
}

static void theirs_run(void *group, uint32_t ms)
{
    struct theirs *theirs = group;

    raft_fixture_step_until_elapsed(&theirs->fixture, ms);
}

static void theirs_look(void *group, uint32_t node, struct group_view *view)
{
    struct theirs *theirs = group;
    struct raft *raft = raft_fixture_get(&theirs->fixture, node);

    view->alive = raft_fixture_alive(&theirs->fixture, node);
    view->leads = view->alive && raft_state(raft) == RAFT_LEADER;
    view->term = raft->current_term;
}

static void on_proposed(struct raft_apply *request, int status, void *result)
{
    (void)status; /* what counts is what the machines apply */
    (void)result;
    free(request);
}

static bool theirs_propose(void *group, uint32_t node, uint64_t value)
{
    struct theirs *theirs = group;
    struct raft *raft = raft_fixture_get(&theirs->fixture, node);

    if (!raft_fixture_alive(&theirs->fixture, node) || raft_state(raft) != RAFT_LEADER)
        return false;
    struct raft_apply *request = calloc(1, sizeof(*request));
    struct raft_buffer buffer = {.base = raft_malloc(sizeof(value)), .len = sizeof(value)};
    assert(request != NULL && buffer.base != NULL);
    memcpy(buffer.base, &value, sizeof(value));
    if (raft_apply(raft, request, &buffer, 1, on_proposed) == 0)
        return true;
    raft_free(buffer.base);
    free(request);
    return false;
}

static void on_transferred(struct raft_transfer *request)
{
    *(bool *)request->data = false;
}

static void theirs_transfer(void *group, uint32_t node, uint32_t target)
{
    struct theirs *theirs = group;
    struct raft *raft = raft_fixture_get(&theirs->fixture, node);
    struct raft_transfer *request = &theirs->transfers[node];

    if (!raft_fixture_alive(&theirs->fixture, node) || theirs->transferring[node])
        return;
    request->data = &theirs->transferring[node];
    theirs->transferring[node] = true;
    if (raft_transfer(raft, request, target + 1, on_transferred) != 0)
        theirs->transferring[node] = false;
}

static void theirs_link(void *group, uint32_t a, uint32_t b, bool up)
{
    struct theirs *theirs = group;

    if (up) {
        raft_fixture_desaturate(&theirs->fixture, a, b);
        raft_fixture_desaturate(&theirs->fixture, b, a);
    } else {
        raft_fixture_saturate(&theirs->fixture, a, b);
        raft_fixture_saturate(&theirs->fixture, b, a);
    }
}

static void theirs_stop(void *group, uint32_t node)
{
    struct theirs *theirs = group;

    if (raft_fixture_alive(&theirs->fixture, node))
        raft_fixture_kill(&theirs->fixture, node);
}

static void theirs_start(void *group, uint32_t node)
{
    struct theirs *theirs = group;

    if (!raft_fixture_alive(&theirs->fixture, node))
        raft_fixture_revive(&theirs->fixture, node);
}

const struct group_kind group_theirs = {
    .name = "c-raft",
    .open = theirs_open,
    .close = theirs_close,
    .run = theirs_run,
    .look = theirs_look,
    .propose = theirs_propose,
    .transfer = theirs_transfer,
    .link = theirs_link,
    .stop = theirs_stop,
    .start = theirs_start,
};
