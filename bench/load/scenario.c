/* SPDX-License-Identifier: Apache-2.0
 *
 * See scenario.h. All keys are rows of one table; what reads, judges and prints them is common.
 */
#include "bench/load/scenario.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind {
    KIND_TEXT,
    KIND_GROUP,
    KIND_COUNT,   /* uint32_t, least .. most */
    KIND_LARGE,   /* uint64_t, least .. most */
    KIND_SECONDS, /* decimal seconds, kept as uint32_t ms */
    KIND_WAIT,    /* ms or "forever" */
    KIND_REAL,    /* double, least .. most in hundredths */
    KIND_WORD,    /* uint32_t, index into words */
    KIND_SWITCH,  /* bool: no, yes */
};

struct key {
    const char *name;
    const char *expected;
    const char *const *words; /* NULL-terminated */
    size_t offset;
    uint64_t least, most;
    enum kind kind;
};

static const char *const work_words[] = {"pairs", "renewals", "queries", NULL};
static const char *const pick_words[] = {"own", "uniform", "zipf", NULL};
static const char *const spacing_words[] = {"poisson", "fixed", NULL};
static const char *const braces_words[] = {"none", "client", "all", NULL};
static const char *const switch_words[] = {"no", "yes", NULL};

#define AT(field) offsetof(struct scenario, field)

static const struct key keys[] = {
    {"what", "one line of text", NULL, AT(what), 0, 0, KIND_TEXT},
    {"group", "1 to 16 letters, digits or -", NULL, AT(group), 0, 0, KIND_GROUP},
    {"work", "pairs, renewals or queries", work_words, AT(work), 0, 0, KIND_WORD},
    {"rate", "commands per second, 0 (closed loop) to 100000000", NULL, AT(rate), 0, 100000000,
     KIND_COUNT},
    {"spacing", "poisson or fixed", spacing_words, AT(spacing), 0, 0, KIND_WORD},
    {"seconds", "1 to 86400", NULL, AT(seconds), 1, 86400, KIND_COUNT},
    {"warm-up", "seconds, 0 to 3600", NULL, AT(warm_up_ms), 0, 3600000, KIND_SECONDS},
    {"clients", "1 to 1000000", NULL, AT(clients), 1, 1000000, KIND_COUNT},
    {"in-flight", "0 (as many as clients) to 1000000", NULL, AT(in_flight), 0, 1000000, KIND_COUNT},
    {"names", "0 (as many as clients) to 100000000", NULL, AT(names), 0, 100000000, KIND_LARGE},
    {"pick", "own, uniform or zipf", pick_words, AT(pick), 0, 0, KIND_WORD},
    {"zipf-exponent", "0.01 to 10", NULL, AT(zipf_exponent), 1, 1000, KIND_REAL},
    {"braces", "none, client or all", braces_words, AT(braces), 0, 0, KIND_WORD},
    {"shared-percent", "0 to 100", NULL, AT(shared_percent), 0, 100, KIND_COUNT},
    {"wait-ms", "0 (a try) to 86400000, or forever", NULL, AT(wait_ms), 0, 86400000, KIND_WAIT},
    {"hold-ms", "0 to 3600000", NULL, AT(hold_ms), 0, 3600000, KIND_COUNT},
    {"ttl-ms", "10 to 86400000", NULL, AT(ttl_ms), 10, 86400000, KIND_COUNT},
    {"renew", "yes or no", switch_words, AT(renew), 0, 0, KIND_SWITCH},
    {"held", "0 to 50000000", NULL, AT(held), 0, 50000000, KIND_LARGE},
    {"stale", "yes or no", switch_words, AT(stale), 0, 0, KIND_SWITCH},
    {"pack", "requests per datagram, 1 to 65536", NULL, AT(pack), 1, 65536, KIND_COUNT},
    {"timeline", "yes or no", switch_words, AT(timeline), 0, 0, KIND_SWITCH},
    {"expect-lost", "yes or no", switch_words, AT(expect_lost), 0, 0, KIND_SWITCH},
};

enum { KEYS = sizeof keys / sizeof keys[0] };
static_assert((int)KEYS <= (int)SCENARIO_KEYS_MAX, "`given` has a bit for each");

void scenario_init(struct scenario *scenario)
{
    *scenario = (struct scenario){
        .group = "bench",
        .seconds = 10,
        .warm_up_ms = 2000,
        .clients = 64,
        .zipf_exponent = 0.99,
        .wait_ms = SCENARIO_WAIT_FOREVER,
        .ttl_ms = 10000,
        .renew = true,
        .pack = 64,
    };
}

/* ---- values ---------------------------------------------------------------------------------- */

static bool read_count(const char *text, uint64_t least, uint64_t most, uint64_t *value)
{
    *value = 0;
    if (!*text)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || *value > most)
            return false;
        *value = *value * 10 + (uint64_t)(*text - '0');
    }
    return *value >= least && *value <= most;
}

/* Digits, and perhaps a point and more digits: no sign, exponent, hexadecimal or "nan". */
static bool read_real(const char *text, double *value)
{
    size_t digits = strspn(text, "0123456789");
    const char *rest = text + digits;

    if (*rest == '.') {
        size_t more = strspn(rest + 1, "0123456789");

        digits = more == 0 ? 0 : digits;
        rest += 1 + more;
    }
    if (digits == 0 || *rest || rest - text > 20)
        return false;
    *value = strtod(text, NULL);
    return true;
}

static bool read_word(const char *const *words, const char *text, uint32_t *value)
{
    for (uint32_t i = 0; words[i]; i++) {
        if (strcmp(words[i], text) == 0) {
            *value = i;
            return true;
        }
    }
    return false;
}

static bool read_text(char *to, const char *text)
{
    size_t length = strlen(text);

    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)text[i] < ' ')
            return false;
    }
    if (length >= SCENARIO_WHAT_BYTES)
        return false;
    memcpy(to, text, length + 1);
    return true;
}

static bool read_group(char *to, const char *text)
{
    size_t length = strlen(text);

    if (length == 0 || length >= SCENARIO_GROUP_BYTES ||
        strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") != length)
        return false;
    memcpy(to, text, length + 1);
    return true;
}

static bool read_value(struct scenario *scenario, const struct key *key, const char *text)
{
    void *field = (char *)scenario + key->offset;
    uint64_t count;
    uint32_t word;
    double real;

    switch (key->kind) {
    case KIND_TEXT:
        return read_text(field, text);
    case KIND_GROUP:
        return read_group(field, text);
    case KIND_WAIT:
        if (strcmp(text, "forever") == 0) {
            *(uint32_t *)field = SCENARIO_WAIT_FOREVER;
            return true;
        } /* else a count */
        __attribute__((fallthrough));
    case KIND_COUNT:
        if (!read_count(text, key->least, key->most, &count))
            return false;
        *(uint32_t *)field = (uint32_t)count;
        return true;
    case KIND_LARGE:
        return read_count(text, key->least, key->most, field);
    case KIND_SECONDS:
        if (!read_real(text, &real) || real * 1000 > (double)key->most)
            return false;
        *(uint32_t *)field = (uint32_t)lround(real * 1000);
        return true;
    case KIND_REAL:
        if (!read_real(text, &real) || real * 100 < (double)key->least ||
            real * 100 > (double)key->most)
            return false;
        *(double *)field = real;
        return true;
    case KIND_WORD:
        return read_word(key->words, text, field);
    default:
        assert(key->kind == KIND_SWITCH);
        if (!read_word(key->words, text, &word))
            return false;
        *(bool *)field = word == 1;
        return true;
    }
}

static void fail_unknown(const char *name, char *error, size_t error_bytes)
{
    size_t used = (size_t)snprintf(error, error_bytes, "%.40s: unknown key; there are", name);

    for (unsigned i = 0; i < KEYS && used < error_bytes; i++)
        used +=
            (size_t)snprintf(error + used, error_bytes - used, "%s %s", i ? "," : "", keys[i].name);
}

bool scenario_set(struct scenario *scenario, const char *name, const char *value, char *error,
                  size_t error_bytes)
{
    for (unsigned i = 0; i < KEYS; i++) {
        if (strcmp(keys[i].name, name) != 0)
            continue;
        scenario->given |= UINT32_C(1) << i;
        if (read_value(scenario, &keys[i], value))
            return true;
        (void)snprintf(error, error_bytes, "%s: expected %s, found \"%.60s\"", name,
                       keys[i].expected, value);
        return false;
    }
    fail_unknown(name, error, error_bytes);
    return false;
}

/* ---- the file -------------------------------------------------------------------------------- */

enum { LINE_BYTES = 512 };

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Cuts blanks off both ends. */
static char *trim(char *text)
{
    size_t length;

    while (is_blank(*text))
        text++;
    length = strlen(text);
    while (length > 0 && is_blank(text[length - 1]))
        text[--length] = 0;
    return text;
}

static bool read_line(struct scenario *scenario, char *line, uint32_t *seen, char *error,
                      size_t error_bytes)
{
    char *text = trim(line);
    char *equals = strchr(text, '=');
    char *key;
    uint32_t given = scenario->given;

    if (!*text || *text == '#')
        return true;
    if (!equals) {
        (void)snprintf(error, error_bytes, "expected \"key = value\", found \"%.60s\"", text);
        return false;
    }
    *equals = 0;
    key = trim(text);
    scenario->given = 0;
    if (!scenario_set(scenario, key, trim(equals + 1), error, error_bytes))
        return false;
    if (scenario->given & *seen) {
        (void)snprintf(error, error_bytes, "%s: expected once, found a second time", key);
        return false;
    }
    *seen |= scenario->given;
    scenario->given |= given;
    return true;
}

bool scenario_read(struct scenario *scenario, const char *file, const char *text, size_t bytes,
                   char *error, size_t error_bytes)
{
    char reason[SCENARIO_ERROR_BYTES];
    char line[LINE_BYTES];
    uint32_t seen = 0;
    unsigned number = 0;

    for (size_t at = 0; at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t length = end ? (size_t)(end - (text + at)) : bytes - at;

        number++;
        if (length >= sizeof line || memchr(text + at, 0, length)) {
            (void)snprintf(error, error_bytes, "%s:%u: expected text of at most %d bytes", file,
                           number, LINE_BYTES - 1);
            return false;
        }
        memcpy(line, text + at, length);
        line[length] = 0;
        if (!read_line(scenario, line, &seen, reason, sizeof reason)) {
            (void)snprintf(error, error_bytes, "%s:%u: %s", file, number, reason);
            return false;
        }
        at += length + 1;
    }
    return true;
}

/* ---- judging the whole ----------------------------------------------------------------------- */

enum { IN_FLIGHT_DEFAULT_MAX = 65536 };

static const char *what_is_wrong(const struct scenario *scenario)
{
    if (scenario->work == WORK_RENEWALS && scenario->held == 0)
        return "work = renewals renews locks that are held: give held";
    if (scenario->work == WORK_PAIRS && scenario->pick != PICK_OWN &&
        scenario->in_flight > scenario->clients)
        return "in-flight must not exceed clients: one client cannot wait twice for one name; "
               "raise clients, or say pick = own";
    if (scenario->braces == BRACES_CLIENT && scenario->pick != PICK_OWN)
        return "braces = client needs pick = own: other names belong to no client";
    if (scenario->work == WORK_PAIRS && !scenario->renew && scenario->hold_ms >= scenario->ttl_ms)
        return "hold-ms must be below ttl-ms if nothing is renewed (renew = no)";
    if (scenario->expect_lost && scenario->renew)
        return "expect-lost = yes needs renew = no: what is renewed does not run out";
    if (scenario->work == WORK_RENEWALS && scenario->in_flight > scenario->held)
        return "in-flight must not exceed held: each renewal is of another lock";
    return NULL;
}

bool scenario_settle(struct scenario *scenario, char *error, size_t error_bytes)
{
    const char *wrong;

    if (scenario->in_flight == 0) {
        scenario->in_flight =
            scenario->clients < IN_FLIGHT_DEFAULT_MAX ? scenario->clients : IN_FLIGHT_DEFAULT_MAX;
        if (scenario->work == WORK_RENEWALS && scenario->in_flight > scenario->held)
            scenario->in_flight = (uint32_t)scenario->held;
    }
    if (scenario->names == 0)
        scenario->names = scenario->clients;
    if (scenario->pick == PICK_OWN) { /* at least one for each that may be under way */
        uint64_t least =
            scenario->in_flight > scenario->clients ? scenario->in_flight : scenario->clients;
        if (scenario->names < least)
            scenario->names = least;
    }
    wrong = what_is_wrong(scenario);
    if (wrong)
        (void)snprintf(error, error_bytes, "%s", wrong);
    return !wrong;
}

/* ---- telling --------------------------------------------------------------------------------- */

const char *scenario_key(unsigned i, const char **expected)
{
    if (i >= KEYS)
        return NULL;
    *expected = keys[i].expected;
    return keys[i].name;
}

void scenario_value(const struct scenario *scenario, unsigned i, char *text, size_t bytes)
{
    const struct key *key = &keys[i];
    const void *field = (const char *)scenario + key->offset;
    uint32_t count;

    assert(i < KEYS);
    switch (key->kind) {
    case KIND_TEXT:
    case KIND_GROUP:
        (void)snprintf(text, bytes, "%s", (const char *)field);
        return;
    case KIND_LARGE:
        (void)snprintf(text, bytes, "%llu", (unsigned long long)*(const uint64_t *)field);
        return;
    case KIND_REAL:
        (void)snprintf(text, bytes, "%g", *(const double *)field);
        return;
    case KIND_SWITCH:
        (void)snprintf(text, bytes, "%s", key->words[*(const bool *)field]);
        return;
    default:
        count = *(const uint32_t *)field;
        break;
    }
    if (key->kind == KIND_WORD)
        (void)snprintf(text, bytes, "%s", key->words[count]);
    else if (key->kind == KIND_WAIT && count == SCENARIO_WAIT_FOREVER)
        (void)snprintf(text, bytes, "forever");
    else if (key->kind == KIND_SECONDS)
        (void)snprintf(text, bytes, "%u.%03u", count / 1000, count % 1000);
    else
        (void)snprintf(text, bytes, "%u", count);
}
