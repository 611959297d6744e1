/* SPDX-License-Identifier: Apache-2.0
 *
 * check-host is total: a machine of any files gives findings that can be printed, and one of no
 * files is not well in anything. Seeds: the machines of tests/golden/host.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/host/judge.h"
#include "tests/unit/host_rig.h"

static void must(bool condition)
{
    if (!condition)
        abort();
}

/* What is printed ends inside its buffer and cannot move a terminal's cursor. */
static void judge_text(const char *text, size_t bytes)
{
    size_t count = strnlen(text, bytes);
    must(count < bytes);
    for (size_t i = 0; i < count; i++)
        must(text[i] >= ' ' && text[i] <= '~');
}

static void judge_findings(const struct host_findings *findings, bool nothing_is_there)
{
    static const char *const sections[] = {"Cores",    "Clock and scheduler", "Memory",
                                           "The card", "Kernel UDP",          "Disk"};
    must(findings->count > 0 && findings->count <= HOST_FINDINGS_MAX);
    for (size_t i = 0; i < findings->count; i++) {
        const struct host_finding *finding = &findings->items[i];
        bool known = false;
        for (size_t j = 0; j < sizeof sections / sizeof sections[0]; j++)
            known = known || strcmp(finding->section, sections[j]) == 0;
        must(known && finding->severity < HOST_SEVERITIES && finding->is[0] != '\0');
        judge_text(finding->is, sizeof finding->is);
        judge_text(finding->should_be, sizeof finding->should_be);
        judge_text(finding->set_by, sizeof finding->set_by);
        judge_text(finding->costs, sizeof finding->costs);
        /* Whoever finds fault says what to do about it and why. */
        bool fault = finding->severity != HOST_OK && finding->severity != HOST_NOT_KNOWN;
        must(fault == (finding->should_be[0] != '\0') && fault == (finding->set_by[0] != '\0') &&
             fault == (finding->costs[0] != '\0'));
        if (nothing_is_there)
            must(finding->severity == HOST_NOT_KNOWN || strcmp(finding->id, "cores") == 0);
    }
}

/* A set that fits its text is read back as it was. */
static void judge_cpus(struct host_text text)
{
    static char shown[HOST_CPUS_MAX * 5];
    struct host_set list = host_parse_cpus(text), mask = host_parse_mask(text);
    const struct host_set *sets[] = {&list, &mask};
    for (size_t i = 0; i < 2; i++) {
        if (sets[i]->state != HOST_KNOWN || host_cpus_count(&sets[i]->cpus) == 0)
            continue;
        host_cpus_text(&sets[i]->cpus, shown, sizeof shown);
        struct host_set again = host_parse_cpus(host_text_of(shown));
        must(again.state == HOST_KNOWN &&
             memcmp(&again.cpus, &sets[i]->cpus, sizeof again.cpus) == 0);
        char small[16];
        host_cpus_text(&sets[i]->cpus, small, sizeof small);
        judge_text(small, sizeof small);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    static struct host_rig rig;
    static struct host_facts facts;
    static struct host_findings findings;
    struct host_text text = {(const char *)bytes, length};
    static const char *const devices[] = {NULL, "0000:3b:00.0", "eth0", "0000:00:1f.6"};
    static const char *const directories[] = {NULL, "/var/lib/belay", "/home/me/belay", "/"};
    size_t choice = length > 0 ? bytes[length - 1] : 0;

    host_rig_load(&rig, text);
    struct host_source source = host_rig_source(&rig);
    for (size_t i = 0; i < 4; i++) {
        struct host_request request = {
            .cores_given = i > 0, .device = devices[i], .data_dir = directories[(i + choice) % 4]};
        if (i > 0) {
            host_cpus_add(&request.cores, 2);
            host_cpus_add(&request.cores, 3);
        }
        host_collect(&source, &request, &facts);
        host_judge(&facts, &findings);
        judge_findings(&findings, rig.count == 0);
    }
    judge_cpus(text);
    (void)host_parse_number(text);
    (void)host_parse_choice(text);
    for (size_t i = 0; i < 4; i++)
        if (directories[i])
            must(host_mount_covers(text, directories[i]) <= strlen(directories[i]));
    return 0;
}
