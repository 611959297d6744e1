/* SPDX-License-Identifier: Apache-2.0
 *
 * See hw/mailbox.h. Each side owns one counter and a stale copy of the other's, on cache lines of
 * its own: a message costs one transfer of its lines, and the counters' lines move only when a side
 * runs into its stale copy.
 */
#include "hw/mailbox.h"

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>

enum { LINE_BYTES = 64 };

struct mailbox {
    uint32_t capacity;   /* a power of two */
    uint32_t slot_bytes; /* message_bytes rounded up to whole lines */

    alignas(LINE_BYTES) _Atomic uint64_t published; /* producer: messages ever published */
    uint64_t dropped_seen; /* producer's copy of `dropped`: never ahead of it */

    alignas(LINE_BYTES) _Atomic uint64_t dropped; /* consumer: messages ever dropped <= published */
    uint64_t published_seen; /* consumer's copy of `published`: never ahead of it */

    alignas(LINE_BYTES) unsigned char slots[];
};

static size_t slot_bytes_for(uint32_t message_bytes)
{
    return ((size_t)message_bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

size_t mailbox_memory_bytes(uint32_t capacity, uint32_t message_bytes)
{
    return sizeof(struct mailbox) + capacity * slot_bytes_for(message_bytes);
}

struct mailbox *mailbox_init(void *memory, uint32_t capacity, uint32_t message_bytes)
{
    assert((uintptr_t)memory % LINE_BYTES == 0);
    assert(capacity > 0 && (capacity & (capacity - 1)) == 0);
    assert(message_bytes > 0 && message_bytes <= UINT32_MAX - LINE_BYTES);
    struct mailbox *mailbox = memory;
    mailbox->capacity = capacity;
    mailbox->slot_bytes = (uint32_t)slot_bytes_for(message_bytes);
    atomic_init(&mailbox->published, 0);
    atomic_init(&mailbox->dropped, 0);
    mailbox->dropped_seen = 0;
    mailbox->published_seen = 0;
    return mailbox;
}

static void *slot_at(struct mailbox *mailbox, uint64_t number)
{
    return mailbox->slots + (number & (mailbox->capacity - 1)) * mailbox->slot_bytes;
}

void *mailbox_claim(struct mailbox *mailbox)
{
    uint64_t published = atomic_load_explicit(&mailbox->published, memory_order_relaxed);
    if (published - mailbox->dropped_seen == mailbox->capacity) {
        /* acquire: the consumer has read what lay in the slot before we write it again */
        mailbox->dropped_seen = atomic_load_explicit(&mailbox->dropped, memory_order_acquire);
        if (published - mailbox->dropped_seen == mailbox->capacity)
            return NULL;
    }
    return slot_at(mailbox, published);
}

void mailbox_publish(struct mailbox *mailbox)
{
    uint64_t published = atomic_load_explicit(&mailbox->published, memory_order_relaxed);
    assert(published - mailbox->dropped_seen < mailbox->capacity);
    atomic_store_explicit(&mailbox->published, published + 1, memory_order_release);
}

const void *mailbox_peek(struct mailbox *mailbox)
{
    uint64_t dropped = atomic_load_explicit(&mailbox->dropped, memory_order_relaxed);
    if (dropped == mailbox->published_seen) {
        mailbox->published_seen = atomic_load_explicit(&mailbox->published, memory_order_acquire);
        if (dropped == mailbox->published_seen)
            return NULL;
    }
    return slot_at(mailbox, dropped);
}

void mailbox_drop(struct mailbox *mailbox)
{
    uint64_t dropped = atomic_load_explicit(&mailbox->dropped, memory_order_relaxed);
    assert(dropped < mailbox->published_seen);
    atomic_store_explicit(&mailbox->dropped, dropped + 1, memory_order_release);
}
