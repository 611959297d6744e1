/* SPDX-License-Identifier: Apache-2.0
 *
 * Random command streams, applied to the machine and to its twin: every output must be equal. Small
 * limits, few names and short TTLs make everything collide; the machine is replaced by its own
 * restored snapshot now and then.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/lock_twin.h"

enum { KNOWN_MAX = 64, CLIENTS = 8, COMMANDS_MAX = 12, SENT_MAX = 16 };

struct known_lease {
    struct wire_lease_id id;
    uint32_t key_tag;
};

struct client {
    uint64_t id;
    uint64_t nonce;
    uint64_t number;
    uint64_t acked;
};

struct world {
    struct machine_rig rig;
    struct lock_twin *twin;
    uint64_t random;
    struct client clients[CLIENTS];
    struct known_lease known[KNOWN_MAX]; /* granted some time, maybe over */
    uint32_t known_count;
    _Alignas(8) uint8_t sent[SENT_MAX][RIG_ITEM_BYTES_MAX]; /* for retries */
    uint32_t sent_next;
    uint64_t statuses[WIRE_STATUS_COUNT]; /* how often each was answered */
    uint64_t pushes;
};

static uint64_t draw(struct world *world, uint64_t below)
{
    uint64_t z = world->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % below;
}

static bool chance(struct world *world, uint64_t percent)
{
    return draw(world, 100) < percent;
}

static const char *const names[] = {"a",
                                    "b",
                                    "c",
                                    "d",
                                    "ab",
                                    "a/b",
                                    "a-name-of-exactly-24-by",
                                    "a-name-that-is-longer-than-24",
                                    "another-name-that-is-longer-than-24-bytes"};

static const char *any_name(struct world *world)
{
    return names[draw(world, sizeof(names) / sizeof(names[0]))];
}

static struct known_lease any_lease(struct world *world)
{
    if (world->known_count == 0 || chance(world, 3)) {
        return (struct known_lease){.id = {.secret = 5, .slot = (uint32_t)draw(world, 9)}};
    }
    /* Mostly of the newest few. */
    uint32_t window = world->known_count < 8 ? world->known_count : 8;
    uint32_t back = (uint32_t)draw(world, chance(world, 80) ? window : world->known_count);
    return world->known[world->known_count - 1 - back];
}

/* Numbers mostly count up; now and then they repeat, lag, or run ahead. */
static void number_it(struct world *world, struct client *client, struct wire_request *request)
{
    request->session = client->id;
    request->number = ++client->number;
    if (chance(world, 25) && client->number > 3) {
        request->number -= 1 + draw(world, 3);
        client->number--;
    } else if (chance(world, 3)) {
        request->number += draw(world, 9);
    }
    if (chance(world, 60)) {
        client->acked = client->number - draw(world, client->number < 4 ? client->number : 4);
    }
    request->acked_below = client->acked <= request->number ? client->acked : request->number;
    if (request->item.op == WIRE_OP_ACQUIRE) {
        request->drawn = wire_lease_secret(request->drawn, request->number);
    }
}

static void add_acquire(struct world *world, struct client *client)
{
    static const char *const values[] = {"", "", "", "v", "a longer value"};
    const char *name = any_name(world);
    const char *value = values[draw(world, 5)];
    struct wire_acquire *acquire =
        rig_acquire_value(&world->rig, 0, 0, (uint8_t)(1 + draw(world, 2)), "", name, value,
                          chance(world, 15) ? 0 : (uint32_t)(5 + draw(world, 400)));
    number_it(world, client, &acquire->request);
    acquire->request.item.flags |= (uint8_t)(draw(world, 8) & (chance(world, 50) ? 6 : 7));
    acquire->wait_ms = chance(world, 40) ? (uint32_t)draw(world, 300) : WIRE_WAIT_FOREVER;
    acquire->lock_delay_ms = chance(world, 15) ? (uint32_t)draw(world, 300) : 0;
    acquire->grace_ms = chance(world, 15) ? (uint32_t)draw(world, 200) : 0;
    acquire->priority = (uint8_t)draw(world, 3);
}

static void add_renewals(struct world *world, struct client *client)
{
    bool keepalive = chance(world, 60);
    uint16_t count = (uint16_t)draw(world, 4);
    count = count == 0 && !keepalive ? 1 : count;
    struct wire_renew *renew =
        rig_renew(&world->rig, keepalive ? WIRE_OP_KEEPALIVE : WIRE_OP_RENEW, 0, 0, count);
    number_it(world, client, &renew->request);
    for (uint16_t i = 0; i < count; i++) {
        struct known_lease known = any_lease(world);
        renew->renewals[i].lease = known.id;
        renew->renewals[i].key_tag = known.key_tag;
        renew->renewals[i].ttl_ms = chance(world, 20) ? (uint32_t)draw(world, 600) : 0;
    }
    if (keepalive) {
        renew->address.port = (uint16_t)(1 + draw(world, 60000));
    }
}

static void add_lease_command(struct world *world, struct client *client)
{
    struct known_lease known = any_lease(world);
    if (chance(world, 65)) {
        struct wire_release *release = rig_release(&world->rig, 0, 0, known.id, "");
        release->key_tag = known.key_tag ^ (uint32_t)chance(world, 2);
        number_it(world, client, &release->request);
    } else {
        uint32_t wait_ms = chance(world, 30) ? (uint32_t)draw(world, 200) : WIRE_WAIT_FOREVER;
        struct wire_convert *convert =
            rig_convert(&world->rig, 0, 0, known.id, "", (uint8_t)(1 + draw(world, 2)), wait_ms);
        convert->key_tag = known.key_tag;
        number_it(world, client, &convert->request);
    }
}

static void add_cancel(struct world *world, struct client *client)
{
    struct wire_cancel *cancel = rig_cancel(&world->rig, 0, 0, 1);
    number_it(world, client, &cancel->request);
    if (cancel->request.number < 2) {
        cancel->request.number = 2;
    }
    uint64_t back = 1 + draw(world, 6);
    cancel->target = cancel->request.number > back ? cancel->request.number - back : 1;
}

static void add_force(struct world *world, struct client *client)
{
    struct wire_named *named =
        rig_named(&world->rig, WIRE_OP_FORCE_RELEASE, 0, 0, "", any_name(world));
    number_it(world, client, &named->request);
    named->request.item.flags = chance(world, 40) ? WIRE_NOW : 0;
}

/* The very item that was sent before, as a client does that got no answer. */
static void add_retry(struct world *world)
{
    const struct wire_item *sent = (const void *)world->sent[draw(world, SENT_MAX)];
    if (sent->bytes != 0) {
        rig_add_item(&world->rig, sent);
    }
}

static void remember_sent(struct world *world, size_t from)
{
    const struct wire_item *item = (const void *)(world->rig.payload + from);
    if (from < world->rig.payload_bytes && item->bytes <= RIG_ITEM_BYTES_MAX) {
        memcpy(world->sent[world->sent_next++ % SENT_MAX], item, item->bytes);
    }
}

static void add_command(struct world *world)
{
    struct client *client = &world->clients[draw(world, CLIENTS)];
    uint64_t which = draw(world, 100);
    if (client->id == 0 || which < 3) {
        if (client->id == 0 || chance(world, 50)) {
            client->nonce = 1 + draw(world, 1000000);
        }
        (void)rig_open(&world->rig, client->nonce, (uint32_t)(5 + draw(world, 900)));
    } else if (which < 45) {
        add_acquire(world, client);
    } else if (which < 70) {
        add_lease_command(world, client);
    } else if (which < 86) {
        add_renewals(world, client);
    } else if (which < 94) {
        add_cancel(world, client);
    } else if (which < 98) {
        add_force(world, client);
    } else {
        struct wire_close *close = rig_close(&world->rig, 0, 0);
        number_it(world, client, &close->request);
    }
}

/* What clients learn from the outputs. */
static void learn(struct world *world)
{
    for (uint32_t i = 0; i < world->rig.outputs_count; i++) {
        const struct rig_output *output = &world->rig.outputs[i];
        const struct wire_granted *granted = (const void *)output->item;
        world->statuses[granted->reply.item.status] += output->kind == LOCK_OUT_REPLY;
        world->pushes += output->kind != LOCK_OUT_REPLY;
        if (granted->reply.item.op == WIRE_OP_OPEN && granted->reply.item.status == WIRE_OK) {
            const struct wire_opened *opened = (const void *)output->item;
            for (int c = 0; c < CLIENTS; c++) {
                struct client *client = &world->clients[c];
                if (client->nonce == opened->nonce && client->id != opened->reply.session) {
                    *client = (struct client){
                        .id = opened->reply.session, .nonce = opened->nonce, .acked = 1};
                }
            }
        }
        bool granting =
            output->kind == LOCK_OUT_PUSH_GRANT ||
            ((granted->reply.item.op == WIRE_OP_ACQUIRE) && granted->reply.item.status == WIRE_OK);
        if (granting) {
            if (world->known_count == KNOWN_MAX) {
                memmove(world->known, world->known + 1, sizeof(world->known[0]) * (KNOWN_MAX - 1));
                world->known_count--;
            }
            /* A push does not name the resource: the twin's table does. */
            const struct twin_lease *lease = &world->twin->leases[granted->lease.slot];
            const struct twin_key *key = &world->twin->resources[lease->resource].key;
            uint64_t hash =
                wire_key_hash(key->text, key->ns_bytes, key->text + key->ns_bytes, key->name_bytes);
            world->known[world->known_count++] =
                (struct known_lease){.id = granted->lease, .key_tag = (uint32_t)hash};
        }
    }
}

static void dump(const char *who, const struct rig_output *output)
{
    const struct wire_item *item = (const void *)output->item;
    fprintf(stderr, "%s: kind %d command %u addressed %d port %u:", who, output->kind,
            output->command, output->addressed, output->port);
    for (uint16_t i = 0; i < item->bytes; i++) {
        fprintf(stderr, "%s%02x", i % 8 == 0 ? " " : "", output->item[i]);
    }
    fprintf(stderr, "\n");
}

static bool equal(const struct rig_output *a, const struct rig_output *b)
{
    const struct wire_item *item = (const void *)a->item;
    bool same = a->kind == b->kind && a->command == b->command && a->addressed == b->addressed &&
                a->port == b->port && memcmp(a->item, b->item, item->bytes) == 0;
    if (!same) {
        dump("machine", a);
        dump("twin   ", b);
    }
    return same;
}

static void compare(const struct world *world, uint64_t seed)
{
    const struct machine_rig *rig = &world->rig;
    const struct lock_twin *twin = world->twin;
    uint32_t count =
        rig->outputs_count < twin->outputs_count ? rig->outputs_count : twin->outputs_count;
    for (uint32_t i = 0; i < count; i++) {
        cr_assert(equal(&rig->outputs[i], &twin->outputs[i]),
                  "seed %" PRIu64 " entry %" PRIu64 " output %u differs", seed, rig->index, i);
    }
    cr_assert_eq(rig->outputs_count, twin->outputs_count,
                 "seed %" PRIu64 " entry %" PRIu64 ": %u outputs, the twin has %u", seed,
                 rig->index, rig->outputs_count, twin->outputs_count);
    struct lock_counts counts;
    struct lock_counts twin_has;
    lock_machine_counts(rig->machine, &counts);
    twin_counts(twin, &twin_has);
    cr_assert(counts.leases == twin_has.leases && counts.resources == twin_has.resources &&
                  counts.sessions == twin_has.sessions && counts.waiters == twin_has.waiters &&
                  counts.answers == twin_has.answers && counts.token_last == twin_has.token_last,
              "seed %" PRIu64 " entry %" PRIu64 ": counts differ", seed, rig->index);
}

static struct lock_limits limits_of(struct world *world)
{
    struct lock_limits limits = rig_limits();
    if (chance(world, 50)) { /* everything runs full */
        limits.leases_max = 6;
        limits.resources_max = 5;
        limits.sessions_max = 6;
        limits.waiters_max = 6;
        limits.queue_max = 3;
        limits.answers_max = 40;
        limits.long_names_max = 1;
        limits.extras_max = 3;
    }
    limits.window = 8;
    limits.ttl_ms_max = 350;
    limits.wait_ms_max = 250;
    limits.lock_delay_ms_max = 250;
    limits.grace_ms_max = 150;
    limits.session_ttl_ms_max = 800;
    return limits;
}

static void step_time(struct world *world)
{
    if (chance(world, 3)) {
        world->rig.stamp_ns += draw(world, 20000) * RIG_MS; /* a shard without a leader */
    } else {
        world->rig.stamp_ns += draw(world, chance(world, 50) ? 1000 : 40 * RIG_MS);
    }
}

static void run(uint64_t seed, int entries, uint64_t statuses[WIRE_STATUS_COUNT])
{
    struct world *world = calloc(1, sizeof(*world));
    world->random = seed;
    struct lock_limits limits = limits_of(world);
    rig_init(&world->rig, &limits, true);
    world->twin = malloc(sizeof(*world->twin));
    twin_init(world->twin, &limits);
    for (int entry = 0; entry < entries; entry++) {
        step_time(world);
        world->rig.endings_max = chance(world, 50) ? (uint32_t)draw(world, 4) : 100;
        uint64_t commands = draw(world, COMMANDS_MAX);
        for (uint64_t i = 0; i < commands; i++) {
            size_t from = world->rig.payload_bytes;
            if (chance(world, 20)) {
                add_retry(world);
            } else {
                add_command(world);
                remember_sent(world, from);
            }
        }
        struct lock_batch batch = {.count = world->rig.count,
                                   .endings_max = world->rig.endings_max};
        memcpy(world->rig.payload, &batch, sizeof(batch));
        twin_apply(world->twin, world->rig.stamp_ns, world->rig.payload);
        cr_assert_eq(rig_apply(&world->rig), 0);
        compare(world, seed);
        learn(world);
        if (entry % 16 == 0) {
            const char *wrong = lock_machine_verify(world->rig.machine);
            cr_assert(wrong == NULL, "seed %" PRIu64 " entry %d: %s", seed, entry, wrong);
        }
        if (chance(world, 1)) {
            cr_assert_eq(rig_restore(&world->rig, 1 + draw(world, 5000)), 0);
            const char *wrong = lock_machine_verify(world->rig.machine);
            cr_assert(wrong == NULL, "seed %" PRIu64 " restored at %d: %s", seed, entry, wrong);
        }
    }
    for (int i = 0; i < WIRE_STATUS_COUNT; i++) {
        statuses[i] += world->statuses[i];
    }
    twin_free(world->twin);
    free(world->twin);
    rig_free(&world->rig);
    free(world);
}

/* BELAY_TWIN_SEEDS=N tries more. */
Test(lock_machine_twin, random_streams)
{
    uint64_t statuses[WIRE_STATUS_COUNT] = {0};
    const char *more = getenv("BELAY_TWIN_SEEDS");
    uint64_t seeds = more != NULL ? strtoull(more, NULL, 10) : 24;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        run(seed, 1500, statuses);
    }
    static const enum wire_status met[] = {
        WIRE_OK,           WIRE_QUEUED,      WIRE_BUSY,          WIRE_DELAYED,     WIRE_TIMED_OUT,
        WIRE_LOST,         WIRE_CANCELLED,   WIRE_DEADLOCK,      WIRE_OVER_LIMIT,  WIRE_BAD_REQUEST,
        WIRE_SESSION_LOST, WIRE_WINDOW_FULL, WIRE_STALE_REQUEST, WIRE_ALREADY_HELD};
    for (size_t i = 0; i < sizeof(met) / sizeof(met[0]); i++) {
        cr_expect_geq(statuses[met[i]], 20, "%s came out only %" PRIu64 " times",
                      wire_status_name(met[i]), statuses[met[i]]);
    }
}
