/* SPDX-License-Identifier: Apache-2.0
 *
 * The checker's readers: what they make of good files, and that they refuse bad ones by line.
 */
#include <criterion/criterion.h>

#include "tests/unit/lincheck_rig.h"

static struct rig rig;

static void read_as(enum model_kind model, enum history_format format, const char *text)
{
    struct history_options options = rig_options(model);
    options.format = format;
    rig_judge(&rig, &options, text, 1);
}

static void assert_read(enum model_kind model, enum history_format format, const char *text)
{
    read_as(model, FORMAT_AUTO, text);
    cr_assert_eq(rig.read_result, 0, "%s in line %u", rig.error.text, rig.error.line);
    cr_assert_eq(rig.history.format, format);
}

static void assert_refused(enum model_kind model, enum history_format format, const char *text,
                           uint32_t line, const char *part)
{
    read_as(model, format, text);
    cr_assert_eq(rig.read_result, -EBADMSG, "taken: %s", text);
    cr_assert_eq(rig.error.line, line, "line %u: %s", rig.error.line, rig.error.text);
    cr_assert(strstr(rig.error.text, part) != NULL, "said: %s", rig.error.text);
    rig_free(&rig);
    cr_assert_eq(rig.budget.used_bytes, 0);
}

static void assert_text(uint32_t reference, const char *expected)
{
    struct span span = intern_get(&rig.history.texts, reference);
    cr_assert_eq(span.length_bytes, strlen(expected), "%.*s", (int)span.length_bytes, span.bytes);
    cr_assert_eq(memcmp(span.bytes, expected, span.length_bytes), 0);
}

Test(lincheck_read, jepsen_text)
{
    assert_read(MODEL_REGISTER, FORMAT_JEPSEN,
                "INFO  jepsen.util - 0\t:invoke\t:write\t1\n"
                "WARN  some.other.logger - hello\n"
                "INFO  jepsen.util - 1\t:invoke\t:cas\t[1 2]\r\n"
                "INFO  jepsen.util - 0\t:info\t:write\t:timed-out\n"
                "INFO  jepsen.util - :nemesis\t:info\t:start\tnil\n"
                "INFO  jepsen.util - 1\t:fail\t:cas\t[1 2]\n"
                "INFO  jepsen.util - 2\t:invoke\t:read\tnil\n"
                "INFO  jepsen.util - 2\t:ok\t:read\tnil");
    cr_assert_eq(rig.history.ops_count, 3);
    cr_assert_eq(rig.history.skipped_count, 2);
    const struct history_op *ops = rig.history.ops;
    cr_assert(ops[0].kind == OP_WRITE && ops[0].return_at == POSITION_NEVER);
    cr_assert(ops[0].call_line == 1 && ops[0].return_line == 0);
    cr_assert(ops[1].kind == OP_CAS && ops[1].mismatch);
    cr_assert(ops[1].call_line == 3 && ops[1].return_line == 6);
    assert_text(ops[1].value, "1");
    assert_text(ops[1].value_to, "2");
    cr_assert_eq(ops[2].value, rig.history.nil);
    rig_free(&rig);
    cr_assert_eq(rig.budget.used_bytes, 0);
}

Test(lincheck_read, a_cas_that_timed_out_observed_nothing)
{
    assert_read(MODEL_REGISTER, FORMAT_JEPSEN,
                "x - 0 :invoke :cas [1 2]\nx - 0 :fail :cas :timed-out\n");
    cr_assert_eq(rig.history.ops_count, 0);
    cr_assert_eq(rig.history.failed_count, 1);
    rig_free(&rig);
}

Test(lincheck_read, edn_in_every_dress)
{
    static const char *const dresses[] = {
        "{:process 0, :type :invoke, :f :write, :value 3}\n"
        "{:process 0, :type :ok, :f :write, :value 3}\n",
        "; a comment\n[{:index 0 :time 12 :process 0, :type :invoke, :f :write, :value 3},\n"
        " {:index 1 :time 10 :process 0, :type :ok, :f :write, :value 3 :node \"n1\"}]",
        "({:process 0 :type :invoke :f :write :value 3 #_ #_ ignored too}\n"
        " {:process :nemesis :type :info :f :start :value {:a #{1 2.5 3/4} \\newline #inst \"x\"}}"
        " {:process 0 :type :ok :f :write :value 3})",
        "#jepsen.history.Op{:process 0N :type :invoke :f :write :value +3}"
        "#jepsen.history.Op{:process 0 :type :ok :f :write :value 3}",
        "{:process 0 :type :invoke :f :write :value 3},{:process 0 :type :ok :f :write}",
    };
    for (size_t i = 0; i < sizeof dresses / sizeof dresses[0]; i++) {
        assert_read(MODEL_REGISTER, FORMAT_EDN, dresses[i]);
        cr_assert_eq(rig.history.ops_count, 1, "dress %zu", i);
        assert_text(rig.history.ops[0].value, "3");
        cr_assert(rig.history.ops[0].return_at != POSITION_NEVER);
        rig_free(&rig);
        cr_assert_eq(rig.budget.used_bytes, 0);
    }
}

Test(lincheck_read, json_lines_and_array)
{
    assert_read(
        MODEL_FENCED_MUTEX, FORMAT_JSON,
        "{\"process\":4,\"type\":\"invoke\",\"f\":\"acquire\",\"key\":\"a\"}\n\n"
        "{\"process\":4,\"type\":\"ok\",\"f\":\"acquire\",\"token\":\"18446744073709551615\"}");
    cr_assert_eq(rig.history.ops_count, 1);
    cr_assert(rig.history.ops[0].token_known);
    cr_assert_eq(rig.history.ops[0].token, UINT64_MAX);
    cr_assert_eq(rig.history.ops[0].return_line, 3);
    assert_text(rig.history.ops[0].key, "\"a\"");
    assert_text(rig.history.ops[0].owner, "process 4");
    rig_free(&rig);
    assert_read(
        MODEL_REGISTER, FORMAT_JSON,
        "[{\"process\":0,\"type\":\"invoke\",\"f\":\"write\",\"value\":\"\\u00e9\\\"\\n\"},\n"
        "{\"process\":0,\"type\":\"ok\",\"f\":\"write\"}\n]\n");
    assert_text(rig.history.ops[0].value, "\"\303\251\\\"\\u000a\"");
    rig_free(&rig);
}

Test(lincheck_read, equal_values_are_equal_whatever_their_dress)
{
    assert_read(MODEL_REGISTER, FORMAT_JSON,
                "{\"process\":0,\"type\":\"invoke\",\"f\":\"write\",\"value\":[1,\"\\u0041\"]}"
                "{\"process\":0,\"type\":\"ok\",\"f\":\"write\"}"
                "{\"process\":0,\"type\":\"invoke\",\"f\":\"read\"}"
                "{\"process\":0,\"type\":\"ok\",\"f\":\"read\",\"value\":[ 1 , \"A\" ]}");
    cr_assert_eq(rig.history.ops[0].value, rig.history.ops[1].value);
    cr_assert_eq(rig.verdict.verdict, SEARCH_LINEARIZABLE);
    rig_free(&rig);
    assert_read(MODEL_REGISTER, FORMAT_JSON,
                "{\"process\":0,\"type\":\"invoke\",\"f\":\"write\",\"value\":5}"
                "{\"process\":0,\"type\":\"ok\",\"f\":\"write\"}"
                "{\"process\":0,\"type\":\"invoke\",\"f\":\"read\"}"
                "{\"process\":0,\"type\":\"ok\",\"f\":\"read\",\"value\":\"5\"}");
    cr_assert_eq(rig.verdict.verdict, SEARCH_NOT_LINEARIZABLE);
    rig_free(&rig);
}

#define J(process, type, f, more)                                                                  \
    "{\"process\":" #process ",\"type\":\"" type "\",\"f\":\"" f "\"" more "}\n"

/* Logs of several clients one after the other: times put them in order. */
Test(lincheck_read, json_times_order_the_events)
{
    assert_read(
        MODEL_REGISTER, FORMAT_JSON,
        J(0, "invoke", "write", ",\"value\":1,\"time\":10") J(0, "ok", "write", ",\"time\":20")
            J(0, "invoke", "write", ",\"value\":2,\"time\":50") J(0, "ok", "write", ",\"time\":60")
                J(1, "invoke", "read", ",\"time\":30")
                    J(1, "ok", "read", ",\"value\":1,\"time\":40"));
    cr_assert_eq(rig.verdict.verdict, SEARCH_LINEARIZABLE);
    rig_free(&rig);
    /* Ended and begun at one instant: they may have overlapped. */
    const char *instant = J(0, "invoke", "write", ",\"value\":1,\"time\":10")
        J(0, "ok", "write", ",\"time\":20") J(1, "invoke", "read", ",\"time\":20")
            J(1, "ok", "read", ",\"value\":null,\"time\":30");
    assert_read(MODEL_REGISTER, FORMAT_JSON, instant);
    cr_assert_eq(rig.verdict.verdict, SEARCH_LINEARIZABLE);
    rig_free(&rig);
    const char *later = J(0, "invoke", "write", ",\"value\":1,\"time\":10")
        J(0, "ok", "write", ",\"time\":20") J(1, "invoke", "read", ",\"time\":21")
            J(1, "ok", "read", ",\"value\":null,\"time\":30");
    assert_read(MODEL_REGISTER, FORMAT_JSON, later);
    cr_assert_eq(rig.verdict.verdict, SEARCH_NOT_LINEARIZABLE);
    rig_free(&rig);
}

Test(lincheck_read, refusals_name_the_line)
{
    enum model_kind m = MODEL_MUTEX, r = MODEL_REGISTER;
    assert_refused(m, FORMAT_AUTO, "", 0, "nothing to check");
    assert_refused(m, FORMAT_AUTO, " \n ; only a comment\n", 0, "nothing to check");
    assert_refused(m, FORMAT_EDN, "[]", 0, "nothing to check");
    assert_refused(m, FORMAT_JEPSEN, "a log\nof something else\n", 0, "nothing to check");
    assert_refused(m, FORMAT_JSON, "\n{\"process\":0,\n\"type\":", 3, "ends inside a value");
    assert_refused(m, FORMAT_JSON, "{\"process\":0 \"type\"}", 1, "expected ','");
    assert_refused(m, FORMAT_JSON, "{\"a\":01}", 1, "not a number");
    assert_refused(m, FORMAT_JSON, "{\"a\":1.}", 1, "not a number");
    assert_refused(m, FORMAT_JSON, "{\"a\":\"\\ud800\"}", 1, "surrogate");
    assert_refused(m, FORMAT_JSON, "{\"a\":\"\\x\"}", 1, "escape");
    assert_refused(m, FORMAT_JSON, "{\"a\":\n\"b", 2, "never ends");
    assert_refused(m, FORMAT_JSON, "[{}", 1, "wants process");
    assert_refused(m, FORMAT_JSON, "5", 1, "map");
    assert_refused(m, FORMAT_JSON, J(0, "invoke", "acquire", ",\"type\":\"ok\""), 1, "twice");
    assert_refused(m, FORMAT_JSON, J(0, "done", "acquire", ""), 1, "none of invoke");
    assert_refused(m, FORMAT_JSON, J(0.5, "ok", "acquire", ""), 1, "whole number");
    assert_refused(m, FORMAT_JSON, J(0, "invoke", "read", ""), 1, "mutex has no operation read");
    assert_refused(r, FORMAT_JSON, J(0, "invoke", "append", ",\"value\":\"\""), 1, "append");
    assert_refused(r, FORMAT_JSON, J(0, "invoke", "write", ""), 1, "value is missing");
    assert_refused(r, FORMAT_JSON, J(0, "invoke", "cas", ",\"value\":[1]"), 1, "value of two");
    assert_refused(MODEL_KV, FORMAT_JSON,
                   J(0, "invoke", "write", ",\"value\":1") J(0, "ok", "write", ""), 1, "no key");
    assert_refused(m, FORMAT_EDN, "{:process 0 :type :invoke :f :acquire", 1, "never closed");
    assert_refused(m, FORMAT_EDN, "\n[{:process 0 :type :invoke :f :acquire}\n", 3, "ends before");
    assert_refused(m, FORMAT_EDN, "[{:process 0 :type :invoke :f :acquire}]\n x", 2, "follows");
    assert_refused(m, FORMAT_EDN, "{:process 0 :type}", 1, "without a value");
    assert_refused(m, FORMAT_EDN, "{:process 12z4}", 1, "not a number");
    assert_refused(m, FORMAT_EDN, "\n)", 2, "expected a value");
    assert_refused(m, FORMAT_JEPSEN, "x - 0 :invoke :acquire nil\nx - 0 :ok", 2, "ends inside");
}

Test(lincheck_read, refusals_of_impossible_pairs)
{
    enum model_kind m = MODEL_MUTEX;
    assert_refused(m, FORMAT_JSON, J(0, "ok", "acquire", ""), 1, "answer to nothing");
    assert_refused(m, FORMAT_JSON, J(0, "invoke", "acquire", "") J(0, "ok", "release", ""), 2,
                   "another operation");
    assert_refused(m, FORMAT_JSON,
                   J(7, "invoke", "acquire", "") J(0, "ok", "release", "")
                       J(7, "invoke", "acquire", ""),
                   2, "answer to nothing");
    assert_refused(m, FORMAT_JSON, J(0, "invoke", "acquire", "") J(0, "invoke", "acquire", ""), 2,
                   "not ended");
    assert_refused(m, FORMAT_JSON,
                   J(0, "invoke", "acquire", ",\"key\":1") J(0, "ok", "acquire", ",\"key\":2"), 2,
                   "another key");
    assert_refused(m, FORMAT_JSON,
                   J(0, "invoke", "acquire", ",\"time\":1") J(0, "ok", "acquire", ""), 2,
                   "no time");
    assert_refused(MODEL_FENCED_MUTEX, FORMAT_JSON,
                   J(0, "invoke", "acquire", "") J(0, "ok", "acquire", ""), 2, "no token");
    assert_refused(MODEL_FENCED_MUTEX, FORMAT_JSON,
                   J(0, "invoke", "acquire", "")
                       J(0, "ok", "acquire", ",\"token\":\"18446744073709551616\""),
                   2, "a token is");
    assert_refused(MODEL_SHARED_LOCK, FORMAT_JSON,
                   J(0, "invoke", "acquire", "") J(0, "ok", "acquire", ""), 2, "shared or");
    assert_refused(MODEL_SEMAPHORE, FORMAT_JSON, J(0, "invoke", "acquire", ",\"value\":0"), 1,
                   "at least 1");
}

/* Brackets without end must neither be followed without bound nor crash. */
Test(lincheck_read, nesting_is_bounded)
{
    static char deep[200000];
    static const struct {
        enum history_format format;
        const char *unit;
    } units[] = {{FORMAT_JSON, "["},      {FORMAT_EDN, "["}, {FORMAT_EDN, "#_"},
                 {FORMAT_EDN, "#tag "},   {FORMAT_EDN, "{"}, {FORMAT_EDN, "#{"},
                 {FORMAT_JSON, "{\"a\":"}};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        size_t length = strlen(units[i].unit), used = 0;
        while (used + length < sizeof deep) {
            memcpy(deep + used, units[i].unit, length);
            used += length;
        }
        deep[used] = '\0';
        assert_refused(MODEL_MUTEX, units[i].format, deep, 1, "too deeply");
    }
}

/* Whatever is cut off, the reader says so or has read what was left: it never reads beyond. */
Test(lincheck_read, every_prefix)
{
    static const char *const whole[] = {
        "[{:process 0, :type :invoke, :f :write, :value [\"a\\u0041\" 2.5 :k #{1}]} ; c\n"
        " #_ x #op {:process 0, :type :ok, :f :write}]",
        "{\"process\":0,\"type\":\"invoke\",\"f\":\"write\",\"value\":[\"\\ud83d\\ude00\",-1e5]}\n"
        "{\"process\":0,\"type\":\"ok\",\"f\":\"write\"}",
        "INFO - 0\t:invoke\t:cas\t[1 2]\nINFO - 0\t:ok\t:cas\t[1 2]"};
    for (size_t i = 0; i < 3; i++) {
        for (size_t length = 0; length <= strlen(whole[i]); length++) {
            struct history_options options = rig_options(MODEL_REGISTER);
            options.format = (enum history_format)(FORMAT_JEPSEN + (i == 0 ? 1 : i == 1 ? 2 : 0));
            /* At the end of a block of exactly this size, so that a sanitizer sees one byte more.
             */
            char *copy = malloc(length + 1);
            memcpy(copy, whole[i], length);
            copy[length] = '\0';
            rig_judge(&rig, &options, copy, 1);
            cr_assert(rig.read_result == 0 || rig.read_result == -EBADMSG);
            cr_assert(length < strlen(whole[i]) || rig.read_result == 0, "%s", rig.error.text);
            rig_free(&rig);
            cr_assert_eq(rig.budget.used_bytes, 0);
            free(copy);
        }
    }
}

Test(lincheck_read, independent_keys)
{
    struct history_options options = rig_options(MODEL_REGISTER);
    options.independent = true;
    rig_judge(&rig, &options,
              "{:process 0 :type :invoke :f :write :value [9 1]}"
              "{:process 0 :type :ok :f :write :value [9 1]}"
              "{:process 0 :type :invoke :f :read :value [8 nil]}"
              "{:process 0 :type :ok :f :read :value [8 nil]}"
              "{:process 0 :type :invoke :f :cas :value [9 [1 2]]}"
              "{:process 0 :type :info :f :cas :value :timed-out}",
              1);
    cr_assert_eq(rig.read_result, 0, "%s", rig.error.text);
    cr_assert_eq(rig.verdict.keys_count, 2);
    cr_assert_eq(rig.verdict.verdict, SEARCH_LINEARIZABLE);
    rig_free(&rig);
}

Test(lincheck_read, the_budget_holds)
{
    static char text[600000];
    size_t used = 0;
    for (int i = 0; i < 4000; i++)
        used +=
            (size_t)snprintf(text + used, sizeof text - used,
                             J(0, "invoke", "write", ",\"value\":%d") J(0, "ok", "write", ""), i);
    for (size_t limit = 0; limit < 3000000; limit += 30011) {
        struct history_options options = rig_options(MODEL_REGISTER);
        struct budget budget = {.limit_bytes = limit};
        history_init(&rig.history, &budget);
        int result = history_read(&rig.history, &options, text, used, &rig.error);
        cr_assert(result == 0 || result == -ENOMEM, "%d", result);
        cr_assert(budget.used_bytes <= limit);
        cr_assert(limit > 1000 || result == -ENOMEM);
        cr_assert(limit < 2900000 || result == 0);
        history_free(&rig.history);
        cr_assert_eq(budget.used_bytes, 0);
    }
}
