/* SPDX-License-Identifier: Apache-2.0
 *
 * The snapshot thread: one per node. It writes the blocks that workers hand it into snapshot files,
 * reads them back, serves them to other nodes over TCP (on the peer port's number) and fetches
 * theirs.
 * The only contact with workers is a pair of mailboxes each (dataplane/snapshot_mail.h).
 */
#ifndef BELAY_MGMT_SNAPSHOTS_H
#define BELAY_MGMT_SNAPSHOTS_H

#include "dataplane/options.h"
#include "dataplane/snapshot_mail.h"
#include "hw/mailbox.h"
#include "hw/poller.h"

struct snapshots_worker {
    struct mailbox *to_thread;   /* struct snapshot_mail, SNAPSHOT_MAILS deep; worker produces */
    struct mailbox *from_thread; /* likewise; the thread produces, then wakes the worker: */
    struct poller *poller;
};

struct snapshots;

/* Starts the thread and its listener. workers[] is copied. 0 or negative errno. */
int snapshots_start(const struct node_options *options, uint64_t cluster_id,
                    const struct snapshots_worker *workers, uint32_t workers_count,
                    struct snapshots **snapshots);
/* Any thread: there is mail. No system call if workers poll busily: then the thread looks for mail
 * every millisecond. */
void snapshots_wake(struct snapshots *snapshots);
void snapshots_stop(struct snapshots *snapshots);

#endif
