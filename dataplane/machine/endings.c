/* SPDX-License-Identifier: Apache-2.0
 *
 * How a lease ends: released, expired, or forced out.
 */
#include "consensus/plant.h"
#include "dataplane/machine/machine.h"

static enum wire_status lost_reason(const struct lease_record *record, enum lease_end how)
{
    if (how == LEASE_FORCED_OUT) {
        return WIRE_DENIED;
    }
    return how == LEASE_EXPIRED && until_has(record->until, LEASE_BOUND) ? WIRE_SESSION_LOST
                                                                         : WIRE_LOST;
}

/* An upgrade of this lease can never be granted any more. */
static void end_upgrade(struct lock_machine *machine, uint32_t lease)
{
    const struct resource_record *resource =
        resource_at(machine, lease_at(machine, lease)->resource);
    uint32_t upgrader = queue_upgrader(machine, resource);
    if (upgrader != NONE && waiter_at(machine, upgrader)->lease == lease) {
        waiter_end(machine, upgrader, WIRE_LOST);
    }
}

/* Ends the lease without looking who is next. An idle resource goes with it, unless it must `stay`:
 * true if it is gone. */
static bool lease_end_alone(struct lock_machine *machine, uint32_t lease, enum lease_end how,
                            bool told, bool stay)
{
    const struct lease_record *record = lease_at(machine, lease);
    uint32_t resource = record->resource;
    uint32_t extra = record->extra;
    if (told) {
        push_lost(machine, lease, lost_reason(record, how), true);
    }
    history_add(machine, record->token, how);
    end_upgrade(machine, lease);
    uint32_t delay_ms = 0;
    if (how == LEASE_EXPIRED && extra != NONE && !PLANTED(lock_delay_ignored)) {
        delay_ms = extra_at(machine, extra)->lock_delay_ms;
    }
    bool gone = lease_remove(machine, lease, stay || delay_ms > 0);
    count_up(how == LEASE_EXPIRED ? &machine->state.expired : &machine->state.released);
    if (delay_ms > 0) {
        /* Counted from here, not from the deadline: nobody knew before that it was over. */
        queue_close(machine, queue_of(machine, resource),
                    tick_after(machine->now.stamp_ns, delay_ms), extra);
    } else {
        extra_free(machine, extra);
    }
    return gone;
}

uint32_t lease_end(struct lock_machine *machine, uint32_t lease, enum lease_end how, bool told)
{
    uint32_t resource = lease_at(machine, lease)->resource;
    if (lease_end_alone(machine, lease, how, told, false)) {
        return NONE;
    }
    return PLANTED(wakeup_missed) ? resource : grant_next(machine, resource);
}

uint32_t lease_end_over(struct lock_machine *machine, uint32_t lease)
{
    const struct lease_record *record = lease_at(machine, lease);
    bool closed = record->session != NONE &&
                  until_has(session_at(machine, record->session)->until, SESSION_CLOSED);
    return closed ? lease_end(machine, lease, LEASE_RELEASED, false)
                  : lease_end(machine, lease, LEASE_EXPIRED, true);
}

uint32_t lease_find(struct lock_machine *machine, const struct wire_lease_id *id, uint32_t key_tag)
{
    if (!slab_is_live(&machine->slabs[SLAB_LEASES], id->slot)) {
        return NONE;
    }
    const struct lease_record *record = lease_at(machine, id->slot);
    if (record->secret != id->secret ||
        resource_at(machine, record->resource)->key_tag != key_tag) {
        return NONE;
    }
    if (lease_is_over(machine, record)) {
        (void)lease_end_over(machine, id->slot);
        return NONE;
    }
    return id->slot;
}

/* ---- RELEASE --------------------------------------------------------------------------------- */

void apply_release(struct lock_machine *machine, const struct wire_release *release,
                   uint32_t session, uint32_t answer)
{
    uint32_t lease = lease_find(machine, &release->lease, release->key_tag);
    if (lease == NONE) {
        answer_change(machine, answer)->status = WIRE_LOST;
        return;
    }
    /* Any session may release what it knows the id of; the holder's own is then told. */
    bool others = lease_at(machine, lease)->session != session;
    (void)lease_end(machine, lease, LEASE_RELEASED, others);
    answer_change(machine, answer)->status = WIRE_OK;
}

/* ---- FORCE_RELEASE --------------------------------------------------------------------------- */

/* Asks the holder to let go: its lease is not renewed any more, so it ends by release, or at the
 * deadline it has now. One bound to its session has no deadline of its own, and the session's goes
 * on moving what the holder believes: it lives until the holder, who stops counting on it at the
 * deadline it knew when asked, gives it up, or until the session is over. The push may be lost, so
 * whoever asks again has the holder asked again. */
static void force_ask(struct lock_machine *machine, uint32_t lease)
{
    struct lease_record *record = lease_change(machine, lease);
    if (!until_has(record->until, LEASE_FORCED)) {
        WORD_PUT(record->until, record->until | LEASE_FORCED);
        end_upgrade(machine, lease);
    }
    push_lost(machine, lease, WIRE_DENIED, false);
}

static bool force_holders(struct lock_machine *machine, uint32_t resource, bool now)
{
    uint32_t lease = resource_at(machine, resource)->holder;
    for (uint32_t done = 0; lease != NONE; done++) {
        if (done == FORCE_HOLDERS_MAX) {
            return false;
        }
        uint32_t next = lease_at(machine, lease)->holder_next;
        if (now || PLANTED(forced_at_once)) {
            (void)lease_end_alone(machine, lease, LEASE_FORCED_OUT, true, true);
        } else if (!lease_is_over(machine, lease_at(machine, lease))) {
            force_ask(machine, lease);
        }
        lease = next;
    }
    return true;
}

void apply_force_release(struct lock_machine *machine, const struct wire_named *named,
                         uint32_t answer)
{
    struct key key = key_of(named->text, named->namespace_bytes, named->name_bytes);
    uint32_t resource = resource_find(machine, &key);
    if (resource != NONE) {
        resource = resource_touch(machine, resource);
    }
    if (resource == NONE || resource_at(machine, resource)->holder == NONE) {
        answer_change(machine, answer)->status = WIRE_LOST;
        return;
    }
    bool all = force_holders(machine, resource, (named->request.item.flags & WIRE_NOW) != 0);
    (void)grant_next(machine, resource);
    answer_change(machine, answer)->status = all ? WIRE_OK : WIRE_UNAVAILABLE;
}
