/* SPDX-License-Identifier: Apache-2.0
 *
 * See dataplane/account.h.
 */
#include "dataplane/account.h"

#include <assert.h>
#include <string.h>

#include "hw/dpdk/dpdk.h"
#include "hw/port.h"

static_assert((int)WIRE_FRAME_LOSSES == (int)NET_LOSSES, "the wire knows every loss");

/* ---- sampling -------------------------------------------------------------------------------- */

/* Drawn, so that what repeats every so many turns is neither always nor never seen (xorshift). */
static uint32_t draw_distance(struct account *account)
{
    account->random ^= account->random << 13;
    account->random ^= account->random >> 7;
    account->random ^= account->random << 17;
    return 1 + (uint32_t)(account->random >> 32) % (2 * ACCOUNT_SAMPLE_TURNS - 1);
}

void account_init(struct account *account, uint64_t seed)
{
    memset(account, 0, sizeof *account);
    account->random = seed | 1;
    account->turns_left = draw_distance(account);
}

void account_turn_begin(struct account *account, const struct board_worker *row)
{
    account->stage = WIRE_STAGE_OTHER;
    account->sampling = account->turns_left == 0;
    if (!account->sampling)
        return;
    memset(account->cycles, 0, sizeof account->cycles);
    account->requests_before = BOARD_GET(row->requests);
    account->since_cycles = clock_cycles();
}

/* A turn without work is neither sampled nor does it bring the next sample nearer: they would be
 * most of all turns. */
void account_turn_end(struct account *account, bool worked, struct board_worker *row)
{
    account->turns++;
    account->turns_busy += worked;
    if (!worked)
        return;
    if (!account->sampling) {
        account->turns_left--;
        return;
    }
    (void)account_enter(account, WIRE_STAGE_OTHER);
    account->sampling = false;
    account->turns_left = draw_distance(account);
    for (uint32_t i = 0; i < WIRE_STAGES; i++)
        BOARD_SET(row->stage_cycles[i], BOARD_GET(row->stage_cycles[i]) + account->cycles[i]);
    BOARD_SET(row->sampled_requests, BOARD_GET(row->sampled_requests) + BOARD_GET(row->requests) -
                                         account->requests_before);
    board_count(&row->sampled_turns);
}

/* ---- the board ------------------------------------------------------------------------------- */

static void publish_traffic(const struct port *port, _Atomic uint64_t traffic[3])
{
    const struct port_counters *counters = port_counters(port);
    BOARD_SET(traffic[0], counters->rx_packets);
    BOARD_SET(traffic[1], counters->tx_packets);
    BOARD_SET(traffic[2], counters->tx_dropped + counters->tx_errors);
}

/* Both ports of a worker are on one queue, if they are on a device at all. */
static void publish_frames(const struct port *clients, const struct port *peers,
                           struct board_worker *row)
{
    const struct net_counters *net;
    const struct dpdk_counters *queue;
    if (!port_queue_counters(clients, &net, &queue) && !port_queue_counters(peers, &net, &queue))
        return;
    for (uint32_t i = 0; i < WIRE_FRAME_LOSSES; i++)
        BOARD_SET(row->frames_lost[i], net->losses[i]);
    BOARD_SET(row->frames[WIRE_FRAMES_HANDED_OVER], queue->handed_over);
    BOARD_SET(row->frames[WIRE_FRAMES_HANDED_OVER_DROPPED], queue->handed_over_dropped);
    BOARD_SET(row->frames[WIRE_FRAMES_SENT_FOR_OTHERS], queue->sent_for_others);
    BOARD_SET(row->frames[WIRE_FRAMES_SENT_FOR_OTHERS_DROPPED], queue->sent_for_others_dropped);
    BOARD_SET(row->frames[WIRE_FRAMES_NO_PORT], queue->no_port);
    BOARD_SET(row->frames[WIRE_FRAMES_OVERSIZED], queue->oversized);
}

void account_publish(struct account *account, const struct port *clients, const struct port *peers,
                     struct board_worker *row)
{
    static_assert(WIRE_TRAFFIC_CLIENTS_IN == 0 && WIRE_TRAFFIC_PEERS_IN == 3, "in, out, unsent");
    BOARD_SET(row->turns, account->turns);
    BOARD_SET(row->turns_busy, account->turns_busy);
    BOARD_SET(row->busy_ns, account->busy_ns);
    publish_traffic(clients, &row->datagrams[WIRE_TRAFFIC_CLIENTS_IN]);
    publish_traffic(peers, &row->datagrams[WIRE_TRAFFIC_PEERS_IN]);
    publish_frames(clients, peers, row);
}

void account_took(struct account *account, bool worked, uint64_t took_ns, uint64_t now_ns,
                  const struct port *clients, const struct port *peers, struct board_worker *row)
{
    bool ran_out = !worked && !account->idle_published;
    if (worked)
        account->busy_ns += took_ns;
    if (ran_out || now_ns - account->published_ns >= ACCOUNT_PUBLISH_NS) {
        account_publish(account, clients, peers, row);
        account->published_ns = now_ns;
    }
    account->idle_published = !worked;
}

/* ---- listing --------------------------------------------------------------------------------- */

struct list {
    struct wire_counter *counters;
    uint16_t count;
};

static void add(struct list *list, enum wire_count counter, uint32_t detail, uint64_t value)
{
    if (value == 0)
        return;
    assert(list->count < ACCOUNT_COUNTERS_MAX);
    list->counters[list->count++] = (struct wire_counter){
        .counter = (uint16_t)counter, .detail = (uint16_t)detail, .value = value};
}

static void add_each(struct list *list, enum wire_count counter, const _Atomic uint64_t values[],
                     uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        add(list, counter, i, BOARD_GET(values[i]));
}

uint16_t account_list(const struct board_worker *row,
                      struct wire_counter counters[ACCOUNT_COUNTERS_MAX])
{
    struct list list = {.counters = counters};
    add(&list, WIRE_COUNT_TURNS, 0, BOARD_GET(row->turns));
    add(&list, WIRE_COUNT_TURNS_BUSY, 0, BOARD_GET(row->turns_busy));
    add(&list, WIRE_COUNT_BUSY_NS, 0, BOARD_GET(row->busy_ns));
    add(&list, WIRE_COUNT_TURN_NS_MAX, 0, BOARD_GET(row->turn_ns_max));
    add(&list, WIRE_COUNT_REQUESTS, 0, BOARD_GET(row->requests));
    add(&list, WIRE_COUNT_CHALLENGES, 0, BOARD_GET(row->challenges));
    add(&list, WIRE_COUNT_HANDED_OVER, 0, BOARD_GET(row->handed_over));
    add(&list, WIRE_COUNT_HANDED_OVER_DROPPED, 0, BOARD_GET(row->handed_over_dropped));
    add(&list, WIRE_COUNT_IN_FLIGHT_DROPPED, 0, BOARD_GET(row->in_flight_dropped));
    add(&list, WIRE_COUNT_RESENT_ANSWERS, 0, BOARD_GET(row->resent_answers));
    add(&list, WIRE_COUNT_UNAVAILABLE, 0, BOARD_GET(row->unavailable));
    add(&list, WIRE_COUNT_PUSHES, 0, BOARD_GET(row->pushes));
    add(&list, WIRE_COUNT_PUSHES_REPEATED, 0, BOARD_GET(row->pushes_repeated));
    add(&list, WIRE_COUNT_PUSHES_DROPPED, 0, BOARD_GET(row->pushes_dropped));
    add_each(&list, WIRE_COUNT_DATAGRAMS, row->datagrams, WIRE_TRAFFICS);
    add_each(&list, WIRE_COUNT_REJECTED_CLIENT, row->rejects_client, WIRE_REJECT_COUNT);
    add_each(&list, WIRE_COUNT_REJECTED_PEER, row->rejects_peer, WIRE_REJECT_COUNT);
    add(&list, WIRE_COUNT_SAMPLED_TURNS, 0, BOARD_GET(row->sampled_turns));
    add(&list, WIRE_COUNT_SAMPLED_REQUESTS, 0, BOARD_GET(row->sampled_requests));
    add_each(&list, WIRE_COUNT_STAGE_CYCLES, row->stage_cycles, WIRE_STAGES);
    add_each(&list, WIRE_COUNT_FRAMES_LOST, row->frames_lost, WIRE_FRAME_LOSSES);
    add_each(&list, WIRE_COUNT_FRAMES, row->frames, WIRE_FRAMES);
    return list.count;
}
