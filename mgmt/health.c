/* SPDX-License-Identifier: Apache-2.0
 *
 * See mgmt/health.h.
 */
#include "mgmt/health.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mgmt/node.h"

enum { WHY_BYTES = 512, STATUS_OK = 200, STATUS_NOT_FOUND = 404, STATUS_UNAVAILABLE = 503 };

struct health_check {
    const char *name;
    /* False: `why` says what is wrong. */
    bool (*passes)(const struct node *node, char why[WHY_BYTES]);
};

/* ---- checks ---------------------------------------------------------------------------------- */

static bool process_passes(const struct node *node, char why[WHY_BYTES])
{
    if (!node_failed(node))
        return true;
    snprintf(why, WHY_BYTES, "the node cannot go on: %s", node_failure_text(node));
    return false;
}

static bool state_passes(const struct node *node, char why[WHY_BYTES])
{
    switch (node_state(node)) {
    case NODE_RUNNING:
        return true;
    case NODE_STARTING:
        snprintf(why, WHY_BYTES, "starting: it recovers, or waits for the other members");
        break;
    case NODE_STEPPING_DOWN:
        snprintf(why, WHY_BYTES, "the disk is full: leadership was given up until a restart");
        break;
    case NODE_STOPPING:
        snprintf(why, WHY_BYTES, "stopping");
        break;
    }
    return false;
}

static bool leaders_pass(const struct node *node, char why[WHY_BYTES])
{
    const struct board *board = node_board(node);
    uint16_t shards = board->options->shards;
    uint32_t without = 0, shown = 0;
    int used = 0;
    char list[WHY_BYTES / 2] = "";
    for (uint16_t s = 0; s < shards; s++) {
        if (BOARD_GET(board->shards[s].leader_node) != 0)
            continue;
        without++;
        if (used < (int)sizeof list - 16) {
            used += snprintf(list + used, sizeof list - (size_t)used, "%s%u", used == 0 ? "" : ", ",
                             (unsigned)s);
            shown++;
        }
    }
    if (without == 0)
        return true;
    snprintf(why, WHY_BYTES, "no leader is known of %u of %u shards: %s%s", (unsigned)without,
             (unsigned)shards, list, shown < without ? ", ..." : "");
    return false;
}

static const struct health_check live_checks[] = {
    {"process", process_passes},
};
static const struct health_check ready_checks[] = {
    {"process", process_passes},
    {"state", state_passes},
    {"leaders", leaders_pass},
};

/* ---- pages ----------------------------------------------------------------------------------- */

struct page {
    const char *name;
    const struct health_check *checks;
    size_t count;
};

static void answer_text(struct http_answer *answer, unsigned status, char *text, size_t bytes)
{
    *answer = (struct http_answer){
        .status = status, .type = "text/plain; charset=utf-8", .text = text, .bytes = bytes};
}

static void answer_unknown(const struct page *page, struct http_answer *answer)
{
    char detail[256];
    int used = snprintf(detail, sizeof detail, "%s has the checks", page->name);
    for (size_t i = 0; i < page->count && used < (int)sizeof detail; i++)
        used += snprintf(detail + used, sizeof detail - (size_t)used, "%s %s", i > 0 ? "," : "",
                         page->checks[i].name);
    http_problem(answer, STATUS_NOT_FOUND, "no such check", detail);
}

static void answer_page(const struct page *page, const struct node *node,
                        const struct http_request *request, struct http_answer *answer)
{
    char *text = NULL;
    size_t bytes = 0, asked = 0;
    bool passed = true;
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL)
        return; /* an answer without text closes the connection */
    for (size_t i = 0; i < page->count; i++) {
        char why[WHY_BYTES] = "";
        if (request->rest[0] != '\0' && strcmp(request->rest, page->checks[i].name) != 0)
            continue;
        asked++;
        if (page->checks[i].passes(node, why)) {
            fprintf(out, "[+] %s\n", page->checks[i].name);
        } else {
            passed = false;
            fprintf(out, "[-] %s: %s\n", page->checks[i].name, why);
        }
    }
    fprintf(out, "%s: %s\n", page->name, passed ? "passed" : "failed");
    fclose(out);
    if (asked == 0) {
        free(text);
        answer_unknown(page, answer);
        return;
    }
    if (passed && !request->verbose && text != NULL) {
        static const char ok[] = "ok\n"; /* shorter than the line of any check */
        bytes = strlen(ok);
        memcpy(text, ok, sizeof ok);
    }
    answer_text(answer, passed ? STATUS_OK : STATUS_UNAVAILABLE, text, bytes);
}

void health_live(void *context, const struct http_request *request, struct http_answer *answer)
{
    static const struct page page = {"livez", live_checks,
                                     sizeof live_checks / sizeof *live_checks};
    answer_page(&page, context, request, answer);
}

void health_ready(void *context, const struct http_request *request, struct http_answer *answer)
{
    static const struct page page = {"readyz", ready_checks,
                                     sizeof ready_checks / sizeof *ready_checks};
    answer_page(&page, context, request, answer);
}
