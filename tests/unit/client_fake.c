/* SPDX-License-Identifier: Apache-2.0
 *
 * The core's sink, its life, and virtual time of client_fake.h.
 */
#include "client_fake_internal.h"

/* ---- the core's sink ------------------------------------------------------------------------- */

static void sink_send(void *context, const struct wire_address *to, const uint8_t *bytes,
                      size_t length)
{
    struct fake *f = context;
    uint8_t node = (uint8_t)(to->port - f->port_base);
    const struct wire_header *header;
    const struct wire_item *item;

    if (node >= FAKE_NODES && f->worker_ports > 0)
        node = (uint8_t)(node - f->worker_ports);
    MUST(node < FAKE_NODES);
    MUST(wire_decode_datagram(bytes, length, WIRE_KIND_REQUEST, &header, &item) == WIRE_ACCEPTED);
    for (uint16_t i = 0; i < header->item_count; i++, item = wire_item_next(item)) {
        struct fake_sent *sent = &f->sent[f->sent_count++ % FAKE_LOG];
        sent->at_ns = f->now_ns;
        sent->node = node;
        sent->cookie = header->cookie;
        memcpy(sent->item, item, item->bytes);
    }
    fake_post(f, false, node, bytes, length);
}

static void sink_complete(void *context, const struct core_completion *completion)
{
    struct fake *f = context;

    MUST(f->completions_count < FAKE_LOG);
    MUST(fake_completion(f, completion->user) == NULL); /* exactly once */
    f->completions[f->completions_count++] = (struct fake_completion){
        .at_ns = f->now_ns,
        .user = completion->user,
        .lock = completion->lock,
        .request = completion->request,
        .status = completion->status,
        .op = completion->op,
        .shared_lock = completion->shared_lock,
        .what = completion->what,
    };
}

static void sink_lost(void *context, core_ref lock, uint64_t user, belay_lost_reason reason)
{
    struct fake *f = context;

    MUST(f->losses_count < FAKE_LOG);
    for (uint32_t i = 0; i < f->losses_count; i++)
        MUST(f->losses[i].lock != lock); /* exactly once */
    f->losses[f->losses_count++] =
        (struct fake_loss){.at_ns = f->now_ns, .user = user, .lock = lock, .reason = reason};
}

static void sink_revoke(void *context, core_ref lock, uint64_t user)
{
    (void)lock;
    (void)user;
    ((struct fake *)context)->revokes_count++;
}

static void sink_renewed(void *context, core_ref lock, uint64_t user, uint64_t deadline_ns)
{
    (void)lock;
    (void)user;
    ((struct fake *)context)->renewed_deadline_ns = deadline_ns;
}

/* ---- life ------------------------------------------------------------------------------------ */

struct fake *fake_new(void (*adjust)(struct fake *f))
{
    struct fake *f = calloc(1, sizeof(*f));
    struct core_sink sink = {.send = sink_send,
                             .complete = sink_complete,
                             .lost = sink_lost,
                             .revoke = sink_revoke,
                             .renewed = sink_renewed,
                             .context = f};

    f->now_ns = UINT64_C(1) << 33; /* beyond 32 bits from the start */
    f->random = 88172645463325252u;
    f->shards = 4;
    f->port_base = 7400;
    f->cluster_id = 0xc1;
    f->term = 5;
    f->window = 64;
    f->delay_ns = 100000;
    f->check_safety = true;
    f->packets = calloc(FAKE_PACKETS, sizeof(*f->packets));
    f->sent = calloc(FAKE_LOG, sizeof(*f->sent));
    core_options_init(&f->options);
    f->options.locks_max = 256;
    f->options.requests_max = 128;
    f->options.endpoints_count = FAKE_NODES;
    for (uint8_t i = 0; i < FAKE_NODES; i++) {
        f->up[i] = true;
        f->cookies[i] = 1000u + i;
        f->options.endpoints[i] = fake_address(f, i);
    }
    if (adjust != NULL)
        adjust(f);
    size_t bytes = (core_memory_bytes(&f->options) + 63) & ~(size_t)63;
    f->memory = aligned_alloc(64, bytes);
    memset(f->memory, 0, bytes);
    f->core = core_init(f->memory, &f->options, &sink, f->now_ns);
    return f;
}

void fake_free(struct fake *f)
{
    free(f->memory);
    free(f->packets);
    free(f->sent);
    free(f);
}

/* ---- time ------------------------------------------------------------------------------------ */

static int next_packet(const struct fake *f)
{
    int best = -1;

    for (uint32_t i = 0; i < f->packets_count; i++) {
        if (best < 0 || f->packets[i].at_ns < f->packets[best].at_ns ||
            (f->packets[i].at_ns == f->packets[best].at_ns &&
             f->packets[i].order < f->packets[best].order))
            best = (int)i;
    }
    return best;
}

static uint64_t next_ending(const struct fake *f)
{
    uint64_t at_ns = UINT64_MAX;

    if (f->leader == FAKE_NONE || !f->up[f->leader])
        return at_ns;
    for (uint32_t i = 0; i < f->sessions_count; i++) {
        if (f->sessions[i].alive && f->sessions[i].deadline_ns < at_ns)
            at_ns = f->sessions[i].deadline_ns;
    }
    for (uint32_t i = 0; i < f->leases_count; i++) {
        if (f->leases[i].alive && f->leases[i].ttl_ms != 0 && f->leases[i].deadline_ns < at_ns)
            at_ns = f->leases[i].deadline_ns;
    }
    for (uint32_t i = 0; i < FAKE_WAITERS; i++) {
        if (f->waiters[i].waits && f->waiters[i].until_ns < at_ns)
            at_ns = f->waiters[i].until_ns;
    }
    return at_ns;
}

/* Whatever the client takes for held is held by the server, and will be until that deadline. */
static void check_beliefs(struct fake *f)
{
    for (uint32_t i = 0; i < f->completions_count; i++) {
        struct core_lock_info info;
        const struct fake_completion *completion = &f->completions[i];
        if (completion->lock == 0 || !core_lock_info(f->core, completion->lock, &info) ||
            info.deadline_ns <= f->now_ns)
            continue;
        struct fake_lease *lease = fake_by_secret(f, info.lease.secret);
        MUST(lease != NULL && lease->alive);
        if (lease->ttl_ms != 0)
            MUST(info.deadline_ns <= lease->deadline_ns);
    }
}

/* Maps, states and notices come from whichever worker was asked. */
static bool is_of_shard(const uint8_t *bytes, size_t length)
{
    const struct wire_header *header;
    const struct wire_item *item;

    return wire_decode_datagram(bytes, length, WIRE_KIND_REPLY, &header, &item) == WIRE_ACCEPTED &&
           header->item_count > 0 && item->op != WIRE_OP_MAP && item->op != WIRE_OP_STATUS &&
           item->op != WIRE_OP_NODE;
}

static void deliver(struct fake *f, uint32_t at)
{
    struct fake_packet packet = f->packets[at];
    struct wire_address from = fake_address(f, packet.node);

    f->packets[at] = f->packets[--f->packets_count];
    if (packet.to_client && is_of_shard(packet.bytes, packet.length))
        from.port = (uint16_t)(from.port + f->worker_ports);
    if (packet.to_client)
        core_receive(f->core, f->now_ns, &from, packet.bytes, packet.length);
    else
        fake_serve(f, packet.node, packet.bytes, packet.length);
}

void fake_run_until(struct fake *f, uint64_t until_ns)
{
    for (;;) {
        int packet = next_packet(f);
        uint64_t at_ns = packet >= 0 ? f->packets[packet].at_ns : UINT64_MAX;
        uint64_t timer_ns = core_next_deadline(f->core);
        uint64_t ending_ns = next_ending(f);
        uint64_t next_ns = at_ns < timer_ns ? at_ns : timer_ns;
        next_ns = ending_ns < next_ns ? ending_ns : next_ns;
        if (next_ns > until_ns)
            break;
        if (next_ns > f->now_ns)
            f->now_ns = next_ns;
        fake_settle(f);
        if (packet >= 0 && at_ns <= f->now_ns)
            deliver(f, (uint32_t)packet);
        core_tick(f->core, f->now_ns);
        core_flush(f->core);
        if (f->check_safety)
            check_beliefs(f);
    }
    if (until_ns > f->now_ns)
        f->now_ns = until_ns;
}

void fake_run(struct fake *f, uint64_t ms)
{
    fake_run_until(f, f->now_ns + ms * FAKE_MS);
}

const struct fake_completion *fake_completion(const struct fake *f, uint64_t user)
{
    for (uint32_t i = 0; i < f->completions_count; i++) {
        if (f->completions[i].user == user)
            return &f->completions[i];
    }
    return NULL;
}

const struct fake_completion *fake_wait(struct fake *f, uint64_t user, uint64_t ms)
{
    uint64_t until_ns = f->now_ns + ms * FAKE_MS;

    core_flush(f->core);
    while (fake_completion(f, user) == NULL && f->now_ns < until_ns)
        fake_run_until(f,
                       f->now_ns + FAKE_MS / 10 < until_ns ? f->now_ns + FAKE_MS / 10 : until_ns);
    return fake_completion(f, user);
}

struct core_acquire fake_lock(const char *name, uint32_t ttl_ms, uint64_t wait_ms)
{
    return (struct core_acquire){
        .name = {.name = (const uint8_t *)name, .name_bytes = (uint8_t)strlen(name)},
        .mode = WIRE_EXCLUSIVE,
        .flags = ttl_ms == 0 ? WIRE_SESSION_BOUND : 0,
        .ttl_ms = ttl_ms,
        .wait_ms = wait_ms,
    };
}

core_ref fake_acquire(struct fake *f, const char *name, uint32_t ttl_ms, uint64_t user)
{
    struct core_acquire acquire = fake_lock(name, ttl_ms, UINT64_MAX);

    MUST(core_acquire(f->core, f->now_ns, 0, &acquire, user, NULL) == BELAY_OK);
    const struct fake_completion *completion = fake_wait(f, user, 4000);
    return completion != NULL && completion->status == BELAY_OK ? completion->lock : 0;
}

uint32_t fake_sent_ops(const struct fake *f, uint8_t op)
{
    uint32_t count = 0;
    uint32_t from = f->sent_count > FAKE_LOG ? f->sent_count - FAKE_LOG : 0;

    for (uint32_t i = from; i < f->sent_count; i++)
        count += ((const struct wire_item *)f->sent[i % FAKE_LOG].item)->op == op;
    return count;
}

const struct fake_sent *fake_last(const struct fake *f, uint8_t op)
{
    uint32_t from = f->sent_count > FAKE_LOG ? f->sent_count - FAKE_LOG : 0;

    for (uint32_t i = f->sent_count; i > from; i--) {
        const struct fake_sent *sent = &f->sent[(i - 1) % FAKE_LOG];
        if (((const struct wire_item *)sent->item)->op == op)
            return sent;
    }
    return NULL;
}

void fake_new_leader(struct fake *f, uint8_t node)
{
    f->leader = f->leader_claimed = node;
    if (node != FAKE_NONE)
        f->term++;
}
