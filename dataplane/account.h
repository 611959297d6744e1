/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker's account of itself: how much of its time it has something to do, and on what it spends
 * that. Turns are counted, and their time is measured, one by one; the stages inside are timed in
 * about one turn of ACCOUNT_SAMPLE_TURNS, drawn at random, because reading the counter at each
 * boundary would cost more than some stages do. So cycles per request are the stages' cycles
 * divided by the requests of the same turns.
 *
 * One owner thread; others read what it has put on the board.
 */
#ifndef BELAY_DATAPLANE_ACCOUNT_H
#define BELAY_DATAPLANE_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "dataplane/board.h"
#include "hw/clock.h"

struct port;

enum {
    ACCOUNT_SAMPLE_TURNS = 32, /* on average */
    ACCOUNT_PUBLISH_NS = 50 * 1000 * 1000,
    /* All that a row of the board can say. */
    ACCOUNT_COUNTERS_MAX = 14 + WIRE_TRAFFICS + 2 * (WIRE_REJECT_COUNT - 1) + 2 + WIRE_STAGES +
                           WIRE_FRAME_LOSSES + WIRE_FRAMES,
};

struct account {
    bool sampling;         /* this turn's stages are timed */
    uint8_t stage;         /* enum wire_stage that the time goes to */
    uint32_t turns_left;   /* until a turn is sampled */
    uint64_t random;       /* never 0 */
    uint64_t since_cycles; /* when the stage was entered */
    uint64_t requests_before;
    uint64_t cycles[WIRE_STAGES]; /* of this turn */

    uint64_t turns, turns_busy, busy_ns;
    uint64_t published_ns;
    bool idle_published; /* and nothing was done since */
};

/* `seed`: any number. */
void account_init(struct account *account, uint64_t seed);

/* Around the work of a turn. What was done in it counts if `worked`. */
void account_turn_begin(struct account *account, const struct board_worker *row);
void account_turn_end(struct account *account, bool worked, struct board_worker *row);

/* From here on time goes to that stage; returns the one it went to. */
static inline enum wire_stage account_enter(struct account *account, enum wire_stage stage)
{
    enum wire_stage before = (enum wire_stage)account->stage;
    if (account->sampling) {
        uint64_t now_cycles = clock_cycles();
        account->cycles[before] += now_cycles - account->since_cycles;
        account->since_cycles = now_cycles;
    }
    account->stage = (uint8_t)stage;
    return before;
}

/* The turn took that long, from before it until now. Puts on the board what is due: once in
 * ACCOUNT_PUBLISH_NS while there is work, and when it has run out. */
void account_took(struct account *account, bool worked, uint64_t took_ns, uint64_t now_ns,
                  const struct port *clients, const struct port *peers, struct board_worker *row);

/* The same at once: before the thread ends. */
void account_publish(struct account *account, const struct port *clients, const struct port *peers,
                     struct board_worker *row);

/* What the row says, without zeros; how many, at most ACCOUNT_COUNTERS_MAX. Any thread. */
uint16_t account_list(const struct board_worker *row,
                      struct wire_counter counters[ACCOUNT_COUNTERS_MAX]);

#endif
