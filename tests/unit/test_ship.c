/* SPDX-License-Identifier: Apache-2.0
 *
 * Message shipping: what goes when, and that everything arrives over a bad network.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "consensus/ship.h"

#define MS UINT64_C(1000000)

static struct ship_sender sender;

static void start(uint64_t from, uint32_t window_bytes)
{
    struct ship_options options = {.ring_bytes = 4096,
                                   .window_bytes = window_bytes,
                                   .retransmit_ns = 10 * MS,
                                   .retransmit_ns_max = 80 * MS};

    ship_sender_init(&sender, &options);
    ship_sender_start(&sender, 7, from);
}

static bool next(uint64_t now_ns, uint64_t position, size_t length)
{
    uint64_t at = 0;
    size_t bytes = 0;

    return ship_sender_next(&sender, now_ns, 1000, &at, &bytes) && at == position &&
           bytes == length;
}

static bool nothing(uint64_t now_ns)
{
    uint64_t at;
    size_t bytes;

    return !ship_sender_next(&sender, now_ns, 1000, &at, &bytes);
}

Test(ship, ranges)
{
    start(3000, 100000);
    cr_assert(nothing(1));
    cr_assert_eq(ship_sender_deadline(&sender), UINT64_MAX);
    ship_sender_extend(&sender, 5500, 9, 2);
    cr_assert(next(1, 3000, 1000));
    cr_assert(next(1, 4000, 96), "no range crosses the ring's end");
    cr_assert(next(1, 4096, 1000));
    cr_assert(next(1, 5096, 404));
    cr_assert(nothing(1));
    cr_assert_eq(ship_sender_deadline(&sender), 1 + 10 * MS);
    ship_sender_extend(&sender, 5000, 8, 2);
    cr_assert_eq(sender.end, 5500, "an extension never shortens");
    ship_sender_acked(&sender, 5500, false, 2);
    cr_assert_eq(ship_sender_deadline(&sender), UINT64_MAX);
    ship_sender_stop(&sender);
    ship_sender_extend(&sender, 9000, 10, 2);
    cr_assert(nothing(3));
}

Test(ship, window)
{
    start(0, 1500);
    ship_sender_extend(&sender, 4000, 9, 2);
    cr_assert(next(1, 0, 1000));
    cr_assert(next(1, 1000, 500));
    cr_assert(nothing(1));
    ship_sender_acked(&sender, 1000, false, 2);
    cr_assert(next(2, 1500, 1000));
    cr_assert(nothing(2));
    ship_sender_acked(&sender, 4000, false, 3);
    cr_assert(nothing(3), "an acknowledgement of what was never sent is none");
}

Test(ship, go_back_and_back_off)
{
    uint64_t now_ns = 1;

    start(0, 100000);
    ship_sender_extend(&sender, 2000, 9, 2);
    cr_assert(next(now_ns, 0, 1000) && next(now_ns, 1000, 1000));
    for (uint64_t wait_ns = 10 * MS; wait_ns <= 80 * MS; wait_ns *= 2) {
        cr_assert(nothing(now_ns + wait_ns - 1));
        now_ns += wait_ns;
        cr_assert(next(now_ns, 0, 1000) && next(now_ns, 1000, 1000));
    }
    cr_assert(nothing(now_ns + 80 * MS - 1));
    now_ns += 80 * MS; /* the bound of doubling */
    cr_assert(next(now_ns, 0, 1000) && next(now_ns, 1000, 1000));
    ship_sender_acked(&sender, 1000, false, now_ns); /* progress: the wait is short again */
    cr_assert_eq(ship_sender_deadline(&sender), now_ns + 10 * MS);
    now_ns += 10 * MS;
    cr_assert(next(now_ns, 1000, 1000), "only what is missing goes again");
    ship_sender_acked(&sender, 500, false, now_ns); /* an old one: nothing */
    cr_assert_eq(sender.acked, 1000);
}

Test(ship, asked_for_again)
{
    start(0, 100000);
    ship_sender_extend(&sender, 3000, 9, 2);
    cr_assert(next(1, 0, 1000) && next(1, 1000, 1000) && next(1, 2000, 1000));
    ship_sender_acked(&sender, 1000, true, 2); /* the second was lost */
    cr_assert(next(2, 1000, 1000) && next(2, 2000, 1000));
    ship_sender_acked(&sender, 1000, true, 3);
    cr_assert(nothing(3), "the repetition is under way");
    ship_sender_acked(&sender, 1000, true, 2 + 10 * MS);
    cr_assert(next(2 + 10 * MS, 1000, 1000), "it was lost as well");
}

/* An acknowledgement may come for bytes that were sent, taken back and not repeated yet. */
Test(ship, acknowledged_beyond_what_goes_next)
{
    start(0, 100000);
    ship_sender_extend(&sender, 3000, 9, 2);
    cr_assert(next(1, 0, 1000) && next(1, 1000, 1000) && next(1, 2000, 1000));
    cr_assert(next(1 + 10 * MS, 0, 1000)); /* all over again ... */
    ship_sender_acked(&sender, 2000, false, 1 + 11 * MS);
    cr_assert(next(1 + 11 * MS, 2000, 1000)); /* ... but not what came late */
}

Test(ship, receiver_asks_seldom)
{
    struct ship_receiver receiver = {0};

    cr_assert(ship_receiver_ask(&receiver, 100, 5 * MS, MS));
    cr_assert(!ship_receiver_ask(&receiver, 100, 5 * MS + 1, MS));
    cr_assert(ship_receiver_ask(&receiver, 200, 5 * MS + 2, MS), "another gap");
    cr_assert(ship_receiver_ask(&receiver, 200, 6 * MS + 2, MS));
}

/* Positions at 2^32 and near 2^64. */
Test(ship, edges)
{
    static const uint64_t starts[] = {UINT32_MAX - 500u, UINT64_MAX - 5000};

    for (size_t i = 0; i < 2; i++) {
        start(starts[i], 2000);
        ship_sender_extend(&sender, starts[i] + 3000, 9, 2);
        uint64_t at, sum = 0;
        size_t bytes;
        while (ship_sender_next(&sender, 1, 1000, &at, &bytes)) {
            cr_assert_eq(at, starts[i] + sum);
            sum += bytes;
            ship_sender_acked(&sender, at + bytes, false, 1);
        }
        cr_assert_eq(sum, 3000);
    }
}

/* Everything arrives, in order, over a network that loses a third both ways. */
Test(ship, lossy)
{
    uint64_t state = 4711, received = 0, now_ns = 1, datagrams = 0;
    struct ship_receiver receiver = {0};

    start(0, 3000);
    for (uint64_t end = 777; end < 300000; end += 777) {
        ship_sender_extend(&sender, end, end, 1);
        while (received < end) {
            uint64_t at;
            size_t bytes;
            while (ship_sender_next(&sender, now_ns, 1000, &at, &bytes)) {
                bool ask = false;
                datagrams++;
                state = state * 6364136223846793005u + 1442695040888963407u;
                if ((state >> 33) % 3 == 0)
                    continue;
                if (at > received)
                    ask = ship_receiver_ask(&receiver, received, now_ns, MS);
                else if (at + bytes > received)
                    received = at + bytes;
                if ((state >> 13) % 3 != 0)
                    ship_sender_acked(&sender, received, ask, now_ns);
            }
            cr_assert_leq(sender.next - sender.acked, 3000);
            now_ns += MS;
            cr_assert_lt(now_ns, 3600000 * MS, "it does not end");
        }
    }
    cr_assert_lt(datagrams, 5000);
}
