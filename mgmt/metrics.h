/* SPDX-License-Identifier: Apache-2.0
 *
 * /metrics: what workers publish on the board and the lock machines' counts, in Prometheus' text
 * format 0.0.4. Read without locks while workers run: each number is whole in itself, and two of
 * them may be of two moments. Names of locks, sessions and clients are never labels: their number
 * has no bound, and a scrape is often readable by more people than a lock.
 */
#ifndef BELAY_MGMT_METRICS_H
#define BELAY_MGMT_METRICS_H

#include <stdio.h>

#include "dataplane/board.h"
#include "mgmt/http.h"

/* Writes everything of this moment. Any thread. */
void metrics_write(FILE *out, const struct board *board, uint64_t now_ns);

/* Handler: the context is a struct node. */
void metrics_page(void *context, const struct http_request *request, struct http_answer *answer);

#endif
