/* SPDX-License-Identifier: Apache-2.0
 *
 * See mgmt/arguments.h.
 */
#include "mgmt/arguments.h"

#include <errno.h>
#include <string.h>

#include "mgmt/config_settings.h"

const char arguments_help[] =
    "belayd: a node of a Belay cluster, a replicated lock service.\n"
    "\n"
    "usage:\n"
    "  belayd --config FILE [flags]     run the node that FILE describes\n"
    "  belayd --check-config FILE       judge FILE, print the memory it takes; exit code 0 or 1\n"
    "  belayd --dev [--data DIR]        run one node on loopback to try things out\n"
    "\n"
    "flags:\n"
    "  --config FILE        YAML; see docs/examples (BELAYD_CONFIG names it, too)\n"
    "  --check-config FILE  start nothing; also judges BELAYD_* variables and the flags below\n"
    "  --dev                one node, loopback, a data directory that is removed at the end, a "
    "key\n"
    "                       of its own; needs neither a file nor root\n"
    "  --data DIR           the data directory; with --dev it is kept\n"
    "  --node N             which of the members this is\n"
    "  --workers N          worker threads\n"
    "  --set KEY=VALUE      any other setting, such as limits.leases=100000; may be repeated\n"
    "  --version            print the version\n"
    "  --help               print this\n"
    "\n"
    "A setting comes from the file, then from a BELAYD_* variable (limits.leases is\n"
    "BELAYD_LIMITS_LEASES), then from a flag; the later one wins. Durations have a unit (250ms, "
    "10s),\n"
    "sizes may have one (64KiB, 4MiB).\n"
    "\n"
    "examples:\n"
    "  belayd --dev\n"
    "  belayd --check-config /etc/belay/belayd.yaml\n"
    "  belayd --config /etc/belay/belayd.yaml --node 2\n"
    "  BELAYD_LOG_FORMAT=json belayd --config cluster.yaml --node 3 --data /srv/belay\n"
    "  belayd --dev --data ./belay-data --set limits.leases=1000 --set log.level=debug\n"
    "\n"
    "signals: TERM and INT stop the node in order; a second one ends it at once.\n"
    "exit codes: 0 stopped as asked, 1 failed (the reason is on standard error), 2 wrong usage.\n";

enum flag_kind {
    FLAG_CONFIG,
    FLAG_CHECK,
    FLAG_DEV,
    FLAG_DATA,
    FLAG_NODE,
    FLAG_WORKERS,
    FLAG_SET,
    FLAG_VERSION,
    FLAG_HELP,
    FLAG_COUNT
};

static const struct {
    const char *name;
    bool has_value;
} flags[FLAG_COUNT] = {
    [FLAG_CONFIG] = {"--config", true}, [FLAG_CHECK] = {"--check-config", true},
    [FLAG_DEV] = {"--dev", false},      [FLAG_DATA] = {"--data", true},
    [FLAG_NODE] = {"--node", true},     [FLAG_WORKERS] = {"--workers", true},
    [FLAG_SET] = {"--set", true},       [FLAG_VERSION] = {"--version", false},
    [FLAG_HELP] = {"--help", false},
};

static int unknown_flag(const char *word, struct config_error *error)
{
    uint32_t best_distance = 4;
    const char *best = NULL;
    for (int i = 0; i < FLAG_COUNT; i++) {
        uint32_t distance = word_distance(word, flags[i].name);
        if (distance < best_distance) {
            best_distance = distance;
            best = flags[i].name;
        }
    }
    if (word[0] != '-')
        return config_fail(error, "%.80s: not a flag; see belayd --help", word);
    if (best == NULL)
        return config_fail(error, "%.80s: unknown flag; see belayd --help", word);
    return config_fail(error, "%.80s: unknown flag; did you mean %s?", word, best);
}

static int add_setting(struct arguments *arguments, const char *flag, const char *key,
                       size_t key_bytes, const char *value, struct config_error *error)
{
    if (arguments->settings_count == ARGUMENTS_SETTINGS_MAX)
        return config_fail(error, "%s: more than %u settings by flags", flag,
                           (unsigned)ARGUMENTS_SETTINGS_MAX);
    struct argument_setting *setting = &arguments->settings[arguments->settings_count++];
    if (key_bytes >= sizeof setting->key)
        return config_fail(error, "%s: %.80s: unknown key", flag, key);
    setting->flag = flag;
    memcpy(setting->key, key, key_bytes);
    setting->key[key_bytes] = '\0';
    setting->value = value;
    return 0;
}

static int take_flag(struct arguments *arguments, enum flag_kind kind, const char *value,
                     struct config_error *error)
{
    const char *equals;
    switch (kind) {
    case FLAG_CONFIG:
    case FLAG_CHECK:
        if (arguments->config_path != NULL)
            return config_fail(error, "%s: a configuration file is named twice", flags[kind].name);
        arguments->config_path = value;
        arguments->check = kind == FLAG_CHECK;
        return 0;
    case FLAG_DEV:
        arguments->dev = true;
        return 0;
    case FLAG_DATA:
        arguments->data = value;
        return add_setting(arguments, "--data", "data_directory", strlen("data_directory"), value,
                           error);
    case FLAG_NODE:
        return add_setting(arguments, "--node", "node", strlen("node"), value, error);
    case FLAG_WORKERS:
        return add_setting(arguments, "--workers", "workers", strlen("workers"), value, error);
    case FLAG_SET:
        equals = strchr(value, '=');
        if (equals == NULL)
            return config_fail(error, "--set: found '%.80s', expected KEY=VALUE", value);
        return add_setting(arguments, "--set", value, (size_t)(equals - value), equals + 1, error);
    case FLAG_VERSION:
        arguments->version = true;
        return 0;
    case FLAG_HELP:
        arguments->help = true;
        return 0;
    case FLAG_COUNT:
        break;
    }
    return -EINVAL;
}

static int judge_together(const struct arguments *arguments, struct config_error *error)
{
    if (arguments->help || arguments->version)
        return 0;
    if (arguments->dev && arguments->config_path != NULL)
        return config_fail(error, "--dev: takes no configuration file; use --set for settings");
    for (uint32_t i = 0; i < arguments->settings_count && arguments->dev; i++)
        if (strcmp(arguments->settings[i].key, "node") == 0)
            return config_fail(error, "--dev: there is one node only; --node has no place here");
    return 0;
}

int arguments_parse(int count, char *const words[], struct arguments *arguments,
                    struct config_error *error)
{
    memset(arguments, 0, sizeof *arguments);
    for (int i = 1; i < count; i++) {
        const char *word = strcmp(words[i], "-h") == 0 ? "--help" : words[i];
        size_t name_bytes = strcspn(word, "=");
        int kind = 0;
        while (kind < FLAG_COUNT && (strncmp(flags[kind].name, word, name_bytes) != 0 ||
                                     flags[kind].name[name_bytes] != '\0'))
            kind++;
        if (kind == FLAG_COUNT)
            return unknown_flag(word, error);
        const char *value = word[name_bytes] == '=' ? word + name_bytes + 1 : NULL;
        if (!flags[kind].has_value && value != NULL)
            return config_fail(error, "%s: takes no value", flags[kind].name);
        if (flags[kind].has_value && value == NULL)
            value = i + 1 < count ? words[++i] : NULL;
        if (flags[kind].has_value && (value == NULL || *value == '\0'))
            return config_fail(error, "%s: a value is missing", flags[kind].name);
        int result = take_flag(arguments, (enum flag_kind)kind, value, error);
        if (result < 0)
            return result;
    }
    return judge_together(arguments, error);
}

int arguments_apply(const struct arguments *arguments, struct config *config,
                    struct config_error *error)
{
    int result = 0;
    for (uint32_t i = 0; i < arguments->settings_count && result == 0; i++)
        result = config_set(config, arguments->settings[i].flag, arguments->settings[i].key,
                            arguments->settings[i].value, error);
    return result;
}
