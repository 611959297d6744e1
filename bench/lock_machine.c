/* SPDX-License-Identifier: Apache-2.0
 *
 * The lock machine by itself, on one core: acquires and releases of random names among many live
 * locks, in log entries of 32 commands, as a worker would build them: requests of one session come
 * one in a row, or eight, as when clients put that many into a datagram. Answers are built and
 * handed to a sink, as on the leader. In the end all leases become due in one instant, and what
 * waits behind them is timed.
 *
 * Only lock_machine_apply_ahead is timed, in runs of 32 entries, by this thread's own processor
 * time: the figure is what a core does, also when other programs share it.
 *
 *     lock_machine [--locks N] [--sessions N] [--seconds S] [--rounds N]
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "dataplane/machine/lock_machine.h"

enum { BATCH = 32, RUN = 32, ENTRY_BYTES_MAX = 4096, TTL_MS = 600000, SESSION_TTL_MS = 86400000 };

struct options {
    uint32_t locks;
    uint32_t sessions;
    double seconds;
    int rounds;
};

struct client {
    uint64_t id;
    uint64_t number;
};

/* Every client holds the same number of locks, each in its place: place / each is the client. */
struct held {
    struct wire_lease_id lease; /* secret 0: nothing, or not known yet */
    uint32_t key_tag;
};

struct built {
    _Alignas(64) uint8_t payload[ENTRY_BYTES_MAX];
    size_t bytes;
    uint32_t commands;
};

struct bench {
    struct options options;
    struct lock_machine *machine;
    struct client *clients;
    struct held *held;
    uint32_t each; /* locks of one client */
    uint32_t opened;
    uint64_t index;
    uint64_t stamp_ns;
    uint64_t random;
    uint64_t names;      /* given so far */
    struct built *built; /* entries to be applied in one run */
    uint32_t built_count;
    uint32_t asked[RUN * BATCH];           /* the places of this run's acquires, in order */
    struct wire_lease_id got[RUN * BATCH]; /* what they were answered; all over `held` later */
    uint32_t acquires;
    uint32_t freed[BATCH]; /* places released and not yet asked for: a queue */
    uint32_t freed_first, freed_last;
    uint32_t answered;
    uint64_t failures;
    double apply_seconds;
    uint64_t operations;
};

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static uint64_t draw(struct bench *bench)
{
    uint64_t z = bench->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static void *map_memory(size_t bytes)
{
    const size_t huge = 2 << 20;
    uint8_t *memory = mmap(NULL, bytes + huge, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    memory = (uint8_t *)(((uintptr_t)memory + huge - 1) / huge * huge);
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

/* ---- entries --------------------------------------------------------------------------------- */

static struct built *entry_start(struct bench *bench)
{
    struct built *built = &bench->built[bench->built_count++];
    built->bytes = sizeof(struct lock_batch);
    built->commands = 0;
    return built;
}

static void *entry_add(struct bench *bench, uint8_t op, size_t bytes)
{
    struct built *built = &bench->built[bench->built_count - 1];
    bytes = wire_pad8(bytes);
    struct wire_request *request = (void *)(built->payload + built->bytes);
    memset(request, 0, bytes);
    request->item.bytes = (uint16_t)bytes;
    request->item.op = op;
    request->drawn = draw(bench);
    built->bytes += bytes;
    built->commands++;
    return request;
}

/* `ordinal` in its datagram: before it was sent, every earlier answer had been seen. */
static void number_request(struct bench *bench, struct wire_request *request, uint32_t place,
                           uint32_t ordinal)
{
    struct client *client = &bench->clients[place / bench->each];
    request->session = client->id;
    request->number = ++client->number;
    request->acked_below = client->number - ordinal;
}

static void on_output(void *context, const struct lock_output *output)
{
    struct bench *bench = context;
    const struct wire_granted *granted = (const struct wire_granted *)output->item;
    bench->answered++;
    if (output->item->status != WIRE_OK) {
        bench->failures++;
    } else if (output->item->op == WIRE_OP_OPEN) {
        bench->clients[bench->opened++].id = granted->reply.session;
    } else if (output->item->op == WIRE_OP_ACQUIRE) {
        bench->got[bench->acquires++] = granted->lease;
    }
}

static void apply_built(struct bench *bench)
{
    struct lock_sink sink = {.emit = on_output, .context = bench};
    struct lock_entry entries[RUN];
    for (uint32_t i = 0; i < bench->built_count; i++) {
        struct built *built = &bench->built[i];
        struct lock_batch batch = {.count = built->commands, .endings_max = LOCK_ENDINGS_DEFAULT};
        memcpy(built->payload, &batch, sizeof(batch));
        bench->stamp_ns += 3200;
        bench->operations += built->commands;
        entries[i] = (struct lock_entry){
            .index = ++bench->index,
            .stamp_ns = bench->stamp_ns,
            .kind = LOCK_ENTRY_COMMANDS,
            .payload = built->payload,
            .payload_bytes = built->bytes,
        };
    }
    bench->acquires = 0;
    int error = 0;
    double start = seconds_now();
    for (uint32_t i = 0; i < bench->built_count; i++) {
        const struct lock_entry *next = i + 1 < bench->built_count ? &entries[i + 1] : NULL;
        error |= lock_machine_apply_ahead(bench->machine, &entries[i], next, &sink);
    }
    bench->apply_seconds += seconds_now() - start;
    for (uint32_t i = 0; i < bench->acquires; i++) {
        bench->held[bench->asked[i]].lease = bench->got[i];
    }
    bench->built_count = 0;
    bench->acquires = 0;
    if (error != 0) {
        fprintf(stderr, "an entry was refused\n");
        exit(1);
    }
}

static void add_acquire(struct bench *bench, uint32_t place, uint32_t ordinal)
{
    char name[20];
    /* An odd factor permutes the 44-bit numbers: names in random order, none of them twice. */
    uint64_t unique = ++bench->names * UINT64_C(0x9e3779b97f5) & ((UINT64_C(1) << 44) - 1);
    snprintf(name, sizeof(name), "lock/%011llx", (unsigned long long)unique);
    struct wire_acquire *acquire = entry_add(bench, WIRE_OP_ACQUIRE, sizeof(*acquire) + 16);
    number_request(bench, &acquire->request, place, ordinal);
    acquire->request.item.flags = WIRE_TRY;
    acquire->ttl_ms = TTL_MS;
    acquire->mode = WIRE_EXCLUSIVE;
    acquire->name_bytes = 16;
    memcpy(acquire->text, name, 16);
    bench->held[place].key_tag = (uint32_t)wire_key_hash(NULL, 0, acquire->text, 16);
    bench->asked[bench->acquires++] = place;
}

static void add_release(struct bench *bench, uint32_t place, uint32_t ordinal)
{
    struct held *held = &bench->held[place];
    struct wire_release *release = entry_add(bench, WIRE_OP_RELEASE, sizeof(*release));
    number_request(bench, &release->request, place, ordinal);
    release->lease = held->lease;
    release->key_tag = held->key_tag;
    held->lease.secret = 0;
}

/* Releases of one client's random locks in a row, and acquires in a row of the client whose locks
 * were released half an entry ago. */
static void add_datagrams(struct bench *bench, uint32_t in_a_row)
{
    uint32_t client = (uint32_t)(draw(bench) % bench->options.sessions);
    for (uint32_t i = 0; i < in_a_row; i++) {
        uint32_t place;
        do {
            place = client * bench->each + (uint32_t)(draw(bench) % bench->each);
        } while (bench->held[place].lease.secret == 0);
        add_release(bench, place, i);
        bench->freed[bench->freed_last++ % BATCH] = place;
    }
    for (uint32_t i = 0; i < in_a_row && bench->freed_last - bench->freed_first > BATCH / 2; i++) {
        add_acquire(bench, bench->freed[bench->freed_first++ % BATCH], i);
    }
}

/* ---- phases ---------------------------------------------------------------------------------- */

static void set_limits(struct bench *bench, const struct lock_limits *limits)
{
    uint8_t bytes[LOCK_LIMITS_BYTES];
    lock_limits_encode(limits, bytes);
    struct lock_entry entry = {
        .index = ++bench->index,
        .kind = LOCK_ENTRY_LIMITS,
        .payload = bytes,
        .payload_bytes = sizeof(bytes),
    };
    if (lock_machine_apply(bench->machine, &entry, NULL) != 0) {
        fprintf(stderr, "limits refused\n");
        exit(1);
    }
}

static void open_sessions(struct bench *bench)
{
    for (uint32_t opened = 0; opened < bench->options.sessions;) {
        struct built *built = entry_start(bench);
        for (; built->commands < BATCH && opened < bench->options.sessions; opened++) {
            struct wire_open *open = entry_add(bench, WIRE_OP_OPEN, sizeof(*open));
            open->nonce = draw(bench) | 1;
            open->ttl_ms = SESSION_TTL_MS;
        }
        apply_built(bench);
    }
}

/* Clients take turns, so that what is one client's lies all over. */
static void fill(struct bench *bench)
{
    uint32_t filled = 0;
    while (filled < bench->options.locks) {
        while (bench->built_count < RUN && filled < bench->options.locks) {
            struct built *built = entry_start(bench);
            for (; built->commands < BATCH && filled < bench->options.locks; filled++) {
                uint32_t client = filled % bench->options.sessions;
                add_acquire(bench, client * bench->each + filled / bench->options.sessions, 0);
            }
        }
        apply_built(bench);
    }
}

/* Each entry releases 16 random locks and acquires 16 new ones. */
static double run(struct bench *bench, uint32_t in_a_row)
{
    bench->apply_seconds = 0;
    bench->operations = 0;
    while (bench->apply_seconds < bench->options.seconds) {
        while (bench->built_count < RUN) {
            struct built *built = entry_start(bench);
            while (built->commands < BATCH) {
                add_datagrams(bench, in_a_row);
            }
        }
        apply_built(bench);
    }
    return (double)bench->operations / bench->apply_seconds;
}

/* What was released and not asked for again. */
static void settle(struct bench *bench)
{
    struct built *built = entry_start(bench);
    while (bench->freed_first != bench->freed_last) {
        add_acquire(bench, bench->freed[bench->freed_first++ % BATCH], 0);
    }
    if (built->commands > 0) {
        apply_built(bench);
    }
}

/* An entry of acquires by itself, in seconds: of the places from `place` on. */
static double apply_alone(struct bench *bench, uint32_t place)
{
    struct built *built = entry_start(bench);
    while (built->commands < BATCH) {
        add_acquire(bench, place++ % bench->options.locks, 0);
    }
    bench->apply_seconds = 0;
    apply_built(bench);
    return bench->apply_seconds;
}

/* Applies the entries that a shard makes while nobody asks for anything, until the first lease has
 * ended. The longest, in seconds. */
static double pass_time(struct bench *bench)
{
    const uint64_t stamp_interval_ns = 250 * UINT64_C(1000000);
    struct lock_counts counts;
    double longest = 0;
    do {
        uint64_t due_ns = lock_machine_next_deadline(bench->machine);
        uint64_t latest_ns = bench->stamp_ns + stamp_interval_ns;
        bench->stamp_ns = due_ns < latest_ns ? due_ns : latest_ns;
        struct lock_entry entry = {
            .index = ++bench->index, .stamp_ns = bench->stamp_ns, .kind = LOCK_ENTRY_EMPTY};
        double start = seconds_now();
        (void)lock_machine_apply(bench->machine, &entry, NULL);
        double took = seconds_now() - start;
        longest = took > longest ? took : longest;
        lock_machine_counts(bench->machine, &counts);
    } while (counts.expired == 0);
    return longest;
}

/* All leases are due at once, while entries of acquires follow one another. */
static void expire(struct bench *bench)
{
    struct lock_counts counts;
    uint64_t due_ns = bench->stamp_ns + (TTL_MS + 10) * UINT64_C(1000000);
    double before = pass_time(bench);
    double longest = 0;
    double whole = 0;
    uint32_t place = 0;
    bench->stamp_ns = due_ns;
    do {
        double took = apply_alone(bench, place);
        longest = took > longest ? took : longest;
        whole += took;
        place += BATCH;
        lock_machine_counts(bench->machine, &counts);
    } while (counts.expired < bench->options.locks);
    printf("%-44s %14.2f\n", "all due at once: longest entry before, ms", before * 1e3);
    printf("%-44s %14.2f\n", "  longest entry while they end, ms", longest * 1e3);
    printf("%-44s %14.1f\n", "  until the last has ended, ms", whole * 1e3);
}

static void print_memory(const struct lock_limits *limits)
{
    struct lock_memory memory = lock_machine_memory(limits);
    struct lock_limits bare = *limits;
    bare.sessions_max = 1;
    bare.waiters_max = 1;
    bare.queue_max = 1;
    bare.answers_max = 1;
    bare.extras_max = 1;
    bare.long_names_max = 1;
    struct lock_memory lock = lock_machine_memory(&bare);
    double locks = limits->leases_max;
    double per_lock = (double)(lock.leases + lock.resources + lock.timers) / locks;
    /* Record, indexes, window, timer, and the one answer that an idle session keeps. */
    double timer_bytes = 8;
    double per_session = (double)memory.sessions / limits->sessions_max + timer_bytes +
                         (double)memory.answers / limits->answers_max;
    printf("%-44s %14.1f\n", "bytes per held lock (leases, names, timers)", per_lock);
    printf("%-44s %14.1f\n", "bytes per idle session, window included", per_session);
    printf("%-44s %14.1f\n", "machine memory in all, MiB", (double)memory.total / (1 << 20));
}

static struct options parse(int argc, char **argv)
{
    struct options options = {.locks = 1000000, .sessions = 10000, .seconds = 2, .rounds = 3};
    static const struct option names[] = {{"locks", required_argument, NULL, 'l'},
                                          {"sessions", required_argument, NULL, 's'},
                                          {"seconds", required_argument, NULL, 't'},
                                          {"rounds", required_argument, NULL, 'r'},
                                          {NULL, 0, NULL, 0}};
    for (int option; (option = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (option) {
        case 'l':
            options.locks = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 's':
            options.sessions = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 't':
            options.seconds = strtod(optarg, NULL);
            break;
        case 'r':
            options.rounds = (int)strtol(optarg, NULL, 10);
            break;
        default:
            exit(2);
        }
    }
    return options;
}

int main(int argc, char **argv)
{
    struct bench bench = {.options = parse(argc, argv), .random = 1, .stamp_ns = 1};
    if (bench.options.sessions == 0 || bench.options.locks / bench.options.sessions < 2 * BATCH) {
        fprintf(stderr, "--locks must be at least %d times --sessions\n", 2 * BATCH);
        return 2;
    }
    struct lock_limits limits = lock_limits_for(bench.options.locks);
    limits.sessions_max = bench.options.sessions;
    limits.answers_max = bench.options.sessions * 16;
    bench.machine = lock_machine_init(map_memory(lock_machine_memory(&limits).total), &limits);
    bench.each = bench.options.locks / bench.options.sessions;
    bench.options.locks = bench.each * bench.options.sessions;
    bench.clients = calloc(bench.options.sessions, sizeof(*bench.clients));
    bench.held = map_memory(sizeof(*bench.held) * ((size_t)bench.options.locks + 1));
    bench.built = map_memory(sizeof(*bench.built) * RUN);
    set_limits(&bench, &limits);
    printf("%u locks, %u sessions, entries of %d commands\n", bench.options.locks,
           bench.options.sessions, BATCH);
    print_memory(&limits);
    open_sessions(&bench);
    fill(&bench);
    printf("%-44s %14.2f\n", "filling, million operations/s",
           (double)bench.operations / bench.apply_seconds / 1e6);
    for (int round = 0; round < bench.options.rounds; round++) {
        printf("%-44s %14.2f\n", "acquire and release, million operations/s", run(&bench, 1) / 1e6);
        settle(&bench);
        printf("%-44s %14.2f\n", "  the same, eight in a row of one session", run(&bench, 8) / 1e6);
        settle(&bench);
    }
    struct lock_counts counts;
    lock_machine_counts(bench.machine, &counts);
    bool all_held = counts.leases == bench.options.locks;
    expire(&bench);
    lock_machine_counts(bench.machine, &counts);
    printf("live %u locks, %llu granted, %llu released, %llu expired, %llu failed answers\n",
           counts.leases, (unsigned long long)counts.granted, (unsigned long long)counts.released,
           (unsigned long long)counts.expired, (unsigned long long)bench.failures);
    return all_held && bench.failures == 0 ? 0 : 1;
}
