/* SPDX-License-Identifier: Apache-2.0
 *
 * The network: datagrams are delayed, lost, doubled, overtaken, kept and delivered again much
 * later, and cut off in one direction or both.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

enum { CLIENT_PORT = 7400, PEER_PORT = 7500, CORE_PORT = 1000 };

static struct wire_address address_of(uint8_t third, uint8_t fourth, uint16_t port)
{
    return (struct wire_address){
        .ip = {[10] = 0xff, [11] = 0xff, [12] = 10, [14] = third, [15] = fourth}, .port = port};
}

struct wire_address sim_node_address(uint16_t node, bool peer)
{
    return address_of(0, (uint8_t)node, peer ? PEER_PORT : CLIENT_PORT);
}

struct wire_address sim_core_address(uint32_t core, uint64_t epoch)
{
    return address_of(1, (uint8_t)core, (uint16_t)(CORE_PORT + epoch));
}

/* Index into sim->cut: nodes first, then client processes. */
static uint32_t place_of(const struct wire_address *address)
{
    return address->ip[14] == 0 ? address->ip[15] - 1u : (uint32_t)SIM_NODES_MAX + address->ip[15];
}

static void deliver(struct sim *sim, const struct sim_packet *packet, uint64_t at_ns)
{
    struct sim_packet *copy = malloc(sizeof *copy);
    bool to_node = packet->to.ip[14] == 0;
    uint32_t who = to_node ? packet->to.ip[15] - 1u : packet->to.ip[15];
    /* A client's port names its process; a node's port is the same in the next process. */
    uint64_t epoch = to_node ? 0 : (uint64_t)(packet->to.port - CORE_PORT);

    assert(copy);
    *copy = *packet;
    (void)sim_post(sim, at_ns, to_node ? SIM_EV_NODE_PACKET : SIM_EV_CORE_PACKET, who, epoch, 0,
                   copy);
}

/* Between two nodes more can be in the way. */
static uint64_t peer_delay(struct sim *sim, uint32_t from, uint32_t to)
{
    uint64_t delay_ns = 0;

    if (sim->now_ns < sim->storm_until_ns && sim_chance(sim, 300))
        delay_ns = sim_below(sim, sim->storm_delay_ns);
    if (sim->now_ns + delay_ns < sim->clogged_until_ns[from][to])
        delay_ns = sim->clogged_until_ns[from][to] - sim->now_ns;
    return delay_ns;
}

static uint64_t delay(struct sim *sim, const struct sim_packet *packet)
{
    const struct sim_weather *weather = &sim->weather;
    uint64_t delay_ns = weather->delay_ns + sim_below(sim, weather->delay_spread_ns + 1);

    if (!sim->healed && sim_chance(sim, weather->spike_permille))
        delay_ns += sim_below(sim, weather->spike_ns + 1);
    if (!sim->healed && packet->from.ip[14] == 0 && packet->to.ip[14] == 0)
        delay_ns += peer_delay(sim, place_of(&packet->from), place_of(&packet->to));
    return delay_ns;
}

static void packet_again(struct sim *sim, const struct sim_packet *packet)
{
    deliver(sim, packet, sim->now_ns + delay(sim, packet));
}

static bool is_lost(struct sim *sim, const struct sim_packet *packet)
{
    uint32_t permille = sim->weather.loss_permille;

    if (sim->now_ns < sim->storm_until_ns && packet->from.ip[14] == 0 && packet->to.ip[14] == 0)
        permille += 100;
    return sim_chance(sim, permille);
}

static void keep_old(struct sim *sim, const struct sim_packet *packet)
{
    uint32_t slot = sim->old_next++ % 32;

    if (!sim->old[slot])
        sim->old[slot] = malloc(sizeof *packet);
    assert(sim->old[slot]);
    *sim->old[slot] = *packet;
}

void sim_net_send(struct sim *sim, const struct wire_address *from, const struct wire_address *to,
                  const void *bytes, size_t length)
{
    const struct sim_weather *weather = &sim->weather;
    struct sim_packet packet = {.from = *from, .to = *to, .length = (uint32_t)length};

    assert(length <= sizeof packet.bytes);
    memcpy(packet.bytes, bytes, length);
    sim->packets++;
    if (sim->cut[place_of(from)][place_of(to)] ||
        (from->ip[14] == 0 && to->ip[14] == 0 &&
         sim_figure8_blocks(sim, place_of(from), place_of(to))))
        return;
    if (!sim->healed) {
        if (sim_chance(sim, weather->stale_permille))
            keep_old(sim, &packet);
        if (sim_chance(sim, weather->stale_permille) && sim->old_next) {
            uint32_t kept = sim->old_next < 32 ? sim->old_next : 32;

            packet_again(sim, sim->old[sim_below(sim, kept)]);
        }
        if (is_lost(sim, &packet))
            return;
        if (sim_chance(sim, weather->double_permille))
            deliver(sim, &packet, sim->now_ns + delay(sim, &packet));
    }
    deliver(sim, &packet, sim->now_ns + delay(sim, &packet));
}

void sim_net_heal(struct sim *sim)
{
    memset(sim->cut, 0, sizeof sim->cut);
}

bool sim_net_open(const struct sim *sim, uint16_t node, uint16_t other_node)
{
    return !sim->cut[node - 1][other_node - 1] && !sim->cut[other_node - 1][node - 1];
}
