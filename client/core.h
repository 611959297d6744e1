/* SPDX-License-Identifier: Apache-2.0
 *
 * The client's protocol core: sessions, request numbers, retries, leaders, leases. PURE: no socket,
 * no clock, no allocation after init, no globals. Events go in (a datagram, the time, a command),
 * effects come out through struct core_sink (a datagram to send, a completion, a lost lock). The
 * same core runs under libbelay's thread, in a simulator, and in a load generator.
 *
 * One core can stand for many clients ("virtual clients", clients_count): each has sessions of its
 * own, one per shard it uses, and what they send to one node shares datagrams. Work per event is
 * O(log n) in the number of sessions, locks and requests; nothing is ever scanned.
 *
 * Writing a driver, in a loop:
 *
 *     receive datagrams  -> core_receive(core, now, &from, bytes, length) each
 *     start what is asked-> core_acquire(core, now, ...), core_release(...), ...
 *     time               -> core_tick(core, now)
 *     send               -> core_flush(core)        (calls sink->send, packs many items)
 *     sleep until core_next_deadline(core) or a datagram
 *
 * `now` is CLOCK_BOOTTIME in ns and never decreases. A deadline counts from the `now` that was
 * given when a request was first encoded, so flush soon after. One thread at a time. Sink functions
 * must not call back into the core: queue what follows from them.
 */
#ifndef BELAY_CLIENT_CORE_H
#define BELAY_CLIENT_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "belay/belay.h"
#include "dataplane/wire/wire.h"

struct core;

/* A request or lock: {generation 32, slot 32}; 0 = none. A stale one is recognised, never mixed up.
 */
typedef uint64_t core_ref;

enum { CORE_ENDPOINTS_MAX = 16 };

struct core_options {
    uint32_t clients_count;      /* virtual clients, named 0 .. count-1; libbelay has one */
    uint32_t sessions_max;       /* open at once: clients x the shards each uses */
    uint32_t locks_max;          /* held or waited for at once */
    uint32_t requests_max;       /* commands under way, waiting acquires included */
    uint32_t text_bytes_max;     /* namespace + name + value of one command; 0 = the wire's limit */
    uint64_t session_ttl_ms;     /* asked for */
    uint64_t request_timeout_ms; /* without any answer: BELAY_UNREACHABLE */
    uint64_t cluster_id;         /* 0 = whichever answers first */
    uint8_t seed[16];            /* random: nonces come from it, so never the same twice */
    uint32_t endpoints_count;
    struct wire_address endpoints[CORE_ENDPOINTS_MAX];
};

/* How a command ended. `item` is the reply that ended it (judged sound), NULL if none did; it is
 * valid during the call only. */
struct core_completion {
    uint64_t user; /* as given to the command */
    core_ref request;
    uint8_t op; /* enum wire_op of the command */
    belay_status status;
    core_ref lock;    /* acquire, convert of a lock, with BELAY_OK */
    bool shared_lock; /* reentrant acquire: `lock` is one that the client held before */
    uint16_t what;    /* enum wire_what, with OVER_LIMIT and BAD_REQUEST */
    uint64_t limit;
    const struct wire_item *item;
};

struct core_sink {
    void (*send)(void *context, const struct wire_address *to, const uint8_t *bytes, size_t length);
    void (*complete)(void *context, const struct core_completion *completion);
    /* The lock is no longer certain to be held. It stays a valid ref until released or forgotten.
     */
    void (*lost)(void *context, core_ref lock, uint64_t lock_user, belay_lost_reason reason);
    /* An operator asks the holder to let go. */
    void (*revoke)(void *context, core_ref lock, uint64_t lock_user);
    /* The deadline moved (renewal, or the session's for a session-bound lock). */
    void (*renewed)(void *context, core_ref lock, uint64_t lock_user, uint64_t deadline_ns);
    void *context;
};

/* Fills in defaults (one client); endpoints and seed are the caller's. */
void core_options_init(struct core_options *options);

/* Bytes for core_init. Pages are touched as slots come into use, so generous limits cost little. */
size_t core_memory_bytes(const struct core_options *options);

/* `memory`: 64-byte aligned, zero-filled, core_memory_bytes() long, the caller's. The sink is
 * copied. */
struct core *core_init(void *memory, const struct core_options *options,
                       const struct core_sink *sink, uint64_t now_ns);

/* ---- events ---------------------------------------------------------------------------------- */

void core_receive(struct core *core, uint64_t now_ns, const struct wire_address *from,
                  const uint8_t *bytes, size_t length);
void core_tick(struct core *core, uint64_t now_ns);
void core_flush(struct core *core);
/* When core_tick must be called next; UINT64_MAX = only after another event. */
uint64_t core_next_deadline(const struct core *core);

/* ---- commands -------------------------------------------------------------------------------- */

/* Each returns BELAY_OK and ends with exactly one completion, which may come during the call; or
 * another status (BELAY_OVER_LIMIT, BELAY_BAD_REQUEST, ...) and there is no completion. `request`
 * may be NULL. */

struct core_name {
    const uint8_t *name_space;
    const uint8_t *name;
    uint8_t namespace_bytes; /* <= 63 */
    uint8_t name_bytes;      /* 1..255 */
};

struct core_acquire {
    struct core_name name;
    const uint8_t *value;
    uint8_t value_bytes;
    uint8_t mode; /* enum wire_mode */
    uint8_t priority;
    uint8_t flags;    /* enum wire_acquire_flags */
    uint32_t ttl_ms;  /* 0 with WIRE_SESSION_BOUND */
    uint64_t wait_ms; /* UINT64_MAX = for ever */
    uint32_t lock_delay_ms;
    uint32_t grace_ms;
    bool no_renewal;
    uint64_t lock_user;
};

belay_status core_acquire(struct core *core, uint64_t now_ns, uint32_t client,
                          const struct core_acquire *acquire, uint64_t user, core_ref *request);

/* Ends an acquire or a read with BELAY_CANCELLED at once (the completion comes during this call);
 * of an acquire the server is told until it confirms. False: it is over already, or of another
 * kind. */
bool core_cancel(struct core *core, uint64_t now_ns, core_ref request);

/* Frees the ref `lock` (of a reentrant lock: one use of it). A lost lock completes with BELAY_LOST
 * during this call. */
belay_status core_release(struct core *core, uint64_t now_ns, core_ref lock, uint64_t user,
                          core_ref *request);
/* Frees the ref and stops renewing. */
void core_forget(struct core *core, core_ref lock);
belay_status core_convert(struct core *core, uint64_t now_ns, core_ref lock, uint8_t mode,
                          uint64_t wait_ms, uint64_t user, core_ref *request);
belay_status core_renew(struct core *core, uint64_t now_ns, core_ref lock, uint64_t user,
                        core_ref *request);

/* On any lease, by id: op is WIRE_OP_RELEASE, WIRE_OP_RENEW (ttl_ms 0 = its own) or
 * WIRE_OP_CONVERT. */
struct core_lease_command {
    uint8_t op;
    uint8_t mode; /* convert */
    struct core_name name;
    struct wire_lease_id lease;
    uint32_t ttl_ms;  /* renew */
    uint64_t wait_ms; /* convert */
};
belay_status core_lease(struct core *core, uint64_t now_ns, uint32_t client,
                        const struct core_lease_command *command, uint64_t user, core_ref *request);

belay_status core_force_release(struct core *core, uint64_t now_ns, uint32_t client,
                                const struct core_name *name, bool at_once, uint64_t user,
                                core_ref *request);

/* One page; the completion's item is a struct wire_state or wire_list. For LIST name_bytes may be 0
 * and `shard` says which; QUERY finds its shard by the name. */
struct core_read {
    uint8_t op; /* WIRE_OP_QUERY or WIRE_OP_LIST */
    bool stale;
    uint16_t shard;
    struct core_name name;
    uint64_t cursor;
};
belay_status core_read(struct core *core, uint64_t now_ns, uint32_t client,
                       const struct core_read *read, uint64_t user, core_ref *request);

/* STATUS or WORKER of one node (0 .. core_members_count()-1): shards from `from` on, or the worker
 * `from`; the item is a struct wire_node_status or wire_worker_status. */
belay_status core_ask_node(struct core *core, uint64_t now_ns, enum wire_op op, uint32_t member,
                           uint32_t from, uint64_t user, core_ref *request);

/* Ends everything of one virtual client: its commands complete with BELAY_CLOSED during this call,
 * its locks' refs are freed, its sessions are closed at the servers, which releases what they hold.
 * core_client_is_closed() tells when the servers have confirmed. The client may then be used anew.
 */
void core_close(struct core *core, uint64_t now_ns, uint32_t client);
bool core_client_is_closed(const struct core *core, uint32_t client);

/* ---- reading --------------------------------------------------------------------------------- */

struct core_lock_info {
    struct wire_lease_id lease;
    uint64_t token;
    uint64_t deadline_ns; /* conservative; 0 = lost */
    uint64_t user;
    uint32_t ttl_ms; /* 0 = lives with its session */
    uint8_t mode;
};
/* False: no such lock. */
bool core_lock_info(const struct core *core, core_ref lock, struct core_lock_info *info);

uint32_t core_shards(const struct core *core); /* 0 = not known yet */
uint32_t core_members_count(const struct core *core);
const struct wire_address *core_member(const struct core *core, uint32_t member);

struct core_counts {
    uint64_t datagrams_in, datagrams_out, items_out;
    uint64_t rejected;  /* datagrams or items that were not sound, or from strangers */
    uint64_t retries;   /* requests sent again because nothing came */
    uint64_t redirects; /* NOT_LEADER */
    uint64_t challenges;
    uint64_t unavailable;
    uint64_t keepalives, renewals;
    uint64_t sessions_opened, sessions_lost, locks_lost;
    uint32_t sessions, locks, requests; /* now */
};
void core_counts(const struct core *core, struct core_counts *counts);

#endif
