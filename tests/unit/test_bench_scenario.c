/* SPDX-License-Identifier: Apache-2.0
 *
 * Scenario texts: what is understood, what is refused and how it is said, and that no bytes
 * whatever upset the reader.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/load/scenario.h"

static struct scenario scenario;
static char error[SCENARIO_ERROR_BYTES];

static bool reads(const char *text)
{
    scenario_init(&scenario);
    error[0] = 0;
    return scenario_read(&scenario, "some.scenario", text, strlen(text), error, sizeof error);
}

static void refused(const char *text, const char *expected)
{
    cr_assert_not(reads(text), "accepted: %s", text);
    cr_assert_str_eq(error, expected);
}

Test(bench_scenario, all_kinds_of_values)
{
    cr_assert(reads("# comment\n"
                    "\n"
                    "  what = a = b # not a comment\r\n"
                    "work=renewals\n"
                    "\trate\t=\t70000\t\n"
                    "spacing = fixed\n"
                    "warm-up = 1.25\n"
                    "names = 100000000\n"
                    "zipf-exponent = 1.5\n"
                    "braces = client\n"
                    "wait-ms = forever\n"
                    "renew = no\n"
                    "held = 12\n"
                    "pack = 1"),
              "%s", error);
    cr_assert_str_eq(scenario.what, "a = b # not a comment");
    cr_assert_eq(scenario.work, WORK_RENEWALS);
    cr_assert_eq(scenario.rate, 70000);
    cr_assert_eq(scenario.spacing, SPACING_FIXED);
    cr_assert_eq(scenario.warm_up_ms, 1250);
    cr_assert_eq(scenario.names, 100000000);
    cr_assert_float_eq(scenario.zipf_exponent, 1.5, 1e-12);
    cr_assert_eq(scenario.braces, BRACES_CLIENT);
    cr_assert_eq(scenario.wait_ms, SCENARIO_WAIT_FOREVER);
    cr_assert_not(scenario.renew);
    cr_assert_eq(scenario.held, 12);
    cr_assert_eq(scenario.pack, 1);
    cr_assert(reads("wait-ms = 0"));
    cr_assert_eq(scenario.wait_ms, 0);
}

Test(bench_scenario, errors_name_file_line_key_and_what_was_expected)
{
    refused("clients = 5\n\nrate = -1\n",
            "some.scenario:3: rate: expected commands per second, 0 (closed loop) to 100000000, "
            "found \"-1\"");
    refused("clients = 0", "some.scenario:1: clients: expected 1 to 1000000, found \"0\"");
    refused("clients = 1000001",
            "some.scenario:1: clients: expected 1 to 1000000, found \"1000001\"");
    refused("clients = 99999999999999999999999",
            "some.scenario:1: clients: expected 1 to 1000000, found "
            "\"99999999999999999999999\"");
    refused("clients =", "some.scenario:1: clients: expected 1 to 1000000, found \"\"");
    refused("clients 5", "some.scenario:1: expected \"key = value\", found \"clients 5\"");
    refused("work = pair",
            "some.scenario:1: work: expected pairs, renewals or queries, found \"pair\"");
    refused("renew = true", "some.scenario:1: renew: expected yes or no, found \"true\"");
    refused("warm-up = 1e3",
            "some.scenario:1: warm-up: expected seconds, 0 to 3600, found \"1e3\"");
    refused("warm-up = nan",
            "some.scenario:1: warm-up: expected seconds, 0 to 3600, found \"nan\"");
    refused("zipf-exponent = 0",
            "some.scenario:1: zipf-exponent: expected 0.01 to 10, found \"0\"");
    refused("group = a/b",
            "some.scenario:1: group: expected 1 to 16 letters, digits or -, found \"a/b\"");
    refused("group = abcdefghijklmnopq",
            "some.scenario:1: group: expected 1 to 16 letters, digits or -, found "
            "\"abcdefghijklmnopq\"");
    refused("names = 0x10",
            "some.scenario:1: names: expected 0 (as many as clients) to 100000000, found "
            "\"0x10\"");
    refused("pack = 1\n# x\npack = 1", "some.scenario:3: pack: expected once, found a second time");
    cr_assert_not(reads("a = 1\nclient = 5"));
    cr_assert(
        strncmp(error, "some.scenario:1: a: unknown key; there are what, group, work, rate,",
                strlen("some.scenario:1: a: unknown key; there are what, group, work, rate,")) == 0,
        "%s", error);
}

Test(bench_scenario, long_lines_and_zero_bytes)
{
    char text[2000];
    memset(text, 'x', sizeof text);
    scenario_init(&scenario);
    cr_assert_not(scenario_read(&scenario, "f", text, sizeof text, error, sizeof error));
    cr_assert_str_eq(error, "f:1: expected text of at most 511 bytes");
    cr_assert_not(scenario_read(&scenario, "f", "pack = 1\nrate\0 = 5", 18, error, sizeof error));
    cr_assert_str_eq(error, "f:2: expected text of at most 511 bytes");
}

static void settled(const char *text)
{
    cr_assert(reads(text), "%s", error);
    cr_assert(scenario_settle(&scenario, error, sizeof error), "%s", error);
}

static void unsettled(const char *text, const char *expected)
{
    cr_assert(reads(text), "%s", error);
    cr_assert_not(scenario_settle(&scenario, error, sizeof error), "accepted: %s", text);
    cr_assert(strstr(error, expected), "%s", error);
}

Test(bench_scenario, what_follows_from_the_rest)
{
    settled("clients = 100");
    cr_assert_eq(scenario.in_flight, 100);
    cr_assert_eq(scenario.names, 100);
    settled("clients = 1\nin-flight = 64");
    cr_assert_eq(scenario.names, 64, "each under way has a name of its own");
    settled("clients = 100000");
    cr_assert_eq(scenario.in_flight, 65536);
    settled("work = renewals\nheld = 3");
    cr_assert_eq(scenario.in_flight, 3);
    unsettled("work = renewals", "give held");
    unsettled("pick = zipf\nclients = 4\nin-flight = 5", "in-flight must not exceed clients");
    unsettled("renew = no\nhold-ms = 10000", "hold-ms must be below ttl-ms");
    unsettled("expect-lost = yes", "needs renew = no");
    unsettled("braces = client\npick = uniform", "braces = client");
}

/* What is told can be read again, and comes out the same. */
Test(bench_scenario, values_round_trip)
{
    struct scenario again;
    const char *expected;
    const char *key;
    settled("what = x\ngroup = mine\nwork = queries\nheld = 5\nrate = 9\nwait-ms = 7\nwarm-up = "
            "0.5\nstale = yes\n"
            "zipf-exponent = 0.75\npick = zipf\nspacing = fixed\nnames = 123456");
    scenario_init(&again);
    for (unsigned i = 0; (key = scenario_key(i, &expected)) != NULL; i++) {
        char value[SCENARIO_WHAT_BYTES];
        scenario_value(&scenario, i, value, sizeof value);
        cr_assert(scenario_set(&again, key, value, error, sizeof error), "%s", error);
    }
    again.given = scenario.given;
    cr_assert_eq(memcmp(&again, &scenario, sizeof again), 0);
}

static size_t load_file(const char *name, char *text, size_t bytes)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", SCENARIOS, name);
    FILE *file = fopen(path, "rb");
    cr_assert(file, "%s", path);
    size_t length = fread(text, 1, bytes, file);
    fclose(file);
    return length;
}

Test(bench_scenario, those_that_come_along_are_sound_and_explain_themselves)
{
    static char text[SCENARIO_FILE_BYTES_MAX];
    DIR *directory = opendir(SCENARIOS);
    const struct dirent *entry;
    unsigned count = 0;
    cr_assert(directory);
    while ((entry = readdir(directory)) != NULL) {
        if (!strstr(entry->d_name, ".scenario"))
            continue;
        size_t length = load_file(entry->d_name, text, sizeof text);
        scenario_init(&scenario);
        cr_assert(scenario_read(&scenario, entry->d_name, text, length, error, sizeof error) &&
                      scenario_settle(&scenario, error, sizeof error),
                  "%s", error);
        cr_assert(text[0] == '#' && scenario.what[0], "%s explains itself", entry->d_name);
        count++;
    }
    closedir(directory);
    cr_assert_geq(count, 11);
}

/* Random bytes, and sound files with bytes changed, cut out and doubled: always an answer, never
 * anything else. Values outside their range must not get in. */
Test(bench_scenario, garbage)
{
    static char sound[SCENARIO_FILE_BYTES_MAX], text[SCENARIO_FILE_BYTES_MAX];
    static const char likely[] = "=#\n\n 0123456789.-\0\t\rabcdefxnrateclients";
    struct draws draws = {.state = 77};
    size_t length = load_file("zipf.scenario", sound, sizeof sound);
    unsigned accepted = 0, rejected = 0;
    for (int i = 0; i < 100000; i++) {
        size_t bytes = length;
        memcpy(text, sound, length);
        if (i % 4 == 0) {
            bytes = draw_below(&draws, 600);
            for (size_t k = 0; k < bytes; k++)
                text[k] = (char)draw_word(&draws);
        }
        for (uint64_t changes = draw_below(&draws, 12); changes > 0 && bytes > 0; changes--)
            text[draw_below(&draws, bytes)] = likely[draw_below(&draws, sizeof likely)];
        bytes -= draw_below(&draws, bytes / 8 + 1);
        scenario_init(&scenario);
        error[0] = 0;
        bool read = scenario_read(&scenario, "g", text, bytes, error, sizeof error);
        cr_assert_eq(read, error[0] == 0);
        accepted += read;
        rejected += !read;
        cr_assert(scenario.clients >= 1 && scenario.clients <= 1000000);
        cr_assert(scenario.seconds >= 1 && scenario.seconds <= 86400);
        cr_assert(scenario.zipf_exponent >= 0.01 && scenario.zipf_exponent <= 10);
        cr_assert(scenario.pick <= PICK_ZIPF && scenario.work <= WORK_QUERIES);
        cr_assert(memchr(scenario.what, 0, sizeof scenario.what));
    }
    cr_assert(accepted > 1000 && rejected > 1000, "%u accepted, %u rejected", accepted, rejected);
}
