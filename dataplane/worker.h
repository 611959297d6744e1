/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker: one pinned thread that owns whole shards, their ports and their WAL, and does
 * everything for them in one loop (worker_turn). It never blocks, allocates or takes a lock after
 * start.
 */
#ifndef BELAY_DATAPLANE_WORKER_H
#define BELAY_DATAPLANE_WORKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "consensus/wal.h"
#include "dataplane/account.h"
#include "dataplane/board.h"
#include "dataplane/packer.h"
#include "dataplane/shard.h"
#include "hw/arena.h"
#include "hw/disk.h"
#include "hw/mailbox.h"
#include "hw/poller.h"
#include "hw/port.h"

enum {
    WORKER_HANDOVERS = 64, /* items in flight between two workers */
    WORKER_DRAWN = 512,    /* random words drawn at once */
    /* Bursts taken from one port in one turn. Peers before clients: what keeps the cluster together
     * must never wait behind a flood of requests, so a turn stays short. */
    WORKER_PEER_BURSTS_MAX = 4,
    WORKER_CLIENT_BURSTS_MAX = 1,
    WORKER_COOKIES = 64,         /* addresses that are remembered; power of two */
    WORKER_STRANGERS_TURNS = 64, /* turns between looks at a peer port without peers */
};

/* A client's address, and the cookie that it has shown to be right in this period. */
struct worker_cookie {
    struct wire_address address;
    uint64_t cookie, period;
};

/* One item for a shard of another worker of this node. */
struct worker_handover {
    struct wire_address from;
    uint16_t sender_node; /* 0 = client */
    uint16_t zero[3];
    uint64_t item[WIRE_DATAGRAM_BYTES_MAX / 8];
};

struct worker {
    uint16_t index;
    const struct node_options *options;
    struct board *board;
    struct board_worker *counters;
    struct account account;

    struct port *clients;
    struct port *peers;
    struct poller *poller;
    struct packer replies;
    struct packer messages;

    struct disk *disk; /* NULL in memory durability, like wal */
    struct wal_writer *wal;
    bool wal_full_said;
    struct worker_cookie cookies[WORKER_COOKIES]; /* by the address' end */
    uint32_t peerless_turns;

    struct shard *shards; /* shards_count of them: index, index + workers, ... */
    uint32_t shards_count;
    struct shard_host host;
    struct shard_turnstile turnstile;
    struct raft_effects *effects;
    uint8_t (*peer_workers)[NODE_MEMBERS_MAX]; /* [local shard][node - 1]: worker there */

    /* hand-over between workers; [own index] is NULL */
    struct mailbox *inbox[NODE_WORKERS_MAX];
    struct mailbox *outbox[NODE_WORKERS_MAX];
    struct poller *siblings[NODE_WORKERS_MAX];

    /* the snapshot thread */
    struct mailbox *to_snapshots;
    struct mailbox *from_snapshots;
    void (*wake_snapshots)(void *context);
    void *wake_context;

    uint64_t drawn[WORKER_DRAWN];
    uint32_t drawn_next;
    uint8_t seed[32];

    pthread_t thread;
    _Atomic bool stop;
    uint64_t stop_by_ns;
    uint64_t slow_said_ns; /* when the journal last told of a slow turn */
    void (*fail)(void *context, int error, const char *what); /* the process must end */
    void *fail_context;
    bool failed;
};

/* Memory of one worker beside its shards: WAL frames, effects, mailboxes. */
size_t worker_memory_bytes(const struct node_options *options);

/* Options of the WAL of a worker with `replicas` replicas. */
struct wal_options worker_wal_options(const struct node_options *options, uint64_t identity);

/* Fills in what does not depend on recovery. Ports, disk, WAL, mailboxes and shards are the
 * caller's (mgmt/node.c) to open and set. */
void worker_init(struct worker *worker, uint16_t index, const struct node_options *options,
                 struct board *board);

/* Starts and ends the thread. stop gives up leadership, waits for writes in flight, joins. */
int worker_start(struct worker *worker);
void worker_request_stop(struct worker *worker);
void worker_join(struct worker *worker);

/* One turn: what the thread does over and over. True if there was something to do. */
bool worker_turn(struct worker *worker);

/* ---- inside (worker_*.c) ----------------------------------------------------------------------
 */

struct shard *worker_shard(struct worker *worker, uint16_t shard);
uint64_t worker_draw(struct worker *worker);
/* Takes at most `bursts_max` bursts from a port; true if there was anything. `take` is given a
 * clock reading from after the burst was received. */
bool worker_take_bursts(struct worker *worker, struct port *port, int bursts_max,
                        void (*take)(struct worker *worker, const struct port_packet *packet,
                                     uint64_t now_ns));
bool worker_take_clients(struct worker *worker);
bool worker_take_peers(struct worker *worker);
bool worker_take_handovers(struct worker *worker);
bool worker_hand_over(struct worker *worker, const struct wire_address *from, uint16_t sender_node,
                      const struct wire_item *item);
void worker_client_item(struct worker *worker, const struct wire_address *from,
                        const struct wire_item *item, uint64_t now_ns);
void worker_peer_item(struct worker *worker, const struct wire_address *from, uint16_t node,
                      const struct wire_item *item, uint64_t now_ns);
bool worker_take_writes(struct worker *worker, uint64_t now_ns);
void worker_submit_writes(struct worker *worker);
bool worker_take_mail(struct worker *worker, uint64_t now_ns);
void worker_peer_host(struct shard_host *host);

#endif
