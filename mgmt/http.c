/* SPDX-License-Identifier: Apache-2.0
 *
 * See mgmt/http.h.
 */
#include "mgmt/http.h"

#include <errno.h>
#include <jansson.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hw/port_socket.h"

struct http_server {
    struct MHD_Daemon *daemon;
    struct port_address address;
    const struct http_route *routes;
    size_t routes_count;
    void *context;
};

/* ---- answers --------------------------------------------------------------------------------- */

void http_problem(struct http_answer *answer, unsigned status, const char *title,
                  const char *detail)
{
    json_t *problem = json_pack("{s:s, s:s, s:i, s:s}", "type", "about:blank", "title", title,
                                "status", (int)status, "detail", detail);
    *answer = (struct http_answer){.status = status, .type = "application/problem+json"};
    answer->text = problem != NULL ? json_dumps(problem, JSON_INDENT(2)) : NULL;
    answer->bytes = answer->text != NULL ? strlen(answer->text) : 0;
    json_decref(problem);
}

/* Queues the answer; its text is freed when it has been sent, or now. */
static enum MHD_Result send_answer(struct MHD_Connection *connection,
                                   const struct http_answer *answer, const char *allow)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(
        answer->text != NULL ? answer->bytes : 0, answer->text, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        free(answer->text);
        return MHD_NO; /* closes the connection */
    }
    enum MHD_Result result = MHD_YES;
    if (answer->type != NULL)
        result = MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, answer->type);
    if (result == MHD_YES)
        result = MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    if (result == MHD_YES && allow != NULL)
        result = MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, allow);
    if (result == MHD_YES)
        result = MHD_queue_response(connection, answer->status, response);
    MHD_destroy_response(response);
    return result;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* What of `path` is behind the route's; NULL = not its. */
static const char *path_rest(const struct http_route *route, const char *path)
{
    size_t bytes = strlen(route->path);
    if (strncmp(path, route->path, bytes) != 0)
        return NULL;
    if (path[bytes] == '\0')
        return path + bytes;
    return route->below && path[bytes] == '/' ? path + bytes + 1 : NULL;
}

static void answer_unknown(const struct http_server *server, struct http_answer *answer)
{
    char detail[512];
    int used = snprintf(detail, sizeof detail, "this server answers");
    for (size_t i = 0; i < server->routes_count && used < (int)sizeof detail; i++)
        used += snprintf(detail + used, sizeof detail - (size_t)used, "%s %s", i > 0 ? "," : "",
                         server->routes[i].path);
    http_problem(answer, MHD_HTTP_NOT_FOUND, "no such page", detail);
}

static void answer_request(const struct http_server *server, struct MHD_Connection *connection,
                           const char *path, struct http_answer *answer)
{
    for (size_t i = 0; i < server->routes_count; i++) {
        const char *rest = path_rest(&server->routes[i], path);
        if (rest == NULL)
            continue;
        struct http_request request = {.path = path, .rest = rest};
        request.verbose = MHD_lookup_connection_value_n(connection, MHD_GET_ARGUMENT_KIND,
                                                        "verbose", 7, NULL, NULL) == MHD_YES;
        server->routes[i].handle(server->context, &request, answer);
        return;
    }
    answer_unknown(server, answer);
}

static bool has_body(struct MHD_Connection *connection)
{
    const char *length =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    return (length != NULL && strcmp(length, "0") != 0) ||
           MHD_lookup_connection_value(connection, MHD_HEADER_KIND,
                                       MHD_HTTP_HEADER_TRANSFER_ENCODING) != NULL;
}

/* Called when the headers are there, and once more when the request is whole. What is answered at
 * the first call ends the connection, and nothing more of it is read. */
static enum MHD_Result on_request(void *context, struct MHD_Connection *connection,
                                  const char *path, const char *method, const char *version,
                                  const char *upload, size_t *upload_bytes, void **state)
{
    static char headers_seen;
    (void)version, (void)upload, (void)upload_bytes;
    struct http_answer answer = {0};
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        http_problem(&answer, MHD_HTTP_METHOD_NOT_ALLOWED, "method not allowed",
                     "expected GET or HEAD");
        return send_answer(connection, &answer, "GET, HEAD");
    }
    if (has_body(connection)) {
        http_problem(&answer, MHD_HTTP_CONTENT_TOO_LARGE, "a body is not expected",
                     "GET and HEAD are answered without one");
        return send_answer(connection, &answer, NULL);
    }
    if (*state == NULL) {
        *state = &headers_seen;
        return MHD_YES;
    }
    answer_request(context, connection, path, &answer);
    return send_answer(connection, &answer, NULL);
}

/* ---- the server ------------------------------------------------------------------------------ */

/* Ours rather than the library's, for a reason that can be told when it fails. */
static int open_listener(const struct port_address *address, struct port_address *bound)
{
    struct sockaddr_storage storage = {0};
    socklen_t length = sizeof storage;
    bool ipv4 = port_address_is_ipv4(address);
    uint32_t bytes = port_address_to_socket(address, ipv4, &storage);
    int descriptor =
        socket(ipv4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int yes = 1;
    if (descriptor < 0)
        return -errno;
    if (setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        bind(descriptor, (struct sockaddr *)&storage, bytes) == 0 &&
        listen(descriptor, SOMAXCONN) == 0 &&
        getsockname(descriptor, (struct sockaddr *)&storage, &length) == 0 &&
        port_address_from_socket(&storage, bound))
        return descriptor;
    int result = errno != 0 ? -errno : -EAFNOSUPPORT;
    close(descriptor);
    return result;
}

int http_start(struct http_server **started, const struct port_address *address,
               const struct http_route *routes, size_t routes_count, void *context, char *error,
               size_t error_bytes)
{
    struct http_server *server = calloc(1, sizeof *server);
    char text[PORT_ADDRESS_TEXT_BYTES];
    port_address_format(address, text);
    if (server == NULL)
        return -ENOMEM;
    *server =
        (struct http_server){.routes = routes, .routes_count = routes_count, .context = context};
    int listener = open_listener(address, &server->address);
    if (listener < 0) {
        snprintf(error, error_bytes, "cannot listen at http.listen %s: %s", text,
                 strerrordesc_np(-listener));
        free(server);
        return listener;
    }
    server->daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL, NULL, on_request, server, MHD_OPTION_LISTEN_SOCKET,
        listener, MHD_OPTION_CONNECTION_LIMIT, (unsigned)HTTP_CONNECTIONS_MAX,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)HTTP_HOST_CONNECTIONS_MAX,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)HTTP_TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)HTTP_CONNECTION_BYTES, MHD_OPTION_END);
    if (server->daemon == NULL) {
        snprintf(error, error_bytes, "the HTTP server at %s cannot be started", text);
        close(listener);
        free(server);
        return -ENOMEM;
    }
    *started = server;
    return 0;
}

void http_address(const struct http_server *server, struct port_address *address)
{
    *address = server->address;
}

void http_stop(struct http_server *server)
{
    if (server == NULL)
        return;
    MHD_stop_daemon(server->daemon);
    free(server);
}
