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
                         wire_key_hash(text, namespace_bytes, text + namespace_bytes, name_bytes));
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

uint32_t resource_create(struct lock_machine *machine, const struct key *key)
{
    uint32_t resource = slab_take(&machine->slabs[SLAB_RESOURCES]);
    assert(resource != NONE);
    struct resource_record fresh = {
        .namespace_bytes = key->namespace_bytes,
        .name_bytes = key->name_bytes,
        .key_tag = (uint32_t)key->hash,
        .holder = NONE,
        .queue = NONE,
    };
    index_write_begin(&machine->names, fresh.key_tag);
    if (key->bytes > RESOURCE_TEXT_BYTES) {
        uint32_t long_name = long_create(machine, key);
        memcpy(fresh.text, &long_name, sizeof(long_name));
        fresh.flags = RESOURCE_LONG;
    } else {
        memcpy(fresh.text, key->text, key->bytes);
    }
    words_put(resource_change(machine, resource), &fresh, sizeof(fresh));
    index_insert(&machine->names, key->hash, resource);
    index_write_end(&machine->names, fresh.key_tag);
    return resource;
}

void resource_drop_if_idle(struct lock_machine *machine, uint32_t resource)
{
    const struct resource_record *record = resource_at(machine, resource);
    if (record->holder != NONE || record->queue != NONE) {
        return;
    }
    resource_write_begin(machine, resource);
    if (record->flags & RESOURCE_LONG) {
        uint32_t long_name;
        memcpy(&long_name, record->text, sizeof(long_name));
        slab_free(&machine->slabs[SLAB_LONG_NAMES], long_name);
    }
    index_remove(&machine->names, record->key_tag, resource);
    slab_free(&machine->slabs[SLAB_RESOURCES], resource);
    resource_write_end(machine, resource); /* the record still says whose home bucket it was */
}

void resource_write_begin(struct lock_machine *machine, uint32_t resource)
{
    index_write_begin(&machine->names, resource_at(machine, resource)->key_tag);
}

void resource_write_end(struct lock_machine *machine, uint32_t resource)
{
    index_write_end(&machine->names, resource_at(machine, resource)->key_tag);
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
