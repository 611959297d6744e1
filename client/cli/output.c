/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables for people, JSON for programs.
 */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/command.h"

/* Length of the well-formed UTF-8 character at `from` (RFC 3629), 0 = none, or one that controls a
 * terminal. */
static size_t character_bytes(const unsigned char *from, size_t count)
{
    unsigned char first = from[0];
    if (first < 0x80)
        return first >= 0x20 && first != 0x7f;
    size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || bytes > count)
        return 0;
    for (size_t i = 1; i < bytes; i++)
        if ((from[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (first == 0xe0 && from[1] < 0xa0) || (first == 0xf0 && from[1] < 0x90);
    bool beyond = (first == 0xed && from[1] >= 0xa0) || (first == 0xf4 && from[1] >= 0x90);
    bool control = first == 0xc2 && from[1] < 0xa0; /* C1: 0x9b starts sequences like ESC [ */
    return overlong || beyond || control ? 0 : bytes;
}

const char *printable(const void *bytes, size_t count, char *text, size_t text_bytes)
{
    const unsigned char *from = bytes;
    size_t used = 0;
    for (size_t i = 0; i < count && used + 5 <= text_bytes;) {
        size_t length = character_bytes(from + i, count - i);
        if (length > 0) {
            memcpy(text + used, from + i, length);
            used += length;
            i += length;
        } else {
            used += (size_t)snprintf(text + used, text_bytes - used, "\\x%02x", from[i]);
            i++;
        }
    }
    text[used] = '\0';
    return text;
}

const char *duration_text(uint64_t duration_ms, char text[24])
{
    unsigned long long ms = duration_ms, seconds = ms / 1000;
    if (duration_ms == UINT64_MAX)
        snprintf(text, 24, "-");
    else if (ms < 1000)
        snprintf(text, 24, "%llums", ms);
    else if (seconds < 60)
        snprintf(text, 24, "%llu.%llus", seconds, ms % 1000 / 100);
    else if (seconds < 3600)
        snprintf(text, 24, "%llum%02llus", seconds / 60, seconds % 60);
    else if (seconds < 86400)
        snprintf(text, 24, "%lluh%02llum", seconds / 3600, seconds % 3600 / 60);
    else
        snprintf(text, 24, "%llud%02lluh", seconds / 86400 % 100000000, seconds % 86400 / 3600);
    return text;
}

const char *mode_text(belay_mode mode)
{
    return mode == BELAY_EXCLUSIVE ? "exclusive" : mode == BELAY_SHARED ? "shared" : "free";
}

/* ---- tables ---------------------------------------------------------------------------------- */

struct table {
    size_t columns;
    size_t cells_count;
    size_t cells_max;
    char **cells; /* row by row, headings first */
};

static void *need(void *memory)
{
    if (!memory) {
        fprintf(stderr, "belay: out of memory\n");
        exit(exit_code_of(BELAY_NO_MEMORY));
    }
    return memory;
}

struct table *table_new(const char *const *headings, size_t columns)
{
    struct table *table = need(calloc(1, sizeof *table));
    table->columns = columns;
    for (size_t i = 0; i < columns; i++)
        table_cell(table, "%s", headings[i]);
    return table;
}

void table_cell(struct table *table, const char *format, ...)
{
    if (table->cells_count == table->cells_max) {
        table->cells_max = table->cells_max ? 2 * table->cells_max : 64;
        table->cells = need(realloc(table->cells, table->cells_max * sizeof *table->cells));
    }
    char *cell = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&cell, format, arguments);
    va_end(arguments);
    table->cells[table->cells_count++] = need(length < 0 ? NULL : cell);
}

/* Characters, not bytes: names may be UTF-8. */
static size_t width_of(const char *text)
{
    size_t width = 0;
    for (; *text; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

static size_t column_width(const struct table *table, size_t column)
{
    size_t widest = 0;
    for (size_t i = column; i < table->cells_count; i += table->columns) {
        size_t width = width_of(table->cells[i]);
        widest = width > widest ? width : widest;
    }
    return widest;
}

void table_print_and_free(struct table *table)
{
    assert(table->cells_count % table->columns == 0);
    size_t *widths = need(calloc(table->columns, sizeof *widths));
    for (size_t column = 0; column < table->columns; column++)
        widths[column] = column_width(table, column);
    for (size_t i = 0; i < table->cells_count; i++) {
        size_t column = i % table->columns;
        bool is_last = column + 1 == table->columns;
        fputs(table->cells[i], stdout);
        /* No blanks before the line's end. */
        for (size_t width = width_of(table->cells[i]); !is_last && width < widths[column] + 2;
             width++)
            putchar(' ');
        if (is_last)
            putchar('\n');
        free(table->cells[i]);
    }
    free(widths);
    free(table->cells);
    free(table);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

void json_set_text(json_t *object, const char *key, const char *text)
{
    json_object_set_new(object, key, need(json_string(text)));
}

void json_set_number(json_t *object, const char *key, uint64_t number)
{
    json_object_set_new(object, key, need(json_integer((json_int_t)number)));
}

void json_set_u64_text(json_t *object, const char *key, uint64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    json_set_text(object, key, text);
}

void json_set_bytes(json_t *object, const char *key, const void *bytes, size_t count)
{
    json_t *exact = json_stringn(bytes, count);
    if (exact) {
        json_object_set_new(object, key, exact);
        return;
    }
    const unsigned char *from = bytes;
    char readable[3 * 255 + 1], hex[2 * 255 + 1], hex_key[64];
    size_t used = 0;
    count = count > 255 ? 255 : count;
    for (size_t i = 0; i < count; i++) {
        snprintf(hex + 2 * i, 3, "%02x", from[i]);
        if (from[i] < 0x80) {
            readable[used++] = (char)from[i];
        } else {
            memcpy(readable + used, "\xef\xbf\xbd", 3); /* U+FFFD */
            used += 3;
        }
    }
    json_object_set_new(object, key, need(json_stringn(readable, used)));
    snprintf(hex_key, sizeof hex_key, "%s_hex", key);
    json_set_text(object, hex_key, hex);
}

int json_print_and_free(json_t *root, int code)
{
    int failed = json_dumpf(root, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    putchar('\n');
    json_decref(root);
    if (failed != 0 || fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "belay: cannot write the result to standard output\n");
        return exit_code_of(BELAY_SYSTEM);
    }
    return code;
}
