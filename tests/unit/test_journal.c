/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <regex.h>
#include <string.h>
#include <unistd.h>

#include "hw/journal.h"

static int capture[2];
static int real_stderr;

static void capture_begin(void)
{
    cr_assert_eq(pipe(capture), 0);
    real_stderr = dup(STDERR_FILENO);
    dup2(capture[1], STDERR_FILENO);
}

/* What was written since capture_begin(). */
static const char *captured(void)
{
    static char text[16384];
    dup2(real_stderr, STDERR_FILENO);
    close(real_stderr);
    close(capture[1]);
    ssize_t length = read(capture[0], text, sizeof text - 1);
    text[length > 0 ? length : 0] = '\0';
    close(capture[0]);
    return text;
}

static void assert_matches(const char *text, const char *pattern)
{
    regex_t regex;
    cr_assert_eq(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
    cr_assert_eq(regexec(&regex, text, 0, NULL, 0), 0, "%s", text);
    regfree(&regex);
}

Test(journal, text)
{
    journal_setup(JOURNAL_INFO, JOURNAL_TEXT);
    capture_begin();
    journal_write(JOURNAL_INFO, "role", "worker=%d shard=%d role=leader", 0, 3);
    assert_matches(captured(),
                   "^[0-9]+\\.[0-9]{6} info event=role worker=0 shard=3 role=leader\n$");
}

Test(journal, text_of_an_event_alone)
{
    journal_setup(JOURNAL_INFO, JOURNAL_TEXT);
    capture_begin();
    journal_write(JOURNAL_ERROR, "stopped", "%s", "");
    assert_matches(captured(), "^[0-9]+\\.[0-9]{6} error event=stopped\n$");
}

Test(journal, levels)
{
    journal_setup(JOURNAL_WARN, JOURNAL_TEXT);
    cr_assert(journal_enabled(JOURNAL_ERROR));
    cr_assert(journal_enabled(JOURNAL_WARN));
    cr_assert_not(journal_enabled(JOURNAL_INFO));
    capture_begin();
    journal_write(JOURNAL_INFO, "quiet", "a=1");
    journal_write(JOURNAL_WARN, "loud", "a=1");
    const char *text = captured();
    cr_assert_null(strstr(text, "quiet"));
    cr_assert_not_null(strstr(text, "warn event=loud"));
}

Test(journal, json)
{
    journal_setup(JOURNAL_INFO, JOURNAL_JSON);
    capture_begin();
    journal_write(JOURNAL_INFO, "role", "shard=%d role=leader path=\"%s\" term=-7 code=007", 3,
                  "/a \"b\"\\c\n");
    assert_matches(captured(), "^\\{\"seconds\":[0-9]+\\.[0-9]{6},\"level\":\"info\","
                               "\"event\":\"role\",\"shard\":3,\"role\":\"leader\","
                               "\"path\":\"/a \\\\\"b\\\\\"\\\\\\\\c\\\\u000a\",\"term\":-7,"
                               "\"code\":\"007\"\\}\n$");
}

Test(journal, a_value_cannot_forge_a_line)
{
    journal_setup(JOURNAL_INFO, JOURNAL_TEXT);
    capture_begin();
    journal_write(JOURNAL_INFO, "name", "name=\"%s\"", "a\n1.000000 error event=forged");
    const char *text = captured();
    cr_assert_eq(strchr(text, '\n'), text + strlen(text) - 1, "one line only");
}

/* Cut at every length around the limit, a line stays one line and JSON stays JSON. */
Test(journal, long_lines_are_cut)
{
    for (int json = 0; json < 2; json++) {
        journal_setup(JOURNAL_INFO, json ? JOURNAL_JSON : JOURNAL_TEXT);
        for (int length = 900; length < 1100; length++) {
            char value[1200];
            memset(value, length % 3 == 0 ? '"' : length % 3 == 1 ? 'x' : 1, sizeof value);
            value[length] = '\0';
            capture_begin();
            journal_write(JOURNAL_INFO, "long", "v=\"%s\" tail=12345678901234567890", value);
            const char *text = captured();
            size_t bytes = strlen(text);
            cr_assert_leq(bytes, 1024);
            cr_assert_eq(strchr(text, '\n'), text + bytes - 1);
            if (json)
                assert_matches(text, "^\\{\"seconds\":[0-9.]+,\"level\":\"info\",\"event\":\"long\""
                                     "(,\"[a-z]+\":(\"([^\"\\\\]|\\\\.)*\"|[0-9]+))*\\}\n$");
        }
    }
}
