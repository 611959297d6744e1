/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/machine_rig.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lock_limits rig_limits(void)
{
    struct lock_limits limits = lock_limits_for(256);
    limits.sessions_max = 64;
    limits.waiters_max = 128;
    limits.queue_max = 128;
    limits.answers_max = 1024;
    limits.long_names_max = 16;
    limits.extras_max = 32;
    limits.window = 16;
    return limits;
}

static void *zeroed(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert(memory != NULL);
    memset(memory, 0, bytes);
    return memory;
}

static void machine_make(struct machine_rig *rig)
{
    rig->memory = zeroed(lock_machine_memory(&rig->limits).total);
    rig->machine = lock_machine_init(rig->memory, &rig->limits);
}

void rig_init(struct machine_rig *rig, const struct lock_limits *limits, bool applied)
{
    memset(rig, 0, sizeof(*rig));
    rig->limits = *limits;
    rig->endings_max = LOCK_ENDINGS_DEFAULT;
    rig->stamp_ns = 1000 * RIG_MS;
    rig->drawn = 0x1000;
    rig->payload = zeroed(RIG_PAYLOAD_BYTES_MAX);
    rig->payload_bytes = sizeof(struct lock_batch);
    rig->outputs = calloc(RIG_OUTPUTS_MAX, sizeof(*rig->outputs));
    machine_make(rig);
    if (applied) {
        int error = rig_apply_limits(rig, limits);
        assert(error == 0);
    }
}

void rig_free(struct machine_rig *rig)
{
    free(rig->memory);
    free(rig->payload);
    free(rig->outputs);
}

/* ---- entries --------------------------------------------------------------------------------- */

void *rig_add(struct machine_rig *rig, uint8_t op, size_t bytes)
{
    bytes = wire_pad8(bytes);
    assert(rig->payload_bytes + bytes <= RIG_PAYLOAD_BYTES_MAX);
    struct wire_request *request = (void *)(rig->payload + rig->payload_bytes);
    memset(request, 0, bytes);
    request->item.bytes = (uint16_t)bytes;
    request->item.op = op;
    request->item.shard = 3;
    request->drawn = rig->drawn++;
    rig->payload_bytes += bytes;
    rig->count++;
    return request;
}

void rig_add_item(struct machine_rig *rig, const void *item)
{
    const struct wire_item *from = item;
    memcpy(rig_add(rig, from->op, from->bytes), item, from->bytes);
}

static void keep(void *context, const struct lock_output *output)
{
    struct machine_rig *rig = context;
    assert(rig->outputs_count < RIG_OUTPUTS_MAX && output->item->bytes <= RIG_ITEM_BYTES_MAX);
    if (!wire_judge_reply(output->item)) {
        fprintf(stderr, "unsound item: op %u status %u bytes %u\n", output->item->op,
                output->item->status, output->item->bytes);
        abort();
    }
    struct rig_output *kept = &rig->outputs[rig->outputs_count++];
    kept->kind = output->kind;
    kept->command = output->command;
    kept->addressed = output->address != NULL;
    kept->port = output->address != NULL ? output->address->port : 0;
    memcpy(kept->item, output->item, output->item->bytes);
}

int rig_apply(struct machine_rig *rig)
{
    struct lock_batch batch = {.count = rig->count, .endings_max = rig->endings_max};
    struct lock_sink sink = {.emit = keep, .context = rig};
    struct lock_entry entry = {
        .index = ++rig->index,
        .stamp_ns = rig->stamp_ns,
        .kind = LOCK_ENTRY_COMMANDS,
        .payload = rig->payload,
        .payload_bytes = rig->payload_bytes,
    };
    memcpy(rig->payload, &batch, sizeof(batch));
    rig->outputs_count = 0;
    int error = lock_machine_apply(rig->machine, &entry, &sink);
    rig->payload_bytes = sizeof(batch);
    rig->count = 0;
    return error;
}

int rig_apply_limits(struct machine_rig *rig, const struct lock_limits *limits)
{
    _Alignas(8) uint8_t bytes[LOCK_LIMITS_BYTES];
    struct lock_entry entry = {
        .index = ++rig->index,
        .stamp_ns = rig->stamp_ns,
        .kind = LOCK_ENTRY_LIMITS,
        .payload = bytes,
        .payload_bytes = sizeof(bytes),
    };
    lock_limits_encode(limits, bytes);
    return lock_machine_apply(rig->machine, &entry, NULL);
}

/* ---- snapshots ------------------------------------------------------------------------------- */

uint8_t *rig_snapshot(struct lock_machine *machine, size_t *length)
{
    const size_t step_bytes = 64 * 1024;
    uint8_t *bytes = NULL;
    *length = 0;
    lock_machine_snapshot_begin(machine);
    for (;;) {
        bytes = realloc(bytes, *length + step_bytes);
        assert(bytes != NULL);
        long made = lock_machine_snapshot_step(machine, bytes + *length, step_bytes);
        assert(made >= 0);
        if (made == 0) {
            return bytes;
        }
        *length += (size_t)made;
    }
}

int rig_feed(struct lock_machine *machine, const uint8_t *bytes, size_t length, size_t chunk)
{
    lock_machine_restore_begin(machine);
    for (size_t at = 0; at < length; at += chunk) {
        size_t take = length - at < chunk ? length - at : chunk;
        int error = lock_machine_restore_step(machine, bytes + at, take);
        if (error != 0) {
            return error;
        }
    }
    int error;
    do {
        error = lock_machine_restore_end(machine);
    } while (error == -EAGAIN);
    return error;
}

int rig_restore(struct machine_rig *rig, size_t chunk)
{
    size_t length;
    uint64_t digest = lock_machine_digest(rig->machine);
    uint8_t *bytes = rig_snapshot(rig->machine, &length);
    free(rig->memory);
    machine_make(rig);
    int error = rig_feed(rig->machine, bytes, length, chunk);
    free(bytes);
    if (error == 0 && lock_machine_digest(rig->machine) != digest) {
        return -EBADMSG;
    }
    return error;
}

/* ---- commands -------------------------------------------------------------------------------- */

struct wire_open *rig_open(struct machine_rig *rig, uint64_t nonce, uint32_t ttl_ms)
{
    struct wire_open *open = rig_add(rig, WIRE_OP_OPEN, sizeof(*open));
    open->nonce = nonce;
    open->ttl_ms = ttl_ms;
    open->address.port = (uint16_t)(nonce & 0xffff);
    return open;
}

/* Session, number, and that everything before the number minus a few is seen: none by default. */
static void identify(struct wire_request *request, uint64_t session, uint64_t number)
{
    request->session = session;
    request->number = number;
}

struct wire_acquire *rig_acquire_value(struct machine_rig *rig, uint64_t session, uint64_t number,
                                       uint8_t mode, const char *ns, const char *name,
                                       const char *value, uint32_t ttl_ms)
{
    size_t ns_bytes = strlen(ns);
    size_t name_bytes = strlen(name);
    size_t value_bytes = strlen(value);
    struct wire_acquire *acquire =
        rig_add(rig, WIRE_OP_ACQUIRE, sizeof(*acquire) + ns_bytes + name_bytes + value_bytes);
    identify(&acquire->request, session, number);
    acquire->request.drawn = wire_lease_secret(acquire->request.drawn, number);
    acquire->request.item.flags = ttl_ms == 0 ? WIRE_SESSION_BOUND : 0;
    acquire->ttl_ms = ttl_ms;
    acquire->wait_ms = WIRE_WAIT_FOREVER;
    acquire->mode = mode;
    acquire->namespace_bytes = (uint8_t)ns_bytes;
    acquire->name_bytes = (uint8_t)name_bytes;
    acquire->value_bytes = (uint8_t)value_bytes;
    memcpy(acquire->text, ns, ns_bytes);
    memcpy(acquire->text + ns_bytes, name, name_bytes);
    memcpy(acquire->text + ns_bytes + name_bytes, value, value_bytes);
    return acquire;
}

struct wire_acquire *rig_acquire(struct machine_rig *rig, uint64_t session, uint64_t number,
                                 uint8_t mode, const char *name, uint32_t ttl_ms)
{
    return rig_acquire_value(rig, session, number, mode, "", name, "", ttl_ms);
}

uint32_t rig_key_tag(const char *ns, const char *name)
{
    return (uint32_t)wire_key_hash((const uint8_t *)ns, strlen(ns), (const uint8_t *)name,
                                   strlen(name));
}

struct wire_release *rig_release(struct machine_rig *rig, uint64_t session, uint64_t number,
                                 struct wire_lease_id lease, const char *name)
{
    struct wire_release *release = rig_add(rig, WIRE_OP_RELEASE, sizeof(*release));
    identify(&release->request, session, number);
    release->lease = lease;
    release->key_tag = rig_key_tag("", name);
    return release;
}

struct wire_renew *rig_renew(struct machine_rig *rig, uint8_t op, uint64_t session, uint64_t number,
                             uint16_t count)
{
    struct wire_renew *renew =
        rig_add(rig, op, sizeof(*renew) + count * sizeof(struct wire_renewal));
    identify(&renew->request, session, number);
    renew->count = count;
    return renew;
}

struct wire_cancel *rig_cancel(struct machine_rig *rig, uint64_t session, uint64_t number,
                               uint64_t target)
{
    struct wire_cancel *cancel = rig_add(rig, WIRE_OP_CANCEL, sizeof(*cancel));
    identify(&cancel->request, session, number);
    cancel->target = target;
    return cancel;
}

struct wire_convert *rig_convert(struct machine_rig *rig, uint64_t session, uint64_t number,
                                 struct wire_lease_id lease, const char *name, uint8_t mode,
                                 uint32_t wait_ms)
{
    struct wire_convert *convert = rig_add(rig, WIRE_OP_CONVERT, sizeof(*convert));
    identify(&convert->request, session, number);
    convert->lease = lease;
    convert->key_tag = rig_key_tag("", name);
    convert->mode = mode;
    convert->wait_ms = wait_ms;
    return convert;
}

struct wire_named *rig_named(struct machine_rig *rig, uint8_t op, uint64_t session, uint64_t number,
                             const char *ns, const char *name)
{
    size_t ns_bytes = strlen(ns);
    size_t name_bytes = strlen(name);
    struct wire_named *named = rig_add(rig, op, sizeof(*named) + ns_bytes + name_bytes);
    identify(&named->request, session, number);
    named->namespace_bytes = (uint8_t)ns_bytes;
    named->name_bytes = (uint8_t)name_bytes;
    memcpy(named->text, ns, ns_bytes);
    memcpy(named->text + ns_bytes, name, name_bytes);
    return named;
}

struct wire_close *rig_close(struct machine_rig *rig, uint64_t session, uint64_t number)
{
    struct wire_close *close = rig_add(rig, WIRE_OP_CLOSE, sizeof(*close));
    identify(&close->request, session, number);
    return close;
}

/* ---- outputs --------------------------------------------------------------------------------- */

const void *rig_reply(const struct machine_rig *rig, uint32_t command)
{
    for (uint32_t i = 0; i < rig->outputs_count; i++) {
        if (rig->outputs[i].kind == LOCK_OUT_REPLY && rig->outputs[i].command == command) {
            return rig->outputs[i].item;
        }
    }
    return NULL;
}

enum wire_status rig_status(const struct machine_rig *rig, uint32_t command)
{
    const struct wire_item *item = rig_reply(rig, command);
    assert(item != NULL);
    return (enum wire_status)item->status;
}

const void *rig_push(const struct machine_rig *rig, enum lock_output_kind kind, uint32_t n)
{
    for (uint32_t i = 0; i < rig->outputs_count; i++) {
        if (rig->outputs[i].kind == kind && n-- == 0) {
            return rig->outputs[i].item;
        }
    }
    return NULL;
}

uint32_t rig_pushes(const struct machine_rig *rig, enum lock_output_kind kind)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < rig->outputs_count; i++) {
        count += rig->outputs[i].kind == kind;
    }
    return count;
}

uint64_t rig_session(struct machine_rig *rig, uint32_t ttl_ms)
{
    (void)rig_open(rig, rig->drawn + 0x7000, ttl_ms);
    int error = rig_apply(rig);
    assert(error == 0 && rig_status(rig, 0) == WIRE_OK);
    const struct wire_opened *opened = rig_reply(rig, 0);
    return opened->reply.session;
}
