/* SPDX-License-Identifier: Apache-2.0
 *
 * The directory of snapshot files: writing them durably, keeping the newest two of each replica,
 * finding and judging them. Blocking file work; one owner thread.
 *
 * Nothing that is read from here is believed, or passed on, before its checksums were followed to
 * the footer. Errors: negative errno (-ENOSPC also for a used-up quota).
 */
#ifndef BELAY_MGMT_SNAPSHOTS_STORE_H
#define BELAY_MGMT_SNAPSHOTS_STORE_H

#include "consensus/snapshot.h"
#include "hw/file.h"

#define STORE_DIRECTORY_NAME "snapshots"

enum { STORE_KEPT_PER_REPLICA = 2 };

struct store {
    char directory[FILE_PATH_BYTES_MAX];
};

/* Makes the directory where there is none and removes what a crash left behind. `wipe`: removes all
 * snapshots as well (memory durability: replicas of an earlier process never come back). */
int store_open(struct store *store, const char *data_directory, bool wipe);

/* ---- writing --------------------------------------------------------------------------------- */

struct store_writer {
    bool open;
    struct file_atomic file;
    struct snapshot_encoder encoder;
    uint64_t replica;
    uint64_t index;
    uint64_t pushed_bytes; /* of the file: their way to the disk has begun */
    uint8_t buffer[SNAPSHOT_BLOCK_PREFIX_BYTES + SNAPSHOT_BLOCK_BYTES_MAX + 8];
};

/* After an error the writer is closed, and nothing is left of its file. */
int store_begin(const struct store *store, struct store_writer *writer,
                const struct snapshot_meta *meta);
int store_append(struct store_writer *writer, const uint8_t *bytes, size_t length);
/* Durable after it; then removes the replica's files beyond the newest two. */
int store_commit(const struct store *store, struct store_writer *writer, uint64_t digest);
void store_abort(struct store_writer *writer);

/* ---- finding --------------------------------------------------------------------------------- */

struct store_found {
    char name[SNAPSHOT_NAME_BYTES];
    uint64_t replica;
    uint64_t index;
};

/* Newest of a replica with index < below. False: none. */
bool store_newest(const struct store *store, uint64_t replica, uint64_t below,
                  struct store_found *found);

/* Newest of any replica of this shard, with least <= index < below: what is committed is the same
 * whoever saved it. */
bool store_newest_of_shard(const struct store *store, uint16_t shard, uint64_t least,
                           uint64_t below, struct store_found *found);

/* Removes every file of the replica. */
void store_drop(const struct store *store, uint64_t replica);

/* ---- reading --------------------------------------------------------------------------------- */

struct store_reader {
    int fd; /* -1 = closed */
    uint64_t file_bytes;
    struct snapshot_decoder decoder;
};

int store_reader_open(const struct store *store, const char *name, struct store_reader *reader);
void store_reader_close(struct store_reader *reader);

/* Takes the next piece (at most `capacity` bytes of buffer) and follows its checksums. 0 = go on,
 * 1 = complete and sound, -EBADMSG, -EIO. `sink` may be NULL. */
int store_reader_step(struct store_reader *reader, uint8_t *buffer, size_t capacity,
                      const struct snapshot_sink *sink);

/* Back to the beginning, to send or load what was found sound. */
int store_reader_rewind(struct store_reader *reader);

#endif
