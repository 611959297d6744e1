/* SPDX-License-Identifier: Apache-2.0
 *
 * The datagram as a whole: its header, that its items tile it exactly, and building one. What is
 * inside an item is judged in wire_request.c, wire_reply.c and wire_peer.c.
 */
#include "dataplane/wire/wire.h"

#include <string.h>

/* The structs are the format: they are read and written in place. */
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire format is the memory format");

/* Fields that version 1 gives no meaning to must be zero, so that a later version can. A reply's
 * sender is information for people only and not judged. */
static enum wire_reject check_header(const struct wire_header *header, enum wire_kind expected)
{
    static const uint8_t no_tag[WIRE_TAG_BYTES];

    if (header->magic != WIRE_MAGIC)
        return WIRE_REJECT_MAGIC;
    if (header->version != WIRE_VERSION)
        return WIRE_REJECT_VERSION;
    if (header->kind != expected)
        return WIRE_REJECT_KIND;
    if (header->zero != 0)
        return WIRE_REJECT_FIELD;
    if (header->key_id != 0)
        return WIRE_REJECT_TAG;
    if (expected != WIRE_KIND_PEER && memcmp(header->tag, no_tag, sizeof(no_tag)) != 0)
        return WIRE_REJECT_FIELD;
    if (expected == WIRE_KIND_REQUEST && header->sender_node != 0)
        return WIRE_REJECT_SENDER;
    if (expected == WIRE_KIND_PEER && header->sender_node == 0)
        return WIRE_REJECT_SENDER;
    return WIRE_ACCEPTED;
}

static enum wire_reject check_tiling(const uint8_t *datagram, size_t bytes, uint16_t item_count)
{
    size_t at = sizeof(struct wire_header);

    if (item_count == 0)
        return WIRE_REJECT_ITEMS;
    for (uint16_t i = 0; i < item_count; i++) {
        if (bytes - at < sizeof(struct wire_item))
            return WIRE_REJECT_ITEMS;
        uint16_t length = ((const struct wire_item *)(datagram + at))->bytes;
        if (length < sizeof(struct wire_item) || length % 8 != 0)
            return WIRE_REJECT_ITEM_LENGTH;
        if (length > bytes - at)
            return WIRE_REJECT_ITEMS;
        at += length;
    }
    return at == bytes ? WIRE_ACCEPTED : WIRE_REJECT_ITEMS;
}

/* *header is set whenever there are bytes enough for one, so that a rejected version or cluster can
 * be answered; it is NULL for a runt. */
enum wire_reject wire_decode_datagram(const uint8_t *datagram, size_t bytes,
                                      enum wire_kind expected, const struct wire_header **header,
                                      const struct wire_item **items)
{
    *header = NULL;
    *items = NULL;
    if (bytes < sizeof(struct wire_header))
        return WIRE_REJECT_RUNT;
    *header = (const struct wire_header *)datagram;
    if (bytes > WIRE_DATAGRAM_BYTES_MAX)
        return WIRE_REJECT_OVERSIZED;
    enum wire_reject reject = check_header(*header, expected);
    if (reject == WIRE_ACCEPTED)
        reject = check_tiling(datagram, bytes, (*header)->item_count);
    if (reject == WIRE_ACCEPTED)
        *items = (const struct wire_item *)(datagram + sizeof(struct wire_header));
    return reject;
}

/* ---- building -------------------------------------------------------------------------------- */

void wire_builder_start(struct wire_builder *builder, uint8_t *buffer, size_t capacity,
                        enum wire_kind kind, uint64_t cluster_id, uint16_t sender_node)
{
    assert(capacity >= sizeof(struct wire_header));
    struct wire_header *header = (struct wire_header *)buffer;
    *header = (struct wire_header){
        .magic = WIRE_MAGIC,
        .version = WIRE_VERSION,
        .kind = (uint8_t)kind,
        .cluster_id = cluster_id,
        .sender_node = sender_node,
    };
    *builder = (struct wire_builder){
        .buffer = buffer,
        .capacity = capacity < WIRE_DATAGRAM_BYTES_MAX ? capacity : WIRE_DATAGRAM_BYTES_MAX,
        .bytes = sizeof(struct wire_header),
    };
}

void *wire_builder_add(struct wire_builder *builder, uint8_t op, size_t bytes)
{
    size_t padded = wire_pad8(bytes);

    assert(bytes >= sizeof(struct wire_item));
    if (padded > builder->capacity - builder->bytes)
        return NULL;
    struct wire_item *item = (struct wire_item *)(builder->buffer + builder->bytes);
    memset(item, 0, padded);
    item->bytes = (uint16_t)padded;
    item->op = op;
    builder->bytes += padded;
    builder->items++;
    return item;
}

void wire_builder_shrink_last(struct wire_builder *builder, void *item, size_t bytes)
{
    struct wire_item *last = item;
    size_t padded = wire_pad8(bytes);

    assert((uint8_t *)item + last->bytes == builder->buffer + builder->bytes);
    assert(padded >= sizeof(struct wire_item) && padded <= last->bytes);
    builder->bytes -= last->bytes - padded;
    last->bytes = (uint16_t)padded;
}

size_t wire_builder_finish(struct wire_builder *builder)
{
    ((struct wire_header *)builder->buffer)->item_count = builder->items;
    return builder->bytes;
}
