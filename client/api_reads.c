/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads: one resource, all resources. Answers come in pages, put together here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/driver.h"

static belay_status read_name(const char *name_space, const char *name, bool needed,
                              struct core_name *to)
{
    size_t ns_bytes = name_space != NULL ? strlen(name_space) : 0;
    size_t name_bytes = name != NULL ? strlen(name) : 0;

    if (ns_bytes > WIRE_NAMESPACE_BYTES_MAX || name_bytes > WIRE_NAME_BYTES_MAX ||
        (needed && name_bytes == 0))
        return fail(BELAY_BAD_REQUEST, "name_space is 0 to %d bytes, name %d to %d bytes long",
                    WIRE_NAMESPACE_BYTES_MAX, needed, WIRE_NAME_BYTES_MAX);
    *to = (struct core_name){
        .name_space = (const uint8_t *)name_space,
        .name = (const uint8_t *)name,
        .namespace_bytes = (uint8_t)ns_bytes,
        .name_bytes = (uint8_t)name_bytes,
    };
    return BELAY_OK;
}

static belay_status read_page(belay_client *client, const struct core_read *read, struct call *call,
                              uint32_t *shards)
{
    pthread_cond_t cond;

    call_begin(client, call, &cond);
    belay_status started = client->stopping ? BELAY_CLOSED
                                            : core_read(client->core, driver_now_ns(), 0, read,
                                                        (uint64_t)(uintptr_t)call, &call->ref);
    belay_status status = call_wait(call, started);
    if (shards != NULL && status == BELAY_OK) {
        driver_lock(client);
        *shards = core_shards(client->core);
        driver_unlock(client);
    }
    return status;
}

/* ---- one resource ---------------------------------------------------------------------------- */

static void copy_party(belay_party *to, const struct wire_party *from)
{
    *to = (belay_party){
        .session = from->session,
        .token = from->token,
        .remaining_ms = from->remaining_ms,
        .position = from->position,
        .mode = (belay_mode)from->mode,
        .waiting = from->waiting,
        .priority = from->priority,
        .value_bytes = from->value_bytes,
    };
    memcpy(to->value, from + 1, from->value_bytes);
}

static bool add_parties(belay_resource_state *state, const struct wire_state *page)
{
    const uint8_t *at = (const uint8_t *)(page + 1);
    belay_party *grown =
        realloc(state->parties, (state->parties_count + page->parties) * sizeof(*grown) + 1);

    if (grown == NULL)
        return false;
    state->parties = grown;
    for (uint32_t i = 0; i < page->parties; i++) {
        const struct wire_party *party = (const struct wire_party *)at;
        copy_party(&state->parties[state->parties_count++], party);
        at += wire_pad8(sizeof(*party) + party->value_bytes);
    }
    state->index = page->index;
    state->age_ns = page->age_ns;
    state->delay_remaining_ms = page->delay_remaining_ms;
    state->holders = page->holders;
    state->waiters = page->waiters;
    return true;
}

belay_status belay_query(belay_client *client, const char *name_space, const char *name, bool stale,
                         belay_resource_state *state)
{
    struct core_read read = {.op = WIRE_OP_QUERY, .stale = stale};
    belay_status status = read_name(name_space, name, true, &read.name);

    memset(state, 0, sizeof(*state));
    do {
        struct call call;
        if (status == BELAY_OK)
            status = read_page(client, &read, &call, NULL);
        if (status != BELAY_OK)
            break;
        const struct wire_state *page = (const struct wire_state *)call.item;
        if (!add_parties(state, page))
            status = fail(BELAY_NO_MEMORY, "no memory for holders and waiters");
        read.cursor = page->cursor;
    } while (status == BELAY_OK && read.cursor != 0);
    if (status != BELAY_OK)
        belay_resource_state_free(state);
    return status;
}

void belay_resource_state_free(belay_resource_state *state)
{
    free(state->parties);
    memset(state, 0, sizeof(*state));
}

/* ---- all resources --------------------------------------------------------------------------- */

/* False: the caller has seen enough. */
static bool give_listed(const struct wire_list *page,
                        bool (*each)(void *context, const belay_listed *listed), void *context)
{
    const uint8_t *at = (const uint8_t *)(page + 1);

    for (uint32_t i = 0; i < page->count; i++) {
        const struct wire_listed *from = (const struct wire_listed *)at;
        const uint8_t *text = (const uint8_t *)(from + 1);
        char ns[WIRE_NAMESPACE_BYTES_MAX + 1] = {0};
        char name[WIRE_NAME_BYTES_MAX + 1] = {0};
        memcpy(ns, text, from->namespace_bytes);
        memcpy(name, text + from->namespace_bytes, from->name_bytes);
        belay_listed listed = {
            .name_space = ns,
            .name = name,
            .token = from->token,
            .holders = from->holders,
            .waiters = from->waiters,
            .mode = (belay_mode)from->mode,
        };
        if (!each(context, &listed))
            return false;
        at += wire_pad8(sizeof(*from) + from->namespace_bytes + from->name_bytes);
    }
    return true;
}

belay_status belay_list(belay_client *client, const char *name_space, const char *prefix,
                        bool stale, bool (*each)(void *context, const belay_listed *listed),
                        void *context)
{
    struct core_read read = {.op = WIRE_OP_LIST, .stale = stale};
    belay_status status = read_name(name_space, prefix, false, &read.name);
    uint32_t shards = 1;

    while (status == BELAY_OK && read.shard < shards) {
        struct call call;
        status = read_page(client, &read, &call, &shards);
        if (status != BELAY_OK)
            break;
        const struct wire_list *page = (const struct wire_list *)call.item;
        if (!give_listed(page, each, context))
            break;
        read.cursor = page->cursor;
        read.shard = (uint16_t)(read.shard + (page->cursor == 0));
    }
    return status;
}
