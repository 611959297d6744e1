/* SPDX-License-Identifier: Apache-2.0
 *
 * Recovery, first half: which frames of a WAL count, and whether what is missing was torn by the
 * crash (the last frame only) or lost to the disk (anything else). Total over any bytes.
 */
#include "consensus/plant.h"
#include "consensus/wal_format.h"

#include <errno.h>

/* What stands at a place where a frame might start. */
enum wal_found {
    WAL_FOUND_FRAME, /* sound, of this WAL and this place */
    WAL_FOUND_ZEROES,
    WAL_FOUND_ELSEWHERE, /* sound, of this WAL, meant for another place */
    WAL_FOUND_BROKEN,    /* a header of this WAL, but the bytes do not fit it */
    WAL_FOUND_GARBAGE,
    WAL_FOUND_ERROR,
};

struct wal_scanner {
    const struct wal_reader *reader;
    struct wal_recovered *out;
    uint64_t generations[WAL_SEGMENTS_MAX]; /* of the frame at a segment's start; 0 = none sound */
};

/* A run of frames of one segment, from its start. */
struct wal_run {
    uint64_t first_sequence;
    uint64_t last_sequence;
    uint64_t frames;
    uint64_t end; /* offset behind the last one */
    uint64_t live;
};

static int wal_damaged(struct wal_recovered *out, enum wal_damage damage, uint32_t segment,
                       uint64_t offset)
{
    out->damage = damage;
    out->damage_segment = segment;
    out->damage_offset = offset;
    return -EBADMSG;
}

static bool wal_header_plausible(const struct wal_reader *reader, const struct wal_frame *header)
{
    return header->magic == WAL_FRAME_MAGIC && header->version == WAL_FORMAT_VERSION &&
           header->identity == reader->identity && header->generation != 0 &&
           header->sequence != 0 && header->bytes > sizeof *header &&
           header->bytes <= WAL_FRAME_BYTES_LIMIT && header->bytes % 8 == 0;
}

static bool wal_all_zero(const uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

/* Reads and judges what stands at a place; on FRAME or ELSEWHERE it lies whole in the scratch. */
static enum wal_found wal_look(const struct wal_reader *reader, uint32_t segment, uint64_t offset,
                               struct wal_frame *header)
{
    if (reader->read(reader->context, segment, offset, reader->scratch, reader->block_bytes) != 0) {
        return WAL_FOUND_ERROR;
    }
    memcpy(header, reader->scratch, sizeof *header);
    if (!wal_header_plausible(reader, header)) {
        return wal_all_zero(reader->scratch, reader->block_bytes) ? WAL_FOUND_ZEROES
                                                                  : WAL_FOUND_GARBAGE;
    }
    if (header->bytes > reader->segment_bytes - offset) {
        return WAL_FOUND_BROKEN;
    }
    if (header->bytes > reader->block_bytes &&
        reader->read(reader->context, segment, offset, reader->scratch, header->bytes) != 0) {
        return WAL_FOUND_ERROR;
    }
    /* Read twice: judge only what is in memory now. */
    if (memcmp(header, reader->scratch, sizeof *header) != 0 ||
        wal_frame_checksum(reader->scratch, header) != header->checksum) {
        return WAL_FOUND_BROKEN;
    }
    if (header->segment != segment || header->offset != offset ||
        wal_segment_of(header->generation, reader->segments_count) != segment ||
        header->live_generation == 0 || header->live_generation > header->generation ||
        header->generation - header->live_generation >= reader->segments_count) {
        return WAL_FOUND_ELSEWHERE;
    }
    return WAL_FOUND_FRAME;
}

/* Names what stands where a frame of (generation, sequence) is missing. */
static enum wal_damage wal_diagnose(const struct wal_reader *reader, uint32_t segment,
                                    uint64_t offset, uint64_t generation, uint64_t sequence)
{
    struct wal_frame header;

    if (offset >= reader->segment_bytes) {
        return WAL_DAMAGE_GARBAGE;
    }
    switch (wal_look(reader, segment, offset, &header)) {
    case WAL_FOUND_FRAME:
        return header.generation < generation || header.sequence < sequence
                   ? WAL_DAMAGE_STALE
                   : WAL_DAMAGE_MISDIRECTED;
    case WAL_FOUND_ELSEWHERE:
        return WAL_DAMAGE_MISDIRECTED;
    case WAL_FOUND_ZEROES:
        return WAL_DAMAGE_ZEROED;
    case WAL_FOUND_BROKEN:
        return WAL_DAMAGE_CHECKSUM;
    case WAL_FOUND_ERROR:
        return WAL_DAMAGE_UNREADABLE;
    case WAL_FOUND_GARBAGE:
        break;
    }
    return WAL_DAMAGE_GARBAGE;
}

/* Follows the frames of one generation from the segment's start. */
static void wal_follow(const struct wal_reader *reader, uint32_t segment, uint64_t generation,
                       struct wal_run *run)
{
    struct wal_frame header;

    *run = (struct wal_run){0};
    while (run->end + reader->block_bytes <= reader->segment_bytes) {
        if (wal_look(reader, segment, run->end, &header) != WAL_FOUND_FRAME ||
            header.generation != generation ||
            (run->frames > 0 &&
             (header.sequence != run->last_sequence + 1 || header.live_generation < run->live))) {
            return;
        }
        if (run->frames == 0) {
            run->first_sequence = header.sequence;
        }
        run->frames++;
        run->last_sequence = header.sequence;
        run->live = header.live_generation;
        run->end += wal_pad_block(header.bytes, reader->block_bytes);
    }
}

/* Looks at every block from `offset` on for a sound frame of this WAL with a later sequence: then
 * what stands before it was not the last write. Only headers are read, but for promising ones. */
static bool wal_later_frame(const struct wal_reader *reader, uint32_t segment, uint64_t offset,
                            uint64_t sequence)
{
    for (; offset + reader->block_bytes <= reader->segment_bytes; offset += reader->block_bytes) {
        struct wal_frame header;
        enum wal_found found;

        if (reader->read(reader->context, segment, offset, reader->scratch, sizeof header) != 0) {
            continue;
        }
        memcpy(&header, reader->scratch, sizeof header);
        if (!wal_header_plausible(reader, &header) || header.sequence <= sequence) {
            continue;
        }
        found = wal_look(reader, segment, offset, &header);
        if ((found == WAL_FOUND_FRAME || found == WAL_FOUND_ELSEWHERE) &&
            header.sequence > sequence) {
            return true;
        }
    }
    return false;
}

static bool wal_reader_sound(const struct wal_reader *reader)
{
    return reader->identity != 0 && reader->segments_count >= WAL_SEGMENTS_MIN &&
           reader->segments_count <= WAL_SEGMENTS_MAX && reader->block_bytes >= WAL_BLOCK_BYTES &&
           reader->block_bytes <= 65536 && (reader->block_bytes & (reader->block_bytes - 1)) == 0 &&
           reader->segment_bytes >= reader->block_bytes &&
           reader->segment_bytes <= UINT64_C(1) << 40 &&
           reader->segment_bytes % reader->block_bytes == 0;
}

/* Notes which generation each segment starts with; returns the newest, 0 = none. */
static uint64_t wal_survey(struct wal_scanner *scanner)
{
    uint64_t newest = 0;

    for (uint32_t segment = 0; segment < scanner->reader->segments_count; segment++) {
        struct wal_frame header;

        if (wal_look(scanner->reader, segment, 0, &header) != WAL_FOUND_FRAME) {
            continue;
        }
        scanner->generations[segment] = header.generation;
        if (header.generation > newest) {
            newest = header.generation;
        }
    }
    return newest;
}

/* What stands where the next frame would have been written. A crash tears writes, it does not make
 * sectors unreadable: an unreadable one may have been acknowledged. */
static int wal_judge_tail(struct wal_scanner *scanner, uint32_t segment, uint64_t offset)
{
    struct wal_frame header;

    if (offset + scanner->reader->block_bytes > scanner->reader->segment_bytes) {
        return 0;
    }
    switch (wal_look(scanner->reader, segment, offset, &header)) {
    case WAL_FOUND_ERROR:
        return wal_damaged(scanner->out, WAL_DAMAGE_UNREADABLE, segment, offset);
    case WAL_FOUND_BROKEN:
        scanner->out->cut = scanner->out->cut || header.sequence > scanner->out->sequence_last;
        return 0;
    default:
        return 0;
    }
}

/* Nothing may come after the last frame: neither behind it in its segment nor in another one whose
 * start was lost (zeroed, damaged, or still showing an older lap because the write never arrived).
 */
static int wal_judge_end(struct wal_scanner *scanner)
{
    const struct wal_reader *reader = scanner->reader;
    struct wal_recovered *out = scanner->out;
    bool blank = out->sequence_last == 0;
    int error;

    for (uint32_t segment = 0; segment < reader->segments_count; segment++) {
        bool last = !blank && segment == out->end_segment;
        uint64_t offset = last ? out->end_offset : 0;
        uint64_t generation = out->generation_last + (last ? 0 : 1);

        if (wal_later_frame(reader, segment, offset, out->sequence_last) &&
            !PLANTED(corruption_cut)) {
            return wal_damaged(
                out, wal_diagnose(reader, segment, offset, generation, out->sequence_last + 1),
                segment, offset);
        }
    }
    error = blank ? 0 : wal_judge_tail(scanner, out->end_segment, out->end_offset);
    if (error == 0) {
        error = wal_judge_tail(scanner,
                               wal_segment_of(out->generation_last + 1, reader->segments_count), 0);
    }
    return error;
}

/* Every generation from `live` on must be whole and continue the one before. Walks backwards, so
 * that each run is known to end where the next one begins. */
static int wal_judge_older(struct wal_scanner *scanner, uint64_t newest, uint64_t live,
                           uint64_t next_sequence)
{
    const struct wal_reader *reader = scanner->reader;
    struct wal_recovered *out = scanner->out;

    for (uint64_t generation = newest - 1; generation >= live && generation > 0; generation--) {
        uint32_t segment = wal_segment_of(generation, reader->segments_count);
        struct wal_run run = {0};

        if (scanner->generations[segment] == generation) {
            wal_follow(reader, segment, generation, &run);
        }
        if (run.frames == 0 || run.last_sequence + 1 != next_sequence) {
            return wal_damaged(out,
                               wal_diagnose(reader, segment, run.end, generation,
                                            run.frames > 0 ? run.last_sequence + 1 : 1),
                               segment, run.end);
        }
        next_sequence = run.first_sequence;
        out->frames += run.frames;
        out->generation_first = generation;
        out->sequence_first = run.first_sequence;
    }
    return 0;
}

int wal_scan(const struct wal_reader *reader, struct wal_recovered *out)
{
    struct wal_scanner scanner = {.reader = reader, .out = out};
    struct wal_run run;
    uint64_t newest;
    uint32_t segment;
    int error;

    *out = (struct wal_recovered){0};
    if (!wal_reader_sound(reader)) {
        return -EINVAL;
    }
    newest = wal_survey(&scanner);
    if (newest == 0) {
        return wal_judge_end(&scanner);
    }
    segment = wal_segment_of(newest, reader->segments_count);
    wal_follow(reader, segment, newest, &run);
    if (run.frames == 0) { /* changed between two looks */
        return wal_damaged(out, WAL_DAMAGE_UNREADABLE, segment, 0);
    }
    out->generation_first = out->generation_last = newest;
    out->sequence_first = run.first_sequence;
    out->sequence_last = run.last_sequence;
    out->frames = run.frames;
    out->end_segment = segment;
    out->end_offset = run.end;
    error = wal_judge_end(&scanner);
    if (error != 0) {
        return error;
    }
    return wal_judge_older(&scanner, newest, run.live, run.first_sequence);
}

/* ---- replay ---------------------------------------------------------------------------------- */

static bool wal_view_base(struct wal_record_view *view, const uint8_t *body, size_t length)
{
    struct wal_body_base base;

    if (length < sizeof base) {
        return false;
    }
    memcpy(&base, body, sizeof base);
    if (base.configuration_bytes > RAFT_CONFIGURATION_BYTES_MAX ||
        length != sizeof base + wal_pad8(base.configuration_bytes)) {
        return false;
    }
    memset(&view->state, 0, sizeof view->state);
    view->state.replica_id = view->replica_id;
    view->state.base = base.base;
    view->state.configuration_bytes = base.configuration_bytes;
    memcpy(view->state.configuration, body + sizeof base, base.configuration_bytes);
    return base.base.index != UINT64_MAX && base.base.position % 8 == 0;
}

static bool wal_view_state(struct wal_record_view *view, const uint8_t *body, size_t length)
{
    struct wal_body_state state;

    if (length < sizeof state) {
        return false;
    }
    memcpy(&state, body, sizeof state);
    if (state.configuration_bytes > RAFT_CONFIGURATION_BYTES_MAX ||
        length != sizeof state + wal_pad8(state.configuration_bytes)) {
        return false;
    }
    memset(&view->state, 0, sizeof view->state);
    view->state.replica_id = view->replica_id;
    view->state.shard = state.shard;
    view->state.hard = state.hard;
    view->state.base = state.base;
    view->state.configuration_bytes = state.configuration_bytes;
    memcpy(view->state.configuration, body + sizeof state, state.configuration_bytes);
    return state.base.index != UINT64_MAX && state.base.position % 8 == 0;
}

static bool wal_view_record(struct wal_record_view *view, const struct wal_record *record,
                            const uint8_t *body)
{
    size_t length = record->bytes - sizeof *record;

    view->kind = (enum wal_record_kind)record->kind;
    view->head = (record->flags & WAL_FLAG_HEAD) != 0;
    view->carried = (record->flags & WAL_FLAG_CARRIED) != 0;
    view->replica_id = record->replica_id;
    if (record->replica_id == 0 || (record->flags & ~(WAL_FLAG_HEAD | WAL_FLAG_CARRIED)) != 0 ||
        (view->head && record->kind != WAL_RECORD_STATE) ||
        (view->carried && record->kind != WAL_RECORD_ENTRIES)) {
        return false;
    }
    switch (record->kind) {
    case WAL_RECORD_STATE:
        return wal_view_state(view, body, length);
    case WAL_RECORD_HARD:
        memcpy(&view->hard, body, length == sizeof view->hard ? length : 0);
        return length == sizeof view->hard;
    case WAL_RECORD_ENTRIES:
        view->entries.bytes = body;
        view->entries.length = length;
        return wal_entries_judge(body, length, &view->entries.first_index,
                                 &view->entries.last_index);
    case WAL_RECORD_CUT:
        memcpy(&view->first_index_removed, body, length == 8 ? length : 0);
        return length == 8 && view->first_index_removed > 0;
    case WAL_RECORD_SNAPSHOT:
    case WAL_RECORD_INSTALL:
        return wal_view_base(view, body, length);
    case WAL_RECORD_DROP:
        return length == 0;
    default:
        return false;
    }
}

/* Gives the records of the frame in the scratch. */
static int wal_replay_frame(const struct wal_reader *reader, const struct wal_sink *sink,
                            const struct wal_frame *header, bool *sound)
{
    struct wal_record_view view;
    uint32_t at = sizeof *header;
    uint32_t records = 0;

    *sound = true;
    while (at < header->bytes) {
        struct wal_record record;
        int result;

        if (header->bytes - at < sizeof record) {
            break;
        }
        memcpy(&record, reader->scratch + at, sizeof record);
        if (record.bytes < sizeof record || record.bytes > header->bytes - at ||
            record.bytes % 8 != 0) {
            break;
        }
        memset(&view, 0, sizeof view);
        view.sequence = header->sequence;
        if (!wal_view_record(&view, &record, reader->scratch + at + sizeof record)) {
            break;
        }
        result = sink->record(sink->context, &view);
        if (result != 0) {
            return result;
        }
        at += record.bytes;
        records++;
    }
    *sound = at == header->bytes && records == header->records;
    return 0;
}

int wal_replay(const struct wal_reader *reader, const struct wal_sink *sink,
               struct wal_recovered *scanned)
{
    uint64_t sequence = scanned->sequence_first;

    if (scanned->damage != WAL_INTACT) {
        return -EBADMSG;
    }
    for (uint64_t generation = scanned->generation_first;
         scanned->sequence_last != 0 && generation <= scanned->generation_last; generation++) {
        uint32_t segment = wal_segment_of(generation, reader->segments_count);
        uint64_t offset = 0;

        while (sequence <= scanned->sequence_last &&
               offset + reader->block_bytes <= reader->segment_bytes) {
            struct wal_frame header;
            bool sound;
            int result;

            if (wal_look(reader, segment, offset, &header) != WAL_FOUND_FRAME ||
                header.generation != generation || header.sequence != sequence) {
                break; /* the generation's end: wal_scan saw that the next one goes on */
            }
            result = wal_replay_frame(reader, sink, &header, &sound);
            if (result != 0) {
                return result;
            }
            if (!sound) {
                return wal_damaged(scanned, WAL_DAMAGE_RECORD, segment, offset);
            }
            offset += wal_pad_block(header.bytes, reader->block_bytes);
            sequence++;
        }
    }
    if (scanned->sequence_last != 0 && sequence != scanned->sequence_last + 1) {
        return wal_damaged(scanned, WAL_DAMAGE_UNREADABLE, scanned->end_segment, 0);
    }
    return 0;
}

int wal_recover(const struct wal_reader *reader, const struct wal_sink *sink,
                struct wal_recovered *out)
{
    int error = wal_scan(reader, out);

    return error != 0 ? error : wal_replay(reader, sink, out);
}
