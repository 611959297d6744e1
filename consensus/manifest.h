/* SPDX-License-Identifier: Apache-2.0
 *
 * The manifest of a data directory: who this node is, which replicas live here, and which
 * incarnation of WALs is in force. Small, binary, with a checksum; always written whole: temporary
 * file, fsync, rename, fsync of the directory (hw/file).
 *
 * It names a replica only after that replica's first WAL record is durable. So a replica that is
 * named but whose log is not found has lost it: corruption, not a fresh start.
 *
 * Pure. The decoder is total.
 */
#ifndef BELAY_CONSENSUS_MANIFEST_H
#define BELAY_CONSENSUS_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "consensus/raft.h"

#define MANIFEST_FILE_NAME "manifest.belay"

enum {
    MANIFEST_VERSION = 1,
    MANIFEST_NODES_MAX = 64,
    MANIFEST_REPLICAS_MAX = 2048,
};

struct manifest_node {
    uint64_t nonce; /* of that node's data directory; 0 = not learned yet */
    uint16_t node;
    uint8_t formed; /* 1: it took part in the bootstrap (or joined): never blank again */
    uint8_t zero[5];
};

enum manifest_replica_state {
    MANIFEST_NORMAL = 1,
    MANIFEST_REBUILDING = 2, /* its log was lost: it does not vote and is replaced by a new id */
};

struct manifest_replica {
    uint64_t replica_id; /* not 0, unique */
    uint16_t shard;
    uint8_t state; /* enum manifest_replica_state */
    uint8_t zero[5];
};

struct manifest {
    uint64_t cluster_id;
    uint64_t nonce; /* 64 random bits, drawn when this directory was made */
    uint16_t node_id;
    uint8_t durability; /* enum raft_durability */
    uint8_t formed;     /* this node is part of a formed group */
    uint32_t shards_count;
    uint32_t token_epoch;      /* highest ever used here; only grows */
    uint32_t wal_count;        /* WALs of wal_incarnation (the workers then); 0 = none yet */
    uint64_t wal_incarnation;  /* WALs in force; every other directory is rubbish */
    uint64_t next_incarnation; /* not used by any WAL directory yet; > wal_incarnation */
    uint32_t nodes_count;
    uint32_t replicas_count;
    struct manifest_node nodes[MANIFEST_NODES_MAX];
    struct manifest_replica replicas[MANIFEST_REPLICAS_MAX];
};

/* Longest file. */
enum {
    MANIFEST_BYTES_MAX = 96 + MANIFEST_NODES_MAX * 16 + MANIFEST_REPLICAS_MAX * 16,
};

/* Returns the length. The manifest must be sound (manifest_check). */
size_t manifest_encode(const struct manifest *manifest, uint8_t out[MANIFEST_BYTES_MAX]);

/* 0; -EBADMSG damaged or not a manifest; -EPROTONOSUPPORT a format of a later version. */
int manifest_decode(struct manifest *manifest, const uint8_t *bytes, size_t length);

/* NULL, or a sentence about the first field that cannot be. */
const char *manifest_check(const struct manifest *manifest);

/* Manifest without log: stores the replicas in state normal that are not among `found` (the ids
 * recovered from WALs that are intact). Returns how many there are (it may exceed max). In memory
 * durability no log outlives a process, so none is missed. */
size_t manifest_missing(const struct manifest *manifest, const uint64_t found[], size_t found_count,
                        uint64_t missing[], size_t max);

/* NULL = not named. */
struct manifest_replica *manifest_find(struct manifest *manifest, uint64_t replica_id);

/* 0, -EEXIST, -E2BIG. */
int manifest_add(struct manifest *manifest, uint64_t replica_id, uint16_t shard);
/* 0, -ENOENT. */
int manifest_remove(struct manifest *manifest, uint64_t replica_id);

/* ---- directory names --------------------------------------------------------------------------
 */

enum { MANIFEST_WAL_NAME_BYTES = 48 };

/* "wal-<incarnation, 16 hex digits>-<worker, 4 hex digits>" */
void manifest_wal_name(char out[MANIFEST_WAL_NAME_BYTES], uint64_t incarnation, uint32_t worker);
/* False = not a WAL directory's name. */
bool manifest_wal_name_parse(const char *name, uint64_t *incarnation, uint32_t *worker);

#endif
