/* SPDX-License-Identifier: Apache-2.0
 *
 * Clients' requests: who may be answered here, what goes into the open batch, and when the leader
 * proposes on its own because time must pass.
 */
#include "consensus/plant.h"
#include <assert.h>
#include <string.h>

#include "dataplane/shard.h"

static struct board_worker *counters_of(const struct shard *shard)
{
    return &shard->board->workers[shard->id % shard->options->workers];
}

/* ---- answers without a log entry ------------------------------------------------------------- */

void shard_refuse(struct shard *shard, const struct wire_address *to,
                  const struct wire_item *request, uint16_t status)
{
    const struct wire_request *head = (const struct wire_request *)request;
    struct wire_reply reply = {
        .item = {.bytes = sizeof reply,
                 .op = request->op,
                 .shard = request->shard,
                 .status = status},
        .session = head->session,
        .number = head->number,
    };

    if (status == WIRE_UNAVAILABLE)
        board_count(&counters_of(shard)->unavailable);
    shard->host->reply(shard->host_context, to, &reply.item);
}

static void redirect(struct shard *shard, const struct wire_address *to,
                     const struct wire_item *request)
{
    const struct wire_request *head = (const struct wire_request *)request;
    const struct board_shard *row = &shard->board->shards[shard->id];
    uint16_t node = shard->view.leader_node;
    struct wire_redirect reply = {
        .reply = {.item = {.bytes = sizeof reply,
                           .op = request->op,
                           .shard = request->shard,
                           .status = WIRE_NOT_LEADER},
                  .session = head->session,
                  .number = head->number},
        .node = node,
        .term = shard->view.term,
    };

    if (node == shard->options->node)
        node = 0; /* itself, but no longer or not yet serving: there is nobody better to name */
    reply.node = node;
    if (node) {
        const struct port_address *client = &shard->options->members[node - 1].client;

        memcpy(&reply.address, client, sizeof reply.address);
        reply.address.port = (uint16_t)(client->port + BOARD_GET(row->leader_worker));
    }
    shard->host->reply(shard->host_context, to, &reply.reply.item);
}

/* ---- duplicates in flight -------------------------------------------------------------------- */

static struct shard_in_flight *in_flight_of(struct shard *shard, const struct wire_request *request)
{
    /* Session ids are random; numbers that follow one another lie side by side. */
    return &shard->in_flight[(request->session + request->number) & (SHARD_IN_FLIGHT - 1)];
}

static bool is_in_flight(struct shard *shard, const struct wire_request *request)
{
    const struct shard_in_flight *slot = in_flight_of(shard, request);

    return slot->session == request->session && slot->number == request->number &&
           slot->index > shard->applied;
}

/* ---- the batch ------------------------------------------------------------------------------- */

static size_t batch_bytes_max(const struct shard *shard)
{
    uint64_t quarter = shard->options->ring_bytes / 4;

    return quarter < SHARD_BATCH_BYTES_MAX ? (size_t)quarter : SHARD_BATCH_BYTES_MAX;
}

static bool open_batch(struct shard *shard)
{
    if (shard->batch)
        return true;
    shard->batch = raft_reserve(shard->raft, batch_bytes_max(shard));
    shard->batch_bytes = sizeof(struct lock_batch);
    shard->batch_count = 0;
    return shard->batch != NULL;
}

static void propose(struct shard *shard, uint16_t kind, size_t payload_bytes, uint64_t now_ns)
{
    shard_step(shard,
               &(struct raft_event){.kind = RAFT_EV_PROPOSE,
                                    .now_ns = now_ns,
                                    .propose = {.kind = kind, .payload_bytes = payload_bytes}});
    shard->proposed_stamp_ns = shard->log.last_stamp_ns;
    shard->proposed_at_ns = now_ns;
}

/* `now_ns` was read after the last command was received: it becomes the entry's stamp. */
void shard_close_batch(struct shard *shard, uint64_t now_ns)
{
    struct lock_batch head = {.count = shard->batch_count, .endings_max = LOCK_ENDINGS_DEFAULT};
    size_t bytes = shard->batch_bytes;

    if (!shard->batch)
        return;
    enum wire_stage before = shard_stage(shard, WIRE_STAGE_PROPOSE);
    memcpy(shard->batch, &head, sizeof head);
    shard->batch = NULL;
    propose(shard, LOG_COMMANDS, bytes, now_ns);
    (void)shard_stage(shard, before);
}

/* What only the leader may fill in (dataplane/wire/wire.h). */
static void fill_in(struct shard *shard, struct wire_item *item, const struct wire_address *from)
{
    struct wire_request *request = (struct wire_request *)item;

    item->shard = shard->id;
    switch (item->op) {
    case WIRE_OP_OPEN:
        ((struct wire_open *)request)->address = *from;
        request->drawn = shard->host->draw(shard->host_context);
        break;
    case WIRE_OP_KEEPALIVE:
        ((struct wire_renew *)request)->address = *from;
        break;
    case WIRE_OP_ACQUIRE:
        request->drawn = wire_lease_secret(shard->host->draw(shard->host_context), request->number);
        break;
    default:
        break;
    }
}

static void admit(struct shard *shard, const struct wire_address *from,
                  const struct wire_item *item, uint64_t now_ns)
{
    const struct wire_request *request = (const struct wire_request *)item;
    struct shard_in_flight *slot = in_flight_of(shard, request);

    if (shard->batch && shard->batch_bytes + item->bytes > batch_bytes_max(shard))
        shard_close_batch(shard, now_ns);
    if (!open_batch(shard)) {
        shard_refuse(shard, from, item, WIRE_UNAVAILABLE);
        return;
    }
    memcpy(shard->batch + shard->batch_bytes, item, item->bytes);
    fill_in(shard, (struct wire_item *)(shard->batch + shard->batch_bytes), from);
    shard->batch_bytes += item->bytes;
    shard->batch_count++;
    /* OPEN has no session yet: its nonce makes it idempotent at apply. */
    if (request->session)
        *slot = (struct shard_in_flight){.session = request->session,
                                         .number = request->number,
                                         .index = shard->view.last_index + 1};
}

/* ---- reads ----------------------------------------------------------------------------------- */

static void answer_read(struct shard *shard, const struct wire_address *to,
                        const struct wire_named *request, uint64_t age_ns)
{
    if (lock_machine_read(shard->machine, request, age_ns, shard->reply_scratch,
                          SHARD_REPLY_BYTES_MAX))
        shard->host->reply(shard->host_context, to, (const struct wire_item *)shard->reply_scratch);
}

static void serve_stale(struct shard *shard, const struct wire_address *from,
                        const struct wire_named *request, uint64_t now_ns)
{
    uint64_t age_ns = 0;

    if (shard->state != SHARD_RUNNING) {
        shard_refuse(shard, from, &request->request.item, WIRE_UNAVAILABLE);
        return;
    }
    if (shard->view.role != RAFT_LEADER)
        age_ns = now_ns - shard->view.last_leader_contact_ns;
    answer_read(shard, from, request, age_ns);
}

static void enqueue_read(struct shard *shard, const struct wire_address *from,
                         const struct wire_item *item)
{
    struct shard_read *read;

    if (shard->reads_count == SHARD_READS_MAX) {
        shard_refuse(shard, from, item, WIRE_UNAVAILABLE);
        return;
    }
    read = &shard->reads[(shard->reads_head + shard->reads_count) % SHARD_READS_MAX];
    shard->reads_count++;
    shard->read_open = true;
    read->context = shard->read_context;
    read->index = UINT64_MAX;
    read->from = *from;
    assert(item->bytes <= sizeof read->item);
    memcpy(read->item, item, item->bytes);
}

/* That a session is unknown is a read like any other: a leader that was deposed, and does not know
 * it yet, has never heard of those opened since. */
static void refuse_logged(struct shard *shard, const struct wire_address *from,
                          const struct wire_request *request)
{
    const struct wire_item *refusal = (const struct wire_item *)shard->reply_scratch;
    struct wire_request head = *request;

    if (refusal->status != WIRE_SESSION_LOST) {
        shard->host->reply(shard->host_context, from, refusal);
        return;
    }
    head.item.bytes = sizeof head;
    if (shard->reads_count < SHARD_READS_MAX / 2) /* the rest is for those with a session */
        enqueue_read(shard, from, &head.item);
}

static void serve_logged(struct shard *shard, const struct wire_address *from,
                         const struct wire_item *item, uint64_t now_ns)
{
    const struct wire_request *request = (const struct wire_request *)item;

    if (request->session && is_in_flight(shard, request)) {
        board_count(&counters_of(shard)->in_flight_dropped);
        return;
    }
    switch (lock_machine_admit(shard->machine, request, shard->reply_scratch)) {
    case LOCK_ADMIT:
        admit(shard, from, item, now_ns);
        break;
    case LOCK_ANSWERED:
        board_count(&counters_of(shard)->resent_answers);
        shard->host->reply(shard->host_context, from,
                           (const struct wire_item *)shard->reply_scratch);
        break;
    case LOCK_REFUSED:
        refuse_logged(shard, from, request);
        break;
    }
}

/* All reads of one turn share one round. */
void shard_reads_close(struct shard *shard, uint64_t now_ns)
{
    uint64_t context = shard->read_context;

    if (!shard->read_open)
        return;
    shard->read_open = false;
    shard->read_context++;
    shard_step(shard, &(struct raft_event){
                          .kind = RAFT_EV_READ, .now_ns = now_ns, .read = {.context = context}});
}

void shard_reads_ready(struct shard *shard, uint64_t context, uint64_t index)
{
    for (uint32_t i = 0; i < shard->reads_count; i++) {
        struct shard_read *read = &shard->reads[(shard->reads_head + i) % SHARD_READS_MAX];

        if (read->context == context)
            read->index = index;
    }
}

void shard_reads_failed(struct shard *shard, uint64_t context)
{
    for (uint32_t i = 0; i < shard->reads_count; i++) {
        struct shard_read *read = &shard->reads[(shard->reads_head + i) % SHARD_READS_MAX];

        if (read->context != context || !read->from.port)
            continue;
        redirect(shard, &read->from, (const struct wire_item *)read->item);
        read->from.port = 0; /* answered; leaves the ring when it reaches the head */
        read->index = 0;
    }
}

static void serve_read(struct shard *shard, const struct shard_read *read)
{
    const struct wire_request *request = (const struct wire_request *)read->item;

    if (request->item.op > WIRE_OP_LOGGED_LAST)
        answer_read(shard, &read->from, (const struct wire_named *)request, 0);
    else if (lock_machine_admit(shard->machine, request, shard->reply_scratch) == LOCK_REFUSED)
        shard->host->reply(shard->host_context, &read->from,
                           (const struct wire_item *)shard->reply_scratch);
}

void shard_reads_serve(struct shard *shard)
{
    while (shard->reads_count && shard->state == SHARD_RUNNING) {
        struct shard_read *read = &shard->reads[shard->reads_head];

        if (read->index > shard->applied)
            break;
        if (read->from.port)
            serve_read(shard, read);
        shard->reads_head = (shard->reads_head + 1) % SHARD_READS_MAX;
        shard->reads_count--;
    }
}

/* ---- entry ----------------------------------------------------------------------------------- */

/* Requests that carry a name must have come to its shard. */
static bool right_shard(const struct shard *shard, const struct wire_item *item)
{
    const uint8_t *text;
    size_t ns_bytes;
    size_t name_bytes;

    if (item->op == WIRE_OP_ACQUIRE) {
        const struct wire_acquire *acquire = (const struct wire_acquire *)item;

        text = acquire->text;
        ns_bytes = acquire->namespace_bytes;
        name_bytes = acquire->name_bytes;
    } else if (item->op == WIRE_OP_QUERY || item->op == WIRE_OP_FORCE_RELEASE) {
        const struct wire_named *named = (const struct wire_named *)item;

        text = named->text;
        ns_bytes = named->namespace_bytes;
        name_bytes = named->name_bytes;
    } else {
        return true;
    }
    return wire_shard_of(text, ns_bytes, text + ns_bytes, name_bytes, shard->options->shards) ==
           shard->id;
}

void shard_request(struct shard *shard, const struct wire_address *from,
                   const struct wire_item *item, uint64_t now_ns)
{
    bool read = item->op == WIRE_OP_QUERY || item->op == WIRE_OP_LIST;

    if (!right_shard(shard, item)) {
        shard_refuse(shard, from, item, WIRE_WRONG_SHARD);
    } else if (read && (item->flags & WIRE_STALE)) {
        serve_stale(shard, from, (const struct wire_named *)item, now_ns);
    } else if (item->op == WIRE_OP_PUSH_ACK) { /* has no answer; pushes are the leader's */
        const struct wire_push_ack *ack = (const struct wire_push_ack *)item;

        if (shard->view.role == RAFT_LEADER)
            push_acknowledge(&shard->pushes, ack->request.session, &ack->lease);
    } else if (shard->view.role != RAFT_LEADER) {
        redirect(shard, from, item);
    } else if (!shard_leads(shard)) {
        shard_refuse(shard, from, item, WIRE_UNAVAILABLE);
    } else if (read) {
        enqueue_read(shard, from, item);
    } else {
        serve_logged(shard, from, item, now_ns);
    }
}

/* ---- time must pass -------------------------------------------------------------------------- */

static void propose_limits(struct shard *shard, uint64_t now_ns)
{
    struct lock_limits limits = shard->options->limits;
    uint8_t *payload = raft_reserve(shard->raft, LOCK_LIMITS_BYTES);

    if (!payload)
        return;
    limits.token_epoch = shard->token_epoch;
    lock_limits_encode(&limits, payload);
    propose(shard, LOG_LIMITS, LOCK_LIMITS_BYTES, now_ns);
}

static void propose_empty(struct shard *shard, uint64_t now_ns)
{
    if (open_batch(shard))
        shard_close_batch(shard, now_ns);
}

/* A leader proposes an empty entry when something is due and nothing under way settles it, and at
 * least one entry per stamp interval while any deadline is pending, so that a successor's shard
 * time is behind by no more than that. */
void shard_propose_due(struct shard *shard, uint64_t now_ns)
{
    uint64_t due_ns;
    bool due;

    if (shard->view.role != RAFT_LEADER || !shard->view.ready || shard->state != SHARD_RUNNING)
        return;
    if (PLANTED(nothing_stamped) && shard->limits_set)
        return;
    if (!shard->limits_set) {
        /* Everything up to the term's no-op is applied, so a missing LOG_LIMITS is really missing;
         * one that is under way shows as an entry that is not applied yet. */
        if (shard->applied == shard->view.last_index)
            propose_limits(shard, now_ns);
        return;
    }
    due_ns = shard->due_ns;
    if (due_ns == UINT64_MAX)
        return;
    due = due_ns <= raft_shard_time(shard->raft, now_ns) &&
          !(shard->proposed_stamp_ns >= due_ns && shard->view.last_index > shard->applied);
    if (due || now_ns - shard->proposed_at_ns >= shard->options->stamp_interval_ns)
        propose_empty(shard, now_ns);
}
