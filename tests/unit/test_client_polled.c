/* SPDX-License-Identifier: Apache-2.0
 *
 * A polled client on a transport of the caller's, whose other end is the tests' own little service
 * (client_fake.h) in the same thread: what the client sends is served within send(), what comes of
 * it waits for receive(). So it is exact what leaves with which poll.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "belay/belay.h"
#include "client_check.h"
#include "client_fake.h"

enum { REQUESTS = 32, FEW = 8 /* one datagram holds them */, PORT_BASE = 7400 };

/* The wire, and the application on it. */
struct world {
    struct fake *fake;
    belay_transport transport;
    belay_client *client;
    uint32_t sent, flushed, lose_every; /* of what is sent; 0 = nothing is lost */
    bool dead;
    uint32_t given; /* of fake->packets: the client may still read them */
    uint32_t acquired, released, lost;
    belay_lost_reason reason;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint32_t receive(void *context, belay_packet *packets, uint32_t max)
{
    struct world *world = context;
    struct fake *fake = world->fake;

    memmove(fake->packets, fake->packets + world->given,
            (fake->packets_count - world->given) * sizeof(fake->packets[0]));
    fake->packets_count -= world->given;
    world->given = 0;
    fake->now_ns = now_ns();
    fake_serve(fake, 0, NULL, 0); /* time passes there, too */
    while (world->given < fake->packets_count && world->given < max) {
        const struct fake_packet *packet = &fake->packets[world->given];
        packets[world->given++] = (belay_packet){
            .bytes = packet->bytes,
            .length = (uint32_t)packet->length,
            .from = {.ip = {[10] = 0xff, [11] = 0xff, 127, 0, 0, (uint8_t)(packet->node + 1)},
                     .port = (uint16_t)(PORT_BASE + packet->node)},
        };
    }
    return world->given;
}

static void send(void *context, const belay_address *to, const uint8_t *bytes, size_t length)
{
    struct world *world = context;
    _Alignas(8) uint8_t copy[1408];

    world->sent++;
    CHECK(length <= sizeof(copy));
    CHECK(to->ip[12] == 127 && to->port >= PORT_BASE && to->port < PORT_BASE + FAKE_NODES);
    if (world->dead || (world->lose_every > 0 && world->sent % world->lose_every == 0))
        return;
    memcpy(copy, bytes, length);
    world->fake->now_ns = now_ns();
    fake_serve(world->fake, (uint8_t)(to->port - PORT_BASE), copy, length);
}

static void flush(void *context)
{
    ((struct world *)context)->flushed++;
}

/* `user` is where the lock belongs; a release has none. What was acquired is given back at once. */
static void on_complete(void *context, const belay_completion *completion)
{
    struct world *world = context;
    belay_request *request;

    CHECK(completion->status == BELAY_OK);
    if (completion->user == NULL) {
        world->released++;
        return;
    }
    world->acquired++;
    CHECK(belay_lock_is_valid(completion->lock));
    CHECK(belay_release_start(world->client, completion->lock, NULL, &request) == BELAY_OK);
}

static void on_lost(void *context, belay_lock *lock, belay_lost_reason reason)
{
    struct world *world = context;

    CHECK(!belay_lock_is_valid(lock));
    world->lost++;
    world->reason = reason;
}

static struct world *world_new(bool callback)
{
    struct world *world = calloc(1, sizeof(*world));
    belay_client_options options;

    world->fake = fake_new(NULL);
    world->fake->port_base = PORT_BASE;
    world->fake->delay_ns = 0;
    world->transport = (belay_transport){.struct_bytes = sizeof(world->transport),
                                         .context = world,
                                         .receive = receive,
                                         .send = send,
                                         .flush = flush};
    belay_client_options_init(&options);
    options.endpoints = "127.0.0.1:7400";
    options.polled = true;
    options.transport = &world->transport;
    options.on_complete = callback ? on_complete : NULL;
    options.on_lost = on_lost;
    options.context = world;
    CHECK(belay_client_open(&options, &world->client) == BELAY_OK);
    memset(&world->transport, 0, sizeof(world->transport)); /* it was copied */
    return world;
}

static void world_free(struct world *world)
{
    belay_client_close(world->client, 5000);
    CHECK(fake_leases(world->fake) == 0);
    fake_free(world->fake);
    free(world);
}

static belay_lock *acquire(struct world *world, const char *name, uint64_t ttl_ms)
{
    belay_acquire_options options;
    belay_lock *lock;

    belay_acquire_options_init(&options, name);
    options.ttl_ms = ttl_ms;
    CHECK(belay_acquire(world->client, &options, &lock, NULL) == BELAY_OK);
    return lock;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_bad_options(void)
{
    belay_client_options options;
    belay_client *client;
    belay_transport transport = {.struct_bytes = sizeof(transport)};

    belay_client_options_init(&options);
    options.on_complete = on_complete;
    CHECK(belay_client_open(&options, &client) == BELAY_BAD_REQUEST && client == NULL);
    options.on_complete = NULL;
    options.transport = &transport;
    CHECK(belay_client_open(&options, &client) == BELAY_BAD_REQUEST);
    options.polled = true;
    CHECK(belay_client_open(&options, &client) == BELAY_BAD_REQUEST);
    CHECK(strstr(belay_error_text(), "missing") != NULL);
    transport.struct_bytes--;
    CHECK(belay_client_open(&options, &client) == BELAY_BAD_REQUEST);
    belay_client_options_init(&options);
    CHECK(belay_client_open(&options, &client) == BELAY_OK);
    CHECK(belay_client_poll(client, NULL) == BELAY_BAD_REQUEST);
    belay_client_abandon(client);
}

static void test_blocking_calls(void)
{
    struct world *world = world_new(false);
    belay_acquire_options options;
    belay_holder_info holder;
    belay_lock *other;
    belay_cluster_info info;
    belay_lock *lock = acquire(world, "orders/42", 10000);

    CHECK(belay_client_fd(world->client) == -1);
    belay_acquire_options_init(&options, "orders/42");
    options.try_only = true;
    CHECK(belay_acquire(world->client, &options, &other, &holder) == BELAY_BUSY);
    CHECK(holder.holders == 1);
    options.try_only = false;
    options.wait_ms = 3;
    CHECK(belay_acquire(world->client, &options, &other, NULL) == BELAY_TIMED_OUT);
    CHECK(belay_renew(lock) == BELAY_OK);
    CHECK(belay_convert(lock, BELAY_SHARED, 0) == BELAY_OK);
    CHECK(belay_release(lock) == BELAY_OK);
    CHECK(belay_cluster_status(world->client, 5000, &info) == BELAY_OK);
    CHECK(info.nodes_count == FAKE_NODES && info.nodes[2].reachable);
    belay_cluster_info_free(&info);
    world->dead = true; /* nobody answers: it ends all the same */
    CHECK(belay_cluster_status(world->client, 1, &info) == BELAY_OK && !info.nodes[0].reachable);
    belay_cluster_info_free(&info);
    world->dead = false;
    acquire(world, "left behind", 60000);
    world_free(world);
}

static void start(struct world *world, int count)
{
    belay_acquire_options options;
    belay_request *request;
    char name[32];

    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof(name), "many/%d", i);
        belay_acquire_options_init(&options, name);
        CHECK(belay_acquire_start(world->client, &options, world, &request) == BELAY_OK);
    }
}

static void test_several_to_a_datagram(void)
{
    struct world *world = world_new(true);
    uint32_t datagrams;

    start(world, REQUESTS); /* opens the sessions */
    while (world->released < REQUESTS)
        CHECK(belay_client_poll(world->client, NULL) == BELAY_OK);
    uint32_t sent = world->sent, flushed = world->flushed;
    start(world, FEW);
    CHECK(world->sent == sent && world->flushed == flushed);
    CHECK(belay_client_poll(world->client, &datagrams) == BELAY_OK);
    CHECK(world->sent == sent + 1 && world->flushed > flushed && world->acquired == REQUESTS);
    CHECK(belay_client_poll(world->client, &datagrams) == BELAY_OK);
    CHECK(datagrams > 0 && world->acquired == REQUESTS + FEW);
    CHECK(world->sent == sent + 2); /* the releases leave with the poll that brought the locks */
    while (world->released < REQUESTS + FEW)
        CHECK(belay_client_poll(world->client, NULL) == BELAY_OK);
    world_free(world);
}

static void test_losses_on_the_way(void)
{
    struct world *world = world_new(true);

    world->lose_every = 3;
    start(world, REQUESTS);
    while (world->released < REQUESTS)
        CHECK(belay_client_poll(world->client, NULL) == BELAY_OK);
    CHECK(world->acquired == REQUESTS);
    world->lose_every = 0;
    world_free(world);
}

static void test_taken_and_cancelled(void)
{
    struct world *world = world_new(false);
    belay_lock *lock = acquire(world, "a", 10000);
    belay_acquire_options options;
    belay_request *request;
    belay_completion completion;

    belay_acquire_options_init(&options, "a");
    CHECK(belay_acquire_start(world->client, &options, world, &request) == BELAY_OK);
    CHECK(belay_client_poll(world->client, NULL) == BELAY_OK);
    CHECK(belay_client_take(world->client, &completion, 1) == 0);
    belay_request_cancel(request);
    while (belay_client_take(world->client, &completion, 1) == 0)
        CHECK(belay_client_poll(world->client, NULL) == BELAY_OK);
    CHECK(completion.status == BELAY_CANCELLED && completion.user == world);
    CHECK(completion.request == request && completion.lock == NULL);
    CHECK(belay_release(lock) == BELAY_OK);
    world_free(world);
}

/* Renewals are the poll's, and so is the news that there is nobody to renew with. */
static void test_renewed_and_lost(void)
{
    struct world *world = world_new(false);
    belay_lock *lock = acquire(world, "short", 60);
    uint64_t until_ns = belay_lock_valid_until_ns(lock);

    while (belay_lock_valid_until_ns(lock) == until_ns)
        CHECK(belay_client_poll(world->client, NULL) == BELAY_OK);
    CHECK(world->lost == 0 && belay_lock_valid_until_ns(lock) > until_ns);
    world->dead = true;
    while (world->lost == 0)
        CHECK(belay_client_poll(world->client, NULL) == BELAY_OK);
    CHECK(world->reason == BELAY_LOST_DEADLINE && belay_lock_valid_until_ns(lock) == 0);
    world->dead = false;
    CHECK(belay_release(lock) == BELAY_LOST);
    world_free(world);
}

int main(void)
{
    test_bad_options();
    test_blocking_calls();
    test_several_to_a_datagram();
    test_losses_on_the_way();
    test_taken_and_cancelled();
    test_renewed_and_lost();
    return 0;
}
