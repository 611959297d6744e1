/* SPDX-License-Identifier: Apache-2.0
 *
 * The lock machine under arbitrary entries. Odd first byte: the rest is payloads as they are. Even:
 * the bytes choose well-formed commands over few sessions, names and leases, and jumps of time.
 * After every entry all invariants must hold.
 */
#include <stdlib.h>
#include <string.h>

#include "dataplane/machine/machine.h"
#include "tests/unit/machine_rig.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    const uint8_t *at;
    size_t left;
};

static uint8_t take(struct input *input)
{
    if (input->left == 0) {
        return 0;
    }
    input->left--;
    return *input->at++;
}

static void verify(const struct machine_rig *world)
{
    if (lock_machine_verify(world->machine) != NULL) {
        abort();
    }
}

static void run_raw(struct machine_rig *world, const uint8_t *data, size_t size)
{
    while (size >= 3) {
        size_t length = (size_t)(data[0] | data[1] << 8) % 1500;
        world->stamp_ns += (uint64_t)data[2] * RIG_MS;
        data += 3;
        size -= 3;
        length = length < size ? length : size;
        memcpy(world->payload, data, length);
        struct lock_entry entry = {
            .index = ++world->index,
            .stamp_ns = world->stamp_ns,
            .kind = LOCK_ENTRY_COMMANDS,
            .payload = world->payload,
            .payload_bytes = length,
        };
        (void)lock_machine_apply(world->machine, &entry, NULL);
        data += length;
        size -= length;
    }
}

static void add_command(struct machine_rig *world, struct input *input)
{
    static const char *const names[] = {"a", "b", "c", "a-name-of-more-than-24-bytes"};
    uint64_t session = 0x1000 + take(input) % 8;
    uint64_t number = 1 + take(input) % 24;
    uint8_t choice = take(input);
    const char *name = names[choice & 3];
    struct wire_lease_id lease = {.secret = 0x1000 + take(input) % 64, .slot = choice % 6};
    struct wire_request *request;
    switch (choice >> 4) {
    case 0:
        request = &rig_open(world, 1 + number % 5, 10 + (uint32_t)number * 20)->request;
        request->drawn = session;
        return;
    case 1:
        request = &rig_release(world, session, number, lease, name)->request;
        break;
    case 2:
        request =
            &rig_convert(world, session, number, lease, name, 1 + (choice >> 2 & 1), 100)->request;
        break;
    case 3:
        if (number < 2) {
            return;
        }
        request = &rig_cancel(world, session, number, 1 + take(input) % (number - 1))->request;
        break;
    case 4:
        request = &rig_named(world, WIRE_OP_FORCE_RELEASE, session, number, "", name)->request;
        request->item.flags = choice >> 2 & 1;
        break;
    case 5:
    case 6: {
        struct wire_renew *renew = rig_renew(
            world, choice >> 4 == 5 ? WIRE_OP_KEEPALIVE : WIRE_OP_RENEW, session, number, 1);
        renew->renewals[0].lease = lease;
        renew->renewals[0].key_tag = rig_key_tag("", name);
        request = &renew->request;
        break;
    }
    case 7:
        request = &rig_close(world, session, number)->request;
        break;
    default: {
        uint8_t more = take(input);
        struct wire_acquire *acquire =
            rig_acquire_value(world, session, number, 1 + (choice >> 2 & 1), "", name,
                              more & 64 ? "value" : "", more & 32 ? 0 : 10 + (more & 15) * 20);
        acquire->request.item.flags |= take(input) & 7;
        acquire->wait_ms = more & 16 ? WIRE_WAIT_FOREVER : (uint32_t)more;
        acquire->lock_delay_ms = choice & 8 ? 50 : 0;
        acquire->priority = more >> 6;
        acquire->request.drawn = lease.secret;
        request = &acquire->request;
    }
    }
    uint64_t acked = take(input) % 24;
    request->acked_below = acked <= number ? acked : 0;
}

static void run_commands(struct machine_rig *world, struct input *input)
{
    while (input->left > 0) {
        uint8_t head = take(input);
        world->stamp_ns += (uint64_t)(head >> 4) * (head & 8 ? 200 : 3) * RIG_MS;
        world->endings_max = take(input) % 8;
        for (int i = head & 7; i >= 0; i--) {
            add_command(world, input);
        }
        if (rig_apply(world) != 0) {
            abort();
        }
        if (world->index % 8 == 0) {
            verify(world);
        }
        if (head == 255 && rig_restore(world, 1000) != 0) {
            abort();
        }
    }
}

static struct machine_rig rig;

static void start(void)
{
    struct lock_limits limits = rig_limits();
    limits.leases_max = 6;
    limits.resources_max = 4;
    limits.sessions_max = 5;
    limits.waiters_max = limits.queue_max = 4;
    limits.answers_max = 40;
    limits.extras_max = 3;
    limits.long_names_max = 1;
    if (rig.machine == NULL) {
        rig_init(&rig, &limits, false);
    }
    machine_blank(rig.machine);
    rig.index = 0;
    rig.stamp_ns = 1000 * RIG_MS;
    rig.drawn = 0x1000;
    if (rig_apply_limits(&rig, &limits) != 0) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    start();
    if (data[0] & 1) {
        run_raw(&rig, data + 1, size - 1);
    } else {
        struct input input = {.at = data + 1, .left = size - 1};
        run_commands(&rig, &input);
    }
    verify(&rig);
    return 0;
}
