/* SPDX-License-Identifier: Apache-2.0
 *
 * Thousands of sessions behind one socket that all want one lock: each release must wake exactly
 * one, the one that stood first.
 *
 *   mass IPV4 PORT SHARD NAME WAITERS HANDOVERS
 *
 * The address is that of the worker that leads the shard. Speaks the wire format itself, because a
 * client of libbelay is one session. Prints one line of figures; exit code 0 only if every
 * hand-over woke one waiter, in order, with a higher token.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "dataplane/wire/wire.h"

enum {
    CLIENTS_MAX = 20000,
    TTL_MS = 600000,
    OUTSTANDING_MAX = 128, /* requests without an answer */
    RESEND_MS = 200,
    PATIENCE_MS = 20000, /* without any progress */
    QUIET_MS = 2,        /* a second push for one release would come by then on loopback */
};

enum phase { PHASE_OPEN, PHASE_QUEUE };

struct client {
    uint64_t nonce, session;
    uint64_t token; /* once granted */
    struct wire_lease_id lease;
    uint64_t sent_ns;
    uint32_t position; /* in the queue, at the time of the answer */
    bool asked, answered, granted;
};

struct mass {
    int socket;
    uint16_t shard;
    const char *name;
    uint64_t cookie;
    struct client *clients; /* [0] holds first */
    uint32_t count;
    uint32_t grants;         /* pushes of distinct grants so far */
    uint32_t last_granted;   /* client */
    uint32_t *order;         /* position in the queue -> client */
    uint64_t repeats;        /* pushes of a grant that was known */
    uint64_t release_number; /* answered, 0 = none */
};

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("mass: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* ---- sending --------------------------------------------------------------------------------- */

struct outgoing {
    uint64_t bytes[WIRE_DATAGRAM_BYTES_MAX / 8];
    struct wire_builder builder;
};

static void out_start(struct outgoing *out)
{
    wire_builder_start(&out->builder, (uint8_t *)out->bytes, sizeof out->bytes, WIRE_KIND_REQUEST,
                       0, 0);
}

static void out_send(const struct mass *mass, struct outgoing *out)
{
    ((struct wire_header *)out->bytes)->cookie = mass->cookie;
    size_t bytes = wire_builder_finish(&out->builder);
    if (send(mass->socket, out->bytes, bytes, 0) < 0 && errno != ECONNREFUSED && errno != EAGAIN)
        die("send: %s", strerror(errno));
    out_start(out);
}

static void *out_add(const struct mass *mass, struct outgoing *out, uint8_t op, size_t bytes)
{
    struct wire_item *item = wire_builder_add(&out->builder, op, bytes);
    if (item == NULL) {
        out_send(mass, out);
        item = wire_builder_add(&out->builder, op, bytes);
    }
    item->shard = mass->shard;
    return item;
}

static void add_open(const struct mass *mass, struct outgoing *out, const struct client *client)
{
    struct wire_open *open = out_add(mass, out, WIRE_OP_OPEN, sizeof *open);
    open->nonce = client->nonce;
    open->ttl_ms = TTL_MS;
}

static void add_acquire(const struct mass *mass, struct outgoing *out, const struct client *client)
{
    size_t name_bytes = strlen(mass->name);
    struct wire_acquire *acquire =
        out_add(mass, out, WIRE_OP_ACQUIRE, sizeof *acquire + name_bytes);
    acquire->request.session = client->session;
    acquire->request.number = 1;
    acquire->request.acked_below = 1;
    acquire->ttl_ms = TTL_MS;
    acquire->wait_ms = WIRE_WAIT_FOREVER;
    acquire->mode = WIRE_EXCLUSIVE;
    acquire->name_bytes = (uint8_t)name_bytes;
    memcpy(acquire->text, mass->name, name_bytes);
}

static void add_release(const struct mass *mass, struct outgoing *out, const struct client *client)
{
    struct wire_release *release = out_add(mass, out, WIRE_OP_RELEASE, sizeof *release);
    release->request.session = client->session;
    release->request.number = 2;
    release->request.acked_below = 2;
    release->lease = client->lease;
    release->key_tag =
        (uint32_t)wire_key_hash(NULL, 0, (const uint8_t *)mass->name, strlen(mass->name));
}

static void acknowledge(const struct mass *mass, const struct client *client)
{
    struct outgoing out;
    out_start(&out);
    struct wire_push_ack *ack = out_add(mass, &out, WIRE_OP_PUSH_ACK, sizeof *ack);
    ack->request.session = client->session;
    ack->request.number = 1;
    ack->lease = client->lease;
    out_send(mass, &out);
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* Sessions are 64 random bits: a linear search would dominate everything else. */
static int by_session(const void *a, const void *b)
{
    uint64_t one = (*(struct client *const *)a)->session;
    uint64_t other = (*(struct client *const *)b)->session;
    return one < other ? -1 : one > other;
}

static struct client **sorted; /* once all are open; test program: one of them */

static struct client *client_of(const struct mass *mass, uint64_t session)
{
    struct client key = {.session = session}, *key_at = &key;
    if (sorted == NULL)
        return NULL;
    struct client **found = bsearch(&key_at, sorted, mass->count, sizeof *sorted, by_session);
    return found == NULL ? NULL : *found;
}

static void take_grant(struct mass *mass, const struct wire_granted *granted)
{
    struct client *client = client_of(mass, granted->reply.session);
    if (client == NULL)
        die("a grant for a session that is not ours");
    if (client->granted) {
        mass->repeats++;
        acknowledge(mass, client);
        return;
    }
    client->granted = true;
    client->answered = true;
    client->token = granted->token;
    client->lease = granted->lease;
    mass->grants++;
    mass->last_granted = (uint32_t)(client - mass->clients);
    if (granted->waited)
        acknowledge(mass, client);
}

static void take_opened(struct mass *mass, const struct wire_opened *opened)
{
    /* Nonces count up from the first one's, so that an answer finds its client. */
    uint64_t ordinal = opened->nonce - mass->clients[0].nonce;
    if (ordinal >= mass->count)
        return;
    mass->clients[ordinal].session = opened->reply.session;
    mass->clients[ordinal].answered = true;
}

static void take_reply(struct mass *mass, const struct wire_item *item, enum phase phase)
{
    const struct wire_reply *reply = (const struct wire_reply *)item;
    if (item->op == WIRE_OP_NODE && item->status == WIRE_CHALLENGE) {
        mass->cookie = ((const struct wire_node_notice *)item)->cookie;
        return;
    }
    if (!wire_judge_reply(item))
        die("an ill-formed answer: op %u, status %s", item->op, wire_status_name(item->status));
    if (item->status == WIRE_UNAVAILABLE)
        return;
    if (item->op == WIRE_OP_OPEN && item->status == WIRE_OK && phase == PHASE_OPEN)
        take_opened(mass, (const struct wire_opened *)item);
    else if (item->op == WIRE_OP_PUSH_GRANT ||
             (item->op == WIRE_OP_ACQUIRE && item->status == WIRE_OK))
        take_grant(mass, (const struct wire_granted *)item);
    else if (item->op == WIRE_OP_ACQUIRE && item->status == WIRE_QUEUED) {
        struct client *client = client_of(mass, reply->session);
        if (client != NULL && !client->answered) {
            client->answered = true;
            client->position = ((const struct wire_queued *)item)->position;
        }
    } else if (item->op == WIRE_OP_RELEASE && item->status == WIRE_OK)
        mass->release_number = reply->session;
    else if (item->status != WIRE_OK && item->op != WIRE_OP_PUSH_LOST)
        die("op %u was answered %s", item->op, wire_status_name(item->status));
}

/* Takes what there is, waiting at most that long for the first; false = there was nothing. */
static bool take(struct mass *mass, int timeout_ms, enum phase phase)
{
    uint64_t bytes[WIRE_DATAGRAM_BYTES_MAX / 8];
    struct pollfd wait = {.fd = mass->socket, .events = POLLIN};
    const struct wire_header *header;
    const struct wire_item *item;
    bool any = false;
    (void)poll(&wait, 1, timeout_ms);
    for (;;) {
        ssize_t length = recv(mass->socket, bytes, sizeof bytes, MSG_DONTWAIT);
        if (length < 0)
            return any;
        any = true;
        if (wire_decode_datagram((const uint8_t *)bytes, (size_t)length, WIRE_KIND_REPLY, &header,
                                 &item) != WIRE_ACCEPTED)
            die("an ill-formed datagram");
        for (uint16_t i = 0; i < header->item_count; i++, item = wire_item_next(item))
            take_reply(mass, item, phase);
    }
}

/* ---- the three parts ------------------------------------------------------------------------- */

/* Every client's request of this phase until all are answered; in order within the window. */
static void ask_all(struct mass *mass, enum phase phase)
{
    uint32_t done = 0; /* all below are answered */
    uint64_t progress_ns = now_ns();
    while (done < mass->count) {
        struct outgoing out;
        uint64_t now = now_ns();
        out_start(&out);
        for (uint32_t i = done; i < mass->count && i < done + OUTSTANDING_MAX; i++) {
            struct client *client = &mass->clients[i];
            if (client->answered ||
                (client->asked && now - client->sent_ns < RESEND_MS * UINT64_C(1000000)))
                continue;
            client->asked = true;
            client->sent_ns = now;
            if (phase == PHASE_OPEN)
                add_open(mass, &out, client);
            else
                add_acquire(mass, &out, client);
        }
        if (out.builder.items > 0)
            out_send(mass, &out);
        (void)take(mass, 20, phase);
        uint32_t before = done;
        while (done < mass->count && mass->clients[done].answered)
            done++;
        if (done != before)
            progress_ns = now;
        else if (now - progress_ns > PATIENCE_MS * UINT64_C(1000000))
            die("no answer in phase %d; %u of %u are answered", (int)phase, done, mass->count);
    }
    for (uint32_t i = 0; i < mass->count; i++)
        mass->clients[i].asked = mass->clients[i].answered = false;
}

static void index_sessions(struct mass *mass)
{
    sorted = calloc(mass->count, sizeof *sorted);
    if (sorted == NULL)
        die("no memory");
    for (uint32_t i = 0; i < mass->count; i++)
        sorted[i] = &mass->clients[i];
    qsort(sorted, mass->count, sizeof *sorted, by_session);
    for (uint32_t i = 1; i < mass->count; i++)
        if (sorted[i]->session == sorted[i - 1]->session)
            die("two sessions have the same id");
}

/* Positions were told while nobody left: they must be all different. A lost datagram may have put
 * clients into another order than that of their numbers. */
static void index_positions(struct mass *mass)
{
    mass->order = calloc(mass->count, sizeof *mass->order);
    if (mass->order == NULL)
        die("no memory");
    for (uint32_t i = 1; i < mass->count; i++) {
        uint32_t position = mass->clients[i].position;
        if (position >= mass->count - 1 || mass->order[position] != 0)
            die("client %u was told position %u, out of range or told twice", i, position);
        mass->order[position] = i;
    }
}

/* The holder releases; the next one must be granted, it alone. */
static void hand_over(struct mass *mass, uint32_t expected_grants)
{
    struct client *holder = &mass->clients[mass->last_granted];
    uint64_t started = now_ns(), sent = 0;
    mass->release_number = 0;
    while (mass->grants < expected_grants || mass->release_number != holder->session) {
        if (now_ns() - sent > RESEND_MS * UINT64_C(1000000)) {
            struct outgoing out;
            sent = now_ns();
            out_start(&out);
            add_release(mass, &out, holder);
            out_send(mass, &out);
        }
        (void)take(mass, 5, PHASE_QUEUE);
        if (mass->grants > expected_grants)
            die("one release woke more than one waiter");
        if (now_ns() - started > PATIENCE_MS * UINT64_C(1000000))
            die("a release was not followed by a grant (%u so far)", mass->grants);
    }
    const struct client *next = &mass->clients[mass->last_granted];
    if (mass->last_granted != mass->order[expected_grants - 2])
        die("client %u was granted, but %u stood first", mass->last_granted,
            mass->order[expected_grants - 2]);
    if (next->token <= holder->token)
        die("the token did not rise");
}

static void connect_to(struct mass *mass, const char *ip, uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int buffer = 4 << 20;
    mass->socket = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (mass->socket < 0 || inet_pton(AF_INET, ip, &address.sin_addr) != 1)
        die("not an address: %s", ip);
    (void)setsockopt(mass->socket, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
    if (connect(mass->socket, (const struct sockaddr *)&address, sizeof address) < 0)
        die("connect: %s", strerror(errno));
}

static uint32_t number(const char *text, uint32_t most)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (end == text || *end != '\0' || value > most)
        die("not a number up to %u: %s", most, text);
    return (uint32_t)value;
}

int main(int argc, char **argv)
{
    struct mass mass = {0};
    uint64_t nonce;
    if (argc != 7)
        die("usage: mass IPV4 PORT SHARD NAME WAITERS HANDOVERS");
    connect_to(&mass, argv[1], (uint16_t)number(argv[2], UINT16_MAX));
    mass.shard = (uint16_t)number(argv[3], WIRE_SHARDS_MAX - 1);
    mass.name = argv[4];
    mass.count = number(argv[5], CLIENTS_MAX) + 1;
    uint32_t hand_overs = number(argv[6], mass.count - 1);
    mass.clients = calloc(mass.count, sizeof *mass.clients);
    if (mass.clients == NULL || getrandom(&nonce, sizeof nonce, 0) != sizeof nonce)
        die("no memory, or no random numbers");
    for (uint32_t i = 0; i < mass.count; i++)
        mass.clients[i].nonce = (nonce >> 1) + 1 + i;
    ask_all(&mass, PHASE_OPEN);
    index_sessions(&mass);
    uint64_t opened_ns = now_ns();
    ask_all(&mass, PHASE_QUEUE);
    uint64_t queued_ns = now_ns();
    if (mass.grants != 1 || mass.last_granted != 0)
        die("%u were granted before any release", mass.grants);
    index_positions(&mass);
    for (uint32_t i = 0; i < hand_overs; i++)
        hand_over(&mass, 2 + i);
    uint64_t done_ns = now_ns();
    /* A late second push would still be on its way. */
    while (take(&mass, QUIET_MS, PHASE_QUEUE))
        continue;
    if (mass.grants != 1 + hand_overs)
        die("%u grants after %u releases", mass.grants, hand_overs);
    printf("waiters %u, queued in %.2f s, %u hand-overs at %.0f/s, %llu pushes repeated\n",
           mass.count - 1, (double)(queued_ns - opened_ns) * 1e-9, hand_overs,
           hand_overs / ((double)(done_ns - queued_ns) * 1e-9), (unsigned long long)mass.repeats);
    return 0;
}
