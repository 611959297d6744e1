/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits of a shard: defaults, soundness, and their form in a LOG_LIMITS entry.
 */
#include "dataplane/machine/machine.h"

#include <string.h>

enum {
    DAY_MS = 24 * 60 * 60 * 1000,
    HOUR_MS = 60 * 60 * 1000,
    RECORDS_MAX = 268435456, /* of one kind: slots and timers are numbered in 32 bits */
};

/* One row per 32-bit field, in the order of the encoding. */
struct field {
    size_t offset;
    uint32_t least, most;
    const char *wrong;
};
#define FIELD(name, least, most)                                                                   \
    {                                                                                              \
        offsetof(struct lock_limits, name), least, most, #name " must be " #least " to " #most     \
    }
static const struct field fields[] = {
    FIELD(leases_max, 1, 268435456),          FIELD(resources_max, 1, 268435456),
    FIELD(sessions_max, 1, 268435456),        FIELD(waiters_max, 1, 268435456),
    FIELD(answers_max, 1, 268435456),         FIELD(long_names_max, 1, 268435456),
    FIELD(extras_max, 1, 268435456),          FIELD(window, 1, 1024),
    FIELD(queue_max, 1, 268435456),           FIELD(ttl_ms_min, 1, 4294967295),
    FIELD(ttl_ms_max, 1, 4294967295),         FIELD(session_ttl_ms_min, 1, 4294967295),
    FIELD(session_ttl_ms_max, 1, 4294967295), FIELD(wait_ms_max, 0, 4294967295),
    FIELD(lock_delay_ms_max, 0, 4294967295),  FIELD(grace_ms_max, 0, 4294967295),
};
#undef FIELD
enum { FIELDS = sizeof(fields) / sizeof(fields[0]) };
static_assert(FIELDS * 4 + 2 <= LOCK_LIMITS_BYTES, "the encoding holds every field");
static_assert(offsetof(struct lock_limits, grace_ms_max) == (FIELDS - 1) * 4,
              "every 32-bit field has a row");

static uint32_t field_of(const struct lock_limits *limits, const struct field *field)
{
    uint32_t value;
    memcpy(&value, (const uint8_t *)limits + field->offset, sizeof(value));
    return value;
}

static void put_le(uint8_t *bytes, uint32_t value, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bytes[i] = (uint8_t)(value >> (8 * i));
    }
}

static uint32_t get_le(const uint8_t *bytes, size_t count)
{
    uint32_t value = 0;
    for (size_t i = 0; i < count; i++) {
        value |= (uint32_t)bytes[i] << (8 * i);
    }
    return value;
}

void lock_limits_encode(const struct lock_limits *limits, uint8_t bytes[LOCK_LIMITS_BYTES])
{
    memset(bytes, 0, LOCK_LIMITS_BYTES);
    for (size_t i = 0; i < FIELDS; i++) {
        put_le(bytes + 4 * i, field_of(limits, &fields[i]), 4);
    }
    put_le(bytes + 4 * FIELDS, limits->token_epoch, 2);
}

bool lock_limits_decode(struct lock_limits *limits, const uint8_t *bytes, size_t length)
{
    if (length != LOCK_LIMITS_BYTES) {
        return false;
    }
    for (size_t i = 4 * FIELDS + 2; i < LOCK_LIMITS_BYTES; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    memset(limits, 0, sizeof(*limits));
    for (size_t i = 0; i < FIELDS; i++) {
        uint32_t value = get_le(bytes + 4 * i, 4);
        memcpy((uint8_t *)limits + fields[i].offset, &value, sizeof(value));
    }
    limits->token_epoch = (uint16_t)get_le(bytes + 4 * FIELDS, 2);
    return true;
}

static uint32_t at_least(uint32_t value, uint32_t least)
{
    return value < least ? least : value;
}

static uint32_t at_most(uint32_t value, uint32_t most)
{
    return value > most ? most : value;
}

struct lock_limits lock_limits_for(uint32_t leases)
{
    leases = at_most(at_least(leases, 1), RECORDS_MAX);
    uint32_t sessions = at_least(leases / 16, 1024);
    uint32_t waiters = at_least(leases / 16, 8192);
    return (struct lock_limits){
        .leases_max = leases,
        .resources_max = leases,
        .sessions_max = sessions,
        .waiters_max = waiters,
        .answers_max = at_most(sessions, RECORDS_MAX / 16) * 16,
        .long_names_max = at_least(leases / 16, 256),
        .extras_max = at_least(leases / 16, 1024),
        .window = 64,
        .queue_max = waiters,
        .ttl_ms_min = 10,
        .ttl_ms_max = DAY_MS,
        .session_ttl_ms_min = 10,
        .session_ttl_ms_max = DAY_MS,
        .wait_ms_max = DAY_MS,
        .lock_delay_ms_max = HOUR_MS,
        .grace_ms_max = HOUR_MS,
        .token_epoch = 1,
    };
}

const char *lock_limits_check(const struct lock_limits *limits)
{
    for (size_t i = 0; i < FIELDS; i++) {
        uint32_t value = field_of(limits, &fields[i]);
        if (value < fields[i].least || value > fields[i].most) {
            return fields[i].wrong;
        }
    }
    if (limits->ttl_ms_min > limits->ttl_ms_max) {
        return "ttl_ms_min must not exceed ttl_ms_max";
    }
    if (limits->session_ttl_ms_min > limits->session_ttl_ms_max) {
        return "session_ttl_ms_min must not exceed session_ttl_ms_max";
    }
    if (limits->queue_max > limits->waiters_max) {
        return "queue_max must not exceed waiters_max";
    }
    if (limits->zero != 0) {
        return "the reserved field of the limits must be zero";
    }
    return NULL;
}

bool lock_limits_fit(const struct lock_limits *limits, const struct lock_limits *capacity)
{
    return limits->leases_max <= capacity->leases_max &&
           limits->resources_max <= capacity->resources_max &&
           limits->sessions_max <= capacity->sessions_max &&
           limits->waiters_max <= capacity->waiters_max &&
           limits->answers_max <= capacity->answers_max &&
           limits->long_names_max <= capacity->long_names_max &&
           limits->extras_max <= capacity->extras_max && limits->window <= capacity->window;
}
