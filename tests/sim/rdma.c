/* SPDX-License-Identifier: Apache-2.0
 *
 * RDMA memory: rings that a peer's writes land in while their owner sleeps.
 *
 * A write is posted, lands cache line by cache line in random order, in two parts with time in
 * between, and completes later still; or its queue pair fails and nobody knows what became of it.
 * Until it lands its bytes are in the writer's ring, as they are by then. A queue pair lands its
 * writes one after the other and reports in order. A ring takes only the writes of the one writer
 * (replica, term, grant) it is open to. Opening and closing take time, and until it is closed
 * everything still lands. Paused processes are no obstacle; dead ones are.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

enum {
    LINE_BYTES = 64,
    CUT_TRIES = 12, /* a queue pair repeats for so long what is not acknowledged ... */
};
#define CUT_RETRY_NS (5 * SIM_MS) /* ... so often */

enum ring_state { RING_CLOSED, RING_OPENING, RING_OPEN, RING_CLOSING };

struct ring {
    enum ring_state state;
    struct shard_writer writer;
    uint64_t serial; /* of the newest order to open or close it */
};

/* From a shard's replica to a peer's. */
struct pair {
    uint64_t grant; /* of the newest write */
    uint64_t generation;
    uint64_t land_ns, done_ns; /* of the last write: none overtakes */
};

struct write {
    bool used;
    uint64_t id, generation;
    uint16_t from, to, shard; /* nodes, from 0 */
    uint64_t from_epoch, to_epoch;
    struct shard_write what;
    uint8_t *bytes;   /* as posted, or as they were when its queue pair was reset */
    uint8_t *landed;  /* per line */
    bool fixed;       /* the writer's ring is not read any more */
    bool stopped;     /* its queue pair was reset: what is under way may land */
    bool half, whole; /* landed */
    bool waits;       /* for an earlier one of its queue pair */
    bool error;
    uint32_t tries;
};

enum report_kind { REPORT_GRANTED, REPORT_REVOKED, REPORT_SHIPPED, REPORT_FAILED };

struct report {
    enum report_kind kind;
    uint16_t shard;
    uint64_t replica, number;
    struct shard_writer writer;
};

struct sim_rdma {
    struct ring rings[SIM_NODES_MAX][SIM_SHARDS_MAX];
    uint64_t held_until_ns[SIM_NODES_MAX][SIM_NODES_MAX];
    uint64_t slow_until_ns; /* until then rings open and close slowly */
    struct pair pairs[SIM_NODES_MAX][SIM_NODES_MAX][SIM_SHARDS_MAX];
    struct write *writes;
    uint32_t writes_max;
    uint64_t ids, generations;
    struct report *reports[SIM_NODES_MAX];
    uint32_t reports_count[SIM_NODES_MAX], reports_max[SIM_NODES_MAX];
};

struct sim_rdma *sim_rdma_new(void)
{
    struct sim_rdma *rdma = calloc(1, sizeof *rdma);

    assert(rdma);
    return rdma;
}

static void forget(struct write *write)
{
    free(write->bytes);
    free(write->landed);
    *write = (struct write){0};
}

void sim_rdma_free(struct sim *sim)
{
    struct sim_rdma *rdma = sim->rdma;

    if (!rdma)
        return;
    for (uint32_t i = 0; i < rdma->writes_max; i++)
        forget(&rdma->writes[i]);
    free(rdma->writes);
    for (int n = 0; n < SIM_NODES_MAX; n++)
        free(rdma->reports[n]);
    free(rdma);
}

/* ---- time ------------------------------------------------------------------------------------ */

/* Mostly some microseconds; sometimes far more, now and then longer than an election takes. */
static uint64_t some_time(struct sim *sim, uint64_t usual_ns)
{
    uint64_t ns = usual_ns + sim_below(sim, 4 * usual_ns);

    if (sim->healed)
        return ns;
    if (sim_chance(sim, sim->weather.rdma_late_permille))
        ns += sim_below(sim, 5 * SIM_MS);
    if (sim_chance(sim, sim->weather.rdma_late_permille / 8))
        ns += sim_below(sim, 600 * SIM_MS);
    return ns;
}

/* ---- reports --------------------------------------------------------------------------------- */

static void report(struct sim *sim, uint16_t n, const struct report *what)
{
    struct sim_rdma *rdma = sim->rdma;
    struct sim_node *node = &sim->nodes[n];

    if (rdma->reports_count[n] == rdma->reports_max[n]) {
        rdma->reports_max[n] = rdma->reports_max[n] * 2 + 16;
        rdma->reports[n] =
            realloc(rdma->reports[n], rdma->reports_max[n] * sizeof *rdma->reports[n]);
        assert(rdma->reports[n]);
    }
    rdma->reports[n][rdma->reports_count[n]++] = *what;
    if (!node->paused)
        sim_node_wake(node, sim->now_ns + SIM_US);
}

void sim_rdma_turn(struct sim_node *node, uint64_t now_ns)
{
    struct sim_rdma *rdma = node->sim->rdma;
    uint16_t n = (uint16_t)(node->id - 1);

    if (!rdma)
        return;
    for (uint32_t i = 0; i < rdma->reports_count[n]; i++) {
        struct report what = rdma->reports[n][i];
        struct shard *shard = &node->shards[what.shard];

        if (what.kind == REPORT_GRANTED)
            shard_granted(shard, &what.writer, now_ns);
        else if (what.kind == REPORT_REVOKED)
            shard_revoked(shard, &what.writer, now_ns);
        else if (what.kind == REPORT_SHIPPED)
            shard_shipped(shard, what.replica, what.number, now_ns);
        else
            shard_ship_failed(shard, what.replica, what.number, now_ns);
    }
    rdma->reports_count[n] = 0;
}

/* ---- rings ----------------------------------------------------------------------------------- */

static void order_ring(struct sim_node *node, uint16_t shard, enum ring_state state)
{
    struct sim *sim = node->sim;
    struct ring *ring = &sim->rdma->rings[node->id - 1][shard];
    uint64_t after_ns = some_time(sim, 10 * SIM_US);

    ring->state = state;
    ring->serial++;
    if (sim->now_ns < sim->rdma->slow_until_ns && !sim->healed)
        after_ns += sim_below(sim, 100 * SIM_MS);
    (void)sim_post(sim, sim->now_ns + after_ns, SIM_EV_RDMA_RING, node->id - 1u, node->epoch,
                   ring->serial * SIM_SHARDS_MAX + shard, NULL);
}

static int host_ring_open(void *context, uint16_t shard, const struct shard_writer *writer)
{
    struct sim_node *node = context;

    if (!node->sim->healed && sim_chance(node->sim, 20))
        return -ENOMEM; /* messages, this time */
    node->sim->rdma->rings[node->id - 1][shard].writer = *writer;
    order_ring(node, shard, RING_OPENING);
    return 0;
}

static void host_ring_close(void *context, uint16_t shard, const struct shard_writer *writer)
{
    struct sim_node *node = context;

    (void)writer;
    order_ring(node, shard, RING_CLOSING);
}

static void ring_event(struct sim *sim, const struct sim_event *event)
{
    struct sim_node *node = &sim->nodes[event->who];
    uint16_t shard = (uint16_t)(event->detail % SIM_SHARDS_MAX);
    struct ring *ring = &sim->rdma->rings[event->who][shard];
    bool opened = ring->state == RING_OPENING;

    if (!node->up || node->epoch != event->epoch || ring->serial != event->detail / SIM_SHARDS_MAX)
        return;
    ring->state = opened ? RING_OPEN : RING_CLOSED;
    sim_trace(sim, "n%u s%u its ring is %s to n%u, term %llu, grant %llu", node->id, shard,
              opened ? "open" : "closed", ring->writer.node, (unsigned long long)ring->writer.term,
              (unsigned long long)ring->writer.grant);
    report(sim, (uint16_t)event->who,
           &(struct report){.kind = opened ? REPORT_GRANTED : REPORT_REVOKED,
                            .shard = shard,
                            .writer = ring->writer});
}

/* While it is being closed, too. */
static bool lets_in(const struct ring *ring, const struct shard_write *write)
{
    return (ring->state == RING_OPEN || ring->state == RING_CLOSING) &&
           ring->writer.replica == write->from_replica && ring->writer.term == write->term &&
           ring->writer.grant == write->grant;
}

/* ---- writes: the leader's side --------------------------------------------------------------- */

static struct pair *pair_of(struct sim *sim, const struct write *write)
{
    return &sim->rdma->pairs[write->from][write->to][write->shard];
}

static struct write *new_write(struct sim_rdma *rdma)
{
    uint32_t at = 0;

    while (at < rdma->writes_max && rdma->writes[at].used)
        at++;
    if (at == rdma->writes_max) {
        uint32_t max = rdma->writes_max * 2 + 64;

        rdma->writes = realloc(rdma->writes, max * sizeof *rdma->writes);
        assert(rdma->writes);
        memset(rdma->writes + rdma->writes_max, 0, (max - rdma->writes_max) * sizeof *rdma->writes);
        rdma->writes_max = max;
    }
    rdma->writes[at] = (struct write){.used = true, .id = ++rdma->ids};
    return &rdma->writes[at];
}

static struct write *write_by_id(struct sim_rdma *rdma, uint64_t id)
{
    for (uint32_t i = 0; i < rdma->writes_max; i++) {
        if (rdma->writes[i].used && rdma->writes[i].id == id)
            return &rdma->writes[i];
    }
    return NULL;
}

static void post_event(struct sim *sim, const struct write *write, enum sim_event_kind kind,
                       uint64_t at_ns)
{
    (void)sim_post(sim, at_ns, kind, write->from, 0, write->id, NULL);
}

static int host_write(void *context, uint16_t shard, const struct shard_write *what)
{
    struct sim_node *node = context;
    struct sim *sim = node->sim;
    struct write *write;
    struct pair *pair;

    if (!sim->healed && sim_chance(sim, sim->weather.rdma_error_permille / 8))
        return -EIO;
    write = new_write(sim->rdma);
    write->from = (uint16_t)(node->id - 1);
    write->to = (uint16_t)(what->to_node - 1);
    write->shard = shard;
    write->from_epoch = node->epoch;
    write->to_epoch = sim->nodes[write->to].epoch;
    write->what = *what;
    write->bytes = malloc(what->length);
    write->landed = calloc(what->length / LINE_BYTES + 2, 1);
    assert(write->bytes && write->landed && what->length);
    memcpy(write->bytes, what->bytes, what->length);
    write->fixed = sim_chance(sim, 500); /* the device may have read them at once */
    pair = pair_of(sim, write);
    if (pair->grant != what->grant) {
        pair->grant = what->grant;
        pair->generation = ++sim->rdma->generations;
    }
    write->generation = pair->generation;
    pair->land_ns = sim->now_ns + some_time(sim, 3 * SIM_US);
    post_event(sim, write, SIM_EV_RDMA_LAND, pair->land_ns);
    return 0;
}

static void host_write_flush(void *context, uint16_t shard)
{
    (void)context;
    (void)shard;
}

/* What the device has read of a ring is under way and may land, or not. Completions that were
 * queued already are still read. */
static void reset_pair(struct sim *sim, uint16_t from, uint16_t to, uint16_t shard)
{
    struct sim_rdma *rdma = sim->rdma;

    rdma->pairs[from][to][shard].generation = ++rdma->generations;
    rdma->pairs[from][to][shard].grant = 0;
    for (uint32_t i = 0; i < rdma->writes_max; i++) {
        struct write *write = &rdma->writes[i];

        if (!write->used || write->from != from || write->to != to || write->shard != shard ||
            write->stopped || write->whole)
            continue;
        write->stopped = true;
        if (!write->fixed && sim->nodes[from].epoch == write->from_epoch && sim->nodes[from].up)
            memcpy(write->bytes, write->what.bytes, write->what.length);
        write->fixed = true;
        if (!write->half && sim_chance(sim, 500))
            forget(write);
    }
}

static void host_write_stop(void *context, uint16_t shard, uint16_t to, uint64_t replica)
{
    struct sim_node *node = context;

    (void)replica;
    reset_pair(node->sim, (uint16_t)(node->id - 1), (uint16_t)(to - 1), shard);
}

void sim_rdma_host(struct shard_host *host)
{
    host->ring_open = host_ring_open;
    host->ring_close = host_ring_close;
    host->write = host_write;
    host->write_flush = host_write_flush;
    host->write_stop = host_write_stop;
}

/* ---- writes: landing ------------------------------------------------------------------------- */

/* Lines are of the ring, not of the write: its first and last may be parts of one. */
static void land_lines(struct sim *sim, struct write *write, bool all)
{
    struct log *log = &sim->nodes[write->to].shards[write->shard].log;
    uint64_t offset = write->what.position % log->ring_bytes;
    const uint8_t *bytes = write->fixed ? write->bytes : write->what.bytes;
    size_t done = 0;

    for (uint32_t line = 0; done < write->what.length; line++) {
        size_t run = LINE_BYTES - (offset + done) % LINE_BYTES;

        if (run > write->what.length - done)
            run = write->what.length - done;
        if (!write->landed[line] && (all || sim_chance(sim, 500))) {
            write->landed[line] = 1;
            memcpy(log->ring + offset + done, bytes + done, run);
        }
        done += run;
    }
}

/* The next one of the queue pair need not wait any longer. */
static void land_next(struct sim *sim, const struct write *done)
{
    struct write *next = NULL;

    for (uint32_t i = 0; i < sim->rdma->writes_max; i++) {
        struct write *write = &sim->rdma->writes[i];

        if (write->used && write->waits && write->generation == done->generation && !write->whole &&
            (!next || write->id < next->id))
            next = write;
    }
    if (next)
        post_event(sim, next, SIM_EV_RDMA_LAND, sim->now_ns);
}

static void complete(struct sim *sim, struct write *write, bool error, uint64_t after_ns)
{
    struct pair *pair = pair_of(sim, write);
    uint64_t at_ns = sim->now_ns + after_ns;

    write->error = error;
    write->whole = true; /* nothing more of it lands */
    if (at_ns < pair->done_ns)
        at_ns = pair->done_ns;
    pair->done_ns = at_ns;
    post_event(sim, write, SIM_EV_RDMA_DONE, at_ns);
}

/* The queue pair fails with this write: it and all behind it end with errors, and what of them had
 * left already may land all the same. */
static void fail_pair(struct sim *sim, const struct write *first)
{
    struct sim_rdma *rdma = sim->rdma;
    uint64_t generation = first->generation;
    uint64_t id = first->id;

    for (uint32_t i = 0; i < rdma->writes_max; i++) {
        struct write *write = &rdma->writes[i];

        if (!write->used || write->generation != generation || write->id < id || write->whole ||
            write->stopped)
            continue;
        if (!write->fixed && sim->nodes[write->from].up)
            memcpy(write->bytes, write->what.bytes, write->what.length);
        write->fixed = true;
        complete(sim, write, true, some_time(sim, 100 * SIM_US));
    }
}

/* Writes of a queue pair land one after the other. */
static bool waits_for_another(const struct sim_rdma *rdma, const struct write *write)
{
    for (uint32_t i = 0; i < rdma->writes_max; i++) {
        const struct write *other = &rdma->writes[i];

        if (other->used && other->generation == write->generation && other->id < write->id &&
            !other->whole)
            return true;
    }
    return false;
}

static bool writer_lives(const struct sim *sim, const struct write *write)
{
    return sim->nodes[write->from].up && sim->nodes[write->from].epoch == write->from_epoch;
}

/* True: not now. */
static bool is_held_up(struct sim *sim, struct write *write)
{
    write->waits = waits_for_another(sim->rdma, write);
    if (write->waits) {
        post_event(sim, write, SIM_EV_RDMA_LAND, sim->now_ns + SIM_MS);
        return true;
    }
    if (sim->now_ns < sim->rdma->held_until_ns[write->from][write->to] && !sim->healed) {
        post_event(sim, write, SIM_EV_RDMA_LAND, sim->rdma->held_until_ns[write->from][write->to]);
        return true;
    }
    if (sim->cut[write->from][write->to] && writer_lives(sim, write) && !write->stopped &&
        write->tries++ < CUT_TRIES) {
        post_event(sim, write, SIM_EV_RDMA_LAND, sim->now_ns + CUT_RETRY_NS);
        return true;
    }
    return false;
}

static bool may_land(const struct sim *sim, const struct write *write)
{
    const struct sim_node *to = &sim->nodes[write->to];

    return to->up && to->epoch == write->to_epoch && !sim->cut[write->from][write->to] &&
           lets_in(&sim->rdma->rings[write->to][write->shard], &write->what);
}

static void land_event(struct sim *sim, struct write *write)
{
    struct sim_node *to = &sim->nodes[write->to];
    bool lives = writer_lives(sim, write);

    if (write->whole)
        return; /* its queue pair failed meanwhile */
    if (is_held_up(sim, write))
        return;
    if (!lives && (!write->fixed || (!write->half && sim_chance(sim, 500)))) {
        forget(write); /* it never left */
        return;
    }
    if (!may_land(sim, write)) {
        if (lives && !write->stopped)
            fail_pair(sim, write);
        else
            forget(write);
        return;
    }
    if (!write->stopped && lives && !sim->healed && !write->half &&
        sim_chance(sim, sim->weather.rdma_error_permille)) {
        land_lines(sim, write, sim_chance(sim, 500)); /* and nobody knows */
        fail_pair(sim, write);
        return;
    }
    land_lines(sim, write, write->half);
    if (!to->paused && to->up)
        sim_node_wake(to, sim->now_ns + SIM_US);
    if (!write->half) {
        write->half = true;
        post_event(sim, write, SIM_EV_RDMA_LAND, sim->now_ns + some_time(sim, SIM_US));
        return;
    }
    if (!lives || (write->stopped && sim_chance(sim, 500))) {
        forget(write);
        return;
    }
    complete(sim, write, sim->cut[write->to][write->from] && sim_chance(sim, 500),
             some_time(sim, 2 * SIM_US));
    land_next(sim, write);
}

static void done_event(struct sim *sim, struct write *write)
{
    if (write->error && write->fixed && sim_chance(sim, 300) && may_land(sim, write))
        land_lines(sim, write, true); /* an error says nothing about what it was */
    if (writer_lives(sim, write) && (write->what.last || write->error))
        report(sim, write->from,
               &(struct report){.kind = write->error ? REPORT_FAILED : REPORT_SHIPPED,
                                .shard = write->shard,
                                .replica = write->what.to_replica,
                                .number = write->what.number});
    forget(write);
}

void sim_rdma_event(struct sim *sim, const struct sim_event *event)
{
    struct write *write;

    if (event->kind == SIM_EV_RDMA_RING) {
        ring_event(sim, event);
        return;
    }
    write = write_by_id(sim->rdma, event->detail);
    if (!write)
        return;
    if (event->kind == SIM_EV_RDMA_LAND)
        land_event(sim, write);
    else
        done_event(sim, write);
}

void sim_rdma_hold(struct sim *sim, uint16_t from, uint16_t to, uint64_t until_ns)
{
    sim->rdma->held_until_ns[from][to] = until_ns;
    sim->rdma->slow_until_ns = until_ns;
}

/* ---- ends ------------------------------------------------------------------------------------ */

void sim_rdma_break(struct sim *sim, uint16_t from, uint16_t to)
{
    struct sim_rdma *rdma = sim->rdma;

    for (uint32_t i = 0; i < rdma->writes_max; i++) {
        struct write *write = &rdma->writes[i];

        if (write->used && write->from == from && write->to == to && !write->whole &&
            !write->stopped)
            fail_pair(sim, write);
    }
}

void sim_rdma_crash(struct sim_node *node)
{
    struct sim *sim = node->sim;
    uint16_t n = (uint16_t)(node->id - 1);

    if (!sim->rdma)
        return;
    for (uint16_t s = 0; s < sim->shards; s++) {
        struct ring *ring = &sim->rdma->rings[n][s];

        ring->state = RING_CLOSED;
        ring->serial++;
        for (uint16_t other = 0; other < sim->nodes_count; other++)
            reset_pair(sim, n, other, s);
    }
    sim->rdma->reports_count[n] = 0;
}
