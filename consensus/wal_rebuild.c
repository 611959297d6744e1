/* SPDX-License-Identifier: Apache-2.0
 *
 * Recovery, second half: from records to replicas.
 *
 * The final base must be known before entries go into the log. Dropping segments leaves records
 * that refer to what is gone: a head may state an older base than the oldest entry that is left,
 * and entries may follow a gap because a later record cuts them anyway. So the first pass finds the
 * last base, and the second takes what lies above it and fits, notes when something did not, and is
 * satisfied only if a later CUT or INSTALL removed that.
 */
#include "consensus/wal_format.h"

#include <errno.h>

struct wal_rebuild_pass {
    struct wal_rebuild *rebuild;
    uint32_t wal;
    uint32_t first; /* replicas[first..count) are this WAL's */
    int error;
};

struct wal_rebuilt *wal_rebuild_find(const struct wal_rebuild *rebuild, uint64_t replica_id)
{
    for (uint32_t i = 0; i < rebuild->count; i++) {
        if (rebuild->replicas[i].replica.replica_id == replica_id) {
            return &rebuild->replicas[i];
        }
    }
    return NULL;
}

/* ---- first pass ------------------------------------------------------------------------------ */

/* What a head says must be what earlier records said, if there were any. */
static bool wal_state_agrees(const struct wal_replica *known, const struct wal_replica *head)
{
    return known->shard == head->shard && known->hard.term == head->hard.term &&
           known->hard.vote == head->hard.vote &&
           memcmp(&known->base, &head->base, sizeof known->base) == 0 &&
           known->configuration_bytes == head->configuration_bytes &&
           memcmp(known->configuration, head->configuration, head->configuration_bytes) == 0;
}

static int wal_states_begin(struct wal_rebuild_pass *pass, const struct wal_record_view *record)
{
    struct wal_rebuild *rebuild = pass->rebuild;
    struct wal_rebuilt *known = wal_rebuild_find(rebuild, record->replica_id);

    if (known != NULL) {
        return known->wal == pass->wal && record->head &&
                       wal_state_agrees(&known->replica, &record->state)
                   ? 0
                   : -EBADMSG;
    }
    if (rebuild->count == rebuild->max) {
        return -E2BIG;
    }
    rebuild->replicas[rebuild->count++] =
        (struct wal_rebuilt){.replica = record->state, .wal = pass->wal};
    return 0;
}

static int wal_states_record(void *context, const struct wal_record_view *record)
{
    struct wal_rebuild_pass *pass = context;
    struct wal_rebuilt *known;

    if (record->kind == WAL_RECORD_STATE) {
        return wal_states_begin(pass, record);
    }
    known = wal_rebuild_find(pass->rebuild, record->replica_id);
    if (known == NULL || known->wal != pass->wal) {
        return -EBADMSG;
    }
    switch (record->kind) {
    case WAL_RECORD_HARD:
        if (record->hard.term < known->replica.hard.term) {
            return -EBADMSG;
        }
        known->replica.hard = record->hard;
        return 0;
    case WAL_RECORD_SNAPSHOT:
    case WAL_RECORD_INSTALL:
        if (record->state.base.index < known->replica.base.index) {
            return -EBADMSG;
        }
        known->replica.base = record->state.base;
        known->replica.configuration_bytes = record->state.configuration_bytes;
        memcpy(known->replica.configuration, record->state.configuration,
               sizeof known->replica.configuration);
        return 0;
    case WAL_RECORD_DROP: /* the last one takes its place: order does not matter */
        *known = pass->rebuild->replicas[--pass->rebuild->count];
        return 0;
    default:
        return 0;
    }
}

int wal_rebuild_states(struct wal_rebuild *rebuild, uint32_t wal, const struct wal_reader *reader,
                       struct wal_recovered *scanned)
{
    struct wal_rebuild_pass pass = {.rebuild = rebuild, .wal = wal, .first = rebuild->count};
    struct wal_sink sink = {.record = wal_states_record, .context = &pass};
    int error = wal_replay(reader, &sink, scanned);

    if (error != 0) {
        rebuild->count = pass.first;
        if (error == -EBADMSG && scanned->damage == WAL_INTACT) {
            scanned->damage = WAL_DAMAGE_RECORD;
        }
    }
    return error;
}

/* ---- second pass ----------------------------------------------------------------------------- */

static void wal_logs_entries(struct wal_rebuilt *known, const struct wal_record_view *record)
{
    size_t at = 0;

    while (at < record->entries.length && !known->incomplete) {
        const struct log_entry *entry = (const struct log_entry *)(record->entries.bytes + at);

        at += log_entry_bytes(entry->payload_bytes);
        if (entry->index <= known->replica.base.index) {
            continue;
        }
        /* A gap, a second entry of one index, a broken chain, or no room: wrong, unless a later
         * record says that these entries were removed. */
        if (entry->index != known->log->last_index + 1 || !log_append_copy(known->log, entry)) {
            known->incomplete = true;
        }
    }
}

/* Entries repeated by wal_carry(), the last of a series before older segments are dropped. If those
 * are there still, it repeats what the log has; if they are gone, the log has not got it yet, and
 * what followed it then stood behind a gap and comes again in this series. */
static void wal_logs_carried(struct wal_rebuilt *known, const struct wal_record_view *record)
{
    bool gap = false;
    size_t at = 0;

    while (at < record->entries.length && !gap) {
        const struct log_entry *entry = (const struct log_entry *)(record->entries.bytes + at);
        const struct log_entry *held = log_at(known->log, entry->index);

        at += log_entry_bytes(entry->payload_bytes);
        if (entry->index <= known->replica.base.index) {
            continue;
        }
        if (held != NULL) {
            gap = held->checksum != entry->checksum;
        } else {
            gap = entry->index != known->log->last_index + 1 || !log_append_copy(known->log, entry);
        }
    }
    known->incomplete = gap;
}

static int wal_logs_record(void *context, const struct wal_record_view *record)
{
    struct wal_rebuild_pass *pass = context;
    struct wal_rebuilt *known = wal_rebuild_find(pass->rebuild, record->replica_id);

    if (known == NULL || known->wal != pass->wal || known->log == NULL) {
        return 0; /* dropped later, or not wanted */
    }
    switch (record->kind) {
    case WAL_RECORD_ENTRIES:
        if (record->carried) {
            wal_logs_carried(known, record);
        } else {
            wal_logs_entries(known, record);
        }
        return 0;
    case WAL_RECORD_CUT:
        if (record->first_index_removed <= known->log->last_index + 1) {
            uint64_t last = record->first_index_removed - 1;

            log_cut_above(known->log,
                          last > known->log->base.index ? last : known->log->base.index);
            known->incomplete = false;
        }
        return 0;
    case WAL_RECORD_INSTALL:
        log_cut_above(known->log, known->log->base.index);
        known->incomplete = false;
        return 0;
    default:
        return 0;
    }
}

int wal_rebuild_logs(struct wal_rebuild *rebuild, uint32_t wal, const struct wal_reader *reader,
                     struct wal_recovered *scanned)
{
    struct wal_rebuild_pass pass = {.rebuild = rebuild, .wal = wal};
    struct wal_sink sink = {.record = wal_logs_record, .context = &pass};
    int error;

    for (uint32_t i = 0; i < rebuild->count; i++) {
        struct wal_rebuilt *replica = &rebuild->replicas[i];

        if (replica->wal == wal && replica->log != NULL) {
            replica->incomplete = false;
            log_reset(replica->log, &replica->replica.base);
        }
    }
    error = wal_replay(reader, &sink, scanned);
    for (uint32_t i = 0; i < rebuild->count; i++) {
        struct wal_rebuilt *replica = &rebuild->replicas[i];

        if (replica->wal == wal && replica->log != NULL) {
            replica->incomplete = replica->incomplete || error != 0;
            error = replica->incomplete && error == 0 ? -EBADMSG : error;
        }
    }
    return error;
}

/* ---- hand-over ------------------------------------------------------------------------------- */

int wal_hand_over(struct wal_writer *writer, const struct wal_rebuilt *rebuilt,
                  uint64_t *next_index)
{
    const struct log *log = rebuilt->log;
    uint64_t added = 0;
    int64_t result;

    assert(log != NULL && !rebuilt->incomplete && log->base.index == rebuilt->replica.base.index);
    if (*next_index == 0) {
        result = wal_add_state(writer, &rebuilt->replica);
        if (result < 0) {
            return result == -ENOBUFS ? 0 : (int)result;
        }
        *next_index = log->base.index + 1;
    }
    while (*next_index <= log->last_index) {
        result = wal_add_log(writer, rebuilt->replica.replica_id, log, *next_index, log->last_index,
                             &added);
        if (result < 0) {
            return result == -ENOBUFS ? 0 : (int)result;
        }
        *next_index = added + 1;
    }
    return 1;
}
