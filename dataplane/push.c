/* SPDX-License-Identifier: Apache-2.0 */
#include "dataplane/push.h"

#include <string.h>

/* Links hold slot + 1, so that zero-filled memory is an empty table. */

static size_t bucket_of(uint64_t secret)
{
    return (size_t)(secret & (PUSH_SLOTS - 1)); /* the secret is random already */
}

static const struct wire_lease_id *lease_of(const struct push *push)
{
    return push->item.op == WIRE_OP_PUSH_GRANT ? &push->granted.lease : &push->lost.lease;
}

static uint64_t session_of(const struct push *push)
{
    return push->granted.reply.session; /* same place in both */
}

size_t push_memory_bytes(void)
{
    return PUSH_SLOTS * (sizeof(struct push) + sizeof(uint32_t));
}

void push_init(struct push_table *table, void *memory)
{
    memset(table, 0, sizeof *table);
    table->slots = memory;
    table->buckets = (uint32_t *)(void *)(table->slots + PUSH_SLOTS);
    push_clear(table);
}

void push_clear(struct push_table *table)
{
    memset(table->buckets, 0, PUSH_SLOTS * sizeof *table->buckets);
    memset(table->attempts, 0, sizeof table->attempts);
    for (uint32_t i = 0; i < PUSH_SLOTS; i++) {
        table->slots[i].used = false;
        table->slots[i].next = i + 1 < PUSH_SLOTS ? i + 2 : 0;
    }
    table->free = 1;
    table->count = 0;
}

static void list_append(struct push_table *table, uint32_t link)
{
    struct push *push = &table->slots[link - 1];
    struct push_list *list = &table->attempts[push->attempt];

    push->next = 0;
    push->previous = list->tail;
    if (list->tail)
        table->slots[list->tail - 1].next = link;
    else
        list->head = link;
    list->tail = link;
}

static void list_remove(struct push_table *table, uint32_t link)
{
    struct push *push = &table->slots[link - 1];
    struct push_list *list = &table->attempts[push->attempt];

    if (push->previous)
        table->slots[push->previous - 1].next = push->next;
    else
        list->head = push->next;
    if (push->next)
        table->slots[push->next - 1].previous = push->previous;
    else
        list->tail = push->previous;
}

static uint32_t *find(struct push_table *table, uint64_t session, const struct wire_lease_id *lease)
{
    uint32_t *link = &table->buckets[bucket_of(lease->secret)];

    while (*link) {
        struct push *push = &table->slots[*link - 1];
        const struct wire_lease_id *other = lease_of(push);

        if (other->secret == lease->secret && other->slot == lease->slot &&
            session_of(push) == session)
            return link;
        link = &push->chain;
    }
    return NULL;
}

static void forget(struct push_table *table, uint32_t *chain_link)
{
    uint32_t link = *chain_link;
    struct push *push = &table->slots[link - 1];

    *chain_link = push->chain;
    list_remove(table, link);
    push->used = false;
    push->next = table->free;
    table->free = link;
    table->count--;
}

bool push_add(struct push_table *table, const struct wire_address *to, const struct wire_item *item,
              uint64_t now_ns)
{
    const struct wire_lease_id *lease = item->op == WIRE_OP_PUSH_GRANT
                                            ? &((const struct wire_granted *)item)->lease
                                            : &((const struct wire_lost *)item)->lease;
    uint64_t session = ((const struct wire_reply *)item)->session;
    uint32_t *older = find(table, session, lease);
    uint32_t link;
    struct push *push;

    if (older)
        forget(table, older);
    link = table->free;
    if (!link)
        return false;
    push = &table->slots[link - 1];
    table->free = push->next;
    table->count++;
    push->used = true;
    push->attempt = 0;
    push->to = *to;
    memcpy(&push->granted, item, item->bytes);
    push->due_ns = now_ns + PUSH_GAP_FIRST_NS;
    push->chain = table->buckets[bucket_of(lease->secret)];
    table->buckets[bucket_of(lease->secret)] = link;
    list_append(table, link);
    return true;
}

void push_acknowledge(struct push_table *table, uint64_t session, const struct wire_lease_id *lease)
{
    uint32_t *link = find(table, session, lease);

    if (link)
        forget(table, link);
}

const struct push *push_due(struct push_table *table, uint64_t now_ns)
{
    for (uint8_t attempt = 0; attempt < PUSH_ATTEMPTS; attempt++) {
        uint32_t link = table->attempts[attempt].head;
        struct push *push = link ? &table->slots[link - 1] : NULL;

        if (!push || push->due_ns > now_ns)
            continue;
        if (attempt + 1 == PUSH_ATTEMPTS) {
            /* The slot is free after this, but not reused before the next push_add. */
            forget(table, find(table, session_of(push), lease_of(push)));
            return push;
        }
        list_remove(table, link);
        push->attempt++;
        push->due_ns = now_ns + (PUSH_GAP_FIRST_NS << push->attempt);
        list_append(table, link);
        return push;
    }
    return NULL;
}

uint64_t push_deadline(const struct push_table *table)
{
    uint64_t deadline_ns = UINT64_MAX;

    for (int attempt = 0; attempt < PUSH_ATTEMPTS; attempt++) {
        uint32_t link = table->attempts[attempt].head;

        if (link && table->slots[link - 1].due_ns < deadline_ns)
            deadline_ns = table->slots[link - 1].due_ns;
    }
    return deadline_ns;
}
