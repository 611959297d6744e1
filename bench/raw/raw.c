/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/raw/raw.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void raw_die(const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "%s: ", program_invocation_short_name);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

/* ---- flags ----------------------------------------------------------------------------------- */

enum { FLAG_ROUNDS = 256, FLAG_SECONDS, FLAG_MEMORY, FLAG_DISK };

static const struct option FLAGS[] = {
    {"rounds", required_argument, NULL, FLAG_ROUNDS},
    {"seconds", required_argument, NULL, FLAG_SECONDS},
    {"memory", no_argument, NULL, FLAG_MEMORY},
    {"disk", no_argument, NULL, FLAG_DISK},
    {"directory", required_argument, NULL, 'd'},
    {"in-flight", required_argument, NULL, 'f'},
    {"keys", required_argument, NULL, 'k'},
    {"target", required_argument, NULL, 't'},
    {"device", required_argument, NULL, 'v'},
    {"held", required_argument, NULL, 'n'},
    {"pack", required_argument, NULL, 'p'},
    {"fault", required_argument, NULL, 'x'},
    {"output", required_argument, NULL, 'o'},
    {"help", no_argument, NULL, 'h'},
    {0},
};

static double number(const char *flag, const char *text, double least, double most)
{
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (errno != 0 || end == text || *end != '\0' || !(value >= least && value <= most))
        raw_die("--%s is a number from %g to %g, not '%s'", flag, least, most, text);
    return value;
}

__attribute__((noreturn)) static void help(const char *letters, const char *what)
{
    printf("%s: %s\n\n"
           "  --rounds N          medians are over so many (5)\n"
           "  --seconds S         of each measurement in each round (1)\n",
           program_invocation_short_name, what);
    if (strchr(letters, 'm'))
        printf("  --memory, --disk    only this durability (both)\n");
    if (strchr(letters, 'd'))
        printf("  --directory DIR     on the disk to be measured (.); files in it are removed "
               "again\n");
    if (strchr(letters, 'f'))
        printf("  --in-flight N       requests under way when pipelined (1024)\n");
    if (strchr(letters, 'k'))
        printf("  --keys N            names, or keys in the table (1000000)\n");
    if (strchr(letters, 't'))
        printf("  --target HOST:PORT  the node (a server of the program's own)\n");
    if (strchr(letters, 'v'))
        printf("  --device NAME,...   a DPDK device on the way to it (kernel UDP)\n");
    if (strchr(letters, 'n'))
        printf("  --held N            locks held at any time (0)\n");
    if (strchr(letters, 'p'))
        printf("  --pack N            requests to a datagram (1, then 4, 16 and 32)\n");
    if (strchr(letters, 'x'))
        printf("  --fault WORD        what its own server does wrong: token, refused, lost, "
               "silent, number, drops\n");
    printf("  -o json|table\n");
    exit(0);
}

static void take_flag(struct raw_options *options, int flag, const char *value)
{
    if (flag == FLAG_ROUNDS)
        options->rounds = (uint32_t)number("rounds", value, 1, RAW_ROUNDS_MAX);
    else if (flag == FLAG_SECONDS)
        options->round_ns = (uint64_t)(number("seconds", value, 0.01, 3600) * 1e9);
    else if (flag == FLAG_MEMORY)
        options->memory = true;
    else if (flag == FLAG_DISK)
        options->disk = true;
    else if (flag == 'd')
        options->directory = value;
    else if (flag == 'f')
        options->in_flight = (uint32_t)number("in-flight", value, 1, 4096);
    else if (flag == 'k')
        options->keys = (uint32_t)number("keys", value, 1024, 1 << 27);
    else if (flag == 't')
        options->target = value;
    else if (flag == 'v')
        options->device = value;
    else if (flag == 'n')
        options->held = (uint32_t)number("held", value, 0, 1 << 27);
    else if (flag == 'p')
        options->pack = (uint32_t)number("pack", value, 1, 64);
    else if (flag == 'x')
        options->fault = value;
    else if (strcmp(value, "json") == 0)
        options->json = true;
    else if (strcmp(value, "table") != 0)
        raw_die("-o is json or table, not '%s'", value);
}

void raw_parse(struct raw_options *options, const char *letters, const char *what, int argc,
               char **argv)
{
    *options = (struct raw_options){.rounds = 5,
                                    .round_ns = UINT64_C(1000000000),
                                    .directory = ".",
                                    .in_flight = 1024,
                                    .keys = 1000000,
                                    .fault = "none"};
    for (int flag; (flag = getopt_long(argc, argv, "d:f:k:o:t:v:n:p:x:h", FLAGS, NULL)) != -1;) {
        if (flag == 'h')
            help(letters, what);
        if (flag == '?')
            exit(1);
        int letter = flag == FLAG_MEMORY || flag == FLAG_DISK ? 'm' : flag;
        if (letter < FLAG_ROUNDS && letter != 'o' && !strchr(letters, letter))
            raw_die("this program has no such flag; see --help");
        take_flag(options, flag, optarg);
    }
    if (optind < argc)
        raw_die("what is '%s'? See --help", argv[optind]);
    if (!options->memory && !options->disk)
        options->memory = options->disk = true;
}

/* ---- the report ------------------------------------------------------------------------------ */

static struct raw_row *row_of(struct raw_report *report, const char *key, const char *what)
{
    for (uint32_t i = 0; i < report->rows_count; i++)
        if (strcmp(report->rows[i].key, key) == 0)
            return &report->rows[i];
    assert(report->rows_count < RAW_ROWS_MAX);
    struct raw_row *row = &report->rows[report->rows_count++];
    row->key = key;
    row->what = what;
    return row;
}

void raw_add(struct raw_report *report, const char *key, const char *what, double value)
{
    struct raw_row *row = row_of(report, key, what);
    if (!isfinite(value))
        raw_die("%s was not measured: rounds are too short", key);
    assert(row->count < RAW_ROUNDS_MAX);
    row->values[row->count++] = value;
}

void raw_note(struct raw_report *report, const char *note)
{
    for (uint32_t i = 0; i < report->notes_count; i++)
        if (strcmp(report->notes[i], note) == 0)
            return;
    assert(report->notes_count < RAW_NOTES_MAX);
    report->notes[report->notes_count++] = note;
}

static int compare_values(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct spread {
    double least, median, most;
};

static struct spread spread_of(const struct raw_row *row)
{
    double sorted[RAW_ROUNDS_MAX];
    memcpy(sorted, row->values, sizeof sorted);
    qsort(sorted, row->count, sizeof sorted[0], compare_values);
    uint32_t middle = row->count / 2;
    double median =
        row->count % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
    return (struct spread){sorted[0], median, sorted[row->count - 1]};
}

static void print_json(const struct raw_report *report)
{
    json_t *rows = json_object(), *notes = json_array();
    for (uint32_t i = 0; i < report->rows_count; i++) {
        const struct raw_row *row = &report->rows[i];
        struct spread spread = spread_of(row);
        json_t *values = json_array();
        for (uint32_t round = 0; round < row->count; round++)
            json_array_append_new(values, json_real(row->values[round]));
        json_object_set_new(rows, row->key,
                            json_pack("{s:s, s:f, s:f, s:f, s:o}", "what", row->what, "median",
                                      spread.median, "min", spread.least, "max", spread.most,
                                      "values", values));
    }
    for (uint32_t i = 0; i < report->notes_count; i++)
        json_array_append_new(notes, json_string(report->notes[i]));
    json_t *all =
        json_pack("{s:s, s:o, s:o}", "program", report->program, "rows", rows, "notes", notes);
    if (all == NULL || json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) != 0)
        raw_die("the report could not be written");
    putchar('\n');
    json_decref(all);
}

void raw_print(const struct raw_report *report, bool json)
{
    if (json) {
        print_json(report);
        return;
    }
    printf("%-28s %12s %12s %12s  what (%u rounds)\n", report->program, "median", "min", "max",
           report->rows_count > 0 ? report->rows[0].count : 0);
    for (uint32_t i = 0; i < report->rows_count; i++) {
        struct spread spread = spread_of(&report->rows[i]);
        printf("%-28s %12.1f %12.1f %12.1f  %s\n", report->rows[i].key, spread.median, spread.least,
               spread.most, report->rows[i].what);
    }
    for (uint32_t i = 0; i < report->notes_count; i++)
        printf("note: %s\n", report->notes[i]);
}

/* ---- latencies ------------------------------------------------------------------------------- */

void raw_samples_open(struct raw_samples *samples, uint32_t max)
{
    *samples = (struct raw_samples){.ns = calloc(max, sizeof(uint64_t)), .max = max};
    if (samples->ns == NULL)
        raw_die("no memory for %u latencies", max);
}

void raw_samples_close(struct raw_samples *samples)
{
    free(samples->ns);
    *samples = (struct raw_samples){0};
}

static int compare_ns(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

double raw_quantile_us(struct raw_samples *samples, double quantile)
{
    if (samples->count == 0)
        return 0;
    qsort(samples->ns, samples->count, sizeof samples->ns[0], compare_ns);
    uint32_t at = (uint32_t)(quantile * samples->count);
    return (double)samples->ns[at < samples->count ? at : samples->count - 1] / 1000;
}

/* ---- cycles ---------------------------------------------------------------------------------- */

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

uint64_t raw_cycles(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return now_ns();
#endif
}

double raw_cycles_per_ns(void)
{
    const uint64_t measured_ns = 10 * UINT64_C(1000000);
    uint64_t began_ns = now_ns(), began = raw_cycles(), ended_ns;
    do {
        ended_ns = now_ns();
    } while (ended_ns - began_ns < measured_ns);
    return (double)(raw_cycles() - began) / (double)(ended_ns - began_ns);
}
