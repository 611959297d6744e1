/* SPDX-License-Identifier: Apache-2.0
 *
 * The linearizability checker's readers are total: any bytes are a history or one error with a
 * sentence, in every format and for every model. What is read is judged, if it is small.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lincheck/verdict.h"

enum { JUDGED_MAX = 12, BUDGET_BYTES = 16 << 20 };

static void judge(struct history *history, enum model_kind kind)
{
    static char report[1 << 16];
    struct model model;
    struct verdict verdict;
    if (model_init(&model, kind, history, NULL) < 0)
        return;
    verdict_find(&verdict, &model);
    FILE *out = fmemopen(report, sizeof report, "w");
    if (out != NULL && verdict.verdict == SEARCH_NOT_LINEARIZABLE)
        verdict_print(&verdict, &model, out);
    if (out != NULL)
        fclose(out);
    verdict_free(&verdict, &model);
    model_free(&model);
}

/* The first byte chooses what the others are read as. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    if (length == 0)
        return 0;
    struct history_options options = {.format = (enum history_format)(bytes[0] & 3),
                                      .model = (enum model_kind)((bytes[0] >> 2 & 7) % 7),
                                      .independent = bytes[0] >> 5 == 7};
    struct budget budget = {.limit_bytes = BUDGET_BYTES};
    struct history history;
    struct parse_error error;
    memset(&error, 'x', sizeof error);
    history_init(&history, &budget);
    int result = history_read(&history, &options, (const char *)bytes + 1, length - 1, &error);
    if (result == 0 && history.ops_count <= JUDGED_MAX)
        judge(&history, options.model);
    /* An error has a sentence that ends inside its buffer, and a line of the file. */
    if (result == -EBADMSG && (memchr(error.text, '\0', sizeof error.text) == NULL ||
                               error.text[0] == '\0' || error.line > length))
        abort();
    if (result != 0 && result != -EBADMSG && result != -ENOMEM)
        abort();
    history_free(&history);
    if (budget.used_bytes != 0)
        abort();
    return 0;
}
