/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of judgements share.
 */
#ifndef BELAY_CLI_HOST_JUDGE_INTERNAL_H
#define BELAY_CLI_HOST_JUDGE_INTERNAL_H

#include "client/cli/host/judge.h"

/* The name of a check and the section that teaches it. */
struct host_check {
    const char *id;
    const char *section;
};

enum { HOST_LIST_BYTES = 80 };

/* Each begins or completes a finding; the texts are formatted and cut to their place. */
struct host_finding *finding_add(struct host_findings *findings, const struct host_check *check,
                                 enum host_severity severity, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void finding_should(struct host_finding *finding, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void finding_set(struct host_finding *finding, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void finding_costs(struct host_finding *finding, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* "unknown", with the reason: "PATH: there is no such file". */
void finding_unknown(struct host_findings *findings, const struct host_check *check, uint8_t state,
                     const char *path);

const char *host_state_text(uint8_t state);

/* "core 2" or "cores 2-3". Returns `text`. */
const char *host_cores_text(const struct host_cpus *cores, char text[HOST_LIST_BYTES]);

void judge_cores(const struct host_facts *facts, struct host_findings *findings);
void judge_interrupts(const struct host_facts *facts, struct host_findings *findings);
void judge_kernel(const struct host_facts *facts, struct host_findings *findings);
void judge_memory(const struct host_facts *facts, struct host_findings *findings);
void judge_card(const struct host_facts *facts, struct host_findings *findings);
void judge_udp(const struct host_facts *facts, struct host_findings *findings);
void judge_disk(const struct host_facts *facts, struct host_findings *findings);

#endif
