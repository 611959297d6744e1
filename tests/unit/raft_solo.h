/* SPDX-License-Identifier: Apache-2.0
 *
 * One Raft core alone, for tests of single rules: events go in by hand, effects are looked at. The
 * other members exist only as numbers.
 */
#ifndef BELAY_TESTS_RAFT_SOLO_H
#define BELAY_TESTS_RAFT_SOLO_H

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "consensus/log.h"
#include "consensus/raft.h"

#define MS UINT64_C(1000000)

enum { ME = 1, SOLO_RING = 65536, SOLO_SLOTS = 256 };

struct solo {
    struct raft_options options;
    struct log log;
    struct raft *raft;
    void *raft_memory, *log_memory;
    struct raft_effects effects;
    uint64_t now_ns;
};

static inline struct raft_options solo_options(enum raft_durability durability)
{
    return (struct raft_options){
        .replica_id = ME,
        .node = ME,
        .durability = durability,
        .heartbeat_ns = 10 * MS,
        .election_timeout_ns = 100 * MS,
        .rng_seed = 42,
        .lease_drift_ppm = 1000,
        .ship_window_bytes = 8192,
    };
}

/* Members 1 ... voters; the log may be filled between solo_memory() and solo_boot(). */
static inline void solo_memory(struct solo *solo, const struct raft_options *options)
{
    memset(solo, 0, sizeof(*solo));
    solo->options = *options;
    solo->raft_memory = aligned_alloc(64, raft_memory_bytes());
    solo->log_memory = aligned_alloc(64, log_memory_bytes(SOLO_RING, SOLO_SLOTS));
    memset(solo->log_memory, 0, log_memory_bytes(SOLO_RING, SOLO_SLOTS));
    solo->now_ns = 1000 * MS;
    log_init(&solo->log, solo->log_memory, SOLO_RING, SOLO_SLOTS);
}

static inline struct raft_configuration solo_configuration(uint32_t voters)
{
    struct raft_configuration configuration = {.count = voters};

    for (uint32_t i = 0; i < voters; i++)
        configuration.members[i] = (struct raft_member){
            .replica_id = i + 1, .node = (uint16_t)(i + 1), .role = RAFT_VOTER};
    return configuration;
}

static inline void solo_boot(struct solo *solo, uint64_t term, uint64_t vote, uint32_t voters)
{
    struct raft_hard_state hard = {term, vote};
    struct raft_configuration configuration = solo_configuration(voters);

    solo->raft = raft_init(solo->raft_memory, &solo->options, &solo->log, &hard, &configuration,
                           solo->now_ns);
}

static inline void solo_free(struct solo *solo)
{
    free(solo->raft_memory);
    free(solo->log_memory);
}

static inline void solo_fill(struct solo *solo, uint64_t term, unsigned entries)
{
    for (unsigned i = 0; i < entries; i++) {
        uint8_t *payload = log_reserve(&solo->log, 8);
        memset(payload, (int)i, 8);
        log_append(&solo->log, LOG_COMMANDS, term, solo->log.last_stamp_ns, 8);
    }
}

static inline void solo_event(struct solo *solo, struct raft_event event)
{
    event.now_ns = solo->now_ns;
    raft_step(solo->raft, &event, &solo->effects);
}

static inline void solo_tick(struct solo *solo)
{
    uint64_t deadline_ns = raft_next_deadline(solo->raft);

    if (solo->now_ns < deadline_ns)
        solo->now_ns = deadline_ns;
    solo_event(solo, (struct raft_event){.kind = RAFT_EV_TICK});
}

static inline void solo_message(struct solo *solo, struct raft_message message)
{
    message.to = ME;
    solo_event(solo, (struct raft_event){.kind = RAFT_EV_MESSAGE, .message = message});
}

static inline const struct raft_effect *solo_effect(const struct solo *solo,
                                                    enum raft_effect_kind kind)
{
    for (uint32_t i = 0; i < solo->effects.count; i++)
        if (solo->effects.items[i].kind == kind)
            return &solo->effects.items[i];
    return NULL;
}

static inline const struct raft_message *solo_sent(const struct solo *solo,
                                                   enum raft_message_kind kind, uint64_t to)
{
    for (uint32_t i = 0; i < solo->effects.count; i++) {
        const struct raft_effect *effect = &solo->effects.items[i];
        if (effect->kind == RAFT_FX_SEND && effect->message.kind == kind &&
            effect->message.to == to)
            return &effect->message;
    }
    return NULL;
}

static inline struct raft_view solo_view(const struct solo *solo)
{
    struct raft_view view;

    raft_look(solo->raft, &view);
    return view;
}

static inline void solo_hard_durable(struct solo *solo)
{
    struct raft_view view = solo_view(solo);
    struct raft_event event = {.kind = RAFT_EV_HARD_DURABLE};

    event.hard = (struct raft_hard_state){view.term, view.vote};
    solo_event(solo, event);
}

static inline void solo_progress(struct solo *solo, enum raft_event_kind kind, uint64_t peer,
                                 uint64_t index, uint64_t term, uint64_t grant)
{
    struct raft_event event = {.kind = kind};

    event.progress.peer = peer;
    event.progress.index = index;
    event.progress.term = term;
    event.progress.grant = grant;
    solo_event(solo, event);
}

/* Leads with the votes of 2 and 3 (of three or five); nothing is committed yet. */
static inline void solo_lead(struct solo *solo)
{
    while (solo_view(solo).role != RAFT_PRECANDIDATE)
        solo_tick(solo);
    uint64_t term = solo_view(solo).term + 1;
    for (uint64_t from = 2; from <= 3; from++)
        solo_message(solo, (struct raft_message){.kind = RAFT_MSG_PREVOTE_REPLY,
                                                 .flags = RAFT_MSG_GRANTED,
                                                 .from = from,
                                                 .term = term});
    if (solo->options.durability == RAFT_DISK)
        solo_hard_durable(solo);
    for (uint64_t from = 2; from <= 3; from++)
        solo_message(solo, (struct raft_message){.kind = RAFT_MSG_VOTE_REPLY,
                                                 .flags = RAFT_MSG_GRANTED,
                                                 .from = from,
                                                 .term = term});
    cr_assert_eq(solo_view(solo).role, RAFT_LEADER);
}

static inline const struct raft_peer_view *solo_peer(const struct raft_view *view, uint64_t id)
{
    for (uint32_t i = 0; i < view->peers_count; i++)
        if (view->peers[i].member.replica_id == id)
            return &view->peers[i];
    return NULL;
}

/* The peer answers its attach: it has everything up to index. */
static inline void solo_attach(struct solo *solo, uint64_t id, uint64_t index)
{
    struct raft_view view = solo_view(solo);

    solo_message(solo, (struct raft_message){.kind = RAFT_MSG_ATTACH_REPLY,
                                             .flags = RAFT_MSG_GRANTED,
                                             .from = id,
                                             .term = view.term,
                                             .index = index,
                                             .log_term = log_term(&solo->log, index),
                                             .grant = solo_peer(&view, id)->grant,
                                             .position = log_end_of(&solo->log, index),
                                             .limit = log_limit(&solo->log)});
}

static inline void solo_ack(struct solo *solo, uint64_t id, uint64_t index)
{
    struct raft_view view = solo_view(solo);

    solo_message(solo, (struct raft_message){.kind = RAFT_MSG_ACK,
                                             .from = id,
                                             .term = view.term,
                                             .index = index,
                                             .log_term = log_term(&solo->log, index),
                                             .grant = solo_peer(&view, id)->grant,
                                             .position = log_end_of(&solo->log, index),
                                             .limit = log_limit(&solo->log)});
}

/* Leader whose no-op is committed with 2's help. */
static inline void solo_ready(struct solo *solo)
{
    solo_lead(solo);
    uint64_t noop = solo->log.last_index;
    solo_attach(solo, 2, noop - 1);
    if (solo->options.durability == RAFT_DISK)
        solo_progress(solo, RAFT_EV_DURABLE, 0, noop, log_term(&solo->log, noop), 0);
    solo_ack(solo, 2, noop);
    cr_assert(solo_view(solo).ready);
}

static inline bool solo_propose(struct solo *solo, size_t payload_bytes)
{
    uint8_t *payload = raft_reserve(solo->raft, payload_bytes);
    struct raft_event event = {.kind = RAFT_EV_PROPOSE};

    if (payload == NULL)
        return false;
    memset(payload, 7, payload_bytes);
    event.propose.kind = LOG_COMMANDS;
    event.propose.payload_bytes = payload_bytes;
    solo_event(solo, event);
    return true;
}

/* A follower of 2 in its term, with an open ring and everything 2 has. */
static inline void solo_follow(struct solo *solo, uint64_t term, uint64_t grant)
{
    solo_message(solo, (struct raft_message){.kind = RAFT_MSG_ATTACH,
                                             .from = 2,
                                             .term = term,
                                             .index = solo->log.last_index,
                                             .log_term = solo->log.last_term,
                                             .grant = grant,
                                             .limit = 2});
    if (solo_effect(solo, RAFT_FX_PERSIST_HARD) != NULL)
        solo_hard_durable(solo);
    solo_progress(solo, RAFT_EV_GRANTED, 0, 0, 0, grant);
}

/* Bytes of `entries` entries of `term` behind the log's end, as the leader would ship them. */
static inline void solo_ship(struct solo *solo, uint64_t term, unsigned entries, uint64_t grant,
                             uint64_t commit)
{
    struct log leader = solo->log;
    struct log_slot slots[SOLO_SLOTS];
    uint8_t ring[SOLO_RING] __attribute__((aligned(64)));
    struct raft_event event = {.kind = RAFT_EV_RECEIVED};

    memcpy(ring, solo->log.ring, SOLO_RING);
    memcpy(slots, solo->log.slots, sizeof(slots));
    leader.ring = ring;
    leader.slots = slots;
    log_release_to(&leader, leader.last_index); /* it has room of its own */
    for (unsigned i = 0; i < entries; i++) {
        uint8_t *payload = log_reserve(&leader, 8);
        memset(payload, (int)(i + term), 8);
        log_append(&leader, LOG_COMMANDS, term, leader.last_stamp_ns, 8);
    }
    cr_assert(log_write(&solo->log, solo->log.end, ring + solo->log.end % SOLO_RING,
                        leader.end - solo->log.end));
    event.progress.grant = grant;
    event.progress.commit = commit;
    solo_event(solo, event);
}

#endif
