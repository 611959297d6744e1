/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/host/judge.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#include "client/cli/host/judge_internal.h"

struct host_finding *finding_add(struct host_findings *findings, const struct host_check *check,
                                 enum host_severity severity, const char *format, ...)
{
    va_list arguments;
    assert(findings->count < HOST_FINDINGS_MAX);
    struct host_finding *finding = &findings->items[findings->count++];
    *finding = (struct host_finding){
        .severity = (uint8_t)severity, .id = check->id, .section = check->section};
    va_start(arguments, format);
    vsnprintf(finding->is, sizeof finding->is, format, arguments);
    va_end(arguments);
    return finding;
}

void finding_should(struct host_finding *finding, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(finding->should_be, sizeof finding->should_be, format, arguments);
    va_end(arguments);
}

void finding_set(struct host_finding *finding, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(finding->set_by, sizeof finding->set_by, format, arguments);
    va_end(arguments);
}

void finding_costs(struct host_finding *finding, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(finding->costs, sizeof finding->costs, format, arguments);
    va_end(arguments);
}

const char *host_cores_text(const struct host_cpus *cores, char text[HOST_LIST_BYTES])
{
    int used = snprintf(text, HOST_LIST_BYTES, host_cpus_count(cores) == 1 ? "core " : "cores ");
    host_cpus_text(cores, text + used, HOST_LIST_BYTES - (size_t)used);
    return text;
}

const char *host_state_text(uint8_t state)
{
    switch ((enum host_state)state) {
    case HOST_MISSING:
        return "there is no such file here";
    case HOST_DENIED:
        return "it may not be read by this user";
    case HOST_FAILED:
        return "it cannot be read";
    case HOST_GARBLED:
        return "it does not hold what a kernel writes there";
    case HOST_HIDDEN:
        return "only the processes of this container can be seen";
    case HOST_NOT_ASKED:
    case HOST_KNOWN:
        break;
    }
    return "it was not looked at";
}

void finding_unknown(struct host_findings *findings, const struct host_check *check, uint8_t state,
                     const char *path)
{
    (void)finding_add(findings, check, HOST_NOT_KNOWN, "%s: %s", path, host_state_text(state));
}

size_t host_findings_count(const struct host_findings *findings, enum host_severity severity)
{
    size_t count = 0;
    for (size_t i = 0; i < findings->count; i++)
        count += findings->items[i].severity == severity;
    return count;
}

const char *host_severity_name(uint8_t severity)
{
    static const char *const names[HOST_SEVERITIES] = {"ok", "advice", "unknown", "warning",
                                                       "error"};
    return severity < HOST_SEVERITIES ? names[severity] : "unknown";
}

void host_judge(const struct host_facts *facts, struct host_findings *findings)
{
    findings->count = 0;
    judge_cores(facts, findings);
    judge_interrupts(facts, findings);
    judge_kernel(facts, findings);
    judge_memory(facts, findings);
    judge_card(facts, findings);
    judge_udp(facts, findings);
    judge_disk(facts, findings);
}
