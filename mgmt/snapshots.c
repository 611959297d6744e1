/* SPDX-License-Identifier: Apache-2.0
 *
 * The snapshot thread: its loop, mails from workers, and saving. See mgmt/snapshots.h and
 * mgmt/snapshots_internal.h.
 */
#include "mgmt/snapshots.h"

#include <errno.h>
#include <signal.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "hw/clock.h"
#include "hw/journal.h"
#include "mgmt/snapshots_internal.h"

#define MILLISECOND_NS UINT64_C(1000000)
#define SECOND_NS      UINT64_C(1000000000)

enum { EVENTS_MAX = 16, LOOK_NS = 1000 * 1000 };

const struct snapshots_tuning snapshots_tuning_default = {
    .fetch_give_up_ns = 5 * SECOND_NS,
    .fetch_retry_ns_min = 50 * MILLISECOND_NS,
    .fetch_retry_ns_max = SECOND_NS,
    .request_timeout_ns = 2 * SECOND_NS,
    .progress_timeout_ns = 10 * SECOND_NS,
    .rate_bytes_per_s = 128 << 20,
};

/* ---- answers --------------------------------------------------------------------------------- */

static bool flush_pending(struct snapshots *snapshots, struct worker_side *worker)
{
    bool worked = false;
    while (worker->pending_count > 0) {
        struct snapshot_mail *mail = mailbox_claim(worker->mail.from_thread);
        if (mail == NULL) {
            wake_by(snapshots, snapshots->now_ns + MILLISECOND_NS);
            break;
        }
        const struct pending *first = &worker->pending[0];
        memset(mail, 0, offsetof(struct snapshot_mail, block));
        mail->kind = first->kind;
        mail->shard = first->shard;
        mail->replica = first->replica;
        mail->result = first->result;
        mail->digest = first->digest;
        mail->base = first->base;
        mailbox_publish(worker->mail.from_thread);
        poller_wake(worker->mail.poller);
        worker->pending_count--;
        memmove(worker->pending, worker->pending + 1,
                worker->pending_count * sizeof worker->pending[0]);
        worked = true;
    }
    return worked;
}

void snapshots_answer(struct snapshots *snapshots, struct worker_side *worker,
                      const struct pending *answer)
{
    /* take_mail() reads no mail while answers wait, so at most a save's and a job's come on top. */
    assert(worker->pending_count < PENDING_MAX);
    worker->pending[worker->pending_count++] = *answer;
    (void)flush_pending(snapshots, worker);
}

/* ---- saving ---------------------------------------------------------------------------------- */

static void save_begin(struct snapshots *snapshots, struct save *save,
                       const struct snapshot_mail *mail)
{
    store_abort(&save->writer); /* an abort for which there was no room */
    save->active = true;
    save->shard = mail->shard;
    save->replica = mail->replica;
    save->base = mail->base;
    struct snapshot_meta meta = {.replica_id = mail->replica,
                                 .shard = mail->shard,
                                 .token_epoch = mail->token_epoch,
                                 .base = mail->base};
    meta.configuration_bytes =
        (uint16_t)raft_configuration_encode(&mail->configuration, meta.configuration);
    save->result = store_begin(&snapshots->store, &save->writer, &meta);
}

static bool save_is_of(const struct save *save, const struct snapshot_mail *mail)
{
    return save->active && save->replica == mail->replica && save->shard == mail->shard;
}

static void save_block(struct save *save, const struct snapshot_mail *mail)
{
    if (!save_is_of(save, mail) || save->result < 0)
        return; /* END will say what went wrong */
    assert(mail->length > 0 && mail->length <= SNAPSHOT_BLOCK_BYTES);
    save->result = store_append(&save->writer, mail->block, mail->length);
}

static void save_end(struct snapshots *snapshots, struct worker_side *worker,
                     const struct snapshot_mail *mail)
{
    struct save *save = &worker->save;
    struct pending answer = {
        .kind = SNAPSHOT_SAVED, .shard = mail->shard, .replica = mail->replica};
    if (!save_is_of(save, mail)) {
        answer.result = -EPROTO; /* an end without its beginning */
    } else {
        if (save->result == 0)
            save->result = store_commit(&snapshots->store, &save->writer, mail->digest);
        answer.result = save->result;
        answer.base = save->base;
        answer.digest = mail->digest;
        save->active = false;
    }
    if (answer.result < 0)
        journal_write(JOURNAL_ERROR, "snapshot_not_saved", "shard=%u index=%llu error=\"%s\"",
                      (unsigned)mail->shard, (unsigned long long)answer.base.index,
                      strerrordesc_np(-answer.result));
    else
        journal_write(JOURNAL_DEBUG, "snapshot_saved", "shard=%u index=%llu", (unsigned)mail->shard,
                      (unsigned long long)answer.base.index);
    snapshots_answer(snapshots, worker, &answer);
}

static void save_abort(struct save *save)
{
    store_abort(&save->writer);
    save->active = false;
}

/* ---- mails ----------------------------------------------------------------------------------- */

static void drop_replica(struct snapshots *snapshots, struct worker_side *worker, uint64_t replica)
{
    if (worker->save.active && worker->save.replica == replica)
        save_abort(&worker->save);
    if (worker->job.replica == replica)
        job_cancel(snapshots, worker, -ECANCELED);
    store_drop(&snapshots->store, replica);
}

static bool take_mail(struct snapshots *snapshots, struct worker_side *worker)
{
    if (worker->pending_count > 0)
        return false;
    const struct snapshot_mail *mail = mailbox_peek(worker->mail.to_thread);
    if (mail == NULL)
        return false;
    switch (mail->kind) {
    case SNAPSHOT_SAVE_BEGIN:
        save_begin(snapshots, &worker->save, mail);
        break;
    case SNAPSHOT_SAVE_BLOCK:
        save_block(&worker->save, mail);
        break;
    case SNAPSHOT_SAVE_END:
        save_end(snapshots, worker, mail);
        break;
    case SNAPSHOT_SAVE_ABORT:
        if (save_is_of(&worker->save, mail))
            save_abort(&worker->save);
        break;
    case SNAPSHOT_FETCH:
    case SNAPSHOT_LOAD:
        job_start(snapshots, worker, mail);
        break;
    case SNAPSHOT_FETCH_CANCEL:
        job_cancel_fetch(snapshots, worker, mail->replica);
        break;
    case SNAPSHOT_DROP:
        drop_replica(snapshots, worker, mail->replica);
        break;
    default:
        assert(false && "a kind of mail that workers send");
    }
    mailbox_drop(worker->mail.to_thread);
    return true;
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void take_events(struct snapshots *snapshots)
{
    struct epoll_event events[EVENTS_MAX];
    int count = epoll_wait(snapshots->epoll_fd, events, EVENTS_MAX, 0);
    for (int i = 0; i < count; i++) {
        uint32_t which = (uint32_t)events[i].data.u64;
        switch (events[i].data.u64 >> 32) {
        case TAG_LISTENER:
            serve_accept(snapshots);
            break;
        case TAG_SERVED:
            serve_event(snapshots, &snapshots->served[which], events[i].events);
            break;
        case TAG_JOB:
            job_event(&snapshots->workers[which], events[i].events);
            break;
        }
    }
}

static bool turn(struct snapshots *snapshots)
{
    bool worked = false;
    take_events(snapshots);
    for (uint32_t i = 0; i < snapshots->workers_count; i++) {
        struct worker_side *worker = &snapshots->workers[i];
        worked |= flush_pending(snapshots, worker);
        worked |= take_mail(snapshots, worker);
        worked |= job_step(snapshots, worker);
    }
    worked |= serve_step(snapshots);
    return worked;
}

static void *run(void *argument)
{
    struct snapshots *snapshots = argument;
    snapshots->now_ns = clock_monotonic_ns();
    while (!atomic_load_explicit(&snapshots->stop, memory_order_acquire)) {
        snapshots->wake_at_ns = UINT64_MAX;
        bool worked = turn(snapshots);
        uint64_t look_at_ns = snapshots->now_ns + LOOK_NS;
        if (snapshots->looks && look_at_ns < snapshots->wake_at_ns)
            snapshots->wake_at_ns = look_at_ns;
        snapshots->now_ns = poller_rest(snapshots->poller, worked, snapshots->wake_at_ns);
    }
    return NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void destroy(struct snapshots *snapshots)
{
    for (uint32_t i = 0; i < snapshots->workers_count; i++) {
        struct worker_side *worker = &snapshots->workers[i];
        save_abort(&worker->save);
        store_abort(&worker->job.writer);
        store_reader_close(&worker->job.reader);
        if (worker->job.fd >= 0)
            close(worker->job.fd);
    }
    serve_close(snapshots);
    if (snapshots->poller != NULL)
        poller_close(snapshots->poller);
    if (snapshots->epoll_fd >= 0)
        close(snapshots->epoll_fd);
    sodium_memzero(snapshots->cluster_key, sizeof snapshots->cluster_key);
    free(snapshots);
}

static int set_up(struct snapshots *snapshots, const struct node_options *options)
{
    if (sodium_init() < 0)
        return -ENOSYS;
    int result =
        store_open(&snapshots->store, options->data_directory, options->durability == NODE_MEMORY);
    if (result < 0)
        return result;
    snapshots->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (snapshots->epoll_fd < 0)
        return -errno;
    result = poller_open(POLLER_ADAPTIVE, 0, &snapshots->poller);
    /* An epoll descriptor is itself readable when it has events: one sleep for both. */
    if (result == 0)
        result = poller_add(snapshots->poller, snapshots->epoll_fd);
    if (result == 0)
        result = serve_open(snapshots, snapshots->tuning->socket_buffer_bytes);
    return result;
}

/* With every signal blocked: they are the main thread's. */
static int start_thread(struct snapshots *snapshots)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int result = -pthread_create(&snapshots->thread, NULL, run, snapshots);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (result == 0)
        (void)pthread_setname_np(snapshots->thread, "belay-snapshot");
    return result;
}

int snapshots_start_tuned(const struct node_options *options, uint64_t cluster_id,
                          const struct snapshots_worker *workers, uint32_t workers_count,
                          const struct snapshots_tuning *tuning, struct snapshots **snapshots)
{
    struct snapshots *started =
        calloc(1, sizeof *started + workers_count * sizeof started->workers[0]);
    if (started == NULL)
        return -ENOMEM;
    started->tuning = tuning;
    started->node = options->node;
    started->members_count = options->members_count;
    started->looks = options->polling == POLLER_BUSY;
    memcpy(started->members, options->members, sizeof started->members);
    memcpy(started->cluster_key, options->cluster_key, sizeof started->cluster_key);
    started->cluster_id = cluster_id;
    started->epoll_fd = started->listen_fd = -1;
    started->workers_count = workers_count;
    for (uint32_t i = 0; i < SERVED_MAX; i++)
        started->served[i].fd = started->served[i].reader.fd = -1;
    for (uint32_t i = 0; i < workers_count; i++) {
        started->workers[i].mail = workers[i];
        started->workers[i].job.fd = started->workers[i].job.reader.fd = -1;
    }
    int result = set_up(started, options);
    if (result == 0)
        result = start_thread(started);
    if (result < 0) {
        destroy(started);
        return result;
    }
    *snapshots = started;
    return 0;
}

int snapshots_start(const struct node_options *options, uint64_t cluster_id,
                    const struct snapshots_worker *workers, uint32_t workers_count,
                    struct snapshots **snapshots)
{
    return snapshots_start_tuned(options, cluster_id, workers, workers_count,
                                 &snapshots_tuning_default, snapshots);
}

void snapshots_wake(struct snapshots *snapshots)
{
    if (!snapshots->looks)
        poller_wake(snapshots->poller);
}

void snapshots_stop(struct snapshots *snapshots)
{
    atomic_store_explicit(&snapshots->stop, true, memory_order_release);
    poller_wake(snapshots->poller);
    pthread_join(snapshots->thread, NULL);
    destroy(snapshots);
}
