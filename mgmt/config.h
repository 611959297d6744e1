/* SPDX-License-Identifier: Apache-2.0
 *
 * The configuration of belayd: a YAML file, then BELAYD_* variables, then flags; later wins. Every
 * value is judged once, at start, and an error says where it stands, what was found and what is
 * expected there:
 *
 *     /etc/belay/belayd.yaml:7: limits.leases: found 'lots', expected a whole number from ...
 *
 * The parser is total: for any bytes it gives a configuration or one error, and keeps no state.
 * Errors: 0 or a negative errno with a sentence in struct config_error. One thread.
 */
#ifndef BELAY_MGMT_CONFIG_H
#define BELAY_MGMT_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dataplane/options.h"
#include "hw/journal.h"

enum {
    CONFIG_SETTINGS_MAX = 64,
    CONFIG_FILE_BYTES_MAX = 256 * 1024,
    CONFIG_ADDRESS_BYTES_MAX = 256,
    CONFIG_DPDK_TEXT_BYTES = 64,
    CONFIG_ERROR_BYTES = 1024,
};

struct config_error {
    char text[CONFIG_ERROR_BYTES];
};

/* Puts a sentence into error; returns -EINVAL. */
__attribute__((format(printf, 2, 3))) int config_fail(struct config_error *error,
                                                      const char *format, ...);

enum config_source_kind {
    CONFIG_DEFAULT = 0,
    CONFIG_FILE = 1,
    CONFIG_ENVIRONMENT = 2,
    CONFIG_FLAG = 3,
};

/* Where a setting's value came from. */
struct config_source {
    uint8_t kind;  /* enum config_source_kind */
    uint32_t line; /* CONFIG_FILE: 1-based */
};

/* A member as written; names are resolved in config_resolve(). */
struct config_member {
    uint16_t node;
    uint32_t line; /* where its entry begins */
    uint32_t client_line, peer_line, management_line;
    char client[CONFIG_ADDRESS_BYTES_MAX];
    char peer[CONFIG_ADDRESS_BYTES_MAX];
    char management[CONFIG_ADDRESS_BYTES_MAX]; /* "" = as peer */
};

struct config {
    struct node_options options; /* complete after config_resolve() and config_judge() */

    char file[NODE_PATH_BYTES_MAX]; /* name of the file, for messages; "" = none was read */
    struct lock_limits
        limits_given; /* only the fields that have a source; the rest follows leases */
    uint16_t members_count;
    struct config_member members[NODE_MEMBERS_MAX];
    uint32_t members_line;                      /* 0 = not given */
    char cluster_key_file[NODE_PATH_BYTES_MAX]; /* "" = none */
    /* of the DPDK device, with their prefixes; "" = none; resolved in config_judge() */
    char dpdk_address[CONFIG_DPDK_TEXT_BYTES], dpdk_address6[CONFIG_DPDK_TEXT_BYTES];
    char dpdk_gateway[CONFIG_DPDK_TEXT_BYTES], dpdk_gateway6[CONFIG_DPDK_TEXT_BYTES];
    char http_listen[CONFIG_ADDRESS_BYTES_MAX]; /* "" = no HTTP server; resolved to: */
    bool http_on;
    struct port_address http;
    bool insecure; /* a client listener beyond loopback is wanted although there are no credentials
                    */
    enum journal_level log_level;
    enum journal_format log_format;
    struct config_source sources[CONFIG_SETTINGS_MAX]; /* parallel to the table of settings */
};

void config_defaults(struct config *config);

/* YAML text; `name` stands in messages. -EINVAL. */
int config_parse(struct config *config, const char *name, const uint8_t *text, size_t length,
                 struct config_error *error);

/* The same from a file. -EINVAL, -EFBIG, or why it cannot be read. */
int config_load(struct config *config, const char *path, struct config_error *error);

/* BELAYD_* out of an environment ("NAME=value", NULL at the end). -EINVAL. */
int config_environment(struct config *config, char *const environment[],
                       struct config_error *error);

/* One setting by its full key ("limits.leases") from a flag. -EINVAL. */
int config_set(struct config *config, const char *flag, const char *key, const char *value,
               struct config_error *error);

/* Looks up members' names and reads the cluster key: blocks. -EINVAL, or the cause. */
int config_resolve(struct config *config, struct config_error *error);

/* Judges the whole. -EINVAL. */
int config_judge(struct config *config, struct config_error *error);

/* 32 hex digits (a final newline is allowed) or 16 raw bytes, not all zero. */
bool config_key_decode(const uint8_t *bytes, size_t length, uint8_t key[WIRE_MAC_KEY_BYTES]);

#endif
