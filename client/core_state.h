/* SPDX-License-Identifier: Apache-2.0
 *
 * The core's records and what its files (core_*.c) share. Every record lives in a pool and is named
 * by its slot; NO_SLOT ends a list. Who is in which list:
 *
 *     request  exactly one of: core.unrouted (no shard map yet), session.backlog (no number yet),
 *              session.active (sent under a number), session.waiting (answered QUEUED), core.reads;
 *              besides, once sent, its shard's list of requests in flight
 *     lock     its session's list of held locks; besides at most one of: session.due (to be
 * renewed), a keepalive request's list (being renewed) session  its client's list; the hash by
 * server's id (or nonce, while it is being opened)
 */
#ifndef BELAY_CLIENT_CORE_STATE_H
#define BELAY_CLIENT_CORE_STATE_H

#include <assert.h>
#include <stdalign.h>
#include <string.h>

#include "consensus/plant.h"
#include "client/core.h"
#include "client/timers.h"

#define NO_SLOT UINT32_MAX
#define MS      UINT64_C(1000000)

enum {
    NODES_MAX = 384,          /* addresses: nodes x workers */
    WORKERS_MAX = 64,         /* of a node, on the ports that follow its first */
    KEEPALIVE_RING = 8,       /* keepalives whose first transmission is remembered */
    KEEPALIVES_IN_FLIGHT = 4, /* per session */
    /* Renewals in one keepalive: as many as one datagram holds. */
    RENEWALS_MAX = (WIRE_DATAGRAM_BYTES_MAX - (int)sizeof(struct wire_header) -
                    (int)sizeof(struct wire_renew)) /
                   (int)sizeof(struct wire_renewal),
    IDLE_KEEPALIVES_MAX = 30, /* then an unused session is left to expire */
    CHALLENGE_BURST = 3,      /* immediate repeats per node and second */
};

static_assert((int)RENEWALS_MAX <= (int)WIRE_RENEWALS_MAX, "what fits is what may be sent");

#define RETRY_FIRST_NS (25 * MS) /* before a round trip was measured, and the least */
#define RETRY_MAX_NS   (500 * MS)
#define SOFT_FIRST_NS  (10 * MS) /* a live node said "not now" */
#define SOFT_MAX_NS    (250 * MS)
#define MAP_EVERY_NS   (100 * MS)   /* at most */
#define SUSPECT_NS     (100 * MS)   /* then a silent node is tried again */
#define RELEASE_NS     (60000 * MS) /* an unanswered release is repeated for so long */
#define ROUTE_FLIP_NS  (5 * MS)     /* a shard's leader is followed at once only so often */

struct list {
    uint32_t head, tail, count;
};

/* ---- nodes ----------------------------------------------------------------------------------- */

struct core_node {
    struct wire_address address;
    uint64_t cookie;   /* 0 = none yet */
    uint64_t heard_ns; /* last sound datagram from here; 0 = never */
    uint64_t srtt_ns;  /* 0 = not measured (RFC 6298) */
    uint64_t rttvar_ns;
    uint64_t challenged_ns; /* start of the second in which challenges are counted */
    uint8_t challenges;
    uint8_t cookie_generation; /* a request sent under an older one is repeated at once */
    bool member;               /* a node's first address (endpoint, peer); not only some worker's */
    uint64_t suspect_until_ns; /* silent when last asked; any datagram clears it */
    uint8_t problem;           /* wire_status WRONG_CLUSTER or WRONG_VERSION; 0 = none */
    bool dirty;                /* `out` holds items */
    struct wire_builder out;
    alignas(8) uint8_t buffer[WIRE_DATAGRAM_BYTES_MAX];
};

struct core_route {
    uint32_t node;                      /* where this shard's requests go; NO_SLOT = not known */
    uint32_t flight_head;               /* requests sent and not answered */
    uint64_t term, configuration_index; /* epoch of what is known */
    uint64_t flipped_ns;
};

/* ---- requests -------------------------------------------------------------------------------- */

enum request_place {
    PLACE_FREE = 0,
    PLACE_UNROUTED,
    PLACE_BACKLOG,
    PLACE_ACTIVE,
    PLACE_WAITING,
    PLACE_READS,
    PLACE_OPENING, /* in no list: session.opening names it */
};

/* An acquire or convert that ended at the client goes on until the server has confirmed. */
enum request_phase {
    PHASE_ASK = 0,
    PHASE_CANCEL, /* CANCEL under `cancel_number` */
    PHASE_VERIFY, /* passed over by acked_below, or no number for a cancel: ask what became of it */
};

struct core_request {
    uint64_t user;
    uint64_t number;        /* 0 = not given yet */
    uint64_t cancel_number; /* PHASE_CANCEL: the cancel's own; 0 = not given yet */
    uint64_t first_sent_ns; /* of this number: what deadlines count from; a retry leaves it alone */
    uint64_t sent_ns;
    uint64_t resend_ns;     /* next repetition or poll */
    uint64_t ends_ns;       /* unreachable then, unless something is heard; UINT64_MAX = never */
    uint64_t wait_until_ns; /* the caller's wait limit; UINT64_MAX = none */
    uint64_t cursor;
    /* Release: token of the lease that it gives up, if known. Acquire: the highest one given up
     * since it was sent. A session has one lease of a resource at a time, so what it is granted
     * with a token up to that is over, however late the answer comes. */
    uint64_t given_up_token;
    struct wire_lease_id lease;
    uint32_t generation;
    uint32_t client;
    uint32_t session;
    uint32_t lock; /* convert, renew, release of a lock; NO_SLOT = none */
    uint32_t next, previous;
    uint32_t flight_next, flight_previous;
    uint32_t node; /* sent to */
    uint32_t key_tag;
    uint32_t ttl_ms, wait_ms, lock_delay_ms, grace_ms;
    struct list renewals; /* keepalive: locks, in the order of the item */
    uint16_t shard;
    uint8_t place; /* enum request_place */
    uint8_t phase; /* enum request_phase */
    uint8_t op, flags, mode, priority;
    uint8_t namespace_bytes, name_bytes, value_bytes;
    uint8_t attempts; /* transmissions since something was last heard about it */
    uint8_t softs;    /* "not now" answers in a row */
    uint8_t cookie_generation;
    bool in_flight;
    bool detached; /* its completion has been given */
    bool user_op;  /* a command, not the core's own (open, keepalive, close) */
    bool counted;  /* against requests_max */
    bool reserved; /* acquire: a lock's slot is set aside for it */
    bool queued;   /* the server has said QUEUED */
    bool bound;    /* acquire, release: of a lock that lives with the session */
    bool no_renewal;
    bool doubtful; /* the same, of a lease whose token is not known */
    uint64_t lock_user;
};

/* ---- sessions -------------------------------------------------------------------------------- */

enum session_state {
    SESSION_FREE = 0,
    SESSION_NEW,
    SESSION_OPENING,
    SESSION_OPEN,
    SESSION_CLOSING
};

struct core_keepalive_mark {
    uint64_t number; /* 0 = the open */
    uint64_t first_sent_ns;
};

struct core_session {
    uint64_t key; /* in the hash: nonce while opening, then the server's id; 0 = not in it */
    uint64_t next_number;
    uint64_t acked;       /* highest acked_below ever sent: it never goes back */
    uint64_t deadline_ns; /* the server keeps it until then at least */
    uint64_t beat_ns;     /* next keepalive */
    uint32_t ttl_ms;
    uint32_t window;
    uint32_t client;
    uint32_t hash_next;
    uint32_t client_next;
    uint32_t opening; /* its OPEN request; NO_SLOT = none */
    uint32_t bound;   /* held locks that live with this session */
    struct list backlog, active, waiting;
    struct list held; /* locks */
    struct list due;  /* locks whose renewal is due */
    struct core_keepalive_mark marks[KEEPALIVE_RING];
    uint8_t marks_at;   /* next to be overwritten */
    uint8_t keepalives; /* in flight */
    uint8_t idle;       /* keepalives sent without any use */
    uint8_t state;      /* enum session_state */
    uint16_t shard;
};

/* ---- locks ----------------------------------------------------------------------------------- */

/* LOST: the caller still has the ref. GONE: it has not, but a request still names the slot. */
enum lock_state { LOCK_FREE = 0, LOCK_HELD, LOCK_LOST, LOCK_GONE };
enum lock_renewal { RENEWAL_NONE = 0, RENEWAL_DUE, RENEWAL_SENT };

struct core_lock {
    struct wire_lease_id lease;
    struct wire_lease_id sent_lease; /* as in the keepalive under way: that item must not change */
    uint64_t token;
    uint64_t basis_ns;    /* deadline = basis + TTL - drift; only a later basis moves it */
    uint64_t deadline_ns; /* own TTL, `forced` or `owed`; else the session's counts */
    uint64_t renew_ns;    /* next renewal; UINT64_MAX = none */
    uint64_t user;
    uint64_t session_key; /* `owed`: moot unless its session is still this one */
    uint32_t generation;
    uint32_t session;
    uint32_t hash_next;
    uint32_t held_next, held_previous;
    uint32_t renew_next, renew_previous; /* session.due or a keepalive's list */
    uint32_t ttl_ms;                     /* 0 = lives with the session */
    uint32_t key_tag;
    uint32_t ask_ttl_ms; /* renewals ask for this: granted with less than was asked for; else 0 */
    uint32_t uses;       /* reentrant acquires that share it */
    uint32_t commands;   /* requests that name it; the slot stays until they are over */
    uint8_t state;       /* enum lock_state */
    uint8_t renewal;     /* enum lock_renewal */
    uint8_t mode;
    bool no_renewal;
    bool converting;
    bool lock_delay; /* asked for one: never released behind the caller's back */
    /* Lives with the session and an operator asks for it: its deadline stays where it was when the
     * notice came, as the deadline of one that is not renewed any more would. */
    bool forced;
    /* LOST or GONE, and the server may hold it still: with the session, until a release, or renewed
     * too late. The release goes at deadline_ns, by which the holder has stopped, or when it says
     * so before. */
    bool owed;
};

/* ---- the core -------------------------------------------------------------------------------- */

struct core {
    struct core_options options;
    struct core_sink sink;
    uint64_t now_ns;
    uint64_t cluster_id; /* 0 = not known yet */
    uint64_t draws;      /* counter of the random source */

    struct core_node *nodes;
    uint32_t nodes_count;
    uint32_t members[CORE_ENDPOINTS_MAX + 5]; /* nodes with `member`, in order */
    uint32_t members_count;

    uint32_t shards; /* 0 = not known yet */
    struct core_route *routes;
    bool map_wanted;
    uint64_t map_ns;     /* next attempt */
    uint64_t map_number; /* of the page under way */
    uint32_t map_from;   /* its first shard */
    uint32_t map_node;   /* asked */
    uint32_t map_turn;   /* which member is asked next */
    uint8_t map_attempts;
    bool peers_known;

    struct core_request *requests;
    uint32_t requests_count, requests_used, requests_free;
    bool reentrant_asked; /* some time: only then releases are looked at for what they take away */
    uint8_t *texts;
    uint32_t text_stride;
    struct list unrouted, reads;
    uint32_t commands; /* counted requests */

    struct core_session *sessions;
    uint32_t sessions_count, sessions_used, sessions_free;
    uint32_t *session_buckets; /* by key */
    uint32_t *clients;         /* first session of each */
    uint32_t session_mask;

    struct core_lock *locks;
    uint32_t locks_count, locks_used, locks_free;
    uint32_t locks_live;    /* held, or reserved by an acquire */
    uint32_t *lock_buckets; /* by lease secret */
    uint32_t lock_mask;

    struct client_timers timers;
    struct core_counts counts;
};

/* Timer ids: requests, then sessions, then locks, then the map. */
static inline uint32_t timer_of_request(const struct core *core, uint32_t slot)
{
    (void)core;
    return slot;
}
static inline uint32_t timer_of_session(const struct core *core, uint32_t slot)
{
    return core->requests_count + slot;
}
static inline uint32_t timer_of_lock(const struct core *core, uint32_t slot)
{
    return core->requests_count + core->sessions_count + slot;
}
static inline uint32_t timer_of_map(const struct core *core)
{
    return core->requests_count + core->sessions_count + core->locks_count;
}

static inline core_ref ref_of(uint32_t generation, uint32_t slot)
{
    return (uint64_t)generation << 32 | slot;
}

static inline uint64_t add_ns(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static inline uint64_t min_ns(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t max_ns(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* DESIGN "Client's deadline": what clocks may differ by over one TTL. */
static inline uint64_t ttl_less_drift_ns(uint64_t ttl_ms)
{
    uint64_t ttl_ns = ttl_ms * MS; /* ttl_ms is 32 bits on the wire: no overflow */
    uint64_t drift_ns = ttl_ns / 100 > MS ? ttl_ns / 100 : MS;
    if (PLANTED(no_drift))
        return ttl_ns;
    return ttl_ns > drift_ns ? ttl_ns - drift_ns : 0;
}

static inline uint8_t *text_of(struct core *core, uint32_t slot)
{
    return core->texts + (size_t)slot * core->text_stride;
}

/* ---- core.c ---------------------------------------------------------------------------------- */

uint64_t core_draw(struct core *core);                      /* 64 random bits, never 0 */
uint64_t core_jitter(struct core *core, uint64_t about_ns); /* 80 to 120 % of it */
void list_init(struct list *list);

/* ---- core_nodes.c ---------------------------------------------------------------------------- */

uint32_t node_find(const struct core *core, const struct wire_address *address);
/* Finds or adds; NO_SLOT = the table is full. */
uint32_t node_add(struct core *core, const struct wire_address *address, bool member);
/* Whose answer this is: the address itself if it is known, else added if it is a worker's of a
 * member. NO_SLOT = a stranger's. */
uint32_t node_of_answer(struct core *core, const struct wire_address *from);
/* Two addresses of one member: the worker that owns a shard answers from its own port. */
bool node_is_same(const struct core *core, uint32_t a, uint32_t b);
/* Room for one item in the node's datagram; an item always fits into an empty one. */
void *node_item(struct core *core, uint32_t node, uint8_t op, size_t bytes);
void node_heard(struct core *core, uint32_t node);
void node_rtt(struct core_node *node, uint64_t sample_ns);
uint64_t node_timeout_ns(const struct core_node *node);
/* The member to ask after `node`: one that is not suspect, if there is any. */
uint32_t node_after(const struct core *core, uint32_t node);
bool node_is_suspect(const struct core *core, uint32_t node);
void node_notice(struct core *core, uint32_t node, const struct wire_node_notice *notice);
/* BELAY_WRONG_CLUSTER or _VERSION if every member has said so, else BELAY_OK. */
belay_status nodes_problem(const struct core *core);

/* ---- core_map.c ------------------------------------------------------------------------------ */

void map_want(struct core *core);
void map_timer(struct core *core);
void map_page(struct core *core, uint32_t node, const struct wire_map *map);
/* Answered by the node that is asked, for itself, and no other. */
static inline bool asks_node(uint8_t op)
{
    return op == WIRE_OP_STATUS || op == WIRE_OP_WORKER;
}

void map_peers(struct core *core, const struct wire_node_status *status);
uint32_t route_node(struct core *core, uint16_t shard);
/* NOT_LEADER said where to go. True: the route has changed and what was in flight was sent again.
 */
bool route_redirect(struct core *core, uint16_t shard, uint32_t from,
                    const struct wire_redirect *redirect);
/* `node` did not answer for this shard. */
void route_silent(struct core *core, uint16_t shard, uint32_t node);
/* Sends again what is in flight for the shard and was sent elsewhere, or under an old cookie. */
void route_kick(struct core *core, uint16_t shard);

/* ---- core_request.c -------------------------------------------------------------------------- */

uint32_t request_new(struct core *core, uint8_t op, uint32_t client);
struct core_request *request_get(struct core *core, core_ref ref);
void request_free(struct core *core, uint32_t slot);
void request_place(struct core *core, uint32_t slot, uint8_t place);
/* Finds its way: to the shard's session, or into the list that waits for the map. */
void request_start(struct core *core, uint32_t slot);
void request_send(struct core *core, uint32_t slot);
void request_timer(struct core *core, uint32_t slot);
void request_arm(struct core *core, uint32_t slot);
/* Not now: repeat after a short, growing pause. */
void request_soft(struct core *core, uint32_t slot);
/* Gives the completion (unless given) and frees the record. */
void request_finish(struct core *core, uint32_t slot, belay_status status,
                    const struct wire_item *item, uint32_t lock, bool shared_lock);
/* Gives the completion now; if the server may know of it, goes on cancelling. */
void request_abandon(struct core *core, uint32_t slot, belay_status status);
void request_renumber(struct core *core, uint32_t slot);
void request_queued(struct core *core, uint32_t slot);
void request_lost(struct core *core, uint32_t slot, const struct wire_lease_id *lease,
                  uint64_t token);
void request_unrouted_all(struct core *core);

/* ---- core_encode.c --------------------------------------------------------------------------- */

void request_encode(struct core *core, uint32_t slot, uint32_t node);

/* ---- core_receive.c -------------------------------------------------------------------------- */

belay_status status_of_wire(unsigned status);

/* ---- core_session.c -------------------------------------------------------------------------- */

uint32_t session_of(struct core *core, uint32_t client, uint16_t shard); /* NO_SLOT = no room */
uint32_t session_by_key(const struct core *core, uint64_t key);
uint32_t session_request(const struct core *core, uint32_t session, uint64_t number);
uint64_t session_acked_below(struct core *core, uint32_t session);
/* Opens it if need be; gives numbers to the backlog as far as the window allows. */
void session_pump(struct core *core, uint32_t session);
bool session_number(struct core *core, uint32_t session, bool internal, uint64_t *number);
void session_opened(struct core *core, uint32_t slot, const struct wire_opened *opened);
void session_open_failed(struct core *core, uint32_t request, const struct wire_item *item);
void session_renewed(struct core *core, uint32_t request, const struct wire_renewed *renewed);
void session_lost(struct core *core, uint32_t session);
void session_timer(struct core *core, uint32_t session);
void session_arm(struct core *core, uint32_t session);
void session_close(struct core *core, uint32_t session);
void session_free(struct core *core, uint32_t session);
bool session_mark(const struct core_session *session, uint64_t number, uint64_t *first_sent_ns);

/* ---- core_lock.c ----------------------------------------------------------------------------- */

uint32_t lock_get(const struct core *core, core_ref ref); /* slot; NO_SLOT = stale */
uint32_t lock_by_lease(const struct core *core, const struct wire_lease_id *lease);
/* A grant that answers `request`: makes the lock, or finds the one that is held already. */
uint32_t lock_granted(struct core *core, uint32_t request, const struct wire_granted *granted,
                      bool *shared_lock);
/* When the grant's TTL began at the latest, see DESIGN "Client's deadline". */
uint64_t grant_basis_ns(const struct core *core, uint32_t request,
                        const struct wire_granted *granted);
/* A grant that nobody wants is given back. */
void lock_return(struct core *core, uint32_t request, const struct wire_lease_id *lease,
                 uint64_t token);
/* Whether this is the lease of a lock that was reported lost and whose holder has until its
 * deadline to stop: it is given back then, and not before. */
bool lock_is_stopping(struct core *core, const struct wire_lease_id *lease);
bool lease_return(struct core *core, uint32_t session, uint32_t key_tag, bool bound,
                  const struct wire_lease_id *lease, uint64_t token);
void lock_converted(struct core *core, uint32_t request, const struct wire_granted *granted);
/* The renewal named by a request first sent at basis_ns succeeded. */
void lock_extend(struct core *core, uint32_t lock, uint64_t basis_ns);
/* No longer certain to be held: tells the application. The server may hold it still. */
void lock_lose(struct core *core, uint32_t lock, belay_lost_reason reason);
/* The same, and the server says that it is over. */
void lock_ended(struct core *core, uint32_t lock, belay_lost_reason reason);
/* An operator asks the holder to let go. */
void lock_revoke(struct core *core, uint32_t lock);
/* The application has given up a lost lock: if the server may hold it still, it is released now. */
void lock_stopped(struct core *core, uint32_t lock);
void lock_drop(struct core *core,
               uint32_t lock); /* no longer held: out of all lists, no callback */
void lock_unpin(struct core *core, uint32_t lock);    /* one command less names it */
void lock_try_free(struct core *core, uint32_t lock); /* if nobody needs the slot any more */
/* What the server said of one renewal, first sent at basis_ns. */
void lock_renewal_result(struct core *core, uint32_t lock, unsigned result, uint64_t basis_ns);
void lock_due(struct core *core, uint32_t lock);
void lock_renewal_none(struct core *core, uint32_t lock, struct list *list);
void lock_renewal_to(struct core *core, uint32_t lock, struct list *list, uint8_t renewal);
void lock_arm(struct core *core, uint32_t lock);
void lock_timer(struct core *core, uint32_t lock);
uint64_t lock_deadline_ns(const struct core *core, uint32_t lock);
void locks_bound_lose(struct core *core, uint32_t session, belay_lost_reason reason);

#endif
