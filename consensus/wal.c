/* SPDX-License-Identifier: Apache-2.0
 *
 * The WAL's writer. Two frame buffers: one may be in flight while the other fills.
 */
#include "consensus/plant.h"
#include "consensus/wal_format.h"

#include <errno.h>

struct wal_slot {
    struct wal_replica state;  /* as of the last record added; replica_id 0 = free */
    uint64_t last_index;       /* of its log, as of the last record added */
    uint64_t carry_next;       /* wal_carry: the next entry to repeat; 0 = not at it */
    uint64_t carry_generation; /* where the first of them went */
};

struct wal_buffer {
    uint8_t *bytes;      /* frame_bytes_max long */
    uint32_t filled;     /* header included; 0 = not begun */
    uint32_t records;    /* head included */
    uint64_t sequence;   /* of its frame */
    uint64_t generation; /* place: fixed when the frame is begun, for the one before is sealed */
    uint64_t offset;     /* in the segment */
    uint64_t live;       /* live generation it states (sealed only) */
};

struct wal_writer {
    struct wal_options options;
    struct wal_buffer buffers[2];
    uint32_t filling; /* buffers[filling] takes records, the other may be in flight */
    bool in_flight;
    int error;             /* a write failed: nothing is added or written any more */
    uint64_t generation;   /* newest one begun; 0 = none */
    uint64_t next_offset;  /* where the next frame of that generation would start */
    uint64_t sequence;     /* last one given to a frame */
    uint64_t durable;      /* last one reported durable */
    uint64_t live_durable; /* stated by that frame: generations below it may be overwritten */
    uint64_t bytes_written;
    uint32_t slots_used;
    uint32_t head_bytes; /* of all replicas' state records */
    uint64_t *ids; /* replicas_max: slots[i].state.replica_id, close together for the search */
    struct wal_slot *slots; /* replicas_max */
    uint64_t
        *highest; /* [segment][slot]: highest index of an entry there that is still in the log */
};

/* ---- init ------------------------------------------------------------------------------------ */

static size_t wal_align64(size_t bytes)
{
    return (bytes + 63u) & ~(size_t)63u;
}

size_t wal_memory_bytes(const struct wal_options *options)
{
    return 2 * (size_t)options->frame_bytes_max + wal_align64(sizeof(struct wal_writer)) +
           wal_align64(options->replicas_max * sizeof(struct wal_slot)) +
           wal_align64(options->replicas_max * sizeof(uint64_t)) +
           (size_t)options->replicas_max * options->segments_count * sizeof(uint64_t);
}

struct wal_writer *wal_writer_init(void *memory, const struct wal_options *options)
{
    uint8_t *next = (uint8_t *)memory + 2 * (size_t)options->frame_bytes_max;
    struct wal_writer *writer = (struct wal_writer *)next;

    assert(wal_options_check(options) == NULL);
    assert((uintptr_t)memory % options->block_bytes == 0);
    memset(memory, 0, wal_memory_bytes(options));
    writer->options = *options;
    writer->buffers[0].bytes = memory;
    writer->buffers[1].bytes = (uint8_t *)memory + options->frame_bytes_max;
    next += wal_align64(sizeof *writer);
    writer->slots = (struct wal_slot *)next;
    next += wal_align64(options->replicas_max * sizeof(struct wal_slot));
    writer->ids = (uint64_t *)next;
    next += wal_align64(options->replicas_max * sizeof(uint64_t));
    writer->highest = (uint64_t *)next;
    writer->live_durable = 1;
    return writer;
}

/* ---- the table of replicas ------------------------------------------------------------------- */

static struct wal_slot *wal_slot_find(const struct wal_writer *writer, uint64_t replica_id)
{
    for (uint32_t i = 0; i < writer->options.replicas_max && replica_id != 0; i++) {
        if (writer->ids[i] == replica_id) {
            return &writer->slots[i];
        }
    }
    return NULL;
}

static uint64_t *wal_highest(const struct wal_writer *writer, uint32_t segment,
                             const struct wal_slot *slot)
{
    return &writer->highest[(size_t)segment * writer->options.replicas_max +
                            (size_t)(slot - writer->slots)];
}

/* Entries from first_removed on are no longer in the log: no segment is kept for them. */
static void wal_slot_lower(struct wal_writer *writer, struct wal_slot *slot, uint64_t first_removed)
{
    for (uint32_t segment = 0; segment < writer->options.segments_count; segment++) {
        uint64_t *highest = wal_highest(writer, segment, slot);

        if (*highest >= first_removed) {
            *highest = first_removed - 1;
        }
    }
    if (slot->last_index >= first_removed) {
        slot->last_index = first_removed - 1;
    }
    if (slot->carry_next > first_removed) {
        slot->carry_next = first_removed;
    }
}

/* Whether a replica needs an entry that lies in the segment. */
static bool wal_slot_needs(const struct wal_writer *writer, const struct wal_slot *slot,
                           uint32_t segment)
{
    return slot->state.replica_id != 0 &&
           *wal_highest(writer, segment, slot) > slot->state.base.index;
}

static bool wal_segment_needed(const struct wal_writer *writer, uint32_t segment)
{
    for (uint32_t i = 0; i < writer->options.replicas_max; i++) {
        if (wal_slot_needs(writer, &writer->slots[i], segment)) {
            return true;
        }
    }
    return false;
}

/* Oldest generation needed if everything added so far is durable. Dropping goes in order, so a CUT
 * record never goes before the entries that it cuts. */
static uint64_t wal_live_generation(const struct wal_writer *writer)
{
    uint64_t live = writer->live_durable;

    while (live < writer->generation &&
           !wal_segment_needed(writer, wal_segment_of(live, writer->options.segments_count))) {
        live++;
    }
    return live;
}

/* ---- frames ---------------------------------------------------------------------------------- */

static struct wal_buffer *wal_filling(struct wal_writer *writer)
{
    return &writer->buffers[writer->filling];
}

static uint32_t wal_free_segments(const struct wal_writer *writer)
{
    if (writer->generation == 0) {
        return writer->options.segments_count;
    }
    return (uint32_t)(writer->options.segments_count -
                      (writer->generation - writer->live_durable + 1));
}

/* A frame is begun before its length is known, so the segment must have room for the longest. */
static bool wal_segment_is_full(const struct wal_writer *writer)
{
    return writer->generation == 0 ||
           writer->next_offset + writer->options.frame_bytes_max > writer->options.segment_bytes;
}

static size_t wal_state_bytes(const struct wal_replica *state)
{
    return sizeof(struct wal_record) + sizeof(struct wal_body_state) +
           wal_pad8(state->configuration_bytes);
}

/* Room for records in the frame being filled, or in the one that would be begun now. */
static size_t wal_room(const struct wal_writer *writer)
{
    const struct wal_buffer *buffer = &writer->buffers[writer->filling];

    if (buffer->filled > 0) {
        return writer->options.frame_bytes_max - buffer->filled;
    }
    return writer->options.frame_bytes_max - sizeof(struct wal_frame) -
           (wal_segment_is_full(writer) ? writer->head_bytes : 0);
}

static void *wal_put(struct wal_buffer *buffer, enum wal_record_kind kind, uint16_t flags,
                     uint64_t replica_id, size_t bytes)
{
    struct wal_record *record = (struct wal_record *)(buffer->bytes + buffer->filled);

    record->kind = (uint16_t)kind;
    record->flags = flags;
    record->bytes = (uint32_t)bytes;
    record->replica_id = replica_id;
    buffer->filled += (uint32_t)bytes;
    buffer->records++;
    return record + 1;
}

static void wal_put_padded(uint8_t *to, const uint8_t *bytes, size_t length)
{
    if (length > 0) {
        memcpy(to, bytes, length);
        memset(to + length, 0, wal_pad8(length) - length);
    }
}

static void wal_put_state(struct wal_buffer *buffer, const struct wal_replica *state,
                          uint16_t flags)
{
    struct wal_body_state *body =
        wal_put(buffer, WAL_RECORD_STATE, flags, state->replica_id, wal_state_bytes(state));

    memset(body, 0, sizeof *body);
    body->shard = state->shard;
    body->configuration_bytes = state->configuration_bytes;
    body->hard = state->hard;
    body->base = state->base;
    wal_put_padded((uint8_t *)(body + 1), state->configuration, state->configuration_bytes);
}

static void wal_begin_segment(struct wal_writer *writer)
{
    uint32_t segment;

    writer->generation++;
    writer->next_offset = 0;
    segment = wal_segment_of(writer->generation, writer->options.segments_count);
    memset(&writer->highest[(size_t)segment * writer->options.replicas_max], 0,
           writer->options.replicas_max * sizeof(uint64_t));
}

static void wal_begin_frame(struct wal_writer *writer)
{
    struct wal_buffer *buffer = wal_filling(writer);
    bool head = wal_segment_is_full(writer);

    if (head) {
        assert(wal_free_segments(writer) > 0);
        wal_begin_segment(writer);
    }
    buffer->filled = sizeof(struct wal_frame);
    buffer->records = 0;
    buffer->sequence = ++writer->sequence;
    buffer->generation = writer->generation;
    buffer->offset = writer->next_offset;
    for (uint32_t i = 0; head && i < writer->options.replicas_max; i++) {
        if (writer->slots[i].state.replica_id != 0 && !PLANTED(segment_without_states)) {
            wal_put_state(buffer, &writer->slots[i].state, WAL_FLAG_HEAD);
        }
    }
}

/* Full: is a frame on its way that will free a segment? */
static int wal_full_error(const struct wal_writer *writer)
{
    const struct wal_buffer *other = &writer->buffers[1 - writer->filling];

    if (writer->in_flight && other->live > writer->live_durable) {
        return -ENOBUFS;
    }
    if (writer->buffers[writer->filling].filled > 0 &&
        wal_live_generation(writer) > writer->live_durable) {
        return -ENOBUFS;
    }
    return -ENOSPC;
}

/* Who may use the last room of a WAL that fills up: each kind leaves some to those below it. */
enum wal_claim {
    WAL_CLAIM_ENTRIES, /* leave a whole segment */
    WAL_CLAIM_STATE,   /* votes, new replicas, what is carried: leave half of the last segment */
    WAL_CLAIM_FREEING, /* snapshots, cuts, drops: what makes room again */
};

static bool wal_claim_fits(const struct wal_writer *writer, enum wal_claim claim)
{
    const struct wal_buffer *buffer = &writer->buffers[writer->filling];
    bool begins = buffer->filled == 0;
    bool opens = begins && wal_segment_is_full(writer);
    uint64_t offset = opens ? 0 : begins ? writer->next_offset : buffer->offset;
    uint32_t left = wal_free_segments(writer);

    if (opens && left == 0) {
        return false;
    }
    left -= opens ? 1 : 0;
    switch (claim) {
    case WAL_CLAIM_ENTRIES:
        return left > 0;
    case WAL_CLAIM_STATE:
        return left > 0 || offset < writer->options.segment_bytes / 2;
    case WAL_CLAIM_FREEING:
        break;
    }
    return true;
}

/* Makes sure that the frame being filled has room for a record of `bytes`. */
static int wal_make_room(struct wal_writer *writer, size_t bytes, enum wal_claim claim)
{
    if (writer->error != 0) {
        return writer->error;
    }
    if (bytes > writer->options.frame_bytes_max - sizeof(struct wal_frame) - writer->head_bytes) {
        return -EMSGSIZE;
    }
    if (!wal_claim_fits(writer, claim)) {
        return wal_full_error(writer);
    }
    if (wal_room(writer) < bytes) {
        return -ENOBUFS;
    }
    if (wal_filling(writer)->filled == 0) {
        wal_begin_frame(writer);
    }
    return 0;
}

/* ---- adding records -------------------------------------------------------------------------- */

int64_t wal_add_state(struct wal_writer *writer, const struct wal_replica *state)
{
    struct wal_slot *slot = NULL;
    int error;

    if (state->replica_id == 0 || state->base.index == UINT64_MAX ||
        state->base.position % 8 != 0 ||
        state->configuration_bytes > RAFT_CONFIGURATION_BYTES_MAX) {
        return -EINVAL;
    }
    if (wal_slot_find(writer, state->replica_id) != NULL) {
        return -EEXIST;
    }
    for (uint32_t i = 0; i < writer->options.replicas_max && slot == NULL; i++) {
        if (writer->ids[i] == 0) {
            slot = &writer->slots[i];
        }
    }
    if (slot == NULL) {
        return -E2BIG;
    }
    error = wal_make_room(writer, wal_state_bytes(state), WAL_CLAIM_STATE);
    if (error != 0) {
        return error;
    }
    wal_put_state(wal_filling(writer), state, 0);
    slot->state = *state;
    slot->last_index = state->base.index;
    writer->ids[slot - writer->slots] = state->replica_id;
    writer->head_bytes += (uint32_t)wal_state_bytes(state);
    writer->slots_used++;
    return (int64_t)wal_filling(writer)->sequence;
}

int64_t wal_add_replica(struct wal_writer *writer, uint64_t replica_id, uint16_t shard)
{
    struct wal_replica state = {.replica_id = replica_id, .shard = shard};

    return wal_add_state(writer, &state);
}

int64_t wal_add_hard(struct wal_writer *writer, uint64_t replica_id, uint64_t term, uint64_t vote)
{
    struct wal_slot *slot = wal_slot_find(writer, replica_id);
    struct raft_hard_state hard = {.term = term, .vote = vote};
    size_t bytes = sizeof(struct wal_record) + sizeof hard;
    int error;

    if (slot == NULL) {
        return -ENOENT;
    }
    /* A term never falls and its vote never changes (thesis 3.4): two votes in one term are two
     * leaders. */
    if (term < slot->state.hard.term ||
        (term == slot->state.hard.term && slot->state.hard.vote != 0 &&
         vote != slot->state.hard.vote)) {
        return -EINVAL;
    }
    error = wal_make_room(writer, bytes, WAL_CLAIM_STATE);
    if (error != 0) {
        return error;
    }
    memcpy(wal_put(wal_filling(writer), WAL_RECORD_HARD, 0, replica_id, bytes), &hard, sizeof hard);
    slot->state.hard = hard;
    return (int64_t)wal_filling(writer)->sequence;
}

size_t wal_entries_bytes_max(const struct wal_writer *writer)
{
    return writer->options.frame_bytes_max - sizeof(struct wal_frame) - writer->head_bytes -
           sizeof(struct wal_record);
}

/* Copies `bytes` of entries, the last of which is `last`, into the frame: it has room. */
static void wal_put_entries(struct wal_writer *writer, const struct wal_slot *slot, uint16_t flags,
                            const struct log_entry *entries, size_t bytes, uint64_t last)
{
    struct wal_buffer *buffer = wal_filling(writer);
    uint32_t segment = wal_segment_of(buffer->generation, writer->options.segments_count);
    uint64_t *highest = wal_highest(writer, segment, slot);

    memcpy(wal_put(buffer, WAL_RECORD_ENTRIES, flags, slot->state.replica_id,
                   sizeof(struct wal_record) + bytes),
           entries, bytes);
    if (*highest < last) {
        *highest = last;
    }
}

int64_t wal_add_entries(struct wal_writer *writer, uint64_t replica_id,
                        const struct log_entry *entries, size_t bytes)
{
    struct wal_slot *slot = wal_slot_find(writer, replica_id);
    uint64_t first = 0;
    uint64_t last = 0;
    int error;

    if (slot == NULL) {
        return -ENOENT;
    }
    if (!wal_entries_judge((const uint8_t *)entries, bytes, &first, &last) ||
        first != slot->last_index + 1) {
        return -EINVAL;
    }
    error = wal_make_room(writer, sizeof(struct wal_record) + bytes, WAL_CLAIM_ENTRIES);
    if (error != 0) {
        return error;
    }
    wal_put_entries(writer, slot, 0, entries, bytes, last);
    slot->last_index = last;
    return (int64_t)wal_filling(writer)->sequence;
}

/* The longest run of entries first..last that lies in one piece and fits into this frame; 0 if not
 * even the first does. */
static size_t wal_run_bytes(const struct wal_writer *writer, const struct log *log, uint64_t first,
                            uint64_t last, uint64_t *run_last)
{
    const struct log_entry *start = log_at(log, first);
    size_t room = wal_room(writer);
    size_t bytes = 0;

    assert(start != NULL);
    for (uint64_t index = first; index <= last; index++) {
        const struct log_entry *entry = log_at(log, index);
        size_t entry_bytes = log_entry_bytes(entry->payload_bytes);

        if ((const uint8_t *)entry != (const uint8_t *)start + bytes ||
            sizeof(struct wal_record) + bytes + entry_bytes > room) {
            break;
        }
        bytes += entry_bytes;
        *run_last = index;
    }
    return bytes;
}

int64_t wal_add_log(struct wal_writer *writer, uint64_t replica_id, const struct log *log,
                    uint64_t first, uint64_t last, uint64_t *added_last)
{
    int64_t sequence = -ENOBUFS;

    assert(first <= last);
    while (first <= last) {
        uint64_t run_last = first - 1;
        size_t bytes = wal_run_bytes(writer, log, first, last, &run_last);
        int64_t result;

        if (bytes == 0) {
            return sequence;
        }
        result = wal_add_entries(writer, replica_id, log_at(log, first), bytes);
        if (result < 0) {
            return sequence > 0 ? sequence : result;
        }
        sequence = result;
        *added_last = run_last;
        first = run_last + 1;
    }
    return sequence;
}

/* Everything was repeated: what lies before its first repetition holds up nothing any more. */
static void wal_carried(struct wal_writer *writer, struct wal_slot *slot)
{
    for (uint64_t g = writer->live_durable; g < slot->carry_generation; g++) {
        *wal_highest(writer, wal_segment_of(g, writer->options.segments_count), slot) = 0;
    }
    slot->carry_next = 0;
}

/* One run of entries; 0, or an error. */
static int wal_carry_run(struct wal_writer *writer, struct wal_slot *slot, const struct log *log)
{
    uint64_t run_last = 0;
    size_t bytes = wal_run_bytes(writer, log, slot->carry_next, slot->last_index, &run_last);
    int error;

    if (bytes == 0) {
        return -ENOBUFS;
    }
    error = wal_make_room(writer, sizeof(struct wal_record) + bytes, WAL_CLAIM_STATE);
    if (error != 0) {
        return error;
    }
    if (slot->carry_generation == 0) {
        slot->carry_generation = wal_filling(writer)->generation;
    }
    wal_put_entries(writer, slot, WAL_FLAG_CARRIED, log_at(log, slot->carry_next), bytes, run_last);
    slot->carry_next = run_last + 1;
    return 0;
}

int64_t wal_carry(struct wal_writer *writer, uint64_t replica_id, const struct log *log)
{
    struct wal_slot *slot = wal_slot_find(writer, replica_id);
    int error = 0;

    if (slot == NULL) {
        return -ENOENT;
    }
    if (log->last_index < slot->last_index || log->base.index > slot->state.base.index) {
        return -EAGAIN;
    }
    if (slot->carry_next == 0) {
        slot->carry_next = slot->state.base.index + 1;
        slot->carry_generation = 0;
    } else if (slot->carry_next <= slot->state.base.index) {
        slot->carry_next = slot->state.base.index + 1;
    }
    while (slot->carry_next <= slot->last_index) {
        error = wal_carry_run(writer, slot, log);
        if (error != 0) {
            return error;
        }
    }
    if (slot->carry_generation != 0) {
        wal_carried(writer, slot);
    }
    slot->carry_next = 0;
    return 0;
}

int64_t wal_add_cut(struct wal_writer *writer, uint64_t replica_id, uint64_t first_index_removed)
{
    struct wal_slot *slot = wal_slot_find(writer, replica_id);
    size_t bytes = sizeof(struct wal_record) + sizeof first_index_removed;
    int error;

    if (slot == NULL) {
        return -ENOENT;
    }
    if (first_index_removed <= slot->state.base.index) {
        return -EINVAL;
    }
    error = wal_make_room(writer, bytes, WAL_CLAIM_FREEING);
    if (error != 0) {
        return error;
    }
    memcpy(wal_put(wal_filling(writer), WAL_RECORD_CUT, 0, replica_id, bytes), &first_index_removed,
           sizeof first_index_removed);
    wal_slot_lower(writer, slot, first_index_removed);
    return (int64_t)wal_filling(writer)->sequence;
}

static int64_t wal_add_base(struct wal_writer *writer, enum wal_record_kind kind,
                            uint64_t replica_id, const struct log_base *base,
                            const uint8_t *configuration, size_t configuration_bytes)
{
    struct wal_slot *slot = wal_slot_find(writer, replica_id);
    size_t bytes =
        sizeof(struct wal_record) + sizeof(struct wal_body_base) + wal_pad8(configuration_bytes);
    struct wal_body_base *body;
    int error;

    if (slot == NULL) {
        return -ENOENT;
    }
    if (base->index < slot->state.base.index || base->index == UINT64_MAX ||
        base->position % 8 != 0 || configuration_bytes > RAFT_CONFIGURATION_BYTES_MAX) {
        return -EINVAL;
    }
    error = wal_make_room(writer, bytes, WAL_CLAIM_FREEING);
    if (error != 0) {
        return error;
    }
    body = wal_put(wal_filling(writer), kind, 0, replica_id, bytes);
    memset(body, 0, sizeof *body);
    body->configuration_bytes = (uint16_t)configuration_bytes;
    body->base = *base;
    wal_put_padded((uint8_t *)(body + 1), configuration, configuration_bytes);
    writer->head_bytes -= (uint32_t)wal_state_bytes(&slot->state);
    slot->state.base = *base;
    slot->state.configuration_bytes = (uint16_t)configuration_bytes;
    memset(slot->state.configuration, 0, sizeof slot->state.configuration);
    if (configuration_bytes > 0) {
        memcpy(slot->state.configuration, configuration, configuration_bytes);
    }
    writer->head_bytes += (uint32_t)wal_state_bytes(&slot->state);
    return (int64_t)wal_filling(writer)->sequence;
}

int64_t wal_add_snapshot(struct wal_writer *writer, uint64_t replica_id,
                         const struct log_base *base, const uint8_t *configuration,
                         size_t configuration_bytes)
{
    int64_t sequence = wal_add_base(writer, WAL_RECORD_SNAPSHOT, replica_id, base, configuration,
                                    configuration_bytes);

    if (sequence > 0) {
        struct wal_slot *slot = wal_slot_find(writer, replica_id);

        if (slot->last_index < base->index) {
            slot->last_index = base->index;
        }
    }
    return sequence;
}

int64_t wal_add_install(struct wal_writer *writer, uint64_t replica_id, const struct log_base *base,
                        const uint8_t *configuration, size_t configuration_bytes)
{
    int64_t sequence = wal_add_base(writer, WAL_RECORD_INSTALL, replica_id, base, configuration,
                                    configuration_bytes);

    if (sequence > 0) {
        struct wal_slot *slot = wal_slot_find(writer, replica_id);

        wal_slot_lower(writer, slot, base->index + 1);
        slot->last_index = base->index;
        slot->carry_next = 0;
    }
    return sequence;
}

int64_t wal_drop_replica(struct wal_writer *writer, uint64_t replica_id)
{
    struct wal_slot *slot = wal_slot_find(writer, replica_id);
    int error;

    if (slot == NULL) {
        return -ENOENT;
    }
    error = wal_make_room(writer, sizeof(struct wal_record), WAL_CLAIM_FREEING);
    if (error != 0) {
        return error;
    }
    wal_put(wal_filling(writer), WAL_RECORD_DROP, 0, replica_id, sizeof(struct wal_record));
    wal_slot_lower(writer, slot, 1);
    writer->ids[slot - writer->slots] = 0;
    writer->head_bytes -= (uint32_t)wal_state_bytes(&slot->state);
    memset(slot, 0, sizeof *slot);
    writer->slots_used--;
    return (int64_t)wal_filling(writer)->sequence;
}

/* ---- writing --------------------------------------------------------------------------------- */

bool wal_next_write(struct wal_writer *writer, struct wal_write *write)
{
    struct wal_buffer *buffer = wal_filling(writer);
    uint32_t block = writer->options.block_bytes;
    uint32_t bytes = (uint32_t)wal_pad_block(buffer->filled, block);
    struct wal_frame header = {.magic = WAL_FRAME_MAGIC, .version = WAL_FORMAT_VERSION};

    if (writer->in_flight || buffer->filled == 0 || writer->error != 0) {
        return false;
    }
    buffer->live = wal_live_generation(writer);
    header.identity = writer->options.identity;
    header.generation = buffer->generation;
    header.sequence = buffer->sequence;
    header.live_generation = buffer->live;
    header.offset = buffer->offset;
    header.segment = wal_segment_of(buffer->generation, writer->options.segments_count);
    header.bytes = buffer->filled;
    header.records = buffer->records;
    header.checksum = wal_frame_checksum(buffer->bytes, &header);
    memcpy(buffer->bytes, &header, sizeof header);
    memset(buffer->bytes + buffer->filled, 0, bytes - buffer->filled);

    *write = (struct wal_write){.segment = header.segment,
                                .bytes = bytes,
                                .offset = buffer->offset,
                                .buffer = buffer->bytes,
                                .sequence = buffer->sequence};
    writer->next_offset = buffer->offset + bytes;
    writer->bytes_written += bytes;
    writer->in_flight = true;
    writer->filling = 1 - writer->filling;
    return true;
}

void wal_written(struct wal_writer *writer, uint64_t sequence, int result)
{
    struct wal_buffer *buffer = &writer->buffers[1 - writer->filling];

    assert(writer->in_flight && buffer->sequence == sequence && result <= 0);
    writer->in_flight = false;
    buffer->filled = 0;
    if (result != 0) {
        writer->error = result;
        return;
    }
    writer->durable = sequence;
    writer->live_durable = buffer->live;
}

/* ---- looking --------------------------------------------------------------------------------- */

uint64_t wal_durable_sequence(const struct wal_writer *writer)
{
    return writer->durable;
}

bool wal_pending(const struct wal_writer *writer)
{
    return writer->buffers[writer->filling].filled > 0 && writer->error == 0;
}

bool wal_in_flight(const struct wal_writer *writer)
{
    return writer->in_flight;
}

int wal_error(const struct wal_writer *writer)
{
    return writer->error;
}

size_t wal_pressure(const struct wal_writer *writer, uint64_t replica_ids[], size_t max)
{
    uint64_t live = wal_live_generation(writer);
    uint32_t count = writer->options.segments_count;
    uint32_t segment;
    size_t stored = 0;

    /* The one being filled is no help to anybody who saves a snapshot. */
    if (writer->generation == 0 || live == writer->generation ||
        2 * (writer->generation - live + 1) < count) {
        return 0;
    }
    segment = wal_segment_of(live, count);
    for (uint32_t i = 0; i < writer->options.replicas_max && stored < max; i++) {
        if (wal_slot_needs(writer, &writer->slots[i], segment)) {
            replica_ids[stored++] = writer->slots[i].state.replica_id;
        }
    }
    return stored;
}

void wal_usage(const struct wal_writer *writer, struct wal_usage *usage)
{
    *usage = (struct wal_usage){.segments_used =
                                    writer->options.segments_count - wal_free_segments(writer),
                                .segments_count = writer->options.segments_count,
                                .replicas = writer->slots_used,
                                .generation = writer->generation,
                                .frames = writer->sequence,
                                .bytes = writer->bytes_written};
}

const struct wal_replica *wal_hosted(const struct wal_writer *writer, uint64_t replica_id)
{
    const struct wal_slot *slot = wal_slot_find(writer, replica_id);

    return slot != NULL ? &slot->state : NULL;
}
