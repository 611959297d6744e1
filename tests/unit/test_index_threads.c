/* SPDX-License-Identifier: Apache-2.0
 *
 * Lock-free readers against the writer: one thread applies entries that acquire, convert, release
 * and reopen, others peek all the time. Whatever a reader sees of a name must be of one moment: the
 * value is the name's own, a name
 * that is held all the time is found every time, an exclusive holder is alone, the holders listed
 * are those counted, and an exclusive holder's token is the highest that was seen. Clean under
 * ThreadSanitizer.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/machine_rig.h"

enum { NAMES = 24, PINNED = 10, SESSIONS = 6, ROUNDS = 40000, READERS = 2, NAME_BYTES = 48 };

/* The last PINNED are held all the time; the others come and go. */
static char names[NAMES + PINNED][NAME_BYTES];

struct shared {
    struct lock_machine *machine;
    atomic_bool stop;
    atomic_uint wrong;
    atomic_ulong seen, seen_held, failed;
};

/* Every third name is too long for its record. */
static void make_names(void)
{
    for (int i = 0; i < NAMES + PINNED; i++) {
        snprintf(names[i], NAME_BYTES,
                 i % 3 == 0 ? "a-long-name-for-number-%d-in-the-table" : "n%d", i);
    }
}

static void complain(struct shared *shared, const char *what, const char *name)
{
    if (atomic_fetch_add(&shared->wrong, 1) < 5) {
        fprintf(stderr, "%s: %s\n", name, what);
    }
}

/* ---- readers --------------------------------------------------------------------------------- */

static void check_state(struct shared *shared, const char *name, const struct wire_state *state,
                        uint64_t *token_highest)
{
    const uint8_t *at = (const uint8_t *)(state + 1);
    uint64_t token = 0;
    bool exclusive = false;
    if (state->parties != state->holders) {
        complain(shared, "holders are counted that are not listed", name);
    }
    for (uint32_t i = 0; i < state->parties; i++) {
        const struct wire_party *party = (const void *)at;
        if (party->value_bytes != strlen(name) ||
            memcmp(party + 1, name, party->value_bytes) != 0) {
            complain(shared, "the value is another name's", name);
        }
        if (party->mode == WIRE_EXCLUSIVE && state->holders != 1) {
            complain(shared, "an exclusive holder is not alone", name);
        }
        if (party->session == 0 || party->session % 1000 != 7) {
            complain(shared, "the session is none of ours", name);
        }
        token = party->token > token ? party->token : token;
        exclusive |= party->mode == WIRE_EXCLUSIVE;
        at += wire_pad8(sizeof(*party) + party->value_bytes);
    }
    if (exclusive && token < *token_highest) {
        complain(shared, "an exclusive holder's token is not the highest", name);
    }
    *token_highest = token > *token_highest ? token : *token_highest;
}

static void *read_all(void *argument)
{
    struct shared *shared = argument;
    uint64_t tokens[NAMES + PINNED] = {0};
    _Alignas(8) uint8_t request_bytes[sizeof(struct wire_named) + NAME_BYTES];
    _Alignas(8) uint8_t out[1280];
    struct wire_named *request = (void *)request_bytes;
    struct wire_state *state = (void *)out;
    for (unsigned i = 0; !atomic_load(&shared->stop); i = (i + 1) % (NAMES + PINNED)) {
        memset(request_bytes, 0, sizeof(request_bytes));
        request->request.item.op = WIRE_OP_QUERY;
        request->name_bytes = (uint8_t)strlen(names[i]);
        memcpy(request->text, names[i], request->name_bytes);
        size_t bytes = lock_machine_peek(shared->machine, request, 0, out, sizeof(out));
        atomic_fetch_add(&shared->seen, 1);
        if (bytes == 0) {
            atomic_fetch_add(&shared->failed, 1);
            continue;
        }
        if (!wire_judge_reply(&state->reply.item)) {
            complain(shared, "the answer is malformed", names[i]);
        }
        atomic_fetch_add(&shared->seen_held, state->holders > 0);
        check_state(shared, names[i], state, &tokens[i]);
        if (i >= NAMES && state->holders != 1) {
            complain(shared, "a name that is held was not found", names[i]);
        }
        struct lock_counts counts;
        lock_machine_counts(shared->machine, &counts);
        if (counts.leases > NAMES * SESSIONS + PINNED) {
            complain(shared, "a count is out of range", names[i]);
        }
    }
    return NULL;
}

/* ---- the writer ------------------------------------------------------------------------------ */

struct lease {
    struct wire_lease_id id; /* secret 0 = not held */
    bool exclusive;
};

struct writer {
    struct machine_rig rig;
    uint64_t sessions[SESSIONS + 1]; /* the last holds the pinned names */
    uint64_t numbers[SESSIONS + 1];
    struct lease leases[NAMES + PINNED][SESSIONS + 1];
    uint64_t random;
};

static uint32_t draw(struct writer *writer, uint32_t below)
{
    writer->random = writer->random * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(writer->random >> 33) % below;
}

/* Session ids are recognised by their last digits. */
static bool open_session(struct writer *writer, uint32_t s)
{
    struct wire_open *open = rig_open(&writer->rig, 1 + writer->random % 1000000007, 3600000);
    open->request.drawn = ((uint64_t)draw(writer, 1u << 30) + 1) * 1000 + 7;
    if (rig_apply(&writer->rig) != 0 || rig_status(&writer->rig, 0) != WIRE_OK) {
        return false;
    }
    writer->sessions[s] = ((const struct wire_opened *)rig_reply(&writer->rig, 0))->reply.session;
    writer->numbers[s] = 0;
    return true;
}

static void number_it(struct writer *writer, uint32_t s, struct wire_request *request)
{
    request->session = writer->sessions[s];
    request->number = ++writer->numbers[s];
    request->acked_below = request->number;
}

static void acquire(struct writer *writer, uint32_t n, uint32_t s)
{
    struct lease *lease = &writer->leases[n][s];
    uint8_t mode = draw(writer, 3) == 0 ? WIRE_EXCLUSIVE : WIRE_SHARED;
    struct wire_acquire *item =
        rig_acquire_value(&writer->rig, 0, 0, mode, "", names[n], names[n], 3600000);
    item->request.item.flags = WIRE_TRY;
    number_it(writer, s, &item->request);
    (void)rig_apply(&writer->rig);
    if (rig_status(&writer->rig, 0) == WIRE_OK) {
        lease->id = ((const struct wire_granted *)rig_reply(&writer->rig, 0))->lease;
    }
}

static void let_go(struct writer *writer, uint32_t n, uint32_t s)
{
    struct lease *lease = &writer->leases[n][s];
    if (draw(writer, 4) == 0) {
        struct wire_convert *item =
            rig_convert(&writer->rig, 0, 0, lease->id, names[n],
                        draw(writer, 2) == 0 ? WIRE_EXCLUSIVE : WIRE_SHARED, 0);
        number_it(writer, s, &item->request);
    } else {
        struct wire_release *item = rig_release(&writer->rig, 0, 0, lease->id, names[n]);
        number_it(writer, s, &item->request);
        lease->id = (struct wire_lease_id){0};
    }
    (void)rig_apply(&writer->rig);
}

static bool close_and_reopen(struct writer *writer, uint32_t s)
{
    struct wire_close *item = rig_close(&writer->rig, 0, 0);
    number_it(writer, s, &item->request);
    (void)rig_apply(&writer->rig);
    (void)rig_apply(&writer->rig); /* its locks go */
    for (int n = 0; n < NAMES; n++) {
        writer->leases[n][s] = (struct lease){0};
    }
    return open_session(writer, s);
}

static bool write_all(struct writer *writer)
{
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t n = draw(writer, NAMES);
        uint32_t s = draw(writer, SESSIONS);
        writer->rig.stamp_ns += 1000;
        if (draw(writer, 200) == 0) {
            if (!close_and_reopen(writer, s)) {
                return false;
            }
        } else if (writer->leases[n][s].id.secret == 0) {
            acquire(writer, n, s);
        } else {
            let_go(writer, n, s);
        }
    }
    return lock_machine_verify(writer->rig.machine) == NULL;
}

int main(void)
{
    static struct writer writer;
    struct lock_limits limits = rig_limits();
    struct shared shared = {0};
    pthread_t readers[READERS];
    limits.resources_max = NAMES + PINNED; /* a crowded index: entries are moved about */
    limits.extras_max = NAMES * SESSIONS + PINNED;
    writer.random = 5;
    make_names();
    rig_init(&writer.rig, &limits, true);
    shared.machine = writer.rig.machine;
    for (uint32_t s = 0; s <= SESSIONS; s++) {
        if (!open_session(&writer, s)) {
            return 1;
        }
    }
    for (uint32_t n = NAMES; n < NAMES + PINNED; n++) {
        acquire(&writer, n, SESSIONS);
    }
    for (int i = 0; i < READERS; i++) {
        if (pthread_create(&readers[i], NULL, read_all, &shared) != 0) {
            return 1;
        }
    }
    bool sound = write_all(&writer);
    /* Readers must have seen something, however the threads were scheduled. */
    while (atomic_load(&shared.seen_held) < 1000) {
        sound = write_all(&writer) && sound;
    }
    atomic_store(&shared.stop, true);
    for (int i = 0; i < READERS; i++) {
        pthread_join(readers[i], NULL);
    }
    printf("%lu reads, %lu of held names, %lu gave up, %u wrong\n", atomic_load(&shared.seen),
           atomic_load(&shared.seen_held), atomic_load(&shared.failed), atomic_load(&shared.wrong));
    rig_free(&writer.rig);
    return sound && atomic_load(&shared.wrong) == 0 ? 0 : 1;
}
