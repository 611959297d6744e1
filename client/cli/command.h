/* SPDX-License-Identifier: Apache-2.0
 *
 * What the commands share: a client, messages, tables, JSON.
 */
#ifndef BELAY_CLI_COMMAND_H
#define BELAY_CLI_COMMAND_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "belay/belay.h"
#include "client/cli/args.h"
#include "client/cli/exit_codes.h"

/* ---- client ---------------------------------------------------------------------------------- */

/* Opens a client with the global options. `adjust` may be NULL. On failure the error is on stderr.
 */
belay_status command_open(const struct args_values *values,
                          void (*adjust)(void *context, belay_client_options *options),
                          void *context, belay_client **client);

/* How long a client may take to say goodbye. */
uint64_t command_close_ms(const struct args_values *values);

/* One line on stderr that says what happened and what to do; returns the exit code. `about` names
 * the lock, or is NULL. Nothing is printed for BELAY_OK. */
int command_report(belay_status status, const char *about);

/* The same, in the words of a BUSY or DELAYED answer. */
int command_report_busy(belay_status status, const char *name, const belay_holder_info *holder);

int command_usage_error(const char *command, const struct parse_error *error);

/* Checks argument `text` with one of the parse_*() functions; prints and returns false. */
bool command_check(const char *command, bool (*check)(const char *, struct parse_error *),
                   const char *text);

/* Reads a lease id (24 hexadecimal digits) or says what is wrong with it. */
bool command_lease(const char *command, const char *text, belay_lease_id *lease);

/* ---- output ---------------------------------------------------------------------------------- */

/* Bytes as text for people: control and other unprintable bytes as \xNN. Returns `text`. */
const char *printable(const void *bytes, size_t count, char *text, size_t text_bytes);
enum { PRINTABLE_BYTES = 255 * 4 + 1 };

/* "9.2s", "350ms", "3m20s", "2h05m"; UINT64_MAX = "-". */
const char *duration_text(uint64_t duration_ms, char text[24]);

struct table; /* columns as wide as their widest cell */
struct table *table_new(const char *const *headings, size_t columns);
void table_cell(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
void table_print_and_free(struct table *table);

/* JSON strings must be UTF-8: other bytes become U+FFFD, and KEY_hex beside it holds them exactly.
 */
void json_set_bytes(json_t *object, const char *key, const void *bytes, size_t count);
/* 64-bit numbers that exceed 2^53 go as decimal strings. */
void json_set_u64_text(json_t *object, const char *key, uint64_t number);
void json_set_number(json_t *object, const char *key, uint64_t number);
void json_set_text(json_t *object, const char *key, const char *text);
/* Prints and frees. Returns the code given, or BELAY_SYSTEM's if stdout cannot be written. */
int json_print_and_free(json_t *root, int code);

const char *mode_text(belay_mode mode);

/* `status --workers`: what each worker has counted. Returns the exit code. */
int workers_status(const struct args_values *values, belay_client *client);

/* ---- commands -------------------------------------------------------------------------------- */

extern const struct args_command command_lock;
extern const struct args_command command_acquire;
extern const struct args_command command_release;
extern const struct args_command command_renew;
extern const struct args_command command_convert;
extern const struct args_command command_force_release;
extern const struct args_command command_holders;
extern const struct args_command command_queue;
extern const struct args_command command_list;
extern const struct args_command command_status;
extern const struct args_command command_fence;
extern const struct args_command command_store;
extern const struct args_command command_check_host;

#define OPTION_AT(field) offsetof(struct args_values, field)
#define COUNT_OF(list)   (sizeof(list) / sizeof((list)[0]))

/* Options that `lock` and `acquire` share. */
#define OPTIONS_OF_ACQUIRE                                                                         \
    {                                                                                              \
        "shared",                                                                                  \
        's',                                                                                       \
        ARGS_FLAG,                                                                                 \
        OPTION_AT(shared),                                                                         \
        0,                                                                                         \
        NULL,                                                                                      \
        "share it with other --shared holders"},                                                   \
        {"ttl",                                                                                    \
         0,                                                                                        \
         ARGS_DURATION,                                                                            \
         OPTION_AT(ttl_ms),                                                                        \
         OPTION_AT(ttl_set),                                                                       \
         "TIME",                                                                                   \
         "the lease ends this long after its last renewal (default 10s)"},                         \
        {"wait",                                                                                   \
         'w',                                                                                      \
         ARGS_DURATION,                                                                            \
         OPTION_AT(wait_ms),                                                                       \
         OPTION_AT(wait_set),                                                                      \
         "TIME",                                                                                   \
         "give up waiting after this long (default: wait for ever)"},                              \
        {"try", 0, ARGS_FLAG, OPTION_AT(try_only), 0, NULL, "do not wait at all"},                 \
        {"barge", 0, ARGS_FLAG, OPTION_AT(barge), 0, NULL, "may pass waiters if it is free now"},  \
        {"priority",                                                                               \
         'p',                                                                                      \
         ARGS_PRIORITY,                                                                            \
         OPTION_AT(priority),                                                                      \
         0,                                                                                        \
         "0..255",                                                                                 \
         "higher ones are granted first (default 0)"},                                             \
        {"grace",                                                                                  \
         0,                                                                                        \
         ARGS_DURATION,                                                                            \
         OPTION_AT(grace_ms),                                                                      \
         0,                                                                                        \
         "TIME",                                                                                   \
         "the cluster waits this much longer than the TTL before it ends the lease"},              \
        {"lock-delay",                                                                             \
         0,                                                                                        \
         ARGS_DURATION,                                                                            \
         OPTION_AT(lock_delay_ms),                                                                 \
         0,                                                                                        \
         "TIME",                                                                                   \
         "after an expiry (not a release) nobody gets it for this long"},                          \
    {                                                                                              \
        "value", 0, ARGS_VALUE, OPTION_AT(value), 0, "TEXT",                                       \
            "shown to others (default: user@host, process, command)"                               \
    }

/* Fills in the options of an acquire; `value` must outlive them. */
void command_acquire_options(const struct args_values *values, const char *name, const char *value,
                             belay_acquire_options *options);

/* belay_acquire() that can be given up: when cancel_fd becomes readable the acquire is cancelled,
 * and BELAY_CANCELLED comes back when that is settled, so that no waiter is left behind. */
belay_status command_acquire_cancellable(belay_client *client, const belay_acquire_options *options,
                                         int cancel_fd, belay_lock **lock,
                                         belay_holder_info *holder);

enum { DEFAULT_VALUE_BYTES = 256 };
/* "user@host pid WORDS", cut to the limit at a character's border. */
void default_value(char text[DEFAULT_VALUE_BYTES], int pid, char *const *words);

#endif
