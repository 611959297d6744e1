/* SPDX-License-Identifier: Apache-2.0
 *
 * What a load balancer, an orchestrator or an operator asks a node: /livez (should it be ended and
 * started again?) and /readyz (may clients be sent here?), as checks of one question each.
 */
#ifndef BELAY_MGMT_HEALTH_H
#define BELAY_MGMT_HEALTH_H

#include "mgmt/http.h"

/* Handlers: the context is a struct node. 200 if every check passes, else 503; plain text. Without
 * a rest all checks are asked, and listed with ?verbose or when one fails; the rest may name one.
 */
void health_live(void *context, const struct http_request *request, struct http_answer *answer);
void health_ready(void *context, const struct http_request *request, struct http_answer *answer);

#endif
