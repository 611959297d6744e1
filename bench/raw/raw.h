/* SPDX-License-Identifier: Apache-2.0
 *
 * What the raw measurements have in common: their flags, and a report of medians over rounds, as a
 * table for people or as JSON for script/bench.
 *
 * A raw measurement says what the machine gives: what any program that does these hops, writes or
 * lookups would get here. Belay's figures are put beside it, in the same run.
 */
#ifndef BELAY_BENCH_RAW_H
#define BELAY_BENCH_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RAW_ROUNDS_MAX = 32, RAW_ROWS_MAX = 64, RAW_NOTES_MAX = 16 };

struct raw_options {
    uint32_t rounds;
    uint64_t round_ns; /* of one measurement in one round */
    bool json;
    const char *directory; /* where files that are written lie: the disk that is measured */
    bool memory, disk;     /* durabilities wanted */
    uint32_t in_flight;
    uint32_t keys;
    const char *target, *device; /* NULL = not given */
    uint32_t held;
    uint32_t pack;     /* 0 = not given */
    const char *fault; /* "none" */
};

/* Reads the flags that `letters` names (m --memory/--disk, d --directory, f --in-flight, k --keys,
 * t --target, v --device, n --held, p --pack, x --fault; --rounds, --seconds and -o are
 * everybody's) or ends the program with a sentence. */
void raw_parse(struct raw_options *options, const char *letters, const char *what, int argc,
               char **argv);

/* One figure: its key in JSON ("disk.one.p50_us"), a sentence, and its value in each round. */
struct raw_row {
    const char *key;
    const char *what;
    double values[RAW_ROUNDS_MAX];
    uint32_t count;
};

struct raw_report {
    const char *program;
    struct raw_row rows[RAW_ROWS_MAX];
    uint32_t rows_count;
    const char *notes[RAW_NOTES_MAX];
    uint32_t notes_count;
};

/* Strings are kept by address. A key that is there gets one more round. */
void raw_add(struct raw_report *report, const char *key, const char *what, double value);
void raw_note(struct raw_report *report, const char *note);
void raw_print(const struct raw_report *report, bool json);

/* Latencies of one round, in a buffer that is made once. Full: the rest is counted, not kept. */
struct raw_samples {
    uint64_t *ns;
    uint32_t count, max;
};
void raw_samples_open(struct raw_samples *samples, uint32_t max);
void raw_samples_close(struct raw_samples *samples);
static inline void raw_sample(struct raw_samples *samples, uint64_t ns)
{
    if (samples->count < samples->max)
        samples->ns[samples->count++] = ns;
}
/* In microseconds; sorts. 0 when there are none. */
double raw_quantile_us(struct raw_samples *samples, double quantile);

/* Of the time stamp counter; where there is none, ns. The rate is measured for 10 ms. */
uint64_t raw_cycles(void);
double raw_cycles_per_ns(void);

__attribute__((noreturn, format(printf, 1, 2))) void raw_die(const char *format, ...);

#endif
