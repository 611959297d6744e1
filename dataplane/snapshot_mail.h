/* SPDX-License-Identifier: Apache-2.0
 *
 * What a worker and the snapshot thread (mgmt/snapshots.c) say to each other: messages in two
 * mailboxes per worker, blocks of state inside them. The worker never touches a file or a TCP
 * socket; the thread never touches a shard.
 */
#ifndef BELAY_DATAPLANE_SNAPSHOT_MAIL_H
#define BELAY_DATAPLANE_SNAPSHOT_MAIL_H

#include <stdint.h>

#include "consensus/log.h"
#include "consensus/raft.h"

enum { SNAPSHOT_BLOCK_BYTES = 64 * 1024, SNAPSHOT_MAILS = 8 };

enum snapshot_mail_kind {
    /* worker to thread */
    SNAPSHOT_SAVE_BEGIN = 1, /* base, configuration, token_epoch */
    SNAPSHOT_SAVE_BLOCK,     /* length, block */
    SNAPSHOT_SAVE_END,       /* digest; answered by SAVED */
    SNAPSHOT_SAVE_ABORT,
    SNAPSHOT_FETCH, /* peer_node, base.index = least index wanted: get one from that node's thread,
                       keep it as own file, then LOAD_BEGIN... as for LOAD; fails after a while */
    SNAPSHOT_FETCH_CANCEL, /* of `replica`, if nothing was loaded of it yet: LOAD_END, -ECANCELED */
    SNAPSHOT_LOAD,         /* own newest valid one */
    SNAPSHOT_DROP,         /* delete every file of `replica` (rebuilt under another id) */
    /* thread to worker */
    SNAPSHOT_SAVED,      /* base.index, result: 0 or negative errno (-ENOSPC: disk full) */
    SNAPSHOT_LOAD_BEGIN, /* base, configuration, token_epoch */
    SNAPSHOT_LOAD_BLOCK, /* length, block */
    SNAPSHOT_LOAD_END,   /* result: 0; -ENOENT none; -EBADMSG damaged; -ETIMEDOUT ...; digest */
};

struct snapshot_mail {
    uint32_t kind; /* enum snapshot_mail_kind */
    uint16_t shard;
    uint16_t peer_node;
    uint64_t replica; /* whose snapshot: names the file */
    int32_t result;
    uint32_t length;
    uint64_t digest;
    uint32_t token_epoch;
    uint32_t zero;
    struct log_base base;
    struct raft_configuration configuration;
    uint8_t block[SNAPSHOT_BLOCK_BYTES];
};

#endif
