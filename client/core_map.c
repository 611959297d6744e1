/* SPDX-License-Identifier: Apache-2.0
 *
 * Where shards are: the map, redirects, silent leaders, and the cluster's other nodes.
 */
#include "client/core_state.h"

/* ---- asking for the map ---------------------------------------------------------------------- */

static void map_send(struct core *core)
{
    struct wire_page_request *page =
        node_item(core, core->map_node, WIRE_OP_MAP, sizeof(struct wire_page_request));

    page->number = core->map_number;
    page->from = core->map_from;
}

void map_want(struct core *core)
{
    if (core->map_wanted)
        return;
    core->map_wanted = true;
    core->map_from = 0;
    core->map_attempts = 0;
    core->map_ns = max_ns(core->map_ns, core->now_ns);
    client_timers_set(&core->timers, timer_of_map(core), core->map_ns);
}

void map_timer(struct core *core)
{
    if (!core->map_wanted)
        return;
    uint32_t turn = core->map_turn++ % core->members_count;
    core->map_node = core->members[turn];
    core->map_number = core_draw(core);
    uint64_t pause_ns = RETRY_FIRST_NS << (core->map_attempts < 5 ? core->map_attempts : 5);
    if (core->map_attempts < UINT8_MAX)
        core->map_attempts++;
    core->map_ns = core->now_ns + core_jitter(core, min_ns(pause_ns, RETRY_MAX_NS));
    client_timers_set(&core->timers, timer_of_map(core), core->map_ns);
    map_send(core);
}

/* ---- learning -------------------------------------------------------------------------------- */

/* A leader's epoch is (term, configuration index): only a newer one replaces what is known. */
static void learn_leader(struct core *core, const struct wire_mapped *mapped)
{
    struct core_route *route = &core->routes[mapped->shard];

    if (mapped->leader.port == 0)
        return;
    if (route->node != NO_SLOT && !node_is_suspect(core, route->node) &&
        (mapped->term < route->term || (mapped->term == route->term &&
                                        mapped->configuration_index <= route->configuration_index)))
        return;
    uint32_t node = node_add(core, &mapped->leader, false);
    if (node == NO_SLOT)
        return;
    route->term = max_ns(route->term, mapped->term);
    route->configuration_index = mapped->configuration_index;
    if (node_is_suspect(core, node) || route->node == node)
        return;
    route->node = node;
    route_kick(core, mapped->shard);
}

/* Asks one node for its peers' addresses, so that losing every endpoint given does not matter. */
static void ask_for_peers(struct core *core, uint32_t node)
{
    if (core->peers_known)
        return;
    core->peers_known = true;
    uint32_t slot = request_new(core, WIRE_OP_STATUS, 0);
    if (slot == NO_SLOT)
        return;
    struct core_request *request = &core->requests[slot];
    request->detached = true;
    request->node = node;
    request->ends_ns = add_ns(core->now_ns, core->options.request_timeout_ms * MS);
    request_place(core, slot, PLACE_READS);
    request_send(core, slot);
}

void map_peers(struct core *core, const struct wire_node_status *status)
{
    for (uint16_t i = 0; i < status->nodes; i++)
        node_add(core, &status->peers[i], true);
}

void map_page(struct core *core, uint32_t node, const struct wire_map *map)
{
    const struct wire_mapped *mapped = (const struct wire_mapped *)(map + 1);

    if (!core->map_wanted || map->number != core->map_number || node != core->map_node)
        return;
    /* The number of shards is fixed for a cluster's life: another one is another cluster. */
    if (core->shards != 0 && map->shards != core->shards) {
        core->nodes[node].problem = WIRE_WRONG_CLUSTER;
        return;
    }
    if (core->cluster_id == 0)
        core->cluster_id = map->cluster_id;
    core->shards = map->shards;
    for (uint16_t i = 0; i < map->count; i++)
        learn_leader(core, &mapped[i]);
    core->map_attempts = 0;
    uint32_t next = map->from + map->count;
    if (map->count > 0 && next < map->shards) {
        core->map_from = next;
        core->map_number = core_draw(core);
        map_send(core);
    } else {
        core->map_wanted = false;
        core->map_ns = core->now_ns + MAP_EVERY_NS;
        client_timers_clear(&core->timers, timer_of_map(core));
        ask_for_peers(core, node);
    }
    request_unrouted_all(core);
}

/* ---- routes ---------------------------------------------------------------------------------- */

uint32_t route_node(struct core *core, uint16_t shard)
{
    struct core_route *route = &core->routes[shard];

    if (route->node == NO_SLOT) /* a guess: whoever is asked knows better */
        route->node = node_after(core, NO_SLOT);
    return route->node;
}

void route_kick(struct core *core, uint16_t shard)
{
    struct core_route *route = &core->routes[shard];
    uint32_t next;

    for (uint32_t at = route->flight_head; at != NO_SLOT; at = next) {
        struct core_request *request = &core->requests[at];
        next = request->flight_next;
        if (request->node == route->node &&
            request->cookie_generation == core->nodes[route->node].cookie_generation)
            continue;
        request->attempts = 0;
        request_send(core, at);
    }
}

bool route_redirect(struct core *core, uint16_t shard, uint32_t from,
                    const struct wire_redirect *redirect)
{
    struct core_route *route = &core->routes[shard];
    uint32_t target = redirect->node == 0 || redirect->address.port == 0
                          ? NO_SLOT
                          : node_add(core, &redirect->address, false);

    core->counts.redirects++;
    if (route->node == NO_SLOT || !node_is_same(core, route->node, from))
        return false;   /* an answer to an older guess */
    from = route->node; /* asked one worker, another one answered */
    /* No leader, or one that was silent when last asked and nobody newer: ask another node. */
    if (target == NO_SLOT || target == from ||
        (node_is_suspect(core, target) && redirect->term <= route->term)) {
        route->node = node_after(core, from);
        return false;
    }
    route->term = max_ns(route->term, redirect->term);
    bool flips = core->now_ns - route->flipped_ns < ROUTE_FLIP_NS && route->flipped_ns != 0;
    route->node = target;
    route->flipped_ns = core->now_ns;
    if (flips) /* two nodes that name each other: not faster than the pause of a "not now" */
        return false;
    route_kick(core, shard);
    return true;
}

void route_silent(struct core *core, uint16_t shard, uint32_t node)
{
    struct core_route *route = &core->routes[shard];

    core->nodes[node].suspect_until_ns = core->now_ns + SUSPECT_NS;
    if (route->node == node)
        route->node = node_after(core, node);
}
