/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes from peers: messages, configurations, and log bytes that a ring adopts. Whatever is
 * accepted must encode to the same bytes, and a log must stay consistent.
 */
#include <stdlib.h>
#include <string.h>

#include "consensus/log.h"
#include "consensus/raft.h"

enum { FUZZ_RING = 4096, FUZZ_SLOTS = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_forms(const uint8_t *data, size_t size)
{
    uint8_t bytes[RAFT_MESSAGE_BYTES], members[RAFT_CONFIGURATION_BYTES_MAX];
    struct raft_message message;
    struct raft_configuration configuration;

    if (raft_message_decode(&message, data, size)) {
        raft_message_encode(&message, bytes);
        if (memcmp(bytes, data, size) != 0)
            abort();
    }
    if (raft_configuration_decode(&configuration, data, size) &&
        (raft_configuration_encode(&configuration, members) != size ||
         memcmp(members, data, size) != 0))
        abort();
}

/* The first two bytes choose where the ring stands and how the rest is cut into pieces. */
static void fuzz_ring(const uint8_t *data, size_t size)
{
    static uint8_t memory[FUZZ_RING + FUZZ_SLOTS * sizeof(struct log_slot)]
        __attribute__((aligned(64)));
    struct log log;
    struct log_base base = {.index = 1, .term = 1};

    if (size < 3)
        return;
    base.position = (uint64_t)data[0] * 16 + data[1] % 2 * 8;
    log_init(&log, memory, FUZZ_RING, FUZZ_SLOTS);
    log_reset(&log, &base);
    for (size_t at = 2; at < size; at += 1 + data[1]) {
        size_t length = size - at < 1u + data[1] ? size - at : 1u + data[1];
        log_write(&log, log.received, data + at, length);
        log_adopt(&log, log.received, 1024, false);
    }
    if (log.end > log.received || log.received > log_limit(&log))
        abort();
    for (uint64_t index = base.index + 1; index <= log.last_index; index++)
        if (log_at(&log, index)->index != index)
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_forms(data, size);
    fuzz_ring(data, size);
    return 0;
}
