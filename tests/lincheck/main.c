/* SPDX-License-Identifier: Apache-2.0
 *
 * belay-lincheck: is this history linearizable?
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lincheck/verdict.h"

enum exit_code { EXIT_LINEARIZABLE, EXIT_NOT_LINEARIZABLE, EXIT_UNREADABLE, EXIT_UNKNOWN };

static const char usage_text[] =
    "usage: belay-lincheck --model MODEL [options] FILE     ('-': standard input)\n"
    "\n"
    "  --model M         register, kv, mutex, reentrant-mutex, fenced-mutex, shared-lock, "
    "semaphore\n"
    "  --format F        auto (default), jepsen, edn, json\n"
    "  --permits N       semaphore: how many permits there are (default 1)\n"
    "  --holds N         reentrant-mutex: how often one owner may hold it (default: any number)\n"
    "  --initial VALUE   register, kv: the value before the first operation, in EDN (default nil)\n"
    "  --owners O        who may release: process (default) or any (default for a mutex in EDN or\n"
    "                    Jepsen's text, as in Knossos)\n"
    "  --failed-cas R    observe: a failed cas was a comparison that did not match (default);\n"
    "                    ignore: it says nothing (default in EDN, as in Knossos)\n"
    "  --independent     every value is [key value]\n"
    "  --memory MIB      use at most so much memory (default 1024)\n"
    "\n"
    "exit: 0 linearizable, 1 not linearizable, 2 bad arguments or file, 3 unknown: out of memory\n";

struct arguments {
    struct history_options history;
    uint32_t permits, holds;
    const char *initial; /* NULL: not given */
    size_t memory_mib;
    const char *file;
};

static int parse_number(const char *name, const char *text, unsigned long maximum,
                        unsigned long *value)
{
    char *end;
    errno = 0;
    *value = strtoul(text, &end, 10);
    if (text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && *value >= 1 &&
        *value <= maximum)
        return 0;
    fprintf(stderr, "belay-lincheck: --%s wants a number from 1 to %lu, not '%s'\n", name, maximum,
            text);
    return -EINVAL;
}

/* The index of the word among those given; they end with NULL. */
static int parse_word(const char *name, const char *text, const char *const *words)
{
    for (int i = 0; words[i] != NULL; i++)
        if (strcmp(words[i], text) == 0)
            return i;
    fprintf(stderr, "belay-lincheck: --%s cannot be '%s' (see --help)\n", name, text);
    return -EINVAL;
}

static int take_option(struct arguments *arguments, const char *name, const char *text)
{
    static const char *const formats[] = {"auto", "jepsen", "edn", "json", NULL};
    static const char *const owners[] = {"auto", "process", "any", NULL};
    static const char *const failed[] = {"auto", "observe", "ignore", NULL};
    unsigned long number = 0;
    int result = 0;
    if (strcmp(name, "format") == 0) {
        result = parse_word(name, text, formats);
        arguments->history.format = (enum history_format)result;
    } else if (strcmp(name, "owners") == 0) {
        result = parse_word(name, text, owners);
        arguments->history.owners = (enum owner_rule)result;
    } else if (strcmp(name, "failed-cas") == 0) {
        result = parse_word(name, text, failed);
        arguments->history.failed_cas = (enum failed_cas_rule)result;
    } else if (strcmp(name, "permits") == 0) {
        result = parse_number(name, text, UINT32_MAX, &number);
        arguments->permits = (uint32_t)number;
    } else if (strcmp(name, "holds") == 0) {
        result = parse_number(name, text, UINT32_MAX, &number);
        arguments->holds = (uint32_t)number;
    } else if (strcmp(name, "memory") == 0) {
        result = parse_number(name, text, SIZE_MAX >> 20, &number);
        arguments->memory_mib = number;
    } else if (strcmp(name, "initial") == 0) {
        arguments->initial = text;
    } else if (strcmp(name, "independent") == 0) {
        arguments->history.independent = true;
    } else if (model_by_name(text, &arguments->history.model) < 0) {
        fprintf(stderr, "belay-lincheck: there is no model '%s' (see --help)\n", text);
        result = -EINVAL;
    }
    return result < 0 ? result : 0;
}

/* 0, -EINVAL, or 1: help was asked for and given. */
static int parse_arguments(struct arguments *arguments, int argc, char **argv)
{
    static const struct option options[] = {{"model", required_argument, NULL, 'm'},
                                            {"format", required_argument, NULL, 'o'},
                                            {"owners", required_argument, NULL, 'o'},
                                            {"failed-cas", required_argument, NULL, 'o'},
                                            {"permits", required_argument, NULL, 'o'},
                                            {"holds", required_argument, NULL, 'o'},
                                            {"memory", required_argument, NULL, 'o'},
                                            {"initial", required_argument, NULL, 'o'},
                                            {"independent", no_argument, NULL, 'o'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    bool model_given = false;
    int choice, index = 0;
    while ((choice = getopt_long(argc, argv, "h", options, &index)) != -1) {
        if (choice == 'h') {
            fputs(usage_text, stdout);
            return 1;
        }
        if (choice == '?' || take_option(arguments, options[index].name, optarg) < 0)
            return -EINVAL;
        model_given |= choice == 'm';
    }
    if (!model_given || optind + 1 != argc) {
        fputs(usage_text, stderr);
        return -EINVAL;
    }
    arguments->file = argv[optind];
    return 0;
}

/* The whole file. 0, -ENOMEM, or the negative errno of reading it. */
static int read_file(struct budget *budget, const char *name, char **bytes, size_t *length,
                     size_t *capacity)
{
    bool standard = strcmp(name, "-") == 0;
    FILE *file = standard ? stdin : fopen(name, "rb");
    if (file == NULL)
        return -errno;
    int result = 0;
    for (size_t got = 1; got > 0 && result == 0;) {
        result = budget_reserve(budget, (void **)bytes, capacity, *length + 4096, 1);
        if (result < 0)
            break;
        errno = 0;
        got = fread(*bytes + *length, 1, *capacity - *length, file);
        *length += got;
        if (ferror(file))
            result = errno != 0 ? -errno : -EIO;
    }
    if (!standard)
        fclose(file);
    return result;
}

static int say_unknown(const struct arguments *arguments, int problem)
{
    if (problem == -E2BIG)
        puts("unknown: a lock has more holders than can be kept track of");
    else
        printf("unknown: %zu MiB of memory do not suffice (raise --memory)\n",
               arguments->memory_mib);
    return EXIT_UNKNOWN;
}

static int judge(const struct arguments *arguments, struct history *history)
{
    struct model model;
    struct verdict verdict;
    int result = model_init(&model, arguments->history.model, history, arguments->initial);
    if (result == -EINVAL) {
        fprintf(stderr, "belay-lincheck: --initial is no value in EDN: '%s'\n", arguments->initial);
        return EXIT_UNREADABLE;
    }
    if (result < 0)
        return say_unknown(arguments, result);
    model.permits_max = arguments->permits;
    model.holds_max = arguments->holds;
    verdict_find(&verdict, &model);
    int code = EXIT_LINEARIZABLE;
    if (verdict.verdict == SEARCH_LINEARIZABLE) {
        printf("linearizable\n%zu operations on %zu keys, %zu more failed; %zu steps\n",
               history->ops_count, verdict.keys_count, history->failed_count, verdict.steps_count);
    } else if (verdict.verdict == SEARCH_NOT_LINEARIZABLE) {
        puts("not linearizable");
        verdict_print(&verdict, &model, stdout);
        code = EXIT_NOT_LINEARIZABLE;
    } else {
        code = say_unknown(arguments, verdict.problem);
    }
    verdict_free(&verdict, &model);
    model_free(&model);
    return code;
}

static int check_file(const struct arguments *arguments)
{
    struct budget budget = {.limit_bytes = arguments->memory_mib << 20};
    struct history history;
    struct parse_error error;
    char *bytes = NULL;
    size_t length = 0, capacity = 0;
    history_init(&history, &budget);
    int result = read_file(&budget, arguments->file, &bytes, &length, &capacity);
    int code = EXIT_UNREADABLE;
    if (result < 0 && result != -ENOMEM) {
        fprintf(stderr, "belay-lincheck: %s: %s\n", arguments->file, strerror(-result));
    } else {
        if (result == 0)
            result = history_read(&history, &arguments->history, bytes, length, &error);
        budget_release(&budget, bytes, capacity);
        bytes = NULL;
        if (result == 0)
            code = judge(arguments, &history);
        else if (result == -ENOMEM)
            code = say_unknown(arguments, result);
        else if (error.line != 0)
            fprintf(stderr, "belay-lincheck: %s:%" PRIu32 ": %s\n", arguments->file, error.line,
                    error.text);
        else
            fprintf(stderr, "belay-lincheck: %s: %s\n", arguments->file, error.text);
    }
    budget_release(&budget, bytes, capacity);
    history_free(&history);
    return code;
}

int main(int argc, char **argv)
{
    struct arguments arguments = {.permits = 1, .memory_mib = 1024};
    int result = parse_arguments(&arguments, argc, argv);
    if (result != 0)
        return result > 0 ? EXIT_LINEARIZABLE : EXIT_UNREADABLE;
    int code = check_file(&arguments);
    /* A verdict that nobody could read is none. */
    if (fflush(stdout) != 0 || ferror(stdout))
        return EXIT_UNREADABLE;
    return code;
}
