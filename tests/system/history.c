/* SPDX-License-Identifier: Apache-2.0
 *
 * Clients that contend for a few locks and write down what they asked for and were told, as a
 * history for belay-lincheck (docs/lincheck.md).
 *
 *   history OUT MODEL FIRST_PROCESS CLIENTS KEYS TTL_MS SEED
 *
 * MODEL is fenced-mutex, shared-lock or reentrant-mutex. Each client has a session and a thread of
 * its own and is one process of the history, from FIRST_PROCESS on. Endpoints come from
 * BELAY_ENDPOINTS. It runs until SIGTERM and then ends without releasing what it holds.
 *
 * Times are CLOCK_BOOTTIME, because that is what the library states deadlines in. Beside the
 * operations there are lines of the process "lease", which the checker passes over: until when a
 * grant counts as held. From them histories.py makes the endings that nobody asked for.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "belay/belay.h"

/* What ends without an answer makes a history hard to judge: there is time for every fault to pass.
 */
enum { CLIENTS_MAX = 32, LINE_BYTES = 256, REQUEST_TIMEOUT_MS = 20000, WAIT_MS = 15000 };

enum model { FENCED_MUTEX, SHARED_LOCK, REENTRANT_MUTEX, MODELS };
static const char *const model_names[MODELS] = {"fenced-mutex", "shared-lock", "reentrant-mutex"};

struct run {
    int out;
    int stop; /* an eventfd: readable when it is time to end */
    enum model model;
    uint64_t first_process, clients, keys, ttl_ms, seed;
};

struct client {
    struct run *run;
    uint64_t process;
    uint64_t random;
    uint64_t attempts; /* numbers the owners */
    belay_client *belay;
    pthread_t thread;
};

/* One attempt to hold a lock, and what became of it. Each is an owner of its own: the end of one
 * grant must not be taken for that of a later one of the same client. */
struct attempt {
    char key[32];
    char owner[48];
    belay_mode mode;
    belay_lock *lock;
};

/* ---- small things ---------------------------------------------------------------------------- */

static uint64_t boottime_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* xorshift64*: Vigna, "An experimental exploration of Marsaglia's xorshift generators" (2016). */
static uint64_t draw(struct client *client, uint64_t below)
{
    client->random ^= client->random >> 12;
    client->random ^= client->random << 25;
    client->random ^= client->random >> 27;
    return (client->random * UINT64_C(2685821657736338717) >> 16) % below;
}

/* True if it is time to end. */
static bool hold_for(const struct client *client, uint64_t ms)
{
    struct pollfd stop = {.fd = client->run->stop, .events = POLLIN};
    return poll(&stop, 1, (int)ms) > 0;
}

/* One line, written at once: several processes may share a file, and any may be killed. */
__attribute__((format(printf, 2, 3))) static void put(const struct client *client,
                                                      const char *format, ...)
{
    char line[LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (bytes >= LINE_BYTES || write(client->run->out, line, (size_t)bytes) != bytes) {
        fputs("history: the file cannot be written\n", stderr);
        _exit(1);
    }
}

/* An event about an attempt; `more` is JSON that follows. */
static void event(const struct client *client, const char *type, const char *name,
                  const struct attempt *attempt, const char *more)
{
    put(client,
        "{\"process\":%llu,\"type\":\"%s\",\"f\":\"%s\",\"key\":\"%s\",\"owner\":\"%s\"%s,"
        "\"time\":%llu}\n",
        (unsigned long long)client->process, type, name, attempt->key, attempt->owner, more,
        (unsigned long long)boottime_ns());
}

static const char *mode_text(belay_mode mode)
{
    return mode == BELAY_SHARED ? "shared" : "exclusive";
}

/* ---- operations ------------------------------------------------------------------------------ */

static void note_lease(const struct client *client, const struct attempt *attempt)
{
    put(client,
        "{\"process\":\"lease\",\"type\":\"info\",\"f\":\"held\",\"owner\":\"%s\","
        "\"valid_until\":%llu}\n",
        attempt->owner, (unsigned long long)belay_lock_valid_until_ns(attempt->lock));
}

/* What certainly had no effect is "fail"; of the rest nobody knows. An acquire that timed out, or
 * was granted too late to be of use (lost), is still being given back when that is said. */
static const char *failure(belay_status status, bool acquire)
{
    switch (status) {
    case BELAY_TIMED_OUT:
    case BELAY_LOST:
        return acquire ? "info" : "fail";
    case BELAY_BUSY:
    case BELAY_DEADLOCK:
    case BELAY_OVER_LIMIT:
    case BELAY_DELAYED:
    case BELAY_ALREADY_HELD:
        return "fail";
    default:
        return "info";
    }
}

static bool acquire(const struct client *client, struct attempt *attempt, uint64_t ttl_ms,
                    uint64_t wait_ms, bool renewed)
{
    belay_acquire_options options;
    char more[96];
    belay_acquire_options_init(&options, attempt->key);
    options.mode = attempt->mode;
    options.ttl_ms = ttl_ms;
    options.try_only = wait_ms == 0;
    options.wait_ms = wait_ms;
    options.no_renewal = !renewed;
    options.reentrant = client->run->model == REENTRANT_MUTEX;
    snprintf(more, sizeof more, ",\"mode\":\"%s\",\"ttl_ms\":%llu", mode_text(attempt->mode),
             (unsigned long long)ttl_ms);
    event(client, "invoke", "acquire", attempt, more);
    belay_status status = belay_acquire(client->belay, &options, &attempt->lock, NULL);
    if (status == BELAY_OK)
        snprintf(more, sizeof more, ",\"token\":\"%llu\"",
                 (unsigned long long)belay_lock_token(attempt->lock));
    else
        snprintf(more, sizeof more, ",\"error\":\"%s\"", belay_status_name(status));
    event(client, status == BELAY_OK ? "ok" : failure(status, true), "acquire", attempt, more);
    if (status == BELAY_OK)
        note_lease(client, attempt);
    return status == BELAY_OK;
}

static void release(const struct client *client, struct attempt *attempt)
{
    char more[64] = "";
    note_lease(client, attempt);
    event(client, "invoke", "release", attempt, more);
    belay_status status = belay_release(attempt->lock);
    if (status != BELAY_OK)
        snprintf(more, sizeof more, ",\"error\":\"%s\"", belay_status_name(status));
    event(client, status == BELAY_OK ? "ok" : failure(status, false), "release", attempt, more);
}

static void convert(const struct client *client, struct attempt *attempt)
{
    char more[96];
    belay_mode to = attempt->mode == BELAY_SHARED ? BELAY_EXCLUSIVE : BELAY_SHARED;
    note_lease(client, attempt);
    snprintf(more, sizeof more, ",\"mode\":\"%s\"", mode_text(to));
    event(client, "invoke", "convert", attempt, more);
    belay_status status = belay_convert(attempt->lock, to, 100);
    if (status != BELAY_OK)
        snprintf(more, sizeof more, ",\"error\":\"%s\"", belay_status_name(status));
    else if (to == BELAY_EXCLUSIVE) /* only an upgrade is a new grant */
        snprintf(more, sizeof more, ",\"token\":\"%llu\"",
                 (unsigned long long)belay_lock_token(attempt->lock));
    else
        more[0] = '\0';
    event(client, status == BELAY_OK ? "ok" : failure(status, false), "convert", attempt, more);
    if (status == BELAY_OK)
        attempt->mode = to;
}

static void query(const struct client *client, struct attempt *attempt)
{
    belay_resource_state state;
    char more[96];
    event(client, "invoke", "query", attempt, "");
    belay_status status = belay_query(client->belay, NULL, attempt->key, false, &state);
    if (status != BELAY_OK) {
        event(client, "info", "query", attempt, "");
        return;
    }
    int bytes = snprintf(more, sizeof more, ",\"holders\":%u", state.holders);
    if (state.holders > 0)
        snprintf(more + bytes, sizeof more - (size_t)bytes, ",\"mode\":\"%s\",\"token\":\"%llu\"",
                 mode_text(state.parties[0].mode), (unsigned long long)state.parties[0].token);
    event(client, "ok", "query", attempt, more);
    belay_resource_state_free(&state);
}

/* ---- what a client does ---------------------------------------------------------------------- */

static struct attempt attempt_at(struct client *client)
{
    struct attempt attempt = {.mode = BELAY_EXCLUSIVE};
    snprintf(attempt.key, sizeof attempt.key, "history/%s/%llu",
             client->run->model == SHARED_LOCK ? "s" : "x",
             (unsigned long long)draw(client, client->run->keys));
    snprintf(attempt.owner, sizeof attempt.owner, "%llu.%llu", (unsigned long long)client->process,
             (unsigned long long)client->attempts++);
    if (client->run->model == SHARED_LOCK && draw(client, 3) > 0)
        attempt.mode = BELAY_SHARED;
    return attempt;
}

/* Holds it for a while, more than once if it is of that kind. False: it is time to end. */
static bool hold(struct client *client, struct attempt *attempt, bool long_enough_to_renew)
{
    uint64_t ms = long_enough_to_renew ? client->run->ttl_ms : draw(client, 15);
    if (client->run->model == REENTRANT_MUTEX && draw(client, 2) == 0) {
        struct attempt again = *attempt;
        if (acquire(client, &again, client->run->ttl_ms, WAIT_MS, true)) {
            bool ends = hold_for(client, draw(client, 10));
            release(client, &again);
            if (ends)
                return false;
        }
    }
    if (client->run->model == SHARED_LOCK && draw(client, 3) == 0)
        convert(client, attempt);
    return !hold_for(client, ms);
}

/* A third does not wait; some give up soon. */
static uint64_t draw_wait_ms(struct client *client)
{
    uint64_t kind = draw(client, 30);
    return kind < 10 ? 0 : kind == 10 ? 50 + draw(client, 100) : WAIT_MS;
}

/* False: it is time to end. */
static bool step(struct client *client)
{
    struct attempt attempt = attempt_at(client);
    uint64_t kind = draw(client, 100);
    if (kind < 40) {
        query(client, &attempt);
        return !hold_for(client, draw(client, 5));
    }
    /* A few are left to end by themselves, a few are held until they have been renewed. What was
     * forgotten would be found again by a reentrant acquire. */
    bool forgotten = kind < 44 && client->run->model != REENTRANT_MUTEX;
    uint64_t ttl_ms = forgotten ? 50 + draw(client, 100) : client->run->ttl_ms;
    if (!acquire(client, &attempt, ttl_ms, draw_wait_ms(client), !forgotten))
        return !hold_for(client, draw(client, 10));
    if (forgotten) {
        belay_lock_forget(attempt.lock);
        return !hold_for(client, draw(client, 10));
    }
    if (!hold(client, &attempt, kind < 46))
        return false;
    release(client, &attempt);
    return true;
}

static void *client_main(void *context)
{
    struct client *client = context;
    while (step(client))
        ;
    /* At once: what it holds is waited for by others that are to end as well. */
    belay_client_abandon(client->belay);
    return NULL;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static bool start_client(struct run *run, struct client *client, uint64_t number)
{
    belay_client_options options;
    belay_client_options_init(&options);
    options.request_timeout_ms = REQUEST_TIMEOUT_MS;
    client->run = run;
    client->process = run->first_process + number;
    client->random = (run->seed << 20) + client->process + 1;
    for (int i = 0; i < 8; i++) /* seeds that are near each other begin alike */
        (void)draw(client, 2);
    belay_status status = belay_client_open(&options, &client->belay);
    if (status != BELAY_OK)
        fprintf(stderr, "history: %s: %s\n", belay_status_name(status), belay_error_text());
    return status == BELAY_OK && pthread_create(&client->thread, NULL, client_main, client) == 0;
}

static bool read_number(const char *text, uint64_t most, uint64_t *number)
{
    char *end;
    errno = 0;
    *number = strtoull(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && *number <= most;
}

static bool read_model(const char *text, enum model *model)
{
    for (unsigned i = 0; i < MODELS; i++) {
        if (strcmp(text, model_names[i]) != 0)
            continue;
        *model = (enum model)i;
        return true;
    }
    return false;
}

static bool read_arguments(int argc, char **argv, struct run *run)
{
    return argc == 8 && read_model(argv[2], &run->model) &&
           read_number(argv[3], 1000000, &run->first_process) &&
           read_number(argv[4], CLIENTS_MAX, &run->clients) && run->clients > 0 &&
           read_number(argv[5], 1000, &run->keys) && run->keys > 0 &&
           read_number(argv[6], 60000, &run->ttl_ms) && run->ttl_ms >= 100 &&
           read_number(argv[7], UINT32_MAX, &run->seed);
}

int main(int argc, char **argv)
{
    static struct client clients[CLIENTS_MAX];
    struct run run = {.stop = eventfd(0, EFD_CLOEXEC)};
    sigset_t signals;
    int number;
    if (!read_arguments(argc, argv, &run)) {
        fputs("usage: history OUT MODEL FIRST_PROCESS CLIENTS KEYS TTL_MS SEED\n", stderr);
        return 2;
    }
    run.out = open(argv[1], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (run.out < 0 || run.stop < 0) {
        perror(argv[1]);
        return 1;
    }
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    for (uint64_t i = 0; i < run.clients; i++)
        if (!start_client(&run, &clients[i], i))
            return 1;
    sigwait(&signals, &number);
    const uint64_t one = 1;
    if (write(run.stop, &one, sizeof one) != sizeof one)
        return 1;
    for (uint64_t i = 0; i < run.clients; i++)
        pthread_join(clients[i].thread, NULL);
    return 0;
}
