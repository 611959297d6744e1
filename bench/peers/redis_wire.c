/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/peers/redis_wire.h"

#include <assert.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { RECONNECT_MS = 100, SHA_BYTES = 41, SCRIPTS = 2, RING_INITIAL = 64, REASON_BYTES = 128 };

/* One step each, so that nobody deletes or prolongs a lock that has just passed to another. */
static const char *const script_texts[SCRIPTS] = {
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) "
    "else return 0 end",
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) "
    "else return 0 end",
};

enum state { DOWN, CONNECTING, GREETING, UP };

struct sent {
    struct redis_request request;
    uint64_t sent_ns;
};

/* [begin, sent_end) was sent and is unanswered, [sent_end, end) waits. */
struct ring {
    struct sent *at;
    uint32_t capacity; /* a power of two */
    uint32_t begin, sent_end, end;
};

struct connection {
    enum state state;
    uint32_t node;
    redisContext *redis; /* NULL when down */
    struct ring ring;
    uint64_t since_ns; /* connecting: since when; down: when it is tried again */
    unsigned greetings;
    bool unsent; /* bytes are left in the output buffer */
    char reason[REASON_BYTES];
};

struct redis_wire {
    const struct peer_endpoint *endpoints; /* own copy */
    uint32_t nodes, per_node, pack;
    uint64_t timeout_ns;
    redis_answered *answered;
    void *context;
    struct connection *connections; /* node * per_node + client % per_node */
    struct pollfd *polled;
    char script_names[SCRIPTS][SHA_BYTES];
    bool any_failed; /* a request was made of a connection that is down */
    bool closing;
};

static struct sent *ring_at(const struct ring *ring, uint32_t place)
{
    return &ring->at[place & (ring->capacity - 1)];
}

static void ring_push(struct ring *ring, const struct redis_request *request)
{
    uint32_t count = ring->end - ring->begin;

    if (count == ring->capacity) {
        struct sent *more = peer_alloc((size_t)count * 2, sizeof(*more));

        for (uint32_t i = 0; i < count; i++)
            more[i] = *ring_at(ring, ring->begin + i);
        free(ring->at);
        ring->at = more;
        ring->capacity = count * 2;
        ring->sent_end -= ring->begin;
        ring->begin = 0;
        ring->end = count;
    }
    *ring_at(ring, ring->end++) = (struct sent){.request = *request};
}

/* ---- connecting and breaking --------------------------------------------------------------- */

static void answer_first(struct redis_wire *wire, struct connection *connection,
                         enum redis_result result)
{
    struct ring *ring = &connection->ring;
    uint64_t cookie = ring_at(ring, ring->begin)->request.cookie;

    ring->begin++;
    if ((int32_t)(ring->sent_end - ring->begin) < 0)
        ring->sent_end = ring->begin;
    if (!wire->closing)
        wire->answered(wire->context, cookie, result);
}

static void fail_all(struct redis_wire *wire, struct connection *connection)
{
    uint32_t count = connection->ring.end - connection->ring.begin; /* not what answers add */

    while (count-- > 0)
        answer_first(wire, connection, REDIS_FAILED);
}

/* What was sent has an unknown outcome. */
static void broken(struct redis_wire *wire, struct connection *connection, const char *reason)
{
    snprintf(connection->reason, sizeof(connection->reason), "%s", reason);
    if (connection->redis)
        redisFree(connection->redis);
    connection->redis = NULL;
    connection->state = DOWN;
    connection->since_ns = peer_now_ns() + RECONNECT_MS * PEER_MS_NS;
    fail_all(wire, connection);
}

static void connect_to(struct redis_wire *wire, struct connection *connection)
{
    const struct peer_endpoint *endpoint = &wire->endpoints[connection->node];

    connection->redis = redisConnectNonBlock(endpoint->address, endpoint->port);
    if (!connection->redis || connection->redis->err) {
        broken(wire, connection, connection->redis ? connection->redis->errstr : "out of memory");
        return;
    }
    connection->state = CONNECTING;
    connection->since_ns = peer_now_ns();
}

static void greet(struct redis_wire *wire, struct connection *connection)
{
    int error = 0;
    socklen_t bytes = sizeof(error);

    if (getsockopt(connection->redis->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0 || error) {
        broken(wire, connection, strerror(error));
        return;
    }
    connection->state = GREETING;
    connection->greetings = 0;
    connection->unsent = true;
    for (int i = 0; i < SCRIPTS; i++)
        redisAppendCommand(connection->redis, "SCRIPT LOAD %s", script_texts[i]);
}

static void greeted(struct redis_wire *wire, struct connection *connection, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_STRING || reply->len != SHA_BYTES - 1) {
        broken(wire, connection, reply->type == REDIS_REPLY_ERROR ? reply->str : "no script name");
        return;
    }
    memcpy(wire->script_names[connection->greetings], reply->str, SHA_BYTES);
    if (++connection->greetings == SCRIPTS)
        connection->state = UP;
}

/* ---- sending and receiving ----------------------------------------------------------------- */

static void append(const struct redis_wire *wire, redisContext *redis,
                   const struct redis_request *request)
{
    char ttl[16];
    int ttl_bytes = snprintf(ttl, sizeof(ttl), "%u", request->ttl_ms);
    size_t key = strlen(request->key), value = request->value ? strlen(request->value) : 0;
    const char *set[] = {"SET", request->key, request->value, "NX", "PX", ttl};
    size_t set_bytes[] = {3, key, value, 2, 2, (size_t)ttl_bytes};
    const char *script[] = {"EVALSHA", "", "1", request->key, request->value, ttl};
    size_t script_bytes[] = {7, SHA_BYTES - 1, 1, key, value, (size_t)ttl_bytes};
    const char *exists[] = {"EXISTS", request->key};
    size_t exists_bytes[] = {6, key};

    switch (request->what) {
    case REDIS_SET:
        redisAppendCommandArgv(redis, 6, set, set_bytes);
        break;
    case REDIS_DELETE:
        script[1] = wire->script_names[0];
        redisAppendCommandArgv(redis, 5, script, script_bytes);
        break;
    case REDIS_EXPIRE:
        script[1] = wire->script_names[1];
        redisAppendCommandArgv(redis, 6, script, script_bytes);
        break;
    case REDIS_EXISTS:
        redisAppendCommandArgv(redis, 2, exists, exists_bytes);
        break;
    }
}

static void flush(struct redis_wire *wire, struct connection *connection)
{
    int done = 0;

    if (redisBufferWrite(connection->redis, &done) != REDIS_OK)
        broken(wire, connection, connection->redis->errstr);
    else
        connection->unsent = !done;
}

static void pump(struct redis_wire *wire, struct connection *connection)
{
    struct ring *ring = &connection->ring;
    uint64_t now_ns = 0;

    if (connection->state == DOWN && ring->begin != ring->end)
        fail_all(wire, connection);
    if (connection->state == UP) {
        while (ring->sent_end != ring->end && ring->sent_end - ring->begin < wire->pack) {
            struct sent *sent = ring_at(ring, ring->sent_end++);

            if (now_ns == 0)
                now_ns = peer_now_ns();
            sent->sent_ns = now_ns;
            append(wire, connection->redis, &sent->request);
            connection->unsent = true;
        }
    }
    if (connection->unsent && (connection->state == UP || connection->state == GREETING))
        flush(wire, connection);
}

static enum redis_result judge(enum redis_what what, const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_INTEGER)
        return reply->integer ? REDIS_YES : REDIS_NO;
    if (what == REDIS_SET && reply->type == REDIS_REPLY_STATUS)
        return REDIS_YES;
    if (what == REDIS_SET && reply->type == REDIS_REPLY_NIL)
        return REDIS_NO;
    return REDIS_FAILED;
}

static void receive(struct redis_wire *wire, struct connection *connection)
{
    void *found = NULL;

    if (redisBufferRead(connection->redis) != REDIS_OK) {
        broken(wire, connection, connection->redis->errstr);
        return;
    }
    for (;;) {
        if (redisGetReplyFromReader(connection->redis, &found) != REDIS_OK) {
            broken(wire, connection, connection->redis->errstr);
            return;
        }
        if (!found)
            return;
        redisReply *reply = found;
        struct ring *ring = &connection->ring;
        if (connection->state == GREETING)
            greeted(wire, connection, reply);
        else if (ring->begin != ring->sent_end)
            answer_first(wire, connection, judge(ring_at(ring, ring->begin)->request.what, reply));
        freeReplyObject(reply);
        if (!connection->redis)
            return;
    }
}

/* When something must be done about the connection if nothing comes. */
static uint64_t deadline_of(const struct redis_wire *wire, const struct connection *connection)
{
    const struct ring *ring = &connection->ring;

    if (connection->state == DOWN)
        return connection->since_ns;
    if (connection->state != UP)
        return connection->since_ns + wire->timeout_ns;
    if (ring->begin != ring->sent_end)
        return ring_at(ring, ring->begin)->sent_ns + wire->timeout_ns;
    return PEER_NEVER_NS;
}

static void handle(struct redis_wire *wire, struct connection *connection, short events,
                   uint64_t now_ns)
{
    if (connection->state == CONNECTING && events)
        greet(wire, connection);
    else if (connection->state != DOWN && events & (POLLIN | POLLERR | POLLHUP))
        receive(wire, connection);
    if (now_ns < deadline_of(wire, connection))
        return;
    if (connection->state == DOWN)
        connect_to(wire, connection);
    else /* later answers would be taken for those of other requests */
        broken(wire, connection, "no answer in time");
}

void redis_wire_turn(struct redis_wire *wire, uint64_t until_ns)
{
    uint32_t count = wire->nodes * wire->per_node;

    if (wire->any_failed)
        until_ns = 0;
    wire->any_failed = false;
    for (uint32_t i = 0; i < count; i++) {
        struct connection *connection = &wire->connections[i];
        uint64_t deadline_ns;

        pump(wire, connection);
        deadline_ns = deadline_of(wire, connection);
        if (deadline_ns < until_ns)
            until_ns = deadline_ns;
        bool out = connection->state == CONNECTING || connection->unsent;
        wire->polled[i] = (struct pollfd){.fd = connection->redis ? connection->redis->fd : -1,
                                          .events = (short)(out ? POLLIN | POLLOUT : POLLIN)};
    }
    uint64_t now_ns = peer_now_ns();
    uint64_t wait_ns = until_ns > now_ns ? until_ns - now_ns : 0;
    struct timespec wait = {.tv_sec = (time_t)(wait_ns / UINT64_C(1000000000)),
                            .tv_nsec = (long)(wait_ns % UINT64_C(1000000000))};
    (void)ppoll(wire->polled, count, until_ns == PEER_NEVER_NS ? NULL : &wait, NULL);
    now_ns = peer_now_ns();
    for (uint32_t i = 0; i < count; i++)
        handle(wire, &wire->connections[i], wire->polled[i].revents, now_ns);
}

void redis_wire_send(struct redis_wire *wire, uint32_t node, uint32_t client,
                     const struct redis_request *request)
{
    struct connection *connection =
        &wire->connections[node * wire->per_node + client % wire->per_node];

    if (connection->state == DOWN)
        wire->any_failed = true;
    ring_push(&connection->ring, request);
}

/* ---- opening and closing ------------------------------------------------------------------- */

struct redis_wire *redis_wire_open(const struct peer_endpoint *endpoints, uint32_t nodes,
                                   uint32_t connections_per_node, uint32_t pack,
                                   uint64_t timeout_ns, redis_answered *answered, void *context)
{
    struct redis_wire *wire = peer_alloc(1, sizeof(*wire));
    struct peer_endpoint *own = peer_alloc(nodes, sizeof(*own));
    uint32_t count = nodes * connections_per_node;

    memcpy(own, endpoints, nodes * sizeof(*own));
    *wire = (struct redis_wire){.endpoints = own,
                                .nodes = nodes,
                                .per_node = connections_per_node,
                                .pack = pack ? pack : 1,
                                .timeout_ns = timeout_ns,
                                .answered = answered,
                                .context = context};
    wire->connections = peer_alloc(count, sizeof(*wire->connections));
    wire->polled = peer_alloc(count, sizeof(*wire->polled));
    for (uint32_t i = 0; i < count; i++) {
        struct connection *connection = &wire->connections[i];

        connection->node = i / connections_per_node;
        connection->ring.capacity = RING_INITIAL;
        connection->ring.at = peer_alloc(RING_INITIAL, sizeof(struct sent));
        connect_to(wire, connection);
    }
    return wire;
}

uint32_t redis_wire_nodes_up(struct redis_wire *wire, char *error, size_t error_bytes)
{
    uint32_t up = 0;

    for (uint32_t node = 0; node < wire->nodes; node++) {
        bool whole = true;

        for (uint32_t i = 0; i < wire->per_node && whole; i++) {
            struct connection *connection = &wire->connections[node * wire->per_node + i];

            while (connection->state == CONNECTING || connection->state == GREETING)
                redis_wire_turn(wire, deadline_of(wire, connection));
            if (connection->state == DOWN) {
                whole = false;
                snprintf(error, error_bytes, "Redis at %s:%u: %s", wire->endpoints[node].address,
                         wire->endpoints[node].port, connection->reason);
            }
        }
        up += whole;
    }
    return up;
}

void redis_wire_close(struct redis_wire *wire)
{
    wire->closing = true;
    for (uint32_t i = 0; i < wire->nodes * wire->per_node; i++) {
        if (wire->connections[i].redis)
            redisFree(wire->connections[i].redis);
        free(wire->connections[i].ring.at);
    }
    free((void *)wire->endpoints);
    free(wire->connections);
    free(wire->polled);
    free(wire);
}
