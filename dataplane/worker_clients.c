/* SPDX-License-Identifier: Apache-2.0
 *
 * Clients' datagrams: judged, counted by reason, answered or handed to a shard.
 *
 * Until a source address has shown the cookie that was sent to it, it gets one CHALLENGE per
 * datagram, which is shorter than any request: nobody can be flooded through us.
 */
#include <string.h>

#include "dataplane/worker.h"

/* ---- about the datagram ---------------------------------------------------------------------- */

static void notice(struct worker *worker, const struct wire_address *to, uint16_t status,
                   uint64_t cookie, uint64_t detail)
{
    struct wire_node_notice *item =
        packer_add(&worker->replies, to, WIRE_OP_NODE, sizeof(struct wire_node_notice));

    item->item.status = status;
    item->cookie = cookie;
    item->detail = detail;
}

static uint64_t period_of(uint64_t now_ns)
{
    return now_ns / UINT64_C(60000000000) + 1;
}

/* A busy client shows the same cookie with every datagram: it is worked out once a period. */
static bool cookie_is_right(struct worker *worker, const struct wire_address *from, uint64_t cookie,
                            uint64_t now_ns)
{
    uint64_t period = period_of(now_ns);
    struct worker_cookie *known =
        &worker->cookies[(from->port + from->ip[15]) & (WORKER_COOKIES - 1)];

    if (known->cookie == cookie && known->period == period &&
        memcmp(&known->address, from, sizeof *from) == 0)
        return true;
    if (!cookie || (cookie != wire_cookie(from, period, worker->board->cookie_secret) &&
                    cookie != wire_cookie(from, period - 1, worker->board->cookie_secret)))
        return false;
    *known = (struct worker_cookie){.address = *from, .cookie = cookie, .period = period};
    return true;
}

/* ---- questions to the node ------------------------------------------------------------------- */

enum {
    WORKER_MAP_ROWS =
        (WIRE_DATAGRAM_BYTES_MAX - (int)sizeof(struct wire_header) - (int)sizeof(struct wire_map)) /
        (int)sizeof(struct wire_mapped),
    WORKER_STATUS_ROWS = (WIRE_DATAGRAM_BYTES_MAX - (int)sizeof(struct wire_header) -
                          (int)sizeof(struct wire_node_status)) /
                         (int)sizeof(struct wire_shard_status),
};

static uint16_t rows_from(const struct worker *worker, uint32_t from, uint16_t rows_max)
{
    uint32_t left = from < worker->options->shards ? worker->options->shards - from : 0;

    return (uint16_t)(left < rows_max ? left : rows_max);
}

static void client_address(const struct node_options *options, uint16_t node, uint16_t worker,
                           struct wire_address *address)
{
    memcpy(address, &options->members[node - 1].client, sizeof *address);
    address->port = (uint16_t)(address->port + worker);
}

static void answer_map(struct worker *worker, const struct wire_address *to,
                       const struct wire_page_request *request)
{
    uint16_t rows = rows_from(worker, request->from, WORKER_MAP_ROWS);
    struct wire_map *map = packer_add(&worker->replies, to, WIRE_OP_MAP,
                                      sizeof *map + rows * sizeof(struct wire_mapped));
    struct wire_mapped *mapped = (struct wire_mapped *)(map + 1);

    map->number = request->number;
    map->cluster_id = worker->board->cluster_id;
    map->shards = worker->options->shards;
    map->from = request->from;
    map->count = rows;
    map->node = worker->options->node;
    map->nodes = worker->options->members_count;
    for (uint16_t i = 0; i < rows; i++) {
        const struct board_shard *row = &worker->board->shards[request->from + i];

        mapped[i].shard = (uint16_t)(request->from + i);
        mapped[i].leader_node = BOARD_GET(row->leader_node);
        mapped[i].term = BOARD_GET(row->term);
        mapped[i].configuration_index = BOARD_GET(row->configuration_index);
        if (mapped[i].leader_node)
            client_address(worker->options, mapped[i].leader_node, BOARD_GET(row->leader_worker),
                           &mapped[i].leader);
    }
}

/* 0 = not taken at that index (yet). */
static uint64_t digest_at(const struct board_shard *row, uint64_t index)
{
    uint64_t before = atomic_load_explicit(&row->digest_index, memory_order_acquire);
    uint64_t digest = atomic_load_explicit(&row->digest, memory_order_acquire);
    uint64_t after = atomic_load_explicit(&row->digest_index, memory_order_relaxed);

    return before == index && after == index ? digest : 0;
}

static void fill_shard_status(const struct board_shard *row, uint16_t shard,
                              struct wire_shard_status *status)
{
    status->shard = shard;
    status->leader_node = BOARD_GET(row->leader_node);
    status->role = BOARD_GET(row->role);
    status->ship_mode = BOARD_GET(row->ship_mode);
    status->voters = BOARD_GET(row->voters);
    status->learners = BOARD_GET(row->learners);
    status->term = BOARD_GET(row->term);
    status->last_index = BOARD_GET(row->last_index);
    status->commit_index = BOARD_GET(row->commit_index);
    status->applied_index = BOARD_GET(row->applied_index);
    status->snapshot_index = BOARD_GET(row->snapshot_index);
    status->leases = BOARD_GET(row->leases);
    status->resources = BOARD_GET(row->resources);
    status->sessions = BOARD_GET(row->sessions);
    status->waiters = BOARD_GET(row->waiters);
    status->digest = digest_at(row, status->applied_index);
}

static void answer_status(struct worker *worker, const struct wire_address *to,
                          const struct wire_page_request *request, uint64_t now_ns)
{
    const struct node_options *options = worker->options;
    uint16_t rows = rows_from(worker, request->from, WORKER_STATUS_ROWS);
    struct wire_node_status *status =
        packer_add(&worker->replies, to, WIRE_OP_STATUS,
                   sizeof *status + rows * sizeof(struct wire_shard_status));
    struct wire_shard_status *shards = (struct wire_shard_status *)(status + 1);

    status->number = request->number;
    status->cluster_id = worker->board->cluster_id;
    status->uptime_ns = now_ns - worker->board->started_ns;
    status->shards = options->shards;
    status->from = request->from;
    status->count = rows;
    status->node = options->node;
    status->nodes = options->members_count;
    status->workers = options->workers;
    status->durability = (uint8_t)options->durability;
    status->state = BOARD_GET(worker->board->state);
    for (uint16_t node = 1; node <= options->members_count; node++)
        client_address(options, node, 0, &status->peers[node - 1]);
    for (uint16_t i = 0; i < rows; i++)
        fill_shard_status(&worker->board->shards[request->from + i], (uint16_t)(request->from + i),
                          &shards[i]);
}

static void answer_worker(struct worker *worker, const struct wire_address *to,
                          const struct wire_page_request *request, uint64_t now_ns)
{
    static_assert(sizeof(struct wire_header) + sizeof(struct wire_worker_status) +
                          ACCOUNT_COUNTERS_MAX * sizeof(struct wire_counter) <=
                      WIRE_DATAGRAM_BYTES_MAX,
                  "all that one worker has counted is one datagram");
    const struct board *board = worker->board;
    struct wire_counter counters[ACCOUNT_COUNTERS_MAX];
    uint16_t workers = worker->options->workers;
    uint16_t asked = request->from < workers ? (uint16_t)request->from : workers;
    uint16_t count = asked < workers ? account_list(&board->workers[asked], counters) : 0;
    struct wire_worker_status *status =
        packer_add(&worker->replies, to, WIRE_OP_WORKER, sizeof *status + count * sizeof *counters);
    double seconds = (double)(now_ns - board->started_ns) * 1e-9;

    status->number = request->number;
    status->uptime_ns = now_ns - board->started_ns;
    if (seconds > 0)
        status->cycles_per_second =
            (uint64_t)((double)(clock_cycles() - board->started_cycles) / seconds);
    status->node = worker->options->node;
    status->worker = asked;
    status->workers = workers;
    status->count = count;
    memcpy(status + 1, counters, count * sizeof *counters);
}

/* ---- items ----------------------------------------------------------------------------------- */

static void answer_problem(struct worker *worker, const struct wire_address *to,
                           const struct wire_item *item, const struct wire_verdict *verdict)
{
    struct wire_problem *problem =
        packer_add(&worker->replies, to, item->op, sizeof(struct wire_problem));

    problem->reply.item.shard = item->shard;
    problem->reply.item.status = verdict->status;
    if (item->bytes >= sizeof(struct wire_request)) {
        const struct wire_request *request = (const struct wire_request *)item;

        problem->reply.session = request->session;
        problem->reply.number = request->number;
    }
    problem->what = verdict->what;
    problem->limit = verdict->limit;
}

/* A stale query for another worker's shard needs no hand-over: its tables may be read from here. */
static bool peek(struct worker *worker, const struct wire_address *to, const struct wire_item *item,
                 uint64_t now_ns)
{
    const struct board_shard *row = &worker->board->shards[item->shard];
    uint64_t contact_ns = BOARD_GET(row->contact_ns);
    uint64_t scratch[SHARD_REPLY_BYTES_MAX / 8];
    size_t bytes;

    if (item->op != WIRE_OP_QUERY || !(item->flags & WIRE_STALE) || BOARD_GET(row->role) == 4)
        return false;
    bytes =
        lock_machine_peek(worker->board->machines[item->shard], (const struct wire_named *)item,
                          now_ns > contact_ns ? now_ns - contact_ns : 0, scratch, sizeof scratch);
    if (bytes)
        memcpy(packer_add(&worker->replies, to, item->op, bytes), scratch, bytes);
    return bytes > 0;
}

void worker_client_item(struct worker *worker, const struct wire_address *from,
                        const struct wire_item *item, uint64_t now_ns)
{
    struct shard *shard;

    board_count(&worker->counters->requests);
    if (item->op == WIRE_OP_MAP) {
        answer_map(worker, from, (const struct wire_page_request *)item);
        return;
    }
    if (item->op == WIRE_OP_STATUS) {
        answer_status(worker, from, (const struct wire_page_request *)item, now_ns);
        return;
    }
    if (item->op == WIRE_OP_WORKER) {
        answer_worker(worker, from, (const struct wire_page_request *)item, now_ns);
        return;
    }
    if (item->shard >= worker->options->shards) {
        struct wire_verdict verdict = {.status = WIRE_WRONG_SHARD,
                                       .limit = worker->options->shards};

        answer_problem(worker, from, item, &verdict);
        return;
    }
    shard = worker_shard(worker, item->shard);
    if (shard)
        shard_request(shard, from, item, now_ns);
    else if (!peek(worker, from, item, now_ns))
        (void)worker_hand_over(worker, from, 0, item); /* full: lost like any datagram */
}

static void take_items(struct worker *worker, const struct wire_address *from,
                       const struct wire_header *header, const struct wire_item *item,
                       uint64_t now_ns)
{
    for (uint16_t i = 0; i < header->item_count; i++, item = wire_item_next(item)) {
        struct wire_verdict verdict = wire_judge_request(item, false);

        if (verdict.status == WIRE_OK) {
            worker_client_item(worker, from, item, now_ns);
            continue;
        }
        board_count(&worker->counters->rejects_client[verdict.status == WIRE_UNKNOWN_COMMAND
                                                          ? WIRE_REJECT_OP
                                                          : WIRE_REJECT_FIELD]);
        answer_problem(worker, from, item, &verdict);
    }
}

/* ---- datagrams ------------------------------------------------------------------------------- */

static void take_datagram(struct worker *worker, const struct port_packet *packet, uint64_t now_ns)
{
    const struct wire_header *header;
    const struct wire_item *items;
    struct wire_address from;
    enum wire_reject reject;
    /* A notice is a header and one item: only answered if the question was at least as long. */
    bool may_notice = packet->length >= sizeof *header + sizeof(struct wire_node_notice);

    memcpy(&from, &packet->from, sizeof from);
    reject = packet->truncated ? WIRE_REJECT_OVERSIZED
                               : wire_decode_datagram(packet->bytes, packet->length,
                                                      WIRE_KIND_REQUEST, &header, &items);
    if (reject != WIRE_ACCEPTED) {
        board_count(&worker->counters->rejects_client[reject]);
        if (reject == WIRE_REJECT_VERSION && may_notice)
            notice(worker, &from, WIRE_WRONG_VERSION, 0, WIRE_VERSION);
        return;
    }
    if (header->cluster_id && header->cluster_id != worker->board->cluster_id) {
        board_count(&worker->counters->rejects_client[WIRE_REJECT_CLUSTER]);
        if (may_notice)
            notice(worker, &from, WIRE_WRONG_CLUSTER, 0, worker->board->cluster_id);
        return;
    }
    if (!cookie_is_right(worker, &from, header->cookie, now_ns)) {
        board_count(&worker->counters->challenges);
        if (may_notice)
            notice(worker, &from, WIRE_CHALLENGE,
                   wire_cookie(&from, period_of(now_ns), worker->board->cookie_secret), 0);
        return;
    }
    take_items(worker, &from, header, items, now_ns);
}

bool worker_take_clients(struct worker *worker)
{
    return worker_take_bursts(worker, worker->clients, WORKER_CLIENT_BURSTS_MAX, take_datagram);
}
