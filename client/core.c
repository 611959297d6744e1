/* SPDX-License-Identifier: Apache-2.0
 *
 * The core's memory, its timers, and the commands. See core.h.
 */
#include "client/core_state.h"

#include <sodium.h>

/* ---- small things ---------------------------------------------------------------------------- */

void list_init(struct list *list)
{
    *list = (struct list){.head = NO_SLOT, .tail = NO_SLOT};
}

/* A counter under SipHash with a random key: nonces that nobody can foretell. */
uint64_t core_draw(struct core *core)
{
    uint64_t counter = ++core->draws;
    uint64_t drawn;

    crypto_shorthash_siphash24((uint8_t *)&drawn, (const uint8_t *)&counter, sizeof(counter),
                               core->options.seed);
    return drawn != 0 ? drawn : core_draw(core);
}

uint64_t core_jitter(struct core *core, uint64_t about_ns)
{
    uint64_t least_ns = about_ns / 5 * 4;
    return least_ns + core_draw(core) % (about_ns / 5 * 2 + 1);
}

/* ---- memory ---------------------------------------------------------------------------------- */

void core_options_init(struct core_options *options)
{
    *options = (struct core_options){
        .clients_count = 1,
        .sessions_max = WIRE_SHARDS_MAX,
        .locks_max = 65536,
        .requests_max = 1024,
        .session_ttl_ms = 10000,
        .request_timeout_ms = 5000,
    };
}

/* Each lock may have a release under way, each session an open, a close and its keepalives. */
static uint32_t pool_of(const struct core_options *options)
{
    return options->requests_max + options->locks_max +
           (KEEPALIVES_IN_FLIGHT + 2) * options->sessions_max + 64;
}

static uint32_t buckets_for(uint32_t count)
{
    uint32_t buckets = 16;

    while (buckets < count)
        buckets *= 2;
    return buckets;
}

static size_t text_stride(const struct core_options *options)
{
    size_t longest = WIRE_NAMESPACE_BYTES_MAX + WIRE_NAME_BYTES_MAX + WIRE_VALUE_BYTES_MAX;
    bool limited = options->text_bytes_max != 0 && options->text_bytes_max < longest;

    return wire_pad8(limited ? options->text_bytes_max : longest);
}

/* Lays the parts out one after another; with memory NULL only the size is found. */
struct layout {
    uint8_t *memory;
    size_t used;
};

static void *part(struct layout *layout, size_t bytes)
{
    size_t at = layout->used;

    layout->used += (bytes + 63) & ~(size_t)63;
    return layout->memory != NULL ? layout->memory + at : NULL;
}

static struct core *lay_out(struct layout *layout, const struct core_options *options)
{
    uint32_t requests = pool_of(options);
    uint32_t timer_ids = requests + options->sessions_max + options->locks_max + 1;
    struct core parts;
    struct core *core = part(layout, sizeof(*core));

    parts.nodes = part(layout, NODES_MAX * sizeof(struct core_node));
    parts.routes = part(layout, WIRE_SHARDS_MAX * sizeof(struct core_route));
    parts.requests = part(layout, requests * sizeof(struct core_request));
    parts.texts = part(layout, requests * text_stride(options));
    parts.sessions = part(layout, options->sessions_max * sizeof(struct core_session));
    parts.session_buckets = part(layout, buckets_for(options->sessions_max) * sizeof(uint32_t));
    parts.clients = part(layout, options->clients_count * sizeof(uint32_t));
    parts.locks = part(layout, options->locks_max * sizeof(struct core_lock));
    parts.lock_buckets = part(layout, buckets_for(options->locks_max) * sizeof(uint32_t));
    void *timers = part(layout, client_timers_memory_bytes(timer_ids));
    if (core == NULL)
        return NULL;
    core->nodes = parts.nodes;
    core->routes = parts.routes;
    core->requests = parts.requests;
    core->texts = parts.texts;
    core->sessions = parts.sessions;
    core->session_buckets = parts.session_buckets;
    core->clients = parts.clients;
    core->locks = parts.locks;
    core->lock_buckets = parts.lock_buckets;
    client_timers_init(&core->timers, timers, timer_ids);
    return core;
}

size_t core_memory_bytes(const struct core_options *options)
{
    struct layout layout = {.memory = NULL};

    lay_out(&layout, options);
    return layout.used;
}

static void fill_none(uint32_t *slots, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        slots[i] = NO_SLOT;
}

struct core *core_init(void *memory, const struct core_options *options,
                       const struct core_sink *sink, uint64_t now_ns)
{
    struct layout layout = {.memory = memory};
    struct core *core = lay_out(&layout, options);

    assert(options->clients_count > 0 && options->sessions_max > 0 && options->locks_max > 0);
    assert(options->endpoints_count > 0 && options->endpoints_count <= CORE_ENDPOINTS_MAX);
    core->options = *options;
    core->sink = *sink;
    core->now_ns = now_ns;
    core->cluster_id = options->cluster_id;
    core->requests_count = pool_of(options);
    core->requests_free = NO_SLOT;
    core->text_stride = (uint32_t)text_stride(options);
    core->sessions_count = options->sessions_max;
    core->sessions_free = NO_SLOT;
    core->session_mask = buckets_for(options->sessions_max) - 1;
    core->locks_count = options->locks_max;
    core->locks_free = NO_SLOT;
    core->lock_mask = buckets_for(options->locks_max) - 1;
    core->map_node = NO_SLOT;
    list_init(&core->unrouted);
    list_init(&core->reads);
    fill_none(core->session_buckets, core->session_mask + 1);
    fill_none(core->lock_buckets, core->lock_mask + 1);
    fill_none(core->clients, options->clients_count);
    for (uint32_t i = 0; i < WIRE_SHARDS_MAX; i++)
        core->routes[i] = (struct core_route){.node = NO_SLOT, .flight_head = NO_SLOT};
    for (uint32_t i = 0; i < options->endpoints_count; i++)
        node_add(core, &options->endpoints[i], true);
    assert(core->members_count > 0);
    core->map_turn = (uint32_t)(core_draw(core) % core->members_count);
    map_want(core);
    return core;
}

/* ---- time ------------------------------------------------------------------------------------ */

void core_tick(struct core *core, uint64_t now_ns)
{
    uint32_t id;

    core->now_ns = max_ns(core->now_ns, now_ns);
    while (client_timers_take(&core->timers, core->now_ns, &id)) {
        if (id < timer_of_session(core, 0))
            request_timer(core, id);
        else if (id < timer_of_lock(core, 0))
            session_timer(core, id - timer_of_session(core, 0));
        else if (id < timer_of_map(core))
            lock_timer(core, id - timer_of_lock(core, 0));
        else
            map_timer(core);
    }
}

uint64_t core_next_deadline(const struct core *core)
{
    return client_timers_next(&core->timers);
}

/* ---- commands -------------------------------------------------------------------------------- */

static bool sound_name(const struct core *core, const struct core_name *name, size_t value_bytes,
                       bool needed)
{
    size_t text = (size_t)name->namespace_bytes + name->name_bytes + value_bytes;

    return name->namespace_bytes <= WIRE_NAMESPACE_BYTES_MAX && (name->name_bytes > 0 || !needed) &&
           text <= core->text_stride;
}

/* A counted command with its name in place; NO_SLOT = too many. */
static uint32_t command_new(struct core *core, uint64_t now_ns, uint8_t op, uint32_t client,
                            const struct core_name *name, uint64_t user)
{
    assert(client < core->options.clients_count);
    core->now_ns = max_ns(core->now_ns, now_ns);
    if (core->commands >= core->options.requests_max && op != WIRE_OP_RELEASE)
        return NO_SLOT;
    uint32_t at = request_new(core, op, client);
    if (at == NO_SLOT)
        return NO_SLOT;
    struct core_request *request = &core->requests[at];
    request->user = user;
    request->user_op = true;
    request->counted = true;
    core->commands++;
    request->ends_ns = add_ns(core->now_ns, core->options.request_timeout_ms * MS);
    if (name == NULL)
        return at;
    uint8_t *text = text_of(core, at);
    request->namespace_bytes = name->namespace_bytes;
    request->name_bytes = name->name_bytes;
    if (name->namespace_bytes > 0)
        memcpy(text, name->name_space, name->namespace_bytes);
    if (name->name_bytes > 0)
        memcpy(text + name->namespace_bytes, name->name, name->name_bytes);
    request->key_tag = (uint32_t)wire_key_hash(text, name->namespace_bytes,
                                               text + name->namespace_bytes, name->name_bytes);
    return at;
}

static void give_ref(const struct core *core, uint32_t at, core_ref *ref)
{
    if (ref != NULL)
        *ref = ref_of(core->requests[at].generation, at);
}

/* A wait limit is added to the time that an answer may take. */
static void set_wait(struct core *core, uint32_t at, uint64_t wait_ms)
{
    struct core_request *request = &core->requests[at];

    if (wait_ms >= UINT32_MAX) {
        request->wait_ms = WIRE_WAIT_FOREVER;
        return;
    }
    request->wait_ms = (uint32_t)wait_ms;
    request->wait_until_ns = add_ns(core->now_ns, wait_ms * MS);
    request->ends_ns = add_ns(request->ends_ns, wait_ms * MS);
}

belay_status core_acquire(struct core *core, uint64_t now_ns, uint32_t client,
                          const struct core_acquire *acquire, uint64_t user, core_ref *ref)
{
    bool bound = (acquire->flags & WIRE_SESSION_BOUND) != 0;

    if (!sound_name(core, &acquire->name, acquire->value_bytes, true) ||
        bound != (acquire->ttl_ms == 0) ||
        (acquire->mode != WIRE_SHARED && acquire->mode != WIRE_EXCLUSIVE))
        return BELAY_BAD_REQUEST;
    if (core->locks_live >= core->locks_count)
        return BELAY_OVER_LIMIT;
    uint32_t at = command_new(core, now_ns, WIRE_OP_ACQUIRE, client, &acquire->name, user);
    if (at == NO_SLOT)
        return BELAY_OVER_LIMIT;
    struct core_request *request = &core->requests[at];
    core->locks_live++;
    request->reserved = true;
    request->flags = acquire->flags;
    core->reentrant_asked |= (acquire->flags & WIRE_REENTRANT) != 0;
    request->mode = acquire->mode;
    request->priority = acquire->priority;
    request->ttl_ms = acquire->ttl_ms;
    request->bound = bound;
    request->lock_delay_ms = acquire->lock_delay_ms;
    request->grace_ms = acquire->grace_ms;
    request->no_renewal = acquire->no_renewal;
    request->lock_user = acquire->lock_user;
    request->value_bytes = acquire->value_bytes;
    if (acquire->value_bytes > 0)
        memcpy(text_of(core, at) + request->namespace_bytes + request->name_bytes, acquire->value,
               acquire->value_bytes);
    if ((acquire->flags & WIRE_TRY) == 0)
        set_wait(core, at, acquire->wait_ms);
    give_ref(core, at, ref);
    request_start(core, at);
    return BELAY_OK;
}

bool core_cancel(struct core *core, uint64_t now_ns, core_ref ref)
{
    struct core_request *request = request_get(core, ref);

    core->now_ns = max_ns(core->now_ns, now_ns);
    if (request == NULL || request->detached || !request->user_op ||
        (request->op != WIRE_OP_ACQUIRE && request->place != PLACE_READS))
        return false;
    request_abandon(core, (uint32_t)ref, BELAY_CANCELLED);
    return true;
}

/* A command on a lease, in the session of its client at its shard. */
static void lease_start(struct core *core, uint32_t at, uint16_t shard, core_ref *ref)
{
    struct core_request *request = &core->requests[at];

    request->shard = shard;
    give_ref(core, at, ref);
    request->session = session_of(core, request->client, shard);
    if (request->session == NO_SLOT) {
        request_finish(core, at, BELAY_OVER_LIMIT, NULL, NO_SLOT, false);
        return;
    }
    request_place(core, at, PLACE_BACKLOG);
    request_arm(core, at);
    session_pump(core, request->session);
}

static uint32_t lock_command(struct core *core, uint64_t now_ns, uint32_t slot, uint8_t op,
                             uint64_t user)
{
    const struct core_lock *lock = &core->locks[slot];
    uint32_t at = command_new(core, now_ns, op, core->sessions[lock->session].client, NULL, user);

    if (at != NO_SLOT) {
        core->requests[at].lease = lock->lease;
        core->requests[at].key_tag = lock->key_tag;
    }
    return at;
}

/* Completes at once: nothing is to be asked of the servers. */
static belay_status complete_now(struct core *core, uint64_t user, uint8_t op, belay_status status)
{
    struct core_completion completion = {.user = user, .op = op, .status = status};

    core->sink.complete(core->sink.context, &completion);
    return BELAY_OK;
}

belay_status core_release(struct core *core, uint64_t now_ns, core_ref ref, uint64_t user,
                          core_ref *request)
{
    uint32_t slot = lock_get(core, ref);

    if (request != NULL)
        *request = 0;
    if (slot == NO_SLOT)
        return BELAY_BAD_REQUEST;
    struct core_lock *lock = &core->locks[slot];
    bool lost = lock->state == LOCK_LOST;
    core->now_ns = max_ns(core->now_ns, now_ns);
    if (lock->uses > 1) {
        lock->uses--;
        return complete_now(core, user, WIRE_OP_RELEASE, lost ? BELAY_LOST : BELAY_OK);
    }
    if (lost) {
        lock_stopped(core, slot);
        lock_drop(core, slot);
        return complete_now(core, user, WIRE_OP_RELEASE, BELAY_LOST);
    }
    uint32_t at = lock_command(core, now_ns, slot, WIRE_OP_RELEASE, user);
    if (at == NO_SLOT)
        return BELAY_OVER_LIMIT;
    uint16_t shard = core->sessions[lock->session].shard;
    core->requests[at].bound = lock->ttl_ms == 0;
    core->requests[at].given_up_token = lock->token;
    lock_drop(core, slot);
    lease_start(core, at, shard, request);
    return BELAY_OK;
}

void core_forget(struct core *core, core_ref ref)
{
    uint32_t slot = lock_get(core, ref);

    if (slot == NO_SLOT)
        return;
    if (core->locks[slot].uses > 1)
        core->locks[slot].uses--;
    else
        lock_drop(core, slot);
}

/* Convert and renew of a lock: they keep its slot until they are over. */
static belay_status lock_start(struct core *core, uint64_t now_ns, core_ref ref, uint8_t op,
                               uint64_t user, uint32_t *at)
{
    uint32_t slot = lock_get(core, ref);

    if (slot == NO_SLOT)
        return BELAY_BAD_REQUEST;
    if (core->locks[slot].state == LOCK_LOST)
        return BELAY_LOST;
    *at = lock_command(core, now_ns, slot, op, user);
    if (*at == NO_SLOT)
        return BELAY_OVER_LIMIT;
    core->requests[*at].lock = slot;
    core->locks[slot].commands++;
    return BELAY_OK;
}

belay_status core_convert(struct core *core, uint64_t now_ns, core_ref ref, uint8_t mode,
                          uint64_t wait_ms, uint64_t user, core_ref *request)
{
    uint32_t at;

    if (mode != WIRE_SHARED && mode != WIRE_EXCLUSIVE)
        return BELAY_BAD_REQUEST;
    belay_status status = lock_start(core, now_ns, ref, WIRE_OP_CONVERT, user, &at);
    if (status != BELAY_OK)
        return status;
    struct core_lock *lock = &core->locks[core->requests[at].lock];
    lock->converting = true;
    core->requests[at].mode = mode;
    set_wait(core, at, wait_ms);
    core->requests[at].wait_until_ns = UINT64_MAX; /* the server's limit decides, see abandon */
    lease_start(core, at, core->sessions[lock->session].shard, request);
    return BELAY_OK;
}

belay_status core_renew(struct core *core, uint64_t now_ns, core_ref ref, uint64_t user,
                        core_ref *request)
{
    uint32_t at;
    belay_status status = lock_start(core, now_ns, ref, WIRE_OP_RENEW, user, &at);

    if (status == BELAY_OK)
        lease_start(core, at, core->sessions[core->locks[core->requests[at].lock].session].shard,
                    request);
    return status;
}

belay_status core_lease(struct core *core, uint64_t now_ns, uint32_t client,
                        const struct core_lease_command *command, uint64_t user, core_ref *request)
{
    if (!sound_name(core, &command->name, 0, true) || command->lease.zero != 0)
        return BELAY_BAD_REQUEST;
    if (command->op == WIRE_OP_CONVERT && command->mode != WIRE_SHARED &&
        command->mode != WIRE_EXCLUSIVE)
        return BELAY_BAD_REQUEST;
    uint32_t at = command_new(core, now_ns, command->op, client, &command->name, user);
    if (at == NO_SLOT)
        return BELAY_OVER_LIMIT;
    core->requests[at].lease = command->lease;
    core->requests[at].ttl_ms = command->ttl_ms;
    core->requests[at].mode = command->mode;
    if (command->op == WIRE_OP_CONVERT) {
        set_wait(core, at, command->wait_ms);
        core->requests[at].wait_until_ns = UINT64_MAX;
    }
    give_ref(core, at, request);
    request_start(core, at);
    return BELAY_OK;
}

belay_status core_force_release(struct core *core, uint64_t now_ns, uint32_t client,
                                const struct core_name *name, bool at_once, uint64_t user,
                                core_ref *request)
{
    if (!sound_name(core, name, 0, true))
        return BELAY_BAD_REQUEST;
    uint32_t at = command_new(core, now_ns, WIRE_OP_FORCE_RELEASE, client, name, user);
    if (at == NO_SLOT)
        return BELAY_OVER_LIMIT;
    core->requests[at].flags = at_once ? WIRE_NOW : 0;
    give_ref(core, at, request);
    request_start(core, at);
    return BELAY_OK;
}

belay_status core_read(struct core *core, uint64_t now_ns, uint32_t client,
                       const struct core_read *read, uint64_t user, core_ref *request)
{
    if (!sound_name(core, &read->name, 0, read->op == WIRE_OP_QUERY))
        return BELAY_BAD_REQUEST;
    uint32_t at = command_new(core, now_ns, read->op, client, &read->name, user);
    if (at == NO_SLOT)
        return BELAY_OVER_LIMIT;
    core->requests[at].flags = read->stale ? WIRE_STALE : 0;
    core->requests[at].cursor = read->cursor;
    core->requests[at].shard = read->shard;
    give_ref(core, at, request);
    request_start(core, at);
    return BELAY_OK;
}

belay_status core_ask_node(struct core *core, uint64_t now_ns, enum wire_op op, uint32_t member,
                           uint32_t from, uint64_t user, core_ref *request)
{
    assert(asks_node((uint8_t)op));
    if (member >= core->members_count)
        return BELAY_BAD_REQUEST;
    uint32_t at = command_new(core, now_ns, (uint8_t)op, 0, NULL, user);
    if (at == NO_SLOT)
        return BELAY_OVER_LIMIT;
    core->requests[at].node = core->members[member];
    core->requests[at].cursor = from;
    give_ref(core, at, request);
    request_place(core, at, PLACE_READS);
    request_send(core, at);
    return BELAY_OK;
}

static void close_list(struct core *core, const struct list *list, uint32_t client)
{
    uint32_t next;

    for (uint32_t at = list->head; at != NO_SLOT; at = next) {
        next = core->requests[at].next;
        if (core->requests[at].client == client && !core->requests[at].detached)
            request_finish(core, at, BELAY_CLOSED, NULL, NO_SLOT, false);
    }
}

void core_close(struct core *core, uint64_t now_ns, uint32_t client)
{
    core->now_ns = max_ns(core->now_ns, now_ns);
    close_list(core, &core->unrouted, client);
    close_list(core, &core->reads, client);
    uint32_t next;
    for (uint32_t at = core->clients[client]; at != NO_SLOT; at = next) {
        next = core->sessions[at].client_next;
        if (core->sessions[at].state != SESSION_CLOSING)
            session_close(core, at);
    }
}

bool core_client_is_closed(const struct core *core, uint32_t client)
{
    return core->clients[client] == NO_SLOT;
}

/* ---- reading --------------------------------------------------------------------------------- */

bool core_lock_info(const struct core *core, core_ref ref, struct core_lock_info *info)
{
    uint32_t slot = lock_get(core, ref);

    if (slot == NO_SLOT)
        return false;
    const struct core_lock *lock = &core->locks[slot];
    *info = (struct core_lock_info){
        .lease = lock->lease,
        .token = lock->token,
        .deadline_ns = lock_deadline_ns(core, slot),
        .user = lock->user,
        .ttl_ms = lock->ttl_ms,
        .mode = lock->mode,
    };
    return true;
}

uint32_t core_shards(const struct core *core)
{
    return core->shards;
}

uint32_t core_members_count(const struct core *core)
{
    return core->members_count;
}

const struct wire_address *core_member(const struct core *core, uint32_t member)
{
    assert(member < core->members_count);
    return &core->nodes[core->members[member]].address;
}

void core_counts(const struct core *core, struct core_counts *counts)
{
    *counts = core->counts;
}
