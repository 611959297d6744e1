/* SPDX-License-Identifier: Apache-2.0
 *
 * Phases and time: fill, run (warm up, measure), drain, give back. See load.h.
 */
#include "bench/load/load_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FILL_IN_FLIGHT = 4096,
    FILL_STALL_S = 30, /* without any answer */
    DRAIN_S = 10,
    PROGRESS_MS = 500,
    RETRY_MS = 1, /* the target takes no more and nothing may be under way */
};

/* ---- making ---------------------------------------------------------------------------------- */

static bool ring_init(struct ring *ring, uint32_t count)
{
    uint32_t size = 16;

    while (size < count)
        size *= 2;
    ring->at = calloc(size, sizeof *ring->at);
    ring->mask = size - 1;
    return ring->at != NULL;
}

static bool make_ops(struct load *load)
{
    const struct scenario *scenario = load->scenario;
    uint32_t count = scenario->in_flight;

    load->ops_count = count;
    load->lanes = count > scenario->clients ? count : scenario->clients;
    load->names_per_lane = scenario->names / load->lanes;
    load->ops = calloc(count, sizeof *load->ops);
    load->client_grants = calloc(scenario->clients, sizeof *load->client_grants);
    load->held = calloc(scenario->held + 1, sizeof *load->held);
    if (!load->ops || !load->client_grants || !load->held || !ring_init(&load->free, count) ||
        !ring_init(&load->ready, count) || !ring_init(&load->holding, count))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        /* The first step, in start(), brings it to lane i. */
        load->ops[i].lane = load->lanes;
        ring_put(&load->free, i);
    }
    return true;
}

static bool make_result(struct load *load)
{
    const struct scenario *scenario = load->scenario;
    uint64_t run_ns = scenario->seconds * SECOND_NS;

    for (int i = 0; i < TARGET_OP_COUNT; i++)
        histogram_reset(&load->result.commands[i].latency_ns);
    histogram_reset(&load->progress_latency);
    return checks_init(&load->result.checks, scenario->names + scenario->held) &&
           timeline_init(&load->result.timeline, run_ns);
}

static void on_complete(void *context, const struct target_completion *completion)
{
    struct load *load = context;

    if (completion->tag & TAG_HELD)
        held_complete(load, completion);
    else
        pairs_complete(load, completion, load_now_ns());
}

static void on_lost(void *context, target_lock lock, uint64_t tag)
{
    struct load *load = context;

    (void)lock;
    if (tag & TAG_HELD)
        held_lost(load, tag);
    else
        pairs_lost(load, tag);
}

static struct target *open_target(struct load *load, char *error, size_t error_bytes)
{
    const struct scenario *scenario = load->scenario;
    uint32_t commands = scenario->in_flight;
    struct target_options options;

    if (scenario->held > 0 && commands < FILL_IN_FLIGHT)
        commands = FILL_IN_FLIGHT;
    options = (struct target_options){
        .endpoints = load->options.endpoints,
        .port = load->options.port,
        .clients = scenario->clients,
        .commands_max = commands,
        .locks_max = scenario->in_flight + (uint32_t)scenario->held,
        .ttl_ms = scenario->ttl_ms,
        .pack = scenario->pack,
        .renew = scenario->renew,
        .complete = on_complete,
        .lost = on_lost,
        .context = load,
    };
    return load->class->open(&options, error, error_bytes);
}

struct load *load_open(const struct load_options *options, char *error, size_t error_bytes)
{
    struct load *load = calloc(1, sizeof *load);
    const struct scenario *scenario = options->scenario;

    if (!load) {
        (void)snprintf(error, error_bytes, "no memory");
        return NULL;
    }
    load->options = *options;
    load->scenario = scenario;
    load->class = options->class;
    load->draws.state = options->seed;
    (void)snprintf(load->held_group, sizeof load->held_group, "%s/h", scenario->group);
    if (scenario->pick == PICK_ZIPF)
        zipf_init(&load->zipf, scenario->names, scenario->zipf_exponent);
    if (scenario->rate > 0)
        load->interval_ns =
            1e9 / (double)scenario->rate * (scenario->work == WORK_PAIRS ? 2.0 : 1.0);
    if (!make_ops(load) || !make_result(load)) {
        (void)snprintf(error, error_bytes,
                       "no memory for %u commands, %" PRIu64 " names and %" PRIu64
                       " held locks: ask for fewer",
                       scenario->in_flight, scenario->names, scenario->held);
        load_close(load);
        return NULL;
    }
    load->target = open_target(load, error, error_bytes);
    if (!load->target) {
        load_close(load);
        return NULL;
    }
    return load;
}

void load_close(struct load *load)
{
    if (load->target)
        load->class->close(load->target);
    checks_free(&load->result.checks);
    timeline_free(&load->result.timeline);
    free(load->free.at);
    free(load->ready.at);
    free(load->holding.at);
    free(load->held);
    free(load->client_grants);
    free(load->ops);
    free(load);
}

const struct load_result *load_result(const struct load *load)
{
    return &load->result;
}

/* ---- counting -------------------------------------------------------------------------------- */

bool load_measures(const struct load *load, uint64_t intended_ns)
{
    return intended_ns >= load->begin_ns && intended_ns < load->end_ns;
}

void load_record(struct load *load, enum target_op op, enum target_status status,
                 uint64_t intended_ns, uint64_t now_ns)
{
    struct load_command *command = &load->result.commands[op];
    uint64_t latency_ns = now_ns > intended_ns ? now_ns - intended_ns : 0;

    load->ended_all++;
    if (status != TARGET_OK && status != TARGET_BUSY)
        load->failed_all++;
    if (load->options.progress)
        histogram_record(&load->progress_latency, latency_ns);
    if (now_ns >= load->begin_ns && now_ns < load->end_ns) {
        command->ended++;
        timeline_latency(&load->result.timeline, now_ns, latency_ns);
        if (load->options.happenings)
            happenings_latency(load->options.happenings, latency_ns);
    }
    if (load_measures(load, intended_ns)) {
        command->statuses[status]++;
        histogram_record(&command->latency_ns, latency_ns);
    }
}

static uint64_t cpu_now_ns(void)
{
    struct timespec used;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * SECOND_NS + (uint64_t)used.tv_nsec;
}

static void count_fairness(struct load *load)
{
    double sum = 0, squares = 0;
    uint32_t clients = load->scenario->clients;

    load->result.client_grants_least = UINT32_MAX;
    for (uint32_t i = 0; i < clients; i++) {
        uint32_t grants = load->client_grants[i];

        sum += grants;
        squares += (double)grants * grants;
        if (grants < load->result.client_grants_least)
            load->result.client_grants_least = grants;
        if (grants > load->result.client_grants_most)
            load->result.client_grants_most = grants;
    }
    load->result.fairness = squares > 0 ? sum * sum / (clients * squares) : 1.0;
}

/* ---- the live line --------------------------------------------------------------------------- */

static const char *phase_name(const struct load *load, uint64_t now_ns)
{
    switch (load->phase) {
    case PHASE_FILL:
        return "fill";
    case PHASE_RUN:
        return now_ns < load->begin_ns ? "warm up" : "measure";
    case PHASE_DRAIN:
        return "drain";
    default:
        return "give back";
    }
}

static void show_progress(struct load *load, uint64_t now_ns)
{
    const struct histogram *latency = &load->progress_latency;
    double seconds = (double)(now_ns - load->progress_before_ns) / 1e9;

    if (!load->options.progress || now_ns < load->progress_ns)
        return;
    if (load->phase == PHASE_FILL || load->phase == PHASE_GIVE_BACK)
        fprintf(stderr, "\r%-9s %" PRIu64 " of %" PRIu64 " locks\033[K", phase_name(load, now_ns),
                load->held_ended, load->scenario->held);
    else
        fprintf(stderr,
                "\r%-9s %5.1f s  %.0f commands/s  p50 %.2f ms  p99 %.2f ms  under way %u  "
                "failed %" PRIu64 "  lost %" PRIu64 "  violations %" PRIu64 "\033[K",
                phase_name(load, now_ns), ((double)now_ns - (double)load->begin_ns) / 1e9,
                (double)latency->count / seconds, (double)histogram_quantile(latency, 500000) / 1e6,
                (double)histogram_quantile(latency, 990000) / 1e6, pairs_under_way(load),
                load->failed_all, load->result.lost, checks_violations(&load->result.checks));
    histogram_reset(&load->progress_latency);
    load->progress_before_ns = now_ns;
    load->progress_ns = now_ns + PROGRESS_MS * MS_NS;
}

/* ---- held locks ------------------------------------------------------------------------------ */

/* Until each of them has ended, or nothing moves any more. */
static bool turn_held(struct load *load, uint64_t stall_ns)
{
    uint64_t moved_ns = load_now_ns();
    uint64_t ended = 0;

    load->held_next = 0;
    load->held_ended = 0;
    while (load->held_ended < load->scenario->held) {
        uint64_t now_ns = load_now_ns();

        if (load->held_ended != ended) {
            ended = load->held_ended;
            moved_ns = now_ns;
        }
        if (load->held_failures > 0 || now_ns - moved_ns > stall_ns)
            return false;
        show_progress(load, now_ns);
        held_begin_some(load);
        load->class->turn(load->target, now_ns + 100 * MS_NS);
    }
    return load->held_failures == 0;
}

static bool fill(struct load *load, char *error, size_t error_bytes)
{
    static const char *const reasons[TARGET_STATUS_COUNT] = {
        [TARGET_OK] = "no answer came",
        [TARGET_BUSY] = "one was busy",
        [TARGET_TIMED_OUT] = "one was waited for in vain",
        [TARGET_LOST] = "one was granted so late that its TTL had passed: raise ttl-ms",
        [TARGET_UNREACHABLE] = "the servers could not be reached",
        [TARGET_REFUSED] = ("the servers refused one: raise their limits (belayd: limits.leases, "
                            "limits.sessions, limits.long_names) or ask for fewer"),
    };
    uint64_t begun_ns = load_now_ns();

    load->phase = PHASE_FILL;
    if (!turn_held(load, FILL_STALL_S * SECOND_NS)) {
        (void)snprintf(error, error_bytes,
                       "only %" PRIu64 " of %" PRIu64 " locks could be held: %s", load->result.held,
                       load->scenario->held, reasons[load->held_failure]);
        return false;
    }
    load->result.held_fill_ns = load_now_ns() - begun_ns;
    load->held_next = 0;
    return true;
}

static void give_back(struct load *load)
{
    uint64_t left;

    load->phase = PHASE_GIVE_BACK;
    if (!turn_held(load, DRAIN_S * SECOND_NS)) {
        left = load->scenario->held - load->held_ended;
        load->result.held_unsure += left;
    }
}

/* ---- the run --------------------------------------------------------------------------------- */

static uint64_t wake_ns(const struct load *load, uint64_t now_ns, uint64_t end_ns)
{
    uint64_t wake = pairs_next_ns(load);

    if (end_ns < wake)
        wake = end_ns;
    if (now_ns < load->begin_ns && load->begin_ns < wake)
        wake = load->begin_ns;
    if (load->options.progress && load->progress_ns < wake)
        wake = load->progress_ns;
    if (load->options.happenings && load->phase == PHASE_RUN) {
        uint64_t next_ns = happenings_next_ns(load->options.happenings, load->begin_ns);

        wake = next_ns < wake ? next_ns : wake;
    }
    if (!ring_is_empty(&load->ready) && now_ns + RETRY_MS * MS_NS < wake)
        wake = now_ns + RETRY_MS * MS_NS;
    return wake;
}

static void step(struct load *load, uint64_t now_ns, uint64_t end_ns)
{
    if (load->options.happenings)
        happenings_turn(load->options.happenings, load->begin_ns, now_ns);
    if (load->phase == PHASE_RUN && load->scenario->rate > 0)
        pairs_arrive(load, now_ns);
    pairs_end_holds(load, now_ns);
    pairs_begin(load);
    show_progress(load, now_ns);
    load->class->turn(load->target, wake_ns(load, now_ns, end_ns));
}

static void begin_measuring(struct load *load)
{
    timeline_begin(&load->result.timeline, load->begin_ns);
    load->cpu_begin_ns = cpu_now_ns();
}

static void end_measuring(struct load *load)
{
    struct timeline_gap gap = {0};

    load->result.cpu_ns = cpu_now_ns() - load->cpu_begin_ns;
    load->result.measured_ns = load->end_ns - load->begin_ns;
    if (load->scenario->work == WORK_PAIRS)
        gap = timeline_end(&load->result.timeline, load->end_ns);
    if (load->options.happenings)
        happenings_end(load->options.happenings, gap);
}

static void run(struct load *load)
{
    uint64_t now_ns = load_now_ns();

    load->phase = PHASE_RUN;
    load->begin_ns = now_ns + load->scenario->warm_up_ms * MS_NS;
    load->end_ns = load->begin_ns + load->scenario->seconds * SECOND_NS;
    load->arrivals_ns = now_ns;
    load->progress_before_ns = now_ns;
    if (load->scenario->rate == 0)
        pairs_fill_loop(load, now_ns);
    for (; now_ns < load->end_ns; now_ns = load_now_ns()) {
        if (now_ns >= load->begin_ns && load->result.timeline.begin_ns == 0)
            begin_measuring(load);
        step(load, now_ns, load->end_ns);
    }
    if (load->scenario->rate > 0)
        pairs_arrive(load, now_ns); /* what was due since the last step */
    end_measuring(load);
}

static void drain(struct load *load)
{
    uint64_t now_ns = load_now_ns();
    uint32_t drain_ms = load->options.drain_ms;
    uint64_t end_ns = now_ns + (drain_ms > 0 ? drain_ms * MS_NS : DRAIN_S * SECOND_NS);

    load->phase = PHASE_DRAIN;
    for (; now_ns < end_ns && pairs_under_way(load) > 0; now_ns = load_now_ns())
        step(load, now_ns, end_ns);
    pairs_count_unfinished(load, now_ns);
}

bool load_run(struct load *load, char *error, size_t error_bytes)
{
    if (!fill(load, error, error_bytes))
        return false;
    run(load);
    drain(load);
    if (!load->scenario->expect_lost)
        give_back(load);
    count_fairness(load);
    if (load->options.progress)
        fprintf(stderr, "\r\033[K");
    return true;
}
