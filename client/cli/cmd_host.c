/* SPDX-License-Identifier: Apache-2.0
 *
 * `belay check-host`: what of this machine is not set right for belayd. It asks no cluster.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/command.h"
#include "client/cli/host/judge.h"
#include "client/cli/host/source.h"

static int refuse(const char *format, const char *text)
{
    struct parse_error error;
    char shown[PRINTABLE_BYTES];
    size_t count = strlen(text);
    parse_fail(&error, format, printable(text, count > 60 ? 60 : count, shown, sizeof shown));
    return command_usage_error("check-host", &error);
}

static bool take_cores(const char *text, struct host_request *request)
{
    struct host_set set = host_parse_cpus(host_text_of(text));
    size_t count = host_cpus_count(&set.cpus);
    request->cores_given = true;
    request->cores = set.cpus;
    return set.state == HOST_KNOWN && count > 0 && count <= HOST_CORES_MAX;
}

/* An interface, or a PCI address, to which the usual domain is added if it has none. */
static bool take_device(const char *text, char device[HOST_WORD_BYTES])
{
    const char *colon = strchr(text, ':');
    bool short_address = colon && !strchr(colon + 1, ':');
    if (strchr(text, '/') || text[0] == '.' || text[0] == '\0' || strlen(text) > 40 ||
        host_parse_word(host_text_of(text)).state != HOST_KNOWN)
        return false;
    snprintf(device, HOST_WORD_BYTES, "%s%s", short_address ? "0000:" : "", text);
    return true;
}

/* ---- output ---------------------------------------------------------------------------------- */

static bool is_shown(const struct args_values *values, const struct host_finding *finding)
{
    return values->all || finding->severity != HOST_OK;
}

static void print_part(const char *label, const char *text)
{
    if (text[0])
        printf("         %-11s%s\n", label, text);
}

static void print_text(const struct args_values *values, const struct host_findings *findings)
{
    for (size_t i = 0; i < findings->count; i++) {
        const struct host_finding *finding = &findings->items[i];
        if (!is_shown(values, finding))
            continue;
        printf("%-8s %s: %s\n", host_severity_name(finding->severity), finding->id, finding->is);
        print_part("should be:", finding->should_be);
        print_part("to set it:", finding->set_by);
        print_part("if left:", finding->costs);
        if (finding->severity != HOST_OK)
            printf("         %-11sdocs/tuning.md, %s\n\n", "see:", finding->section);
    }
    for (int severity = HOST_ERROR; severity >= HOST_OK; severity--)
        printf("%zu %s%s", host_findings_count(findings, (enum host_severity)severity),
               host_severity_name((uint8_t)severity), severity > HOST_OK ? ", " : "\n");
}

static json_t *finding_json(const struct host_finding *finding)
{
    json_t *object = json_object();
    json_set_text(object, "severity", host_severity_name(finding->severity));
    json_set_text(object, "id", finding->id);
    json_set_text(object, "is", finding->is);
    if (finding->should_be[0])
        json_set_text(object, "should_be", finding->should_be);
    if (finding->set_by[0])
        json_set_text(object, "set_by", finding->set_by);
    if (finding->costs[0])
        json_set_text(object, "costs", finding->costs);
    json_set_text(object, "section", finding->section);
    return object;
}

static int print_json(const struct args_values *values, const struct host_findings *findings,
                      int code)
{
    json_t *root = json_object(), *list = json_array(), *counts = json_object();
    for (size_t i = 0; i < findings->count; i++)
        if (is_shown(values, &findings->items[i]))
            json_array_append_new(list, finding_json(&findings->items[i]));
    for (int severity = HOST_ERROR; severity >= HOST_OK; severity--)
        json_set_number(counts, host_severity_name((uint8_t)severity),
                        host_findings_count(findings, (enum host_severity)severity));
    json_object_set_new(root, "findings", list);
    json_object_set_new(root, "counts", counts);
    return json_print_and_free(root, code);
}

static int code_of(const struct host_findings *findings)
{
    if (host_findings_count(findings, HOST_ERROR) > 0 ||
        host_findings_count(findings, HOST_WARNING) > 0)
        return EXIT_CODE_HOST_UNFIT;
    return host_findings_count(findings, HOST_NOT_KNOWN) > 0 ? EXIT_CODE_HOST_UNSEEN : EXIT_CODE_OK;
}

static int print_findings(const struct args_values *values, const struct host_findings *findings)
{
    int code = code_of(findings);
    if (values->output == ARGS_JSON)
        return print_json(values, findings, code);
    print_text(values, findings);
    if (fflush(stdout) != 0) {
        fprintf(stderr, "belay: cannot write the result to standard output\n");
        return exit_code_of(BELAY_SYSTEM);
    }
    return code;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int run_check_host(const struct args_values *values, const struct args_given *given)
{
    (void)given;
    static struct host_facts facts;
    static struct host_findings findings;
    struct host_request request = {.cores_given = false};
    struct host_source source;
    char device[HOST_WORD_BYTES];
    const char *at = values->root ? values->root : "/";
    bool here = strcmp(at, "/") == 0;

    if (values->cores && !take_cores(values->cores, &request))
        return refuse("--cores: '%s' is no list of cores (such as 2-3,8; at most 256, below 1024)",
                      values->cores);
    if (values->device && !take_device(values->device, device))
        return refuse("--device: '%s' is neither a PCI address (0000:3b:00.0) nor an interface",
                      values->device);
    if (values->data_directory &&
        (values->data_directory[0] != '/' || strlen(values->data_directory) >= HOST_PATH_BYTES))
        return refuse("--data-dir: '%s' is no absolute path of at most 511 bytes",
                      values->data_directory);
    request.device = values->device ? device : NULL;
    request.data_dir = values->data_directory;
    /* Links of a copied root lead to the machine that it was copied from: its path is taken as it
     * is written. */
    char *real = request.data_dir && here ? realpath(request.data_dir, NULL) : NULL;
    if (request.data_dir && here && (!real || strlen(real) >= HOST_PATH_BYTES)) {
        fprintf(stderr, "belay: --data-dir %s: %s; make it first\n", request.data_dir,
                strerror(real ? ENAMETOOLONG : errno));
        free(real);
        return exit_code_of(BELAY_SYSTEM);
    }
    struct host_root *root = host_root_open(at, &source);
    if (!root) {
        fprintf(stderr, "belay: --root %s: %s; it is a directory with proc and sys in it\n", at,
                strerror(errno));
        free(real);
        return exit_code_of(BELAY_SYSTEM);
    }
    if (real)
        request.data_dir = real;
    host_collect(&source, &request, &facts);
    host_root_close(root);
    free(real);
    host_judge(&facts, &findings);
    return print_findings(values, &findings);
}

static const struct args_option check_host_options[] = {
    {"cores", 0, ARGS_TEXT, OPTION_AT(cores), 0, "LIST",
     "cores for workers, such as 2-3 (default: those that are isolated)"},
    {"device", 0, ARGS_TEXT, OPTION_AT(device), 0, "DEVICE",
     "a card by its PCI address (for DPDK) or its interface (for kernel UDP)"},
    {"data-dir", 0, ARGS_TEXT, OPTION_AT(data_directory), 0, "DIR",
     "belayd's data_directory: its file system and disk"},
    {"root", 0, ARGS_TEXT, OPTION_AT(root), 0, "DIR",
     "read DIR/proc and DIR/sys, a copy of another machine's"},
    {"all", 0, ARGS_FLAG, OPTION_AT(all), 0, NULL, "also show what is as it should be"},
};

const struct args_command command_check_host = {
    .name = "check-host",
    .synopsis = "[--cores LIST] [--device DEVICE] [--data-dir DIR] [--root DIR] [--all]",
    .summary = "what of this machine is not set right for belayd",
    .description =
        "Reads /proc and /sys, changes nothing and asks no cluster. For each finding: what is, "
        "what\n"
        "should be, how to set it, what it costs if it is left, and the section of "
        "docs/tuning.md.\n"
        "What cannot be read is `unknown`, with the reason, and never taken to be well. Of limits\n"
        "it sees those of the shell it runs in, not those of belayd's service.",
    .examples =
        "  belay check-host\n"
        "  belay check-host --cores 2-3 --device 0000:3b:00.0 --data-dir /var/lib/belay\n"
        "  belay check-host --all -o json | jq '.findings[] | select(.severity == \"error\")'\n"
        "  belay check-host --root ./bundle-of-db1 --cores 2-3\n",
    .options = check_host_options,
    .options_count = COUNT_OF(check_host_options),
    .positionals_min = 0,
    .positionals_max = 0,
    .run = run_check_host,
};
