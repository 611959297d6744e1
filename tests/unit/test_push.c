/* SPDX-License-Identifier: Apache-2.0
 *
 * Pushes: repeated with doubling gaps until acknowledged, bounded, one per lease.
 */
#include "dataplane/push.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct push_table table;
static const struct wire_address client = {.port = 9};

static void setup(void)
{
    push_init(&table, calloc(1, push_memory_bytes()));
}

static void teardown(void)
{
    free(table.slots);
}

TestSuite(push, .init = setup, .fini = teardown);

static struct wire_granted grant(uint64_t session, uint64_t secret)
{
    return (struct wire_granted){
        .reply = {.item = {.bytes = sizeof(struct wire_granted), .op = WIRE_OP_PUSH_GRANT},
                  .session = session},
        .lease = {.secret = secret, .slot = 7},
    };
}

static bool add(uint64_t session, uint64_t secret, uint64_t now_ns)
{
    struct wire_granted granted = grant(session, secret);

    return push_add(&table, &client, &granted.reply.item, now_ns);
}

Test(push, repeats_with_doubling_gaps_then_gives_up)
{
    uint64_t now_ns = 1000;
    int sent = 0;

    cr_assert(add(1, 2, now_ns));
    cr_assert_null(push_due(&table, now_ns + PUSH_GAP_FIRST_NS - 1));
    for (int attempt = 0; attempt < PUSH_ATTEMPTS; attempt++) {
        uint64_t due_ns = push_deadline(&table);

        cr_assert_eq(due_ns, now_ns + (PUSH_GAP_FIRST_NS << attempt));
        cr_assert_null(push_due(&table, due_ns - 1));
        cr_assert_not_null(push_due(&table, due_ns));
        sent++;
        now_ns = due_ns;
    }
    cr_assert_eq(sent, PUSH_ATTEMPTS);
    cr_assert_eq(push_deadline(&table), UINT64_MAX);
    cr_assert_eq(table.count, 0);
}

Test(push, acknowledged_is_never_repeated)
{
    struct wire_lease_id lease = {.secret = 5, .slot = 7};
    struct wire_lease_id other_slot = {.secret = 5, .slot = 8};

    cr_assert(add(1, 5, 0));
    push_acknowledge(&table, 1, &other_slot);
    push_acknowledge(&table, 2, &lease); /* another session's word does not count */
    cr_assert_eq(table.count, 1);
    push_acknowledge(&table, 1, &lease);
    cr_assert_eq(table.count, 0);
    cr_assert_null(push_due(&table, UINT64_MAX));
}

Test(push, newest_of_a_lease_replaces_the_older)
{
    struct wire_lost lost = {
        .reply = {.item = {.bytes = sizeof lost, .op = WIRE_OP_PUSH_LOST}, .session = 1},
        .lease = {.secret = 5, .slot = 7},
    };
    const struct push *push;

    cr_assert(add(1, 5, 0));
    cr_assert(push_add(&table, &client, &lost.reply.item, 10));
    cr_assert_eq(table.count, 1);
    push = push_due(&table, 10 + PUSH_GAP_FIRST_NS);
    cr_assert_not_null(push);
    cr_assert_eq(push->item.op, WIRE_OP_PUSH_LOST);
}

Test(push, full_table_says_so_and_loses_nothing_it_holds)
{
    for (uint64_t i = 0; i < PUSH_SLOTS; i++)
        cr_assert(add(1, i, i));
    cr_assert_not(add(1, PUSH_SLOTS + 1, 5));
    cr_assert_eq(table.count, PUSH_SLOTS);
    for (uint64_t i = 0; i < PUSH_SLOTS; i++) {
        const struct push *push = push_due(&table, i + PUSH_GAP_FIRST_NS);

        cr_assert_not_null(push);
        cr_assert_eq(push->granted.lease.secret, i, "in due order");
    }
    push_clear(&table);
    cr_assert_eq(table.count, 0);
    cr_assert(add(1, 1, 0));
}
