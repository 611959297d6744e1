/* SPDX-License-Identifier: Apache-2.0
 *
 * What only the worker's loop can get wrong.
 *
 * An entry's stamp is read after its last command was received. Clients count their deadline from
 * the moment they sent: a stamp from before that would end the lease before they think it does. The
 * batch that fills up in the middle of a burst is the one that goes wrong easily.
 *
 * A cookie that was found right is remembered, of its address and for its period alone. The peer
 * port of a cluster of one is emptied, though seldom.
 *
 * A write that failed ends the process: the kernel may report an error once and forget it.
 *
 * The clock, the port and the disk are replaced at link time (-Wl,--wrap).
 */
#include <errno.h>

#include "dataplane/worker.h"
#include "shard_world.h"

#define SECOND UINT64_C(1000000000)

enum { LONG_BYTES = 248 };
static_assert(PORT_BURST_MAX * (sizeof(struct wire_acquire) + 2 * LONG_BYTES) >
                  SHARD_BATCH_BYTES_MAX,
              "a burst of them is more than one batch");

uint64_t __wrap_clock_monotonic_ns(void);
uint32_t __wrap_port_rx_burst(struct port *port, struct port_packet *packets, uint32_t max);
void __wrap_port_rx_done(struct port *port);
int __wrap_disk_submit_write(struct disk *disk, uint32_t segment, uint64_t offset,
                             const void *buffer, size_t bytes, uint64_t user);
size_t __wrap_disk_in_flight(const struct disk *disk);
size_t __wrap_disk_poll(struct disk *disk, struct disk_completion *completions, size_t max);

static struct world world;
static struct world_node *leader;
static struct worker worker;
static uint64_t clock_ns;
static uint64_t received_ns; /* when the last burst or hand-over was taken */
static uint64_t session;
static uint64_t number;
static uint64_t packet_bytes[PORT_BURST_MAX][128];
static uint32_t bursts;             /* received */
static bool silence;                /* nothing comes */
static struct port_packet question; /* bytes not NULL: this comes, once */

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
    bursts++;
    if (silence)
        return 0;
    if (question.bytes != NULL) {
        packets[0] = question;
        question.bytes = NULL;
        return 1;
    }
    clock_ns += SECOND / 2;
    received_ns = clock_ns;
    for (uint32_t i = 0; i < max; i++) {
        long_acquire(packet_bytes[i]);
        packets[i] = (struct port_packet){.bytes = (const uint8_t *)packet_bytes[i]};
    }
    return max;
}

void __wrap_port_rx_done(struct port *port)
{
    (void)port;
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
    bursts = 0;
    silence = false;
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

/* True: it was answered; false: challenged. */
static bool asks(const struct wire_address *from, uint64_t cookie)
{
    struct wire_builder builder;
    uint8_t *bytes = (uint8_t *)packet_bytes[0];
    uint64_t before = BOARD_GET(worker.counters->requests);
    uint64_t challenges = BOARD_GET(worker.counters->challenges);

    wire_builder_start(&builder, bytes, sizeof packet_bytes[0], WIRE_KIND_REQUEST, 0, 0);
    (void)wire_builder_add(&builder, WIRE_OP_MAP, sizeof(struct wire_page_request));
    ((struct wire_header *)bytes)->cookie = cookie;
    question =
        (struct port_packet){.bytes = bytes, .length = (uint32_t)wire_builder_finish(&builder)};
    memcpy(&question.from, from, sizeof question.from);
    packer_init(&worker.replies, NULL, WIRE_KIND_REPLY, 1, 1, NULL);
    cr_assert(worker_take_clients(&worker));
    bool answered = BOARD_GET(worker.counters->requests) == before + 1;
    cr_assert_eq(BOARD_GET(worker.counters->challenges), challenges + (answered ? 0 : 1));
    return answered;
}

Test(worker_rules, a_cookie_is_of_one_address_and_grows_old)
{
    const uint64_t period_ns = 60 * SECOND;
    struct wire_address one = world_client(1), other = one;

    other.port = (uint16_t)(one.port + WORKER_COOKIES); /* has the same place */
    clock_ns = 10 * period_ns;
    uint64_t of_one = wire_cookie(&one, 11, worker.board->cookie_secret);
    uint64_t of_other = wire_cookie(&other, 11, worker.board->cookie_secret);
    cr_assert_not(asks(&one, 0));
    cr_assert_not(asks(&one, of_other));
    cr_assert(asks(&one, of_one));
    cr_assert(asks(&one, of_one));
    cr_assert_not(asks(&one, of_one + 1));
    cr_assert_not(asks(&one, 0));
    cr_assert_not(asks(&other, of_one));
    cr_assert(asks(&other, of_other));
    cr_assert_not(asks(&other, of_one));
    cr_assert(asks(&one, of_one));
    clock_ns += period_ns; /* the one before still counts */
    cr_assert(asks(&one, of_one));
    clock_ns += period_ns;
    cr_assert_not(asks(&one, of_one));
}

Test(worker_rules, strangers_at_the_peer_port_of_a_cluster_of_one)
{
    struct node_options alone = leader->options;

    silence = true;
    for (uint32_t turn = 0; turn < 2 * WORKER_STRANGERS_TURNS; turn++)
        (void)worker_take_peers(&worker);
    cr_assert_eq(bursts, 2 * WORKER_STRANGERS_TURNS, "peers are heard in every turn");
    alone.members_count = 1;
    worker.options = &alone;
    bursts = 0;
    for (uint32_t turn = 0; turn < 2 * WORKER_STRANGERS_TURNS; turn++)
        (void)worker_take_peers(&worker);
    cr_assert_eq(bursts, 2);
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

/* ---- the disk -------------------------------------------------------------------------------- */

static uint64_t submitted; /* 0 = none in flight */
static int write_result;
static int failures;

int __wrap_disk_submit_write(struct disk *disk, uint32_t segment, uint64_t offset,
                             const void *buffer, size_t bytes, uint64_t user)
{
    (void)disk;
    (void)segment;
    (void)offset;
    (void)buffer;
    (void)bytes;
    cr_assert_eq(submitted, 0);
    submitted = user;
    return 0;
}

size_t __wrap_disk_in_flight(const struct disk *disk)
{
    (void)disk;
    return submitted != 0;
}

size_t __wrap_disk_poll(struct disk *disk, struct disk_completion *completions, size_t max)
{
    (void)disk;
    cr_assert_geq(max, 1);
    completions[0] = (struct disk_completion){.user = submitted, .result = write_result};
    submitted = 0;
    return 1;
}

static void note_failure(void *context, int error, const char *what)
{
    (void)context;
    (void)what;
    cr_assert_eq(error, -EIO);
    failures++;
}

/* One acquire into the log, and its write on the way. */
static void write_one(void)
{
    struct wire_address from = world_client(1);
    static uint64_t item[128];

    long_acquire(item);
    worker_client_item(&worker, &from, (const struct wire_item *)item, clock_ns);
    (void)shard_turn(&leader->shard, clock_ns);
    worker_submit_writes(&worker);
}

static void attach_disk(void)
{
    static char somewhere;

    /* The world's own write, if one is on the way, is complete. */
    world_run(&world, 5 * WORLD_MS);
    while (wal_in_flight(leader->wal) || wal_pending(leader->wal))
        world_tick(&world);
    clock_ns = world.now_ns;
    worker.disk = (struct disk *)(void *)&somewhere; /* never looked into */
    worker.wal = leader->wal;
    worker.fail = note_failure;
    submitted = 0;
    write_result = 0;
    failures = 0;
}

/* "fsyncgate": an error is reported once; a later write then succeeds, but the pages are gone. So
 * the first error is the end: said once, nothing of it counts as durable, nothing is written any
 * more. */
Test(worker_rules, a_failed_write_is_the_end)
{
    uint64_t durable;

    attach_disk();
    write_one();
    cr_assert_neq(submitted, 0);
    cr_assert(worker_take_writes(&worker, clock_ns));
    cr_assert_eq(leader->shard.view.durable_index, leader->shard.log.last_index, "a good write");
    cr_assert_eq(failures, 0);
    durable = leader->shard.view.durable_index;
    write_result = -EIO;
    write_one();
    cr_assert_neq(submitted, 0);
    (void)worker_take_writes(&worker, clock_ns);
    cr_assert_eq(failures, 1);
    cr_assert_eq(leader->shard.view.durable_index, durable, "it is not durable");
    write_result = 0;
    write_one();
    cr_assert_eq(submitted, 0, "no retry, nor anything else");
    cr_assert_eq(failures, 1);
}
