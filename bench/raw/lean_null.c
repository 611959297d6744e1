/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/raw/lean_null.h"

#include <string.h>

#include "bench/raw/echo.h"
#include "bench/raw/lean.h"
#include "dataplane/packer.h"

enum { SHARDS = 4, NODE = 1, FAULT_AFTER = 4096, DROP_ONE_IN = 4096 };

struct null_server {
    struct packer replies;
    struct port_address self;
    enum lean_fault fault;
    uint64_t sessions, token, answers;
    uint64_t silent_session, silent_number; /* LEAN_FAULT_SILENT */
};

static const char *const FAULTS[LEAN_FAULT_COUNT] = {"none",   "token",  "refused", "lost",
                                                     "silent", "number", "drops"};

enum lean_fault lean_fault_of(const char *name)
{
    int fault = 0;
    while (fault < LEAN_FAULT_COUNT && strcmp(FAULTS[fault], name) != 0)
        fault++;
    return (enum lean_fault)fault;
}

static void *reply_to(struct null_server *server, const struct wire_address *to,
                      const struct wire_request *request, size_t bytes)
{
    struct wire_reply *reply = packer_add(&server->replies, to, request->item.op, bytes);
    reply->item.shard = request->item.shard;
    reply->session = request->session;
    reply->number = request->number;
    return reply;
}

static void answer_map(struct null_server *server, const struct wire_address *to,
                       const struct wire_page_request *request)
{
    struct wire_map *map = packer_add(&server->replies, to, WIRE_OP_MAP,
                                      sizeof *map + SHARDS * sizeof(struct wire_mapped));
    struct wire_mapped *mapped = (struct wire_mapped *)(map + 1);
    map->number = request->number;
    map->cluster_id = server->replies.cluster_id;
    map->shards = map->count = SHARDS;
    map->node = map->nodes = NODE;
    for (uint16_t i = 0; i < SHARDS; i++) {
        mapped[i] = (struct wire_mapped){.shard = i, .leader_node = NODE, .term = 1};
        memcpy(&mapped[i].leader, &server->self, sizeof mapped[i].leader);
    }
}

static void answer_open(struct null_server *server, const struct wire_address *to,
                        const struct wire_open *request)
{
    struct wire_opened *opened =
        reply_to(server, to, &request->request, sizeof(struct wire_opened));
    opened->reply.session = ++server->sessions;
    opened->nonce = request->nonce;
    opened->ttl_ms = request->ttl_ms;
    opened->window = LEAN_WINDOW_MAX;
}

/* True: this is the one request in which the fault shows. */
static bool errs(const struct null_server *server, enum lean_fault fault)
{
    return server->fault == fault && server->answers > FAULT_AFTER;
}

static void answer_acquire(struct null_server *server, const struct wire_address *to,
                           const struct wire_acquire *request)
{
    if (errs(server, LEAN_FAULT_REFUSED)) {
        struct wire_busy *busy = reply_to(server, to, &request->request, sizeof *busy);
        busy->reply.item.status = WIRE_BUSY;
        busy->holders = 1;
        busy->first.mode = WIRE_EXCLUSIVE;
        return;
    }
    struct wire_granted *granted =
        reply_to(server, to, &request->request, sizeof(struct wire_granted));
    granted->lease =
        (struct wire_lease_id){.secret = server->token, .slot = (uint32_t)server->token};
    granted->token = errs(server, LEAN_FAULT_TOKEN) ? 1 : ++server->token;
    granted->ttl_ms = request->ttl_ms;
    granted->mode = request->mode;
}

static void answer_plainly(struct null_server *server, const struct wire_address *to,
                           const struct wire_request *request)
{
    size_t bytes = request->item.op == WIRE_OP_KEEPALIVE ? sizeof(struct wire_renewed)
                                                         : sizeof(struct wire_reply);
    struct wire_reply *reply = reply_to(server, to, request, bytes);
    if (request->item.op == WIRE_OP_RELEASE && errs(server, LEAN_FAULT_LOST))
        reply->item.status = WIRE_LOST;
    if (errs(server, LEAN_FAULT_NUMBER))
        reply->number += LEAN_IN_FLIGHT_MAX;
}

static bool is_silent(struct null_server *server, const struct wire_request *request)
{
    if (server->fault == LEAN_FAULT_DROPS)
        return server->answers % DROP_ONE_IN == 0;
    if (!errs(server, LEAN_FAULT_SILENT))
        return false;
    if (server->silent_session == 0) {
        server->silent_session = request->session;
        server->silent_number = request->number;
    }
    return server->silent_session == request->session && server->silent_number == request->number;
}

static void answer(struct null_server *server, const struct wire_address *to,
                   const struct wire_item *item)
{
    if (item->op == WIRE_OP_MAP) {
        answer_map(server, to, (const struct wire_page_request *)item);
        return;
    }
    server->answers++;
    if (is_silent(server, (const struct wire_request *)item))
        return;
    if (item->op == WIRE_OP_OPEN)
        answer_open(server, to, (const struct wire_open *)item);
    else if (item->op == WIRE_OP_ACQUIRE)
        answer_acquire(server, to, (const struct wire_acquire *)item);
    else
        answer_plainly(server, to, (const struct wire_request *)item);
}

static bool serve_burst(struct null_server *server, struct port *port)
{
    struct port_packet packets[PORT_BURST_MAX];
    uint32_t count = port_rx_burst(port, packets, PORT_BURST_MAX);
    for (uint32_t i = 0; i < count; i++) {
        const struct wire_header *header;
        const struct wire_item *item;
        struct wire_address from;
        if (wire_decode_datagram(packets[i].bytes, packets[i].length, WIRE_KIND_REQUEST, &header,
                                 &item) != WIRE_ACCEPTED)
            continue;
        memcpy(&from, &packets[i].from, sizeof from);
        for (uint16_t j = 0; j < header->item_count; j++, item = wire_item_next(item)) {
            if (wire_judge_request(item, false).status == WIRE_OK)
                answer(server, &from, item);
        }
    }
    port_rx_done(port);
    packer_flush(&server->replies);
    port_tx_flush(port);
    return count == PORT_BURST_MAX;
}

void lean_null_serve(struct port *port, const struct port_address *self, enum lean_fault fault)
{
    static struct null_server server;
    server.self = *self;
    server.fault = fault;
    packer_init(&server.replies, port, WIRE_KIND_REPLY, 1, NODE, NULL);
    for (;;) {
        if (!serve_burst(&server, port))
            echo_wait(port, -1);
    }
}
