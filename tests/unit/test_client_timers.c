/* SPDX-License-Identifier: Apache-2.0
 *
 * The heap of deadlines against a dumb twin: an array that is searched.
 */
#include <criterion/criterion.h>

#include <stdlib.h>

#include "client/timers.h"

enum { IDS = 200 };

static uint64_t state = 12345;

static uint64_t draw(void)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return state >> 33;
}

static uint64_t twin_next(const uint64_t *twin)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < IDS; i++)
        least = twin[i] < least ? twin[i] : least;
    return least;
}

Test(timers, like_the_twin)
{
    struct client_timers timers;
    uint64_t twin[IDS];
    void *memory = calloc(1, client_timers_memory_bytes(IDS));
    uint64_t now = 0;

    client_timers_init(&timers, memory, IDS);
    for (int i = 0; i < IDS; i++)
        twin[i] = UINT64_MAX;
    for (int step = 0; step < 100000; step++) {
        uint32_t id = (uint32_t)(draw() % IDS);
        switch (draw() % 4) {
        case 0:
        case 1:
            twin[id] = now + draw() % 1000;
            client_timers_set(&timers, id, twin[id]);
            break;
        case 2:
            twin[id] = UINT64_MAX;
            if (draw() % 2 == 0)
                client_timers_clear(&timers, id);
            else
                client_timers_set(&timers, id, UINT64_MAX);
            break;
        default:
            now += draw() % 20;
            while (client_timers_take(&timers, now, &id)) {
                cr_assert(twin[id] <= now && twin[id] == twin_next(twin), "step %d", step);
                twin[id] = UINT64_MAX;
            }
            break;
        }
        cr_assert_eq(client_timers_next(&timers), twin_next(twin), "step %d", step);
    }
    free(memory);
}
