/* SPDX-License-Identifier: Apache-2.0
 *
 * A node's options: everything that is decided once, at start. mgmt/config.c fills them in from
 * file, flags and environment; workers and shards only read them.
 */
#ifndef BELAY_DATAPLANE_OPTIONS_H
#define BELAY_DATAPLANE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "dataplane/machine/lock_machine.h"
#include "hw/net/net.h"
#include "hw/poller.h"
#include "hw/port.h"

enum { NODE_MEMBERS_MAX = 5, NODE_WORKERS_MAX = 64, NODE_PATH_BYTES_MAX = 512 };

struct node_member {
    uint16_t node;                  /* 1..members_count, as in every node's configuration */
    struct port_address client;     /* worker i listens on port + i */
    struct port_address peer;       /* worker i on port + i */
    struct port_address management; /* TCP, by the kernel: snapshot transfer */
};

enum node_durability { NODE_DISK = 0, NODE_MEMORY = 1 };

enum node_traffic { NODE_TRAFFIC_ALL = 0, NODE_TRAFFIC_CLIENTS = 1, NODE_TRAFFIC_PEERS = 2 };

/* A network device that the workers drive past the kernel (hw/dpdk/dpdk.h). */
struct node_dpdk {
    char device[NODE_PATH_BYTES_MAX]; /* "" = none: everything over kernel UDP */
    enum node_traffic traffic;        /* what goes over it */
    struct net_options net;           /* addresses, gateways, MTU; the MAC is the device's */
    uint64_t memory_bytes;            /* of DPDK's own; 0 = what the workers need */
    bool hugepages;                   /* false: only virtual devices */
};

struct node_options {
    uint16_t node;          /* which of the members this is */
    uint16_t members_count; /* 1, 3 or 5 */
    struct node_member members[NODE_MEMBERS_MAX];
    uint16_t shards;  /* of the cluster; fixed at bootstrap */
    uint16_t workers; /* of this node; may change at a restart */
    enum node_durability durability;
    char data_directory[NODE_PATH_BYTES_MAX];
    uint8_t cluster_key[WIRE_MAC_KEY_BYTES]; /* peers' MAC; equal on every node */
    struct lock_limits limits;               /* per shard */

    enum poller_mode polling;
    uint64_t spin_ns;   /* adaptive */
    int32_t first_core; /* pin worker i to first_core + i; -1 = do not pin */
    bool hugepages;     /* try them */

    uint64_t heartbeat_ns;
    uint64_t election_timeout_ns;
    uint64_t stamp_interval_ns; /* while a deadline is pending */
    bool lease_reads;
    uint32_t lease_drift_ppm;

    uint64_t ring_bytes;  /* log ring per shard; power of two; equal on every node */
    uint32_t entries_max; /* log entries in a ring; power of two */
    uint32_t ship_window_bytes;
    uint64_t wal_segment_bytes; /* per worker; 0 = follows the rings (node_options_complete) */
    uint32_t wal_segments;
    uint32_t socket_buffer_bytes;
    struct node_dpdk dpdk;
};

/* Defaults for everything but members, node, data directory and key. */
void node_options_defaults(struct node_options *options);

/* Fills in what was left open and follows from the rest: once, before the check. */
void node_options_complete(struct node_options *options);

/* NULL if sound, else a sentence: which option, what was found, what is expected. */
const char *node_options_check(const struct node_options *options);

/* Digest of what must be equal on every node: members, shards, durability, limits, log geometry. */
uint64_t options_digest(const struct node_options *options);

/* Bytes of each part, for --check-config. */
struct node_memory {
    uint64_t total;
    struct lock_memory machine; /* one shard */
    uint64_t ring;              /* one shard, log ring and slots */
    uint64_t shard_other;
    uint64_t worker_other; /* buffers, ports, mailboxes, WAL frames of one worker */
};
struct node_memory node_memory_of(const struct node_options *options);

#endif
