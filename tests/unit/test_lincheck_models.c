/* SPDX-License-Identifier: Apache-2.0
 *
 * Every model on histories made by hand, good and bad ones, with operations that were never
 * answered; and what the report shows of the bad ones.
 *
 * A history is written as events apart by spaces: process, then what it does.
 *   0?a   process 0 begins to acquire       0!    its operation ends well
 *   0?r   to release                        0-    ... fails
 *   0?c   to convert                        0~    ... ends nobody knows how
 *   0?q   to query                          0=2   its query ends: 2 holders; 0=1/5: one, token 5
 * A detail stands behind the letter: permits (0?a2), or the mode, s or x (0?cx). An answer may bear
 * a token: 0!5.
 */
#include <criterion/criterion.h>

#include "tests/unit/lincheck_rig.h"

static struct rig rig;
static char text[1 << 16];

struct text_writer {
    size_t used;
};

static void put(struct text_writer *writer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void put(struct text_writer *writer, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    writer->used +=
        (size_t)vsnprintf(text + writer->used, sizeof text - writer->used, format, arguments);
    va_end(arguments);
}

static const char *name_of(char letter)
{
    return letter == 'a'   ? "acquire"
           : letter == 'r' ? "release"
           : letter == 'q' ? "query"
                           : "convert";
}

static void put_detail(struct text_writer *writer, const char *detail, size_t length)
{
    if (length == 0)
        return;
    if (detail[0] == 's' || detail[0] == 'x')
        put(writer, ",\"mode\":\"%s\"", detail[0] == 's' ? "shared" : "exclusive");
    else
        put(writer, ",\"permits\":%.*s", (int)length, detail);
}

/* HOLDERS, then s or x for the mode, then /TOKEN. */
static void put_query(struct text_writer *writer, const char *detail, size_t length)
{
    const char *end = detail + length;
    put(writer, ",\"holders\":%c", *detail++);
    if (detail < end && *detail != '/')
        put_detail(writer, detail++, 1);
    if (detail < end)
        put(writer, ",\"token\":\"%.*s\"", (int)(end - detail) - 1, detail + 1);
}

/* From the short form to JSON lines. */
static void spell_out(const char *events)
{
    struct text_writer writer = {0};
    char doing[10] = {0};
    text[0] = '\0';
    while (*events != '\0') {
        size_t length = strcspn(events, " ");
        int process = events[0] - '0';
        const char *detail = events + 2;
        if (events[1] == '?') {
            doing[process] = *detail++;
            put(&writer, "{\"process\":%d,\"type\":\"invoke\",\"f\":\"%s\"", process,
                name_of(doing[process]));
            put_detail(&writer, detail, length - 3);
        } else {
            put(&writer, "{\"process\":%d,\"type\":\"%s\",\"f\":\"%s\"", process,
                events[1] == '!'   ? "ok"
                : events[1] == '=' ? "ok"
                : events[1] == '-' ? "fail"
                                   : "info",
                name_of(doing[process]));
            if (events[1] == '=')
                put_query(&writer, detail, length - 2);
            else if (length > 2)
                put(&writer, ",\"token\":\"%.*s\"", (int)length - 2, detail);
        }
        put(&writer, "}\n");
        events += length + (events[length] == ' ');
    }
}

static enum search_verdict judge(enum model_kind model, enum owner_rule owners, uint32_t permits,
                                 const char *events)
{
    struct history_options options = rig_options(model);
    options.owners = owners;
    spell_out(events);
    rig_judge(&rig, &options, text, permits);
    cr_assert_eq(rig.read_result, 0, "%s: line %u: %s", events, rig.error.line, rig.error.text);
    return rig.verdict.verdict;
}

static void assert_verdict(enum model_kind model, uint32_t permits, const char *events,
                           enum search_verdict expected)
{
    cr_assert_eq(judge(model, OWNER_AUTO, permits, events), expected, "%s", events);
    rig_free(&rig);
    cr_assert_eq(rig.budget.used_bytes, 0);
}

static void good(enum model_kind model, const char *events)
{
    assert_verdict(model, 3, events, SEARCH_LINEARIZABLE);
}

static void bad(enum model_kind model, const char *events)
{
    assert_verdict(model, 3, events, SEARCH_NOT_LINEARIZABLE);
}

Test(lincheck_models, mutex)
{
    good(MODEL_MUTEX, "0?a 0! 0?r 0! 1?a 1! 1?r 1!");
    good(MODEL_MUTEX, "0?a 1?a 0! 0?r 1! 0!"); /* handed over while both are under way */
    bad(MODEL_MUTEX, "0?a 0! 1?a 1!");
    bad(MODEL_MUTEX, "0?a 0! 1?a 1! 0?r 0!"); /* released too late */
    bad(MODEL_MUTEX, "0?r 0!");
    bad(MODEL_MUTEX, "0?a 0! 0?a 0!");
    bad(MODEL_MUTEX, "0?a 0! 1?r 1! 1?a 1!"); /* released by somebody else */
    good(MODEL_MUTEX, "0?a 0! 1?a 1- 0?r 0! 1?a 1!");
}

Test(lincheck_models, mutex_without_owners)
{
    const char *events = "0?a 0! 1?r 1! 1?a 1!";
    cr_assert_eq(judge(MODEL_MUTEX, OWNER_ANY, 1, events), SEARCH_LINEARIZABLE);
    rig_free(&rig);
    cr_assert_eq(judge(MODEL_MUTEX, OWNER_ANY, 1, "0?a 0! 1?r 1! 2?r 2!"), SEARCH_NOT_LINEARIZABLE);
    rig_free(&rig);
    struct history_options options = rig_options(MODEL_MUTEX);
    rig_judge(&rig, &options,
              "{:process 0 :type :invoke :f :acquire :value nil}"
              "{:process 0 :type :ok :f :acquire :value nil}"
              "{:process 1 :type :invoke :f :release :value nil}"
              "{:process 1 :type :ok :f :release :value nil}",
              1);
    cr_assert_eq(rig.verdict.verdict, SEARCH_LINEARIZABLE, "EDN reads as Knossos does");
    rig_free(&rig);
}

Test(lincheck_models, unanswered_operations_on_a_mutex)
{
    good(MODEL_MUTEX, "0?a 0~ 1?a 1!");              /* never happened */
    good(MODEL_MUTEX, "0?a 0~ 0?r 0! 1?a 1!");       /* happened */
    good(MODEL_MUTEX, "0?a 0! 0?r 0~ 1?a 1!");       /* the release did */
    good(MODEL_MUTEX, "0?a 0! 0?r 1?a 1!");          /* the file ends before its answer */
    bad(MODEL_MUTEX, "0?a 0! 0?r 0~ 1?a 1! 2?a 2!"); /* ... but only once */
    bad(MODEL_MUTEX, "0?a 0! 1?a 1! 0?r 0~");        /* not before it was asked for */
    /* Long after: it stays open. */
    good(MODEL_MUTEX, "0?a 0! 0?r 0~ 1?a 2?a 2- 2?a 2- 2?a 2- 1!");
    bad(MODEL_MUTEX, "0?a 0! 0?r 0- 1?a 1!"); /* a failed release released nothing */
}

Test(lincheck_models, reentrant_mutex)
{
    good(MODEL_REENTRANT_MUTEX, "0?a 0! 0?a 0! 0?r 0! 0?r 0! 1?a 1!");
    bad(MODEL_REENTRANT_MUTEX, "0?a 0! 0?a 0! 0?r 0! 1?a 1!");
    bad(MODEL_REENTRANT_MUTEX, "0?a 0! 0?r 0! 0?r 0!");
    bad(MODEL_REENTRANT_MUTEX, "0?a 0! 1?r 1!");
    good(MODEL_REENTRANT_MUTEX, "0?a 0! 0?a 0~ 0?r 0! 1?a 1!");
    good(MODEL_REENTRANT_MUTEX, "0?a 0! 0?a 0~ 0?r 0! 0?r 0! 1?a 1!");
    bad(MODEL_REENTRANT_MUTEX, "0?a 0! 0?a 0~ 0?r 0! 0?r 0! 0?r 0!");
}

Test(lincheck_models, holds_of_a_reentrant_mutex_may_be_limited)
{
    struct history_options options = rig_options(MODEL_REENTRANT_MUTEX);
    struct verdict verdict;
    spell_out("0?a 0! 0?a 0! 0?a 0!");
    rig_judge(&rig, &options, text, 1);
    cr_assert_eq(rig.verdict.verdict, SEARCH_LINEARIZABLE);
    rig.model.holds_max = 2;
    verdict_find(&verdict, &rig.model);
    cr_assert_eq(verdict.verdict, SEARCH_NOT_LINEARIZABLE);
    verdict_free(&verdict, &rig.model);
    rig.model.holds_max = 3;
    verdict_find(&verdict, &rig.model);
    cr_assert_eq(verdict.verdict, SEARCH_LINEARIZABLE);
    verdict_free(&verdict, &rig.model);
    rig_free(&rig);
}

Test(lincheck_models, fenced_mutex)
{
    good(MODEL_FENCED_MUTEX, "0?a 0!0 0?r 0! 1?a 1!1 1?r 1! 0?a 0!18446744073709551615");
    bad(MODEL_FENCED_MUTEX, "0?a 0!5 0?r 0! 1?a 1!5");
    bad(MODEL_FENCED_MUTEX, "0?a 0!5 0?r 0! 1?a 1!4");
    bad(MODEL_FENCED_MUTEX, "0?a 0!4294967296 0?r 0! 1?a 1!1");
    bad(MODEL_FENCED_MUTEX, "0?a 0!5 1?a 1!6");
    bad(MODEL_FENCED_MUTEX, "0?a 0!5 1?r 1!");
    good(MODEL_FENCED_MUTEX, "0?a 0!5 0?r 0!5");
    bad(MODEL_FENCED_MUTEX, "0?a 0!5 0?r 0!6"); /* a release of a grant that never was */
    /* Overlapping: the tokens say in which order they were granted. */
    good(MODEL_FENCED_MUTEX, "0?a 1?a 0!6 0?r 1!7 0! 1?r 1!");
    bad(MODEL_FENCED_MUTEX, "0?a 1?a 0!7 0?r 1!6 0! 1?r 1!");
    good(MODEL_FENCED_MUTEX, "0?a 1?a 1!6 1?r 1! 0!7");
}

Test(lincheck_models, unanswered_acquires_of_a_fenced_mutex_take_a_token)
{
    good(MODEL_FENCED_MUTEX, "0?a 0!5 0?r 0! 1?a 1~ 2?a 2!6");
    good(MODEL_FENCED_MUTEX, "0?a 0!5 0?r 0! 1?a 1~ 1?r 1! 2?a 2!7");
    /* 1 did hold it, since its release went well, and so had a token between 5 and 6. */
    bad(MODEL_FENCED_MUTEX, "0?a 0!5 0?r 0! 1?a 1~ 1?r 1! 2?a 2!6");
    good(MODEL_FENCED_MUTEX, "0?a 0!5 0?r 0! 1?a 1~ 1?r 1!8 2?a 2!9");
    bad(MODEL_FENCED_MUTEX, "0?a 0!5 0?r 0! 1?a 1~ 1?r 1!8 2?a 2!8");
    bad(MODEL_FENCED_MUTEX, "0?a 0!18446744073709551615 0?r 0! 1?a 1~ 1?r 1!");
}

Test(lincheck_models, queries)
{
    good(MODEL_MUTEX, "2?q 2=0 0?a 0! 2?q 2=1 0?r 0! 2?q 2=0");
    bad(MODEL_MUTEX, "0?a 0! 2?q 2=0 0?r 0!");         /* granted before, not seen */
    bad(MODEL_MUTEX, "0?a 0! 0?r 0! 2?q 2=1");         /* released before, still seen */
    good(MODEL_MUTEX, "0?a 0! 2?q 0?r 2=0 0!");        /* between the release's ends */
    bad(MODEL_MUTEX, "0?a 2?q 2=1 2?q 2=0 0! 0?r 0!"); /* seen, then not: it went backwards */
    good(MODEL_MUTEX, "0?a 2?q 2=0 2?q 2=1 0! 0?r 0!");
    good(MODEL_MUTEX, "0?a 0! 2?q 2~ 0?r 0!"); /* one without an answer says nothing */
    good(MODEL_MUTEX, "0?a 0! 2?q 2- 0?r 0!");
    good(MODEL_MUTEX, "0?a 0~ 2?q 2=1"); /* shows that the acquire took effect */
    bad(MODEL_MUTEX, "0?a 0- 2?q 2=1");
    good(MODEL_REENTRANT_MUTEX, "0?a 0! 0?a 0! 2?q 2=1 0?r 0! 2?q 2=1 0?r 0! 2?q 2=0");
    good(MODEL_FENCED_MUTEX, "0?a 0!5 2?q 2=1/5 0?r 0! 2?q 2=0");
    bad(MODEL_FENCED_MUTEX, "0?a 0!5 2?q 2=1/4 0?r 0!");
    bad(MODEL_FENCED_MUTEX, "0?a 0!5 0?r 1?a 1!6 0! 2?q 2=1/5");
    good(MODEL_FENCED_MUTEX, "0?a 0!5 0?r 0! 1?a 1~ 2?q 2=1/6");
    bad(MODEL_FENCED_MUTEX, "0?a 0!5 0?r 0! 1?a 1~ 2?q 2=1/5");
    good(MODEL_SHARED_LOCK, "0?as 0! 1?as 1! 2?q 2=2s 0?r 0! 2?q 2=1s 1?r 1! 2?q 2=0");
    bad(MODEL_SHARED_LOCK, "0?as 0! 1?as 1! 2?q 2=1s");
    bad(MODEL_SHARED_LOCK, "0?as 0! 2?q 2=1x");
    good(MODEL_SHARED_LOCK, "0?ax 0! 2?q 2=1x");
}

Test(lincheck_models, shared_lock)
{
    good(MODEL_SHARED_LOCK, "0?as 0! 1?as 1! 0?r 0! 1?r 1! 2?ax 2!");
    bad(MODEL_SHARED_LOCK, "0?as 0! 1?as 1! 0?r 0! 2?ax 2!");
    bad(MODEL_SHARED_LOCK, "0?ax 0! 1?as 1!");
    bad(MODEL_SHARED_LOCK, "0?ax 0! 1?ax 1!");
    bad(MODEL_SHARED_LOCK, "0?as 0! 1?r 1!");
    good(MODEL_SHARED_LOCK, "0?as 0! 0?r 0~ 1?ax 1!");
    bad(MODEL_SHARED_LOCK, "0?as 0! 2?as 2! 0?r 0~ 1?ax 1!");
    good(MODEL_SHARED_LOCK, "0?as 0!3 1?as 1!4");
    bad(MODEL_SHARED_LOCK, "0?as 0!4 1?as 1!4");
}

Test(lincheck_models, conversions_of_a_shared_lock)
{
    good(MODEL_SHARED_LOCK, "0?as 0! 0?cx 0! 0?cs 0! 1?as 1!");
    bad(MODEL_SHARED_LOCK, "0?as 0! 0?cx 0! 1?as 1!");
    bad(MODEL_SHARED_LOCK, "0?as 0! 1?as 1! 0?cx 0!");
    good(MODEL_SHARED_LOCK, "0?as 0! 1?as 1! 0?cx 1?r 1! 0!");
    bad(MODEL_SHARED_LOCK, "0?cx 0!");
    bad(MODEL_SHARED_LOCK, "0?as 0!5 0?cx 0!5"); /* an upgrade issues a new token */
}

Test(lincheck_models, semaphore)
{
    good(MODEL_SEMAPHORE, "0?a 0! 1?a2 1! 1?r 1! 2?a 2!");
    bad(MODEL_SEMAPHORE, "0?a 0! 1?a2 1! 2?a 2!");
    bad(MODEL_SEMAPHORE, "0?a4 0!");
    bad(MODEL_SEMAPHORE, "0?a 0! 0?r2 0!");
    bad(MODEL_SEMAPHORE, "0?a 0! 1?r 1!");
    good(MODEL_SEMAPHORE, "0?a3 0! 0?r2 0~ 1?a2 1!");
    bad(MODEL_SEMAPHORE, "0?a3 0! 0?r2 0~ 1?a3 1!");
    assert_verdict(MODEL_SEMAPHORE, 1, "0?a 0! 1?a 1!", SEARCH_NOT_LINEARIZABLE);
    assert_verdict(MODEL_SEMAPHORE, 2, "0?a 0! 1?a 1!", SEARCH_LINEARIZABLE);
    assert_verdict(MODEL_SEMAPHORE, UINT32_MAX, "0?a4294967295 0! 1?a 1!", SEARCH_NOT_LINEARIZABLE);
}

/* Details in a map as the value, the way Jepsen's lock tests write them. */
Test(lincheck_models, edn_with_details)
{
    struct history_options options = rig_options(MODEL_FENCED_MUTEX);
    const char *parts[] = {"{:process 0 :type :invoke :f :acquire :value nil}"
                           "{:process 0 :type :ok :f :acquire :value {:client \"a\" :fence 3}}"
                           "{:process 1 :type :invoke :f :release :value {:client \"a\"}}"
                           "{:process 1 :type :ok :f :release :value {:client \"a\"}}"
                           "{:process 2 :type :invoke :f :acquire}",
                           "{:process 2 :type :ok :f :acquire :value 4}",
                           "{:process 2 :type :ok :f :acquire :value 3}"};
    for (int i = 1; i <= 2; i++) {
        snprintf(text, sizeof text, "%s%s", parts[0], parts[i]);
        rig_judge(&rig, &options, text, 1);
        cr_assert_eq(rig.read_result, 0, "%s", rig.error.text);
        cr_assert_eq(rig.verdict.verdict, i == 1 ? SEARCH_LINEARIZABLE : SEARCH_NOT_LINEARIZABLE);
        rig_free(&rig);
    }
}

/* A lease that ended by itself, as docs/lincheck.md says to record it. */
Test(lincheck_models, a_release_in_the_name_of_a_process)
{
    struct history_options options = rig_options(MODEL_MUTEX);
    const char *format = "{\"process\":1,\"type\":\"invoke\",\"f\":\"acquire\"}"
                         "{\"process\":1,\"type\":\"ok\",\"f\":\"acquire\"}"
                         "{\"process\":9,\"type\":\"invoke\",\"f\":\"release\",\"owner\":%s}"
                         "{\"process\":2,\"type\":\"invoke\",\"f\":\"acquire\"}"
                         "{\"process\":2,\"type\":\"ok\",\"f\":\"acquire\"}";
    static const char *const owners[] = {"1", "2", "\"process 1\""};
    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text, format, owners[i]);
        rig_judge(&rig, &options, text, 1);
        cr_assert_eq(rig.read_result, 0, "%s", rig.error.text);
        cr_assert_eq(rig.verdict.verdict, i == 0 ? SEARCH_LINEARIZABLE : SEARCH_NOT_LINEARIZABLE,
                     "owner %s", owners[i]);
        rig_free(&rig);
    }
}

static void assert_edn(enum model_kind model, enum failed_cas_rule rule, const char *edn,
                       enum search_verdict expected)
{
    struct history_options options = rig_options(model);
    options.failed_cas = rule;
    rig_judge(&rig, &options, edn, 1);
    cr_assert_eq(rig.read_result, 0, "%s: %s", edn, rig.error.text);
    cr_assert_eq(rig.verdict.verdict, expected, "%s", edn);
    rig_free(&rig);
}

#define DO(process, f, value, result)                                                              \
    "{:process " #process " :type :invoke :f :" f " :value " value "}"                             \
    "{:process " #process " :type :ok :f :" f " :value " result "}"
#define LOSE(process, f, value)                                                                    \
    "{:process " #process " :type :invoke :f :" f " :value " value "}"                             \
    "{:process " #process " :type :info :f :" f " :value " value "}"
#define REFUSE(process, f, value, more)                                                            \
    "{:process " #process " :type :invoke :f :" f " :value " value "}"                             \
    "{:process " #process " :type :fail :f :" f " :value " value more "}"

Test(lincheck_models, register_and_unanswered_operations)
{
    enum model_kind m = MODEL_REGISTER;
    assert_edn(m, 0, DO(0, "read", "nil", "nil") DO(0, "write", "1", "1") DO(1, "read", "nil", "1"),
               SEARCH_LINEARIZABLE);
    assert_edn(m, 0, DO(0, "write", "1", "1") DO(1, "read", "nil", "nil"), SEARCH_NOT_LINEARIZABLE);
    assert_edn(m, 0,
               DO(0, "write", "1", "1") DO(0, "cas", "[1 2]", "[1 2]") DO(1, "read", "nil", "2"),
               SEARCH_LINEARIZABLE);
    assert_edn(m, 0, DO(0, "write", "1", "1") DO(0, "cas", "[2 3]", "[2 3]"),
               SEARCH_NOT_LINEARIZABLE);
    /* A write without an answer may come late, but once, and not back and forth. */
    assert_edn(m, 0, LOSE(0, "write", "1") DO(1, "read", "nil", "nil") DO(1, "read", "nil", "1"),
               SEARCH_LINEARIZABLE);
    assert_edn(m, 0, LOSE(0, "write", "1") DO(1, "read", "nil", "1") DO(1, "read", "nil", "nil"),
               SEARCH_NOT_LINEARIZABLE);
    assert_edn(m, 0,
               LOSE(0, "write", "1") DO(1, "write", "2", "2") DO(1, "read", "nil", "1")
                   DO(1, "write", "2", "2") DO(1, "read", "nil", "1"),
               SEARCH_NOT_LINEARIZABLE);
    assert_edn(m, 0,
               LOSE(0, "write", "1") LOSE(9, "write", "1") DO(1, "write", "2", "2")
                   DO(1, "read", "nil", "1") DO(1, "write", "2", "2") DO(1, "read", "nil", "1"),
               SEARCH_LINEARIZABLE);
    assert_edn(m, 0, LOSE(0, "cas", "[nil 1]") DO(1, "read", "nil", "1"), SEARCH_LINEARIZABLE);
    assert_edn(m, 0, LOSE(0, "cas", "[3 1]") DO(1, "read", "nil", "1"), SEARCH_NOT_LINEARIZABLE);
    assert_edn(m, 0, DO(0, "read", "nil", "\"\""), SEARCH_NOT_LINEARIZABLE);
    assert_edn(m, 0, LOSE(0, "read", "7") DO(1, "read", "nil", "nil"), SEARCH_LINEARIZABLE);
}

Test(lincheck_models, failed_cas)
{
    enum model_kind m = MODEL_REGISTER;
    const char *lie = DO(0, "write", "1", "1") REFUSE(0, "cas", "[1 2]", "");
    const char *error = DO(0, "write", "1", "1") REFUSE(0, "cas", "[1 2]", " :error :timeout");
    const char *effect =
        DO(0, "write", "1", "1") REFUSE(0, "cas", "[1 2]", "") DO(0, "read", "nil", "2");
    assert_edn(m, FAILED_CAS_AUTO, lie, SEARCH_LINEARIZABLE);
    assert_edn(m, FAILED_CAS_IGNORE, lie, SEARCH_LINEARIZABLE);
    assert_edn(m, FAILED_CAS_OBSERVE, lie, SEARCH_NOT_LINEARIZABLE);
    assert_edn(m, FAILED_CAS_OBSERVE, error, SEARCH_LINEARIZABLE);
    assert_edn(m, FAILED_CAS_IGNORE, effect, SEARCH_NOT_LINEARIZABLE);
}

#define ON(key, process, f, value, result)                                                         \
    "{:process " #process " :key " key " :type :invoke :f :" f " :value " value "}"                \
    "{:process " #process " :key " key " :type :ok :f :" f " :value " result "}"

Test(lincheck_models, key_value)
{
    enum model_kind m = MODEL_KV;
    assert_edn(m, 0,
               ON("1", 0, "get", "nil", "\"\"") ON("1", 0, "append", "\"a\\\"\"", "nil")
                   ON("1", 0, "append", "\"b\"", "nil") ON("1", 1, "get", "nil", "\"a\\\"b\"")
                       ON("2", 1, "get", "nil", "nil"),
               SEARCH_LINEARIZABLE);
    assert_edn(m, 0, ON("1", 0, "append", "\"a\"", "nil") ON("1", 1, "get", "nil", "\"\""),
               SEARCH_NOT_LINEARIZABLE);
    assert_edn(m, 0,
               ON("1", 0, "put", "\"a\"", "nil") ON("1", 0, "append", "\"\"", "nil")
                   ON("1", 1, "get", "nil", "\"a\""),
               SEARCH_LINEARIZABLE);
    assert_edn(m, 0, ON("1", 0, "put", "\"a\"", "nil") ON("2", 1, "get", "nil", "\"a\""),
               SEARCH_NOT_LINEARIZABLE);
    assert_edn(m, 0, ON("1", 0, "put", "\"\"", "nil") ON("1", 1, "get", "nil", "nil"),
               SEARCH_NOT_LINEARIZABLE);
}

/* Each key by itself: two locks at once are no fault, and a fault is told by its key. */
Test(lincheck_models, keys_apart)
{
    struct history_options options = rig_options(MODEL_MUTEX);
    const char *locks = "{\"process\":0,\"type\":\"invoke\",\"f\":\"acquire\",\"key\":\"a\"}"
                        "{\"process\":0,\"type\":\"ok\",\"f\":\"acquire\",\"key\":\"a\"}"
                        "{\"process\":1,\"type\":\"invoke\",\"f\":\"acquire\",\"key\":\"b\"}"
                        "{\"process\":1,\"type\":\"ok\",\"f\":\"acquire\",\"key\":\"b\"}";
    rig_judge(&rig, &options, locks, 1);
    cr_assert_eq(rig.verdict.verdict, SEARCH_LINEARIZABLE);
    cr_assert_eq(rig.verdict.keys_count, 2);
    rig_free(&rig);
    snprintf(text, sizeof text, "%s%s", locks,
             "{\"process\":2,\"type\":\"invoke\",\"f\":\"acquire\",\"key\":\"b\"}"
             "{\"process\":2,\"type\":\"ok\",\"f\":\"acquire\",\"key\":\"b\"}");
    rig_judge(&rig, &options, text, 1);
    cr_assert_eq(rig.verdict.verdict, SEARCH_NOT_LINEARIZABLE);
    char report[4096];
    rig_report(&rig, report, sizeof report);
    cr_assert(strstr(report, "key \"b\"") != NULL, "%s", report);
    rig_free(&rig);
}

/* Of a long history the two operations that contradict each other are shown, and no more. */
Test(lincheck_models, window)
{
    char events[4096] = "";
    size_t used = 0;
    for (int i = 0; i < 50; i++)
        used += (size_t)snprintf(events + used, sizeof events - used, "0?a 0!%d 0?r 0! ", i + 1);
    snprintf(events + used, sizeof events - used, "1?a 1!90 2?a 3?a 3- 2!91 1?r 1! 2?r 2!");
    cr_assert_eq(judge(MODEL_FENCED_MUTEX, OWNER_AUTO, 1, events), SEARCH_NOT_LINEARIZABLE);
    const struct window *window = &rig.verdict.window;
    cr_assert_not(window->is_tail);
    cr_assert_eq(window->shown_count, 2, "%zu operations", window->shown_count);
    const struct history_op *blocked = &rig.history.ops[window->first_op + window->blocked_op];
    cr_assert(blocked->process == 2 && blocked->token == 91);
    char report[4096];
    rig_report(&rig, report, sizeof report);
    cr_assert(strstr(report, "acquire token 90") && strstr(report, "acquire token 91"), "%s",
              report);
    cr_assert(strstr(report, "acquire token 50") == NULL, "%s", report);
    cr_assert(strstr(report, "held by process 1, last token 90") != NULL, "%s", report);
    cr_assert(strstr(report, "beyond line 206") != NULL, "%s", report);
    rig_free(&rig);
}

/* The states shown are those of the last answer, not of one that was got beyond in the end. */
Test(lincheck_models, states_at_the_end)
{
    struct history_options options = rig_options(MODEL_REGISTER);
    rig_judge(&rig, &options,
              "{:process 0 :type :invoke :f :write :value 1}"
              "{:process 1 :type :invoke :f :write :value 2}"
              "{:process 0 :type :ok :f :write}{:process 1 :type :ok :f :write}" DO(
                  2, "read", "nil", "1") DO(2, "read", "nil", "5"),
              1);
    cr_assert_eq(rig.verdict.verdict, SEARCH_NOT_LINEARIZABLE);
    cr_assert_eq(rig.verdict.result.blocked_states_count, 1);
    char state[16];
    model_print_state(&rig.model, rig.verdict.result.blocked_states[0], state, sizeof state);
    cr_assert_str_eq(state, "1");
    rig_free(&rig);
}

/* What lies between the two and has nothing to do with it is left out. */
Test(lincheck_models, window_without_bystanders)
{
    struct history_options options = rig_options(MODEL_REGISTER);
    options.failed_cas = FAILED_CAS_OBSERVE;
    rig_judge(&rig, &options,
              DO(0, "write", "1", "1") DO(0, "write", "2", "2") REFUSE(3, "cas", "[5 6]", "")
                  DO(2, "read", "nil", "1"),
              1);
    cr_assert_eq(rig.verdict.verdict, SEARCH_NOT_LINEARIZABLE);
    const struct window *window = &rig.verdict.window;
    cr_assert_not(window->is_tail);
    cr_assert_eq(window->shown_count, 2, "%zu operations", window->shown_count);
    cr_assert_eq(window->roles[1], ROLE_REQUIRED);
    cr_assert_eq(window->roles[2], ROLE_ABSENT);
    cr_assert_eq(window->blocked_op, 3);
    rig_free(&rig);
}

/* More holders than a state can have is "unknown", and so is running out of memory: never a verdict
 * that was not found. */
Test(lincheck_models, unknown_is_no_verdict)
{
    static char many[1 << 19];
    size_t used = 0;
    for (int i = 0; i < 1100; i++)
        used += (size_t)snprintf(
            many + used, sizeof many - used,
            "{\"process\":%d,\"type\":\"invoke\",\"f\":\"acquire\",\"mode\":\"shared\"}"
            "{\"process\":%d,\"type\":\"ok\",\"f\":\"acquire\"}\n",
            i, i);
    struct history_options options = rig_options(MODEL_SHARED_LOCK);
    rig_judge(&rig, &options, many, 1);
    cr_assert_eq(rig.read_result, 0);
    cr_assert_eq(rig.verdict.verdict, SEARCH_UNKNOWN);
    cr_assert_eq(rig.verdict.problem, -E2BIG);
    struct verdict verdict;
    rig.budget.limit_bytes = rig.budget.used_bytes + 20000;
    verdict_find(&verdict, &rig.model);
    cr_assert_eq(verdict.verdict, SEARCH_UNKNOWN);
    cr_assert_eq(verdict.problem, -ENOMEM);
    verdict_free(&verdict, &rig.model);
    rig_free(&rig);
    cr_assert_eq(rig.budget.used_bytes, 0);
}
