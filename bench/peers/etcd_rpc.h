/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls and streams over libgrpc's C surface, in one thread: begun here, answered from
 * etcd_rpc_turn(). Channels balance each call over all endpoints (round robin, as etcd's own Go
 * client does) and leave out those that are down.
 */
#ifndef BELAY_BENCH_PEERS_ETCD_RPC_H
#define BELAY_BENCH_PEERS_ETCD_RPC_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench/peers/common.h"

struct etcd_rpc;
struct etcd_stream;

/* gRPC status codes that are looked at (grpc/status.h; the numbers are the protocol's). */
enum {
    ETCD_OK = 0,
    ETCD_CANCELLED = 1,
    ETCD_UNKNOWN = 2,
    ETCD_DEADLINE_EXCEEDED = 4,
    ETCD_NOT_FOUND = 5,
    ETCD_INTERNAL = 13,
    ETCD_UNAVAILABLE = 14,
};

struct etcd_answer {
    int code;            /* gRPC status */
    const char *details; /* of an error; never NULL */
    const uint8_t *bytes;
    size_t bytes_count;
};

/* `cookie`: as given; names what the answer is for, which may be gone by now. */
typedef void etcd_answered(void *context, uint64_t cookie, const struct etcd_answer *answer);

struct etcd_stream_class {
    const char *method;
    void (*message)(void *context, uint32_t channel, const uint8_t *bytes, size_t bytes_count);
    void (*broken)(void *context, uint32_t channel); /* what was sent may be lost; starts again */
};

struct etcd_rpc *etcd_rpc_open(const struct peer_endpoint *endpoints, unsigned endpoints_count,
                               uint32_t channels);
void etcd_rpc_close(struct etcd_rpc *rpc);

/* deadline_ns: CLOCK_MONOTONIC, PEER_NEVER_NS = none. */
void etcd_call(struct etcd_rpc *rpc, uint32_t channel, const char *method,
               const ProtobufCMessage *request, uint64_t deadline_ns, etcd_answered *answered,
               void *context, uint64_t cookie);

struct etcd_stream *etcd_stream_open(struct etcd_rpc *rpc, uint32_t channel,
                                     const struct etcd_stream_class *class, void *context);
/* False: the stream is down; etcd_stream_restart() makes a new one. */
bool etcd_stream_send(struct etcd_stream *stream, const ProtobufCMessage *message);
bool etcd_stream_up(const struct etcd_stream *stream);
void etcd_stream_restart(struct etcd_stream *stream); /* nothing, if it is up or going down */

/* Answers what has come, waiting for the first until `until_ns`; the number of events. */
unsigned etcd_rpc_turn(struct etcd_rpc *rpc, uint64_t until_ns);

#endif
