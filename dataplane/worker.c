/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop.
 */
#include "dataplane/worker.h"

#include <assert.h>
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "hw/clock.h"
#include "hw/cores.h"
#include "hw/journal.h"

enum { WORKER_STOP_NS_MAX = 1000 * 1000 * 1000, WORKER_SAY_NS = 1000 * 1000 * 1000 };

/* ---- small things ---------------------------------------------------------------------------- */

struct shard *worker_shard(struct worker *worker, uint16_t shard)
{
    if (shard >= worker->options->shards || shard % worker->options->workers != worker->index)
        return NULL;
    return &worker->shards[shard / worker->options->workers];
}

/* Random words without a system call on the way: ChaCha20 under a key that each refill replaces. */
uint64_t worker_draw(struct worker *worker)
{
    if (worker->drawn_next == WORKER_DRAWN) {
        randombytes_buf_deterministic(worker->drawn, sizeof worker->drawn, worker->seed);
        memcpy(worker->seed, worker->drawn, sizeof worker->seed);
        memset(worker->drawn, 0, sizeof worker->seed);
        worker->drawn_next = sizeof worker->seed / sizeof worker->drawn[0];
    }
    return worker->drawn[worker->drawn_next++];
}

/* ---- what shards ask for --------------------------------------------------------------------- */

static void host_reply(void *context, const struct wire_address *to, const struct wire_item *item)
{
    struct worker *worker = context;
    void *space = packer_add(&worker->replies, to, item->op, item->bytes);

    memcpy(space, item, item->bytes);
}

static struct snapshot_mail *host_mail_claim(void *context)
{
    return mailbox_claim(((struct worker *)context)->to_snapshots);
}

static void host_mail_publish(void *context)
{
    struct worker *worker = context;

    mailbox_publish(worker->to_snapshots);
    worker->wake_snapshots(worker->wake_context);
}

static uint64_t host_draw(void *context)
{
    return worker_draw(context);
}

static void host_note(void *context, uint16_t shard, const struct shard_note *note)
{
    const struct worker *worker = context;
    enum journal_level level = note->detail ? JOURNAL_DEBUG : JOURNAL_INFO;

    if (note->second_name)
        journal_write(level, note->event, "worker=%u shard=%u %s=%llu %s=%llu", worker->index,
                      shard, note->first_name, (unsigned long long)note->first, note->second_name,
                      (unsigned long long)note->second);
    else if (note->first_name)
        journal_write(level, note->event, "worker=%u shard=%u %s=%llu", worker->index, shard,
                      note->first_name, (unsigned long long)note->first);
    else
        journal_write(level, note->event, "worker=%u shard=%u", worker->index, shard);
}

static enum wire_stage host_stage(void *context, enum wire_stage stage)
{
    return account_enter(&((struct worker *)context)->account, stage);
}

/* ---- life ------------------------------------------------------------------------------------ */

void worker_init(struct worker *worker, uint16_t index, const struct node_options *options,
                 struct board *board)
{
    memset(worker, 0, sizeof *worker);
    worker->index = index;
    worker->options = options;
    worker->board = board;
    worker->counters = &board->workers[index];
    worker->shards_count =
        (uint32_t)((options->shards - index + options->workers - 1) / options->workers);
    worker->host = (struct shard_host){
        .reply = host_reply,
        .mail_claim = host_mail_claim,
        .mail_publish = host_mail_publish,
        .draw = host_draw,
        .note = host_note,
    };
    worker_peer_host(&worker->host);
    randombytes_buf(worker->seed, sizeof worker->seed);
    worker->drawn_next = WORKER_DRAWN;
    account_init(&worker->account, worker_draw(worker));
}

static void step_down(struct worker *worker, uint64_t now_ns)
{
    for (uint32_t i = 0; i < worker->shards_count; i++)
        shard_step_down(&worker->shards[i], now_ns);
}

/* Stopped in order: nobody waits for this node's leadership, and no write is in flight. */
static bool may_end(const struct worker *worker, uint64_t now_ns)
{
    if (worker->disk && disk_in_flight(worker->disk))
        return false;
    if (worker->failed || now_ns >= worker->stop_by_ns)
        return true;
    if (worker->wal && wal_pending(worker->wal))
        return false;
    for (uint32_t i = 0; i < worker->shards_count; i++) {
        if (worker->shards[i].view.role == RAFT_LEADER && worker->options->members_count > 1)
            return false;
    }
    return true;
}

/* A turn that takes a good part of an election timeout, be it by its work or because the machine
 * ran others, is what costs elections: worth a line, at most one a second. */
static void look_at_turn(struct worker *worker, bool worked, uint64_t began_ns, uint64_t now_ns)
{
    uint64_t took_ns = now_ns - began_ns;

    account_took(&worker->account, worked, took_ns, now_ns, worker->clients, worker->peers,
                 worker->counters);
    board_raise(&worker->counters->turn_ns_max, took_ns);
    if (took_ns < worker->options->election_timeout_ns / 2 ||
        now_ns - worker->slow_said_ns < WORKER_SAY_NS)
        return;
    worker->slow_said_ns = now_ns;
    journal_write(JOURNAL_WARN, "slow_turn", "worker=%u took_us=%llu", worker->index,
                  (unsigned long long)(took_ns / 1000));
}

static void say_not_pinned(const struct worker *worker, uint32_t core, int error)
{
    journal_write(JOURNAL_WARN, "not_pinned",
                  "worker=%u core=%u error=\"%s\" what=\"%s: choose another pin_first_core\"",
                  worker->index, core, strerrordesc_np(error),
                  error == EINVAL ? "there is no such core, or this process' cpuset leaves it out"
                                  : "this process may not choose its cores");
}

static void *worker_main(void *context)
{
    struct worker *worker = context;
    uint64_t began_ns = clock_monotonic_ns();

    if (worker->options->first_core >= 0) {
        uint32_t core = (uint32_t)worker->options->first_core + worker->index;
        int result = cores_pin(core);

        if (result < 0) /* it works, but where the kernel has it */
            say_not_pinned(worker, core, -result);
    }
    int begun = port_thread_begin(worker->clients);
    if (begun == 0)
        begun = port_thread_begin(worker->peers);
    if (begun < 0) /* it works, at more cost */
        journal_write(JOURNAL_WARN, "port_thread", "worker=%u error=%d", worker->index, begun);
    for (;;) {
        bool worked = worker_turn(worker);
        uint64_t now_ns = clock_monotonic_ns();
        uint64_t deadline_ns = UINT64_MAX;

        look_at_turn(worker, worked, began_ns, now_ns);
        if (atomic_load_explicit(&worker->stop, memory_order_acquire)) {
            if (!worker->stop_by_ns) {
                worker->stop_by_ns = now_ns + WORKER_STOP_NS_MAX;
                step_down(worker, now_ns);
                worked = true;
            } else if (may_end(worker, now_ns)) {
                break;
            }
            deadline_ns = now_ns + WORKER_STOP_NS_MAX / 100;
        }
        if (!worked) {
            for (uint32_t i = 0; i < worker->shards_count; i++) {
                uint64_t shard_ns = shard_deadline(&worker->shards[i], now_ns);

                if (shard_ns < deadline_ns)
                    deadline_ns = shard_ns;
            }
        }
        began_ns = poller_rest(worker->poller, worked, deadline_ns);
    }
    account_publish(&worker->account, worker->clients, worker->peers, worker->counters);
    port_thread_end(worker->clients);
    port_thread_end(worker->peers);
    return NULL;
}

int worker_start(struct worker *worker)
{
    char name[16]; /* all that the kernel takes */
    int result = -pthread_create(&worker->thread, NULL, worker_main, worker);

    (void)snprintf(name, sizeof name, "belay-worker-%u", (unsigned)(worker->index % 100));
    if (result == 0)
        (void)pthread_setname_np(worker->thread, name);
    return result;
}

void worker_request_stop(struct worker *worker)
{
    atomic_store_explicit(&worker->stop, true, memory_order_release);
    poller_wake(worker->poller);
}

void worker_join(struct worker *worker)
{
    (void)pthread_join(worker->thread, NULL);
}

bool worker_take_bursts(struct worker *worker, struct port *port, int bursts_max,
                        void (*take)(struct worker *worker, const struct port_packet *packet,
                                     uint64_t now_ns))
{
    struct port_packet packets[PORT_BURST_MAX];
    bool worked = false;

    for (int burst = 0; burst < bursts_max; burst++) {
        enum wire_stage stage = account_enter(&worker->account, WIRE_STAGE_RX);
        uint32_t count = port_rx_burst(port, packets, PORT_BURST_MAX);
        /* Read after the burst was received: a batch that fills up in the middle of it is stamped
         * with this, and no stamp may be older than the arrival of what it covers. */
        uint64_t now_ns = clock_monotonic_ns();

        (void)account_enter(&worker->account, stage);
        for (uint32_t i = 0; i < count; i++)
            take(worker, &packets[i], now_ns);
        port_rx_done(port);
        worked |= count > 0;
        if (count < PORT_BURST_MAX)
            break;
    }
    return worked;
}

/* ---- one turn -------------------------------------------------------------------------------- */

static bool turn(struct worker *worker)
{
    struct account *account = &worker->account;
    uint64_t now_ns = clock_monotonic_ns();

    (void)account_enter(account, WIRE_STAGE_LOG);
    bool worked = worker_take_writes(worker, now_ns);
    (void)account_enter(account, WIRE_STAGE_COMMIT);
    worked |= worker_take_peers(worker);
    (void)account_enter(account, WIRE_STAGE_OTHER);
    worked |= worker_take_mail(worker, now_ns);
    worked |= worker_take_handovers(worker);
    (void)account_enter(account, WIRE_STAGE_COMMIT);
    now_ns = clock_monotonic_ns();
    for (uint32_t i = 0; i < worker->shards_count; i++)
        shard_received(&worker->shards[i], now_ns);
    (void)account_enter(account, WIRE_STAGE_DECODE);
    worked |= worker_take_clients(worker);
    (void)account_enter(account, WIRE_STAGE_OTHER);
    /* Read again: an entry's stamp is never older than the arrival of its last command. */
    now_ns = clock_monotonic_ns();
    for (uint32_t i = 0; i < worker->shards_count; i++)
        worked |= shard_turn(&worker->shards[i], now_ns);
    /* What goes to peers leaves first: a commit waits for their disks, which start later than ours,
     * and what they are told was durable before this turn. Answers leave last: a disk must not
     * stand idle for them. */
    (void)account_enter(account, WIRE_STAGE_SHIP);
    packer_flush(&worker->messages);
    port_tx_flush(worker->peers);
    (void)account_enter(account, WIRE_STAGE_LOG);
    worker_submit_writes(worker);
    (void)account_enter(account, WIRE_STAGE_TX);
    packer_flush(&worker->replies);
    port_tx_flush(worker->clients);
    return worked;
}

bool worker_turn(struct worker *worker)
{
    account_turn_begin(&worker->account, worker->counters);
    /* Shards tell of their stages only in a turn whose stages are measured. */
    worker->host.stage = worker->account.sampling ? host_stage : NULL;
    bool worked = turn(worker);
    account_turn_end(&worker->account, worked, worker->counters);
    return worked;
}
