/* SPDX-License-Identifier: Apache-2.0
 *
 * Clients: options, opening, closing, asynchronous completions.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "client/driver.h"

void belay_client_options_init(belay_client_options *options)
{
    *options = (belay_client_options){
        .struct_bytes = sizeof(*options),
        .session_ttl_ms = 10000,
        .request_timeout_ms = 5000,
        .requests_max = 1024,
        .locks_max = 65536,
    };
}

static belay_status check_polled(const belay_client_options *options)
{
    const belay_transport *transport = options->transport;

    if (!options->polled && (transport != NULL || options->on_complete != NULL))
        return fail(BELAY_BAD_REQUEST, "transport and on_complete are for polled clients");
    if (transport == NULL)
        return BELAY_OK;
    if (transport->struct_bytes != sizeof(*transport))
        return fail(BELAY_BAD_REQUEST, "transport.struct_bytes is not sizeof(belay_transport)");
    if (transport->receive == NULL || transport->send == NULL || transport->flush == NULL)
        return fail(BELAY_BAD_REQUEST, "transport: one of its functions is missing");
    return BELAY_OK;
}

/* An older caller's shorter struct leaves later fields at their defaults. */
static belay_status read_options(const belay_client_options *given, belay_client_options *options)
{
    belay_client_options_init(options);
    if (given == NULL)
        return BELAY_OK;
    if (given->struct_bytes == 0 || given->struct_bytes > sizeof(*options))
        return fail(BELAY_BAD_REQUEST, "options.struct_bytes is not sizeof(belay_client_options)");
    belay_client_options defaults = *options;
    memcpy(options, given, given->struct_bytes);
    if (options->session_ttl_ms == 0)
        options->session_ttl_ms = defaults.session_ttl_ms;
    if (options->request_timeout_ms == 0)
        options->request_timeout_ms = defaults.request_timeout_ms;
    if (options->requests_max == 0)
        options->requests_max = defaults.requests_max;
    if (options->locks_max == 0)
        options->locks_max = defaults.locks_max;
    if (options->session_ttl_ms > UINT32_MAX)
        return fail(BELAY_BAD_REQUEST, "session_ttl_ms is above %u", UINT32_MAX);
    if (options->requests_max > 1 << 20 || options->locks_max > 1 << 24)
        return fail(BELAY_BAD_REQUEST, "requests_max is above %d or locks_max above %d", 1 << 20,
                    1 << 24);
    return check_polled(options);
}

static belay_status core_options_of(const belay_client_options *options, struct core_options *core)
{
    const char *endpoints = options->endpoints;

    core_options_init(core);
    core->requests_max = options->requests_max;
    core->locks_max = options->locks_max;
    core->session_ttl_ms = options->session_ttl_ms;
    core->request_timeout_ms = options->request_timeout_ms;
    core->cluster_id = options->cluster_id;
    if (getrandom(core->seed, sizeof(core->seed), 0) != (ssize_t)sizeof(core->seed))
        return fail_system("getrandom");
    if (endpoints == NULL)
        endpoints = getenv("BELAY_ENDPOINTS");
    if (endpoints == NULL || endpoints[0] == '\0')
        endpoints = "127.0.0.1:7400";
    return endpoints_parse(endpoints, core);
}

static bool is_ipv4(const struct wire_address *address)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

    return memcmp(address->ip, mapped, sizeof(mapped)) == 0;
}

belay_status belay_client_open(const belay_client_options *given, belay_client **result)
{
    belay_client_options options;
    struct core_options core;

    *result = NULL;
    belay_status status = read_options(given, &options);
    if (status == BELAY_OK)
        status = core_options_of(&options, &core);
    if (status != BELAY_OK)
        return status;
    belay_client *client = calloc(1, sizeof(*client));
    if (client == NULL)
        return fail(BELAY_NO_MEMORY, "no memory for a client");
    client->options = options;
    client->options.endpoints = NULL; /* the caller's string may go */
    if (options.transport != NULL)
        client->transport = *options.transport;
    client->options.transport = NULL; /* likewise */
    for (uint32_t i = 0; i < core.endpoints_count; i++)
        client->ipv6 = client->ipv6 || !is_ipv4(&core.endpoints[i]);
    status = driver_start(client, &core);
    if (status != BELAY_OK) {
        free(client);
        return status;
    }
    *result = client;
    return BELAY_OK;
}

static struct timespec after_ms(uint64_t timeout_ms)
{
    struct timespec when;
    const uint64_t most_ms = UINT64_C(1000) * 3600 * 24 * 365; /* for ever, as far as we know */

    clock_gettime(CLOCK_MONOTONIC, &when);
    if (timeout_ms > most_ms)
        timeout_ms = most_ms;
    when.tv_sec += (time_t)(timeout_ms / 1000);
    when.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (when.tv_nsec >= 1000000000) {
        when.tv_sec++;
        when.tv_nsec -= 1000000000;
    }
    return when;
}

/* Blocking calls of other threads return BELAY_CLOSED and leave before anything is freed. */
static void end(belay_client *client, bool tell, uint64_t timeout_ms)
{
    struct timespec until = after_ms(timeout_ms);

    driver_lock(client);
    client->stopping = true;
    client->mute = !tell;
    core_close(client->core, driver_now_ns(), 0);
    driver_unlock(client);
    driver_hold(client);
    int error = tell ? 0 : ETIMEDOUT;
    while (error == 0 && !core_client_is_closed(client->core, 0))
        error = driver_wait(client, &client->changed, &until);
    while (client->inside > 0)
        driver_wait(client, &client->changed, NULL);
    driver_let_go(client);
    driver_stop(client);
    free(client);
}

void belay_client_close(belay_client *client, uint64_t timeout_ms)
{
    if (client != NULL)
        end(client, true, timeout_ms);
}

void belay_client_abandon(belay_client *client)
{
    if (client != NULL)
        end(client, false, 0);
}

/* ---- asynchronous completions ---------------------------------------------------------------- */

int belay_client_fd(belay_client *client)
{
    return client->ready;
}

size_t belay_client_take(belay_client *client, belay_completion *completions, size_t max)
{
    size_t count = 0;

    driver_hold(client);
    while (count < max && client->done_head != NULL) {
        struct call *call = client->done_head;
        client->done_head = call->next;
        completions[count++] = (belay_completion){
            .request = (belay_request *)call,
            .user = call->user,
            .status = call->status,
            .lock = call->status == BELAY_OK ? call->lock : NULL,
            .holder = call->holder,
        };
        if (call->status != BELAY_OK) /* its limit or argument is known only here */
            (void)fail_call(call);
        free(call);
    }
    if (client->done_head == NULL)
        client->done_tail = NULL;
    if (client->done_head == NULL && client->ready >= 0) {
        uint64_t ready;
        ssize_t got = read(client->ready, &ready, sizeof(ready));
        (void)got; /* non-blocking: it may be clear already */
    }
    driver_let_go(client);
    return count;
}

/* What its callbacks start leaves now, not with the next turn. */
belay_status belay_client_poll(belay_client *client, uint32_t *datagrams)
{
    belay_completion completion;

    if (datagrams != NULL)
        *datagrams = 0;
    if (!client->options.polled)
        return fail(BELAY_BAD_REQUEST, "the client has a thread of its own: it is not polled");
    uint32_t count = driver_poll(client);
    if (datagrams != NULL)
        *datagrams = count;
    if (client->options.on_complete == NULL || client->done_head == NULL)
        return BELAY_OK;
    while (belay_client_take(client, &completion, 1) > 0)
        client->options.on_complete(client->options.context, &completion);
    driver_send(client);
    return BELAY_OK;
}

void belay_request_cancel(belay_request *request)
{
    belay_client *client = request->call.client;

    driver_lock(client);
    if (!request->call.done)
        core_cancel(client->core, driver_now_ns(), request->call.ref);
    driver_unlock(client);
}
