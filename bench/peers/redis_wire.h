/* SPDX-License-Identifier: Apache-2.0
 *
 * Connections to Redis nodes, in one thread: requests wait until fewer than `pack` of a connection
 * are unanswered, and are answered in order. hiredis formats and parses; the loop is here.
 */
#ifndef BELAY_BENCH_PEERS_REDIS_WIRE_H
#define BELAY_BENCH_PEERS_REDIS_WIRE_H

#include "bench/peers/common.h"

enum redis_what {
    REDIS_SET,    /* SET key value NX PX ttl */
    REDIS_DELETE, /* compare and delete, by script */
    REDIS_EXPIRE, /* compare and prolong, by script */
    REDIS_EXISTS,
};

enum { REDIS_KEY_BYTES = 16 + PEER_NAME_BYTES_MAX, REDIS_VALUE_BYTES = 17 };

struct redis_request {
    enum redis_what what;
    uint64_t cookie;
    const char *key, *value; /* must stay until the answer */
    uint32_t ttl_ms;
};

enum redis_result { REDIS_YES, REDIS_NO, REDIS_FAILED };

typedef void redis_answered(void *context, uint64_t cookie, enum redis_result result);

struct redis_wire;

/* timeout_ns: a connection that leaves a request unanswered for so long is broken. */
struct redis_wire *redis_wire_open(const struct peer_endpoint *endpoints, uint32_t nodes,
                                   uint32_t connections_per_node, uint32_t pack,
                                   uint64_t timeout_ns, redis_answered *answered, void *context);
/* Waits until each node was reached or was not; how many were, and why not the others. */
uint32_t redis_wire_nodes_up(struct redis_wire *wire, char *error, size_t error_bytes);
/* At once REDIS_FAILED, from redis_wire_turn(), if the node is down. */
void redis_wire_send(struct redis_wire *wire, uint32_t node, uint32_t client,
                     const struct redis_request *request);
/* Sends, waits until `until_ns` for something to come, and answers it. */
void redis_wire_turn(struct redis_wire *wire, uint64_t until_ns);
void redis_wire_close(struct redis_wire *wire);

#endif
