/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary replies into a client's core that has locks, waiters and requests under way. The input
 * is a list of records: an opcode says whether time passes, a command starts, or an item arrives;
 * session ids, numbers and nonces that the core really uses are patched in, so that replies get
 * past the first comparison.
 */
#include <stdlib.h>
#include <string.h>

#include "client/core.h"

struct world {
    struct core *core;
    uint64_t now_ns;
    uint64_t session, number, nonce, map_number; /* as last sent */
    core_ref lock, request;
    struct wire_address node;
};

static void sink_send(void *context, const struct wire_address *to, const uint8_t *bytes,
                      size_t length)
{
    struct world *world = context;
    const struct wire_header *header;
    const struct wire_item *item;

    (void)to;
    if (wire_decode_datagram(bytes, length, WIRE_KIND_REQUEST, &header, &item) != WIRE_ACCEPTED)
        abort();
    for (uint16_t i = 0; i < header->item_count; i++, item = wire_item_next(item)) {
        if (wire_judge_request(item, false).status != WIRE_OK)
            abort();
        if (item->op == WIRE_OP_OPEN) {
            world->nonce = ((const struct wire_open *)item)->nonce;
        } else if (item->op == WIRE_OP_MAP) {
            world->map_number = ((const struct wire_page_request *)item)->number;
        } else if (item->op <= WIRE_OP_LOGGED_LAST) {
            world->session = ((const struct wire_request *)item)->session;
            world->number = ((const struct wire_request *)item)->number;
        }
    }
}

static void sink_complete(void *context, const struct core_completion *completion)
{
    struct world *world = context;

    if (completion->status == BELAY_OK && completion->lock != 0)
        world->lock = completion->lock;
}

static void sink_lost(void *context, core_ref lock, uint64_t user, belay_lost_reason reason)
{
    (void)context;
    (void)lock;
    (void)user;
    (void)reason;
}

static void sink_revoke(void *context, core_ref lock, uint64_t user)
{
    (void)context;
    (void)lock;
    (void)user;
}

static void sink_renewed(void *context, core_ref lock, uint64_t user, uint64_t deadline_ns)
{
    (void)context;
    (void)lock;
    (void)user;
    (void)deadline_ns;
}

static void command(struct world *world, uint8_t which)
{
    struct core_acquire acquire = {
        .name = {.name = (const uint8_t *)"{x}ab" + which % 2, .name_bytes = 4},
        .mode = WIRE_EXCLUSIVE,
        .ttl_ms = which % 3 == 0 ? 0 : 1000u * which + 1,
        .flags = which % 3 == 0 ? WIRE_SESSION_BOUND : 0,
        .wait_ms = which % 4 == 0 ? 50 : UINT64_MAX,
    };
    switch (which >> 4) {
    case 0:
    case 1:
    case 2:
        core_acquire(world->core, world->now_ns, which % 2, &acquire, 1, &world->request);
        break;
    case 3:
        core_cancel(world->core, world->now_ns, world->request);
        break;
    case 4:
        core_release(world->core, world->now_ns, world->lock, 2, NULL);
        break;
    case 5:
        core_convert(world->core, world->now_ns, world->lock, WIRE_SHARED, 10, 3, NULL);
        break;
    case 6:
        core_renew(world->core, world->now_ns, world->lock, 4, NULL);
        break;
    case 7:
        core_close(world->core, world->now_ns, which % 2);
        break;
    case 8:
        core_forget(world->core, world->lock);
        break;
    default:
        break;
    }
}

/* Wraps the input as one item, with the numbers that are awaited. */
static void item_arrives(struct world *world, uint8_t patch, const uint8_t *data, size_t size)
{
    _Alignas(8) uint8_t bytes[WIRE_DATAGRAM_BYTES_MAX];
    struct wire_builder builder;

    wire_builder_start(&builder, bytes, sizeof(bytes), WIRE_KIND_REPLY, 5, 1);
    size_t room = size < 1200 ? size : 1200;
    struct wire_reply *reply = wire_builder_add(&builder, 0, 24 + room);
    uint16_t length = reply->item.bytes;
    memcpy((uint8_t *)reply + 2, data, room < 6 ? room : 6);
    if (room > 6)
        memcpy((uint8_t *)reply + 24, data + 6, room - 6);
    reply->item.bytes = length;
    size_t cut = (size_t)(patch >> 3) * 8; /* items are exact: let the input choose the length */
    if (cut + 24 <= length)
        wire_builder_shrink_last(&builder, reply, 24 + cut);
    reply->session = world->session;
    reply->number = world->number - patch % 2;
    if (reply->item.op == WIRE_OP_OPEN && reply->item.bytes == sizeof(struct wire_opened)) {
        ((struct wire_opened *)reply)->nonce = world->nonce;
        reply->session = 0x1000u + patch;
    }
    if (reply->item.op == WIRE_OP_MAP)
        reply->session = world->map_number; /* the same place */
    size_t whole = wire_builder_finish(&builder);
    core_receive(world->core, world->now_ns, &world->node, bytes, whole);
}

static void good_map(struct world *world)
{
    _Alignas(8) uint8_t bytes[256];
    struct wire_builder builder;

    core_tick(world->core, world->now_ns);
    core_flush(world->core);
    wire_builder_start(&builder, bytes, sizeof(bytes), WIRE_KIND_REPLY, 5, 1);
    struct wire_map *map = wire_builder_add(&builder, WIRE_OP_MAP, sizeof(*map) + 48);
    map->number = world->map_number;
    map->cluster_id = 5;
    map->shards = 1;
    map->count = 1;
    size_t whole = wire_builder_finish(&builder);
    core_receive(world->core, world->now_ns, &world->node, bytes, whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct world world = {.now_ns = 1000, .node = {.port = 1}};
    struct core_options options;
    struct core_sink sink = {sink_send,   sink_complete, sink_lost,
                             sink_revoke, sink_renewed,  &world};

    core_options_init(&options);
    options.clients_count = 2;
    options.sessions_max = 4;
    options.locks_max = 8;
    options.requests_max = 8;
    options.text_bytes_max = 16;
    options.endpoints_count = 1;
    options.endpoints[0] = world.node;
    size_t bytes = (core_memory_bytes(&options) + 63) & ~(size_t)63;
    void *memory = aligned_alloc(64, bytes);
    memset(memory, 0, bytes);
    world.core = core_init(memory, &options, &sink, world.now_ns);
    good_map(&world);
    while (size >= 3) {
        uint8_t opcode = data[0], argument = data[1];
        size_t length = data[2];
        data += 3;
        size -= 3;
        length = length < size ? length : size;
        if (opcode % 4 == 0)
            world.now_ns += (uint64_t)argument * argument * argument * 1000;
        else if (opcode % 4 == 1)
            command(&world, argument);
        else
            item_arrives(&world, argument, data, length);
        data += length;
        size -= length;
        core_tick(world.core, world.now_ns);
        core_flush(world.core);
    }
    free(memory);
    return 0;
}
