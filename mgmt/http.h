/* SPDX-License-Identifier: Apache-2.0
 *
 * The node's HTTP server: routes and answers as plain functions, everything else (sockets, parsing,
 * slow and too many clients) by libmicrohttpd in one thread of its own.
 *
 * A client has HTTP_TIMEOUT_S to send its next byte, and a connection HTTP_CONNECTION_BYTES of
 * memory. More than HTTP_HOST_CONNECTIONS_MAX connections of one client are closed at once; beyond
 * HTTP_CONNECTIONS_MAX of all, they wait in the kernel's queue until one ends or times out.
 * Requests bear no body yet: one that does is refused.
 */
#ifndef BELAY_MGMT_HTTP_H
#define BELAY_MGMT_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include "hw/port.h"

enum {
    HTTP_CONNECTIONS_MAX = 256,
    HTTP_HOST_CONNECTIONS_MAX = 64,    /* of one client address */
    HTTP_CONNECTION_BYTES = 16 * 1024, /* the line and headers of a request */
    HTTP_TIMEOUT_S = 10,
};

/* Lives as long as the handler runs. */
struct http_request {
    const char *path; /* without the query */
    const char *rest; /* of the path behind the route's; "" = nothing */
    bool verbose;     /* the query has ?verbose */
};

/* Filled by a handler: text from malloc, which then is the server's. */
struct http_answer {
    unsigned status;  /* 200, ... */
    const char *type; /* of a constant */
    char *text;
    size_t bytes;
};

typedef void http_handler(void *context, const struct http_request *request,
                          struct http_answer *answer);

/* GET and HEAD of `path`, and with `below` of everything under it. */
struct http_route {
    const char *path;
    bool below;
    http_handler *handle;
};

struct http_server;

/* Listens at the address (port 0 = any free one) and serves from then on. The routes and the
 * context outlive the server. 0 or a negative errno with a sentence in `error`. */
int http_start(struct http_server **server, const struct port_address *address,
               const struct http_route *routes, size_t routes_count, void *context, char *error,
               size_t error_bytes);

void http_address(const struct http_server *server, struct port_address *address);

/* Ends connections, joins the thread. NULL is fine. */
void http_stop(struct http_server *server);

/* A problem document (RFC 9457). `detail` is copied. For handlers. */
void http_problem(struct http_answer *answer, unsigned status, const char *title,
                  const char *detail);

#endif
