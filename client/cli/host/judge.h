/* SPDX-License-Identifier: Apache-2.0
 *
 * Judgements: facts in, findings out. Each says what is, what should be, how to set it, what it
 * costs if it is left, and which section of docs/tuning.md teaches it.
 */
#ifndef BELAY_CLI_HOST_JUDGE_H
#define BELAY_CLI_HOST_JUDGE_H

#include "client/cli/host/facts.h"

enum host_severity {
    HOST_OK = 0,
    HOST_ADVICE = 1,
    HOST_NOT_KNOWN = 2, /* could not be seen: neither good nor bad */
    HOST_WARNING = 3,   /* belayd runs, slower or less evenly than this machine could */
    HOST_ERROR = 4,     /* belayd would not start so, or not keep its promises */
    HOST_SEVERITIES = 5,
};

enum { HOST_FINDINGS_MAX = 64 };

struct host_finding {
    uint8_t severity; /* enum host_severity */
    const char *id;
    const char *section; /* of docs/tuning.md */
    char is[320];
    char should_be[160]; /* this and those below are empty where there is nothing to say */
    char set_by[256];
    char costs[256];
};

struct host_findings {
    size_t count;
    struct host_finding items[HOST_FINDINGS_MAX];
};

/* All judgements, in the order of the page. What was not asked about (no device, no data directory)
 * has no finding. */
void host_judge(const struct host_facts *facts, struct host_findings *findings);

/* How many there are of a severity. */
size_t host_findings_count(const struct host_findings *findings, enum host_severity severity);

const char *host_severity_name(uint8_t severity);

#endif
