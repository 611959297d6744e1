/* SPDX-License-Identifier: Apache-2.0
 *
 * The log ring; see log.h for the format and its promises.
 */
#include "consensus/log.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { LOG_CHECKSUM_COPY_BYTES = 512 }; /* entries up to this size are hashed from one copy */

static uint64_t log_offset(const struct log *log, uint64_t position)
{
    return position & (log->ring_bytes - 1);
}

static struct log_slot *log_slot_of(const struct log *log, uint64_t index)
{
    return &log->slots[index & (log->slots_count - 1)];
}

static const struct log_entry *log_entry_at(const struct log *log, uint64_t position)
{
    return (const struct log_entry *)(const void *)(log->ring + log_offset(log, position));
}

static bool log_is_power_of_two(uint64_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

size_t log_memory_bytes(uint64_t ring_bytes, uint64_t slots_count)
{
    return (size_t)(ring_bytes + slots_count * sizeof(struct log_slot));
}

void log_init(struct log *log, void *memory, uint64_t ring_bytes, uint64_t slots_count)
{
    assert(log_is_power_of_two(ring_bytes) && ring_bytes >= 1024);
    assert(log_is_power_of_two(slots_count));
    assert(((uintptr_t)memory & 63u) == 0);
    *log = (struct log){
        .ring = memory,
        .ring_bytes = ring_bytes,
        .slots = (struct log_slot *)(void *)((uint8_t *)memory + ring_bytes),
        .slots_count = slots_count,
    };
    log_reset(log, &(struct log_base){0});
}

void log_reset(struct log *log, const struct log_base *base)
{
    assert((base->position & 7u) == 0);
    log->base = *base;
    log->last_index = base->index;
    log->last_term = base->term;
    log->last_checksum = base->checksum;
    log->last_stamp_ns = base->stamp_ns;
    log->end = base->position;
    log->received = base->position;
    log->reserved_bytes = 0;
}

uint64_t log_start_position(const struct log *log, uint64_t end, size_t entry_bytes)
{
    uint64_t room = log->ring_bytes - log_offset(log, end);

    return entry_bytes <= room ? end : end + room;
}

/* Whether an entry of that size may follow, and where it would start. */
static bool log_place(const struct log *log, size_t entry_bytes, uint64_t *position)
{
    if (entry_bytes > log->ring_bytes || log->last_index - log->base.index >= log->slots_count)
        return false;
    *position = log_start_position(log, log->end, entry_bytes);
    return *position + entry_bytes <= log_limit(log);
}

uint8_t *log_reserve(struct log *log, size_t payload_bytes_max)
{
    uint64_t position;

    if (payload_bytes_max > log->ring_bytes ||
        !log_place(log, log_entry_bytes(payload_bytes_max), &position))
        return NULL;
    log->reserved_position = position;
    log->reserved_bytes = payload_bytes_max + 1;
    return log->ring + log_offset(log, position) + sizeof(struct log_entry);
}

/* Everything about the new last entry but its bytes. */
static void log_extend(struct log *log, uint64_t position, const struct log_entry *entry)
{
    *log_slot_of(log, entry->index) = (struct log_slot){position, entry->term};
    log->last_index = entry->index;
    log->last_term = entry->term;
    log->last_checksum = entry->checksum;
    log->last_stamp_ns = entry->stamp_ns;
    log->end = position + log_entry_bytes(entry->payload_bytes);
    if (log->received < log->end)
        log->received = log->end;
}

const struct log_entry *log_append(struct log *log, uint16_t kind, uint64_t term, uint64_t stamp_ns,
                                   size_t payload_bytes)
{
    size_t bytes = log_entry_bytes(payload_bytes);
    uint64_t position = log_start_position(log, log->end, bytes);
    uint8_t *place = log->ring + log_offset(log, position);
    uint8_t *payload = place + sizeof(struct log_entry);
    struct log_entry *entry = (struct log_entry *)(void *)place;

    assert(payload_bytes < log->reserved_bytes);
    assert(term >= log->last_term && stamp_ns >= log->last_stamp_ns);
    /* A position is a function of the log alone: if the real payload fits before the ring's end
     * although the largest one would not have, the entry belongs there. */
    if (position != log->reserved_position)
        memmove(payload,
                log->ring + log_offset(log, log->reserved_position) + sizeof(struct log_entry),
                payload_bytes);
    memset(payload + payload_bytes, 0, bytes - sizeof(struct log_entry) - payload_bytes);
    *entry = (struct log_entry){
        .payload_bytes = (uint32_t)payload_bytes,
        .kind = kind,
        .index = log->last_index + 1,
        .term = term,
        .stamp_ns = stamp_ns,
    };
    entry->checksum = XXH3_64bits_withSeed(entry, bytes, log->last_checksum);
    log->reserved_bytes = 0;
    log_forget_received(log); /* an owner that appends takes bytes from nobody */
    log_extend(log, position, entry);
    return entry;
}

const struct log_entry *log_at(const struct log *log, uint64_t index)
{
    if (index <= log->base.index || index > log->last_index)
        return NULL;
    return log_entry_at(log, log_slot_of(log, index)->position);
}

uint64_t log_term(const struct log *log, uint64_t index)
{
    if (index == log->base.index)
        return log->base.term;
    if (index < log->base.index || index > log->last_index)
        return 0;
    return log_slot_of(log, index)->term;
}

uint64_t log_end_of(const struct log *log, uint64_t index)
{
    uint64_t position;

    if (index == log->last_index)
        return log->end;
    if (index == log->base.index)
        return log->base.position;
    assert(index > log->base.index && index < log->last_index);
    position = log_slot_of(log, index)->position;
    return position + log_entry_bytes(log_entry_at(log, position)->payload_bytes);
}

void log_cut_above(struct log *log, uint64_t index)
{
    assert(index >= log->base.index && index <= log->last_index);
    if (index == log->last_index) {
        log_forget_received(log);
        return;
    }
    log->reserved_bytes = 0;
    if (index == log->base.index) {
        struct log_base base = log->base;
        log_reset(log, &base);
        return;
    }
    uint64_t position = log_slot_of(log, index)->position;
    log->received = 0; /* log_extend raises it to the new end */
    log_extend(log, position, log_entry_at(log, position));
}

void log_release_to(struct log *log, uint64_t index)
{
    assert(index <= log->last_index);
    if (index <= log->base.index)
        return;
    const struct log_entry *entry = log_at(log, index);
    log->base = (struct log_base){
        .index = index,
        .term = entry->term,
        .position = log_end_of(log, index),
        .checksum = entry->checksum,
        .stamp_ns = entry->stamp_ns,
    };
}

bool log_write(struct log *log, uint64_t position, const uint8_t *bytes, size_t length)
{
    uint64_t end = position + length;

    if (end < position || position > log->received || end > log_limit(log))
        return false;
    if (end <= log->received)
        return true;
    bytes += log->received - position;
    uint64_t offset = log_offset(log, log->received);
    uint64_t rest = end - log->received;
    uint64_t first = log->ring_bytes - offset < rest ? log->ring_bytes - offset : rest;
    memcpy(log->ring + offset, bytes, first);
    memcpy(log->ring, bytes + first, rest - first);
    log->received = end;
    return true;
}

const uint8_t *log_read(const struct log *log, uint64_t position, size_t *length)
{
    uint64_t offset = log_offset(log, position);

    assert(position >= log->base.position && position + *length <= log->end);
    if (*length > log->ring_bytes - offset)
        *length = (size_t)(log->ring_bytes - offset);
    return log->ring + offset;
}

void log_forget_received(struct log *log)
{
    log->received = log->end;
}

/* The checksum an entry with this header and payload must have. The header is the caller's copy:
 * what is judged is what is used, whatever a remote writer does meanwhile. */
static uint64_t log_checksum(const struct log_entry *header, const uint8_t *payload, uint64_t seed)
{
    size_t rest = log_entry_bytes(header->payload_bytes) - sizeof(*header);
    struct log_entry blank = *header;

    blank.checksum = 0;
    if (sizeof(blank) + rest <= LOG_CHECKSUM_COPY_BYTES) {
        uint8_t copy[LOG_CHECKSUM_COPY_BYTES];
        memcpy(copy, &blank, sizeof(blank));
        memcpy(copy + sizeof(blank), payload, rest);
        return XXH3_64bits_withSeed(copy, sizeof(blank) + rest, seed);
    }
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_64bits_reset_withSeed(&state, seed);
    XXH3_64bits_update(&state, &blank, sizeof(blank));
    XXH3_64bits_update(&state, payload, rest);
    return XXH3_64bits_digest(&state);
}

static bool log_header_follows(const struct log *log, const struct log_entry *header,
                               size_t payload_bytes_max)
{
    return header->index == log->last_index + 1 && header->index != 0 && header->kind >= LOG_NOOP &&
           header->kind <= LOG_LIMITS && header->zero == 0 &&
           header->payload_bytes <= payload_bytes_max && header->term >= log->last_term &&
           header->term != 0 && header->stamp_ns >= log->last_stamp_ns;
}

bool log_keeps_spare(const struct log *log, uint64_t end)
{
    uint64_t held = log->last_index - log->base.index;

    return end + log->ring_bytes / 16 <= log_limit(log) &&
           held + 1 + log->slots_count / 16 <= log->slots_count;
}

/* Takes the entry at `position` if it is the next one. */
static bool log_adopt_at(struct log *log, uint64_t position, uint64_t until,
                         size_t payload_bytes_max, bool keep_spare)
{
    struct log_entry header;
    uint64_t offset = log_offset(log, position);
    uint64_t place;

    if (log->ring_bytes - offset < sizeof(header) || position + sizeof(header) > until)
        return false;
    memcpy(&header, log->ring + offset, sizeof(header));
    if (!log_header_follows(log, &header, payload_bytes_max))
        return false;
    size_t bytes = log_entry_bytes(header.payload_bytes);
    if (!log_place(log, bytes, &place) || place != position || position + bytes > until)
        return false;
    if (keep_spare && header.kind != LOG_NOOP && !log_keeps_spare(log, position + bytes))
        return false;
    if (log_checksum(&header, log->ring + offset + sizeof(header), log->last_checksum) !=
        header.checksum)
        return false;
    log_extend(log, position, &header);
    return true;
}

static bool log_has_header(const struct log *log, uint64_t position)
{
    struct log_entry header;
    uint64_t offset = log_offset(log, position);

    if (log->ring_bytes - offset < sizeof(header) || position + sizeof(header) > log_limit(log))
        return false;
    memcpy(&header, log->ring + offset, sizeof(header));
    return header.index == log->last_index + 1 && header.term != 0;
}

bool log_sees_next(const struct log *log)
{
    uint64_t offset = log_offset(log, log->end);

    return log_has_header(log, log->end) ||
           (offset != 0 && log_has_header(log, log->end + (log->ring_bytes - offset)));
}

uint64_t log_adopt(struct log *log, uint64_t until, size_t payload_bytes_max, bool keep_spare)
{
    uint64_t adopted = 0;

    for (;;) {
        uint64_t offset = log_offset(log, log->end);
        uint64_t next_lap = log->end + (log->ring_bytes - offset);
        /* Either right behind the last entry, or, if it did not fit there, at the ring's start. */
        if (!log_adopt_at(log, log->end, until, payload_bytes_max, keep_spare) &&
            !(offset != 0 && log_adopt_at(log, next_lap, until, payload_bytes_max, keep_spare)))
            return adopted;
        adopted++;
    }
}

bool log_append_copy(struct log *log, const struct log_entry *entry)
{
    size_t bytes = log_entry_bytes(entry->payload_bytes);
    uint64_t position;

    if (!log_header_follows(log, entry, (size_t)log->ring_bytes) ||
        !log_place(log, bytes, &position))
        return false;
    if (log_checksum(entry, log_entry_payload(entry), log->last_checksum) != entry->checksum)
        return false;
    memcpy(log->ring + log_offset(log, position), entry, bytes);
    log_forget_received(log);
    log_extend(log, position, entry);
    return true;
}
