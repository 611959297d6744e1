/* SPDX-License-Identifier: Apache-2.0
 *
 * belayd's command line, and the memory report of --check-config.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mgmt/arguments.h"
#include "mgmt/report.h"

#define PARSE(arguments, error, ...)                                                               \
    arguments_parse(sizeof((char *[]){"belayd", __VA_ARGS__}) / sizeof(char *),                    \
                    (char *[]){"belayd", __VA_ARGS__}, arguments, error)

#define ASSERT_REFUSED(expected, ...)                                                              \
    do {                                                                                           \
        struct arguments refused;                                                                  \
        struct config_error why;                                                                   \
        cr_assert_eq(PARSE(&refused, &why, __VA_ARGS__), -EINVAL);                                 \
        cr_assert_str_eq(why.text, expected);                                                      \
    } while (0)

Test(arguments, taken)
{
    struct arguments arguments;
    struct config_error error;
    cr_assert_eq(PARSE(&arguments, &error, "--config", "f.yaml", "--node=2", "--workers", "3",
                       "--data", "/d", "--set", "limits.leases=5", "--set=log.level=debug"),
                 0);
    cr_assert_str_eq(arguments.config_path, "f.yaml");
    cr_assert_not(arguments.check);
    static struct config config;
    config_defaults(&config);
    cr_assert_eq(arguments_apply(&arguments, &config, &error), 0, "%s", error.text);
    cr_assert_eq(config.options.node, 2);
    cr_assert_eq(config.options.workers, 3);
    cr_assert_str_eq(config.options.data_directory, "/d");
    cr_assert_eq(config.limits_given.leases_max, 5);
    cr_assert_eq(config.log_level, JOURNAL_DEBUG);

    cr_assert_eq(PARSE(&arguments, &error, "--check-config", "f.yaml"), 0);
    cr_assert(arguments.check);
    cr_assert_eq(PARSE(&arguments, &error, "--dev"), 0);
    cr_assert(arguments.dev);
    cr_assert_eq(PARSE(&arguments, &error, "-h"), 0);
    cr_assert(arguments.help);
    cr_assert_eq(PARSE(&arguments, &error, "--version"), 0);
    cr_assert(arguments.version);
}

Test(arguments, refused)
{
    ASSERT_REFUSED("--confg: unknown flag; did you mean --config?", "--confg", "x");
    ASSERT_REFUSED("--frobnicate: unknown flag; see belayd --help", "--frobnicate");
    ASSERT_REFUSED("start: not a flag; see belayd --help", "start");
    ASSERT_REFUSED("--con: unknown flag; did you mean --config?", "--con");
    ASSERT_REFUSED("--config: a value is missing", "--config");
    ASSERT_REFUSED("--config: a value is missing", "--config=");
    ASSERT_REFUSED("--dev: takes no value", "--dev=1");
    ASSERT_REFUSED("--set: found 'x', expected KEY=VALUE", "--set", "x");
    ASSERT_REFUSED("--check-config: a configuration file is named twice", "--config", "a",
                   "--check-config", "b");
    ASSERT_REFUSED("--dev: takes no configuration file; use --set for settings", "--dev",
                   "--config", "a");
    ASSERT_REFUSED("--dev: there is one node only; --node has no place here", "--dev", "--node",
                   "1");
}

Test(arguments, help_names_every_flag)
{
    const char *flags[] = {"--config",  "--check-config", "--dev",     "--data", "--node",
                           "--workers", "--set",          "--version", "--help"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        cr_assert_not_null(strstr(arguments_help, flags[i]), "%s", flags[i]);
}

Test(report, parts_make_up_the_whole)
{
    struct node_options options;
    node_options_defaults(&options);
    struct node_memory memory = node_memory_of(&options);
    cr_assert_eq(memory.total,
                 options.shards * (memory.machine.total + memory.ring + memory.shard_other) +
                     options.workers * memory.worker_other);
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    report_memory(out, &options);
    fclose(out);
    const char *rows[] = {"leases",   "resources",  "sessions",     "waiters",
                          "answers",  "long names", "extras",       "timers",
                          "log ring", "WAL in all", "memory in all"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        cr_assert_not_null(strstr(text, rows[i]), "%s", rows[i]);
    char total[32];
    snprintf(total, sizeof total, " %llu ", (unsigned long long)memory.total);
    cr_assert_not_null(strstr(text, total), "%s", text);
    free(text);
}
