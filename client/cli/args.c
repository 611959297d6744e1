/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/args.h"

#include <signal.h>
#include <string.h>

#define AT(field)     offsetof(struct args_values, field)
#define COUNTOF(list) (sizeof(list) / sizeof((list)[0]))

const struct args_option args_global_options[] = {
    {"endpoints", 'e', ARGS_ENDPOINTS, AT(endpoints), 0, "H:P,...",
     "nodes to ask (else $BELAY_ENDPOINTS, else 127.0.0.1:7400)"},
    {"namespace", 'n', ARGS_NAMESPACE, AT(name_space), 0, "NS",
     "name space of the lock (else $BELAY_NAMESPACE, else the empty one)"},
    {"output", 'o', ARGS_OUTPUT, AT(output), 0, "FORMAT", "table (default) or json"},
    {"timeout", 't', ARGS_DURATION, AT(timeout_ms), AT(timeout_set), "TIME",
     "how long to wait for an answer from the cluster (default 5s)"},
    {"help", 'h', ARGS_FLAG, AT(help), 0, NULL, "this text"},
};
const size_t args_global_options_count = COUNTOF(args_global_options);

void args_values_defaults(struct args_values *values)
{
    *values = (struct args_values){
        .timeout_ms = 5000,
        .ttl_ms = 10000,
        .on_lost_signal = SIGTERM,
    };
}

static bool set_choice(const char *text, const char *no, const char *yes, bool *chosen,
                       struct parse_error *error)
{
    if (strcmp(text, no) != 0 && strcmp(text, yes) != 0) {
        parse_fail(error, "'%.60s' is neither '%s' nor '%s'", text, no, yes);
        return false;
    }
    *chosen = strcmp(text, yes) == 0;
    return true;
}

static bool set_value(const struct args_option *option, const char *text, void *target,
                      struct parse_error *error)
{
    bool chosen = false;
    switch ((enum args_kind)option->kind) {
    case ARGS_FLAG:
        *(bool *)target = true;
        return true;
    case ARGS_DURATION:
        return parse_duration_ms(text, target, error);
    case ARGS_PRIORITY:
        return parse_number(text, 0, 255, target, error);
    case ARGS_TOKEN:
        return parse_token(text, target, error);
    case ARGS_SIGNAL:
        return parse_signal(text, target, error);
    case ARGS_OUTPUT:
        if (!set_choice(text, "table", "json", &chosen, error))
            return false;
        *(uint8_t *)target = chosen ? ARGS_JSON : ARGS_TABLE;
        return true;
    case ARGS_LEFTOVERS:
        return set_choice(text, "end", "wait", target, error);
    case ARGS_ENDPOINTS:
        if (!parse_endpoints(text, error))
            return false;
        break;
    case ARGS_NAMESPACE:
        if (!parse_namespace(text, error))
            return false;
        break;
    case ARGS_VALUE:
        if (!parse_value(text, error))
            return false;
        break;
    case ARGS_TEXT:
        if (text[0] == '\0') {
            parse_fail(error, "must not be empty");
            return false;
        }
        break;
    }
    *(const char **)target = text;
    return true;
}

static bool store(const struct args_option *option, const char *text, struct args_values *values,
                  struct parse_error *error)
{
    struct parse_error reason = {""};
    if (!set_value(option, text, (char *)values + option->offset, &reason)) {
        parse_fail(error, "--%s: %s", option->name, reason.text);
        return false;
    }
    if (option->set != ARGS_NOTHING_SET)
        *(bool *)((char *)values + option->set) = true;
    return true;
}

static const struct args_option *find_in(const struct args_option *options, size_t count,
                                         const char *name, size_t name_bytes, char letter)
{
    for (size_t i = 0; i < count; i++) {
        if (letter ? options[i].letter == letter
                   : strlen(options[i].name) == name_bytes &&
                         memcmp(options[i].name, name, name_bytes) == 0)
            return &options[i];
    }
    return NULL;
}

static const struct args_option *find(const struct args_command *command, const char *name,
                                      size_t name_bytes, char letter)
{
    const struct args_option *option =
        find_in(args_global_options, args_global_options_count, name, name_bytes, letter);
    if (!option && command)
        option = find_in(command->options, command->options_count, name, name_bytes, letter);
    return option;
}

/* One option at argv[0]; returns how many words it took, 0 = error. */
static int parse_option(const struct args_command *command, int argc, char **argv,
                        struct args_values *values, struct parse_error *error)
{
    const char *word = argv[0];
    bool is_long = word[1] == '-';
    const char *name = word + 2;
    size_t name_bytes = is_long ? strcspn(name, "=") : 0;
    const struct args_option *option = find(command, name, name_bytes, is_long ? '\0' : word[1]);
    if (!option) {
        parse_fail(error, "unknown option '%.60s'%s", word,
                   command ? "" : " (options of a command stand after its name)");
        return 0;
    }
    /* "--name=text" and "-xtext" carry their value; else it is the next word. */
    const char *attached = is_long ? (name[name_bytes] == '=' ? name + name_bytes + 1 : NULL)
                                   : (word[2] ? word + 2 : NULL);
    if (option->kind == ARGS_FLAG) {
        if (attached) {
            parse_fail(error, "--%s takes no value", option->name);
            return 0;
        }
        return store(option, NULL, values, error) ? 1 : 0;
    }
    if (!attached && argc < 2) {
        parse_fail(error, "--%s needs a value: %s", option->name, option->metavar);
        return 0;
    }
    if (!store(option, attached ? attached : argv[1], values, error))
        return 0;
    return attached ? 1 : 2;
}

static bool check_counts(const struct args_command *command, const struct args_given *given,
                         struct parse_error *error)
{
    if (given->positionals_count < command->positionals_min) {
        parse_fail(error, "too few arguments; usage: belay %s %s", command->name,
                   command->synopsis);
        return false;
    }
    if (given->positionals_count > command->positionals_max) {
        parse_fail(error, "unexpected argument '%.60s'; usage: belay %s %s",
                   given->positionals[command->positionals_max], command->name, command->synopsis);
        return false;
    }
    if (command->takes_rest && (!given->rest || !given->rest[0])) {
        parse_fail(error, "no command given: end the options with '--' and write it after that");
        return false;
    }
    if (!command->takes_rest && given->rest && given->rest[0]) {
        parse_fail(error, "unexpected argument '%.60s' after '--'", given->rest[0]);
        return false;
    }
    return true;
}

bool args_parse(const struct args_command *command, int argc, char **argv,
                struct args_values *values, struct args_given *given, struct parse_error *error)
{
    *given = (struct args_given){.positionals = argv};
    for (int i = 0; i < argc;) {
        char *word = argv[i];
        if (strcmp(word, "--") == 0) {
            given->rest = argv + i + 1;
            break;
        }
        if (word[0] == '-' && word[1] != '\0') {
            int taken = parse_option(command, argc - i, argv + i, values, error);
            if (taken == 0)
                return false;
            i += taken;
            continue;
        }
        if (!command) { /* the command's name: the rest is for its own pass */
            given->rest = argv + i;
            return true;
        }
        argv[given->positionals_count++] = word;
        i++;
    }
    return !command || values->help || check_counts(command, given, error);
}

void args_print_options(FILE *stream, const struct args_option *options, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char left[64];
        char letter[8] = "    ";
        if (options[i].letter)
            snprintf(letter, sizeof letter, "-%c, ", options[i].letter);
        snprintf(left, sizeof left, "%s--%s%s%s", letter, options[i].name,
                 options[i].metavar ? " " : "", options[i].metavar ? options[i].metavar : "");
        fprintf(stream, "  %-26s %s\n", left, options[i].help);
    }
}
