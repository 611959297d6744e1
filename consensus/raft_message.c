/* SPDX-License-Identifier: Apache-2.0
 *
 * Byte forms of messages and configurations: little-endian, fixed-width; total decoders.
 */
#include "consensus/raft.h"

#include <string.h>

enum {
    RAFT_FLAGS_ALL = RAFT_MSG_GRANTED | RAFT_MSG_TRANSFER | RAFT_MSG_RETRANSMIT | RAFT_MSG_ONE_SIDED
};

static uint8_t *raft_put(uint8_t *bytes, uint64_t value, unsigned width)
{
    for (unsigned i = 0; i < width; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
    return bytes + width;
}

static uint64_t raft_take(const uint8_t **bytes, unsigned width)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < width; i++)
        value |= (uint64_t)(*bytes)[i] << (8 * i);
    *bytes += width;
    return value;
}

void raft_message_encode(const struct raft_message *message, uint8_t bytes[RAFT_MESSAGE_BYTES])
{
    const uint64_t words[] = {
        message->from,  message->to,     message->term,  message->index,    message->log_term,
        message->grant, message->commit, message->round, message->position, message->limit,
    };
    uint8_t *next = bytes;

    static_assert(RAFT_MESSAGE_BYTES == 8 + sizeof(words), "every field has its place");
    next = raft_put(next, message->kind, 1);
    next = raft_put(next, message->flags, 1);
    next = raft_put(next, 0, 6);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        next = raft_put(next, words[i], 8);
}

bool raft_message_decode(struct raft_message *message, const uint8_t *bytes, size_t length)
{
    if (length != RAFT_MESSAGE_BYTES)
        return false;
    memset(message, 0, sizeof(*message));
    message->kind = (uint8_t)raft_take(&bytes, 1);
    message->flags = (uint8_t)raft_take(&bytes, 1);
    if (message->kind == 0 || message->kind >= RAFT_MSG_KIND_COUNT ||
        (message->flags & ~RAFT_FLAGS_ALL) != 0 || raft_take(&bytes, 6) != 0)
        return false;
    uint64_t *const words[] = {
        &message->from,  &message->to,     &message->term,  &message->index,    &message->log_term,
        &message->grant, &message->commit, &message->round, &message->position, &message->limit,
    };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        *words[i] = raft_take(&bytes, 8);
    return message->from != 0 && message->to != 0;
}

/* The index is the entry's own and not repeated in its payload. */
size_t raft_configuration_encode(const struct raft_configuration *configuration,
                                 uint8_t bytes[RAFT_CONFIGURATION_BYTES_MAX])
{
    uint8_t *next = bytes;

    assert(configuration->count <= RAFT_MEMBERS_MAX);
    next = raft_put(next, configuration->count, 4);
    next = raft_put(next, 0, 4);
    for (uint32_t i = 0; i < configuration->count; i++) {
        const struct raft_member *member = &configuration->members[i];
        next = raft_put(next, member->replica_id, 8);
        next = raft_put(next, member->node, 2);
        next = raft_put(next, member->role, 1);
        next = raft_put(next, 0, 5);
    }
    return (size_t)(next - bytes);
}

static bool raft_member_decode(struct raft_member *member, const uint8_t **bytes)
{
    member->replica_id = raft_take(bytes, 8);
    member->node = (uint16_t)raft_take(bytes, 2);
    member->role = (uint8_t)raft_take(bytes, 1);
    return raft_take(bytes, 5) == 0 && member->replica_id != 0 && member->role <= RAFT_VOTER;
}

bool raft_configuration_decode(struct raft_configuration *configuration, const uint8_t *bytes,
                               size_t length)
{
    memset(configuration, 0, sizeof(*configuration));
    if (length < 8)
        return false;
    uint64_t count = raft_take(&bytes, 4);
    if (raft_take(&bytes, 4) != 0 || count > RAFT_MEMBERS_MAX || length != 8 + count * 16)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        struct raft_member *member = &configuration->members[i];
        if (!raft_member_decode(member, &bytes))
            return false;
        for (uint32_t j = 0; j < i; j++)
            if (configuration->members[j].replica_id == member->replica_id)
                return false;
    }
    configuration->count = (uint32_t)count;
    return true;
}
