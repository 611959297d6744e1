/* SPDX-License-Identifier: Apache-2.0
 *
 * Byte forms of Raft messages and configurations: exact, little-endian, decoders total.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "consensus/raft.h"

static struct raft_message example(void)
{
    return (struct raft_message){
        .kind = RAFT_MSG_ACK,
        .flags = RAFT_MSG_GRANTED | RAFT_MSG_RETRANSMIT,
        .from = 0x0102030405060708u,
        .to = 2,
        .term = UINT64_MAX,
        .index = (uint64_t)UINT32_MAX + 1,
        .log_term = 5,
        .grant = 6,
        .commit = 7,
        .round = 8,
        .position = 9,
        .limit = 0x8000000000000000u,
    };
}

static bool equal(const struct raft_message *a, const struct raft_message *b)
{
    return a->kind == b->kind && a->flags == b->flags && a->from == b->from && a->to == b->to &&
           a->term == b->term && a->index == b->index && a->log_term == b->log_term &&
           a->grant == b->grant && a->commit == b->commit && a->round == b->round &&
           a->position == b->position && a->limit == b->limit;
}

Test(raft_message, form)
{
    uint8_t bytes[RAFT_MESSAGE_BYTES];
    struct raft_message message = example(), again;

    raft_message_encode(&message, bytes);
    cr_assert_eq(bytes[0], RAFT_MSG_ACK);
    cr_assert_eq(bytes[1], 5);
    cr_assert_eq(bytes[8], 8, "little-endian");
    cr_assert_eq(bytes[15], 1);
    cr_assert_eq(bytes[87], 0x80);
    cr_assert(raft_message_decode(&again, bytes, sizeof(bytes)));
    cr_assert(equal(&message, &again));
}

Test(raft_message, what_is_none)
{
    uint8_t bytes[RAFT_MESSAGE_BYTES + 1] = {0};
    struct raft_message message = example(), again;

    for (size_t length = 0; length <= RAFT_MESSAGE_BYTES + 1; length++) {
        raft_message_encode(&message, bytes);
        cr_assert_eq(raft_message_decode(&again, bytes, length), length == RAFT_MESSAGE_BYTES);
    }
    for (unsigned at = 0; at < 8; at++) {
        for (unsigned value = 0; value < 256; value++) {
            raft_message_encode(&message, bytes);
            bytes[at] = (uint8_t)value;
            bool good = at == 0   ? value > 0 && value < RAFT_MSG_KIND_COUNT
                        : at == 1 ? value < 16
                                  : value == 0;
            cr_assert_eq(raft_message_decode(&again, bytes, RAFT_MESSAGE_BYTES), good);
        }
    }
    message.from = 0;
    raft_message_encode(&message, bytes);
    cr_assert(!raft_message_decode(&again, bytes, RAFT_MESSAGE_BYTES));
}

static struct raft_configuration members(uint32_t count)
{
    struct raft_configuration configuration = {.count = count};

    for (uint32_t i = 0; i < count; i++)
        configuration.members[i] = (struct raft_member){
            .replica_id = UINT64_MAX - i, .node = (uint16_t)(i * 1000), .role = (uint8_t)(i & 1)};
    return configuration;
}

Test(raft_message, configuration)
{
    uint8_t bytes[RAFT_CONFIGURATION_BYTES_MAX];
    struct raft_configuration again;

    for (uint32_t count = 0; count <= RAFT_MEMBERS_MAX; count++) {
        struct raft_configuration configuration = members(count);
        size_t length = raft_configuration_encode(&configuration, bytes);
        cr_assert_eq(length, 8 + 16 * count);
        cr_assert(raft_configuration_decode(&again, bytes, length));
        cr_assert_eq(memcmp(&configuration, &again, sizeof(again)), 0);
        for (size_t cut = 0; cut < length; cut++)
            cr_assert(!raft_configuration_decode(&again, bytes, cut));
    }
}

Test(raft_message, bad_configurations)
{
    uint8_t bytes[RAFT_CONFIGURATION_BYTES_MAX];
    struct raft_configuration configuration = members(3), again;
    size_t length = raft_configuration_encode(&configuration, bytes);
    static const struct {
        unsigned at;
        uint8_t value;
    } faults[] = {{0, 4}, {0, 2}, {3, 1}, {4, 1}, {8 + 10, 2}, {8 + 11, 1}, {8 + 15, 9}};

    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        uint8_t kept = bytes[faults[i].at];
        bytes[faults[i].at] = faults[i].value;
        cr_assert(!raft_configuration_decode(&again, bytes, length), "fault %zu", i);
        bytes[faults[i].at] = kept;
    }
    memcpy(bytes + 8 + 16, bytes + 8, 16); /* the same member twice */
    cr_assert(!raft_configuration_decode(&again, bytes, length));
    memset(bytes + 8, 0, 8); /* nobody */
    cr_assert(!raft_configuration_decode(&again, bytes, length));
}

/* Whatever the bytes: an answer, and what was decoded encodes to the same bytes. */
Test(raft_message, any_bytes)
{
    uint64_t state = 12345;
    uint8_t bytes[RAFT_CONFIGURATION_BYTES_MAX], again[RAFT_CONFIGURATION_BYTES_MAX];
    struct raft_configuration configuration;
    struct raft_message message;

    for (int round = 0; round < 100000; round++) {
        for (size_t i = 0; i < sizeof(bytes); i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            bytes[i] = (state >> 61) != 0 && i > 1 && i < 8 ? 0 : (uint8_t)(state >> 56) % 16;
        }
        if (raft_message_decode(&message, bytes, RAFT_MESSAGE_BYTES)) {
            raft_message_encode(&message, again);
            cr_assert_eq(memcmp(bytes, again, RAFT_MESSAGE_BYTES), 0);
        }
        size_t length = 8 + 16 * (size_t)(round % 11);
        if (length <= sizeof(bytes) && raft_configuration_decode(&configuration, bytes, length)) {
            cr_assert_eq(raft_configuration_encode(&configuration, again), length);
            cr_assert_eq(memcmp(bytes, again, length), 0);
        }
    }
}
