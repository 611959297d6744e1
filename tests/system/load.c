/* SPDX-License-Identifier: Apache-2.0
 *
 * Load on a cluster through libbelay, with a log of everything that was acknowledged: what the log
 * calls granted and not released must still be held after any crash.
 *
 *   load LOG THREADS SLOTS KEEP_EVERY KEEP_MAX TTL_MS
 *
 * Each slot of each thread acquires a lock, then keeps it for good (every KEEP_EVERYth, at most
 * KEEP_MAX in all) or releases it and takes it again. Endpoints come from BELAY_ENDPOINTS. It runs
 * until SIGTERM and then ends without releasing anything. Lines of the log, each one write(2):
 *
 *   MONOTONIC_NS grant|release|released|lost|fail NAME TOKEN [STATUS]
 *
 * "release" is written before the request leaves: from then on the lock may be free.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "belay/belay.h"

enum { THREADS_MAX = 16, SLOTS_MAX = 1024, NAME_BYTES = 64 };

struct load {
    int log;
    uint64_t threads, slots, keep_every, keep_max, ttl_ms;
    atomic_ullong kept;
    atomic_bool stop;
};

struct slot {
    char name[NAME_BYTES];
    uint64_t generation;
    uint64_t rounds; /* of this generation */
    uint64_t token;
    bool releasing; /* else acquiring */
    bool idle;      /* nothing under way: start again */
};

struct thread {
    struct load *load;
    unsigned number;
    belay_client *client;
    struct slot slots[SLOTS_MAX];
    pthread_t id;
};

static uint64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void note(struct load *load, const char *what, const char *name, uint64_t token,
                 belay_status status)
{
    char line[192];
    int bytes =
        snprintf(line, sizeof line, "%llu %s %s %llu %s\n", (unsigned long long)monotonic_ns(),
                 what, name, (unsigned long long)token, belay_status_name(status));
    if (write(load->log, line, (size_t)bytes) != bytes) {
        perror("load: the log cannot be written");
        _exit(1);
    }
}

static void on_lost(void *context, belay_lock *lock, belay_lost_reason reason)
{
    struct thread *thread = context;
    (void)reason;
    note(thread->load, "lost", belay_lock_name(lock), belay_lock_token(lock), BELAY_LOST);
}

static void begin(struct thread *thread, struct slot *slot)
{
    belay_acquire_options options;
    belay_request *request;
    slot->releasing = false;
    snprintf(slot->name, sizeof slot->name, "load/%u/%ld/%llu", thread->number,
             (long)(slot - thread->slots), (unsigned long long)slot->generation);
    belay_acquire_options_init(&options, slot->name);
    options.ttl_ms = thread->load->ttl_ms;
    slot->idle = belay_acquire_start(thread->client, &options, slot, &request) != BELAY_OK;
}

static bool keeps(struct load *load, const struct slot *slot)
{
    if (slot->rounds % load->keep_every != 0)
        return false;
    if (atomic_fetch_add(&load->kept, 1) < load->keep_max)
        return true;
    atomic_fetch_sub(&load->kept, 1);
    return false;
}

/* Whatever went wrong, the slot goes on under a name that nothing is known about. */
static void next_name(struct thread *thread, struct slot *slot)
{
    slot->generation++;
    slot->rounds = 0;
    begin(thread, slot);
}

static void acquired(struct thread *thread, struct slot *slot, const belay_completion *completion)
{
    belay_request *request;
    if (completion->status != BELAY_OK) {
        note(thread->load, "fail", slot->name, 0, completion->status);
        next_name(thread, slot);
        return;
    }
    slot->token = belay_lock_token(completion->lock);
    note(thread->load, "grant", slot->name, slot->token, BELAY_OK);
    slot->rounds++;
    if (keeps(thread->load, slot)) {
        next_name(thread, slot);
        return;
    }
    note(thread->load, "release", slot->name, slot->token, BELAY_OK);
    slot->releasing = true;
    if (belay_release_start(thread->client, completion->lock, slot, &request) != BELAY_OK)
        next_name(thread, slot);
}

static void released(struct thread *thread, struct slot *slot, belay_status status)
{
    note(thread->load, "released", slot->name, slot->token, status);
    if (status == BELAY_OK)
        begin(thread, slot);
    else
        next_name(thread, slot);
}

static void *thread_main(void *context)
{
    struct thread *thread = context;
    struct load *load = thread->load;
    belay_completion completions[64];
    for (uint64_t i = 0; i < load->slots; i++)
        begin(thread, &thread->slots[i]);
    while (!atomic_load(&load->stop)) {
        struct pollfd wait = {.fd = belay_client_fd(thread->client), .events = POLLIN};
        (void)poll(&wait, 1, 50);
        size_t count = belay_client_take(thread->client, completions, 64);
        for (size_t i = 0; i < count; i++) {
            struct slot *slot = completions[i].user;
            if (slot->releasing)
                released(thread, slot, completions[i].status);
            else
                acquired(thread, slot, &completions[i]);
        }
        for (uint64_t i = 0; i < load->slots && count == 0; i++)
            if (thread->slots[i].idle)
                begin(thread, &thread->slots[i]);
    }
    return NULL;
}

static bool start_thread(struct load *load, struct thread *thread, unsigned number)
{
    belay_client_options options;
    belay_client_options_init(&options);
    thread->load = load;
    thread->number = number;
    options.on_lost = on_lost;
    options.context = thread;
    belay_status status = belay_client_open(&options, &thread->client);
    if (status != BELAY_OK)
        fprintf(stderr, "load: %s: %s\n", belay_status_name(status), belay_error_text());
    return status == BELAY_OK && pthread_create(&thread->id, NULL, thread_main, thread) == 0;
}

static bool read_number(const char *text, uint64_t most, uint64_t *number)
{
    char *end;
    errno = 0;
    *number = strtoull(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && *number >= 1 && *number <= most;
}

int main(int argc, char **argv)
{
    static struct thread threads[THREADS_MAX];
    struct load load = {0};
    sigset_t signals;
    int number;
    if (argc != 7 || !read_number(argv[2], THREADS_MAX, &load.threads) ||
        !read_number(argv[3], SLOTS_MAX, &load.slots) ||
        !read_number(argv[4], UINT32_MAX, &load.keep_every) ||
        !read_number(argv[5], UINT32_MAX, &load.keep_max) ||
        !read_number(argv[6], UINT32_MAX, &load.ttl_ms)) {
        fprintf(stderr, "usage: load LOG THREADS SLOTS KEEP_EVERY KEEP_MAX TTL_MS\n");
        return 2;
    }
    load.log = open(argv[1], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (load.log < 0) {
        perror(argv[1]);
        return 1;
    }
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    for (unsigned i = 0; i < load.threads; i++)
        if (!start_thread(&load, &threads[i], i))
            return 1;
    sigwait(&signals, &number);
    atomic_store(&load.stop, true);
    for (unsigned i = 0; i < load.threads; i++)
        pthread_join(threads[i].id, NULL);
    for (unsigned i = 0; i < load.threads; i++)
        belay_client_abandon(threads[i].client);
    return 0;
}
