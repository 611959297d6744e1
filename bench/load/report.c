/* SPDX-License-Identifier: Apache-2.0
 *
 * See report.h.
 */
#include "bench/load/report.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

struct point {
    const char *name;
    uint32_t millionths;
};

static const struct point points[] = {
    {"p50", 500000}, {"p90", 900000}, {"p99", 990000}, {"p99.9", 999000}, {"max", 1000000},
};

enum { POINTS = sizeof points / sizeof points[0] };

const char *report_op(enum target_op op)
{
    static const char *const names[TARGET_OP_COUNT] = {"acquire", "release", "renew", "query"};

    return names[op];
}

const char *report_status(enum target_status status)
{
    static const char *const names[TARGET_STATUS_COUNT] = {
        "ok", "busy", "timed_out", "lost", "unreachable", "refused",
    };

    return names[status];
}

double report_rate(const struct load_result *result, enum target_op op)
{
    return (double)result->commands[op].ended / ((double)result->measured_ns / 1e9);
}

static double all_rate(const struct load_result *result)
{
    double sum = 0;

    for (int op = 0; op < TARGET_OP_COUNT; op++)
        sum += report_rate(result, (enum target_op)op);
    return sum;
}

static double grants_rate(const struct load_result *result)
{
    return (double)result->grants / ((double)result->measured_ns / 1e9);
}

static bool was_used(const struct load_command *command)
{
    return command->latency_ns.count > 0 || command->ended > 0;
}

/* ---- table ----------------------------------------------------------------------------------- */

static void table_settings(FILE *out, const struct scenario *scenario)
{
    const char *expected;
    const char *key;
    unsigned column = 0;

    for (unsigned i = 0; (key = scenario_key(i, &expected)) != NULL; i++) {
        char value[SCENARIO_WHAT_BYTES];

        if (strcmp(key, "what") == 0)
            continue;
        scenario_value(scenario, i, value, sizeof value);
        column += (unsigned)fprintf(out, "%s%s %s", column ? ", " : "  ", key, value);
        if (column > 72) {
            fprintf(out, "\n");
            column = 0;
        }
    }
    fprintf(out, column ? "\n\n" : "\n");
}

static void table_commands(FILE *out, const struct load_result *result)
{
    fprintf(out, "%-9s %11s %11s", "ms", "answered/s", "mean");
    for (unsigned i = 0; i < POINTS; i++)
        fprintf(out, " %10s", points[i].name);
    fprintf(out, "\n");
    for (int op = 0; op < TARGET_OP_COUNT; op++) {
        const struct load_command *command = &result->commands[op];

        if (!was_used(command))
            continue;
        fprintf(out, "%-9s %11.0f %11.3f", report_op((enum target_op)op),
                report_rate(result, (enum target_op)op),
                (double)histogram_mean(&command->latency_ns) / 1e6);
        for (unsigned i = 0; i < POINTS; i++)
            fprintf(out, " %10.3f",
                    (double)histogram_quantile(&command->latency_ns, points[i].millionths) / 1e6);
        fprintf(out, "\n");
    }
    fprintf(out, "\n");
}

static void table_failures(FILE *out, const struct load_result *result)
{
    for (int op = 0; op < TARGET_OP_COUNT; op++) {
        const struct load_command *command = &result->commands[op];
        const char *name = report_op((enum target_op)op);

        for (int status = TARGET_OK + 1; status < TARGET_STATUS_COUNT; status++) {
            if (command->statuses[status] > 0)
                fprintf(out, "%-22s %" PRIu64 " of %" PRIu64 " were %s\n", name,
                        command->statuses[status], command->latency_ns.count,
                        report_status((enum target_status)status));
        }
        if (command->unfinished > 0)
            fprintf(out, "%-22s %" PRIu64 " had no answer at the end (counted with their age)\n",
                    name, command->unfinished);
        if (command->unsent > 0)
            fprintf(out,
                    "%-22s %" PRIu64
                    " were due and not begun when the run ended: the rate is more than "
                    "the target takes, or it stalled (counted with their age)\n",
                    name, command->unsent);
    }
}

static void table_checks(FILE *out, const struct load_result *result)
{
    const struct checks *checks = &result->checks;

    if (result->held > 0)
        fprintf(out,
                "%-22s %" PRIu64 ", taken in %.2f s; lost %" PRIu64 ", gone unheard %" PRIu64
                ", unsure %" PRIu64 "\n",
                "held from the start", result->held, (double)result->held_fill_ns / 1e9,
                result->lost_held, result->held_gone, result->held_unsure);
    fprintf(out, "%-22s %" PRIu64 "\n", "locks lost", result->lost);
    fprintf(out, "%-22s %" PRIu64, "violations", checks_violations(checks));
    if (checks_violations(checks) > 0)
        fprintf(out,
                ": doubled grants %" PRIu64 ", tokens that did not rise %" PRIu64
                ", reads without the holder %" PRIu64 "\n  first: %s",
                checks->doubled, checks->tokens_back, checks->empty_reads, checks->first);
    fprintf(out, "\n");
}

static void table_happenings(FILE *out, const struct report *report)
{
    uint64_t begin_ns = report->result->timeline.begin_ns;

    for (unsigned i = 0; i < report->happenings->count; i++) {
        const struct happening *one = &report->happenings->list[i];

        if (!one->begun)
            continue;
        fprintf(out, "at %.3f s: %s (exit code %d)\n", (double)(one->at_ns - begin_ns) / 1e9,
                one->command, one->exit_code);
        if (one->first_ns > 0)
            fprintf(out, "  first grant asked for afterwards   %.1f ms later\n",
                    (double)(one->first_ns - one->at_ns) / 1e6);
        else
            fprintf(out, "  nothing that was asked for afterwards was granted\n");
        fprintf(out, "  longest time without any grant     %.1f ms, from %.3f s on\n",
                (double)one->longest.length_ns / 1e6,
                ((double)one->longest.from_ns - (double)begin_ns) / 1e9);
        fprintf(out, "  slowest command                    %.1f ms\n",
                (double)one->slowest_ns / 1e6);
    }
}

static void table_timeline(FILE *out, const struct timeline *timeline)
{
    fprintf(out, "\n%8s %8s %12s\n", "s", "grants", "slowest ms");
    for (size_t i = 0; i < timeline->spans_count; i++) {
        const struct timeline_span *span = &timeline->spans[i];

        fprintf(out, "%8.2f %8u %12.3f\n", (double)i * (double)TIMELINE_SPAN_NS / 1e9, span->grants,
                span->slowest_us / 1e3);
    }
}

void report_table(FILE *out, const struct report *report)
{
    const struct load_result *result = report->result;

    fprintf(out, "%s at %s, scenario %s: %s\n", report->target, report->endpoints,
            report->scenario_name, report->scenario->what);
    table_settings(out, report->scenario);
    table_commands(out, result);
    fprintf(out, "%-22s %.0f /s\n", "commands", all_rate(result));
    if (report->scenario->work == WORK_PAIRS) {
        fprintf(out, "%-22s %.0f /s\n", "grants (hand-overs)", grants_rate(result));
        fprintf(out, "%-22s least %u, most %u, Jain's index %.4f\n", "grants per client",
                result->client_grants_least, result->client_grants_most, result->fairness);
        fprintf(out, "%-22s %.1f ms, from %.3f s on\n", "longest without grant",
                (double)result->timeline.longest.length_ns / 1e6,
                ((double)result->timeline.longest.from_ns - (double)result->timeline.begin_ns) /
                    1e9);
    }
    fprintf(out, "%-22s %.0f %% of one core\n", "generator's CPU",
            100.0 * (double)result->cpu_ns / (double)result->measured_ns);
    table_failures(out, result);
    table_checks(out, result);
    table_happenings(out, report);
    if (report->scenario->timeline)
        table_timeline(out, &result->timeline);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void put(json_t *object, const char *key, json_t *value)
{
    /* A lack of memory is found once, at the end: jansson passes NULL on. */
    (void)json_object_set_new(object, key, value);
}

static void put_count(json_t *object, const char *key, uint64_t count)
{
    put(object, key, json_integer((json_int_t)count));
}

static json_t *us(uint64_t ns)
{
    return json_real((double)ns / 1e3);
}

static json_t *json_settings(const struct scenario *scenario)
{
    json_t *object = json_object();
    const char *expected;
    const char *key;

    for (unsigned i = 0; (key = scenario_key(i, &expected)) != NULL; i++) {
        char value[SCENARIO_WHAT_BYTES];

        scenario_value(scenario, i, value, sizeof value);
        put(object, key, json_string(value));
    }
    return object;
}

/* The distribution, for plots: [us, part of the commands that took no longer], finer towards the
 * end, where the differences are. */
static json_t *json_distribution(const struct histogram *latency_ns)
{
    static const uint32_t within[] = {0, 10, 25, 50, 75}; /* hundredths of what is left */
    json_t *array = json_array();
    uint32_t done = 0;

    for (uint32_t left = 1000000; left >= 10; left = 1000000 - done) {
        for (unsigned i = 0; i < sizeof within / sizeof within[0]; i++) {
            uint32_t millionths = done + (uint32_t)((uint64_t)left * within[i] / 100);

            (void)json_array_append_new(
                array, json_pack("[o, o]", us(histogram_quantile(latency_ns, millionths)),
                                 json_real(millionths / 1e6)));
        }
        done += (uint32_t)((uint64_t)left * 90 / 100);
    }
    (void)json_array_append_new(
        array, json_pack("[o, f]", us(histogram_quantile(latency_ns, 1000000)), 1.0));
    return array;
}

static json_t *json_command(const struct load_result *result, enum target_op op)
{
    const struct load_command *command = &result->commands[op];
    json_t *object = json_object();
    json_t *latency = json_object();
    json_t *statuses = json_object();

    put_count(object, "intended", command->latency_ns.count);
    put_count(object, "answered", command->ended);
    put(object, "answered_per_s", json_real(report_rate(result, op)));
    put_count(object, "unfinished", command->unfinished);
    put_count(object, "unsent", command->unsent);
    for (int status = 0; status < TARGET_STATUS_COUNT; status++)
        put_count(statuses, report_status((enum target_status)status), command->statuses[status]);
    put(object, "statuses", statuses);
    put(latency, "mean", us(histogram_mean(&command->latency_ns)));
    for (unsigned i = 0; i < POINTS; i++)
        put(latency, points[i].name,
            us(histogram_quantile(&command->latency_ns, points[i].millionths)));
    put(object, "latency_us", latency);
    put(object, "distribution", json_distribution(&command->latency_ns));
    return object;
}

static json_t *json_gap(const struct timeline_gap *gap, uint64_t begin_ns)
{
    json_t *object = json_object();

    put(object, "ms", json_real((double)gap->length_ns / 1e6));
    put(object, "from_s", json_real(((double)gap->from_ns - (double)begin_ns) / 1e9));
    return object;
}

static json_t *json_checks(const struct load_result *result)
{
    const struct checks *checks = &result->checks;
    json_t *object = json_object();

    put_count(object, "violations", checks_violations(checks));
    put_count(object, "doubled_grants", checks->doubled);
    put_count(object, "tokens_not_rising", checks->tokens_back);
    put_count(object, "reads_without_holder", checks->empty_reads);
    put(object, "first", checks->first[0] ? json_string(checks->first) : json_null());
    put_count(object, "locks_lost", result->lost);
    return object;
}

static json_t *json_held(const struct load_result *result)
{
    json_t *object = json_object();

    put_count(object, "locks", result->held);
    put(object, "taken_in_s", json_real((double)result->held_fill_ns / 1e9));
    put_count(object, "lost", result->lost_held);
    put_count(object, "gone_unheard", result->held_gone);
    put_count(object, "unsure", result->held_unsure);
    return object;
}

static json_t *json_happenings(const struct happenings *happenings, uint64_t begin_ns)
{
    json_t *array = json_array();

    for (unsigned i = 0; i < happenings->count; i++) {
        const struct happening *one = &happenings->list[i];
        json_t *object = json_object();

        if (one->begun) {
            put(object, "command", json_string(one->command));
            put(object, "at_s", json_real((double)(one->at_ns - begin_ns) / 1e9));
            put_count(object, "exit_code", (uint64_t)(int64_t)one->exit_code);
            put(object, "first_grant_ms",
                one->first_ns > 0 ? json_real((double)(one->first_ns - one->at_ns) / 1e6)
                                  : json_null());
            put(object, "longest_without_grant", json_gap(&one->longest, begin_ns));
            put(object, "slowest_ms", json_real((double)one->slowest_ns / 1e6));
        }
        (void)json_array_append_new(array, object);
    }
    return array;
}

static json_t *json_timeline(const struct timeline *timeline)
{
    json_t *object = json_object();
    json_t *grants = json_array();
    json_t *slowest = json_array();

    for (size_t i = 0; i < timeline->spans_count; i++) {
        (void)json_array_append_new(grants, json_integer(timeline->spans[i].grants));
        (void)json_array_append_new(slowest, json_integer(timeline->spans[i].slowest_us));
    }
    put_count(object, "span_ms", TIMELINE_SPAN_NS / 1000000);
    put(object, "grants", grants);
    put(object, "slowest_us", slowest);
    return object;
}

static json_t *json_fairness(const struct load_result *result)
{
    json_t *object = json_object();

    put_count(object, "least", result->client_grants_least);
    put_count(object, "most", result->client_grants_most);
    put(object, "jain", json_real(result->fairness));
    return object;
}

static json_t *json_figures(const struct report *report)
{
    const struct load_result *result = report->result;
    json_t *root = json_object();
    json_t *commands = json_object();

    put(root, "target", json_string(report->target));
    put(root, "endpoints", json_string(report->endpoints));
    put(root, "port", json_string(report->port ? report->port : "kernel"));
    put(root, "name", json_string(report->scenario_name));
    put(root, "scenario", json_settings(report->scenario));
    put(root, "seed", json_integer((json_int_t)report->seed));
    put(root, "measured_s", json_real((double)result->measured_ns / 1e9));
    put(root, "cpu_s", json_real((double)result->cpu_ns / 1e9));
    put(root, "commands_per_s", json_real(all_rate(result)));
    put(root, "grants_per_s", json_real(grants_rate(result)));
    for (int op = 0; op < TARGET_OP_COUNT; op++)
        if (was_used(&result->commands[op]))
            put(commands, report_op((enum target_op)op), json_command(result, (enum target_op)op));
    put(root, "commands", commands);
    put(root, "grants_per_client", json_fairness(result));
    put(root, "longest_without_grant",
        json_gap(&result->timeline.longest, result->timeline.begin_ns));
    put(root, "checks", json_checks(result));
    put(root, "held", json_held(result));
    put(root, "happenings", json_happenings(report->happenings, result->timeline.begin_ns));
    if (report->scenario->timeline)
        put(root, "timeline", json_timeline(&result->timeline));
    return root;
}

bool report_json(FILE *out, const struct report *report)
{
    json_t *root = json_figures(report);
    bool written = root != NULL &&
                   json_dumpf(root, out, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0 &&
                   fputc('\n', out) != EOF && fflush(out) == 0;

    json_decref(root);
    return written;
}
