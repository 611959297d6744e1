/* SPDX-License-Identifier: Apache-2.0
 *
 * See hw/journal.h.
 */
#include "hw/journal.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "hw/clock.h"

enum { LINE_BYTES_MAX = 1024 };

/* Written once by journal_setup() before there are threads, then only read. */
static struct {
    enum journal_level least;
    enum journal_format format;
    uint64_t start_ns;
} journal = {.least = JOURNAL_INFO, .format = JOURNAL_TEXT};

static const char *const level_names[] = {"debug", "info", "warn", "error"};

void journal_setup(enum journal_level least, enum journal_format format)
{
    journal.least = least;
    journal.format = format;
    journal.start_ns = clock_monotonic_ns();
}

bool journal_enabled(enum journal_level level)
{
    return level >= journal.least;
}

/* A line under construction; what does not fit is cut. One byte is kept for the line's end. */
struct line {
    char bytes[LINE_BYTES_MAX];
    size_t used;
};

static void line_byte(struct line *line, char byte)
{
    if (line->used < LINE_BYTES_MAX - 1)
        line->bytes[line->used++] = byte;
}

static void line_text(struct line *line, const char *text)
{
    while (*text != '\0')
        line_byte(line, *text++);
}

static bool control(char byte)
{
    return (unsigned char)byte < 0x20 || byte == 0x7f;
}

static void text_line(struct line *line, const char *head, const char *pairs)
{
    line_text(line, head);
    for (; *pairs != '\0'; pairs++)
        line_byte(line, control(*pairs) ? ' ' : *pairs); /* a value must not forge a line */
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Room that stays for closing an object whose last value was cut: `"}` and the line's end. */
enum { JSON_TAIL_BYTES = 3, JSON_ESCAPE_BYTES_MAX = 6 };

static bool json_room(const struct line *line, size_t bytes)
{
    return line->used + bytes + JSON_TAIL_BYTES <= LINE_BYTES_MAX;
}

static void json_string(struct line *line, const char *bytes, size_t length)
{
    line_byte(line, '"');
    for (size_t i = 0; i < length && json_room(line, JSON_ESCAPE_BYTES_MAX); i++) {
        char byte = bytes[i];
        if (byte == '"' || byte == '\\') {
            line_byte(line, '\\');
            line_byte(line, byte);
        } else if (control(byte)) {
            char escaped[JSON_ESCAPE_BYTES_MAX + 1];
            snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)(unsigned char)byte);
            line_text(line, escaped);
        } else {
            line_byte(line, byte);
        }
    }
    line_byte(line, '"');
}

/* JSON's own notion of an integer: no plus sign, no leading zeros. */
static bool decimal_integer(const char *bytes, size_t length)
{
    size_t sign = length > 0 && bytes[0] == '-';
    if (length == sign || length - sign > 20 || (bytes[sign] == '0' && length - sign > 1))
        return false;
    for (size_t i = sign; i < length; i++)
        if (!isdigit((unsigned char)bytes[i]))
            return false;
    return true;
}

/* Where a value that begins at `value` ends: a quoted one at the quote that a space or the end
 * follows, so that quotes inside it do no harm. */
static const char *value_end(const char *value)
{
    if (*value != '"')
        return value + strcspn(value, " ");
    const char *at = value + 1;
    while (*at != '\0' && !(*at == '"' && (at[1] == ' ' || at[1] == '\0')))
        at++;
    return at;
}

static void json_pair(struct line *line, const char *key, size_t key_bytes, const char *value,
                      size_t value_bytes, bool quoted)
{
    /* The whole key and at least an empty value, or nothing: the object stays an object. */
    if (!json_room(line, JSON_ESCAPE_BYTES_MAX * key_bytes + 8))
        return;
    line_byte(line, ',');
    json_string(line, key, key_bytes);
    line_byte(line, ':');
    if (!quoted && decimal_integer(value, value_bytes) && json_room(line, value_bytes))
        for (size_t i = 0; i < value_bytes; i++)
            line_byte(line, value[i]);
    else
        json_string(line, value, value_bytes);
}

static void json_pairs(struct line *line, const char *at)
{
    for (;;) {
        at += strspn(at, " ");
        size_t key_bytes = strcspn(at, "= ");
        if (at[key_bytes] != '=')
            return; /* the end, or a value that its caller did not quote */
        const char *value = at + key_bytes + 1;
        bool quoted = *value == '"';
        const char *end = value_end(value);
        if (quoted)
            value++;
        json_pair(line, at, key_bytes, value, (size_t)(end - value), quoted);
        at = quoted && *end == '"' ? end + 1 : end;
    }
}

static void json_line(struct line *line, double seconds, enum journal_level level,
                      const char *event, const char *pairs)
{
    char head[160];
    snprintf(head, sizeof head, "{\"seconds\":%.6f,\"level\":\"%s\",\"event\":\"%.64s\"", seconds,
             level_names[level], event);
    line_text(line, head);
    json_pairs(line, pairs);
    line_byte(line, '}');
}

/* ---- writing --------------------------------------------------------------------------------- */

void journal_write(enum journal_level level, const char *event, const char *format, ...)
{
    if (!journal_enabled(level))
        return;
    char pairs[LINE_BYTES_MAX];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(pairs, sizeof pairs, format, arguments);
    va_end(arguments);
    if (length < 0)
        pairs[0] = '\0';

    struct line line;
    line.used = 0;
    double seconds = (double)(clock_monotonic_ns() - journal.start_ns) / 1e9;
    if (journal.format == JOURNAL_JSON) {
        json_line(&line, seconds, level, event, pairs);
    } else {
        char head[160];
        snprintf(head, sizeof head, "%.6f %s event=%.64s%s", seconds, level_names[level], event,
                 pairs[0] != '\0' ? " " : "");
        text_line(&line, head, pairs);
    }
    line.bytes[line.used++] = '\n';
    /* A journal that cannot be written is no reason to stop serving. */
    ssize_t written = write(STDERR_FILENO, line.bytes, line.used);
    (void)written;
}
