/* SPDX-License-Identifier: Apache-2.0
 *
 * One EDN value (github.com/edn-format/edn) at a time. Tags are dropped and their value kept, so
 * that #jepsen.history.Op{...} reads as a map.
 */
#include <errno.h>
#include <string.h>

#include "tests/lincheck/datum.h"

static int read_value(struct cursor *cursor, uint32_t *datum, int depth);
static int skip_blank(struct cursor *cursor, int depth);

static int fail(struct cursor *cursor, const char *what)
{
    return parse_fail(cursor->error, cursor->line, "%s", what);
}

static bool is_blank(char byte)
{
    return byte != '\0' && strchr(" \t\r\n\f,", byte) != NULL;
}

static bool ends_word(char byte)
{
    return is_blank(byte) || byte == '\0' || strchr("()[]{}\";\\", byte) != NULL;
}

/* #_ has been seen and taken: what follows is read and forgotten. */
static int discard(struct cursor *cursor, int depth)
{
    uint32_t ignored;
    int result = skip_blank(cursor, depth + 1);
    return result < 0 ? result : read_value(cursor, &ignored, depth + 1);
}

static int skip_blank(struct cursor *cursor, int depth)
{
    if (depth >= DATUM_DEPTH_MAX)
        return fail(cursor, "values are nested too deeply");
    while (cursor->at < cursor->end) {
        if (is_blank(*cursor->at)) {
            cursor->line += *cursor->at++ == '\n';
        } else if (*cursor->at == ';') {
            while (cursor->at < cursor->end && *cursor->at != '\n')
                cursor->at++;
        } else if (cursor->end - cursor->at >= 2 && memcmp(cursor->at, "#_", 2) == 0) {
            cursor->at += 2;
            int result = discard(cursor, depth);
            if (result < 0)
                return result;
        } else {
            break;
        }
    }
    return 0;
}

int edn_skip(struct cursor *cursor)
{
    return skip_blank(cursor, 0);
}

/* Behind the opening bracket. */
static int read_children(struct cursor *cursor, uint32_t parent, char closing, int depth)
{
    uint32_t last = 0, child, line_first = cursor->line;
    for (;;) {
        int result = skip_blank(cursor, depth);
        if (result < 0)
            return result;
        if (cursor->at == cursor->end)
            return parse_fail(cursor->error, line_first,
                              "a bracket that opens here is never closed by '%c'", closing);
        if (*cursor->at == closing) {
            cursor->at++;
            return 0;
        }
        result = read_value(cursor, &child, depth + 1);
        if (result < 0)
            return result;
        datum_add_child(cursor->pool, parent, &last, child);
    }
}

static int read_collection(struct cursor *cursor, enum datum_kind kind, char closing, int depth,
                           uint32_t *datum)
{
    int result = datum_new(cursor->pool, kind, datum);
    if (result == 0)
        result = read_children(cursor, *datum, closing, depth);
    if (result == 0 && kind == DATUM_MAP && cursor->pool->nodes[*datum].children_count % 2 != 0)
        return fail(cursor, "a map has a key without a value");
    return result;
}

static int new_word(struct cursor *cursor, enum datum_kind kind, const char *text, size_t length,
                    uint32_t *datum)
{
    int result = datum_new(cursor->pool, kind, datum);
    if (result < 0)
        return result;
    cursor->pool->nodes[*datum].text_bytes = length;
    return datum_put_text(cursor->pool, text, length);
}

/* Integers may end in N; everything else that begins like a number is kept as text. */
static int classify_number(struct cursor *cursor, const char *text, size_t length, uint32_t *datum)
{
    size_t at = text[0] == '-' || text[0] == '+' ? 1 : 0;
    size_t digits = at;
    while (digits < length && text[digits] >= '0' && text[digits] <= '9')
        digits++;
    if (digits > at && (digits == length || (digits + 1 == length && text[digits] == 'N')))
        return datum_integer(cursor, text, digits, datum);
    for (size_t i = digits; i < length; i++)
        if (strchr("0123456789.eE+-/MNxXabcdefABCDEFr", text[i]) == NULL)
            return fail(cursor, "not a number");
    return new_word(cursor, DATUM_NUMBER, text, length, datum);
}

static bool is(const char *text, size_t length, const char *word)
{
    return length == strlen(word) && memcmp(text, word, length) == 0;
}

static int read_word(struct cursor *cursor, uint32_t *datum)
{
    const char *text = cursor->at;
    if (*text == '\\' && cursor->end - text >= 2) /* a character: \a, \newline */
        cursor->at += 2;
    while (cursor->at < cursor->end && !ends_word(*cursor->at))
        cursor->at++;
    size_t length = (size_t)(cursor->at - text);
    if (length == 0)
        return fail(cursor, "expected a value");
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return fail(cursor, "a control character in a word");
    size_t sign = text[0] == '-' || text[0] == '+' ? 1 : 0;
    if (length > sign && text[sign] >= '0' && text[sign] <= '9')
        return classify_number(cursor, text, length, datum);
    if (text[0] == ':' && length == 1)
        return fail(cursor, "a keyword has no name");
    if (text[0] == ':')
        return new_word(cursor, DATUM_KEYWORD, text + 1, length - 1, datum);
    if (is(text, length, "nil"))
        return datum_new(cursor->pool, DATUM_NIL, datum);
    if (!is(text, length, "true") && !is(text, length, "false"))
        return new_word(cursor, DATUM_SYMBOL, text, length, datum);
    int result = datum_new(cursor->pool, DATUM_BOOL, datum);
    if (result == 0)
        cursor->pool->nodes[*datum].integer = length == 4;
    return result;
}

/* Behind '#', and not at '_': a set, or a tag in front of a value. */
static int read_dispatch(struct cursor *cursor, uint32_t *datum, int depth)
{
    if (cursor->at < cursor->end && *cursor->at == '{') {
        cursor->at++;
        return read_collection(cursor, DATUM_SEQUENCE, '}', depth, datum);
    }
    const char *tag = cursor->at;
    while (cursor->at < cursor->end && !ends_word(*cursor->at))
        cursor->at++;
    if (cursor->at == tag)
        return fail(cursor, "'#' stands before nothing that can be read");
    int result = skip_blank(cursor, depth);
    return result < 0 ? result : read_value(cursor, datum, depth + 1);
}

static int read_value(struct cursor *cursor, uint32_t *datum, int depth)
{
    if (cursor->at == cursor->end)
        return fail(cursor, "the file ends inside a value");
    if (depth >= DATUM_DEPTH_MAX)
        return fail(cursor, "values are nested too deeply");
    switch (*cursor->at) {
    case '{':
        cursor->at++;
        return read_collection(cursor, DATUM_MAP, '}', depth, datum);
    case '[':
        cursor->at++;
        return read_collection(cursor, DATUM_SEQUENCE, ']', depth, datum);
    case '(':
        cursor->at++;
        return read_collection(cursor, DATUM_SEQUENCE, ')', depth, datum);
    case '"':
        cursor->at++;
        return datum_string(cursor, datum);
    case '#':
        cursor->at++;
        return read_dispatch(cursor, datum, depth);
    default:
        return read_word(cursor, datum);
    }
}

int edn_read(struct cursor *cursor, uint32_t *datum)
{
    int result = edn_skip(cursor);
    return result < 0 ? result : read_value(cursor, datum, 0);
}
