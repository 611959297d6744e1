/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/parse.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

void parse_fail(struct parse_error *error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
}

/* Reads decimal digits; returns how many, or -1 if the number does not fit 64 bits. */
static int read_digits(const char *text, uint64_t *number)
{
    int digits = 0;
    *number = 0;
    for (; text[digits] >= '0' && text[digits] <= '9'; digits++) {
        uint64_t digit = (uint64_t)(text[digits] - '0');
        if (*number > (UINT64_MAX - digit) / 10)
            return -1;
        *number = *number * 10 + digit;
    }
    return digits;
}

bool parse_duration_ms(const char *text, uint64_t *duration_ms, struct parse_error *error)
{
    static const struct {
        const char *unit;
        uint64_t in_ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};

    uint64_t count;
    int digits = read_digits(text, &count);
    if (digits == 0) {
        parse_fail(error, "'%.60s' is not a duration: write digits and a unit, e.g. 500ms, 10s, 2m",
                   text);
        return false;
    }
    if (digits > 0 && text[digits] == '\0') {
        parse_fail(error, "'%.60s' has no unit: write e.g. %.20ss or %.20sms", text, text, text);
        return false;
    }
    for (size_t i = 0; digits > 0 && i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(text + digits, units[i].unit) != 0)
            continue;
        if (count > PARSE_DURATION_MS_MAX / units[i].in_ms)
            break;
        *duration_ms = count * units[i].in_ms;
        return true;
    }
    const char *unit = text + strspn(text, "0123456789");
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(unit, units[i].unit) == 0) {
            parse_fail(error, "'%.60s' is too long: at most 24d", text);
            return false;
        }
    parse_fail(error, "'%.60s' has an unknown unit '%.20s': use ms, s, m, h or d", text, unit);
    return false;
}

bool parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *number,
                  struct parse_error *error)
{
    uint64_t read;
    int digits = read_digits(text, &read);
    bool is_number = digits != 0 && text[strspn(text, "0123456789")] == '\0';
    if (is_number && digits > 0 && read >= min && read <= max) {
        *number = read;
        return true;
    }
    parse_fail(error, "'%.60s' is not %s %llu..%llu", text, is_number ? "in the range" : "a number",
               (unsigned long long)min, (unsigned long long)max);
    return false;
}

bool parse_token(const char *text, uint64_t *token, struct parse_error *error)
{
    struct parse_error ignored;
    if (parse_number(text, 1, UINT64_MAX, token, &ignored))
        return true;
    parse_fail(error, "'%.60s' is not a token: a decimal number, 1..18446744073709551615", text);
    return false;
}

static bool within(const char *what, const char *text, size_t min, size_t max,
                   struct parse_error *error)
{
    size_t bytes = strlen(text);
    if (bytes < min) {
        parse_fail(error, "the %s is empty: it has 1..%zu bytes", what, max);
        return false;
    }
    if (bytes > max) {
        parse_fail(error, "the %s has %zu bytes: the limit is %zu", what, bytes, max);
        return false;
    }
    return true;
}

bool parse_name(const char *text, struct parse_error *error)
{
    return within("name", text, 1, PARSE_NAME_BYTES_MAX, error);
}

bool parse_prefix(const char *text, struct parse_error *error)
{
    return within("prefix", text, 0, PARSE_NAME_BYTES_MAX, error);
}

bool parse_namespace(const char *text, struct parse_error *error)
{
    return within("namespace", text, 0, PARSE_NAMESPACE_BYTES_MAX, error);
}

bool parse_value(const char *text, struct parse_error *error)
{
    return within("value", text, 0, PARSE_VALUE_BYTES_MAX, error);
}

/* Judges one "host:port" of `bytes` bytes. */
static bool endpoint_is_sound(const char *text, size_t bytes, struct parse_error *error)
{
    const char *end = text + bytes;
    const char *colon = NULL;
    if (bytes > 0 && text[0] == '[') {
        const char *bracket = memchr(text, ']', bytes);
        if (bracket && bracket > text + 1 && bracket + 1 < end && bracket[1] == ':')
            colon = bracket + 1;
    } else {
        colon = memchr(text, ':', bytes);
        /* Two colons without brackets: an IPv6 address whose end nobody can tell. */
        if (colon && memchr(colon + 1, ':', (size_t)(end - colon - 1))) {
            parse_fail(error, "'%.*s': write an IPv6 address as [address]:port",
                       (int)(bytes < 80 ? bytes : 80), text);
            return false;
        }
    }
    uint64_t port = 0;
    int digits = colon ? read_digits(colon + 1, &port) : 0;
    if (!colon || colon == text || digits <= 0 || colon + 1 + digits != end || port < 1 ||
        port > 65535) {
        parse_fail(error, "'%.*s' is not host:port", (int)(bytes < 80 ? bytes : 80), text);
        return false;
    }
    return true;
}

bool parse_endpoints(const char *text, struct parse_error *error)
{
    for (;;) {
        size_t bytes = strcspn(text, ",");
        if (!endpoint_is_sound(text, bytes, error))
            return false;
        if (text[bytes] == '\0')
            return true;
        text += bytes + 1;
    }
}

bool parse_signal(const char *text, int *signal_number, struct parse_error *error)
{
    static const struct {
        const char *name;
        int number;
    } signals[] = {{"HUP", SIGHUP},   {"INT", SIGINT},   {"QUIT", SIGQUIT}, {"KILL", SIGKILL},
                   {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"TERM", SIGTERM}, {"ABRT", SIGABRT},
                   {"ALRM", SIGALRM}, {"PIPE", SIGPIPE}};

    const char *name = strncasecmp(text, "SIG", 3) == 0 ? text + 3 : text;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        if (strcasecmp(name, signals[i].name) == 0) {
            *signal_number = signals[i].number;
            return true;
        }
    parse_fail(error, "'%.60s' is not one of HUP INT QUIT ABRT KILL USR1 PIPE ALRM TERM USR2",
               text);
    return false;
}
