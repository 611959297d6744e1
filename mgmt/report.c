/* SPDX-License-Identifier: Apache-2.0
 *
 * See mgmt/report.h.
 */
#include "mgmt/report.h"

static void line(FILE *out, const char *name, uint64_t bytes, const char *detail)
{
    fprintf(out, "  %-22s %15llu  %10.1f MiB  %s\n", name, (unsigned long long)bytes,
            (double)bytes / (1024.0 * 1024.0), detail);
}

static void records(FILE *out, const char *name, uint64_t bytes, uint32_t count)
{
    char detail[64];
    snprintf(detail, sizeof detail, "%u, %.1f bytes each", (unsigned)count,
             count > 0 ? (double)bytes / count : 0.0);
    line(out, name, bytes, detail);
}

static void report_shard(FILE *out, const struct node_options *options,
                         const struct node_memory *memory)
{
    const struct lock_limits *limits = &options->limits;
    fprintf(out, "per shard:\n");
    records(out, "leases", memory->machine.leases, limits->leases_max);
    records(out, "resources", memory->machine.resources, limits->resources_max);
    records(out, "sessions", memory->machine.sessions, limits->sessions_max);
    records(out, "waiters", memory->machine.waiters, limits->waiters_max);
    records(out, "answers", memory->machine.answers, limits->answers_max);
    records(out, "long names", memory->machine.long_names, limits->long_names_max);
    records(out, "extras", memory->machine.extras, limits->extras_max);
    line(out, "timers", memory->machine.timers, "");
    line(out, "other tables", memory->machine.other, "");
    records(out, "log ring", memory->ring, options->entries_max);
    line(out, "buffers and the rest", memory->shard_other, "");
    line(out, "a shard in all", memory->machine.total + memory->ring + memory->shard_other, "");
}

void report_memory(FILE *out, const struct node_options *options)
{
    struct node_memory memory = node_memory_of(options);
    char detail[96];
    report_shard(out, options, &memory);
    fprintf(out, "per worker:\n");
    line(out, "buffers and the rest", memory.worker_other, "ports, mailboxes, WAL frames");
    uint64_t wal_bytes = options->wal_segment_bytes * options->wal_segments;
    snprintf(detail, sizeof detail, "on disk: %u segments of %.1f MiB",
             (unsigned)options->wal_segments,
             (double)options->wal_segment_bytes / (1024.0 * 1024.0));
    line(out, "WAL", options->durability == NODE_DISK ? wal_bytes : 0,
         options->durability == NODE_DISK ? detail : "durability is memory");
    fprintf(out, "the node:\n");
    snprintf(detail, sizeof detail, "%u shards, %u workers", (unsigned)options->shards,
             (unsigned)options->workers);
    line(out, "memory in all", memory.total, detail);
    line(out, "WAL in all", options->durability == NODE_DISK ? wal_bytes * options->workers : 0,
         "on disk, snapshots not counted");
}
