/* SPDX-License-Identifier: Apache-2.0
 *
 * QUERY from any thread. The reader samples the sequence of the key's home bucket, copies what it
 * finds, and starts over if the owner changed anything of a key of that bucket meanwhile (index.h).
 *
 * Until the sequence has held, everything read may be torn or belong to another name: slots are
 * checked against the capacities before they are followed, lists are cut at a length.
 */
#include "dataplane/machine/machine.h"

#include <string.h>

enum {
    PEEK_ATTEMPTS_MAX = 64,
    PEEK_HOLDERS_MAX = 24, /* in the answer; all are counted */
    PEEK_CANDIDATES_MAX = 16,
};

struct peeked_holder {
    struct wire_party party;
    uint8_t value[256];
};

struct peeked {
    bool found;
    uint32_t holders;
    uint32_t waiters;
    uint32_t listed;
    struct peeked_holder parties[PEEK_HOLDERS_MAX];
};

static bool text_is(const struct lock_machine *machine, const struct resource_record *record,
                    const struct key *key)
{
    struct long_record long_record;
    const uint8_t *text = record->text;
    if (record->key_tag != (uint32_t)key->hash || record->namespace_bytes != key->namespace_bytes ||
        record->name_bytes != key->name_bytes) {
        return false;
    }
    if (record->flags & RESOURCE_LONG) {
        uint32_t slot;
        memcpy(&slot, record->text, sizeof(slot));
        if (slot >= machine->slabs[SLAB_LONG_NAMES].capacity) {
            return false;
        }
        words_get(&long_record, long_at(machine, slot), sizeof(long_record));
        text = long_record.text;
    } else if (key->bytes > RESOURCE_TEXT_BYTES) {
        return false;
    }
    return memcmp(text, key->text, key->bytes) == 0;
}

static void peek_value(const struct lock_machine *machine, uint32_t extra,
                       struct peeked_holder *holder)
{
    if (extra >= machine->slabs[SLAB_EXTRAS].capacity) {
        return;
    }
    const struct extra_record *record = extra_at(machine, extra);
    uint32_t value_bytes = WORD_GET(record->value_bytes);
    if (value_bytes <= WIRE_VALUE_BYTES_MAX) {
        holder->party.value_bytes = (uint8_t)value_bytes;
        words_get(holder->value, record->value, sizeof(holder->value));
    }
}

static void peek_holder(const struct lock_machine *machine, const struct lease_record *record,
                        uint64_t stamp_ns, struct peeked_holder *holder)
{
    uint64_t until = WORD_GET(record->until);
    uint32_t session = WORD_GET(record->session);
    memset(holder, 0, sizeof(*holder));
    holder->party.token = WORD_GET(record->token);
    holder->party.remaining_ms = remaining_ms(stamp_ns, until_tick(until));
    holder->party.mode = until_has(until, LEASE_EXCLUSIVE) ? WIRE_EXCLUSIVE : WIRE_SHARED;
    if (session < machine->slabs[SLAB_SESSIONS].capacity) {
        holder->party.session = WORD_GET(session_at(machine, session)->id);
    }
    peek_value(machine, WORD_GET(record->extra), holder);
}

static void peek_resource(const struct lock_machine *machine, uint32_t first, uint32_t queue,
                          uint64_t stamp_ns, struct peeked *peeked)
{
    const struct slab *leases = &machine->slabs[SLAB_LEASES];
    peeked->found = true;
    peeked->holders =
        first < leases->capacity ? WORD_GET(lease_at(machine, first)->holder_prev) : 0;
    peeked->listed = 0;
    for (uint32_t lease = first; lease < leases->capacity && peeked->listed < PEEK_HOLDERS_MAX;
         lease = WORD_GET(lease_at(machine, lease)->holder_next)) {
        peek_holder(machine, lease_at(machine, lease), stamp_ns,
                    &peeked->parties[peeked->listed++]);
    }
    peeked->waiters = 0;
    if (queue < machine->slabs[SLAB_QUEUES].capacity) {
        peeked->waiters = WORD_GET(queue_at(machine, queue)->waiters);
    }
}

/* One attempt; false: the owner was at it. */
static bool peek_once(const struct lock_machine *machine, const struct key *key,
                      struct peeked *peeked)
{
    uint32_t candidates[PEEK_CANDIDATES_MAX];
    uint32_t count;
    uint32_t sequence;
    uint64_t stamp_ns = WORD_GET(machine->state.stamp_ns);
    peeked->found = false;
    if (!index_read(&machine->names, key->hash, candidates, PEEK_CANDIDATES_MAX, &count,
                    &sequence)) {
        return false;
    }
    for (uint32_t i = 0; i < count && !peeked->found; i++) {
        struct resource_record record;
        if (candidates[i] < machine->slabs[SLAB_RESOURCES].capacity) {
            words_get(&record, resource_at(machine, candidates[i]), sizeof(record));
            if (text_is(machine, &record, key)) {
                peek_resource(machine, record.holder, record.queue, stamp_ns, peeked);
            }
        }
    }
    return index_read_holds(&machine->names, key->hash, sequence);
}

static size_t put_party(uint8_t *out, size_t bytes, size_t capacity,
                        const struct peeked_holder *holder)
{
    size_t length = wire_pad8(sizeof(holder->party) + holder->party.value_bytes);
    if (length > capacity - bytes) {
        return 0;
    }
    memset(out + bytes, 0, length);
    memcpy(out + bytes, &holder->party, sizeof(holder->party));
    memcpy(out + bytes + sizeof(holder->party), holder->value, holder->party.value_bytes);
    return length;
}

size_t lock_machine_peek(const struct lock_machine *machine, const struct wire_named *request,
                         uint64_t age_ns, void *out, size_t capacity)
{
    struct peeked peeked;
    struct wire_state *state = out;
    struct key key = key_of(request->text, request->namespace_bytes, request->name_bytes);
    uint64_t index = WORD_GET(machine->state.applied_index);
    assert(capacity >= REPLY_BYTES_MAX);
    for (int attempt = 0; !peek_once(machine, &key, &peeked); attempt++) {
        if (attempt == PEEK_ATTEMPTS_MAX) {
            return 0;
        }
    }
    *state = (struct wire_state){.index = index, .age_ns = age_ns};
    size_t bytes = sizeof(*state);
    if (peeked.found) {
        state->holders = peeked.holders;
        state->waiters = peeked.waiters;
        for (uint32_t i = 0; i < peeked.listed; i++) {
            size_t length = put_party(out, bytes, capacity, &peeked.parties[i]);
            if (length == 0) {
                break;
            }
            bytes += length;
            state->parties++;
        }
    }
    state->reply = (struct wire_reply){
        .item = {.bytes = (uint16_t)bytes,
                 .op = request->request.item.op,
                 .shard = request->request.item.shard},
        .session = request->request.session,
        .number = request->request.number,
    };
    return bytes;
}
