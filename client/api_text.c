/* SPDX-License-Identifier: Apache-2.0
 *
 * Words, texts of errors, lease ids as text, endpoints.
 */
#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/driver.h"

/* The API promises a text per thread. */
static _Thread_local char error_text[256];

const char *belay_version(void)
{
    return BELAY_VERSION_STRING;
}

const char *belay_error_text(void)
{
    return error_text;
}

const char *belay_status_name(belay_status status)
{
    static const char *const names[] = {
        [BELAY_OK] = "ok",
        [BELAY_BUSY] = "busy",
        [BELAY_TIMED_OUT] = "timed_out",
        [BELAY_LOST] = "lost",
        [BELAY_UNREACHABLE] = "unreachable",
        [BELAY_CANCELLED] = "cancelled",
        [BELAY_DEADLOCK] = "deadlock",
        [BELAY_OVER_LIMIT] = "over_limit",
        [BELAY_DENIED] = "denied",
        [BELAY_BAD_REQUEST] = "bad_request",
        [BELAY_SESSION_LOST] = "session_lost",
        [BELAY_DELAYED] = "delayed",
        [BELAY_ALREADY_HELD] = "already_held",
        [BELAY_STALE_REQUEST] = "stale_request",
        [BELAY_WRONG_CLUSTER] = "wrong_cluster",
        [BELAY_WRONG_VERSION] = "wrong_version",
        [BELAY_NO_MEMORY] = "no_memory",
        [BELAY_CLOSED] = "closed",
        [BELAY_SYSTEM] = "system",
        [BELAY_REFUSED] = "refused",
    };
    static_assert(sizeof(names) / sizeof(names[0]) == BELAY_STATUS_COUNT, "every status is named");
    unsigned at = (unsigned)status;
    return at < BELAY_STATUS_COUNT ? names[at] : "unknown";
}

belay_status fail(belay_status status, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(error_text, sizeof(error_text), format, arguments);
    va_end(arguments);
    return status;
}

belay_status fail_system(const char *call_name)
{
    char reason[96];

    return fail(BELAY_SYSTEM, "%s: %s", call_name, strerror_r(errno, reason, sizeof(reason)));
}

static const char *sentence(belay_status status)
{
    switch (status) {
    case BELAY_BUSY:
        return "somebody else holds the lock";
    case BELAY_TIMED_OUT:
        return "the wait limit passed; nothing is held";
    case BELAY_LOST:
        return "the lease is over";
    case BELAY_UNREACHABLE:
        return "no node answered in time; the outcome may be unknown";
    case BELAY_CANCELLED:
        return "cancelled; nothing is held";
    case BELAY_DEADLOCK:
        return "this wait could never end";
    case BELAY_DENIED:
        return "not allowed";
    case BELAY_SESSION_LOST:
        return "the session ended, and with it what lived with it";
    case BELAY_DELAYED:
        return "the resource is closed for its lock delay";
    case BELAY_ALREADY_HELD:
        return "this client holds it already and did not say that it is reentrant";
    case BELAY_STALE_REQUEST:
        return "the server no longer knows the outcome";
    case BELAY_WRONG_CLUSTER:
        return "the nodes belong to another cluster";
    case BELAY_WRONG_VERSION:
        return "the nodes speak another version of the protocol";
    case BELAY_CLOSED:
        return "the client is being closed";
    case BELAY_REFUSED:
        return "the token is lower than the highest seen";
    default:
        return belay_status_name(status);
    }
}

belay_status fail_call(const struct call *call)
{
    belay_status status = call->status;

    if (status == BELAY_OK)
        error_text[0] = '\0';
    else if (call->what != WIRE_WHAT_NONE)
        fail(status, "%s: %s (%llu)", belay_status_name(status), wire_what_text(call->what),
             (unsigned long long)call->limit);
    else if (status == BELAY_OVER_LIMIT)
        fail(status, "over_limit: as many requests or locks as the client or the shard may have");
    else
        fail(status, "%s", sentence(status));
    return status;
}

/* ---- lease ids ------------------------------------------------------------------------------- */

void belay_lease_format(belay_lease_id lease, char text[BELAY_LEASE_TEXT_BYTES])
{
    snprintf(text, BELAY_LEASE_TEXT_BYTES, "%016llx%08x", (unsigned long long)lease.secret,
             (unsigned)lease.slot);
}

bool belay_lease_parse(const char *text, belay_lease_id *lease)
{
    uint64_t parts[2] = {0, 0};
    size_t at;

    for (at = 0; at < BELAY_LEASE_TEXT_BYTES - 1; at++) {
        if (!isxdigit((unsigned char)text[at]))
            return false;
        int digit = tolower((unsigned char)text[at]);
        uint64_t value = (uint64_t)(digit <= '9' ? digit - '0' : digit - 'a' + 10);
        parts[at >= 16] = parts[at >= 16] << 4 | value;
    }
    if (text[at] != '\0')
        return false;
    *lease = (belay_lease_id){.secret = parts[0], .slot = parts[1]};
    return true;
}

/* ---- endpoints ------------------------------------------------------------------------------- */

static bool add_address(struct core_options *options, const struct sockaddr *address)
{
    struct wire_address *to = &options->endpoints[options->endpoints_count];

    if (options->endpoints_count == CORE_ENDPOINTS_MAX)
        return false;
    memset(to, 0, sizeof(*to));
    if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
        memcpy(to->ip, &v6->sin6_addr, 16);
        to->port = ntohs(v6->sin6_port);
    } else {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
        to->ip[10] = to->ip[11] = 0xff;
        memcpy(to->ip + 12, &v4->sin_addr, 4);
        to->port = ntohs(v4->sin_port);
    }
    options->endpoints_count++;
    return true;
}

/* Splits "host:port" or "[v6]:port" in place; without a port, 7400. */
static bool split(char *text, char **host, const char **port)
{
    char *colon;

    *host = text;
    *port = "7400";
    if (text[0] == '[') {
        char *close = strchr(text, ']');
        if (close == NULL || (close[1] != '\0' && close[1] != ':'))
            return false;
        *host = text + 1;
        colon = close[1] == ':' ? close + 1 : NULL;
        *close = '\0';
    } else {
        colon = strrchr(text, ':');
        if (colon != NULL && strchr(text, ':') != colon)
            colon = NULL; /* a bare IPv6 address */
        if (colon != NULL)
            *colon = '\0';
    }
    if (colon != NULL)
        *port = colon + 1;
    return (*host)[0] != '\0' && (*port)[0] != '\0';
}

static belay_status add_endpoint(char *text, struct core_options *options)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM};
    struct addrinfo *found;
    char whole[DRIVER_ENDPOINTS_TEXT_MAX];
    const char *port;
    char *host;

    snprintf(whole, sizeof(whole), "%s", text);
    if (!split(text, &host, &port))
        return fail(BELAY_BAD_REQUEST, "endpoint '%.100s' is not host:port", whole);
    int error = getaddrinfo(host, port, &hints, &found);
    if (error != 0)
        return fail(BELAY_BAD_REQUEST, "endpoint '%.100s': %s", whole, gai_strerror(error));
    for (struct addrinfo *at = found; at != NULL; at = at->ai_next) {
        if (at->ai_family == AF_INET || at->ai_family == AF_INET6)
            add_address(options, at->ai_addr);
    }
    freeaddrinfo(found);
    return BELAY_OK;
}

belay_status endpoints_parse(const char *text, struct core_options *options)
{
    char copy[DRIVER_ENDPOINTS_TEXT_MAX];
    char *rest = copy;

    if (strlen(text) >= sizeof(copy))
        return fail(BELAY_BAD_REQUEST, "endpoints longer than %d bytes",
                    DRIVER_ENDPOINTS_TEXT_MAX - 1);
    memcpy(copy, text, strlen(text) + 1);
    for (char *one; (one = strsep(&rest, ",")) != NULL;) {
        one += strspn(one, " ");
        one[strcspn(one, " ")] = '\0';
        if (one[0] == '\0')
            continue;
        belay_status status = add_endpoint(one, options);
        if (status != BELAY_OK)
            return status;
    }
    if (options->endpoints_count == 0)
        return fail(BELAY_BAD_REQUEST, "endpoints name no node");
    return BELAY_OK;
}
