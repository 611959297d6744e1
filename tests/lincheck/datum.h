/* SPDX-License-Identifier: Apache-2.0
 *
 * Values as history files write them. Two total readers, for EDN and for JSON, give the same trees;
 * each reads one value and leaves the cursor behind it.
 */
#ifndef TESTS_LINCHECK_DATUM_H
#define TESTS_LINCHECK_DATUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/lincheck/intern.h"

enum { DATUM_DEPTH_MAX = 64, PARSE_ERROR_BYTES = 240 };

/* What could not be read: one sentence and where. */
struct parse_error {
    uint32_t line; /* from 1; 0: no particular line */
    char text[PARSE_ERROR_BYTES];
};

/* Sets the error and returns -EBADMSG, for `return parse_fail(...)`. */
int parse_fail(struct parse_error *error, uint32_t line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

enum datum_kind {
    DATUM_NIL,
    DATUM_BOOL,     /* integer: 0 or 1 */
    DATUM_INTEGER,  /* fits int64_t */
    DATUM_NUMBER,   /* any other number; text as written */
    DATUM_STRING,   /* text decoded */
    DATUM_KEYWORD,  /* text without the colon */
    DATUM_SYMBOL,   /* also characters: text begins with a backslash */
    DATUM_SEQUENCE, /* vector, list, set, array */
    DATUM_MAP,      /* children alternate: key, value */
};

struct datum {
    enum datum_kind kind;
    uint32_t first_child, next; /* indices into the pool; 0: none */
    uint32_t children_count;
    size_t text_at, text_bytes; /* in the pool's text */
    int64_t integer;
};

/* The values read since the last datum_reset(). Indices stay valid until then, pointers only until
 * the next read. */
struct datum_pool {
    struct budget *budget;
    struct datum *nodes; /* node 0 is no value */
    size_t nodes_count, nodes_capacity;
    char *text;
    size_t text_bytes, text_capacity;
};

void datum_pool_init(struct datum_pool *pool, struct budget *budget);
void datum_pool_free(struct datum_pool *pool);
void datum_reset(struct datum_pool *pool);

struct cursor {
    const char *at, *end;
    uint32_t line; /* of `at`, from 1 */
    struct datum_pool *pool;
    struct parse_error *error;
};

/* 0, -EBADMSG (error set) or -ENOMEM. */
int edn_read(struct cursor *cursor, uint32_t *datum);
int json_read(struct cursor *cursor, uint32_t *datum);

/* Moves over white space, commas, comments and #_ discarded values: to the next value or the end.
 * 0, -EBADMSG or -ENOMEM. */
int edn_skip(struct cursor *cursor);
void json_skip(struct cursor *cursor);

const struct datum *datum_at(const struct datum_pool *pool, uint32_t datum);

/* True if it is a string, keyword or symbol with exactly this text. */
bool datum_names(const struct datum_pool *pool, uint32_t datum, const char *text);

/* Appends the value in one canonical form: equal values have equal forms and only they. Control
 * characters are escaped. Of the pool's text, [*at, *at + *length_bytes) is the form. 0 or -ENOMEM.
 */
int datum_print(struct datum_pool *pool, uint32_t datum, size_t *at, size_t *length_bytes);

/* Shared by the readers. */
int datum_new(struct datum_pool *pool, enum datum_kind kind, uint32_t *datum);
int datum_put_text(struct datum_pool *pool, const char *bytes, size_t length_bytes);
int datum_put_code_point(struct datum_pool *pool, uint32_t code_point);
void datum_add_child(struct datum_pool *pool, uint32_t parent, uint32_t *last, uint32_t child);
int datum_integer(struct cursor *cursor, const char *text, size_t length_bytes, uint32_t *datum);
/* The rest of a string after its opening quote. */
int datum_string(struct cursor *cursor, uint32_t *datum);

#endif
