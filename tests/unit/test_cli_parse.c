/* SPDX-License-Identifier: Apache-2.0
 *
 * What people type: durations, names, tokens, endpoints, options, and what they are told.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

#include "client/cli/args.h"
#include "client/cli/exit_codes.h"
#include "client/cli/parse.h"

static const uint64_t UNTOUCHED = 77;

static void good_duration(const char *text, uint64_t expected_ms)
{
    struct parse_error error = {""};
    uint64_t ms = UNTOUCHED;
    cr_assert(parse_duration_ms(text, &ms, &error), "'%s': %s", text, error.text);
    cr_assert_eq(ms, expected_ms, "'%s' gave %llu", text, (unsigned long long)ms);
}

static void bad_duration(const char *text, const char *expected_word)
{
    struct parse_error error = {""};
    uint64_t ms = UNTOUCHED;
    cr_assert_not(parse_duration_ms(text, &ms, &error), "'%s' gave %llu", text,
                  (unsigned long long)ms);
    cr_assert_eq(ms, UNTOUCHED, "'%s' changed the result", text);
    cr_assert(strstr(error.text, expected_word), "'%s': %s", text, error.text);
}

Test(cli_parse, durations)
{
    good_duration("500ms", 500);
    good_duration("10s", 10000);
    good_duration("2m", 120000);
    good_duration("1h", 3600000);
    good_duration("3d", 259200000);
    good_duration("0s", 0);
    good_duration("007s", 7000);
    good_duration("2147483647ms", 2147483647);
    good_duration("24d", 24ull * 86400000);
}

Test(cli_parse, durations_refused)
{
    bad_duration("", "not a duration");
    bad_duration("s", "not a duration");
    bad_duration("-5s", "not a duration");
    bad_duration("+5s", "not a duration");
    bad_duration(" 5s", "not a duration");
    bad_duration("10", "no unit");
    bad_duration("10x", "unknown unit");
    bad_duration("10S", "unknown unit");
    bad_duration("10 s", "unknown unit");
    bad_duration("1.5s", "unknown unit");
    bad_duration("1m30s", "unknown unit");
    bad_duration("10s ", "unknown unit");
    bad_duration("2147483648ms", "too long");
    bad_duration("25d", "too long");
    bad_duration("4294967296ms", "too long");
    bad_duration("18446744073709551615ms", "too long");
    bad_duration("18446744073709551616ms", "too long");
    bad_duration("5124095576030432h", "too long"); /* 2^64 ms and a little */
    bad_duration("99999999999999999999999999s", "too long");
}

Test(cli_parse, numbers_and_tokens)
{
    struct parse_error error;
    uint64_t number = UNTOUCHED;
    cr_assert(parse_number("255", 0, 255, &number, &error));
    cr_assert_eq(number, 255u);
    number = UNTOUCHED;
    cr_assert_not(parse_number("256", 0, 255, &number, &error));
    cr_assert(strstr(error.text, "range"), "%s", error.text);
    cr_assert_not(parse_number("2x", 0, 255, &number, &error));
    cr_assert(strstr(error.text, "not a number"), "%s", error.text);
    cr_assert_not(parse_number("", 0, 255, &number, &error));
    cr_assert_not(parse_number("-1", 0, 255, &number, &error));
    cr_assert_eq(number, UNTOUCHED);

    cr_assert(parse_token("18446744073709551615", &number, &error));
    cr_assert_eq(number, UINT64_MAX);
    cr_assert(parse_token("9007199254740993", &number, &error)); /* 2^53 + 1 */
    cr_assert_eq(number, 9007199254740993ull);
    cr_assert_not(parse_token("18446744073709551616", &number, &error));
    cr_assert_not(parse_token("0", &number, &error));
    cr_assert_not(parse_token("0x10", &number, &error));
    cr_assert(strstr(error.text, "token"), "%s", error.text);
}

/* `count` times 'n'. */
static const char *repeated(size_t count)
{
    static char text[512];
    memset(text, 'n', count);
    text[count] = '\0';
    return text;
}

Test(cli_parse, names_know_their_limits)
{
    struct parse_error error = {""};
    cr_assert(parse_name("a", &error));
    cr_assert(parse_name("jobs/{7}/x y", &error));
    cr_assert(parse_name(repeated(255), &error));
    cr_assert_not(parse_name(repeated(256), &error));
    cr_assert(strstr(error.text, "256") && strstr(error.text, "255"), "%s", error.text);
    cr_assert_not(parse_name("", &error));
    cr_assert(strstr(error.text, "empty"), "%s", error.text);

    cr_assert(parse_prefix("", &error));
    cr_assert_not(parse_prefix(repeated(256), &error));
    cr_assert(parse_namespace("", &error));
    cr_assert(parse_namespace(repeated(63), &error));
    cr_assert_not(parse_namespace(repeated(64), &error));
    cr_assert(strstr(error.text, "namespace") && strstr(error.text, "63"), "%s", error.text);
    cr_assert(parse_value(repeated(255), &error));
    cr_assert_not(parse_value(repeated(256), &error));
}

Test(cli_parse, endpoints)
{
    static const char *const good[] = {"h:1", "127.0.0.1:7400", "a:1,b:65535", "[::1]:7400",
                                       "node-1.example:7400,[fe80::1]:2"};
    static const char *const bad[] = {"",
                                      "h",
                                      "h:",
                                      ":1",
                                      "h:0",
                                      "h:65536",
                                      "h:1,",
                                      ",h:1",
                                      "h:1x",
                                      "h:1 ",
                                      "::1:2",
                                      "[::1]",
                                      "[]:1",
                                      "[::1]:x",
                                      "[::1]7",
                                      "h:1,,i:2",
                                      "h:99999999999999999999"};
    struct parse_error error;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        cr_assert(parse_endpoints(good[i], &error), "'%s': %s", good[i], error.text);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cr_assert_not(parse_endpoints(bad[i], &error), "'%s' passed", bad[i]);
}

Test(cli_parse, signals)
{
    struct parse_error error;
    int number = 0;
    cr_assert(parse_signal("TERM", &number, &error) && number == SIGTERM);
    cr_assert(parse_signal("sigint", &number, &error) && number == SIGINT);
    cr_assert(parse_signal("KILL", &number, &error) && number == SIGKILL);
    cr_assert_not(parse_signal("STOP", &number, &error), "would not end anything");
    cr_assert_not(parse_signal("SIG", &number, &error));
    cr_assert_not(parse_signal("", &number, &error));
}

/* ---- options --------------------------------------------------------------------------------- */

static const struct args_option options[] = {
    {"ttl", 0, ARGS_DURATION, offsetof(struct args_values, ttl_ms),
     offsetof(struct args_values, ttl_set), "TIME", ""},
    {"shared", 's', ARGS_FLAG, offsetof(struct args_values, shared), 0, NULL, ""},
    {"priority", 'p', ARGS_PRIORITY, offsetof(struct args_values, priority), 0, "N", ""},
    {"value", 0, ARGS_VALUE, offsetof(struct args_values, value), 0, "TEXT", ""},
    {"leftovers", 0, ARGS_LEFTOVERS, offsetof(struct args_values, leftovers_wait), 0, "W", ""},
};

static struct args_command command = {.name = "lock",
                                      .synopsis = "NAME -- CMD",
                                      .options = options,
                                      .options_count = 5,
                                      .positionals_min = 1,
                                      .positionals_max = 2,
                                      .takes_rest = true};

static struct args_values values;
static struct args_given given;
static struct parse_error failure;

static bool parse(int argc, const char *const *words)
{
    static char *argv[32];
    for (int i = 0; i < argc; i++)
        argv[i] = (char *)words[i];
    argv[argc] = NULL;
    args_values_defaults(&values);
    failure.text[0] = '\0';
    return args_parse(&command, argc, argv, &values, &given, &failure);
}

#define PARSE(...)                                                                                 \
    parse((int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)),                           \
          (const char *[]){__VA_ARGS__})

Test(cli_args, options_stand_anywhere_before_the_command)
{
    cr_assert(PARSE("--ttl", "3s", "name", "-s", "--priority=7", "--", "cmd", "--ttl", "-s"), "%s",
              failure.text);
    cr_assert_eq(values.ttl_ms, 3000u);
    cr_assert(values.ttl_set);
    cr_assert(values.shared);
    cr_assert_eq(values.priority, 7u);
    cr_assert_eq(given.positionals_count, 1);
    cr_assert_str_eq(given.positionals[0], "name");
    cr_assert_str_eq(given.rest[0], "cmd");
    cr_assert_str_eq(given.rest[1], "--ttl", "CMD's own options are not ours");
    cr_assert_str_eq(given.rest[2], "-s");
    cr_assert_null(given.rest[3]);
}

Test(cli_args, attached_values_and_defaults)
{
    cr_assert(PARSE("-p9", "name", "-ojson", "--", "cmd"), "%s", failure.text);
    cr_assert_eq(values.priority, 9u);
    cr_assert_eq(values.output, ARGS_JSON);
    cr_assert_eq(values.ttl_ms, 10000u);
    cr_assert_not(values.ttl_set);
    cr_assert_eq(values.on_lost_signal, SIGTERM);
    cr_assert(PARSE("name", "--leftovers", "wait", "--", "c") && values.leftovers_wait);
    cr_assert(PARSE("-", "--", "c"), "a single dash is an argument");
    cr_assert_str_eq(given.positionals[0], "-");
}

static void refused(bool parsed, const char *word)
{
    cr_assert_not(parsed);
    cr_assert(strstr(failure.text, word), "'%s' lacks '%s'", failure.text, word);
}

Test(cli_args, errors_name_the_option)
{
    refused(PARSE("name", "--ttl", "10", "--", "c"), "--ttl: '10' has no unit");
    refused(PARSE("name", "--ttl"), "--ttl needs a value");
    refused(PARSE("name", "--priority", "256", "--", "c"), "--priority");
    refused(PARSE("name", "--shared=yes", "--", "c"), "takes no value");
    refused(PARSE("name", "--colour", "--", "c"), "unknown option '--colour'");
    refused(PARSE("name", "-x", "--", "c"), "unknown option '-x'");
    refused(PARSE("name", "--tt", "3s", "--", "c"), "unknown option '--tt'");
    refused(PARSE("name", "-o", "xml", "--", "c"), "--output");
    refused(PARSE("name", "--endpoints", "nowhere", "--", "c"), "--endpoints");
    refused(PARSE("name", "--namespace", repeated(64), "--", "c"), "--namespace");
    refused(PARSE("name", "--value", repeated(256), "--", "c"), "limit is 255");
}

Test(cli_args, counts_are_checked)
{
    refused(PARSE("--", "c"), "too few arguments");
    refused(PARSE("a", "b", "c", "--", "cmd"), "unexpected argument 'c'");
    refused(PARSE("name"), "no command given");
    refused(PARSE("name", "--"), "no command given");
    cr_assert(PARSE("--help"), "help asks for nothing else");
    cr_assert(values.help);
}

Test(cli_args, global_pass_stops_at_the_command)
{
    char *argv[] = {"-o", "json", "-t2s", "list", "--stale", NULL};
    args_values_defaults(&values);
    cr_assert(args_parse(NULL, 5, argv, &values, &given, &failure), "%s", failure.text);
    cr_assert_eq(values.output, ARGS_JSON);
    cr_assert_eq(values.timeout_ms, 2000u);
    cr_assert_str_eq(given.rest[0], "list");
    cr_assert_str_eq(given.rest[1], "--stale");
    char *early[] = {"--stale", "list", NULL};
    cr_assert_not(args_parse(NULL, 2, early, &values, &given, &failure));
}

/* ---- exit codes ------------------------------------------------------------------------------ */

Test(cli_exit_codes, distinct_and_out_of_the_way)
{
    bool used[256] = {false};
    used[EXIT_CODE_USAGE] = used[EXIT_CODE_ABSENT] = used[EXIT_CODE_NOT_FOUND] =
        used[EXIT_CODE_NOT_EXECUTABLE] = true;
    cr_assert_eq(exit_code_of(BELAY_OK), 0);
    for (int status = 1; status < BELAY_STATUS_COUNT; status++) {
        int code = exit_code_of((belay_status)status);
        cr_assert(code > 100 && code < 125, "%d", code);
        cr_assert_not(used[code], "%d twice", code);
        used[code] = true;
    }
    cr_assert_eq(exit_code_of((belay_status)BELAY_STATUS_COUNT), exit_code_of(BELAY_SYSTEM));
    /* Promised in docs/cli.md: scripts test for these numbers. */
    cr_assert_eq(exit_code_of(BELAY_BUSY), 101);
    cr_assert_eq(exit_code_of(BELAY_TIMED_OUT), 102);
    cr_assert_eq(exit_code_of(BELAY_LOST), 103);
    cr_assert_eq(exit_code_of(BELAY_UNREACHABLE), 104);
    cr_assert_eq(exit_code_of(BELAY_REFUSED), 119);
}
