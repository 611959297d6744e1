/* SPDX-License-Identifier: Apache-2.0
 *
 * The snapshot thread's insides, shared by its files:
 *
 *     snapshots.c        thread, loop, mails from workers, saving
 *     snapshots_job.c    loading a file into a worker; fetching one from a peer first
 *     snapshots_serve.c  the listener and the connections it serves
 *     snapshots_store.c  files        snapshots_link.c  bytes on the wire
 *
 * Everything here belongs to the thread, but for `stop` and the poller's wake-up.
 */
#ifndef BELAY_MGMT_SNAPSHOTS_INTERNAL_H
#define BELAY_MGMT_SNAPSHOTS_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "mgmt/snapshots.h"
#include "mgmt/snapshots_link.h"
#include "mgmt/snapshots_store.h"

struct snapshots_tuning {
    uint64_t fetch_give_up_ns;   /* without progress; then LOAD_END says -ETIMEDOUT */
    uint64_t fetch_retry_ns_min; /* between attempts, doubled up to the next */
    uint64_t fetch_retry_ns_max;
    uint64_t request_timeout_ns;  /* from connect to a sound request (or greeting) */
    uint64_t progress_timeout_ns; /* between two pieces of a transfer */
    uint64_t rate_bytes_per_s;    /* served, all connections together */
    uint32_t socket_buffer_bytes; /* of served connections; 0 = the system's */
};
extern const struct snapshots_tuning snapshots_tuning_default;

enum {
    SERVED_MAX = 8,
    PENDING_MAX = 8,              /* answers that wait for room in a worker's mailbox */
    PIECE_BYTES = 64 * 1024,      /* of a file, read at once */
    LOAD_PIECE_BYTES = 16 * 1024, /* ... while loading: bounds what one step adds to `staged` */
    STAGED_BYTES_MAX = SNAPSHOT_BLOCK_BYTES_MAX + SNAPSHOT_BLOCK_BYTES_MAX + LOAD_PIECE_BYTES,
};
static_assert((int)SNAPSHOT_BLOCK_BYTES == (int)SNAPSHOT_BLOCK_BYTES_MAX, "a mail holds a block");

/* ---- jobs: one per worker at a time -----------------------------------------------------------
 */

enum job_stage {
    JOB_IDLE = 0,
    JOB_PAUSE,   /* fetch: until retry_at_ns */
    JOB_CONNECT, /* the connection is being made */
    JOB_GREETING,
    JOB_ANSWER,
    JOB_DATA,
    JOB_VERIFY, /* load: the file is followed to its end before a byte goes to the worker */
    JOB_BEGIN,  /* LOAD_BEGIN waits for room */
    JOB_SEND,
};

struct job {
    enum job_stage stage;
    bool fetch;
    uint16_t shard;
    uint16_t peer_node;
    uint64_t replica;
    uint64_t index_least;

    /* fetch */
    int fd;        /* -1 = none */
    bool readable; /* the kernel said so; false after EAGAIN */
    uint64_t give_up_at_ns;
    uint64_t retry_ns;
    uint64_t retry_at_ns;
    uint64_t timeout_at_ns; /* of this attempt */
    struct link_keys keys;
    uint64_t sequence;
    uint64_t file_bytes; /* still to come */
    int sink_error;      /* why the sink stopped the decoder: our disk, not the peer's bytes */
    struct store_writer writer;
    uint8_t received[LINK_FRAME_BYTES_MAX];
    size_t received_bytes;

    /* load */
    struct store_found file;
    struct store_reader reader; /* its decoder also judges what is fetched */
    bool damaged;               /* a newer file was */
    uint8_t piece[PIECE_BYTES];
    uint8_t staged[STAGED_BYTES_MAX]; /* state bytes that wait for mails */
    size_t staged_bytes;
    bool complete; /* nothing will be added to staged */
};

/* ---- workers --------------------------------------------------------------------------------- */

struct save {
    bool active; /* between BEGIN and END */
    int result;  /* of its writer so far; kept for END */
    uint16_t shard;
    uint64_t replica;
    struct log_base base;
    struct store_writer writer;
};

struct pending { /* SAVED or LOAD_END */
    uint32_t kind;
    uint16_t shard;
    uint64_t replica;
    int32_t result;
    uint64_t digest;
    struct log_base base;
};

struct worker_side {
    struct snapshots_worker mail;
    struct save save;
    struct job job;
    struct pending pending[PENDING_MAX];
    uint32_t pending_count;
};

/* ---- served connections ---------------------------------------------------------------------- */

enum served_stage { SERVED_FREE = 0, SERVED_GREETING, SERVED_REQUEST, SERVED_VERIFY, SERVED_SEND };

struct served {
    enum served_stage stage;
    int fd;
    bool blocked;       /* the socket took no more; EPOLLOUT is asked for */
    uint16_t peer_node; /* authenticated, from SERVED_VERIFY on */
    uint64_t opened_ns;
    uint64_t timeout_at_ns;
    struct link_greeting greeting;
    struct link_request request;
    size_t request_bytes;
    struct link_keys keys;
    uint64_t sequence;
    struct store_found file;
    struct store_reader reader;
    uint64_t file_bytes; /* still to be framed */
    uint8_t out[LINK_FRAME_BYTES_MAX];
    size_t out_bytes; /* of out; out_sent of them are gone */
    size_t out_sent;
    bool last; /* close when out is sent */
};

/* ---- the thread ------------------------------------------------------------------------------ */

struct snapshots {
    const struct snapshots_tuning *tuning;
    uint16_t node;
    uint16_t members_count;
    struct node_member members[NODE_MEMBERS_MAX];
    uint8_t cluster_key[WIRE_MAC_KEY_BYTES];
    uint64_t cluster_id;

    pthread_t thread;
    _Atomic bool stop;
    struct poller *poller;
    int epoll_fd;
    int listen_fd;
    bool looks;          /* busy workers wake nobody, which is a system call: look by ourselves */
    uint64_t now_ns;     /* of this turn */
    uint64_t wake_at_ns; /* the least that this turn's parts asked for */

    struct store store;
    struct served served[SERVED_MAX];
    uint64_t budget_bytes; /* that may be served now */
    uint64_t budget_at_ns; /* when it was last filled up */
    uint64_t refused_journal_at_ns;

    uint32_t workers_count;
    struct worker_side workers[];
};

/* What an epoll event is about. */
enum { TAG_LISTENER = 0, TAG_SERVED = 1, TAG_JOB = 2 };
static inline uint64_t tag_of(uint32_t what, uint32_t which)
{
    return (uint64_t)what << 32 | which;
}

static inline void wake_by(struct snapshots *snapshots, uint64_t at_ns)
{
    if (at_ns < snapshots->wake_at_ns)
        snapshots->wake_at_ns = at_ns;
}

/* For tests: snapshots_start() with other times. */
int snapshots_start_tuned(const struct node_options *options, uint64_t cluster_id,
                          const struct snapshots_worker *workers, uint32_t workers_count,
                          const struct snapshots_tuning *tuning, struct snapshots **snapshots);

/* snapshots.c: the answer to a save, load or fetch; sent when there is room. */
void snapshots_answer(struct snapshots *snapshots, struct worker_side *worker,
                      const struct pending *answer);

/* snapshots_job.c. A worker has one job at a time; another is answered -EBUSY. */
void job_start(struct snapshots *snapshots, struct worker_side *worker,
               const struct snapshot_mail *mail);
/* Ends a fetch of which the worker has heard nothing yet. */
void job_cancel_fetch(struct snapshots *snapshots, struct worker_side *worker, uint64_t replica);
/* True if it did something (and may do more at once). */
bool job_step(struct snapshots *snapshots, struct worker_side *worker);
void job_event(struct worker_side *worker, uint32_t events);
void job_cancel(struct snapshots *snapshots, struct worker_side *worker, int result);

/* snapshots_serve.c */
int serve_open(struct snapshots *snapshots, uint32_t socket_buffer_bytes);
void serve_accept(struct snapshots *snapshots);
void serve_event(struct snapshots *snapshots, struct served *served, uint32_t events);
bool serve_step(struct snapshots *snapshots);
void serve_close(struct snapshots *snapshots);

#endif
