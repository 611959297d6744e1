/* SPDX-License-Identifier: Apache-2.0
 *
 * This project's core, disk durability, messages; on the rig of tests/unit, with constant
 * latencies.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/differential/group.h"
#include "tests/unit/raft_rig.h"

#define MS UINT64_C(1000000)

struct ours {
    struct rig rig; /* ids are node + 1 */
    struct group_options options;
    struct group_trace *trace;
    bool cut[GROUP_NODES_MAX][GROUP_NODES_MAX];
};

static uint32_t node_of(uint64_t id)
{
    return (uint32_t)id - 1;
}

/* ---- what the rig asks ----------------------------------------------------------------------- */

static void on_packet(struct rig *rig, struct rig_packet *packet)
{
    const struct ours *ours = rig->context;

    packet->due_ns = rig->now_ns + ours->options.network_ms[node_of(packet->from)] * MS;
}

static void on_disk(struct rig *rig, struct rig_node *node, struct rig_disk_op *op)
{
    const struct ours *ours = rig->context;

    op->due_ns = rig->now_ns + ours->options.disk_ms[node_of(node->id)] * MS;
}

static void on_committed(struct ours *ours, struct rig_node *node, uint64_t first, uint64_t last)
{
    for (uint64_t index = first; index <= last; index++) {
        const struct log_entry *entry = log_at(&node->log, index);
        uint64_t value;
        if (entry == NULL || entry->kind != LOG_COMMANDS || entry->payload_bytes != sizeof(value))
            continue;
        memcpy(&value, log_entry_payload(entry), sizeof(value));
        trace_applied(ours->trace, node_of(node->id), value);
    }
}

static void on_effect(struct rig *rig, struct rig_node *node, const struct raft_effect *effect)
{
    struct ours *ours = rig->context;

    if (effect->kind == RAFT_FX_COMMITTED)
        on_committed(ours, node, effect->range.first, effect->range.last);
    else if (effect->kind == RAFT_FX_ROLE && effect->role.role == RAFT_LEADER)
        trace_leads(ours->trace, node_of(node->id), effect->role.term);
}

/* ---- time ------------------------------------------------------------------------------------ */

static void deliver(struct ours *ours, uint32_t at)
{
    const struct rig_packet *packet = &ours->rig.packets[at];

    if (ours->cut[node_of(packet->from)][node_of(packet->to)])
        rig_drop(&ours->rig, at);
    else
        rig_deliver(&ours->rig, at);
}

/* Does what is due first, not after until_ns; false: nothing is. */
static bool next(struct ours *ours, uint64_t until_ns)
{
    struct rig *rig = &ours->rig;
    struct rig_due due = rig_due(rig);

    if (due.kind == RIG_DUE_NOTHING || due.at_ns > until_ns)
        return false;
    if (rig->now_ns < due.at_ns)
        rig->now_ns = due.at_ns;
    if (due.kind == RIG_DUE_TIMER)
        rig_tick(rig, due.node);
    else if (due.kind == RIG_DUE_DISK)
        rig_disk_step(rig, due.node);
    else
        deliver(ours, due.packet);
    return true;
}

static void ours_run(void *group, uint32_t ms)
{
    struct ours *ours = group;
    uint64_t until_ns = ours->rig.now_ns + ms * MS;

    while (next(ours, until_ns))
        ;
    ours->rig.now_ns = until_ns;
}

/* ---- the group ------------------------------------------------------------------------------- */

static void *ours_open(const struct group_options *options, struct group_trace *trace)
{
    struct ours *ours = calloc(1, sizeof(*ours));
    uint64_t voters[GROUP_NODES_MAX];
    struct rig_options rig = {
        .durability = RAFT_DISK,
        .ring_bytes = 65536,
        .slots_count = 1024,
        .window_bytes = 8192,
        .heartbeat_ns = GROUP_HEARTBEAT_MS * MS,
        .election_timeout_ns = GROUP_ELECTION_MS * MS,
        .seed = options->seed,
    };

    assert(ours != NULL);
    ours->options = *options;
    ours->trace = trace;
    rig_init(&ours->rig, &rig);
    ours->rig.context = ours;
    ours->rig.on_packet = on_packet;
    ours->rig.on_disk = on_disk;
    ours->rig.on_effect = on_effect;
    for (uint32_t i = 0; i < options->nodes; i++)
        voters[i] = i + 1;
    struct raft_configuration configuration = rig_configuration(voters, options->nodes);
    for (uint32_t i = 0; i < options->nodes; i++)
        rig_start(&ours->rig, voters[i], &configuration);
    return ours;
}

static void ours_close(void *group)
{
    struct ours *ours = group;

    rig_free(&ours->rig);
    free(ours);
}

static void ours_look(void *group, uint32_t node, struct group_view *view)
{
    struct ours *ours = group;
    struct raft_view raft = rig_look(&ours->rig.nodes[node]);

    view->alive = ours->rig.nodes[node].alive;
    view->leads = view->alive && raft.role == RAFT_LEADER;
    view->term = raft.term;
}

static bool ours_propose(void *group, uint32_t node, uint64_t value)
{
    struct ours *ours = group;
    struct rig_node *leader = &ours->rig.nodes[node];
    struct raft_event event = {.kind = RAFT_EV_PROPOSE};
    uint8_t *payload = leader->alive ? raft_reserve(leader->raft, sizeof(value)) : NULL;

    if (payload == NULL)
        return false;
    memcpy(payload, &value, sizeof(value));
    event.propose.kind = LOG_COMMANDS;
    event.propose.payload_bytes = sizeof(value);
    rig_event(&ours->rig, leader, &event);
    return true;
}

static void ours_transfer(void *group, uint32_t node, uint32_t target)
{
    struct ours *ours = group;

    if (ours->rig.nodes[node].alive)
        rig_transfer(&ours->rig, &ours->rig.nodes[node], target + 1);
}

static void ours_link(void *group, uint32_t a, uint32_t b, bool up)
{
    struct ours *ours = group;

    ours->cut[a][b] = ours->cut[b][a] = !up;
}

static void ours_stop(void *group, uint32_t node)
{
    struct ours *ours = group;

    if (ours->rig.nodes[node].alive)
        rig_crash(&ours->rig, &ours->rig.nodes[node]);
}

static void ours_start(void *group, uint32_t node)
{
    struct ours *ours = group;

    if (ours->rig.nodes[node].alive)
        return;
    trace_restarted(ours->trace, node);
    rig_restart(&ours->rig, &ours->rig.nodes[node]);
}

const struct group_kind group_ours = {
    .name = "belay",
    .open = ours_open,
    .close = ours_close,
    .run = ours_run,
    .look = ours_look,
    .propose = ours_propose,
    .transfer = ours_transfer,
    .link = ours_link,
    .stop = ours_stop,
    .start = ours_start,
};
