/* SPDX-License-Identifier: Apache-2.0
 *
 * belayd's command line.
 */
#ifndef BELAY_MGMT_ARGUMENTS_H
#define BELAY_MGMT_ARGUMENTS_H

#include "mgmt/config.h"

enum { ARGUMENTS_SETTINGS_MAX = 64 };

/* One setting out of a flag. Texts belong to argv, but for the key of --set, which is copied. */
struct argument_setting {
    const char *flag;
    char key[64];
    const char *value;
};

struct arguments {
    const char *config_path; /* --config, --check-config */
    const char *data;        /* --data */
    bool check;
    bool dev;
    bool help;
    bool version;
    uint32_t settings_count;
    struct argument_setting settings[ARGUMENTS_SETTINGS_MAX]; /* in order; later wins */
};

/* 0, or -EINVAL with a sentence. */
int arguments_parse(int count, char *const words[], struct arguments *arguments,
                    struct config_error *error);

/* The settings among the flags, put into a configuration. */
int arguments_apply(const struct arguments *arguments, struct config *config,
                    struct config_error *error);

extern const char arguments_help[];

#endif
