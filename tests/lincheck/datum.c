/* SPDX-License-Identifier: Apache-2.0
 *
 * Trees of values: making, printing, and what the readers of EDN and JSON have in common.
 */
#include "tests/lincheck/datum.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int parse_fail(struct parse_error *error, uint32_t line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    error->line = line;
    return -EBADMSG;
}

void datum_pool_init(struct datum_pool *pool, struct budget *budget)
{
    memset(pool, 0, sizeof *pool);
    pool->budget = budget;
    datum_reset(pool);
}

void datum_pool_free(struct datum_pool *pool)
{
    budget_release(pool->budget, pool->nodes, pool->nodes_capacity * sizeof *pool->nodes);
    budget_release(pool->budget, pool->text, pool->text_capacity);
    datum_pool_init(pool, pool->budget);
}

void datum_reset(struct datum_pool *pool)
{
    pool->nodes_count = 1;
    pool->text_bytes = 0;
}

int datum_new(struct datum_pool *pool, enum datum_kind kind, uint32_t *datum)
{
    if (pool->nodes_count >= UINT32_MAX)
        return -ENOMEM;
    int result = budget_reserve(pool->budget, (void **)&pool->nodes, &pool->nodes_capacity,
                                pool->nodes_count + 1, sizeof *pool->nodes);
    if (result < 0)
        return result;
    *datum = (uint32_t)pool->nodes_count++;
    pool->nodes[*datum] = (struct datum){.kind = kind, .text_at = pool->text_bytes};
    return 0;
}

const struct datum *datum_at(const struct datum_pool *pool, uint32_t datum)
{
    assert(datum != 0 && datum < pool->nodes_count);
    return &pool->nodes[datum];
}

int datum_put_text(struct datum_pool *pool, const char *bytes, size_t length_bytes)
{
    int result = budget_reserve(pool->budget, (void **)&pool->text, &pool->text_capacity,
                                pool->text_bytes + length_bytes, 1);
    if (result < 0)
        return result;
    if (length_bytes > 0)
        memcpy(pool->text + pool->text_bytes, bytes, length_bytes);
    pool->text_bytes += length_bytes;
    return 0;
}

int datum_put_code_point(struct datum_pool *pool, uint32_t code_point)
{
    char utf8[4];
    size_t length = 0;
    if (code_point < 0x80) {
        utf8[length++] = (char)code_point;
    } else if (code_point < 0x800) {
        utf8[length++] = (char)(0xc0 | code_point >> 6);
        utf8[length++] = (char)(0x80 | (code_point & 0x3f));
    } else if (code_point < 0x10000) {
        utf8[length++] = (char)(0xe0 | code_point >> 12);
        utf8[length++] = (char)(0x80 | (code_point >> 6 & 0x3f));
        utf8[length++] = (char)(0x80 | (code_point & 0x3f));
    } else {
        assert(code_point < 0x110000);
        utf8[length++] = (char)(0xf0 | code_point >> 18);
        utf8[length++] = (char)(0x80 | (code_point >> 12 & 0x3f));
        utf8[length++] = (char)(0x80 | (code_point >> 6 & 0x3f));
        utf8[length++] = (char)(0x80 | (code_point & 0x3f));
    }
    return datum_put_text(pool, utf8, length);
}

void datum_add_child(struct datum_pool *pool, uint32_t parent, uint32_t *last, uint32_t child)
{
    if (*last == 0)
        pool->nodes[parent].first_child = child;
    else
        pool->nodes[*last].next = child;
    *last = child;
    pool->nodes[parent].children_count++;
}

static bool is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

/* Digits with an optional sign; beyond int64_t the text is kept instead. */
int datum_integer(struct cursor *cursor, const char *text, size_t length_bytes, uint32_t *datum)
{
    bool negative = text[0] == '-';
    size_t at = negative || text[0] == '+' ? 1 : 0;
    int64_t value = 0;
    bool fits = true;
    for (; at < length_bytes && fits; at++) {
        assert(is_digit(text[at]));
        int digit = text[at] - '0';
        fits = !__builtin_mul_overflow(value, 10, &value) &&
               !__builtin_sub_overflow(value, digit, &value);
    }
    /* Gathered as a negative number: the lowest int64_t has no positive twin. */
    if (fits && !negative)
        fits = !__builtin_sub_overflow((int64_t)0, value, &value);
    int result = datum_new(cursor->pool, fits ? DATUM_INTEGER : DATUM_NUMBER, datum);
    if (result < 0)
        return result;
    cursor->pool->nodes[*datum].integer = fits ? value : 0;
    if (fits)
        return 0;
    if (text[0] == '+') {
        text++;
        length_bytes--;
    }
    cursor->pool->nodes[*datum].text_bytes = length_bytes;
    return datum_put_text(cursor->pool, text, length_bytes);
}

static int hex_digit(char byte)
{
    if (is_digit(byte))
        return byte - '0';
    byte = (char)(byte | 0x20);
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

static int read_hex4(struct cursor *cursor, uint32_t *unit)
{
    *unit = 0;
    for (int i = 0; i < 4; i++) {
        int digit = cursor->at < cursor->end ? hex_digit(*cursor->at) : -1;
        if (digit < 0)
            return parse_fail(cursor->error, cursor->line, "\\u wants four hexadecimal digits");
        *unit = *unit << 4 | (uint32_t)digit;
        cursor->at++;
    }
    return 0;
}

static int read_unicode_escape(struct cursor *cursor)
{
    uint32_t unit, low;
    int result = read_hex4(cursor, &unit);
    if (result < 0)
        return result;
    if (unit >= 0xd800 && unit < 0xdc00) {
        if (cursor->end - cursor->at < 2 || cursor->at[0] != '\\' || cursor->at[1] != 'u')
            return parse_fail(cursor->error, cursor->line, "half of a surrogate pair");
        cursor->at += 2;
        result = read_hex4(cursor, &low);
        if (result < 0)
            return result;
        if (low < 0xdc00 || low > 0xdfff)
            return parse_fail(cursor->error, cursor->line, "half of a surrogate pair");
        unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
    } else if (unit >= 0xdc00 && unit < 0xe000) {
        return parse_fail(cursor->error, cursor->line, "half of a surrogate pair");
    }
    return datum_put_code_point(cursor->pool, unit);
}

static int read_escape(struct cursor *cursor)
{
    static const char names[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    if (cursor->at == cursor->end)
        return parse_fail(cursor->error, cursor->line, "the file ends inside a string");
    char name = *cursor->at++;
    if (name == 'u')
        return read_unicode_escape(cursor);
    const char *found = memchr(names, name, sizeof names - 1);
    if (found == NULL)
        return parse_fail(cursor->error, cursor->line, "unknown escape in a string");
    return datum_put_text(cursor->pool, &meanings[found - names], 1);
}

int datum_string(struct cursor *cursor, uint32_t *datum)
{
    uint32_t line_first = cursor->line;
    int result = datum_new(cursor->pool, DATUM_STRING, datum);
    while (result == 0) {
        if (cursor->at == cursor->end)
            return parse_fail(cursor->error, line_first, "a string that begins here never ends");
        const char *plain = cursor->at;
        while (cursor->at < cursor->end && *cursor->at != '"' && *cursor->at != '\\')
            cursor->line += *cursor->at++ == '\n';
        result = datum_put_text(cursor->pool, plain, (size_t)(cursor->at - plain));
        if (result < 0 || cursor->at == cursor->end)
            continue;
        if (*cursor->at++ == '"') {
            struct datum *node = &cursor->pool->nodes[*datum];
            node->text_bytes = cursor->pool->text_bytes - node->text_at;
            return 0;
        }
        result = read_escape(cursor);
    }
    return result;
}

bool datum_names(const struct datum_pool *pool, uint32_t datum, const char *text)
{
    const struct datum *node = datum_at(pool, datum);
    if (node->kind != DATUM_STRING && node->kind != DATUM_KEYWORD && node->kind != DATUM_SYMBOL)
        return false;
    return node->text_bytes == strlen(text) &&
           memcmp(pool->text + node->text_at, text, node->text_bytes) == 0;
}

static int put(struct datum_pool *pool, const char *text)
{
    return datum_put_text(pool, text, strlen(text));
}

static int print_string(struct datum_pool *pool, struct datum node)
{
    int result = put(pool, "\"");
    for (size_t i = 0; i < node.text_bytes && result == 0; i++) {
        unsigned char byte = (unsigned char)pool->text[node.text_at + i];
        char escaped[8] = {(char)byte};
        if (byte == '"' || byte == '\\')
            snprintf(escaped, sizeof escaped, "\\%c", byte);
        else if (byte < 0x20 || byte == 0x7f)
            snprintf(escaped, sizeof escaped, "\\u%04x", byte);
        result = put(pool, escaped);
    }
    return result < 0 ? result : put(pool, "\"");
}

/* put() may move the text: what is copied from it is copied byte by byte. */
static int print_word(struct datum_pool *pool, const char *prefix, struct datum node)
{
    int result = put(pool, prefix);
    for (size_t i = 0; i < node.text_bytes && result == 0; i++) {
        char byte = pool->text[node.text_at + i];
        result = datum_put_text(pool, &byte, 1);
    }
    return result;
}

static int print_node(struct datum_pool *pool, uint32_t datum);

static int print_children(struct datum_pool *pool, struct datum node, const char *brackets)
{
    int result = datum_put_text(pool, &brackets[0], 1);
    uint32_t child = node.first_child;
    for (bool first = true; child != 0 && result == 0; first = false) {
        if (!first)
            result = put(pool, " ");
        if (result == 0)
            result = print_node(pool, child);
        child = pool->nodes[child].next;
    }
    return result < 0 ? result : datum_put_text(pool, &brackets[1], 1);
}

/* As deep as the readers let a value become: DATUM_DEPTH_MAX. */
static int print_node(struct datum_pool *pool, uint32_t datum)
{
    struct datum node = *datum_at(pool, datum);
    char number[24];
    switch (node.kind) {
    case DATUM_NIL:
        return put(pool, "nil");
    case DATUM_BOOL:
        return put(pool, node.integer ? "true" : "false");
    case DATUM_INTEGER:
        snprintf(number, sizeof number, "%lld", (long long)node.integer);
        return put(pool, number);
    case DATUM_STRING:
        return print_string(pool, node);
    case DATUM_KEYWORD:
        return print_word(pool, ":", node);
    case DATUM_NUMBER:
    case DATUM_SYMBOL:
        return print_word(pool, "", node);
    case DATUM_SEQUENCE:
        return print_children(pool, node, "[]");
    case DATUM_MAP:
        return print_children(pool, node, "{}");
    }
    assert(false); /* no reader makes another kind */
    return 0;
}

int datum_print(struct datum_pool *pool, uint32_t datum, size_t *at, size_t *length_bytes)
{
    *at = pool->text_bytes;
    int result = print_node(pool, datum);
    *length_bytes = pool->text_bytes - *at;
    return result;
}
