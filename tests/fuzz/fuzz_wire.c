/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes into the decoder, as each kind of datagram and as items of a log. What is
 * accepted is then read the way its users read it: an accepted length that lies makes
 * AddressSanitizer speak.
 */
#include <stdlib.h>
#include <string.h>

#include "dataplane/wire/wire.h"

static volatile uint64_t sink;

static void read_all(const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    uint64_t sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += at[i];
    sink += sum;
}

static void use_request(const struct wire_item *item)
{
    if (item->op == WIRE_OP_ACQUIRE) {
        const struct wire_acquire *acquire = (const struct wire_acquire *)item;
        const uint8_t *name = acquire->text + acquire->namespace_bytes;
        sink +=
            wire_shard_of(acquire->text, acquire->namespace_bytes, name, acquire->name_bytes, 16);
        read_all(name + acquire->name_bytes, acquire->value_bytes);
    } else if (item->op == WIRE_OP_KEEPALIVE || item->op == WIRE_OP_RENEW) {
        const struct wire_renew *renew = (const struct wire_renew *)item;
        read_all(renew->renewals, renew->count * sizeof(renew->renewals[0]));
    } else if (item->op == WIRE_OP_QUERY || item->op == WIRE_OP_LIST) {
        const struct wire_named *named = (const struct wire_named *)item;
        read_all(named->text, (size_t)named->namespace_bytes + named->name_bytes);
    }
}

static void use_reply(const struct wire_item *item)
{
    if (item->status == WIRE_BUSY) {
        const struct wire_busy *busy = (const struct wire_busy *)item;
        read_all(busy->value, busy->first.value_bytes);
    } else if (item->status == WIRE_OK && item->op == WIRE_OP_QUERY) {
        const struct wire_state *state = (const struct wire_state *)item;
        const uint8_t *at = (const uint8_t *)(state + 1);
        for (uint32_t i = 0; i < state->parties; i++) {
            const struct wire_party *party = (const struct wire_party *)at;
            read_all(party + 1, party->value_bytes);
            at += wire_pad8(sizeof(*party) + party->value_bytes);
        }
    } else if (item->status == WIRE_OK && item->op == WIRE_OP_LIST) {
        const struct wire_list *list = (const struct wire_list *)item;
        const uint8_t *at = (const uint8_t *)(list + 1);
        for (uint32_t i = 0; i < list->count; i++) {
            const struct wire_listed *listed = (const struct wire_listed *)at;
            size_t text = (size_t)listed->namespace_bytes + listed->name_bytes;
            read_all(listed + 1, text);
            at += wire_pad8(sizeof(*listed) + text);
        }
    } else if (item->status == WIRE_OK && item->op == WIRE_OP_MAP) {
        const struct wire_map *map = (const struct wire_map *)item;
        read_all(map + 1, map->count * sizeof(struct wire_mapped));
    } else if (item->status == WIRE_OK && item->op == WIRE_OP_STATUS) {
        const struct wire_node_status *status = (const struct wire_node_status *)item;
        read_all(status + 1, status->count * sizeof(struct wire_shard_status));
    } else if (item->status == WIRE_OK && item->op == WIRE_OP_WORKER) {
        const struct wire_worker_status *worker = (const struct wire_worker_status *)item;
        const struct wire_counter *counters = (const struct wire_counter *)(worker + 1);
        for (uint16_t i = 0; i < worker->count; i++) {
            (void)wire_count_name(counters[i].counter);
            (void)wire_count_detail(counters[i].counter, counters[i].detail);
        }
    }
}

static void feed(const uint8_t *datagram, size_t bytes, enum wire_kind kind)
{
    const struct wire_header *header;
    const struct wire_item *item;

    if (wire_decode_datagram(datagram, bytes, kind, &header, &item) != WIRE_ACCEPTED)
        return;
    for (uint16_t i = 0; i < header->item_count; i++, item = wire_item_next(item)) {
        if (kind == WIRE_KIND_REQUEST && wire_judge_request(item, false).status == WIRE_OK)
            use_request(item);
        if (kind == WIRE_KIND_REQUEST && wire_judge_request(item, true).status == WIRE_OK)
            use_request(item);
        if (kind == WIRE_KIND_REPLY && wire_judge_reply(item))
            use_reply(item);
        if (kind == WIRE_KIND_PEER && wire_judge_peer(item) && item->op == WIRE_PEER_SHIP)
            read_all((const struct wire_ship *)item + 1, ((const struct wire_ship *)item)->length);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t key[WIRE_MAC_KEY_BYTES];
    size_t bytes = sizeof(struct wire_header) + size;

    if (size > 2048)
        return 0;
    /* A malloc of the exact size, so that one byte too far is seen. */
    uint8_t *datagram = malloc(bytes);
    feed(data, size, WIRE_KIND_REQUEST);
    for (int kind = WIRE_KIND_REQUEST; kind <= WIRE_KIND_PEER && size >= 2; kind++) {
        struct wire_header *header = (struct wire_header *)datagram;
        memset(header, 0, sizeof(*header));
        header->magic = WIRE_MAGIC;
        header->version = WIRE_VERSION;
        header->kind = (uint8_t)kind;
        header->sender_node = kind == WIRE_KIND_REQUEST ? 0 : 1;
        header->item_count = (uint16_t)(1 + data[0] % 8);
        memcpy(datagram + sizeof(*header), data + 1, size - 1);
        feed(datagram, bytes - 1, (enum wire_kind)kind);
        sink += wire_tag_check(datagram, bytes - 1, key);
    }
    free(datagram);
    return 0;
}
