/* SPDX-License-Identifier: Apache-2.0
 *
 * One JSON value (RFC 8259) at a time.
 */
#include <errno.h>
#include <string.h>

#include "tests/lincheck/datum.h"

static int read_value(struct cursor *cursor, uint32_t *datum, int depth);

void json_skip(struct cursor *cursor)
{
    while (cursor->at < cursor->end && memchr(" \t\r\n", *cursor->at, 4) != NULL)
        cursor->line += *cursor->at++ == '\n';
}

static int fail(struct cursor *cursor, const char *what)
{
    return parse_fail(cursor->error, cursor->line, "%s", what);
}

/* Takes this byte if it is next, white space before it included. */
static bool take(struct cursor *cursor, char byte)
{
    json_skip(cursor);
    if (cursor->at == cursor->end || *cursor->at != byte)
        return false;
    cursor->at++;
    return true;
}

static int read_array(struct cursor *cursor, uint32_t *datum, int depth)
{
    uint32_t last = 0, child;
    int result = datum_new(cursor->pool, DATUM_SEQUENCE, datum);
    if (result < 0 || take(cursor, ']'))
        return result;
    do {
        result = read_value(cursor, &child, depth + 1);
        if (result < 0)
            return result;
        datum_add_child(cursor->pool, *datum, &last, child);
    } while (take(cursor, ','));
    return take(cursor, ']') ? 0 : fail(cursor, "expected ',' or ']' in an array");
}

static int read_object(struct cursor *cursor, uint32_t *datum, int depth)
{
    uint32_t last = 0, child;
    int result = datum_new(cursor->pool, DATUM_MAP, datum);
    if (result < 0 || take(cursor, '}'))
        return result;
    do {
        if (!take(cursor, '"'))
            return fail(cursor, "expected a field's name in quotes");
        result = datum_string(cursor, &child);
        if (result < 0)
            return result;
        datum_add_child(cursor->pool, *datum, &last, child);
        if (!take(cursor, ':'))
            return fail(cursor, "expected ':' after a field's name");
        result = read_value(cursor, &child, depth + 1);
        if (result < 0)
            return result;
        datum_add_child(cursor->pool, *datum, &last, child);
    } while (take(cursor, ','));
    return take(cursor, '}') ? 0 : fail(cursor, "expected ',' or '}' in an object");
}

static const char *skip_digits(const char *at, const char *end)
{
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return at;
}

static int read_number(struct cursor *cursor, uint32_t *datum)
{
    const char *first = cursor->at, *end = cursor->end;
    const char *digits = *first == '-' ? first + 1 : first;
    const char *at = skip_digits(digits, end);
    bool whole = true, good = at > digits && (*digits != '0' || at == digits + 1);
    if (good && at < end && *at == '.') {
        digits = at + 1;
        at = skip_digits(digits, end);
        good = at > digits;
        whole = false;
    }
    if (good && at < end && (*at == 'e' || *at == 'E')) {
        digits = at + 1;
        if (digits < end && (*digits == '+' || *digits == '-'))
            digits++;
        at = skip_digits(digits, end);
        good = at > digits;
        whole = false;
    }
    if (!good)
        return fail(cursor, "not a number");
    cursor->at = at;
    if (whole)
        return datum_integer(cursor, first, (size_t)(at - first), datum);
    int result = datum_new(cursor->pool, DATUM_NUMBER, datum);
    if (result < 0)
        return result;
    cursor->pool->nodes[*datum].text_bytes = (size_t)(at - first);
    return datum_put_text(cursor->pool, first, (size_t)(at - first));
}

static int read_literal(struct cursor *cursor, uint32_t *datum)
{
    static const struct {
        const char *text;
        enum datum_kind kind;
        int64_t integer;
    } literals[] = {{"null", DATUM_NIL, 0}, {"true", DATUM_BOOL, 1}, {"false", DATUM_BOOL, 0}};
    size_t left = (size_t)(cursor->end - cursor->at);
    for (size_t i = 0; i < sizeof literals / sizeof literals[0]; i++) {
        size_t length = strlen(literals[i].text);
        if (left < length || memcmp(cursor->at, literals[i].text, length) != 0)
            continue;
        cursor->at += length;
        int result = datum_new(cursor->pool, literals[i].kind, datum);
        if (result == 0)
            cursor->pool->nodes[*datum].integer = literals[i].integer;
        return result;
    }
    return fail(cursor, "expected a JSON value");
}

static int read_value(struct cursor *cursor, uint32_t *datum, int depth)
{
    json_skip(cursor);
    if (cursor->at == cursor->end)
        return fail(cursor, "the file ends inside a value");
    if (depth >= DATUM_DEPTH_MAX)
        return fail(cursor, "values are nested too deeply");
    char first = *cursor->at;
    if (first == '-' || (first >= '0' && first <= '9'))
        return read_number(cursor, datum);
    if (take(cursor, '{'))
        return read_object(cursor, datum, depth);
    if (take(cursor, '['))
        return read_array(cursor, datum, depth);
    if (take(cursor, '"'))
        return datum_string(cursor, datum);
    return read_literal(cursor, datum);
}

int json_read(struct cursor *cursor, uint32_t *datum)
{
    return read_value(cursor, datum, 0);
}
