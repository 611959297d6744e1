/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line as tables: what each command takes is data, which the parser, --help and the
 * shell completion read alike.
 */
#ifndef BELAY_CLI_ARGS_H
#define BELAY_CLI_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "client/cli/parse.h"

enum args_output { ARGS_TABLE = 0, ARGS_JSON = 1 };

/* Every option of every command; a command looks at those it declares. */
struct args_values {
    /* global */
    const char *endpoints;
    const char *name_space;
    uint8_t output; /* enum args_output */
    uint64_t timeout_ms;
    bool timeout_set;
    bool help;
    /* acquire and lock */
    bool shared;
    bool try_only;
    bool barge;
    uint64_t ttl_ms;
    bool ttl_set;
    uint64_t wait_ms;
    bool wait_set;
    uint64_t grace_ms;
    uint64_t lock_delay_ms;
    uint64_t priority;
    const char *value;
    bool verbose;
    /* lock */
    int on_lost_signal;
    bool leftovers_wait;
    /* others */
    bool now;
    bool stale;
    bool wait_ready;
    bool workers;
    const char *file;
    const char *directory;
    uint64_t token;
    bool token_set;
    /* check-host */
    const char *cores;
    const char *device;
    const char *data_directory;
    const char *root;
    bool all;
};

enum args_kind {
    ARGS_FLAG,      /* bool */
    ARGS_TEXT,      /* const char *, not empty */
    ARGS_DURATION,  /* uint64_t, milliseconds; *_set beside it where `set` is given */
    ARGS_PRIORITY,  /* uint64_t, 0..255 */
    ARGS_TOKEN,     /* uint64_t */
    ARGS_SIGNAL,    /* int */
    ARGS_OUTPUT,    /* uint8_t */
    ARGS_LEFTOVERS, /* bool: "wait" is true, "end" is false */
    ARGS_ENDPOINTS,
    ARGS_NAMESPACE,
    ARGS_VALUE,
};

enum { ARGS_NOTHING_SET = 0 }; /* offset 0 is `endpoints`, never a bool */

struct args_option {
    const char *name; /* without "--" */
    char letter;      /* 0 = none */
    uint8_t kind;     /* enum args_kind */
    size_t offset;    /* in struct args_values */
    size_t set;       /* offset of the bool that says "was given", ARGS_NOTHING_SET = none */
    const char *metavar;
    const char *help;
};

struct args_given {
    int positionals_count;
    char **positionals; /* in argv's storage, moved to its front */
    char **rest;        /* after "--", NULL-terminated; NULL = there was no "--" */
};

struct args_context; /* client/cli/command.h */

struct args_command {
    const char *name;
    const char *synopsis; /* what follows the name in the usage line */
    const char *summary;  /* one line, for the list of commands */
    const char *description;
    const char *examples;
    const struct args_option *options;
    size_t options_count;
    int positionals_min;
    int positionals_max;
    bool takes_rest; /* "-- CMD..." */
    int (*run)(const struct args_values *values, const struct args_given *given);
};

extern const struct args_option args_global_options[];
extern const size_t args_global_options_count;

void args_values_defaults(struct args_values *values);

/* Reads argv[0..argc) (without the program's and the command's names). Options may stand anywhere
 * before "--". `command` NULL: only global options, stops at the first positional. False: *error.
 */
bool args_parse(const struct args_command *command, int argc, char **argv,
                struct args_values *values, struct args_given *given, struct parse_error *error);

void args_print_options(FILE *stream, const struct args_option *options, size_t count);

#endif
