/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules, drawn from a seed, and what they write down. Nodes are named from the leader on, for
 * the two implementations will not elect the same; every random choice is made before either runs.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tests/differential/group.h"

enum episode_kind {
    EPISODE_LEADER_ALONE,      /* the leader, or it and a follower of four, are cut off */
    EPISODE_FOLLOWER_ALONE,    /* a follower is cut off */
    EPISODE_FOLLOWER_STOPS,    /* its process stops */
    EPISODE_LEADER_STOPS,      /* the leader's does */
    EPISODE_MAJORITY_STOPS,    /* the leader is left without a majority */
    EPISODE_TRANSFER,          /* leadership goes to a follower */
    EPISODE_LINK_TO_LEADER,    /* one follower does not hear the leader, but all others */
    EPISODE_LINK_OF_FOLLOWERS, /* two followers do not hear one another */
    EPISODE_CHAOS,             /* anything; nothing but safety is asked for before it is over */
    EPISODE_KINDS
};

enum act_kind { ACT_CUT, ACT_HEAL, ACT_STOP, ACT_START, ACT_PROPOSE, ACT_TRANSFER, ACT_KINDS };

enum {
    POLL_MS = 20,
    STEADY_MS = 2 * GROUP_ELECTION_MS,    /* a leader of that long is asked for something */
    PATIENCE_MS = 30 * GROUP_ELECTION_MS, /* for what must come at last */
    DISTURBED_MS = 5 * GROUP_ELECTION_MS, /* how long a disturbance lasts */
    RETURN_MS = 4 * GROUP_ELECTION_MS,    /* in which one who returns could depose the leader */
};

struct run {
    const struct group_kind *kind;
    void *group;
    struct group_trace trace;
    uint32_t nodes;
    uint64_t value; /* last proposed */
    char *transcript;
    size_t length;
};

/* ---- the trace ------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void fault(struct group_trace *trace,
                                                        const char *format, ...)
{
    va_list arguments;

    if (trace->fault[0] != '\0')
        return;
    va_start(arguments, format);
    vsnprintf(trace->fault, sizeof(trace->fault), format, arguments);
    va_end(arguments);
}

void trace_applied(struct group_trace *trace, uint32_t node, uint64_t value)
{
    uint32_t at = trace->applied_count[node];

    if (at == GROUP_VALUES_MAX) {
        fault(trace, "node %u applied more than was ever proposed", node);
        return;
    }
    trace->applied_count[node]++;
    if (at == trace->common_count)
        trace->common[trace->common_count++] = value;
    else if (trace->common[at] != value)
        fault(trace, "node %u committed command %llu where another committed %llu", node,
              (unsigned long long)value, (unsigned long long)trace->common[at]);
}

void trace_restarted(struct group_trace *trace, uint32_t node)
{
    trace->applied_count[node] = 0;
}

void trace_leads(struct group_trace *trace, uint32_t node, uint64_t term)
{
    if (term >= GROUP_TERMS_MAX)
        fault(trace, "terms ran away to %llu", (unsigned long long)term);
    else if (trace->leader_of_term[term] == 0)
        trace->leader_of_term[term] = (int)node + 1;
    else if (trace->leader_of_term[term] != (int)node + 1)
        fault(trace, "nodes %d and %u both lead term %llu", trace->leader_of_term[term] - 1, node,
              (unsigned long long)term);
}

bool trace_has(const struct group_trace *trace, uint32_t node, uint64_t value)
{
    for (uint32_t i = 0; i < trace->applied_count[node]; i++)
        if (trace->common[i] == value)
            return true;
    return false;
}

/* ---- drawing --------------------------------------------------------------------------------- */

static uint64_t draw(uint64_t *state, uint64_t below)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
}

static void draw_options(struct group_options *options, uint64_t seed, uint64_t *state)
{
    uint32_t first = (uint32_t)draw(state, GROUP_NODES_MAX);

    options->seed = seed;
    options->nodes = seed % 3 == 0 ? 5 : 3;
    for (uint32_t i = 0; i < GROUP_NODES_MAX; i++) {
        /* Well apart: drawn once, equal ones would split the vote for ever. */
        options->timeout_ms[i] = GROUP_ELECTION_MS + 190 * ((i * 2 + first) % GROUP_NODES_MAX);
        options->timeout_ms[i] += (uint32_t)draw(state, 30);
        options->network_ms[i] = 2 + (uint32_t)draw(state, 28);
        options->disk_ms[i] = 1 + (uint32_t)draw(state, 20);
    }
}

void schedule_draw(struct schedule *schedule, uint64_t seed)
{
    uint64_t state = seed;

    memset(schedule, 0, sizeof(*schedule));
    draw_options(&schedule->options, seed, &state);
    for (uint32_t i = 0; i < SCHEDULE_EPISODES; i++) {
        struct schedule_episode *episode = &schedule->episodes[i];
        episode->kind = (uint8_t)draw(&state, EPISODE_KINDS);
        episode->which = (uint8_t)(1 + draw(&state, schedule->options.nodes - 1));
        episode->count = (uint8_t)(1 + draw(&state, 5));
        for (uint32_t j = 0; j < SCHEDULE_ACTS; j++) {
            struct schedule_act *act = &episode->acts[j];
            act->kind = (uint8_t)draw(&state, ACT_KINDS);
            act->a = (uint8_t)draw(&state, schedule->options.nodes);
            act->b = (uint8_t)draw(&state, schedule->options.nodes);
            act->wait_ms = (uint16_t)draw(&state, 2000);
        }
    }
}

static const char *const episode_names[EPISODE_KINDS] = {
    "leader in a minority", "follower alone",         "follower stops",
    "leader stops",         "majority stops",         "transfer",
    "leader's link breaks", "followers' link breaks", "chaos",
};
static const char *const act_names[ACT_KINDS] = {"cut",   "heal",    "stop",
                                                 "start", "propose", "transfer"};

void schedule_show(const struct schedule *schedule, FILE *out)
{
    const struct group_options *options = &schedule->options;

    fprintf(out,
            "---- schedule of seed %llu: %u nodes; latencies of network and disk, timeouts (ms)",
            (unsigned long long)options->seed, options->nodes);
    for (uint32_t i = 0; i < options->nodes; i++)
        fprintf(out, "%c %u %u %u", i == 0 ? ':' : ',', options->network_ms[i], options->disk_ms[i],
                options->timeout_ms[i]);
    fprintf(out, "\n");
    for (uint32_t i = 0; i < SCHEDULE_EPISODES; i++) {
        const struct schedule_episode *episode = &schedule->episodes[i];
        fprintf(out, "%u: %s, follower leader+%u, %u proposals\n", i + 1,
                episode_names[episode->kind], episode->which, episode->count);
        for (uint32_t j = 0; j < SCHEDULE_ACTS && episode->kind == EPISODE_CHAOS; j++)
            fprintf(out, "    %s %u %u, wait %u ms\n", act_names[episode->acts[j].kind],
                    episode->acts[j].a, episode->acts[j].b, episode->acts[j].wait_ms);
    }
}

/* ---- looking --------------------------------------------------------------------------------- */

#define EVERYBODY(run) ((1u << (run)->nodes) - 1)

__attribute__((format(printf, 2, 3))) static void say(struct run *run, const char *format, ...)
{
    va_list arguments;
    size_t room = TRANSCRIPT_BYTES - run->length;

    va_start(arguments, format);
    int length = vsnprintf(run->transcript + run->length, room, format, arguments);
    va_end(arguments);
    if (length > 0)
        run->length += (size_t)length < room ? (size_t)length : room - 1;
}

static const char *yes(bool value)
{
    return value ? "yes" : "NO";
}

static struct group_view view_of(struct run *run, uint32_t node)
{
    struct group_view view = {0};

    run->kind->look(run->group, node, &view);
    return view;
}

/* A node of the mask leads, alone, and all of the mask are alive and in its term; -1 = not yet. */
static int steady_leader(struct run *run, uint32_t mask)
{
    int leader = -1;

    for (uint32_t i = 0; i < run->nodes; i++)
        if ((mask & 1u << i) != 0 && view_of(run, i).leads) {
            if (leader >= 0)
                return -1;
            leader = (int)i;
        }
    for (uint32_t i = 0; i < run->nodes && leader >= 0; i++)
        if ((mask & 1u << i) != 0 &&
            (!view_of(run, i).alive || view_of(run, i).term != view_of(run, (uint32_t)leader).term))
            return -1;
    return leader;
}

/* One that has led for a while: right after an election another candidate may be on its way. */
static int wait_leader(struct run *run, uint32_t mask)
{
    int leader = -1;
    uint64_t term = 0;
    uint32_t steady_ms = 0;

    for (uint32_t waited_ms = 0; waited_ms < PATIENCE_MS; waited_ms += POLL_MS) {
        int now = steady_leader(run, mask);
        if (now < 0 || now != leader || view_of(run, (uint32_t)now).term != term)
            steady_ms = 0;
        if (now >= 0 && steady_ms >= STEADY_MS)
            return now;
        leader = now;
        term = now >= 0 ? view_of(run, (uint32_t)now).term : 0;
        steady_ms += POLL_MS;
        run->kind->run(run->group, POLL_MS);
    }
    return -1;
}

static bool leads_on(struct run *run, uint32_t leader, uint64_t term)
{
    struct group_view view = view_of(run, leader);

    return view.leads && view.term == term;
}

/* How many of these values all nodes of the mask have applied. */
static uint32_t applied_by(const struct run *run, uint32_t mask, uint64_t first, uint64_t last)
{
    uint32_t count = 0;

    for (uint64_t value = first; value <= last; value++) {
        bool all = true;
        for (uint32_t i = 0; i < run->nodes; i++)
            all = all && ((mask & 1u << i) == 0 || trace_has(&run->trace, i, value));
        count += all;
    }
    return count;
}

static bool is_applied_anywhere(const struct run *run, uint64_t first, uint64_t last)
{
    for (uint32_t i = 0; i < run->nodes; i++)
        if (applied_by(run, 1u << i, first, last) > 0)
            return true;
    return false;
}

static uint32_t wait_applied(struct run *run, uint32_t mask, uint64_t first, uint64_t last)
{
    for (uint32_t waited_ms = 0; waited_ms < PATIENCE_MS; waited_ms += POLL_MS) {
        if (applied_by(run, mask, first, last) == last - first + 1)
            break;
        run->kind->run(run->group, POLL_MS);
    }
    return applied_by(run, mask, first, last);
}

/* ---- doing ----------------------------------------------------------------------------------- */

static uint32_t propose(struct run *run, uint32_t node, uint32_t count)
{
    uint32_t accepted = 0;

    for (uint32_t i = 0; i < count; i++)
        accepted += run->kind->propose(run->group, node, ++run->value);
    return accepted;
}

/* Cuts all links between the two sides. */
static void part(struct run *run, uint32_t mask)
{
    for (uint32_t a = 0; a < run->nodes; a++)
        for (uint32_t b = a + 1; b < run->nodes; b++)
            if (((mask >> a) & 1) != ((mask >> b) & 1))
                run->kind->link(run->group, a, b, false);
}

static void heal(struct run *run)
{
    for (uint32_t a = 0; a < run->nodes; a++) {
        run->kind->start(run->group, a);
        for (uint32_t b = a + 1; b < run->nodes; b++)
            run->kind->link(run->group, a, b, true);
    }
}

/* Proposals in quiet times: all of them are committed, by everybody. */
static void quiet(struct run *run, uint32_t count)
{
    int leader = wait_leader(run, EVERYBODY(run));
    uint64_t first = run->value + 1;

    say(run, "\n    quiet: leader %s,", yes(leader >= 0));
    if (leader < 0)
        return;
    uint32_t accepted = propose(run, (uint32_t)leader, count);
    uint32_t applied = wait_applied(run, EVERYBODY(run), first, run->value);
    say(run, " accepted %u and committed %u of %u\n", accepted, applied, count);
}

/* A group that has a leader, and one part that is cut off or stopped: the rest goes on under a
 * leader (the same one, if it is in the rest), the part commits nothing; when it comes back it
 * deposes nobody. `orphans`: what the old leader accepted when nobody could hear it any more. */
static void rest_goes_on(struct run *run, uint32_t rest, uint32_t count, uint64_t orphans)
{
    uint64_t orphans_first = run->value - orphans + 1, orphans_last = run->value;

    run->kind->run(run->group, DISTURBED_MS);
    int leader = wait_leader(run, rest);
    uint64_t first = run->value + 1;
    say(run, "\n    rest has a leader %s,", yes(leader >= 0));
    if (leader < 0)
        return;
    uint32_t accepted = propose(run, (uint32_t)leader, count);
    uint32_t applied = wait_applied(run, rest, first, run->value);
    bool leaked = false;
    for (uint32_t i = 0; i < run->nodes; i++)
        if ((rest & 1u << i) == 0)
            leaked = leaked || applied_by(run, 1u << i, orphans_first, run->value) > 0;
    say(run, " accepted %u, committed %u, nothing elsewhere %s,", accepted, applied, yes(!leaked));
    uint64_t term = view_of(run, (uint32_t)leader).term;
    heal(run);
    run->kind->run(run->group, RETURN_MS);
    say(run, "\n    undisturbed by the return %s,", yes(leads_on(run, (uint32_t)leader, term)));
    applied = wait_applied(run, EVERYBODY(run), first, run->value);
    say(run, " all have %u,", applied);
    if (orphans > 0)
        say(run, " orphans lost %s,", yes(!is_applied_anywhere(run, orphans_first, orphans_last)));
}

/* ---- episodes -------------------------------------------------------------------------------- */

static uint32_t from_leader(const struct run *run, uint32_t leader, uint32_t which)
{
    return (leader + which) % run->nodes;
}

static void leader_alone(struct run *run, uint32_t leader, const struct schedule_episode *episode)
{
    uint32_t minority = 1u << leader;

    if (run->nodes == 5 && episode->which % 2 == 0)
        minority |= 1u << from_leader(run, leader, episode->which);
    uint64_t term = view_of(run, leader).term;
    part(run, minority);
    uint32_t accepted = propose(run, leader, episode->count);
    say(run, "%s: accepted %u,", episode_names[EPISODE_LEADER_ALONE], accepted);
    rest_goes_on(run, EVERYBODY(run) & ~minority, episode->count, episode->count);
    say(run, " stepped down %s,", yes(!leads_on(run, leader, term)));
}

static void leader_stops(struct run *run, uint32_t leader, const struct schedule_episode *episode)
{
    run->kind->stop(run->group, leader);
    say(run, "%s:", episode_names[EPISODE_LEADER_STOPS]);
    rest_goes_on(run, EVERYBODY(run) & ~(1u << leader), episode->count, 0);
}

static void follower_away(struct run *run, uint32_t leader, const struct schedule_episode *episode,
                          bool stops)
{
    uint32_t away = from_leader(run, leader, episode->which);
    uint64_t term = view_of(run, leader).term;

    say(run, "%s:", episode_names[stops ? EPISODE_FOLLOWER_STOPS : EPISODE_FOLLOWER_ALONE]);
    if (stops)
        run->kind->stop(run->group, away);
    else
        part(run, 1u << away);
    rest_goes_on(run, EVERYBODY(run) & ~(1u << away), episode->count, 0);
    say(run, " same leader, same term %s,", yes(leads_on(run, leader, term)));
}

static void majority_stops(struct run *run, uint32_t leader, const struct schedule_episode *episode)
{
    uint64_t term = view_of(run, leader).term, first = run->value + 1;

    for (uint32_t i = 1; i <= (run->nodes + 1) / 2; i++)
        run->kind->stop(run->group, from_leader(run, leader, i));
    propose(run, leader, episode->count);
    run->kind->run(run->group, DISTURBED_MS);
    say(run, "%s: nothing committed %s, stepped down %s,", episode_names[EPISODE_MAJORITY_STOPS],
        yes(!is_applied_anywhere(run, first, run->value)), yes(!leads_on(run, leader, term)));
    heal(run);
}

static void transfer(struct run *run, uint32_t leader, const struct schedule_episode *episode)
{
    uint32_t target = from_leader(run, leader, episode->which);
    uint64_t term = view_of(run, leader).term;

    run->kind->transfer(run->group, leader, target);
    run->kind->run(run->group, GROUP_ELECTION_MS);
    int next = wait_leader(run, EVERYBODY(run));
    say(run, "%s: target leads %s, in the next term %s,", episode_names[EPISODE_TRANSFER],
        yes(next == (int)target), yes(leads_on(run, target, term + 1)));
}

static void link_breaks(struct run *run, uint32_t leader, const struct schedule_episode *episode,
                        bool of_followers)
{
    uint32_t follower = from_leader(run, leader, episode->which);
    uint32_t other = leader, rest = EVERYBODY(run) & ~(1u << follower);
    uint64_t term = view_of(run, leader).term, first = run->value + 1;

    if (of_followers) {
        other = from_leader(run, leader, episode->which % (run->nodes - 1) + 1);
        rest = EVERYBODY(run);
    }
    run->kind->link(run->group, follower, other, false);
    run->kind->run(run->group, DISTURBED_MS);
    uint32_t accepted = propose(run, leader, episode->count);
    uint32_t applied = wait_applied(run, rest, first, run->value);
    say(run, "%s: accepted %u, committed %u,",
        episode_names[of_followers ? EPISODE_LINK_OF_FOLLOWERS : EPISODE_LINK_TO_LEADER], accepted,
        applied);
    heal(run);
    run->kind->run(run->group, RETURN_MS);
    applied = wait_applied(run, EVERYBODY(run), first, run->value);
    say(run, " all have %u, same leader, same term %s,", applied, yes(leads_on(run, leader, term)));
}

static void chaos_act(struct run *run, const struct schedule_act *act)
{
    switch ((enum act_kind)act->kind) {
    case ACT_CUT:
    case ACT_HEAL:
        if (act->a != act->b)
            run->kind->link(run->group, act->a, act->b, act->kind == ACT_HEAL);
        break;
    case ACT_STOP:
        run->kind->stop(run->group, act->a);
        break;
    case ACT_START:
        run->kind->start(run->group, act->a);
        break;
    case ACT_PROPOSE:
        for (uint32_t i = 0; i < run->nodes; i++)
            if (view_of(run, i).leads)
                propose(run, i, 1 + act->b);
        break;
    case ACT_TRANSFER:
        if (view_of(run, act->a).leads && act->a != act->b)
            run->kind->transfer(run->group, act->a, act->b);
        break;
    case ACT_KINDS:
        break;
    }
    run->kind->run(run->group, act->wait_ms);
}

static void chaos(struct run *run, const struct schedule_episode *episode)
{
    for (uint32_t i = 0; i < SCHEDULE_ACTS; i++)
        chaos_act(run, &episode->acts[i]);
    heal(run);
    say(run, "%s:", episode_names[EPISODE_CHAOS]);
}

static void play(struct run *run, const struct schedule_episode *episode)
{
    int steady = wait_leader(run, EVERYBODY(run));

    if (steady < 0) {
        say(run, "no leader\n");
        return;
    }
    uint32_t leader = (uint32_t)steady;
    switch ((enum episode_kind)episode->kind) {
    case EPISODE_LEADER_ALONE:
        leader_alone(run, leader, episode);
        break;
    case EPISODE_FOLLOWER_ALONE:
    case EPISODE_FOLLOWER_STOPS:
        follower_away(run, leader, episode, episode->kind == EPISODE_FOLLOWER_STOPS);
        break;
    case EPISODE_LEADER_STOPS:
        leader_stops(run, leader, episode);
        break;
    case EPISODE_MAJORITY_STOPS:
        majority_stops(run, leader, episode);
        break;
    case EPISODE_TRANSFER:
        transfer(run, leader, episode);
        break;
    case EPISODE_LINK_TO_LEADER:
    case EPISODE_LINK_OF_FOLLOWERS:
        link_breaks(run, leader, episode, episode->kind == EPISODE_LINK_OF_FOLLOWERS);
        break;
    case EPISODE_CHAOS:
        chaos(run, episode);
        break;
    case EPISODE_KINDS:
        break;
    }
    quiet(run, episode->count);
}

bool schedule_run(const struct schedule *schedule, const struct group_kind *kind,
                  char transcript[TRANSCRIPT_BYTES])
{
    struct run run = {.kind = kind, .nodes = schedule->options.nodes, .transcript = transcript};
    bool equal = true;

    transcript[0] = '\0';
    run.group = kind->open(&schedule->options, &run.trace);
    say(&run, "%u nodes:", run.nodes);
    quiet(&run, 2);
    for (uint32_t i = 0; i < SCHEDULE_EPISODES && run.trace.fault[0] == '\0'; i++)
        play(&run, &schedule->episodes[i]);
    for (uint32_t i = 0; i < run.nodes; i++)
        equal = equal && run.trace.applied_count[i] == run.trace.common_count;
    say(&run, "at last all have applied the same %s\n", yes(equal));
    if (run.trace.fault[0] != '\0')
        say(&run, "UNSAFE: %s\n", run.trace.fault);
    kind->close(run.group);
    return strstr(transcript, "NO") == NULL && strstr(transcript, "no leader") == NULL &&
           run.trace.fault[0] == '\0';
}
