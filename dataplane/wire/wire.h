/* SPDX-License-Identifier: Apache-2.0
 *
 * The wire format: what a datagram holds, between clients and nodes and between nodes.
 *
 * Little-endian, fixed-width, no padding that is not named, every item a multiple of 8 bytes. A
 * datagram is one struct wire_header followed by `item_count` items; each item starts with its own
 * length. The decoder (wire_decode_*) is total: for every input it returns a named reason or a view
 * into the caller's bytes, and never reads past them. It allocates nothing and keeps no state.
 *
 * A request item that changes state is also the command in the log: the leader copies the item into
 * the log ring and fills the fields marked "leader". What is applied is therefore what was sent.
 *
 * The library has no dependency but libc, libsodium (MAC) and xxHash (routing): clients link it.
 */
#ifndef BELAY_DATAPLANE_WIRE_H
#define BELAY_DATAPLANE_WIRE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- limits ---------------------------------------------------------------------------------- */

enum {
    WIRE_DATAGRAM_BYTES_MAX = 1400, /* one datagram, header included: below every path's MTU */
    WIRE_NAMESPACE_BYTES_MAX = 63,
    WIRE_NAME_BYTES_MAX = 255,
    WIRE_VALUE_BYTES_MAX = 255,
    WIRE_RENEWALS_MAX = 64,  /* leases named by one keepalive or renew item */
    WIRE_MAC_KEY_BYTES = 16, /* SipHash-2-4 with a 128-bit tag */
    WIRE_TAG_BYTES = 16,
    WIRE_SHARDS_MAX = 1024,
};

#define WIRE_MAGIC   UINT32_C(0x31594c42) /* "BLY1" read as little-endian */
#define WIRE_VERSION 1

/* ---- datagram header ------------------------------------------------------------------------- */

enum wire_kind {
    WIRE_KIND_REQUEST = 1, /* client to node */
    WIRE_KIND_REPLY = 2,   /* node to client, pushes included */
    WIRE_KIND_PEER = 3,    /* node to node, always with a tag */
};

struct wire_header {
    uint32_t magic;
    uint8_t version;
    uint8_t kind; /* enum wire_kind */
    uint16_t item_count;
    uint64_t cluster_id;    /* 0 in a client's datagram = not known yet, any cluster */
    uint64_t packet_number; /* peers: per sender, counts up; clients: free (reserved for AEAD) */
    uint64_t cookie;        /* client: what the node's CHALLENGE gave, 0 = none yet */
    uint32_t key_id;        /* 0 = the cluster key (peers) or none (clients) */
    uint16_t sender_node;   /* peers: node id; nodes' replies: node id; clients: 0 */
    uint16_t zero;
    uint8_t tag[WIRE_TAG_BYTES]; /* peers: SipHash over the datagram with this field zero */
};
static_assert(sizeof(struct wire_header) == 56, "wire_header is 56 bytes");

/* Every item, request, reply or peer, starts like this. */
struct wire_item {
    uint16_t bytes; /* whole item, this header included; a multiple of 8 */
    uint8_t op;
    uint8_t flags;
    uint16_t shard;
    uint16_t status; /* replies: enum wire_status; else 0 */
};
static_assert(sizeof(struct wire_item) == 8, "wire_item is 8 bytes");

/* ---- statuses -------------------------------------------------------------------------------- */

/* The order is part of the format. Each is a different thing for the caller to do. */
enum wire_status {
    WIRE_OK = 0,             /* acquire, convert: granted */
    WIRE_QUEUED = 1,         /* waiting; the grant comes as a push, or by asking again */
    WIRE_BUSY = 2,           /* `try` and somebody holds it */
    WIRE_DELAYED = 3,        /* `try` and the resource is closed for its lock_delay */
    WIRE_TIMED_OUT = 4,      /* the wait limit passed */
    WIRE_LOST = 5,           /* the lease is over (expired, released, forced, never was) */
    WIRE_CANCELLED = 6,      /* the acquire was cancelled before it was granted */
    WIRE_DEADLOCK = 7,       /* this wait could never end */
    WIRE_OVER_LIMIT = 8,     /* a table or queue is full, or a value beyond its bound */
    WIRE_DENIED = 9,         /* not allowed */
    WIRE_BAD_REQUEST = 10,   /* malformed; never retried */
    WIRE_SESSION_LOST = 11,  /* no such session (any more) */
    WIRE_WINDOW_FULL = 12,   /* too many unacknowledged numbers; acknowledge and repeat */
    WIRE_STALE_REQUEST = 13, /* number below the window: outcome unknown */
    WIRE_NOT_LEADER = 14,    /* ask the node named in the body */
    WIRE_WRONG_SHARD = 15,   /* the name hashes to another shard */
    WIRE_CHALLENGE = 16,     /* repeat with the cookie in the body */
    WIRE_WRONG_VERSION = 17,
    WIRE_WRONG_CLUSTER = 18,
    WIRE_UNKNOWN_COMMAND = 19,
    WIRE_UNAVAILABLE = 20,  /* shard starting, stepping down, disk full: try again with backoff */
    WIRE_ALREADY_HELD = 21, /* this session holds it already and did not say `reentrant` */
    WIRE_STATUS_COUNT
};

/* Lower-case word for messages and metrics, e.g. "over_limit"; "unknown" beyond the range. */
const char *wire_status_name(unsigned status);

/* ---- addresses ------------------------------------------------------------------------------- */

/* An IPv4 address is stored IPv4-mapped (::ffff:a.b.c.d). Port in host order. */
struct wire_address {
    uint8_t ip[16];
    uint16_t port;
    uint8_t zero[6];
};
static_assert(sizeof(struct wire_address) == 24, "wire_address is 24 bytes");

/* ---- requests (client to node) --------------------------------------------------------------- */

enum wire_op {
    /* replicated commands */
    WIRE_OP_OPEN = 1,
    WIRE_OP_KEEPALIVE = 2,
    WIRE_OP_CLOSE = 3,
    WIRE_OP_ACQUIRE = 4,
    WIRE_OP_RELEASE = 5,
    WIRE_OP_RENEW = 6,
    WIRE_OP_CANCEL = 7,
    WIRE_OP_CONVERT = 8,
    WIRE_OP_FORCE_RELEASE = 9,
    WIRE_OP_LOGGED_LAST = 9,
    /* reads */
    WIRE_OP_QUERY = 32,
    WIRE_OP_LIST = 33,
    /* answered by the node alone, without session */
    WIRE_OP_MAP = 48,
    WIRE_OP_STATUS = 49,
    WIRE_OP_WORKER = 50,
    /* not replicated: the client has seen a push */
    WIRE_OP_PUSH_ACK = 64,
    /* node to client, not an answer to a number */
    WIRE_OP_PUSH_GRANT = 80,
    WIRE_OP_PUSH_LOST = 81,
    WIRE_OP_NODE = 82, /* about the datagram as a whole: CHALLENGE, WRONG_VERSION, ... */
};

/* Identifies a lease. `secret` is 64 random bits; `slot` only makes finding it cheap. */
struct wire_lease_id {
    uint64_t secret;
    uint32_t slot;
    uint32_t zero;
};
static_assert(sizeof(struct wire_lease_id) == 16, "wire_lease_id is 16 bytes");

/* Prefix of every request but MAP, STATUS and WORKER (which are the bare item header + their body).
 */
struct wire_request {
    struct wire_item item;
    uint64_t session; /* OPEN: 0 */
    uint64_t number;  /* counts up per session from 1; OPEN: 0; reads: echoed, not recorded */
    /* Every answer with number < this one has reached the application. QUEUED is an answer: an
     * acquire that waits may be passed over, and waits on (docs/protocol.md). */
    uint64_t acked_below;
    uint64_t drawn; /* leader: 64 random bits (session id) or wire_lease_secret(); client: 0 */
};
static_assert(sizeof(struct wire_request) == 40, "wire_request is 40 bytes");

/* The secret of the lease that an acquire may get: 48 random bits and the end of its number. So a
 * session that asks what became of an old acquire is never told of a lease that it got by another.
 */
static inline uint64_t wire_lease_secret(uint64_t drawn, uint64_t number)
{
    /* At the top: the low bits are what tables on both sides hash by. */
    return (drawn & (UINT64_MAX >> 16)) | number << 48;
}

/* Opens a session at one shard; idempotent by nonce. Padded so that no answer without a cookie is
 * longer than its request. */
struct wire_open {
    struct wire_request request;
    uint64_t nonce; /* client's, 64 random bits, not 0 */
    uint32_t ttl_ms;
    uint32_t zero;
    struct wire_address address; /* leader: the datagram's source; client: zero */
};
static_assert(sizeof(struct wire_open) == 80, "wire_open is 80 bytes");

struct wire_renewal {
    struct wire_lease_id lease;
    uint32_t key_tag; /* low 32 bits of wire_key_hash of the resource: guards against mix-ups */
    uint32_t ttl_ms;  /* 0 = the lease's own TTL again */
};
static_assert(sizeof(struct wire_renewal) == 24, "wire_renewal is 24 bytes");

/* KEEPALIVE: extends the session, takes over the datagram's source address if this number is newer
 * than the one that set it, and renews the leases named. RENEW: only renews (any session's leases).
 */
struct wire_renew {
    struct wire_request request;
    struct wire_address address; /* leader, KEEPALIVE only; else zero */
    uint16_t count;              /* <= WIRE_RENEWALS_MAX */
    uint16_t zero[3];
    struct wire_renewal renewals[];
};
static_assert(sizeof(struct wire_renew) == 72, "wire_renew is 72 bytes");

struct wire_close {
    struct wire_request request;
};

enum wire_mode { WIRE_SHARED = 1, WIRE_EXCLUSIVE = 2 };

enum wire_acquire_flags {               /* in item.flags */
                          WIRE_TRY = 1, /* never wait */
                          WIRE_BARGE =
                              2, /* may pass waiters if the resource is free in this mode now */
                          WIRE_REENTRANT = 4, /* a second equal acquire by this session answers with
                                                 the same lease */
                          WIRE_SESSION_BOUND = 8, /* no TTL of its own: lives and ends with the
                                                     session; ttl_ms = 0 */
};

/* Also the flags of other requests. */
enum wire_request_flags {
    WIRE_NOW = 1,   /* FORCE_RELEASE: do not wait for the holder's deadline */
    WIRE_STALE = 2, /* QUERY, LIST: any replica, state index and age are given */
};

#define WIRE_WAIT_FOREVER UINT32_MAX

struct wire_acquire {
    struct wire_request request;
    uint32_t ttl_ms;
    uint32_t wait_ms; /* WIRE_WAIT_FOREVER = as long as the session lives; ignored with TRY */
    uint32_t lock_delay_ms;
    uint32_t grace_ms;
    uint8_t mode;     /* enum wire_mode */
    uint8_t priority; /* 0 = default; higher goes first */
    uint8_t namespace_bytes;
    uint8_t name_bytes; /* 1..255 */
    uint8_t value_bytes;
    uint8_t zero[3];
    uint8_t text[]; /* namespace, name, value; zero-filled to a multiple of 8 */
};
static_assert(sizeof(struct wire_acquire) == 64, "wire_acquire is 64 bytes");

struct wire_release {
    struct wire_request request;
    struct wire_lease_id lease;
    uint32_t key_tag;
    uint32_t zero;
};
static_assert(sizeof(struct wire_release) == 64, "wire_release is 64 bytes");

/* Cancels the acquire or convert with `target` number of the same session, at whatever point it is:
 * unseen (remembered), waiting (removed), granted (released). */
struct wire_cancel {
    struct wire_request request;
    uint64_t target;
};
static_assert(sizeof(struct wire_cancel) == 48, "wire_cancel is 48 bytes");

/* S to X (waits ahead of all waiters; a second upgrader gets DEADLOCK) or X to S (at once). */
struct wire_convert {
    struct wire_request request;
    struct wire_lease_id lease;
    uint32_t key_tag;
    uint32_t wait_ms;
    uint8_t mode; /* wanted, enum wire_mode */
    uint8_t zero[7];
};
static_assert(sizeof(struct wire_convert) == 72, "wire_convert is 72 bytes");

/* QUERY, FORCE_RELEASE: names a resource. LIST: `name` is a prefix and may be empty. */
struct wire_named {
    struct wire_request request;
    uint64_t cursor; /* LIST, QUERY: 0 = from the start, else what the last page gave */
    uint8_t namespace_bytes;
    uint8_t name_bytes;
    uint8_t zero[6];
    uint8_t text[]; /* namespace, name; zero-filled to a multiple of 8 */
};
static_assert(sizeof(struct wire_named) == 56, "wire_named is 56 bytes");

/* MAP: shards from `from` on. STATUS: this node's shards from `from` on. Item flags 0. */
struct wire_page_request {
    struct wire_item item;
    uint64_t number; /* echoed */
    uint32_t from;
    uint32_t zero;
    uint8_t padding[96]; /* so that a first answer without cookie may still be useful */
};
static_assert(sizeof(struct wire_page_request) == 120, "wire_page_request is 120 bytes");

struct wire_push_ack {
    struct wire_request request; /* number: the acquire's number (grant) or 0 (lost) */
    struct wire_lease_id lease;
};
static_assert(sizeof(struct wire_push_ack) == 56, "wire_push_ack is 56 bytes");

/* ---- replies (node to client) ---------------------------------------------------------------- */

struct wire_reply {
    struct wire_item item; /* op = the request's op; status */
    uint64_t session;
    uint64_t number;
};
static_assert(sizeof(struct wire_reply) == 24, "wire_reply is 24 bytes");

/* OPEN, status OK. */
struct wire_opened {
    struct wire_reply reply; /* session = the new (or the same, on a retry) session id */
    uint64_t nonce;
    uint32_t ttl_ms;
    uint32_t window; /* numbers that may be unacknowledged at once */
};
static_assert(sizeof(struct wire_opened) == 40, "wire_opened is 40 bytes");

/* ACQUIRE, CONVERT with status OK, and PUSH_GRANT. */
struct wire_granted {
    struct wire_reply reply; /* number = the acquire's or convert's number */
    struct wire_lease_id lease;
    uint64_t token;
    uint32_t ttl_ms; /* 0 = lives with the session */
    uint8_t mode;
    uint8_t waited; /* 1: not granted by its own entry; use the two fields below */
    uint8_t zero[2];
    uint64_t keepalive_number;   /* of the session's latest applied keepalive; 0 = the open */
    uint64_t since_keepalive_ns; /* shard time from that keepalive's stamp to the grant */
};
static_assert(sizeof(struct wire_granted) == 72, "wire_granted is 72 bytes");

struct wire_queued {
    struct wire_reply reply;
    uint32_t position; /* 0 = next */
    uint32_t zero;
};
static_assert(sizeof(struct wire_queued) == 32, "wire_queued is 32 bytes");

/* One holder or waiter, in BUSY and QUERY answers; `value` follows, zero-filled to 8. */
struct wire_party {
    uint64_t session;
    uint64_t token;        /* 0 for a waiter */
    uint64_t remaining_ms; /* to the deadline (holder) or wait limit (waiter; UINT64_MAX = none) */
    uint8_t mode;
    uint8_t waiting; /* 0 holder, 1 waiter, 2 upgrader */
    uint8_t priority;
    uint8_t value_bytes;
    uint32_t position;
};
static_assert(sizeof(struct wire_party) == 32, "wire_party is 32 bytes");

/* ACQUIRE with status BUSY: how many hold it, and the first of them. */
struct wire_busy {
    struct wire_reply reply;
    uint32_t holders;
    uint32_t zero;
    struct wire_party first;
    uint8_t value[]; /* first.value_bytes, zero-filled to 8 */
};
static_assert(sizeof(struct wire_busy) == 64, "wire_busy is 64 bytes");

struct wire_delayed {
    struct wire_reply reply;
    uint64_t remaining_ms;
};
static_assert(sizeof(struct wire_delayed) == 32, "wire_delayed is 32 bytes");

/* KEEPALIVE, RENEW with status OK: one result per renewal, in order. */
struct wire_renewed {
    struct wire_reply reply;
    uint16_t count;
    uint16_t zero[3];
    uint8_t results[]; /* enum wire_status per lease (OK, LOST); zero-filled to 8 */
};
static_assert(sizeof(struct wire_renewed) == 32, "wire_renewed is 32 bytes");

/* QUERY: the resource's state. More parties than fit: ask again with `cursor`. */
struct wire_state {
    struct wire_reply reply;
    uint64_t index;  /* log index this was read at */
    uint64_t age_ns; /* stale reads: since this replica last heard from a leader; else 0 */
    uint64_t cursor; /* 0 = complete */
    uint64_t delay_remaining_ms;
    uint32_t holders; /* in all, not only in this page */
    uint32_t waiters;
    uint32_t parties; /* in this page: struct wire_party + value each */
    uint32_t zero;
};
static_assert(sizeof(struct wire_state) == 72, "wire_state is 72 bytes");

/* LIST: `count` x (struct wire_listed + namespace + name, zero-filled to 8). */
struct wire_list {
    struct wire_reply reply;
    uint64_t index;
    uint64_t age_ns;
    uint64_t cursor; /* 0 = complete for this shard */
    uint32_t count;
    uint32_t zero;
};
static_assert(sizeof(struct wire_list) == 56, "wire_list is 56 bytes");

struct wire_listed {
    uint64_t token; /* of the first holder, 0 = none */
    uint32_t holders;
    uint32_t waiters;
    uint8_t mode; /* 0 = free (only delayed or only waited for) */
    uint8_t namespace_bytes;
    uint8_t name_bytes;
    uint8_t zero[5];
};
static_assert(sizeof(struct wire_listed) == 24, "wire_listed is 24 bytes");

/* Any request, status NOT_LEADER: where to go. node 0 = no leader known. */
struct wire_redirect {
    struct wire_reply reply;
    uint32_t node;
    uint32_t zero;
    uint64_t term;
    struct wire_address address; /* of the worker that owns the shard there */
};
static_assert(sizeof(struct wire_redirect) == 64, "wire_redirect is 64 bytes");

/* OVER_LIMIT, BAD_REQUEST, WRONG_VERSION, ...: which limit or field, and its bound. */
struct wire_problem {
    struct wire_reply reply;
    uint16_t what; /* enum wire_what */
    uint16_t zero[3];
    uint64_t limit; /* the bound that was passed; WRONG_VERSION: what is spoken here */
};
static_assert(sizeof(struct wire_problem) == 40, "wire_problem is 40 bytes");

enum wire_what {
    WIRE_WHAT_NONE = 0,
    WIRE_WHAT_NAME = 1, /* length */
    WIRE_WHAT_NAMESPACE = 2,
    WIRE_WHAT_VALUE = 3,
    WIRE_WHAT_TTL_MIN = 4,
    WIRE_WHAT_TTL_MAX = 5,
    WIRE_WHAT_WAIT_MAX = 6,
    WIRE_WHAT_DELAY_MAX = 7,
    WIRE_WHAT_GRACE_MAX = 8,
    WIRE_WHAT_SESSION_TTL_MIN = 9,
    WIRE_WHAT_SESSION_TTL_MAX = 10,
    WIRE_WHAT_LEASES = 11, /* capacities */
    WIRE_WHAT_RESOURCES = 12,
    WIRE_WHAT_SESSIONS = 13,
    WIRE_WHAT_WAITERS = 14,
    WIRE_WHAT_ANSWERS = 15,
    WIRE_WHAT_QUEUE = 16, /* waiters of one resource */
    WIRE_WHAT_LONG_NAMES = 17,
    WIRE_WHAT_EXTRAS = 18, /* values, lock delays, graces */
    WIRE_WHAT_MODE = 19,
    WIRE_WHAT_FLAGS = 20,
    WIRE_WHAT_LENGTH = 21,
    WIRE_WHAT_RESERVED = 22, /* a field that must be zero is not */
    WIRE_WHAT_COUNT_RANGE = 23,
    WIRE_WHAT_NUMBER = 24,
    WIRE_WHAT_COUNT
};

/* "TTL longer than the limit" and the like, for messages to people. */
const char *wire_what_text(unsigned what);

/* NODE item: about the datagram. CHALLENGE carries the cookie; WRONG_VERSION ours; WRONG_CLUSTER
 * the cluster id. 24 bytes: never longer than what caused it (header + one request). */
struct wire_node_notice {
    struct wire_item item;
    uint64_t cookie;
    uint64_t detail;
};
static_assert(sizeof(struct wire_node_notice) == 24, "wire_node_notice is 24 bytes");

/* PUSH_LOST: the lease is over. reason: LOST (expired), SESSION_LOST, DENIED (forced). */
struct wire_lost {
    struct wire_reply reply; /* number 0 */
    struct wire_lease_id lease;
    uint64_t token;
    uint8_t reason;
    uint8_t final; /* 0: force-release asked the holder to let go; 1: it is over */
    uint8_t zero[6];
};
static_assert(sizeof(struct wire_lost) == 56, "wire_lost is 56 bytes");

/* MAP: `count` x struct wire_mapped. */
struct wire_map {
    struct wire_item item;
    uint64_t number;
    uint64_t cluster_id;
    uint32_t shards; /* of the cluster */
    uint32_t from;
    uint16_t count;
    uint16_t node; /* who answers */
    uint16_t nodes;
    uint16_t zero;
};
static_assert(sizeof(struct wire_map) == 40, "wire_map is 40 bytes");

struct wire_mapped {
    uint16_t shard;
    uint16_t leader_node; /* 0 = not known */
    uint32_t zero;
    uint64_t term;                /* epoch, first part */
    uint64_t configuration_index; /* epoch, second part */
    struct wire_address leader;   /* worker's client port; zero = not known */
};
static_assert(sizeof(struct wire_mapped) == 48, "wire_mapped is 48 bytes");

/* STATUS: about this node, then `count` x struct wire_shard_status. */
struct wire_node_status {
    struct wire_item item;
    uint64_t number;
    uint64_t cluster_id;
    uint64_t uptime_ns;
    uint32_t shards;
    uint32_t from;
    uint16_t count;
    uint16_t node;
    uint16_t nodes;
    uint16_t workers;
    uint8_t durability; /* 0 disk, 1 memory */
    uint8_t state;      /* 0 starting, 1 running, 2 stepping down (disk full), 3 stopping */
    uint8_t zero[6];
    struct wire_address peers[5]; /* client address of node 1..nodes, [node-1]; zero = unused */
};
static_assert(sizeof(struct wire_node_status) == 176, "wire_node_status is 176 bytes");

struct wire_shard_status {
    uint16_t shard;
    uint16_t leader_node;
    uint8_t role; /* 0 follower, 1 candidate, 2 leader, 3 learner, 4 rebuilding */
    uint8_t voters;
    uint8_t learners;
    uint8_t ship_mode; /* 0 messages, 1 one-sided (leader: to at least one peer) */
    uint64_t term;
    uint64_t last_index;
    uint64_t commit_index;
    uint64_t applied_index;
    uint64_t snapshot_index;
    uint32_t leases;
    uint32_t resources;
    uint32_t sessions;
    uint32_t waiters;
    uint64_t digest; /* of all that was decided up to applied_index; 0 = moving, ask again */
};
static_assert(sizeof(struct wire_shard_status) == 72, "wire_shard_status is 72 bytes");

/* WORKER: what worker `from` of this node has counted since the node was started: `count` x struct
 * wire_counter, those that are zero left out. */
struct wire_worker_status {
    struct wire_item item;
    uint64_t number;
    uint64_t uptime_ns;
    uint64_t cycles_per_second; /* of what is counted in cycles */
    uint16_t node;
    uint16_t worker;  /* = workers: there is none with the number asked for, and count is 0 */
    uint16_t workers; /* of this node */
    uint16_t count;
};
static_assert(sizeof(struct wire_worker_status) == 40, "wire_worker_status is 40 bytes");

struct wire_counter {
    uint16_t counter; /* enum wire_count; a client skips those it does not know */
    uint16_t detail;  /* which of several: a reason, a stage; else 0 */
    uint32_t zero;
    uint64_t value;
};
static_assert(sizeof(struct wire_counter) == 16, "wire_counter is 16 bytes");

enum wire_count {
    WIRE_COUNT_TURNS = 1,
    WIRE_COUNT_TURNS_BUSY = 2, /* in which there was something to do */
    WIRE_COUNT_BUSY_NS = 3,    /* spent in those */
    WIRE_COUNT_TURN_NS_MAX = 4,
    WIRE_COUNT_REQUESTS = 5,
    WIRE_COUNT_CHALLENGES = 6,
    WIRE_COUNT_HANDED_OVER = 7,
    WIRE_COUNT_HANDED_OVER_DROPPED = 8,
    WIRE_COUNT_IN_FLIGHT_DROPPED = 9,
    WIRE_COUNT_RESENT_ANSWERS = 10,
    WIRE_COUNT_UNAVAILABLE = 11,
    WIRE_COUNT_PUSHES = 12,
    WIRE_COUNT_PUSHES_REPEATED = 13,
    WIRE_COUNT_PUSHES_DROPPED = 14,
    WIRE_COUNT_DATAGRAMS = 15,        /* by enum wire_traffic */
    WIRE_COUNT_REJECTED_CLIENT = 16,  /* by enum wire_reject */
    WIRE_COUNT_REJECTED_PEER = 17,    /* the same */
    WIRE_COUNT_SAMPLED_TURNS = 18,    /* busy turns whose stages were timed */
    WIRE_COUNT_SAMPLED_REQUESTS = 19, /* in those */
    WIRE_COUNT_STAGE_CYCLES = 20,     /* in those, by enum wire_stage */
    WIRE_COUNT_FRAMES_LOST = 21,      /* of a port past the kernel, by enum wire_frame_loss */
    WIRE_COUNT_FRAMES = 22,           /* the same, by enum wire_frames */
    WIRE_COUNTS
};

enum wire_traffic {
    WIRE_TRAFFIC_CLIENTS_IN,
    WIRE_TRAFFIC_CLIENTS_OUT,
    WIRE_TRAFFIC_CLIENTS_UNSENT, /* dropped or refused by what is below */
    WIRE_TRAFFIC_PEERS_IN,
    WIRE_TRAFFIC_PEERS_OUT,
    WIRE_TRAFFIC_PEERS_UNSENT,
    WIRE_TRAFFICS
};

/* What a turn of a worker's loop is spent on. */
enum wire_stage {
    WIRE_STAGE_RX,      /* bursts from the ports */
    WIRE_STAGE_DECODE,  /* clients' datagrams: judged, admitted, copied into the log */
    WIRE_STAGE_PROPOSE, /* an entry closed and given to Raft */
    WIRE_STAGE_LOG,     /* writes to disk prepared, submitted and taken back */
    WIRE_STAGE_SHIP,    /* messages and log to peers */
    WIRE_STAGE_COMMIT,  /* peers' datagrams, and what Raft makes of them */
    WIRE_STAGE_APPLY,   /* the lock machine, and its answers */
    WIRE_STAGE_TX,      /* answers to clients */
    WIRE_STAGE_OTHER,   /* hand-overs, snapshots, deadlines, reads */
    WIRE_STAGES
};

/* Why a frame was dropped, or a datagram not sent: enum net_loss of hw/net, in its order. */
enum { WIRE_FRAME_LOSSES = 18 };

enum wire_frames {
    WIRE_FRAMES_HANDED_OVER, /* came to this queue and belong to another */
    WIRE_FRAMES_HANDED_OVER_DROPPED,
    WIRE_FRAMES_SENT_FOR_OTHERS, /* by this queue pair, for a queue without one */
    WIRE_FRAMES_SENT_FOR_OTHERS_DROPPED,
    WIRE_FRAMES_NO_PORT,   /* to a UDP port that nobody has opened */
    WIRE_FRAMES_OVERSIZED, /* longer than a buffer */
    WIRE_FRAMES
};

/* "requests", and "rx" of "stage_cycles"; NULL = not known here, or the counter has no details. */
const char *wire_count_name(unsigned counter);
const char *wire_count_detail(unsigned counter, unsigned detail);

/* ---- peer items ------------------------------------------------------------------------------ */

enum wire_peer_op {
    WIRE_PEER_RAFT = 1,  /* body: raft_message_encode() (consensus/raft_message.h) */
    WIRE_PEER_SHIP = 2,  /* struct wire_ship + log bytes */
    WIRE_PEER_HELLO = 3, /* bootstrap: struct wire_hello */
    WIRE_PEER_JOIN = 4,  /* a rebuilt or memory replica asks the leader to be taken in */
};

struct wire_ship {
    struct wire_item item;
    uint64_t from_replica;
    uint64_t to_replica;
    uint64_t term;
    uint64_t grant;
    uint64_t position; /* log position of the first byte */
    uint64_t commit_index;
    uint32_t length; /* bytes that follow, before zero-fill to 8 */
    uint32_t zero;
};
static_assert(sizeof(struct wire_ship) == 64, "wire_ship is 64 bytes");

enum wire_hello_state { WIRE_HELLO_BLANK = 1, WIRE_HELLO_FORMED = 2 };

struct wire_hello {
    struct wire_item item;
    uint16_t node;
    uint16_t nodes;
    uint16_t shards;
    uint8_t state; /* enum wire_hello_state */
    uint8_t durability;
    uint64_t configuration_digest; /* of what must be equal everywhere: members, shards, limits */
    uint64_t nonces[5];            /* [node-1]: each node's data directory; 0 = not heard yet */
    uint64_t epoch_max;            /* highest token epoch on this node's disk */
};
static_assert(sizeof(struct wire_hello) == 72, "wire_hello is 72 bytes");

struct wire_join {
    struct wire_item item;
    uint16_t node;
    uint16_t zero[3];
    uint64_t new_replica;
};
static_assert(sizeof(struct wire_join) == 24, "wire_join is 24 bytes");

/* ---- decoding -------------------------------------------------------------------------------- */

enum wire_reject {
    WIRE_ACCEPTED = 0,
    WIRE_REJECT_RUNT = 1, /* shorter than a header */
    WIRE_REJECT_OVERSIZED = 2,
    WIRE_REJECT_MAGIC = 3,
    WIRE_REJECT_VERSION = 4,
    WIRE_REJECT_KIND = 5,
    WIRE_REJECT_CLUSTER = 6,
    WIRE_REJECT_TAG = 7,
    WIRE_REJECT_ITEMS = 8, /* the items do not fill the datagram exactly */
    WIRE_REJECT_ITEM_LENGTH = 9,
    WIRE_REJECT_OP = 10,
    WIRE_REJECT_FIELD = 11,
    WIRE_REJECT_REPLAY = 12,
    WIRE_REJECT_SENDER = 13,
    WIRE_REJECT_COUNT
};
const char *wire_reject_name(unsigned reject);

/* Checks the header and that the items tile the datagram exactly (each >= 8 bytes, multiple of 8).
 * On WIRE_ACCEPTED *items points at the first item. `bytes` need not be aligned to more than 8. */
enum wire_reject wire_decode_datagram(const uint8_t *datagram, size_t bytes,
                                      enum wire_kind expected, const struct wire_header **header,
                                      const struct wire_item **items);

/* The item after `item`; valid only while fewer than item_count items have been taken. */
static inline const struct wire_item *wire_item_next(const struct wire_item *item)
{
    return (const struct wire_item *)((const uint8_t *)item + item->bytes);
}

struct wire_verdict {
    uint16_t status; /* enum wire_status: OK, BAD_REQUEST, UNKNOWN_COMMAND, OVER_LIMIT */
    uint16_t what;   /* enum wire_what */
    uint64_t limit;
};

/* Judges one request item whose `bytes` are known to lie inside the datagram (or log entry): length
 * against op, counts against length, reserved zero, mode, flags, zero-fill. It does not judge
 * limits that are replicated state (TTL bounds, capacities): apply does. `from_log`: leader-filled
 * fields may be set; else they must be zero. */
struct wire_verdict wire_judge_request(const struct wire_item *item, bool from_log);

/* Same for replies and pushes, used by clients. False = ignore the item. */
bool wire_judge_reply(const struct wire_item *item);

/* Same for peer items. False = drop and count. */
bool wire_judge_peer(const struct wire_item *item);

/* ---- building -------------------------------------------------------------------------------- */

/* Builds one datagram in a caller's buffer. */
struct wire_builder {
    uint8_t *buffer;
    size_t capacity; /* <= WIRE_DATAGRAM_BYTES_MAX */
    size_t bytes;    /* used so far, header included */
    uint16_t items;
};

void wire_builder_start(struct wire_builder *builder, uint8_t *buffer, size_t capacity,
                        enum wire_kind kind, uint64_t cluster_id, uint16_t sender_node);

/* Room for an item of `bytes` (rounded up to 8), zeroed, its `bytes` and `op` set; NULL = full. */
void *wire_builder_add(struct wire_builder *builder, uint8_t op, size_t bytes);

/* Gives back the tail of the item just added: its length becomes `bytes` (rounded up to 8). */
void wire_builder_shrink_last(struct wire_builder *builder, void *item, size_t bytes);

/* Writes item_count; returns the datagram's length. Set cookie etc. through the header yourself. */
size_t wire_builder_finish(struct wire_builder *builder);

static inline size_t wire_pad8(size_t bytes)
{
    return (bytes + 7u) & ~(size_t)7u;
}

/* ---- routing and keys ------------------------------------------------------------------------ */

/* Hash of namespace and name, the resource's identity in tables (XXH3, 64 bits, over
 * {namespace length, namespace, name}: "a"+"b" and "ab" differ). */
uint64_t wire_key_hash(const uint8_t *ns, size_t ns_bytes, const uint8_t *name, size_t name_bytes);

/* The same for namespace and name in one piece, as requests and records have them: readable up to
 * the next multiple of 8 bytes. */
uint64_t wire_text_hash(const uint8_t *text, size_t ns_bytes, size_t name_bytes);

/* Shard of a resource: jump consistent hash (Lamping and Veach, 2014) of the key; if the name holds
 * `{...}`, only namespace and what is in the first braces count. An empty `{}` does not count. */
uint16_t wire_shard_of(const uint8_t *ns, size_t ns_bytes, const uint8_t *name, size_t name_bytes,
                       uint32_t shards);

/* ---- authenticity ---------------------------------------------------------------------------- */

/* SipHash-2-4-128 of the datagram with the tag field taken as zero. seal writes it, check compares
 * in constant time. */
void wire_tag_seal(uint8_t *datagram, size_t bytes, const uint8_t key[WIRE_MAC_KEY_BYTES]);
bool wire_tag_check(const uint8_t *datagram, size_t bytes, const uint8_t key[WIRE_MAC_KEY_BYTES]);

/* Address cookie: SipHash of (address, period) under the node's secret; never 0. `period` counts
 * minutes of the node's monotonic clock; this one and the one before are accepted. */
uint64_t wire_cookie(const struct wire_address *address, uint64_t period,
                     const uint8_t secret[WIRE_MAC_KEY_BYTES]);

#endif
