/* SPDX-License-Identifier: Apache-2.0
 *
 * Belay through the client's protocol core, one core for all clients and one socket: what a server
 * process does that locks on behalf of many. Every client has sessions of its own.
 *
 * With `pack` 1 the datagram is closed behind every command, so that no two commands of the user
 * share one; otherwise whatever was begun between two turns shares datagrams, as far as they reach.
 * Renewals that the client makes on its own always share: that is how it works.
 *
 * The core's callbacks must not call back into it, and completions may come while a command is
 * being begun. Both are met by a ring of what is to be told, emptied in turn().
 */
#include "bench/load/target.h"

#include <arpa/inet.h>
#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>

#include "bench/core_socket.h"
#include "bench/load/dpdk.h"

enum {
    NAME_BYTES_MAX = 200,
    REQUEST_TIMEOUT_MS = 30000, /* silence; the waiting itself has no limit of its own */
    SESSION_TTL_MS = 30000,
    CONNECT_MS = 10000, /* to the first answer */
    PREPARE_MS = 30000,
    CLOSE_MS = 5000,
    /* Sessions opened beforehand; beyond it each opens with its client's first command. */
    PREPARED_MAX = 32768,
    SESSIONS_SPARE = 262144,
};

#define MS_NS UINT64_C(1000000)

/* What the engine is still to be told. */
struct told {
    struct target_completion completion;
    uint64_t lost_tag;
    bool lost;
};

struct target {
    struct target_options options;
    struct core *core;
    void *memory;
    size_t memory_bytes;
    bool refusal_shown;
    uint32_t under_way; /* commands begun whose completion has not been given */
    struct told *told;  /* ring; commands and held locks together never exceed it */
    uint32_t told_mask;
    uint32_t told_head, told_tail;
    struct core_socket socket;
    struct belay_dpdk_port *port; /* NULL: the socket is the kernel's */
};

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;

    (void)clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* ---- what the core says ---------------------------------------------------------------------- */

static void on_send(void *context, const struct wire_address *to, const uint8_t *bytes,
                    size_t length)
{
    core_socket_push(&((struct target *)context)->socket, to, bytes, length);
}

static struct told *tell(struct target *target)
{
    struct told *told = &target->told[target->told_head++ & target->told_mask];

    assert(target->told_head - target->told_tail <= target->told_mask + 1);
    return told;
}

static enum target_status status_of(belay_status status)
{
    switch (status) {
    case BELAY_OK:
        return TARGET_OK;
    case BELAY_BUSY:
    case BELAY_DELAYED:
        return TARGET_BUSY;
    case BELAY_TIMED_OUT:
    case BELAY_CANCELLED:
        return TARGET_TIMED_OUT;
    case BELAY_LOST:
    case BELAY_SESSION_LOST:
        return TARGET_LOST;
    case BELAY_UNREACHABLE:
    case BELAY_STALE_REQUEST:
    case BELAY_CLOSED:
        return TARGET_UNREACHABLE;
    default:
        return TARGET_REFUSED;
    }
}

static enum target_op op_of(uint8_t op)
{
    switch (op) {
    case WIRE_OP_ACQUIRE:
        return TARGET_ACQUIRE;
    case WIRE_OP_RELEASE:
        return TARGET_RELEASE;
    case WIRE_OP_RENEW:
        return TARGET_RENEW;
    default:
        assert(op == WIRE_OP_QUERY);
        return TARGET_QUERY;
    }
}

/* The first one, with what a count of refusals cannot tell. */
static void show_refusal(struct target *target, const struct core_completion *completion)
{
    if (target->refusal_shown)
        return;
    target->refusal_shown = true;
    if (completion->status == BELAY_OVER_LIMIT && completion->limit > 0)
        fprintf(stderr, "belay: a command was refused: %s, the limit is %llu\n",
                wire_what_text(completion->what), (unsigned long long)completion->limit);
    else
        fprintf(stderr, "belay: a command was refused with status %d, %s (include/belay/belay.h)\n",
                (int)completion->status, wire_what_text(completion->what));
}

static void on_complete(void *context, const struct core_completion *completion)
{
    struct target *target = context;
    struct told *told = tell(target);
    struct core_lock_info info;

    *told = (struct told){.completion = {.tag = completion->user,
                                         .op = op_of(completion->op),
                                         .status = status_of(completion->status)}};
    if (told->completion.status == TARGET_REFUSED)
        show_refusal(target, completion);
    if (completion->status != BELAY_OK)
        return;
    if (completion->op == WIRE_OP_ACQUIRE) {
        told->completion.lock = completion->lock;
        if (core_lock_info(target->core, completion->lock, &info))
            told->completion.token = info.token;
    } else if (completion->op == WIRE_OP_QUERY && completion->item) {
        told->completion.holders = ((const struct wire_state *)completion->item)->holders;
    }
}

static void on_lost(void *context, core_ref lock, uint64_t user, belay_lost_reason reason)
{
    struct target *target = context;

    (void)reason;
    *tell(target) = (struct told){.completion.lock = lock, .lost_tag = user, .lost = true};
}

static void on_revoke(void *context, core_ref lock, uint64_t user)
{
    (void)context;
    (void)lock;
    (void)user;
}

static void on_renewed(void *context, core_ref lock, uint64_t user, uint64_t deadline_ns)
{
    (void)context;
    (void)lock;
    (void)user;
    (void)deadline_ns;
}

static bool give(struct target *target)
{
    bool any = target->told_tail != target->told_head;

    while (target->told_tail != target->told_head) {
        /* Copied: the engine may begin commands, and those may complete at once. */
        struct told told = target->told[target->told_tail++ & target->told_mask];

        if (told.lost) {
            target->options.lost(target->options.context, told.completion.lock, told.lost_tag);
        } else {
            target->under_way--;
            target->options.complete(target->options.context, &told.completion);
        }
    }
    return any;
}

/* ---- commands -------------------------------------------------------------------------------- */

static bool begun(struct target *target, belay_status status)
{
    if (status != BELAY_OK)
        return false;
    target->under_way++;
    if (target->options.pack == 1)
        core_flush(target->core);
    return true;
}

static bool has_room(const struct target *target)
{
    return target->under_way < target->options.commands_max;
}

static bool belay_acquire_begin(struct target *target, uint32_t client,
                                const struct target_acquire *acquire, uint64_t tag)
{
    struct core_acquire command = {
        .name = {.name = (const uint8_t *)acquire->name,
                 .name_bytes = (uint8_t)strlen(acquire->name)},
        .mode = acquire->shared ? WIRE_SHARED : WIRE_EXCLUSIVE,
        .flags = acquire->wait ? 0 : WIRE_TRY,
        .ttl_ms = target->options.ttl_ms,
        .wait_ms = acquire->wait_ms == UINT32_MAX ? UINT64_MAX : acquire->wait_ms,
        .no_renewal = !target->options.renew,
        .lock_user = tag,
    };

    return has_room(target) && begun(target, core_acquire(target->core, core_socket_now_ns(),
                                                          client, &command, tag, NULL));
}

/* A lock that the core no longer knows was lost: that is an answer, not a refusal. */
static bool lock_begun(struct target *target, belay_status status, enum target_op op, uint64_t tag)
{
    if (status != BELAY_LOST && status != BELAY_BAD_REQUEST)
        return begun(target, status);
    *tell(target) = (struct told){.completion = {.tag = tag, .op = op, .status = TARGET_LOST}};
    target->under_way++;
    return true;
}

static bool belay_release_begin(struct target *target, target_lock lock, uint64_t tag)
{
    return has_room(target) &&
           lock_begun(target, core_release(target->core, core_socket_now_ns(), lock, tag, NULL),
                      TARGET_RELEASE, tag);
}

static bool belay_renew_begin(struct target *target, target_lock lock, uint64_t tag)
{
    return has_room(target) &&
           lock_begun(target, core_renew(target->core, core_socket_now_ns(), lock, tag, NULL),
                      TARGET_RENEW, tag);
}

static bool belay_query_begin(struct target *target, uint32_t client, const char *name, bool stale,
                              uint64_t tag)
{
    struct core_read command = {
        .op = WIRE_OP_QUERY,
        .stale = stale,
        .name = {.name = (const uint8_t *)name, .name_bytes = (uint8_t)strlen(name)},
    };

    return has_room(target) && begun(target, core_read(target->core, core_socket_now_ns(), client,
                                                       &command, tag, NULL));
}

/* ---- turning --------------------------------------------------------------------------------- */

static void wait_for_datagram(const struct target *target, uint64_t until_ns)
{
    struct pollfd descriptor = {.fd = target->socket.descriptor, .events = POLLIN};
    uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
    uint64_t core_ns = core_socket_now_ns();
    uint64_t deadline_ns = core_next_deadline(target->core);
    uint64_t wait_ns = until_ns > now_ns ? until_ns - now_ns : 0;
    struct timespec limit;

    if (deadline_ns <= core_ns || target->port != NULL)
        return; /* a port is polled */
    if (deadline_ns - core_ns < wait_ns)
        wait_ns = deadline_ns - core_ns;
    if (wait_ns == 0)
        return;
    if (wait_ns > 1000 * MS_NS)
        wait_ns = 1000 * MS_NS;
    limit = (struct timespec){.tv_sec = (time_t)(wait_ns / UINT64_C(1000000000)),
                              .tv_nsec = (long)(wait_ns % UINT64_C(1000000000))};
    (void)ppoll(&descriptor, 1, &limit, NULL);
}

static void belay_turn(struct target *target, uint64_t until_ns)
{
    core_flush(target->core);
    core_socket_flush(&target->socket);
    core_socket_turn(&target->socket, target->core);
    while (!give(target) && until_ns > clock_ns(CLOCK_MONOTONIC)) {
        wait_for_datagram(target, until_ns);
        core_socket_turn(&target->socket, target->core);
    }
}

/* ---- opening and closing --------------------------------------------------------------------- */

static bool parse_endpoints(const char *text, struct core_options *options, char *error,
                            size_t error_bytes)
{
    char copy[512];
    char *rest = copy;
    char *one;
    int length = snprintf(copy, sizeof copy, "%s", text);

    while (length > 0 && length < (int)sizeof copy && (one = strsep(&rest, ",")) != NULL) {
        char *colon = strrchr(one, ':');
        char *end = colon;
        unsigned long port = colon ? strtoul(colon + 1, &end, 10) : 0;
        struct wire_address *address = &options->endpoints[options->endpoints_count];
        struct in_addr ip;

        if (colon)
            *colon = 0;
        if (!colon || *end || port == 0 || port > UINT16_MAX || inet_pton(AF_INET, one, &ip) != 1) {
            (void)snprintf(error, error_bytes,
                           "belay: \"%s\" is not an endpoint: give IPv4 addresses with their "
                           "client ports, as in belay:127.0.0.1:7400",
                           one);
            return false;
        }
        if (options->endpoints_count == CORE_ENDPOINTS_MAX)
            break;
        *address = (struct wire_address){.ip = {[10] = 0xff, [11] = 0xff}, .port = (uint16_t)port};
        memcpy(address->ip + 12, &ip, 4);
        options->endpoints_count++;
    }
    if (options->endpoints_count == 0)
        (void)snprintf(error, error_bytes,
                       "belay: no endpoint: say which nodes, as in belay:127.0.0.1:7400");
    return options->endpoints_count > 0;
}

static bool make_core(struct target *target, struct core_options *core)
{
    const struct target_options *options = &target->options;
    struct core_sink sink = {.send = on_send,
                             .complete = on_complete,
                             .lost = on_lost,
                             .revoke = on_revoke,
                             .renewed = on_renewed,
                             .context = target};
    uint64_t pairs = (uint64_t)options->clients * WIRE_SHARDS_MAX;
    uint32_t sessions = options->clients + options->clients / 8 + SESSIONS_SPARE;

    core->clients_count = options->clients;
    core->sessions_max = pairs < sessions ? (uint32_t)pairs : sessions;
    core->locks_max = options->locks_max + options->commands_max;
    core->requests_max = options->commands_max;
    core->text_bytes_max = NAME_BYTES_MAX;
    core->session_ttl_ms = SESSION_TTL_MS;
    core->request_timeout_ms = REQUEST_TIMEOUT_MS;
    if (getrandom(core->seed, sizeof core->seed, 0) != (ssize_t)sizeof core->seed)
        return false;
    target->memory_bytes = core_memory_bytes(core);
    target->memory = mmap(NULL, target->memory_bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (target->memory == MAP_FAILED) {
        target->memory = NULL;
        return false;
    }
    target->core = core_init(target->memory, core, &sink, core_socket_now_ns());
    return true;
}

static bool make_ring(struct target *target)
{
    uint64_t most = (uint64_t)target->options.commands_max * 2 + target->options.locks_max + 64;
    uint32_t size = 64;

    while (size < most)
        size *= 2;
    target->told = calloc(size, sizeof *target->told);
    target->told_mask = size - 1;
    return target->told != NULL;
}

/* ---- sessions beforehand --------------------------------------------------------------------- */

struct prepare {
    uint32_t left;
    enum target_status failed;
};

/* Whoever was granted gives back at once. Busy is good enough: the session is open. */
static void prepared(struct target *target, struct prepare *prepare)
{
    while (target->told_tail != target->told_head) {
        struct told told = target->told[target->told_tail++ & target->told_mask];
        enum target_status status = told.completion.status;

        if (told.lost)
            continue;
        target->under_way--;
        prepare->left--;
        if (status == TARGET_REFUSED || status == TARGET_UNREACHABLE)
            prepare->failed = status;
        if (told.completion.op == TARGET_ACQUIRE && status == TARGET_OK &&
            belay_release_begin(target, told.completion.lock, 0))
            prepare->left++;
    }
}

/* A name of the client's own that lies in the shard. */
static bool name_in_shard(char *name, size_t bytes, uint32_t client, uint16_t shard,
                          uint32_t shards)
{
    for (uint32_t i = 0; i < 100000; i++) {
        int length = snprintf(name, bytes, "ready/%u/{%u}", client, i);

        if (wire_shard_of(NULL, 0, (const uint8_t *)name, (size_t)length, shards) == shard)
            return true;
    }
    return false;
}

static void prepare_turn(struct target *target, struct prepare *prepare)
{
    uint64_t until_ns = clock_ns(CLOCK_MONOTONIC) + 10 * MS_NS;

    core_flush(target->core);
    core_socket_flush(&target->socket);
    core_socket_turn(&target->socket, target->core);
    if (target->told_tail == target->told_head) {
        wait_for_datagram(target, until_ns);
        core_socket_turn(&target->socket, target->core);
    }
    prepared(target, prepare);
}

static bool wait_for_map(struct target *target, uint64_t deadline_ns)
{
    struct prepare none = {0};

    while (core_shards(target->core) == 0) {
        if (core_socket_now_ns() > deadline_ns)
            return false;
        prepare_turn(target, &none);
    }
    return true;
}

/* A lock of every client at every shard, taken and given back, opens the sessions. */
static bool open_sessions(struct target *target, uint64_t deadline_ns, struct prepare *prepare)
{
    uint32_t shards = core_shards(target->core);
    uint32_t count = target->options.clients * shards;

    for (uint32_t i = 0; i < count || prepare->left > 0;) {
        char name[64];

        if (core_socket_now_ns() > deadline_ns || prepare->failed != TARGET_OK)
            return false;
        if (i < count && has_room(target) &&
            name_in_shard(name, sizeof name, i / shards, (uint16_t)(i % shards), shards)) {
            struct target_acquire acquire = {.name = name};

            if (belay_acquire_begin(target, i / shards, &acquire, 0)) {
                prepare->left++;
                i++;
                continue;
            }
        }
        prepare_turn(target, prepare);
    }
    return true;
}

static bool get_ready(struct target *target, char *error, size_t error_bytes)
{
    uint64_t begun_ns = core_socket_now_ns();
    struct prepare prepare = {.failed = TARGET_OK};

    if (!wait_for_map(target, begun_ns + CONNECT_MS * MS_NS)) {
        (void)snprintf(error, error_bytes,
                       "belay: no node answers at %s: is belayd running there, and are these its "
                       "client ports?",
                       target->options.endpoints);
        return false;
    }
    if ((uint64_t)target->options.clients * core_shards(target->core) > PREPARED_MAX)
        return true;
    if (open_sessions(target, begun_ns + PREPARE_MS * MS_NS, &prepare))
        return true;
    (void)snprintf(error, error_bytes,
                   prepare.failed == TARGET_REFUSED
                       ? "belay: %s refuses %u clients: raise its limits.sessions and "
                         "limits.leases, or ask for fewer clients"
                       : "belay: %s could not open the sessions of %u clients: has every shard a "
                         "leader?",
                   target->options.endpoints, target->options.clients);
    return false;
}

static void belay_close_target(struct target *target)
{
    if (target->core) {
        uint64_t deadline_ns = core_socket_now_ns() + CLOSE_MS * MS_NS;
        uint32_t closed = 0;

        for (uint32_t i = 0; i < target->options.clients; i++) {
            core_close(target->core, core_socket_now_ns(), i);
            target->told_tail = target->told_head; /* nobody asks any more */
            if (i % CORE_SOCKET_BURST == 0)
                core_socket_turn(&target->socket, target->core);
        }
        while (closed < target->options.clients && core_socket_now_ns() < deadline_ns) {
            if (core_client_is_closed(target->core, closed)) {
                closed++;
                continue;
            }
            wait_for_datagram(target, clock_ns(CLOCK_MONOTONIC) + 10 * MS_NS);
            core_socket_turn(&target->socket, target->core);
            target->told_tail = target->told_head;
        }
    }
    if (target->memory)
        (void)munmap(target->memory, target->memory_bytes);
    core_socket_close(&target->socket);
    belay_dpdk_port_close(target->port);
    free(target->told);
    free(target);
}

static bool open_socket(struct target *target)
{
    belay_transport transport;

    if (target->port == NULL)
        return core_socket_open(&target->socket);
    belay_dpdk_port_transport(target->port, &transport);
    core_socket_open_transport(&target->socket, &transport);
    return true;
}

static struct target *belay_open_target(const struct target_options *options, char *error,
                                        size_t error_bytes)
{
    struct core_options core;
    struct target *target;

    core_options_init(&core);
    if (!parse_endpoints(options->endpoints, &core, error, error_bytes))
        return NULL;
    target = calloc(1, sizeof *target);
    if (!target) {
        (void)snprintf(error, error_bytes, "belay: no memory");
        return NULL;
    }
    target->options = *options;
    target->socket.descriptor = -1;
    if (options->port != NULL && !dpdk_port(options->port, &target->port, error, error_bytes)) {
        belay_close_target(target);
        return NULL;
    }
    if (!open_socket(target) || !make_ring(target) || !make_core(target, &core)) {
        (void)snprintf(error, error_bytes,
                       "belay: no memory or no socket for %u clients and %u locks: ask for fewer",
                       options->clients, options->locks_max);
        belay_close_target(target);
        return NULL;
    }
    if (!get_ready(target, error, error_bytes)) {
        belay_close_target(target);
        return NULL;
    }
    return target;
}

const struct target_class target_belay = {
    .name = "belay",
    .what = "Belay: ACQUIRE, RELEASE, RENEW and QUERY of its datagram protocol",
    .open = belay_open_target,
    .acquire = belay_acquire_begin,
    .release = belay_release_begin,
    .renew = belay_renew_begin,
    .query = belay_query_begin,
    .turn = belay_turn,
    .close = belay_close_target,
};
