/* SPDX-License-Identifier: Apache-2.0
 *
 * Nodes: their addresses, cookies, round trips, and the datagram that is being filled for each.
 */
#include "client/core_state.h"

uint32_t node_find(const struct core *core, const struct wire_address *address)
{
    for (uint32_t i = 0; i < core->nodes_count; i++) {
        const struct wire_address *known = &core->nodes[i].address;
        if (known->port == address->port && memcmp(known->ip, address->ip, sizeof(known->ip)) == 0)
            return i;
    }
    return NO_SLOT;
}

uint32_t node_add(struct core *core, const struct wire_address *address, bool member)
{
    uint32_t found = node_find(core, address);

    if (address->port == 0)
        return NO_SLOT;
    if (found == NO_SLOT) {
        if (core->nodes_count == NODES_MAX)
            return NO_SLOT;
        found = core->nodes_count++;
        core->nodes[found] = (struct core_node){.address = *address};
    }
    struct core_node *node = &core->nodes[found];
    if (member && !node->member &&
        core->members_count < sizeof(core->members) / sizeof(core->members[0])) {
        node->member = true;
        core->members[core->members_count++] = found;
    }
    return found;
}

/* The member that has this address, or whose worker does; NO_SLOT = none. Members on one machine
 * are apart by their workers' ports, so it is the one with the nearest port below. */
static uint32_t member_of(const struct core *core, const struct wire_address *address)
{
    uint32_t best = NO_SLOT;

    for (uint32_t i = 0; i < core->members_count; i++) {
        const struct wire_address *member = &core->nodes[core->members[i]].address;
        if (memcmp(member->ip, address->ip, sizeof(member->ip)) != 0 ||
            member->port > address->port || address->port - member->port >= WORKERS_MAX)
            continue;
        if (best == NO_SLOT || member->port > core->nodes[best].address.port)
            best = core->members[i];
    }
    return best;
}

uint32_t node_of_answer(struct core *core, const struct wire_address *from)
{
    uint32_t found = node_find(core, from);

    if (found == NO_SLOT && member_of(core, from) != NO_SLOT)
        found = node_add(core, from, false);
    return found;
}

bool node_is_same(const struct core *core, uint32_t a, uint32_t b)
{
    uint32_t member = member_of(core, &core->nodes[a].address);

    return a == b || (member != NO_SLOT && member == member_of(core, &core->nodes[b].address));
}

/* ---- sending --------------------------------------------------------------------------------- */

static void flush_node(struct core *core, struct core_node *node)
{
    if (!node->dirty)
        return;
    size_t length = wire_builder_finish(&node->out);
    ((struct wire_header *)node->buffer)->cookie = node->cookie;
    node->dirty = false;
    core->counts.datagrams_out++;
    core->sink.send(core->sink.context, &node->address, node->buffer, length);
}

void core_flush(struct core *core)
{
    for (uint32_t i = 0; i < core->nodes_count; i++)
        flush_node(core, &core->nodes[i]);
}

void *node_item(struct core *core, uint32_t slot, uint8_t op, size_t bytes)
{
    struct core_node *node = &core->nodes[slot];
    void *item = node->dirty ? wire_builder_add(&node->out, op, bytes) : NULL;

    if (item == NULL) {
        flush_node(core, node);
        wire_builder_start(&node->out, node->buffer, sizeof(node->buffer), WIRE_KIND_REQUEST,
                           core->cluster_id, 0);
        node->dirty = true;
        item = wire_builder_add(&node->out, op, bytes);
        assert(item != NULL); /* the longest request is far below a datagram */
    }
    core->counts.items_out++;
    return item;
}

/* ---- what is known of a node ----------------------------------------------------------------- */

void node_heard(struct core *core, uint32_t slot)
{
    core->nodes[slot].heard_ns = core->now_ns;
    core->nodes[slot].suspect_until_ns = 0;
}

/* RFC 6298, section 2. */
void node_rtt(struct core_node *node, uint64_t sample_ns)
{
    if (node->srtt_ns == 0) {
        node->srtt_ns = sample_ns > 0 ? sample_ns : 1;
        node->rttvar_ns = sample_ns / 2;
        return;
    }
    uint64_t error_ns =
        sample_ns > node->srtt_ns ? sample_ns - node->srtt_ns : node->srtt_ns - sample_ns;
    node->rttvar_ns = (3 * node->rttvar_ns + error_ns) / 4;
    node->srtt_ns = (7 * node->srtt_ns + sample_ns) / 8;
    if (node->srtt_ns == 0)
        node->srtt_ns = 1;
}

uint64_t node_timeout_ns(const struct core_node *node)
{
    if (node->srtt_ns == 0)
        return RETRY_FIRST_NS;
    uint64_t timeout_ns = node->srtt_ns + 4 * node->rttvar_ns;
    return min_ns(max_ns(timeout_ns, RETRY_FIRST_NS), RETRY_MAX_NS);
}

bool node_is_suspect(const struct core *core, uint32_t slot)
{
    return core->nodes[slot].suspect_until_ns > core->now_ns;
}

uint32_t node_after(const struct core *core, uint32_t slot)
{
    uint32_t at = 0;

    assert(core->members_count > 0);
    if (slot != NO_SLOT) /* not the same node again by another of its ports */
        slot = member_of(core, &core->nodes[slot].address);
    for (uint32_t i = 0; i < core->members_count; i++) {
        if (core->members[i] == slot)
            at = i + 1;
    }
    for (uint32_t i = 0; i < core->members_count; i++) {
        uint32_t next = core->members[(at + i) % core->members_count];
        if (next != slot && !node_is_suspect(core, next) && core->nodes[next].problem == 0)
            return next;
    }
    return core->members[at % core->members_count];
}

belay_status nodes_problem(const struct core *core)
{
    uint8_t problem = 0;

    for (uint32_t i = 0; i < core->members_count; i++) {
        problem = core->nodes[core->members[i]].problem;
        if (problem == 0)
            return BELAY_OK;
    }
    return status_of_wire(problem);
}

/* ---- notices --------------------------------------------------------------------------------- */

/* At most a few immediate repeats per second: a node that challenges everything (or somebody who
 * pretends to be one) must not make a storm; the ordinary retries go on. */
static bool may_repeat_at_once(struct core *core, struct core_node *node)
{
    if (core->now_ns - node->challenged_ns >= 1000 * MS || node->challenges == 0) {
        node->challenged_ns = core->now_ns;
        node->challenges = 0;
    }
    if (node->challenges >= CHALLENGE_BURST)
        return false;
    node->challenges++;
    return true;
}

static void challenged(struct core *core, uint32_t slot, uint64_t cookie)
{
    struct core_node *node = &core->nodes[slot];

    core->counts.challenges++;
    if (node->cookie == cookie)
        return; /* more of what one old cookie caused */
    node->cookie = cookie;
    node->cookie_generation++;
    if (!may_repeat_at_once(core, node))
        return;
    for (uint16_t shard = 0; shard < core->shards; shard++) {
        if (core->routes[shard].node == slot)
            route_kick(core, shard);
    }
    for (uint32_t at = core->reads.head; at != NO_SLOT; at = core->requests[at].next) {
        struct core_request *request = &core->requests[at];
        if (asks_node(request->op) && request->node == slot && request->attempts > 0)
            request_send(core, at);
    }
    if (core->map_wanted && core->map_node == slot) {
        core->map_ns = core->now_ns;
        core->map_turn--; /* the same member again */
        map_timer(core);
    }
}

void node_notice(struct core *core, uint32_t slot, const struct wire_node_notice *notice)
{
    switch (notice->item.status) {
    case WIRE_CHALLENGE:
        challenged(core, slot, notice->cookie);
        break;
    case WIRE_WRONG_CLUSTER:
    case WIRE_WRONG_VERSION:
        core->nodes[slot].problem = (uint8_t)notice->item.status;
        break;
    default: /* nothing to learn: the requests' own timers go on */
        break;
    }
}
