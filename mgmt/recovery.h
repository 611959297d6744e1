/* SPDX-License-Identifier: Apache-2.0
 *
 * From a data directory to shards that may start, and the hand-over to fresh WALs.
 *
 * Order (consensus/wal.h): old WALs are read; new ones, of the next incarnation, are written with
 * every replica's state and surviving entries, all durable; the manifest's rename is the commit
 * point; the old ones are deleted.
 */
#ifndef BELAY_MGMT_RECOVERY_H
#define BELAY_MGMT_RECOVERY_H

#include "consensus/manifest.h"
#include "dataplane/shard.h"
#include "dataplane/worker.h"

struct recovery {
    const struct node_options *options;
    struct manifest *manifest;
    struct shard **shards;      /* [options->shards], laid out */
    struct shard_start *starts; /* [options->shards], filled in here */
    struct worker **workers;
    uint64_t incarnation; /* of the WALs this start writes */
    char *error;          /* a sentence, on failure */
    size_t error_bytes;
};

/* Snapshot files of a data directory live here. */
#define RECOVERY_SNAPSHOT_DIRECTORY "snapshots"

/* First thing of a start: takes an incarnation, before the manifest is changed in any other way,
 * and removes what an interrupted start left. */
int recovery_reserve(struct recovery *recovery);

/* Fills logs, machines and starts from what the manifest names. A replica whose log or snapshot is
 * damaged or missing gets a new id and joins. */
int recovery_read(struct recovery *recovery);

/* New WALs for every worker (opens worker->disk and worker->wal), manifest, deletion of the old. */
int recovery_renew(struct recovery *recovery);

/* The manifest as it is now, durably. */
int recovery_save_manifest(struct recovery *recovery);

#endif
