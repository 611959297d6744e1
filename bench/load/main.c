/* SPDX-License-Identifier: Apache-2.0
 *
 * belay-bench: loads a lock service and says what its clients saw. See docs/benchmark.md.
 *
 * Exit codes: 0 = the run was done and nothing it checks was violated, 1 = a violation, 2 = wrong
 * usage, 3 = the run could not be done.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

#include "bench/load/load.h"
#include "bench/load/report.h"
#include "bench/load/targets.h"

enum { EXIT_VIOLATED = 1, EXIT_USAGE = 2, EXIT_IMPOSSIBLE = 3 };

struct run {
    const char *target;
    const char *port;
    const char *scenario_name;
    struct scenario scenario;
    struct happenings happenings;
    uint64_t seed;
    bool json;
    bool quiet, progress;
};

__attribute__((noreturn, format(printf, 2, 3))) static void die(int code, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fputs("belay-bench: ", stderr);
    (void)vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(code);
}

/* ---- scenarios ------------------------------------------------------------------------------- */

/* A name stands for NAME.scenario in BELAY_SCENARIOS, or where they were built or installed. */
static int open_scenario(const char *name, char *path, size_t path_bytes)
{
    const char *directories[] = {getenv("BELAY_SCENARIOS"), BELAY_SCENARIOS_SOURCE,
                                 BELAY_SCENARIOS_INSTALLED};

    if (strchr(name, '/') || strchr(name, '.')) {
        (void)snprintf(path, path_bytes, "%s", name);
        return open(name, O_RDONLY | O_CLOEXEC);
    }
    for (unsigned i = 0; i < 3; i++) {
        int descriptor;

        if (!directories[i] ||
            snprintf(path, path_bytes, "%s/%s.scenario", directories[i], name) >= (int)path_bytes)
            continue;
        descriptor = open(path, O_RDONLY | O_CLOEXEC);
        if (descriptor >= 0)
            return descriptor;
    }
    return -1;
}

static void read_scenario(struct run *run, const char *name)
{
    static char text[SCENARIO_FILE_BYTES_MAX + 1];
    char path[4096];
    char error[SCENARIO_ERROR_BYTES];
    size_t used = 0;
    ssize_t count;
    int descriptor = open_scenario(name, path, sizeof path);

    if (descriptor < 0)
        die(EXIT_USAGE,
            "--scenario: cannot open \"%s\": %s; give a file, or the name of one in "
            "bench/scenarios (or in $BELAY_SCENARIOS)",
            name, strerrordesc_np(errno));
    while ((count = read(descriptor, text + used, sizeof text - used)) > 0)
        used += (size_t)count;
    (void)close(descriptor);
    if (count < 0)
        die(EXIT_USAGE, "%s: %s", path, strerrordesc_np(errno));
    if (used > SCENARIO_FILE_BYTES_MAX)
        die(EXIT_USAGE, "%s: longer than %d bytes: not a scenario", path, SCENARIO_FILE_BYTES_MAX);
    if (!scenario_read(&run->scenario, path, text, used, error, sizeof error))
        die(EXIT_USAGE, "%s", error);
}

/* ---- flags ----------------------------------------------------------------------------------- */

static void usage(FILE *out)
{
    const char *expected;
    const char *key;

    fprintf(out,
            "belay-bench: loads a lock service and says what its clients saw.\n"
            "\n"
            "usage: belay-bench --target SYSTEM:HOST:PORT,... --scenario NAME-OR-FILE [flags]\n"
            "\n"
            "  --target T         what to drive, see below\n"
            "  --port PORT        past the kernel, Belay only: dpdk:DEVICE,address=IP/PREFIX\n"
            "                     [,gateway=IP][,memory=MIB][,hugepages=yes]; DEVICE is a PCI\n"
            "                     address, or a virtual device with its arguments\n"
            "  --scenario S       a file, or the name of one in bench/scenarios\n"
            "  -o json|table      how to report (table)\n"
            "  --at TIME COMMAND  run COMMAND in a shell, TIME after measuring began (5s, 250ms);\n"
            "                     may be repeated\n"
            "  --seed N           draw the same names and arrivals again\n"
            "  --progress         a live line on standard error even if it is no terminal\n"
            "  --quiet            no live line\n"
            "  --help             print this\n"
            "\n"
            "what a scenario can say; each is a flag, too, and a flag wins:\n");
    for (unsigned i = 0; (key = scenario_key(i, &expected)) != NULL; i++)
        fprintf(out, "  --%-16s %s\n", key, expected);
    fprintf(out, "\ntargets:\n");
    targets_list(out);
    fprintf(
        out,
        "\n"
        "examples:\n"
        "  belay-bench --target belay:127.0.0.1:7400 --scenario uncontended\n"
        "  belay-bench --target belay:127.0.0.1:7400 --scenario hot-lock --clients 1000 -o json\n"
        "  belay-bench --target belay:127.0.0.1:7400 --scenario zipf --rate 50000 --pack 1\n"
        "  belay-bench --target belay:10.0.0.1:7400,10.0.0.2:7400,10.0.0.3:7400 \\\n"
        "      --scenario failover --at 5s 'kill -9 1234'\n"
        "\n"
        "exit codes: 0 done and nothing violated, 1 a violation, 2 wrong usage, 3 not done.\n");
}

static const char *argument(int argc, char **argv, int *at)
{
    if (*at + 1 >= argc)
        die(EXIT_USAGE, "%s needs a value; --help lists the flags", argv[*at]);
    return argv[++*at];
}

/* True: it was one of the program's own flags, which are not a scenario's. */
static bool own_flag(struct run *run, int argc, char **argv, int *at)
{
    const char *flag = argv[*at];
    char error[SCENARIO_ERROR_BYTES];
    const char *value;
    char *end;

    if (strcmp(flag, "--target") == 0) {
        run->target = argument(argc, argv, at);
    } else if (strcmp(flag, "--port") == 0) {
        run->port = argument(argc, argv, at);
    } else if (strcmp(flag, "--scenario") == 0) {
        run->scenario_name = argument(argc, argv, at);
    } else if (strcmp(flag, "-o") == 0) {
        value = argument(argc, argv, at);
        run->json = strcmp(value, "json") == 0;
        if (!run->json && strcmp(value, "table") != 0)
            die(EXIT_USAGE, "-o: expected json or table, found \"%s\"", value);
    } else if (strcmp(flag, "--at") == 0) {
        const char *when = argument(argc, argv, at);

        if (!happenings_add(&run->happenings, when, argument(argc, argv, at), error, sizeof error))
            die(EXIT_USAGE, "%s", error);
    } else if (strcmp(flag, "--seed") == 0) {
        value = argument(argc, argv, at);
        run->seed = strtoull(value, &end, 10);
        if (*value < '0' || *value > '9' || *end)
            die(EXIT_USAGE, "--seed: expected a number, found \"%s\"", value);
    } else if (strcmp(flag, "--progress") == 0) {
        run->progress = true;
    } else if (strcmp(flag, "--quiet") == 0) {
        run->quiet = true;
    } else {
        return false;
    }
    return true;
}

/* A flag that is a scenario's key is set once the file has been read. */
static void scenario_flag(struct run *run, int argc, char **argv, int *at, bool set)
{
    const char *flag = argv[*at];
    const char *value;
    char error[SCENARIO_ERROR_BYTES];

    if (strncmp(flag, "--", 2) != 0)
        die(EXIT_USAGE, "\"%s\": expected a flag; --help lists them", flag);
    value = argument(argc, argv, at);
    if (set && !scenario_set(&run->scenario, flag + 2, value, error, sizeof error))
        die(EXIT_USAGE, "--%s", error);
}

static void go_through(struct run *run, int argc, char **argv, bool set)
{
    struct run ignored = *run; /* takes the program's own flags the second time */

    ignored.happenings.count = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            usage(stdout);
            exit(0);
        }
        if (!own_flag(set ? &ignored : run, argc, argv, &i))
            scenario_flag(run, argc, argv, &i, set);
    }
}

static void parse(struct run *run, int argc, char **argv)
{
    char error[SCENARIO_ERROR_BYTES];

    scenario_init(&run->scenario);
    go_through(run, argc, argv, false);
    if (!run->target || !run->scenario_name)
        die(EXIT_USAGE, "needs --target and --scenario; --help shows examples");
    read_scenario(run, run->scenario_name);
    go_through(run, argc, argv, true);
    if (!scenario_settle(&run->scenario, error, sizeof error))
        die(EXIT_USAGE, "%s: %s", run->scenario_name, error);
    for (unsigned i = 0; i < run->happenings.count; i++)
        if (run->happenings.list[i].after_ns >= run->scenario.seconds * UINT64_C(1000000000))
            die(EXIT_USAGE, "--at: \"%s\" would come after the end: raise --seconds",
                run->happenings.list[i].command);
}

int main(int argc, char **argv)
{
    static struct run run;
    char error[LOAD_ERROR_BYTES];
    struct load_options options;
    struct report report;
    const char *endpoints = "";
    struct load *load;
    bool violated;

    if (getrandom(&run.seed, sizeof run.seed, 0) != (ssize_t)sizeof run.seed)
        die(EXIT_IMPOSSIBLE, "no random numbers");
    run.seed &= INT64_MAX; /* JSON's integers are signed */
    parse(&run, argc, argv);
    options = (struct load_options){
        .class = targets_find(run.target, &endpoints, error, sizeof error),
        .endpoints = endpoints,
        .port = run.port,
        .scenario = &run.scenario,
        .happenings = &run.happenings,
        .seed = run.seed,
        .progress = run.progress || (!run.quiet && isatty(STDERR_FILENO)),
    };
    if (!options.class)
        die(EXIT_USAGE, "%s", error);
    if (run.port && strcmp(options.class->name, "belay") != 0)
        die(EXIT_USAGE, "--port: only Belay is reached past the kernel, not %s",
            options.class->name);
    /* A wait ends when it is to end: the default slack of 50 us is many arrivals. */
    (void)prctl(PR_SET_TIMERSLACK, 1);
    load = load_open(&options, error, sizeof error);
    if (!load)
        die(EXIT_IMPOSSIBLE, "%s", error);
    if (!load_run(load, error, sizeof error)) {
        load_close(load); /* gives up what it holds: the next run would meet it */
        die(EXIT_IMPOSSIBLE, "%s", error);
    }
    report = (struct report){.target = options.class->name,
                             .endpoints = endpoints,
                             .port = run.port,
                             .scenario_name = run.scenario_name,
                             .scenario = &run.scenario,
                             .happenings = &run.happenings,
                             .result = load_result(load),
                             .seed = run.seed};
    if (!run.json)
        report_table(stdout, &report);
    else if (!report_json(stdout, &report))
        die(EXIT_IMPOSSIBLE, "the report could not be written: %s", strerrordesc_np(errno));
    violated = checks_violations(&report.result->checks) > 0;
    load_close(load);
    return violated ? EXIT_VIOLATED : 0;
}
