/* SPDX-License-Identifier: Apache-2.0
 *
 * libbelay whole, over real sockets, against the tests' own little service (client_fake.h) in a
 * thread: blocking and asynchronous calls from several threads, callbacks, closing. A plain
 * program, so that ThreadSanitizer can watch it.
 */
#include <arpa/inet.h>
#include <assert.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "belay/belay.h"
#include "client_check.h"
#include "client_fake.h"

#define LOSS_AHEAD_NS 3000000u /* a lock is lost at most 2 ms before its deadline */

/* ---- the service on sockets ------------------------------------------------------------------ */

struct server {
    struct fake *fake;
    int sockets[FAKE_NODES];
    struct sockaddr_in client; /* one client at a time */
    pthread_t thread;
    pthread_mutex_t mutex; /* guards fake */
    atomic_bool stop, dead;
    char endpoints[64];
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct sockaddr_in node_address(uint16_t base, int node)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)(base + node))};
    address.sin_addr.s_addr = htonl(0x7f000001u + (uint32_t)node);
    return address;
}

/* Three ports in a row that nobody else has. */
static uint16_t bind_nodes(struct server *server)
{
    for (uint32_t attempt = 0; attempt < 200; attempt++) {
        uint16_t base = (uint16_t)(20000 + ((uint32_t)getpid() * 7 + attempt * 13) % 20000);
        int bound = 0;
        for (int node = 0; node < FAKE_NODES; node++) {
            struct sockaddr_in address = node_address(base, node);
            server->sockets[node] = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
            bound += bind(server->sockets[node], (struct sockaddr *)&address, sizeof(address)) == 0;
        }
        if (bound == FAKE_NODES)
            return base;
        for (int node = 0; node < FAKE_NODES; node++)
            close(server->sockets[node]);
    }
    CHECK(!"no free ports");
    return 0;
}

static void serve_once(struct server *server)
{
    struct fake *f = server->fake;
    static _Alignas(8) uint8_t bytes[2048];

    f->now_ns = now_ns();
    for (uint8_t node = 0; node < FAKE_NODES; node++) {
        struct sockaddr_in from;
        socklen_t from_bytes = sizeof(from);
        ssize_t got;
        while ((got = recvfrom(server->sockets[node], bytes, sizeof(bytes), 0,
                               (struct sockaddr *)&from, &from_bytes)) > 0) {
            server->client = from;
            if (!atomic_load(&server->dead))
                fake_serve(f, node, bytes, (size_t)got);
        }
    }
    fake_serve(f, 0, NULL, 0); /* time passes */
    for (uint32_t i = 0; i < f->packets_count; i++) {
        if (!atomic_load(&server->dead))
            sendto(server->sockets[f->packets[i].node], f->packets[i].bytes, f->packets[i].length,
                   0, (struct sockaddr *)&server->client, sizeof(server->client));
    }
    f->packets_count = 0;
}

static void *server_thread(void *context)
{
    struct server *server = context;
    struct pollfd polled[FAKE_NODES];

    for (int i = 0; i < FAKE_NODES; i++)
        polled[i] = (struct pollfd){.fd = server->sockets[i], .events = POLLIN};
    while (!atomic_load(&server->stop)) {
        poll(polled, FAKE_NODES, 5);
        pthread_mutex_lock(&server->mutex);
        serve_once(server);
        pthread_mutex_unlock(&server->mutex);
    }
    return NULL;
}

static struct server *server_start(void)
{
    struct server *server = calloc(1, sizeof(*server));

    server->fake = fake_new(NULL);
    server->fake->port_base = bind_nodes(server);
    server->fake->delay_ns = 0;
    snprintf(server->endpoints, sizeof(server->endpoints), "127.0.0.1:%u, 127.0.0.2:%u",
             server->fake->port_base, server->fake->port_base + 1u);
    pthread_mutex_init(&server->mutex, NULL);
    CHECK(pthread_create(&server->thread, NULL, server_thread, server) == 0);
    return server;
}

static void server_stop(struct server *server)
{
    atomic_store(&server->stop, true);
    pthread_join(server->thread, NULL);
    for (int i = 0; i < FAKE_NODES; i++)
        close(server->sockets[i]);
    fake_free(server->fake);
    free(server);
}

static uint32_t leases(struct server *server)
{
    pthread_mutex_lock(&server->mutex);
    uint32_t count = fake_leases(server->fake);
    pthread_mutex_unlock(&server->mutex);
    return count;
}

/* ---- helpers --------------------------------------------------------------------------------- */

struct losses {
    atomic_uint count;
    _Atomic uint64_t at_ns;
    _Atomic(belay_lock *) lock;
    atomic_uint reason;
};

static void on_lost(void *context, belay_lock *lock, belay_lost_reason reason)
{
    struct losses *losses = context;

    atomic_store(&losses->at_ns, now_ns());
    atomic_store(&losses->lock, lock);
    atomic_store(&losses->reason, (unsigned)reason);
    atomic_fetch_add(&losses->count, 1);
}

static belay_client *client_of(struct server *server, struct losses *losses)
{
    belay_client_options options;
    belay_client *client;

    belay_client_options_init(&options);
    options.endpoints = server->endpoints;
    options.request_timeout_ms = 3000;
    if (losses != NULL) {
        options.on_lost = on_lost;
        options.context = losses;
    }
    CHECK(belay_client_open(&options, &client) == BELAY_OK);
    return client;
}

static belay_lock *acquire(belay_client *client, const char *name, uint64_t ttl_ms)
{
    belay_acquire_options options;
    belay_lock *lock;

    belay_acquire_options_init(&options, name);
    options.ttl_ms = ttl_ms;
    CHECK(belay_acquire(client, &options, &lock, NULL) == BELAY_OK);
    return lock;
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Both workers of the three nodes, with the counters that have a name. */
static void workers_are_listed(belay_client *client)
{
    belay_workers_info info;
    CHECK(belay_workers_status(client, 1000, &info) == BELAY_OK);
    CHECK(info.nodes_count == 3 && info.nodes[2].reachable && info.nodes[2].workers == 2);
    CHECK(info.workers_count == 6);
    for (size_t i = 0; i < info.workers_count; i++) {
        const belay_worker_info *worker = &info.workers[i];
        CHECK(worker->worker == i % 2 && worker->cycles_per_second == 1000);
        CHECK(worker->counters_count == 2);
        CHECK(strcmp(worker->counters[0].name, "requests") == 0);
        CHECK(worker->counters[0].detail[0] == '\0' && worker->counters[0].value == 7);
        CHECK(strcmp(worker->counters[1].detail, "apply") == 0);
    }
    belay_workers_info_free(&info);
    belay_workers_info_free(&info); /* once more does no harm */
}

static void test_blocking_calls(void)
{
    struct server *server = server_start();
    belay_client *client = client_of(server, NULL);
    belay_acquire_options options;
    belay_holder_info holder;
    belay_lock *other = (belay_lock *)client;
    uint64_t before_ns = now_ns();
    belay_lock *lock = acquire(client, "orders/42", 10000);

    CHECK(belay_lock_is_valid(lock));
    CHECK(belay_lock_token(lock) == 1);
    CHECK(strcmp(belay_lock_name(lock), "orders/42") == 0);
    CHECK(belay_lock_mode(lock) == BELAY_EXCLUSIVE);
    uint64_t until_ns = belay_lock_valid_until_ns(lock);
    CHECK(until_ns > before_ns + 9800000000u && until_ns < now_ns() + 9900000000u);
    belay_acquire_options_init(&options, "orders/42");
    options.try_only = true;
    CHECK(belay_acquire(client, &options, &other, &holder) == BELAY_BUSY);
    CHECK(other == NULL && holder.holders == 1 && holder.token == 1);
    options.try_only = false;
    options.wait_ms = 30;
    CHECK(belay_acquire(client, &options, &other, NULL) == BELAY_TIMED_OUT);
    CHECK(belay_renew(lock) == BELAY_OK);
    CHECK(belay_lock_valid_until_ns(lock) > until_ns);
    CHECK(belay_convert(lock, BELAY_SHARED, 0) == BELAY_OK);
    CHECK(belay_lock_token(lock) == 2 && belay_lock_mode(lock) == BELAY_SHARED);
    belay_lease_id lease = belay_lock_lease(lock);
    char text[BELAY_LEASE_TEXT_BYTES];
    belay_lease_format(lease, text);
    belay_lease_id parsed;
    CHECK(belay_lease_parse(text, &parsed) && parsed.secret == lease.secret);
    CHECK(!belay_lease_parse("12", &parsed) && !belay_lease_parse("x", &parsed));
    CHECK(belay_renew_lease(client, NULL, "orders/42", lease, 0) == BELAY_OK);
    CHECK(belay_release(lock) == BELAY_OK);
    CHECK(belay_release_lease(client, NULL, "orders/42", lease) == BELAY_LOST);
    CHECK(leases(server) == 0);
    options.ttl_ms = 0;
    CHECK(belay_acquire(client, &options, &other, NULL) == BELAY_BAD_REQUEST);
    CHECK(strstr(belay_error_text(), "ttl_ms") != NULL);
    belay_cluster_info info;
    CHECK(belay_cluster_status(client, 1000, &info) == BELAY_OK);
    CHECK(info.nodes_count == 3 && info.nodes[2].reachable);
    belay_cluster_info_free(&info);
    workers_are_listed(client);
    acquire(client, "left behind", 60000);
    belay_client_close(client, 2000);
    CHECK(leases(server) == 0);
    server_stop(server);
}

enum { THREADS = 8, ROUNDS = 60 };

struct contest {
    belay_client *client;
    int inside; /* guarded by the lock itself: a race here is a broken lock, and TSan sees it */
    uint64_t token;
    atomic_uint rounds;
};

static void *contend(void *context)
{
    struct contest *contest = context;

    for (int i = 0; i < ROUNDS; i++) {
        belay_lock *lock = acquire(contest->client, "hot", 10000);
        CHECK(contest->inside == 0);
        contest->inside = 1;
        CHECK(belay_lock_token(lock) > contest->token);
        contest->token = belay_lock_token(lock);
        CHECK(belay_lock_is_valid(lock));
        contest->inside = 0;
        atomic_fetch_add(&contest->rounds, 1);
        CHECK(belay_release(lock) == BELAY_OK);
    }
    return NULL;
}

static void test_threads(void)
{
    struct server *server = server_start();
    struct contest contest = {.client = client_of(server, NULL)};
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, contend, &contest) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(atomic_load(&contest.rounds) == THREADS * ROUNDS);
    belay_client_close(contest.client, 1000);
    CHECK(leases(server) == 0);
    server_stop(server);
}

static size_t take_one(belay_client *client, belay_completion *completion)
{
    struct pollfd polled = {.fd = belay_client_fd(client), .events = POLLIN};

    CHECK(poll(&polled, 1, 4000) == 1);
    return belay_client_take(client, completion, 1);
}

static void test_asynchronous_calls(void)
{
    struct server *server = server_start();
    belay_client *client = client_of(server, NULL);
    belay_lock *lock = acquire(client, "a", 10000);
    belay_acquire_options options;
    belay_request *requests[4];
    belay_completion completion;
    int users[4];

    belay_acquire_options_init(&options, "a");
    for (int i = 0; i < 4; i++)
        CHECK(belay_acquire_start(client, &options, &users[i], &requests[i]) == BELAY_OK);
    CHECK(belay_client_take(client, &completion, 1) == 0);
    belay_request_cancel(requests[1]);
    CHECK(take_one(client, &completion) == 1);
    CHECK(completion.status == BELAY_CANCELLED && completion.user == &users[1]);
    belay_request *release;
    CHECK(belay_release_start(client, lock, NULL, &release) == BELAY_OK);
    int granted = 0, released = 0;
    while (granted < 3 || released < 4) {
        CHECK(take_one(client, &completion) == 1);
        CHECK(completion.status == BELAY_OK);
        if (completion.user == NULL) {
            released++;
            continue;
        }
        granted++;
        CHECK(completion.user != &users[1]);
        CHECK(belay_release_start(client, completion.lock, NULL, &release) == BELAY_OK);
    }
    struct pollfd polled = {.fd = belay_client_fd(client), .events = POLLIN};
    CHECK(poll(&polled, 1, 0) == 0);
    CHECK(leases(server) == 0);
    belay_client_close(client, 1000);
    server_stop(server);
}

static void test_told_of_the_loss(void)
{
    struct server *server = server_start();
    struct losses losses = {.count = 0};
    belay_client *client = client_of(server, &losses);
    belay_lock *lock = acquire(client, "a", 400);
    uint64_t until_ns = 0, last_ns;

    CHECK(belay_lock_is_valid(lock));
    atomic_store(&server->dead, true);
    while ((last_ns = belay_lock_valid_until_ns(lock)) != 0)
        until_ns = last_ns;
    while (atomic_load(&losses.count) == 0)
        sched_yield();
    CHECK(atomic_load(&losses.lock) == lock);
    CHECK(atomic_load(&losses.reason) == BELAY_LOST_DEADLINE);
    /* That the core loses it no later than the deadline stands in test_client_leases, in virtual
     * time; how late a thread may be told is the machine's affair, how early is not. */
    CHECK(until_ns != 0 && atomic_load(&losses.at_ns) + LOSS_AHEAD_NS >= until_ns);
    CHECK(belay_lock_valid_until_ns(lock) == 0);
    CHECK(belay_release(lock) == BELAY_LOST);
    belay_acquire_options options;
    belay_acquire_options_init(&options, "b");
    CHECK(belay_acquire(client, &options, &lock, NULL) == BELAY_UNREACHABLE);
    belay_client_close(client, 50);
    server_stop(server);
}

static void *wait_for_ever(void *context)
{
    belay_acquire_options options;
    belay_lock *lock;

    belay_acquire_options_init(&options, "a");
    CHECK(belay_acquire(context, &options, &lock, NULL) == BELAY_CLOSED);
    return NULL;
}

/* Closing under a blocked call: it returns CLOSED, then the memory goes. */
static void test_close_under_a_waiter(void)
{
    struct server *server = server_start();
    belay_client *client = client_of(server, NULL);
    pthread_t thread;

    acquire(client, "a", 60000);
    CHECK(pthread_create(&thread, NULL, wait_for_ever, client) == 0);
    uint32_t waiters = 0;
    while (waiters == 0) {
        pthread_mutex_lock(&server->mutex);
        waiters = fake_waiters(server->fake);
        pthread_mutex_unlock(&server->mutex);
    }
    belay_client_close(client, 1000);
    pthread_join(thread, NULL);
    CHECK(leases(server) == 0);
    client = client_of(server, NULL);
    acquire(client, "a", 60000);
    belay_client_abandon(client);
    CHECK(leases(server) == 1);
    server_stop(server);
}

static void test_bad_options(void)
{
    belay_client_options options;
    belay_client *client;

    belay_client_options_init(&options);
    options.endpoints = "127.0.0.1:";
    CHECK(belay_client_open(&options, &client) == BELAY_BAD_REQUEST && client == NULL);
    options.endpoints = " , ";
    CHECK(belay_client_open(&options, &client) == BELAY_BAD_REQUEST);
    options.endpoints = "127.0.0.1:notaport";
    CHECK(belay_client_open(&options, &client) == BELAY_BAD_REQUEST);
    options.endpoints = "[::1]:7400,[::1";
    CHECK(belay_client_open(&options, &client) == BELAY_BAD_REQUEST);
    options.endpoints = "127.0.0.1:1";
    options.struct_bytes = 0;
    CHECK(belay_client_open(&options, &client) == BELAY_BAD_REQUEST);
    options.struct_bytes = offsetof(belay_client_options, on_lost); /* an older caller */
    CHECK(belay_client_open(&options, &client) == BELAY_OK);
    belay_client_abandon(client);
    for (int i = 0; i < BELAY_STATUS_COUNT; i++)
        CHECK(strcmp(belay_status_name((belay_status)i), "unknown") != 0);
    CHECK(strcmp(belay_status_name(BELAY_STATUS_COUNT), "unknown") == 0);
}

/* The same service, in another thread: here the client's socket is polled by ours. */
static void test_polled_socket(void)
{
    struct server *server = server_start();
    belay_client_options options;
    belay_acquire_options wanted;
    belay_client *client;
    belay_completion completion;
    belay_request *request;

    belay_client_options_init(&options);
    options.endpoints = server->endpoints;
    options.polled = true;
    CHECK(belay_client_open(&options, &client) == BELAY_OK);
    belay_lock *lock = acquire(client, "polled", 10000);
    CHECK(belay_lock_is_valid(lock) && leases(server) == 1);
    belay_acquire_options_init(&wanted, "polled/too");
    CHECK(belay_acquire_start(client, &wanted, &lock, &request) == BELAY_OK);
    while (belay_client_take(client, &completion, 1) == 0) {
        CHECK(belay_client_poll(client, NULL) == BELAY_OK);
        (void)sched_yield();
    }
    CHECK(completion.status == BELAY_OK && completion.user == &lock && leases(server) == 2);
    CHECK(belay_release(lock) == BELAY_OK);
    belay_client_close(client, 2000);
    CHECK(leases(server) == 0);
    server_stop(server);
}

int main(void)
{
    test_bad_options();
    test_blocking_calls();
    test_threads();
    test_asynchronous_calls();
    test_told_of_the_loss();
    test_close_under_a_waiter();
    test_polled_socket();
    return 0;
}
