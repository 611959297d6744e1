/* SPDX-License-Identifier: Apache-2.0
 *
 * See mgmt/metrics.h.
 */
#include "mgmt/metrics.h"

#include <inttypes.h>
#include <stddef.h>

#include "dataplane/machine/lock_machine.h"
#include "hw/clock.h"
#include "mgmt/node.h"

#define NS_PER_SECOND 1e9

struct family {
    const char *name;
    const char *type; /* "gauge", "counter" */
    const char *help;
};

static void begin(FILE *out, const struct family *family)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", family->name, family->help, family->name,
            family->type);
}

/* A family of one number without labels. */
static void single(FILE *out, const char *name, const char *type, const char *help, double value)
{
    begin(out, &(struct family){name, type, help});
    fprintf(out, "%s %.9g\n", name, value);
}

/* ---- the node -------------------------------------------------------------------------------- */

static void write_node(FILE *out, const struct board *board, uint64_t now_ns)
{
    static const char *const states[] = {"starting", "running", "stepping_down", "stopping"};
    unsigned state = BOARD_GET(board->state);
    begin(out, &(struct family){"belay_build_info", "gauge", "Version of belayd; always 1."});
    fprintf(out, "belay_build_info{version=\"%s\"} 1\n", BELAY_VERSION_STRING);
    begin(out, &(struct family){"belay_node_info", "gauge", "Which node this is; always 1."});
    fprintf(out, "belay_node_info{node=\"%u\",cluster=\"%016" PRIx64 "\",durability=\"%s\"} 1\n",
            (unsigned)board->options->node, board->cluster_id,
            board->options->durability == NODE_DISK ? "disk" : "memory");
    begin(out,
          &(struct family){"belay_node_state", "gauge", "1 for the state that the node is in."});
    for (unsigned i = 0; i < sizeof states / sizeof *states; i++)
        fprintf(out, "belay_node_state{state=\"%s\"} %d\n", states[i], state == i);
    single(out, "belay_uptime_seconds", "gauge", "Since the node was started.",
           (double)(now_ns - board->started_ns) / NS_PER_SECOND);
    single(out, "belay_workers", "gauge", "Worker threads.", board->options->workers);
}

/* ---- shards ---------------------------------------------------------------------------------- */

/* A field of struct board_shard, or of struct lock_counts, as a family with the label shard. */
struct shard_family {
    struct family family;
    uint16_t offset;
    uint8_t bytes; /* 1, 4 or 8 */
};
#define OF_BOARD(field)                                                                            \
    offsetof(struct board_shard, field), sizeof(((struct board_shard *)NULL)->field)
#define OF_COUNTS(field)                                                                           \
    offsetof(struct lock_counts, field), sizeof(((struct lock_counts *)NULL)->field)

static const struct shard_family board_families[] = {
    {{"belay_shard_term", "gauge", "Raft term."}, OF_BOARD(term)},
    {{"belay_shard_last_index", "gauge", "Index of the last entry in the log."},
     OF_BOARD(last_index)},
    {{"belay_shard_commit_index", "gauge", "Index of the last entry known to be committed."},
     OF_BOARD(commit_index)},
    {{"belay_shard_applied_index", "gauge", "Index of the last entry applied."},
     OF_BOARD(applied_index)},
    {{"belay_shard_snapshot_index", "gauge", "Index of the last durable snapshot."},
     OF_BOARD(snapshot_index)},
    {{"belay_shard_leases", "gauge", "Leases held."}, OF_BOARD(leases)},
    {{"belay_shard_resources", "gauge", "Names held, waited for or delayed."}, OF_BOARD(resources)},
    {{"belay_shard_sessions", "gauge", "Sessions."}, OF_BOARD(sessions)},
    {{"belay_shard_waiters", "gauge", "Acquires that wait."}, OF_BOARD(waiters)},
    {{"belay_shard_voters", "gauge", "Voting replicas."}, OF_BOARD(voters)},
    {{"belay_shard_learners", "gauge", "Replicas that catch up and do not vote."},
     OF_BOARD(learners)},
    {{"belay_shard_one_sided", "gauge", "1 if its log is shipped by one-sided writes."},
     OF_BOARD(ship_mode)},
};

/* Replicated counts: the same on every replica at the same index, and kept over restarts. */
static const struct shard_family count_families[] = {
    {{"belay_granted_total", "counter", "Grants, conversions included."}, OF_COUNTS(granted)},
    {{"belay_released_total", "counter", "Leases released by clients."}, OF_COUNTS(released)},
    {{"belay_expired_total", "counter", "Leases that ended by their TTL."}, OF_COUNTS(expired)},
    {{"belay_sessions_expired_total", "counter", "Sessions that ended by their TTL."},
     OF_COUNTS(sessions_expired)},
    {{"belay_lost_renewals_total", "counter", "Renewals of leases that had ended."},
     OF_COUNTS(lost_renewals)},
};

static uint64_t board_field(const struct board_shard *row, const struct shard_family *family)
{
    const char *at = (const char *)row + family->offset;
    switch (family->bytes) {
    case 1:
        return BOARD_GET(*(const _Atomic uint8_t *)(const void *)at);
    case 4:
        return BOARD_GET(*(const _Atomic uint32_t *)(const void *)at);
    default:
        return BOARD_GET(*(const _Atomic uint64_t *)(const void *)at);
    }
}

static void shard_line(FILE *out, const char *name, uint16_t shard, uint64_t value)
{
    fprintf(out, "%s{shard=\"%u\"} %" PRIu64 "\n", name, (unsigned)shard, value);
}

static void write_roles(FILE *out, const struct board *board)
{
    enum { ROLE_LEADER = 2 };
    const struct family leads = {"belay_shard_is_leader", "gauge",
                                 "1 if this node is the shard's leader."};
    const struct family known = {"belay_shard_has_leader", "gauge",
                                 "1 if this node knows a leader of the shard."};
    begin(out, &leads);
    for (uint16_t s = 0; s < board->options->shards; s++)
        shard_line(out, leads.name, s, BOARD_GET(board->shards[s].role) == ROLE_LEADER);
    begin(out, &known);
    for (uint16_t s = 0; s < board->options->shards; s++)
        shard_line(out, known.name, s, BOARD_GET(board->shards[s].leader_node) != 0);
}

static void write_contact(FILE *out, const struct board *board, uint64_t now_ns)
{
    const struct family family = {"belay_shard_leader_contact_seconds", "gauge",
                                  "Since a leader was last heard of; 0 on the leader."};
    begin(out, &family);
    for (uint16_t s = 0; s < board->options->shards; s++) {
        uint64_t contact_ns = BOARD_GET(board->shards[s].contact_ns);
        if (contact_ns != 0) /* else none was heard since the start */
            fprintf(out, "%s{shard=\"%u\"} %.9g\n", family.name, (unsigned)s,
                    contact_ns < now_ns ? (double)(now_ns - contact_ns) / NS_PER_SECOND : 0.0);
    }
}

static void write_limits(FILE *out, const struct lock_limits *limits)
{
    const struct family family = {"belay_shard_limit", "gauge",
                                  "Most that one shard of this node has room for."};
    const struct {
        const char *table;
        uint32_t most;
    } rows[] = {{"leases", limits->leases_max},
                {"resources", limits->resources_max},
                {"sessions", limits->sessions_max},
                {"waiters", limits->waiters_max}};
    begin(out, &family);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        fprintf(out, "%s{table=\"%s\"} %u\n", family.name, rows[i].table, (unsigned)rows[i].most);
}

static void write_counts(FILE *out, const struct board *board)
{
    const size_t families = sizeof count_families / sizeof *count_families;
    for (size_t i = 0; i <= families; i++) {
        const struct family lateness = {"belay_expiry_lateness_seconds_max", "gauge",
                                        "Most by which a lease ended late since the start."};
        const struct family *family = i < families ? &count_families[i].family : &lateness;
        begin(out, family);
        for (uint16_t s = 0; s < board->options->shards; s++) {
            struct lock_counts counts;
            if (board->machines[s] == NULL)
                continue;
            lock_machine_counts(board->machines[s], &counts);
            if (i == families) {
                fprintf(out, "%s{shard=\"%u\"} %.9g\n", family->name, (unsigned)s,
                        (double)counts.lateness_ns_max / NS_PER_SECOND);
                continue;
            }
            const char *at = (const char *)&counts + count_families[i].offset;
            shard_line(out, family->name, s, *(const uint64_t *)(const void *)at);
        }
    }
}

static void write_shards(FILE *out, const struct board *board, uint64_t now_ns)
{
    for (size_t i = 0; i < sizeof board_families / sizeof *board_families; i++) {
        begin(out, &board_families[i].family);
        for (uint16_t s = 0; s < board->options->shards; s++)
            shard_line(out, board_families[i].family.name, s,
                       board_field(&board->shards[s], &board_families[i]));
    }
    write_roles(out, board);
    write_contact(out, board, now_ns);
    write_limits(out, &board->options->limits);
    write_counts(out, board);
}

/* ---- workers --------------------------------------------------------------------------------- */

struct worker_family {
    struct family family;
    uint16_t offset; /* of an _Atomic uint64_t in struct board_worker */
};

static const struct worker_family worker_families[] = {
#define COUNTER(name, help, field)                                                                 \
    {                                                                                              \
        {name, "counter", help}, offsetof(struct board_worker, field)                              \
    }
    COUNTER("belay_requests_total", "Requests taken.", requests),
    COUNTER("belay_challenges_total", "Datagrams answered with a cookie only.", challenges),
    COUNTER("belay_handed_over_total", "Items for a shard of another worker.", handed_over),
    COUNTER("belay_handed_over_dropped_total", "The same, but that worker's mailbox was full.",
            handed_over_dropped),
    COUNTER("belay_in_flight_dropped_total", "Retries of a request that is in flight.",
            in_flight_dropped),
    COUNTER("belay_resent_answers_total", "Retries answered again from the window.",
            resent_answers),
    COUNTER("belay_unavailable_total", "Requests refused for lack of room or of a leader.",
            unavailable),
    COUNTER("belay_pushes_total", "Grants and losses told to waiting clients.", pushes),
    COUNTER("belay_pushes_repeated_total", "The same, once more for want of an acknowledgement.",
            pushes_repeated),
    COUNTER("belay_pushes_dropped_total", "The same, but there were too many.", pushes_dropped),
    COUNTER("belay_turns_total", "Turns of a worker's loop.", turns),
    COUNTER("belay_busy_turns_total", "Turns in which there was something to do.", turns_busy),
#undef COUNTER
};

static void write_rejects(FILE *out, const struct board *board)
{
    const struct family family = {"belay_datagrams_rejected_total", "counter",
                                  "Datagrams dropped, by what is wrong with them."};
    begin(out, &family);
    for (uint16_t w = 0; w < board->options->workers; w++) {
        const struct board_worker *worker = &board->workers[w];
        for (unsigned reason = WIRE_ACCEPTED + 1; reason < WIRE_REJECT_COUNT; reason++) {
            fprintf(out, "%s{worker=\"%u\",port=\"client\",reason=\"%s\"} %" PRIu64 "\n",
                    family.name, (unsigned)w, wire_reject_name(reason),
                    BOARD_GET(worker->rejects_client[reason]));
            fprintf(out, "%s{worker=\"%u\",port=\"peer\",reason=\"%s\"} %" PRIu64 "\n", family.name,
                    (unsigned)w, wire_reject_name(reason), BOARD_GET(worker->rejects_peer[reason]));
        }
    }
}

/* An array of struct board_worker, a sample for each of its details. */
static void write_details(FILE *out, const struct board *board, const struct family *family,
                          enum wire_count counter, size_t offset, unsigned count)
{
    begin(out, family);
    for (uint16_t w = 0; w < board->options->workers; w++) {
        const char *at = (const char *)&board->workers[w] + offset;
        const _Atomic uint64_t *values = (const _Atomic uint64_t *)(const void *)at;
        for (unsigned i = 0; i < count; i++)
            fprintf(out, "%s{worker=\"%u\",of=\"%s\"} %" PRIu64 "\n", family->name, (unsigned)w,
                    wire_count_detail(counter, i), BOARD_GET(values[i]));
    }
}

static void write_workers(FILE *out, const struct board *board)
{
    for (size_t i = 0; i < sizeof worker_families / sizeof *worker_families; i++) {
        const struct worker_family *family = &worker_families[i];
        begin(out, &family->family);
        for (uint16_t w = 0; w < board->options->workers; w++) {
            const char *at = (const char *)&board->workers[w] + family->offset;
            fprintf(out, "%s{worker=\"%u\"} %" PRIu64 "\n", family->family.name, (unsigned)w,
                    BOARD_GET(*(const _Atomic uint64_t *)(const void *)at));
        }
    }
    write_details(out, board,
                  &(struct family){"belay_datagrams_total", "counter", "Datagrams, by direction."},
                  WIRE_COUNT_DATAGRAMS, offsetof(struct board_worker, datagrams), WIRE_TRAFFICS);
    write_details(out, board,
                  &(struct family){"belay_stage_cycles_total", "counter",
                                   "Processor cycles of sampled turns, by stage."},
                  WIRE_COUNT_STAGE_CYCLES, offsetof(struct board_worker, stage_cycles),
                  WIRE_STAGES);
    write_details(out, board,
                  &(struct family){"belay_frames_lost_total", "counter",
                                   "Frames dropped by a port past the kernel, by reason."},
                  WIRE_COUNT_FRAMES_LOST, offsetof(struct board_worker, frames_lost),
                  WIRE_FRAME_LOSSES);
    const struct family busy = {"belay_busy_seconds_total", "counter",
                                "Time of the turns in which there was something to do."};
    begin(out, &busy);
    for (uint16_t w = 0; w < board->options->workers; w++)
        fprintf(out, "%s{worker=\"%u\"} %.9g\n", busy.name, (unsigned)w,
                (double)BOARD_GET(board->workers[w].busy_ns) / NS_PER_SECOND);
    const struct family turn = {"belay_turn_seconds_max", "gauge",
                                "Longest turn of a worker's loop since the start."};
    begin(out, &turn);
    for (uint16_t w = 0; w < board->options->workers; w++)
        fprintf(out, "%s{worker=\"%u\"} %.9g\n", turn.name, (unsigned)w,
                (double)BOARD_GET(board->workers[w].turn_ns_max) / NS_PER_SECOND);
    write_rejects(out, board);
}

void metrics_write(FILE *out, const struct board *board, uint64_t now_ns)
{
    write_node(out, board, now_ns);
    write_shards(out, board, now_ns);
    write_workers(out, board);
}

void metrics_page(void *context, const struct http_request *request, struct http_answer *answer)
{
    (void)request;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL)
        return; /* an answer without text closes the connection */
    metrics_write(out, node_board(context), clock_monotonic_ns());
    fclose(out);
    *answer = (struct http_answer){.status = 200,
                                   .type = "text/plain; version=0.0.4; charset=utf-8",
                                   .text = text,
                                   .bytes = bytes};
}
