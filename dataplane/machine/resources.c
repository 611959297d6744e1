/* SPDX-License-Identifier: Apache-2.0
 *
 * Resources: names that are held, waited for, or closed. Idle ones leave nothing behind
 * (hazelcast#26402).
 */
#include "dataplane/machine/machine.h"

#include <string.h>

struct key key_of(const uint8_t *text, uint8_t namespace_bytes, uint8_t name_bytes)
{
    return key_with_hash(text, namespace_bytes, name_bytes,
                         wire_text_hash(text, namespace_bytes, name_bytes));
}

const uint8_t *resource_text(const struct lock_machine *machine,
                             const struct resource_record *record)
{
    if ((record->flags & RESOURCE_LONG) == 0) {
        return record->text;
    }
    uint32_t long_name;
    memcpy(&long_name, record->text, sizeof(long_name));
    return long_at(machine, long_name)->text;
}

static bool has_key(const struct lock_machine *machine, const struct resource_record *record,
                    const struct key *key)
{
    return record->key_tag == (uint32_t)key->hash &&
           record->namespace_bytes == key->namespace_bytes &&
           record->name_bytes == key->name_bytes &&
           memcmp(resource_text(machine, record), key->text, key->bytes) == 0;
}

uint32_t resource_find(const struct lock_machine *machine, const struct key *key)
{
    struct index_search search = index_search(&machine->names, key->hash);
    for (uint32_t slot; index_candidate(&search, &slot);) {
        if (has_key(machine, resource_at(machine, slot), key)) {
            return slot;
        }
    }
    return NONE;
}

enum wire_what resource_limit(const struct lock_machine *machine, const struct key *key,
                              uint64_t *limit)
{
    const struct lock_limits *limits = &machine->state.limits;
    if (live(machine, SLAB_RESOURCES) >= limits->resources_max) {
        *limit = limits->resources_max;
        return WIRE_WHAT_RESOURCES;
    }
    if (key->bytes > RESOURCE_TEXT_BYTES &&
        live(machine, SLAB_LONG_NAMES) >= limits->long_names_max) {
        *limit = limits->long_names_max;
        return WIRE_WHAT_LONG_NAMES;
    }
    return WIRE_WHAT_NONE;
}

/* The text goes where a reader of another thread may still be reading another name's. */
static uint32_t long_create(struct lock_machine *machine, const struct key *key)
{
    struct long_record fresh = {0};
    uint32_t slot = slab_take(&machine->slabs[SLAB_LONG_NAMES]);
    assert(slot != NONE);
    memcpy(fresh.text, key->text, key->bytes);
    words_put(long_change(machine, slot), &fresh, sizeof(fresh));
    return slot;
}

/* Up to 24 bytes of text as three words, the rest zero, without a loop where it is long. */
static inline void text_words(uint64_t words[3], const uint8_t *text, uint32_t bytes)
{
    if (bytes < 8) {
        for (uint32_t i = 0; i < bytes; i++) {
            words[0] |= (uint64_t)text[i] << 8 * i;
        }
        return;
    }
    uint64_t last;
    uint32_t rest = bytes % 8;
    for (uint32_t i = 0; i < bytes / 8; i++) {
        memcpy(&words[i], text + 8 * i, 8);
    }
    if (rest > 0) {
        memcpy(&last, text + bytes - 8, 8);
        words[bytes / 8] = last >> (64 - 8 * rest);
    }
}

uint32_t resource_create(struct lock_machine *machine, const struct key *key)
{
    uint32_t resource = slab_take(&machine->slabs[SLAB_RESOURCES]);
    assert(resource != NONE);
    uint64_t words[sizeof(struct resource_record) / sizeof(uint64_t)] = {0};
    uint64_t flags = 0;
    if (key->bytes > RESOURCE_TEXT_BYTES) {
        words[0] = long_create(machine, key);
        flags = RESOURCE_LONG;
    } else {
        text_words(words, key->text, key->bytes);
    }
    /* As words in registers: read back from fields just stored, they would wait for them. */
    words[3] = (uint64_t)key->namespace_bytes | (uint64_t)key->name_bytes << 8 | flags << 16 |
               key->hash << 32;
    words[4] = UINT64_MAX; /* no holder, no queue */
    words_put(resource_change(machine, resource), words, sizeof(words));
    index_insert(&machine->names, key->hash, resource);
    return resource;
}

void resource_drop(struct lock_machine *machine, uint32_t resource)
{
    const struct resource_record *record = resource_at(machine, resource);
    if (record->flags & RESOURCE_LONG) {
        uint32_t long_name;
        memcpy(&long_name, record->text, sizeof(long_name));
        slab_free(&machine->slabs[SLAB_LONG_NAMES], long_name);
    }
    index_remove(&machine->names, record->key_tag, resource);
    /* The freed record still says whose home bucket it was: for the end of the bracket. */
    slab_free(&machine->slabs[SLAB_RESOURCES], resource);
}

uint64_t resource_closed_until(const struct lock_machine *machine,
                               const struct resource_record *record)
{
    if (record->queue == NONE) {
        return 0;
    }
    uint64_t tick = queue_at(machine, record->queue)->closed_until;
    return tick == TICK_NEVER || tick <= machine->now.tick ? 0 : tick;
}

/* Ends the first due holder among the first few; false if none is due. */
static bool touch_holders(struct lock_machine *machine, uint32_t *resource)
{
    uint32_t lease = resource_at(machine, *resource)->holder;
    for (uint32_t seen = 0; lease != NONE && seen < TOUCH_HOLDERS_MAX; seen++) {
        const struct lease_record *record = lease_at(machine, lease);
        if (lease_is_over(machine, record)) {
            *resource = lease_end_over(machine, lease);
            return true;
        }
        lease = record->holder_next;
    }
    return false;
}

uint32_t resource_touch(struct lock_machine *machine, uint32_t resource)
{
    for (uint32_t ended = 0; ended < TOUCH_HOLDERS_MAX; ended++) {
        if (!touch_holders(machine, &resource)) {
            break;
        }
        if (resource == NONE) {
            return NONE;
        }
    }
    return resource_at(machine, resource)->queue == NONE ? resource : grant_next(machine, resource);
}

/* ---- extras ---------------------------------------------------------------------------------- */

uint32_t extra_create(struct lock_machine *machine, uint32_t lock_delay_ms, uint32_t grace_ms,
                      const uint8_t *value, uint32_t value_bytes)
{
    uint32_t extra = slab_take(&machine->slabs[SLAB_EXTRAS]);
    assert(extra != NONE && value_bytes <= WIRE_VALUE_BYTES_MAX);
    struct extra_record fresh = {
        .lock_delay_ms = lock_delay_ms, .grace_ms = grace_ms, .value_bytes = value_bytes};
    if (value_bytes > 0) {
        memcpy(fresh.value, value, value_bytes);
    }
    words_put(extra_change(machine, extra), &fresh, sizeof(fresh));
    return extra;
}

void extra_free(struct lock_machine *machine, uint32_t extra)
{
    if (extra != NONE) {
        slab_free(&machine->slabs[SLAB_EXTRAS], extra);
    }
}
