/* SPDX-License-Identifier: Apache-2.0
 *
 * Two Raft implementations under one schedule, in virtual time: this project's core on the tests'
 * rig, and cowsql's C-Raft on the fixture that its library brings along (Debian's libraft-dev,
 * 0.15). They share not a line, so what both do is very likely what Raft says.
 *
 * They may differ in who leads, in terms, in times. What must be the same for any correct Raft with
 * pre-vote, check-quorum and leadership transfer is what the schedule writes into a transcript; the
 * two transcripts are compared line by line. Safety (one leader per term, one order of committed
 * commands) is checked in each, all the time.
 *
 * What the other fixture cannot do, and what is done instead:
 *   - Crash a server with the loss of what was not yet on disk. It stops it, whole, and lets it go
 *     on. Ours crashes and restarts from its disk; nothing compared depends on the difference.
 *   - Draw election timeouts anew. Each server's is set from the seed, once, apart from the
 * others'.
 *   - Repeat or reorder messages. Both have constant latencies by sender; cut links lose messages
 *     silently, in both ("saturated", there).
 *   - Save snapshots by schedule, or learners of ours: neither is part of any schedule here.
 */
#ifndef BELAY_TESTS_DIFFERENTIAL_GROUP_H
#define BELAY_TESTS_DIFFERENTIAL_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
    GROUP_NODES_MAX = 5,
    GROUP_VALUES_MAX = 512, /* proposals of one run */
    GROUP_TERMS_MAX = 512,
    GROUP_ELECTION_MS = 1000,
    GROUP_HEARTBEAT_MS = 100,
};

struct group_options {
    uint64_t seed;
    uint32_t nodes;
    uint32_t timeout_ms[GROUP_NODES_MAX]; /* of the other implementation's elections */
    uint32_t network_ms[GROUP_NODES_MAX]; /* latency of what the node sends */
    uint32_t disk_ms[GROUP_NODES_MAX];
};

/* What a run shows of itself while it goes on. Both implementations tell it everything they do; it
 * remembers the first thing that may not be. */
struct group_trace {
    uint64_t common[GROUP_VALUES_MAX]; /* the order of committed commands */
    uint32_t common_count;
    uint32_t applied_count[GROUP_NODES_MAX]; /* how many of them the node has applied */
    int leader_of_term[GROUP_TERMS_MAX];     /* node + 1, 0 = none */
    char fault[160];                         /* empty: none */
};

void trace_applied(struct group_trace *trace, uint32_t node, uint64_t value);
void trace_restarted(struct group_trace *trace, uint32_t node);
void trace_leads(struct group_trace *trace, uint32_t node, uint64_t term);
bool trace_has(const struct group_trace *trace, uint32_t node, uint64_t value);

struct group_view {
    bool alive;
    bool leads;
    uint64_t term;
};

struct group_kind {
    const char *name;
    void *(*open)(const struct group_options *options, struct group_trace *trace);
    void (*close)(void *group);
    void (*run)(void *group, uint32_t ms);
    void (*look)(void *group, uint32_t node, struct group_view *view);
    bool (*propose)(void *group, uint32_t node, uint64_t value); /* false: it does not lead */
    void (*transfer)(void *group, uint32_t node, uint32_t target);
    void (*link)(void *group, uint32_t a, uint32_t b, bool up); /* both ways */
    void (*stop)(void *group, uint32_t node);
    void (*start)(void *group, uint32_t node);
};

extern const struct group_kind group_ours;
extern const struct group_kind group_theirs;

/* ---- schedules ------------------------------------------------------------------------------- */

enum { SCHEDULE_EPISODES = 6, SCHEDULE_ACTS = 12, TRANSCRIPT_BYTES = 8192 };

struct schedule_act { /* of an episode without rules */
    uint8_t kind;
    uint8_t a, b;
    uint16_t wait_ms;
};

struct schedule_episode {
    uint8_t kind;
    uint8_t which; /* a node, counted from the leader */
    uint8_t count; /* proposals */
    struct schedule_act acts[SCHEDULE_ACTS];
};

struct schedule {
    struct group_options options;
    struct schedule_episode episodes[SCHEDULE_EPISODES];
};

void schedule_draw(struct schedule *schedule, uint64_t seed);
void schedule_show(const struct schedule *schedule, FILE *out);

/* Fills the transcript, a line per episode; false if something may not be, whatever the other
 * implementation did (the last line says what). */
bool schedule_run(const struct schedule *schedule, const struct group_kind *kind,
                  char transcript[TRANSCRIPT_BYTES]);

#endif
