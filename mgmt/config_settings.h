/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of belayd's settings: for each its key, where it is kept, and what it may be. File,
 * environment and flags all go through it.
 */
#ifndef BELAY_MGMT_CONFIG_SETTINGS_H
#define BELAY_MGMT_CONFIG_SETTINGS_H

#include "mgmt/config.h"

enum setting_kind {
    SETTING_COUNT,  /* a whole number */
    SETTING_CORE,   /* a whole number, or "none" = -1 */
    SETTING_BOOL,   /* true, false */
    SETTING_NS,     /* a duration, kept in nanoseconds */
    SETTING_MS,     /* a duration, kept in milliseconds */
    SETTING_BYTES,  /* a size */
    SETTING_CHOICE, /* one of `words`; kept is its ordinal */
    SETTING_PATH,   /* kept is the text */
    SETTING_TEXT,   /* the same, but it names no file */
};

struct setting {
    const char *key; /* "limits.leases" */
    enum setting_kind kind;
    uint16_t offset;          /* in struct config */
    uint16_t bytes;           /* of the field */
    uint64_t least, most;     /* COUNT, NS (in ns), MS (in ms), BYTES */
    const char *const *words; /* CHOICE: NULL at the end */
};

uint32_t settings_count(void);
const struct setting *setting_at(uint32_t ordinal);

/* By full key; its ordinal, or -1. */
int setting_find(const char *key);

/* True if "<key>." begins a setting's key. */
bool setting_is_section(const char *key);

/* Puts a value into its field. False: `expected` says what may stand there. */
bool setting_store(const struct setting *setting, struct config *config, const char *value,
                   char *expected, size_t expected_bytes);

/* The key that was probably meant, written as it would stand inside `section` ("" = top level);
 * false if none is near. */
bool setting_suggest(const char *section, const char *key, char *suggestion, size_t bytes);

/* Number of edits (insert, delete, replace, swap neighbours) between two words, capped. */
uint32_t word_distance(const char *a, const char *b);

/* Where the value of a setting came from: "file:line", the variable, "command line". */
void config_describe_source(const struct config *config, int ordinal, char *text, size_t bytes);

/* The part of config_judge() that is about the DPDK device (config_dpdk.c). */
int config_judge_dpdk(struct config *config, struct config_error *error);

/* The part of config_resolve() that is about HTTP; also for --dev. */
int config_resolve_http(struct config *config, struct config_error *error);

#endif
