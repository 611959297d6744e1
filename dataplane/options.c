/* SPDX-License-Identifier: Apache-2.0
 *
 * Defaults of a node's options, what they may be, and what they cost; see dataplane/options.h.
 */
#include "dataplane/options.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "consensus/log.h"
#include "consensus/raft.h"
#include "consensus/wal.h"
#include "dataplane/shard.h"
#include "dataplane/worker.h"

#define MICROSECOND_NS UINT64_C(1000)
#define MILLISECOND_NS UINT64_C(1000000)
#define SECOND_NS      UINT64_C(1000000000)

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1024) * KIB)
#define GIB (UINT64_C(1024) * MIB)

enum { DEFAULT_LEASES = 65536, SENTENCE_BYTES = 320 };

/* Three nodes on one small machine must do well with these: sleep rather than spin, a WAL that fits
 * anywhere, tables of some 13 MiB a shard. */
void node_options_defaults(struct node_options *options)
{
    *options = (struct node_options){
        .shards = 16,
        .workers = 1,
        .durability = NODE_DISK,
        .limits = lock_limits_for(DEFAULT_LEASES),
        .polling = POLLER_ADAPTIVE,
        .spin_ns = 5 * MICROSECOND_NS,
        .first_core = -1,
        .hugepages = false,
        .heartbeat_ns = 10 * MILLISECOND_NS,
        /* The first of two followers stands within 76 ms in 99 of 100 cases (each waits for one to
         * two of these), which leaves an election its share of 100 ms. A leader that is put off for
         * as long as this on a busy machine is not deposed by one impatient follower: pre-vote. */
        .election_timeout_ns = 40 * MILLISECOND_NS,
        .stamp_interval_ns = 250 * MILLISECOND_NS,
        .lease_reads = false,
        .lease_drift_ppm = 1000,
        .ring_bytes = 4 * MIB,
        .entries_max = 32768,
        .ship_window_bytes = 256 * 1024,
        .wal_segments = 10,
        .socket_buffer_bytes = 4 * 1024 * 1024,
        .dpdk = {.net = {.mtu = 1500}, .hugepages = true},
    };
}

static uint64_t worker_rings_bytes(const struct node_options *options)
{
    uint64_t workers = options->workers ? options->workers : 1;
    return (options->shards + workers - 1) / workers * options->ring_bytes;
}

/* Snapshots go where peers' datagrams go. Ten segments of a quarter of the rings: see
 * check_wal_room. */
void node_options_complete(struct node_options *options)
{
    uint64_t segment_bytes = worker_rings_bytes(options) / 4;
    for (uint16_t i = 0; i < options->members_count; i++) {
        if (options->members[i].management.port == 0)
            options->members[i].management = options->members[i].peer;
    }
    if (options->wal_segment_bytes != 0)
        return;
    if (segment_bytes < 4 * MIB)
        segment_bytes = 4 * MIB;
    if (segment_bytes > 256 * MIB)
        segment_bytes = 256 * MIB;
    options->wal_segment_bytes = segment_bytes;
}

/* ---- judging --------------------------------------------------------------------------------- */

/* Sentences begin with the option's name in the configuration file and a colon: mgmt/config.c finds
 * the line from it. They live until the thread's next check. */
__attribute__((format(printf, 1, 2))) static const char *sentence(const char *format, ...)
{
    static _Thread_local char text[SENTENCE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return text;
}

static const char *check_range(const char *name, uint64_t value, uint64_t least, uint64_t most,
                               const char *unit)
{
    if (value >= least && value <= most)
        return NULL;
    return sentence("%s: %llu%s is not between %llu%s and %llu%s", name, (unsigned long long)value,
                    unit, (unsigned long long)least, unit, (unsigned long long)most, unit);
}

static bool power_of_two(uint64_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

static const char *check_power(const char *name, uint64_t value, uint64_t least, uint64_t most,
                               const char *unit)
{
    if (power_of_two(value) && value >= least && value <= most)
        return NULL;
    return sentence("%s: %llu%s is not a power of two between %llu%s and %llu%s", name,
                    (unsigned long long)value, unit, (unsigned long long)least, unit,
                    (unsigned long long)most, unit);
}

static bool same_ip(const struct port_address *a, const struct port_address *b)
{
    return memcmp(a->ip, b->ip, sizeof a->ip) == 0;
}

static bool is_ipv4(const struct port_address *address)
{
    static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};
    return memcmp(address->ip, prefix, sizeof prefix) == 0;
}

static bool is_wildcard(const struct port_address *address)
{
    static const uint8_t zero[16];
    return is_ipv4(address) ? memcmp(address->ip + 12, zero, 4) == 0
                            : memcmp(address->ip, zero, sizeof zero) == 0;
}

/* Worker i listens on port + i, so the first port must leave room for the last worker's. */
static const char *check_address(const struct node_member *member, const char *what,
                                 const struct port_address *address, uint16_t workers)
{
    char text[PORT_ADDRESS_TEXT_BYTES];
    port_address_format(address, text);
    if (is_wildcard(address))
        return sentence("members: node %u: %s: %s is not an address that others can send to",
                        (unsigned)member->node, what, text);
    if (address->port == 0 || address->port + workers - 1 > UINT16_MAX)
        return sentence("members: node %u: %s: %s: the port must be between 1 and %u, so that each "
                        "of %u workers has its own",
                        (unsigned)member->node, what, text, (unsigned)(UINT16_MAX - workers + 1),
                        (unsigned)workers);
    return NULL;
}

static bool ranges_overlap(const struct port_address *a, const struct port_address *b,
                           uint16_t workers)
{
    uint32_t distance = a->port > b->port ? a->port - b->port : b->port - a->port;
    return same_ip(a, b) && distance < workers;
}

/* Two listeners, of one member or of two, that would want the same port. */
static const char *check_overlaps(const struct node_options *options)
{
    for (uint32_t i = 0; i < 2u * options->members_count; i++) {
        const struct node_member *a = &options->members[i / 2];
        const struct port_address *first = i % 2 ? &a->peer : &a->client;
        for (uint32_t k = i + 1; k < 2u * options->members_count; k++) {
            const struct node_member *b = &options->members[k / 2];
            const struct port_address *second = k % 2 ? &b->peer : &b->client;
            if (!ranges_overlap(first, second, options->workers))
                continue;
            char one[PORT_ADDRESS_TEXT_BYTES], other[PORT_ADDRESS_TEXT_BYTES];
            port_address_format(first, one);
            port_address_format(second, other);
            return sentence("members: %s of node %u (%s) and %s of node %u (%s) want the same "
                            "port: each takes %u, one per worker",
                            i % 2 ? "peer" : "client", (unsigned)a->node, one,
                            k % 2 ? "peer" : "client", (unsigned)b->node, other,
                            (unsigned)options->workers);
        }
    }
    return NULL;
}

static const char *check_member(const struct node_options *options, uint16_t at)
{
    const struct node_member *member = &options->members[at];
    if (member->node < 1 || member->node > options->members_count)
        return sentence("members: node %u is not between 1 and %u, the number of members",
                        (unsigned)member->node, (unsigned)options->members_count);
    for (uint16_t i = 0; i < at; i++)
        if (options->members[i].node == member->node)
            return sentence("members: node %u is listed twice", (unsigned)member->node);
    const char *wrong = check_address(member, "client", &member->client, options->workers);
    if (wrong == NULL)
        wrong = check_address(member, "peer", &member->peer, options->workers);
    if (wrong == NULL)
        wrong = check_address(member, "management", &member->management, 1);
    if (wrong == NULL && is_ipv4(&member->peer) != is_ipv4(&options->members[0].peer))
        wrong = sentence("members: peer addresses must be all IPv4 or all IPv6, but those of nodes "
                         "%u and %u differ",
                         (unsigned)options->members[0].node, (unsigned)member->node);
    return wrong;
}

static const char *check_members(const struct node_options *options)
{
    uint16_t count = options->members_count;
    if (count != 1 && count != 3 && count != 5)
        return sentence("members: there are %u, but a cluster has 1, 3 or 5", (unsigned)count);
    if (options->node < 1 || options->node > count)
        return sentence("node: %u is not between 1 and %u, the number of members",
                        (unsigned)options->node, (unsigned)count);
    const char *wrong = NULL;
    for (uint16_t i = 0; i < count && wrong == NULL; i++)
        wrong = check_member(options, i);
    return wrong != NULL ? wrong : check_overlaps(options);
}

static const char *check_shape(const struct node_options *options)
{
    const char *wrong = check_range("shards", options->shards, 1, WIRE_SHARDS_MAX, "");
    if (wrong == NULL)
        wrong = check_range("workers", options->workers, 1, NODE_WORKERS_MAX, "");
    if (wrong == NULL && options->workers > options->shards)
        wrong = sentence("workers: %u are more than the %u shards there are to share out",
                         (unsigned)options->workers, (unsigned)options->shards);
    if (wrong == NULL && options->durability != NODE_DISK && options->durability != NODE_MEMORY)
        wrong = sentence("durability: %d is neither disk nor memory", (int)options->durability);
    /* Also with durability in memory: token epochs are on disk in both. */
    if (wrong == NULL && options->data_directory[0] == '\0')
        wrong = sentence("data_directory: it is not given");
    return wrong;
}

static const char *check_times(const struct node_options *options)
{
    const char *wrong = check_range("heartbeat", options->heartbeat_ns / MICROSECOND_NS, 1000,
                                    10 * SECOND_NS / MICROSECOND_NS, "us");
    if (wrong == NULL)
        wrong = check_range("election_timeout", options->election_timeout_ns / MICROSECOND_NS, 3000,
                            60 * SECOND_NS / MICROSECOND_NS, "us");
    /* Two heartbeats lost in a row must not look like a dead leader. */
    if (wrong == NULL && options->election_timeout_ns < 3 * options->heartbeat_ns)
        wrong = sentence("election_timeout: %lluus is less than three heartbeats of %lluus",
                         (unsigned long long)(options->election_timeout_ns / MICROSECOND_NS),
                         (unsigned long long)(options->heartbeat_ns / MICROSECOND_NS));
    if (wrong == NULL)
        wrong = check_range("stamp_interval", options->stamp_interval_ns / MICROSECOND_NS, 1000,
                            10 * SECOND_NS / MICROSECOND_NS, "us");
    if (wrong == NULL)
        wrong = check_range("spin", options->spin_ns, 0, SECOND_NS, "ns");
    if (wrong == NULL)
        wrong = check_range("lease_drift_ppm", options->lease_drift_ppm, 1, 100000, "");
    if (wrong == NULL && options->polling != POLLER_BUSY && options->polling != POLLER_ADAPTIVE)
        wrong = sentence("polling: %d is neither busy nor adaptive", (int)options->polling);
    if (wrong == NULL && options->first_core < -1)
        wrong = sentence("pin_first_core: %d is not a core, nor -1 for no pinning",
                         (int)options->first_core);
    return wrong;
}

/* Every ring of a worker may be full of entries that no snapshot covers yet, each frame is padded,
 * and segments are freed whole and in order: with twice the rings' bytes and two segments more, the
 * rings run full (and requests are told to wait) before the WAL does. */
static const char *check_wal_room(const struct node_options *options)
{
    uint64_t rings_bytes = worker_rings_bytes(options);
    uint64_t least_bytes = 2 * rings_bytes + 2 * options->wal_segment_bytes;
    uint64_t least = (least_bytes + options->wal_segment_bytes - 1) / options->wal_segment_bytes;
    if (options->wal_segments >= least)
        return NULL;
    return sentence("wal.segments: %u segments of %llu bytes are less than two segments and twice "
                    "the log rings of a worker's shards (%llu bytes together): at least %llu are "
                    "needed",
                    (unsigned)options->wal_segments, (unsigned long long)options->wal_segment_bytes,
                    (unsigned long long)rings_bytes, (unsigned long long)least);
}

static const char *check_log(const struct node_options *options)
{
    const char *wrong = check_power("log_ring.bytes", options->ring_bytes,
                                    4 * (uint64_t)RAFT_PAYLOAD_BYTES_MAX, GIB, " bytes");
    if (wrong == NULL)
        wrong = check_power("log_ring.entries", options->entries_max, 1024, UINT64_C(1) << 24, "");
    if (wrong == NULL)
        wrong = check_range("log_ring.ship_window", options->ship_window_bytes,
                            WIRE_DATAGRAM_BYTES_MAX, options->ring_bytes / 4, " bytes");
    if (wrong == NULL)
        wrong = check_range("wal.segment", options->wal_segment_bytes,
                            2 * (uint64_t)WAL_FRAME_BYTES_LIMIT, 4 * GIB, " bytes");
    if (wrong == NULL && options->wal_segment_bytes % WAL_BLOCK_BYTES != 0)
        wrong = sentence("wal.segment: %llu bytes are not a multiple of %u",
                         (unsigned long long)options->wal_segment_bytes, (unsigned)WAL_BLOCK_BYTES);
    if (wrong == NULL)
        wrong = check_range("wal.segments", options->wal_segments, WAL_SEGMENTS_MIN,
                            WAL_SEGMENTS_MAX, "");
    if (wrong == NULL && options->durability == NODE_DISK)
        wrong = check_wal_room(options);
    if (wrong == NULL)
        wrong = check_range("socket_buffer", options->socket_buffer_bytes, 0, GIB, " bytes");
    return wrong;
}

const char *node_options_check(const struct node_options *options)
{
    const char *wrong = check_shape(options);
    if (wrong == NULL)
        wrong = check_members(options);
    if (wrong == NULL)
        wrong = check_times(options);
    if (wrong == NULL)
        wrong = check_log(options);
    if (wrong == NULL) {
        const char *limits = lock_limits_check(&options->limits);
        if (limits != NULL)
            wrong = sentence("limits: %s", limits);
    }
    return wrong;
}

/* ---- memory ---------------------------------------------------------------------------------- */

struct node_memory node_memory_of(const struct node_options *options)
{
    struct node_memory memory = {
        .machine = lock_machine_memory(&options->limits),
        .ring = log_memory_bytes(options->ring_bytes, options->entries_max),
        /* two kernel ports: clients' and peers' */
        .worker_other = worker_memory_bytes(options) + 2 * port_kernel_memory_bytes(),
    };
    memory.shard_other =
        sizeof(struct shard) + shard_memory_bytes(options) - memory.machine.total - memory.ring;
    memory.total = options->shards * (memory.machine.total + memory.ring + memory.shard_other) +
                   options->workers * memory.worker_other;
    return memory;
}

/* Addresses are left out: a member may be reached by another name from another node. */
uint64_t options_digest(const struct node_options *options)
{
    struct {
        uint64_t members, shards, durability, ring_bytes, entries_max;
        uint8_t limits[LOCK_LIMITS_BYTES];
    } facts = {
        .members = options->members_count,
        .shards = options->shards,
        .durability = (uint64_t)options->durability,
        .ring_bytes = options->ring_bytes,
        .entries_max = options->entries_max,
    };

    lock_limits_encode(&options->limits, facts.limits);
    return XXH3_64bits(&facts, sizeof facts);
}
