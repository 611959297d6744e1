/* SPDX-License-Identifier: Apache-2.0
 *
 * Forged snapshots of the lock machine. The input is a list of edits {offset 16, value 8} to a
 * sound snapshot, whose digest is then made right again: so only the structure stands between the
 * forger and the machine. What is refused leaves a blank machine; what is accepted must hold every
 * invariant and survive a life of its own.
 */
#include <stdlib.h>
#include <string.h>

#include "dataplane/machine/snapshot.h"
#include "tests/unit/machine_rig.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t *base;
static size_t base_bytes;
static struct machine_rig target;

/* Something of everything. */
static void make_base(void)
{
    struct machine_rig rig;
    struct lock_limits limits = rig_limits();
    rig_init(&rig, &limits, true);
    for (uint64_t i = 0; i < 5; i++) {
        uint64_t session = rig_session(&rig, i == 4 ? 500 : 60000);
        struct wire_acquire *item =
            rig_acquire_value(&rig, session, 1, (uint8_t)(1 + i % 2), "", "busy", "value", 9000);
        item->priority = (uint8_t)(i % 3);
        item->wait_ms = 7000;
        (void)rig_acquire(&rig, session, 2, 1, "shared", i == 2 ? 0 : 7000);
        (void)rig_acquire(&rig, session, 3, 2, "a-name-of-more-than-24-bytes", 8000);
        item = rig_acquire(&rig, session, 4, 2, i == 0 ? "delayed" : "own", 20);
        item->lock_delay_ms = 5000;
        item->request.item.flags = WIRE_TRY;
        (void)rig_renew(&rig, WIRE_OP_KEEPALIVE, session, 5, 0);
        (void)rig_cancel(&rig, session, 7, 6);
        (void)rig_apply(&rig);
    }
    rig.stamp_ns += 600 * RIG_MS;
    rig.endings_max = 3;
    (void)rig_apply(&rig);
    base = rig_snapshot(rig.machine, &base_bytes);
    rig_free(&rig);
}

/* Walks the groups as the parser does; gives up where it would. */
static void mend_digest(uint8_t *bytes, size_t length)
{
    static const size_t record_bytes[SLAB_COUNT] = {
        sizeof(struct lease_record),  sizeof(struct resource_record), sizeof(struct session_record),
        sizeof(struct waiter_record), sizeof(struct answer_record),   sizeof(struct long_record),
        sizeof(struct extra_record),  sizeof(struct queue_record)};
    struct snapshot_head head;
    struct snapshot_group group;
    uint64_t digest = 0;
    size_t at = sizeof(head);
    memcpy(&head, bytes, sizeof(head));
    while (length - at >= sizeof(group)) {
        memcpy(&group, bytes + at, sizeof(group));
        at += sizeof(group);
        if (group.slab == SNAPSHOT_END) {
            digest += digest_of_state(&head.state);
            if (length - at >= sizeof(digest)) {
                memcpy(bytes + at, &digest, sizeof(digest));
            }
            return;
        }
        if (group.slab >= SLAB_COUNT) {
            return;
        }
        for (; group.mask != 0; group.mask &= group.mask - 1) {
            uint32_t slot = group.word * 64 + (uint32_t)__builtin_ctzll(group.mask);
            if (length - at < record_bytes[group.slab]) {
                return;
            }
            digest += digest_of_record(group.slab, slot, bytes + at, record_bytes[group.slab]);
            at += record_bytes[group.slab];
        }
    }
}

/* Entries that touch whatever is there. */
static void live_on(void)
{
    static const char *const names[] = {"busy", "shared", "delayed", "own",
                                        "a-name-of-more-than-24-bytes"};
    target.stamp_ns = target.machine->state.stamp_ns;
    target.index = target.machine->state.applied_index;
    for (uint32_t round = 0; round < 6; round++) {
        (void)rig_open(&target, 1000 + round, 60000);
        for (size_t i = 0; i < 5; i++) {
            (void)rig_acquire(&target, 0x1000 + round, 20 + i, (uint8_t)(1 + i % 2), names[i], 500);
            rig_named(&target, WIRE_OP_FORCE_RELEASE, 0x1000 + round, 30 + i, "", names[i])
                ->request.acked_below = 3;
        }
        if (rig_apply(&target) != 0) {
            abort();
        }
        uint64_t stamp_ns;
        if (!__builtin_add_overflow(target.stamp_ns, 400 * RIG_MS, &stamp_ns)) {
            target.stamp_ns = stamp_ns;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (base == NULL) {
        struct lock_limits limits = rig_limits();
        make_base();
        rig_init(&target, &limits, false);
    }
    size_t length = base_bytes;
    uint8_t *bytes = malloc(length);
    memcpy(bytes, base, length);
    for (; size >= 3; data += 3, size -= 3) {
        size_t offset = (size_t)(data[0] | data[1] << 8) % length;
        bytes[offset] = data[2];
    }
    mend_digest(bytes, length);
    if (rig_feed(target.machine, bytes, length, 777) == 0) {
        if (lock_machine_verify(target.machine) != NULL) {
            abort();
        }
        live_on();
        if (lock_machine_verify(target.machine) != NULL) {
            abort();
        }
    }
    free(bytes);
    return 0;
}
