/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading what people type. Every function is total: any string gives a value or one sentence that
 * says what is wrong and what was expected. Nothing here allocates or keeps state.
 */
#ifndef BELAY_CLI_PARSE_H
#define BELAY_CLI_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PARSE_NAME_BYTES_MAX = 255,
    PARSE_NAMESPACE_BYTES_MAX = 63,
    PARSE_VALUE_BYTES_MAX = 255,
    PARSE_ERROR_BYTES = 256,
    PARSE_DURATION_MS_MAX = INT32_MAX, /* 24 days: fits the wire's 32 bits with room for sums */
};

/* The reason, without the name of the option or argument. Empty while all is well. */
struct parse_error {
    char text[PARSE_ERROR_BYTES];
};

void parse_fail(struct parse_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* "500ms", "10s", "2m", "1h", "3d": digits and a unit, nothing else. */
bool parse_duration_ms(const char *text, uint64_t *duration_ms, struct parse_error *error);

/* Decimal, min..max. */
bool parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *number,
                  struct parse_error *error);

/* A fencing token: decimal, 1..2^64-1. */
bool parse_token(const char *text, uint64_t *token, struct parse_error *error);

/* A lock's name: 1..255 bytes. A prefix may be empty. */
bool parse_name(const char *text, struct parse_error *error);
bool parse_prefix(const char *text, struct parse_error *error);
bool parse_namespace(const char *text, struct parse_error *error);
bool parse_value(const char *text, struct parse_error *error);

/* "host:port[,host:port...]", IPv6 addresses in brackets. Names are not looked up here. */
bool parse_endpoints(const char *text, struct parse_error *error);

/* A signal by name ("TERM", "SIGTERM") or number. */
bool parse_signal(const char *text, int *signal_number, struct parse_error *error);

#endif
