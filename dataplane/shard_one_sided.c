/* SPDX-License-Identifier: Apache-2.0
 *
 * One-sided shipping: the leader writes its followers' rings itself.
 *
 * Follower: the ring is opened to one writer, (leader, term, grant), and polled while it is open.
 * It is closed before a vote, a higher term or an own candidacy: the core waits for the host's word
 * that nothing lands any more, and searches the ring then.
 *
 * Leader: what the core lets a peer have goes out as one write per turn (two at the ring's end), a
 * bounded number of them at a time. A completion says which batch is there; the core judges by
 * index, term and grant whether it still means anything. An error means that nobody knows: the core
 * stops counting that peer until it is attached anew.
 *
 * A grant's mode is agreed on in the attach (RAFT_MSG_ONE_SIDED) and stays. When writes to a peer
 * fail again and again its next grants are for messages; later they are offered again.
 */
#include "consensus/plant.h"
#include "dataplane/shard.h"

#include <assert.h>
#include <string.h>

enum {
    SHARD_WRITE_FAILURES_MAX = 3,              /* in a row, then messages ... */
    SHARD_WRITE_PAUSE_NS = 1000 * 1000 * 1000, /* ... for so long */
};

/* ---- the own ring ---------------------------------------------------------------------------- */

/* Entries that were cut still lie behind the log's end, valid in every respect: the next look at
 * the ring would take them back. */
static void zero_window(struct log *log)
{
    uint64_t offset = log->end & (log->ring_bytes - 1);
    uint64_t length = log_limit(log) - log->end;
    uint64_t first = log->ring_bytes - offset < length ? log->ring_bytes - offset : length;

    if (PLANTED(window_not_zeroed))
        return;
    memset(log->ring + offset, 0, first);
    memset(log->ring, 0, length - first);
}

bool shard_ring_open(struct shard *shard, const struct raft_effect *effect)
{
    const struct shard_peer *leader = shard_peer_of(shard, effect->grant.leader);

    assert(shard->ring_state == SHARD_RING_CLOSED || PLANTED(fence_not_awaited));
    if (!effect->grant.one_sided || !shard->host->ring_open || !leader)
        return false;
    zero_window(&shard->log);
    shard->ring_writer = (struct shard_writer){.replica = effect->grant.leader,
                                               .node = leader->node,
                                               .term = effect->grant.term,
                                               .grant = effect->grant.number};
    if (shard->host->ring_open(shard->host_context, shard->id, &shard->ring_writer) < 0)
        return false;
    shard->ring_state = SHARD_RING_OPENING;
    return true;
}

bool shard_ring_close(struct shard *shard)
{
    if (shard->ring_state == SHARD_RING_CLOSED)
        return false;
    assert(shard->ring_state != SHARD_RING_CLOSING || PLANTED(fence_not_awaited));
    shard->ring_state = SHARD_RING_CLOSING;
    shard->host->ring_close(shard->host_context, shard->id, &shard->ring_writer);
    return !PLANTED(fence_not_awaited);
}

static bool is_ring_writer(const struct shard *shard, const struct shard_writer *writer)
{
    return shard->ring_writer.replica == writer->replica &&
           shard->ring_writer.term == writer->term && shard->ring_writer.grant == writer->grant;
}

void shard_granted(struct shard *shard, const struct shard_writer *writer, uint64_t now_ns)
{
    if (shard->ring_state != SHARD_RING_OPENING || !is_ring_writer(shard, writer))
        return; /* it is being closed already */
    shard->ring_state = SHARD_RING_OPEN;
    shard->board_at_ns = 0;
    shard_step(shard,
               &(struct raft_event){.kind = RAFT_EV_GRANTED,
                                    .now_ns = now_ns,
                                    .progress = {.grant = writer->grant, .one_sided = true}});
}

void shard_revoked(struct shard *shard, const struct shard_writer *writer, uint64_t now_ns)
{
    if (shard->ring_state != SHARD_RING_CLOSING || !is_ring_writer(shard, writer))
        return;
    shard->ring_state = SHARD_RING_CLOSED;
    shard->board_at_ns = 0;
    shard_step(shard, &(struct raft_event){.kind = RAFT_EV_REVOKED,
                                           .now_ns = now_ns,
                                           .progress = {.grant = writer->grant}});
}

void shard_ring_poll(struct shard *shard, uint64_t now_ns)
{
    if (!shard_polls(shard) || !log_sees_next(&shard->log))
        return;
    shard_step(shard, &(struct raft_event){.kind = RAFT_EV_RECEIVED,
                                           .now_ns = now_ns,
                                           .progress = {.grant = shard->ring_writer.grant}});
}

/* ---- writes to peers ------------------------------------------------------------------------- */

bool shard_offers_writes(const struct shard *shard, const struct shard_peer *peer)
{
    return shard->host->write != NULL && peer->writes.offer_at_ns == 0;
}

void shard_writes_extend(struct shard *shard, struct shard_peer *peer,
                         const struct raft_effect *effect)
{
    struct shard_writes *writes = &peer->writes;

    if (!shard->host->write)
        return; /* never offered: the core will find that it makes no progress */
    if (writes->grant != effect->ship.grant) {
        writes->grant = effect->ship.grant;
        writes->next = effect->ship.from;
        writes->count = 0;
        shard->board_at_ns = 0;
    }
    writes->end = effect->ship.to;
    writes->end_index = effect->ship.last_index;
    writes->end_term = effect->ship.last_term;
}

void shard_writes_stop(struct shard *shard, struct shard_peer *peer)
{
    if (!peer->writes.grant)
        return;
    peer->writes.grant = 0;
    peer->writes.count = 0;
    peer->writes.broken = false;
    shard->board_at_ns = 0;
    shard->host->write_stop(shard->host_context, shard->id, peer->node, peer->replica);
}

/* The bytes [next, end) as one batch. False: the transport does not take it. */
static bool post_batch(struct shard *shard, struct shard_peer *peer)
{
    struct shard_writes *writes = &peer->writes;
    struct shard_write write = {
        .to_replica = peer->replica,
        .to_node = peer->node,
        .from_replica = shard->replica,
        .term = shard->view.term,
        .grant = writes->grant,
        .number = ++shard->write_number,
    };

    while (writes->next < writes->end) {
        size_t run = writes->end - writes->next;

        write.bytes = log_read(&shard->log, writes->next, &run);
        write.position = writes->next;
        write.length = run;
        write.last = writes->next + run == writes->end;
        if (shard->host->write(shard->host_context, shard->id, &write) < 0)
            return false;
        writes->next += run;
    }
    writes->posted[writes->posted_next] = (struct shard_posted){.number = write.number,
                                                                .grant = writes->grant,
                                                                .index = writes->end_index,
                                                                .term = writes->end_term};
    writes->posted_next = (writes->posted_next + 1) % SHARD_WRITES_MAX;
    writes->count++;
    return true;
}

static void step_shipped(struct shard *shard, uint64_t replica, const struct shard_posted *posted,
                         enum raft_event_kind kind, uint64_t now_ns)
{
    shard_step(shard, &(struct raft_event){.kind = kind,
                                           .now_ns = now_ns,
                                           .progress = {.peer = replica,
                                                        .index = posted->index,
                                                        .term = posted->term,
                                                        .grant = posted->grant}});
}

static void failed(struct shard *shard, struct shard_peer *peer, uint64_t now_ns)
{
    struct shard_writes *writes = &peer->writes;

    if (++writes->failures < SHARD_WRITE_FAILURES_MAX)
        return;
    writes->failures = 0;
    writes->offer_at_ns = now_ns + SHARD_WRITE_PAUSE_NS;
    shard_note(shard, &(struct shard_note){.event = "ship_by_messages",
                                           .first_name = "node",
                                           .first = peer->node,
                                           .detail = true});
}

/* Back from messages: only an attach changes the mode. */
static void offer_again(struct shard *shard, struct shard_peer *peer, uint64_t now_ns)
{
    struct shard_posted none = {.grant = peer->sender.grant};

    if (!peer->writes.offer_at_ns || now_ns < peer->writes.offer_at_ns)
        return;
    peer->writes.offer_at_ns = 0;
    if (peer->sender.grant)
        step_shipped(shard, peer->replica, &none, RAFT_EV_SHIP_FAILED, now_ns);
}

/* Steps may detach the peer or end the leadership: nothing of the peer is kept across one. */
static void flush_peer(struct shard *shard, struct shard_peer *peer, uint64_t now_ns)
{
    struct shard_writes *writes = &peer->writes;

    offer_again(shard, peer, now_ns);
    if (!writes->grant || writes->next >= writes->end || writes->count >= SHARD_WRITES_MAX ||
        shard->view.role != RAFT_LEADER)
        return;
    if (!post_batch(shard, peer)) {
        struct shard_posted unknown = {.grant = writes->grant};

        failed(shard, peer, now_ns);
        step_shipped(shard, peer->replica, &unknown, RAFT_EV_SHIP_FAILED, now_ns);
    } else if (PLANTED(posted_counted)) {
        struct shard_posted posted =
            writes->posted[(writes->posted_next + SHARD_WRITES_MAX - 1) % SHARD_WRITES_MAX];

        step_shipped(shard, peer->replica, &posted, RAFT_EV_SHIPPED, now_ns);
    }
}

void shard_writes_flush(struct shard *shard, uint64_t now_ns)
{
    for (int i = 0; i < RAFT_MEMBERS_MAX; i++) {
        if (shard->peers[i].replica)
            flush_peer(shard, &shard->peers[i], now_ns);
    }
    shard->host->write_flush(shard->host_context, shard->id);
}

/* ---- what became of them --------------------------------------------------------------------- */

/* NULL: overwritten since, so of no grant that is in force. */
static const struct shard_posted *find_posted(const struct shard_writes *writes, uint64_t number)
{
    for (int i = 0; i < SHARD_WRITES_MAX; i++) {
        if (number && writes->posted[i].number == number)
            return &writes->posted[i];
    }
    return NULL;
}

/* Batches of the grant in force that came after this one. */
static uint32_t posted_after(const struct shard_writes *writes, uint64_t number)
{
    uint32_t after = 0;

    for (int i = 0; i < SHARD_WRITES_MAX; i++)
        after += writes->posted[i].grant == writes->grant && writes->posted[i].number > number;
    return after;
}

void shard_shipped(struct shard *shard, uint64_t replica, uint64_t number, uint64_t now_ns)
{
    struct shard_peer *peer = shard_peer_of(shard, replica);
    const struct shard_posted *posted = peer ? find_posted(&peer->writes, number) : NULL;
    struct shard_posted copy;

    if (!posted)
        return;
    copy = *posted;
    if (copy.grant == peer->writes.grant) {
        peer->writes.count = posted_after(&peer->writes, number);
        peer->writes.failures = 0;
    }
    step_shipped(shard, replica, &copy, RAFT_EV_SHIPPED, now_ns);
}

void shard_ship_failed(struct shard *shard, uint64_t replica, uint64_t number, uint64_t now_ns)
{
    struct shard_peer *peer = shard_peer_of(shard, replica);
    const struct shard_posted *posted = peer ? find_posted(&peer->writes, number) : NULL;
    struct shard_posted copy;

    if (!posted)
        return;
    copy = *posted;
    if (copy.grant == peer->writes.grant)
        failed(shard, peer, now_ns);
    step_shipped(shard, replica, &copy,
                 PLANTED(error_counted) ? RAFT_EV_SHIPPED : RAFT_EV_SHIP_FAILED, now_ns);
}

/* ---- what others see ------------------------------------------------------------------------- */

uint8_t shard_ship_mode(const struct shard *shard)
{
    if (shard->view.role != RAFT_LEADER)
        return shard->ring_state == SHARD_RING_OPEN;
    for (int i = 0; i < RAFT_MEMBERS_MAX; i++) {
        if (shard->peers[i].replica && shard->peers[i].writes.grant)
            return 1;
    }
    return 0;
}
