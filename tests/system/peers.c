/* SPDX-License-Identifier: Apache-2.0
 *
 * Drives one of the systems that bench/peers/ speaks to through what a lock has to do, and says
 * what went otherwise. Servers come from test_peers.py.
 *
 *     peers TARGET ENDPOINTS SCENARIO [ROUNDS]
 *
 * "unreachable" says "ready" and goes on when a line comes: then its servers are gone. "outage"
 * says so and works on while servers die; when a line comes it must still do so many rounds. Exit
 * code 0: as it should be. Nothing sleeps: turn() waits for completions.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/load/target.h"
#include "bench/peers/common.h"

enum { CLIENTS = 8, TAGS_MAX = 4096, COMMAND_S = 25, ROUNDS = 20, TTL_MS = 2000, MANY = 150 };
enum { NAME_BYTES = 64, TOGETHER_MS = 10 };

struct world {
    const struct target_class *class;
    const char *endpoints;
    struct target *target;
    struct target_completion done[TAGS_MAX]; /* by tag */
    bool is_done[TAGS_MAX];
    uint64_t tags; /* given out */
    uint32_t clients;
    struct world *beside; /* another target that is turned as well */
    unsigned lost_count;
    target_lock lost_lock;
    uint64_t lost_tag;
};

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

static bool is(const struct world *world, const char *name)
{
    return strcmp(world->class->name, name) == 0;
}

static bool has_tokens(const struct world *world)
{
    return !is(world, "redis") && !is(world, "redlock");
}

/* ---- one command after the other ----------------------------------------------------------- */

static void on_complete(void *context, const struct target_completion *completion)
{
    struct world *world = context;

    if (completion->tag >= world->tags || world->is_done[completion->tag])
        die("completion of a tag that was not given, or a second one: %" PRIu64, completion->tag);
    world->done[completion->tag] = *completion;
    world->is_done[completion->tag] = true;
}

static void on_lost(void *context, target_lock lock, uint64_t lock_tag)
{
    struct world *world = context;

    world->lost_count++;
    world->lost_lock = lock;
    world->lost_tag = lock_tag;
}

static void open_target(struct world *world, uint32_t clients, uint32_t ttl_ms, bool renew)
{
    char error[512] = "";
    struct target_options options = {.endpoints = world->endpoints,
                                     .clients = clients,
                                     .commands_max = clients * 2,
                                     .locks_max = clients,
                                     .ttl_ms = ttl_ms,
                                     .pack = 4,
                                     .renew = renew,
                                     .complete = on_complete,
                                     .lost = on_lost,
                                     .context = world};

    world->clients = clients;
    world->target = world->class->open(&options, error, sizeof(error));
    if (!world->target)
        die("open: %s", error[0] ? error : "(no reason given)");
}

static uint64_t new_tag(struct world *world)
{
    if (world->tags == TAGS_MAX)
        die("out of tags");
    return world->tags++;
}

/* Targets of one system may be tested at once: each has names of its own. */
static const char *full_name(const struct world *world, const char *name, char *buffer)
{
    snprintf(buffer, NAME_BYTES, "%s/%s", world->class->name, name);
    return buffer;
}

static uint64_t begin_acquire(struct world *world, uint32_t client, const char *name, bool wait,
                              uint32_t wait_ms)
{
    char buffer[NAME_BYTES];
    struct target_acquire acquire = {
        .name = full_name(world, name, buffer), .wait = wait, .wait_ms = wait_ms};
    uint64_t tag = new_tag(world);

    if (!world->class->acquire(world->target, client, &acquire, tag))
        die("acquire was not begun");
    if (world->is_done[tag])
        die("a completion from inside the call that began the command");
    return tag;
}

static const struct target_completion *finished(struct world *world, uint64_t tag)
{
    uint64_t until_ns = peer_now_ns() + (uint64_t)COMMAND_S * UINT64_C(1000000000);

    while (!world->is_done[tag]) {
        if (peer_now_ns() >= until_ns)
            die("no completion within %d s", COMMAND_S);
        if (world->beside) {
            world->beside->class->turn(world->beside->target, 0);
            world->class->turn(world->target, peer_now_ns() + TOGETHER_MS * PEER_MS_NS);
        } else {
            world->class->turn(world->target, until_ns);
        }
    }
    return &world->done[tag];
}

static const struct target_completion *ends(struct world *world, uint64_t tag,
                                            enum target_status status, const char *what)
{
    const struct target_completion *done = finished(world, tag);

    if (done->status != status)
        die("%s: status %d instead of %d", what, (int)done->status, (int)status);
    return done;
}

static const struct target_completion *acquire(struct world *world, uint32_t client,
                                               const char *name, const char *what)
{
    const struct target_completion *done =
        ends(world, begin_acquire(world, client, name, true, UINT32_MAX), TARGET_OK, what);

    if (done->op != TARGET_ACQUIRE || done->lock == 0)
        die("%s: no lock", what);
    if ((done->token != 0) != has_tokens(world))
        die("%s: token %" PRIu64, what, done->token);
    return done;
}

static void try_ends(struct world *world, uint32_t client, const char *name,
                     enum target_status status, const char *what)
{
    if (is(world, "etcd-lock")) /* has no try: a short wait says the same */
        ends(world, begin_acquire(world, client, name, true, 200),
             status == TARGET_BUSY ? TARGET_TIMED_OUT : status, what);
    else
        ends(world, begin_acquire(world, client, name, false, 0), status, what);
}

static void release_ends(struct world *world, target_lock lock, enum target_status status,
                         const char *what)
{
    uint64_t tag = new_tag(world);

    if (!world->class->release(world->target, lock, tag))
        die("release was not begun");
    if (ends(world, tag, status, what)->op != TARGET_RELEASE)
        die("%s: the op of a release", what);
}

static void holders_are(struct world *world, const char *name, uint32_t holders, bool stale)
{
    uint64_t tag = new_tag(world);
    char buffer[NAME_BYTES];

    if (!world->class->query(world->target, world->clients - 1, full_name(world, name, buffer),
                             stale, tag))
        die("query was not begun");
    if (ends(world, tag, TARGET_OK, "query")->holders != holders)
        die("%u holders of %s instead of %u", world->done[tag].holders, name, holders);
}

/* ---- scenarios ----------------------------------------------------------------------------- */

static void basics(struct world *world)
{
    open_target(world, CLIENTS, 10000, true);
    holders_are(world, "basics/a", 0, false);
    const struct target_completion *a = acquire(world, 0, "basics/a", "first acquire");
    holders_are(world, "basics/a", 1, false);
    holders_are(world, "basics/a", 1, is(world, "redis")); /* a stale answer may be older */
    /* Not by who acquires next: what a try leaves behind must be in somebody else's way. */
    try_ends(world, 3, "basics/a", TARGET_BUSY, "try of a held lock");
    const struct target_completion *b = acquire(world, 1, "basics/a/b", "a name below the other");
    const struct target_completion *c = acquire(world, 1, "basics/", "the start of the other");
    release_ends(world, b->lock, TARGET_OK, "release of the name below");
    release_ends(world, c->lock, TARGET_OK, "release of the start");
    holders_are(world, "basics/a", 1, false);
    if (is(world, "etcd-lock"))
        ends(world, begin_acquire(world, 1, "basics/t", false, 0), TARGET_REFUSED, "a real try");

    /* Somebody else's lock. */
    release_ends(world, 0, TARGET_LOST, "release of no lock");
    release_ends(world, a->lock + 1, TARGET_LOST, "release of another lock");
    try_ends(world, 3, "basics/a", TARGET_BUSY, "try after releases that failed");
    release_ends(world, a->lock, TARGET_OK, "release");
    release_ends(world, a->lock, TARGET_LOST, "second release");
    const struct target_completion *d = acquire(world, 1, "basics/a", "acquire by another");
    if (has_tokens(world) && d->token <= a->token)
        die("token %" PRIu64 " after %" PRIu64, d->token, a->token);
    release_ends(world, a->lock, TARGET_LOST, "release by who had it before");
    try_ends(world, 2, "basics/a", TARGET_BUSY, "try after a release by who had it before");

    uint64_t tag = new_tag(world);
    if (!world->class->renew(world->target, d->lock, tag))
        die("renew was not begun");
    ends(world, tag, is(world, "zookeeper") ? TARGET_REFUSED : TARGET_OK, "renew");
    struct target_acquire shared = {.name = "basics/s", .shared = true};
    tag = new_tag(world);
    if (!world->class->acquire(world->target, 3, &shared, tag))
        die("shared acquire was not begun");
    ends(world, tag, TARGET_REFUSED, "shared");
    world->class->close(world->target); /* d is given up */
    open_target(world, 1, 10000, true);
    try_ends(world, 0, "basics/a", TARGET_OK, "try after the holder was closed");
    world->class->close(world->target);
}

/* Longer than two lease times: the holder keeps it, waiters give up and leave nothing behind. */
static void kept(struct world *world)
{
    open_target(world, CLIENTS, TTL_MS, true);
    const struct target_completion *a = acquire(world, 0, "kept", "first acquire");
    uint64_t since_ns = peer_now_ns();
    uint64_t first = begin_acquire(world, 1, "kept", true, TTL_MS * 5 / 2);
    uint64_t second = begin_acquire(world, 2, "kept", true, TTL_MS * 5 / 2);
    uint64_t third = begin_acquire(world, 3, "kept", true, UINT32_MAX);
    ends(world, first, TARGET_TIMED_OUT, "first waiter");
    ends(world, second, TARGET_TIMED_OUT, "second waiter");
    if (peer_now_ns() - since_ns < TTL_MS * 5 / 2 * PEER_MS_NS)
        die("timed out too early");
    if (world->is_done[third])
        die("the third waiter did not wait");
    release_ends(world, a->lock, TARGET_OK, "release of a lock that was kept alive");
    const struct target_completion *c = ends(world, third, TARGET_OK, "third waiter");
    release_ends(world, c->lock, TARGET_OK, "release by the third");
    try_ends(world, 4, "kept", TARGET_OK, "try after all are gone");
    if (world->lost_count)
        die("a lock that was kept alive was lost");
    world->class->close(world->target);
}

/* Who does not renew loses the lock, to somebody who does and waits. */
static void expire(struct world *world)
{
    static struct world other;

    other.class = world->class;
    other.endpoints = world->endpoints;
    other.beside = world;
    open_target(world, 1, TTL_MS, false);
    open_target(&other, 1, TTL_MS, true);
    uint64_t since_ns = peer_now_ns();
    const struct target_completion *a = acquire(world, 0, "expire", "first acquire");
    const struct target_completion *b = acquire(&other, 0, "expire", "acquire after the lease");
    uint64_t took_ns = peer_now_ns() - since_ns;

    if (took_ns < TTL_MS / 2 * PEER_MS_NS || took_ns > 6 * TTL_MS * PEER_MS_NS)
        die("a lease of %d ms ended after %" PRIu64 " ms", TTL_MS, took_ns / PEER_MS_NS);
    if (has_tokens(world) && b->token <= a->token)
        die("token %" PRIu64 " after %" PRIu64, b->token, a->token);
    uint64_t tag = new_tag(world);
    if (!world->class->release(world->target, a->lock, tag))
        die("release was not begun");
    /* ZooKeeper's client may first notice that it has no connection any more. */
    if (finished(world, tag)->status != TARGET_UNREACHABLE || !is(world, "zookeeper"))
        ends(world, tag, TARGET_LOST, "release of a lock that ran out");
    if (world->lost_count > 1 ||
        (world->lost_count && (world->lost_lock != a->lock || world->lost_tag != a->tag)))
        die("the wrong lock was reported lost");
    bool knows_deadline = is(world, "etcd") || is(world, "etcd-lock");
    if (knows_deadline && !world->lost_count)
        die("nobody was told that the lease is over");
    release_ends(&other, b->lock, TARGET_OK, "release by who got it then");
    world->class->close(world->target);
    other.class->close(other.target);
}

static void unreachable(struct world *world)
{
    char line[16];

    open_target(world, 2, 10000, true);
    const struct target_completion *a = acquire(world, 0, "unreachable/held", "acquire");
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof(line), stdin))
        die("no word from the test");
    uint64_t since_ns = peer_now_ns();
    uint64_t acquired = begin_acquire(world, 1, "unreachable/new", true, UINT32_MAX);
    uint64_t released = new_tag(world), queried = new_tag(world);
    if (!world->class->release(world->target, a->lock, released))
        die("release was not begun");
    if (!world->class->query(world->target, 1, "unreachable/new", false, queried))
        die("query was not begun");
    ends(world, acquired, TARGET_UNREACHABLE, "acquire without servers");
    ends(world, released, TARGET_UNREACHABLE, "release without servers");
    ends(world, queried, TARGET_UNREACHABLE, "query without servers");
    if (peer_now_ns() - since_ns > UINT64_C(15000000000))
        die("it took too long to say so");
    world->class->close(world->target);
}

/* etcd: the test puts a key with this client's lease, as a release without an answer leaves one. */
static void leftover(struct world *world)
{
    char line[32];

    open_target(world, 1, 10000, true);
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof(line), stdin))
        die("no word from the test");
    uint64_t left = strtoull(line, NULL, 10); /* the key's revision */
    holders_are(world, "left", 1, false);
    const struct target_completion *a = acquire(world, 0, "left", "acquire over an own old key");
    if (a->token <= left)
        die("token %" PRIu64 " of a lock beside an old key of %" PRIu64, a->token, left);
    ends(world, begin_acquire(world, 0, "left", true, UINT32_MAX), TARGET_REFUSED,
         "a second acquire by the same client");
    holders_are(world, "left", 1, false);
    release_ends(world, a->lock, TARGET_OK, "release");
    holders_are(world, "left", 0, false);
    world->class->close(world->target);
}

/* Whether the test has said its word. */
static bool told(void)
{
    struct pollfd input = {.fd = 0, .events = POLLIN};

    return poll(&input, 1, 0) > 0;
}

/* ---- many at once -------------------------------------------------------------------------- */

struct crowd {
    const struct target_class *class;
    struct target *target;
    uint32_t clients;
    bool one_name;
    bool tolerant;       /* servers die meanwhile: what is unreachable or lost is begun again */
    uint32_t rounds_due; /* of all clients together */
    uint32_t rounds_done;
    uint32_t holder; /* of the one name: client + 1; 0 = nobody */
    target_lock held_lock;
    uint64_t token;
    uint64_t troubles, losses;
    uint32_t under_way;
};

static void crowd_acquire(struct crowd *crowd, uint32_t client)
{
    char name[NAME_BYTES];
    struct target_acquire acquire = {.name = name, .wait = true, .wait_ms = UINT32_MAX};

    snprintf(name, sizeof(name), "%s/crowd%d", crowd->class->name,
             crowd->one_name ? -1 : (int)client);
    crowd->under_way++;
    if (!crowd->class->acquire(crowd->target, client, &acquire, client))
        die("acquire of client %u was not begun", client);
}

static void crowd_granted(struct crowd *crowd, const struct target_completion *done)
{
    uint32_t client = (uint32_t)done->tag;

    if (crowd->one_name) {
        if (crowd->holder)
            die("client %u holds what client %u holds", client, crowd->holder - 1);
        if (done->token && done->token <= crowd->token)
            die("token %" PRIu64 " after %" PRIu64, done->token, crowd->token);
        crowd->token = done->token;
        crowd->holder = client + 1;
        crowd->held_lock = done->lock;
        /* What it holds is held while others' answers come in: one turn at least. */
        return;
    }
    crowd->under_way++;
    if (!crowd->class->release(crowd->target, done->lock, client))
        die("release was not begun");
}

static void crowd_complete(void *context, const struct target_completion *done)
{
    struct crowd *crowd = context;
    bool trouble = done->status == TARGET_UNREACHABLE || done->status == TARGET_LOST;

    crowd->under_way--;
    if (done->status != TARGET_OK && !(trouble && crowd->tolerant))
        die("op %d of client %u ended with status %d", (int)done->op, (unsigned)done->tag,
            (int)done->status);
    crowd->troubles += done->status != TARGET_OK;
    if (done->op == TARGET_ACQUIRE && done->status == TARGET_OK) {
        crowd_granted(crowd, done);
        return;
    }
    if (done->op == TARGET_RELEASE)
        crowd->rounds_done++;
    if (crowd->rounds_done < crowd->rounds_due)
        crowd_acquire(crowd, (uint32_t)done->tag);
}

static void crowd_lost(void *context, target_lock lock, uint64_t lock_tag)
{
    struct crowd *crowd = context;

    if (!crowd->tolerant)
        die("client %u lost its lock", (unsigned)lock_tag);
    crowd->losses++;
    if (crowd->one_name && crowd->held_lock == lock)
        crowd->holder = 0; /* and it is begun again by its release, which ends with LOST */
}

static void crowd_release(struct crowd *crowd, target_lock lock, uint32_t client)
{
    crowd->holder = 0; /* from the moment on that it says so */
    crowd->held_lock = 0;
    crowd->under_way++;
    if (!crowd->class->release(crowd->target, lock, client))
        die("release was not begun");
}

static void run_crowd(struct world *world, uint32_t clients, bool one_name, bool tolerant,
                      uint32_t rounds)
{
    struct crowd crowd = {.class = world->class,
                          .clients = clients,
                          .one_name = one_name,
                          .tolerant = tolerant,
                          .rounds_due = rounds};
    char error[512] = "";
    struct target_options options = {.endpoints = world->endpoints,
                                     .clients = clients,
                                     .commands_max = clients * 2,
                                     .locks_max = clients,
                                     .ttl_ms = tolerant ? 4000 : 10000,
                                     .pack = 16,
                                     .renew = true,
                                     .complete = crowd_complete,
                                     .lost = crowd_lost,
                                     .context = &crowd};

    crowd.target = world->class->open(&options, error, sizeof(error));
    if (!crowd.target)
        die("open: %s", error);
    for (uint32_t i = 0; i < clients; i++)
        crowd_acquire(&crowd, i);
    uint64_t start_ns = peer_now_ns(), until_ns = start_ns + UINT64_C(45000000000);
    bool said = false, all_told = !tolerant;
    while (!all_told || crowd.rounds_done < crowd.rounds_due) {
        uint32_t holder = crowd.holder;
        target_lock lock = crowd.held_lock;

        if (peer_now_ns() >= until_ns)
            die("%u of %u rounds in time, %u commands under way", crowd.rounds_done, rounds,
                crowd.under_way);
        if (!all_told) {
            if (!said && crowd.rounds_done >= rounds) {
                said = true;
                puts("ready");
                fflush(stdout);
            }
            crowd.rounds_due = crowd.rounds_done + rounds;
            all_told = said && told();
        }
        crowd.class->turn(crowd.target, holder ? 0 : peer_now_ns() + 100 * PEER_MS_NS);
        if (holder && crowd.held_lock == lock)
            crowd_release(&crowd, lock, holder - 1);
    }
    uint64_t took_ms = (peer_now_ns() - start_ns) / PEER_MS_NS;
    printf("%u rounds in %" PRIu64 " ms, %" PRIu64 " troubles, %" PRIu64 " losses\n",
           crowd.rounds_done, took_ms, crowd.troubles, crowd.losses);
    crowd.class->close(crowd.target); /* with commands under way */
}

static const struct target_class *find_class(const char *name)
{
    static const struct target_class *const classes[] = {
#ifdef BELAY_BENCH_ETCD
        &target_etcd,
        &target_etcd_lock,
#endif
#ifdef BELAY_BENCH_ZOOKEEPER
        &target_zookeeper,
#endif
#ifdef BELAY_BENCH_REDIS
        &target_redis,
        &target_redlock,
#endif
        NULL};

    for (unsigned i = 0; classes[i]; i++) {
        if (strcmp(classes[i]->name, name) == 0)
            return classes[i];
    }
    die("no driver of %s in this program", name);
}

int main(int argc, char **argv)
{
    static struct world world;

    if (argc < 4)
        die("usage: peers TARGET ENDPOINTS SCENARIO [ROUNDS]");
    world.class = find_class(argv[1]);
    world.endpoints = argv[2];
    uint32_t rounds = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : CLIENTS * ROUNDS;
    if (strcmp(argv[3], "basics") == 0)
        basics(&world);
    else if (strcmp(argv[3], "kept") == 0)
        kept(&world);
    else if (strcmp(argv[3], "expire") == 0)
        expire(&world);
    else if (strcmp(argv[3], "unreachable") == 0)
        unreachable(&world);
    else if (strcmp(argv[3], "leftover") == 0)
        leftover(&world);
    else if (strcmp(argv[3], "exclusion") == 0)
        run_crowd(&world, CLIENTS, true, false, rounds);
    else if (strcmp(argv[3], "outage") == 0)
        run_crowd(&world, CLIENTS, true, true, rounds);
    else if (strcmp(argv[3], "many") == 0)
        run_crowd(&world, MANY, false, false, rounds);
    else
        die("no scenario %s", argv[3]);
    return 0;
}
