/* SPDX-License-Identifier: Apache-2.0
 *
 * An entry's stamp is read after its last command was received. Clients count their deadline from
 * the moment they sent: a stamp from before that would end the lease before they think it does. The
 * batch that fills up in the middle of a burst is the one that goes wrong easily.
 *
 * The clock and the port are replaced at link time (-Wl,--wrap).
 */
#include "dataplane/worker.h"
#include "shard_world.h"

#define SECOND UINT64_C(1000000000)

enum { LONG_BYTES = 248 };
static_assert(PORT_BURST_MAX * (sizeof(struct wire_acquire) + 2 * LONG_BYTES) >
                  SHARD_BATCH_BYTES_MAX,
              "a burst of them is more than one batch");

uint64_t __wrap_clock_monotonic_ns(void);
uint32_t __wrap_port_rx_burst(struct port *port, struct port_packet *packets, uint32_t max);

static struct world world;
static struct world_node *leader;
static struct worker worker;
static uint64_t clock_ns;
static uint64_t received_ns; /* when the last burst or hand-over was taken */
static uint64_t session;
static uint64_t number;
static uint64_t packet_bytes[PORT_BURST_MAX][128];

uint64_t __wrap_clock_monotonic_ns(void)
{
    return clock_ns;
}

/* An acquire as long as they come, so that 64 of them are more than one batch. */
static void long_acquire(uint64_t *space)
{
    struct wire_acquire *acquire = (struct wire_acquire *)space;

    memset(space, 0, sizeof packet_bytes[0]);
    number++;
    acquire->request.item.op = WIRE_OP_ACQUIRE;
    acquire->request.item.bytes = (uint16_t)(sizeof *acquire + 2 * LONG_BYTES);
    acquire->request.session = session;
    acquire->request.number = number;
    acquire->request.acked_below = 1;
    acquire->ttl_ms = 2000;
    acquire->mode = WIRE_EXCLUSIVE;
    acquire->name_bytes = acquire->value_bytes = LONG_BYTES;
    memset(acquire->text, 'x', 2 * LONG_BYTES);
    acquire->text[0] = (uint8_t)number;
    cr_assert_eq(wire_judge_request(&acquire->request.item, false).status, WIRE_OK);
}

/* Half a second passes between the turn's look at the clock and the receive: the thread was not
 * running. What comes was sent just before it ran again. */
uint32_t __wrap_port_rx_burst(struct port *port, struct port_packet *packets, uint32_t max)
{
    (void)port;
    cr_assert_eq(max, PORT_BURST_MAX);
    clock_ns += SECOND / 2;
    received_ns = clock_ns;
    for (uint32_t i = 0; i < max; i++) {
        long_acquire(packet_bytes[i]);
        packets[i] = (struct port_packet){.bytes = (const uint8_t *)packet_bytes[i]};
    }
    return max;
}

static void take_item(struct worker *taker, const struct port_packet *packet, uint64_t now_ns)
{
    struct wire_address from = world_client(1);

    worker_client_item(taker, &from, (const struct wire_item *)packet->bytes, now_ns);
}

static void open_worker(void)
{
    world_open(&world, NODE_DISK);
    session = world_open_session(&world, 1, 60000);
    number = 0;
    leader = world_leader(&world);
    clock_ns = world.now_ns;
    memset(&worker, 0, sizeof worker);
    worker.options = &leader->options;
    worker.board = leader->board;
    worker.counters = &leader->board->workers[0];
    worker.shards = &leader->shard;
    worker.shards_count = 1;
}

static void close_world(void)
{
    world_close(&world);
}

TestSuite(worker_rules, .init = open_worker, .fini = close_world, .timeout = 60);

/* Every entry from `first` on is stamped at or after the moment given. */
static void stamped_after(uint64_t first, uint64_t moment_ns)
{
    uint64_t least_ns = raft_shard_time(leader->shard.raft, moment_ns);
    uint32_t entries = 0;

    for (uint64_t index = first; index <= leader->shard.log.last_index; index++) {
        const struct log_entry *entry = log_at(&leader->shard.log, index);

        entries += entry->kind == LOG_COMMANDS;
        cr_assert_geq(entry->stamp_ns, least_ns, "stamped %llu us before its command came",
                      (unsigned long long)(least_ns - entry->stamp_ns) / 1000);
    }
    cr_assert_geq(entries, 1, "no batch filled up: the test shows nothing");
}

Test(worker_rules, a_batch_that_fills_within_a_burst)
{
    uint64_t first = leader->shard.log.last_index + 1;

    cr_assert(worker_take_bursts(&worker, NULL, 1, take_item));
    stamped_after(first, received_ns);
}

/* The same between workers: what another one hands over comes after the turn began. */
Test(worker_rules, a_batch_that_fills_with_what_is_handed_over)
{
    void *memory =
        aligned_alloc(64, mailbox_memory_bytes(WORKER_HANDOVERS, sizeof(struct worker_handover)));
    struct mailbox *inbox = mailbox_init(memory, WORKER_HANDOVERS, sizeof(struct worker_handover));
    struct worker_handover *handover;
    uint64_t first = leader->shard.log.last_index + 1;

    worker.inbox[0] = inbox;
    clock_ns += SECOND / 2;
    received_ns = clock_ns;
    while ((handover = mailbox_claim(inbox)) != NULL) {
        memset(handover, 0, sizeof *handover);
        handover->from = world_client(1);
        long_acquire(handover->item);
        mailbox_publish(inbox);
    }
    cr_assert(worker_take_handovers(&worker));
    stamped_after(first, received_ns);
    free(memory);
}
