/* SPDX-License-Identifier: Apache-2.0
 *
 * Locks: acquire, release, renew, convert; by handle and by lease id.
 */
#include <stdlib.h>
#include <string.h>

#include "client/driver.h"

void belay_acquire_options_init(belay_acquire_options *options, const char *name)
{
    *options = (belay_acquire_options){
        .struct_bytes = sizeof(*options),
        .name = name,
        .mode = BELAY_EXCLUSIVE,
        .ttl_ms = 10000,
        .wait_ms = BELAY_WAIT_FOREVER,
    };
}

/* ---- arguments ------------------------------------------------------------------------------- */

static belay_status name_of(const char *name_space, const char *name, size_t name_bytes,
                            bool needed, struct core_name *to)
{
    size_t ns_bytes = name_space != NULL ? strlen(name_space) : 0;

    if (name == NULL && needed)
        return fail(BELAY_BAD_REQUEST, "name is missing");
    if (name_bytes == 0 && name != NULL)
        name_bytes = strlen(name);
    if (ns_bytes > WIRE_NAMESPACE_BYTES_MAX)
        return fail(BELAY_BAD_REQUEST, "name_space is longer than %d bytes",
                    WIRE_NAMESPACE_BYTES_MAX);
    if ((name_bytes == 0 && needed) || name_bytes > WIRE_NAME_BYTES_MAX)
        return fail(BELAY_BAD_REQUEST, "name is not 1 to %d bytes long", WIRE_NAME_BYTES_MAX);
    *to = (struct core_name){
        .name_space = (const uint8_t *)name_space,
        .name = (const uint8_t *)name,
        .namespace_bytes = (uint8_t)ns_bytes,
        .name_bytes = (uint8_t)name_bytes,
    };
    return BELAY_OK;
}

static belay_status fits(uint64_t value_ms, const char *field)
{
    if (value_ms > UINT32_MAX)
        return fail(BELAY_BAD_REQUEST, "%s is above %u", field, UINT32_MAX);
    return BELAY_OK;
}

static belay_status mode_of(belay_mode mode)
{
    if (mode != BELAY_SHARED && mode != BELAY_EXCLUSIVE)
        return fail(BELAY_BAD_REQUEST, "mode is neither BELAY_SHARED nor BELAY_EXCLUSIVE");
    return BELAY_OK;
}

static belay_status check_acquire(const belay_acquire_options *options)
{
    belay_status status = fits(options->ttl_ms, "ttl_ms");

    if (status == BELAY_OK)
        status = fits(options->lock_delay_ms, "lock_delay_ms");
    if (status == BELAY_OK)
        status = fits(options->grace_ms, "grace_ms");
    if (status == BELAY_OK)
        status = mode_of(options->mode);
    if (status == BELAY_OK && options->ttl_ms == 0 && !options->session_bound)
        return fail(BELAY_BAD_REQUEST, "ttl_ms is 0 and session_bound is not set");
    if (status == BELAY_OK && options->value_bytes > WIRE_VALUE_BYTES_MAX)
        return fail(BELAY_BAD_REQUEST, "value is longer than %d bytes", WIRE_VALUE_BYTES_MAX);
    if (status == BELAY_OK && options->value_bytes > 0 && options->value == NULL)
        return fail(BELAY_BAD_REQUEST, "value is missing");
    return status;
}

static belay_status read_acquire(const belay_acquire_options *given, struct core_acquire *acquire)
{
    belay_acquire_options options;

    belay_acquire_options_init(&options, NULL);
    if (given->struct_bytes == 0 || given->struct_bytes > sizeof(options))
        return fail(BELAY_BAD_REQUEST, "options.struct_bytes is not sizeof(belay_acquire_options)");
    memcpy(&options, given, given->struct_bytes);
    *acquire = (struct core_acquire){
        .value = options.value,
        .value_bytes = (uint8_t)options.value_bytes,
        .mode = (uint8_t)options.mode,
        .priority = options.priority,
        .flags = (uint8_t)((options.try_only ? WIRE_TRY : 0) | (options.barge ? WIRE_BARGE : 0) |
                           (options.reentrant ? WIRE_REENTRANT : 0) |
                           (options.session_bound ? WIRE_SESSION_BOUND : 0)),
        .ttl_ms = options.session_bound ? 0 : (uint32_t)options.ttl_ms,
        .wait_ms = options.wait_ms,
        .lock_delay_ms = (uint32_t)options.lock_delay_ms,
        .grace_ms = (uint32_t)options.grace_ms,
        .no_renewal = options.no_renewal,
    };
    belay_status status = check_acquire(&options);
    if (status != BELAY_OK)
        return status;
    return name_of(options.name_space, options.name, options.name_bytes, true, &acquire->name);
}

/* ---- acquire --------------------------------------------------------------------------------- */

/* With the lock held: makes the handle and starts. */
static belay_status start_acquire(belay_client *client, struct core_acquire *acquire,
                                  struct call *call)
{
    if (client->stopping)
        return BELAY_CLOSED;
    struct belay_lock *lock = handle_new(client);
    if (lock == NULL)
        return BELAY_NO_MEMORY;
    memcpy(lock->name, acquire->name.name, acquire->name.name_bytes);
    call->lock = lock;
    acquire->lock_user = (uint64_t)(uintptr_t)lock;
    belay_status status = core_acquire(client->core, driver_now_ns(), 0, acquire,
                                       (uint64_t)(uintptr_t)call, &call->ref);
    if (status != BELAY_OK) {
        handle_unref(lock);
        call->lock = NULL;
    }
    return status;
}

belay_status belay_acquire(belay_client *client, const belay_acquire_options *options,
                           belay_lock **lock, belay_holder_info *holder)
{
    struct core_acquire acquire;
    struct call call;
    pthread_cond_t cond;

    *lock = NULL;
    belay_status status = read_acquire(options, &acquire);
    if (status != BELAY_OK)
        return status;
    call_begin(client, &call, &cond);
    status = call_wait(&call, start_acquire(client, &acquire, &call));
    if (status == BELAY_OK)
        *lock = call.lock;
    if (holder != NULL)
        *holder = call.holder;
    return status;
}

belay_status belay_acquire_start(belay_client *client, const belay_acquire_options *options,
                                 void *user, belay_request **request)
{
    struct core_acquire acquire;

    *request = NULL;
    belay_status status = read_acquire(options, &acquire);
    if (status != BELAY_OK)
        return status;
    struct belay_request *made = malloc(sizeof(*made));
    if (made == NULL)
        return fail(BELAY_NO_MEMORY, "no memory for a request");
    call_begin(client, &made->call, NULL);
    made->call.user = user;
    *request = made; /* before its completion can be taken */
    status = start_acquire(client, &acquire, &made->call);
    driver_unlock(client);
    if (status != BELAY_OK) {
        *request = NULL;
        made->call.status = status;
        fail_call(&made->call);
        free(made);
    }
    return status;
}

/* ---- release --------------------------------------------------------------------------------- */

/* With the lock held. The caller's handle is gone whatever comes. */
static belay_status start_release(belay_client *client, belay_lock *lock, struct call *call)
{
    if (client->stopping)
        return BELAY_CLOSED; /* the handle ends with the client */
    belay_status status = core_release(client->core, driver_now_ns(), lock->ref,
                                       (uint64_t)(uintptr_t)call, &call->ref);
    if (status != BELAY_OK)
        core_forget(client->core, lock->ref);
    handle_unref(lock);
    return status;
}

belay_status belay_release(belay_lock *lock)
{
    belay_client *client = lock->client;
    struct call call;
    pthread_cond_t cond;

    call_begin(client, &call, &cond);
    return call_wait(&call, start_release(client, lock, &call));
}

belay_status belay_release_start(belay_client *client, belay_lock *lock, void *user,
                                 belay_request **request)
{
    struct belay_request *made = malloc(sizeof(*made));

    *request = NULL;
    if (made == NULL)
        return fail(BELAY_NO_MEMORY, "no memory for a request");
    call_begin(client, &made->call, NULL);
    made->call.user = user;
    *request = made;
    belay_status status = start_release(client, lock, &made->call);
    driver_unlock(client);
    if (status != BELAY_OK) {
        *request = NULL;
        made->call.status = status;
        fail_call(&made->call);
        free(made);
    }
    return status;
}

void belay_lock_forget(belay_lock *lock)
{
    belay_client *client = lock->client;

    driver_lock(client);
    core_forget(client->core, lock->ref);
    handle_unref(lock);
    driver_unlock(client);
}

/* ---- convert, renew -------------------------------------------------------------------------- */

belay_status belay_convert(belay_lock *lock, belay_mode mode, uint64_t wait_ms)
{
    belay_client *client = lock->client;
    struct call call;
    pthread_cond_t cond;
    belay_status status = mode_of(mode);

    if (status != BELAY_OK)
        return status;
    call_begin(client, &call, &cond);
    call.lock = lock;
    return call_wait(&call, client->stopping ? BELAY_CLOSED
                                             : core_convert(client->core, driver_now_ns(),
                                                            lock->ref, (uint8_t)mode, wait_ms,
                                                            (uint64_t)(uintptr_t)&call, &call.ref));
}

belay_status belay_renew(belay_lock *lock)
{
    belay_client *client = lock->client;
    struct call call;
    pthread_cond_t cond;

    call_begin(client, &call, &cond);
    return call_wait(&call, client->stopping ? BELAY_CLOSED
                                             : core_renew(client->core, driver_now_ns(), lock->ref,
                                                          (uint64_t)(uintptr_t)&call, &call.ref));
}

/* ---- by lease id ----------------------------------------------------------------------------- */

static belay_status by_lease(belay_client *client, const char *name_space, const char *name,
                             belay_lease_id lease, struct core_lease_command *command,
                             struct call *call)
{
    pthread_cond_t cond;
    belay_status status = name_of(name_space, name, 0, true, &command->name);

    if (status != BELAY_OK)
        return status;
    if (lease.slot > UINT32_MAX)
        return fail(BELAY_BAD_REQUEST, "lease.slot is above %u", UINT32_MAX);
    command->lease = (struct wire_lease_id){.secret = lease.secret, .slot = (uint32_t)lease.slot};
    call_begin(client, call, &cond);
    return call_wait(call, client->stopping ? BELAY_CLOSED
                                            : core_lease(client->core, driver_now_ns(), 0, command,
                                                         (uint64_t)(uintptr_t)call, &call->ref));
}

belay_status belay_release_lease(belay_client *client, const char *name_space, const char *name,
                                 belay_lease_id lease)
{
    struct core_lease_command command = {.op = WIRE_OP_RELEASE};
    struct call call;

    return by_lease(client, name_space, name, lease, &command, &call);
}

belay_status belay_renew_lease(belay_client *client, const char *name_space, const char *name,
                               belay_lease_id lease, uint64_t ttl_ms)
{
    struct core_lease_command command = {.op = WIRE_OP_RENEW, .ttl_ms = (uint32_t)ttl_ms};
    struct call call;
    belay_status status = fits(ttl_ms, "ttl_ms");

    return status != BELAY_OK ? status : by_lease(client, name_space, name, lease, &command, &call);
}

belay_status belay_convert_lease(belay_client *client, const char *name_space, const char *name,
                                 belay_lease_id lease, belay_mode mode, uint64_t wait_ms,
                                 uint64_t *token)
{
    struct core_lease_command command = {
        .op = WIRE_OP_CONVERT, .mode = (uint8_t)mode, .wait_ms = wait_ms};
    struct call call;
    belay_status status = mode_of(mode);

    if (status == BELAY_OK)
        status = by_lease(client, name_space, name, lease, &command, &call);
    if (status == BELAY_OK && token != NULL)
        *token = ((const struct wire_granted *)call.item)->token;
    return status;
}

belay_status belay_force_release(belay_client *client, const char *name_space, const char *name,
                                 bool now)
{
    struct core_name core_name;
    struct call call;
    pthread_cond_t cond;
    belay_status status = name_of(name_space, name, 0, true, &core_name);

    if (status != BELAY_OK)
        return status;
    call_begin(client, &call, &cond);
    return call_wait(&call, client->stopping
                                ? BELAY_CLOSED
                                : core_force_release(client->core, driver_now_ns(), 0, &core_name,
                                                     now, (uint64_t)(uintptr_t)&call, &call.ref));
}

/* ---- what a handle says ---------------------------------------------------------------------- */

uint64_t belay_lock_token(const belay_lock *lock)
{
    return atomic_load(&lock->token);
}

belay_lease_id belay_lock_lease(const belay_lock *lock)
{
    return lock->lease;
}

const char *belay_lock_name(const belay_lock *lock)
{
    return lock->name;
}

belay_mode belay_lock_mode(const belay_lock *lock)
{
    return (belay_mode)atomic_load(&lock->mode);
}

uint64_t belay_lock_valid_until_ns(const belay_lock *lock)
{
    return atomic_load(&lock->deadline_ns);
}

bool belay_lock_is_valid(const belay_lock *lock)
{
    return driver_now_ns() < atomic_load(&lock->deadline_ns);
}
