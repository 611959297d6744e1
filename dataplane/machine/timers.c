/* SPDX-License-Identifier: Apache-2.0 */
#include "dataplane/machine/timers.h"

#include <assert.h>
#include <string.h>

/* Node numbers of the heads, counted from timers_max: two per slot (older, direct). */
enum {
    NEAR_HEADS = 2 * TIMERS_NEAR_SLOTS,
    FAR_HEADS = 2 * TIMERS_FAR_SLOTS,
    BEYOND_HEAD = NEAR_HEADS + 2 * FAR_HEADS,
    HEADS = BEYOND_HEAD + 1,
};
enum { OLDER = 0, DIRECT = 1 };
enum { BLOCKS = 0, SPANS = 1 };

size_t timers_memory_bytes(uint32_t timers_max)
{
    return ((size_t)timers_max + HEADS) * sizeof(struct timer_node);
}

void timers_init(struct timers *timers, void *memory, uint32_t timers_max, timers_tick_of *tick_of,
                 const void *tick_context)
{
    assert(timers_max < UINT32_MAX - HEADS);
    memset(timers, 0, sizeof(*timers));
    timers->nodes = memory;
    timers->tick_of = tick_of;
    timers->tick_context = tick_context;
    timers->timers_max = timers_max;
    timers->far[BLOCKS].first_head = timers_max + NEAR_HEADS;
    timers->far[SPANS].first_head = timers_max + NEAR_HEADS + FAR_HEADS;
    timers->beyond = timers_max + BEYOND_HEAD;
    timers_clear(timers, 0);
}

void timers_clear(struct timers *timers, uint64_t tick)
{
    for (uint32_t head = timers->timers_max; head < timers->timers_max + HEADS; head++) {
        timers->nodes[head] = (struct timer_node){head, head};
    }
    memset(timers->near_bits, 0, sizeof(timers->near_bits));
    memset(timers->near_words, 0, sizeof(timers->near_words));
    for (int level = BLOCKS; level <= SPANS; level++) {
        memset(timers->far[level].bits, 0, sizeof(timers->far[level].bits));
        timers->far[level].words = 0;
        memset(timers->far[level].counts, 0, sizeof(timers->far[level].counts));
    }
    timers->armed = 0;
    timers->cursor = tick;
    timers->paced = tick;
    timers->far[BLOCKS].opened = (tick >> TIMERS_BLOCK_BITS) + 1;
    timers->far[SPANS].opened = (timers->far[BLOCKS].opened >> TIMERS_SPAN_BITS) + 1;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static bool list_empty(const struct timers *timers, uint32_t head)
{
    return timers->nodes[head].next == head;
}

static void list_append(struct timers *timers, uint32_t head, uint32_t id)
{
    uint32_t last = timers->nodes[head].prev;
    timers->nodes[id] = (struct timer_node){.next = head, .prev = last};
    timers->nodes[last].next = id;
    timers->nodes[head].prev = id;
}

static uint32_t near_head(const struct timers *timers, uint64_t tick)
{
    return timers->timers_max + 2 * (uint32_t)(tick % TIMERS_NEAR_SLOTS);
}

static uint32_t far_head(const struct timers_far *far, uint64_t slot)
{
    return far->first_head + 2 * (uint32_t)(slot % TIMERS_FAR_SLOTS);
}

static void bit_set(uint64_t *bits, uint32_t slot)
{
    bits[slot / 64] |= UINT64_C(1) << (slot % 64);
}

static void bit_clear(uint64_t *bits, uint32_t slot)
{
    bits[slot / 64] &= ~(UINT64_C(1) << (slot % 64));
}

/* A list just ran empty: if its twin is empty too, the slot is. */
static void slot_emptied(struct timers *timers, uint32_t head)
{
    uint32_t number = head - timers->timers_max;
    if (number == BEYOND_HEAD) {
        return;
    }
    if (!list_empty(timers, timers->timers_max + (number ^ 1))) {
        return;
    }
    if (number < NEAR_HEADS) {
        bit_clear(timers->near_bits, number / 2);
        if (timers->near_bits[number / 2 / 64] == 0) {
            bit_clear(timers->near_words, number / 2 / 64);
        }
        return;
    }
    number -= NEAR_HEADS;
    struct timers_far *far = &timers->far[number / FAR_HEADS];
    uint32_t slot = number % FAR_HEADS / 2;
    bit_clear(far->bits, slot);
    if (far->bits[slot / 64] == 0) {
        far->words &= ~(UINT32_C(1) << (slot / 64));
    }
}

static void list_unlink(struct timers *timers, uint32_t id)
{
    uint32_t next = timers->nodes[id].next;
    uint32_t prev = timers->nodes[id].prev;
    timers->nodes[next].prev = prev;
    timers->nodes[prev].next = next;
    if (next == prev && next >= timers->timers_max) {
        slot_emptied(timers, next);
    }
}

/* ---- placing --------------------------------------------------------------------------------- */

static uint64_t span_of(uint64_t tick)
{
    return tick >> (TIMERS_BLOCK_BITS + TIMERS_SPAN_BITS);
}

static void place_near(struct timers *timers, uint32_t id, uint64_t tick, uint32_t age)
{
    uint32_t slot = (uint32_t)(tick % TIMERS_NEAR_SLOTS);
    list_append(timers, near_head(timers, tick) + age, id);
    bit_set(timers->near_bits, slot);
    bit_set(timers->near_words, slot / 64);
}

static void place_far(struct timers *timers, int level, uint32_t id, uint64_t slot, uint32_t age)
{
    struct timers_far *far = &timers->far[level];
    list_append(timers, far_head(far, slot) + age, id);
    uint32_t at = (uint32_t)(slot % TIMERS_FAR_SLOTS);
    bit_set(far->bits, at);
    far->words |= UINT32_C(1) << (at / 64);
    far->counts[at]++;
}

/* The last span that has a list of its own. */
static uint64_t span_last(const struct timers *timers)
{
    return timers->far[SPANS].opened + TIMERS_FAR_SLOTS - 1;
}

void timers_arm(struct timers *timers, uint32_t id, uint64_t tick)
{
    assert(id < timers->timers_max && tick >= timers->cursor && tick < TIMERS_TICK_END);
    uint64_t block = tick >> TIMERS_BLOCK_BITS;
    timers->armed++;
    if (block <= timers->far[BLOCKS].opened) {
        place_near(timers, id, tick, DIRECT);
    } else if (span_of(tick) <= timers->far[SPANS].opened) {
        place_far(timers, BLOCKS, id, block, DIRECT);
    } else if (span_of(tick) <= span_last(timers)) {
        place_far(timers, SPANS, id, span_of(tick), DIRECT);
    } else {
        list_append(timers, timers->beyond, id);
    }
}

static void count_down(struct timers_far *far, uint64_t slot)
{
    uint32_t *count = &far->counts[slot % TIMERS_FAR_SLOTS];
    if (*count > 0) {
        (*count)--;
    }
}

void timers_disarm(struct timers *timers, uint32_t id, uint64_t tick)
{
    assert(id < timers->timers_max && timers->armed > 0);
    timers->armed--;
    list_unlink(timers, id);
    uint64_t block = tick >> TIMERS_BLOCK_BITS;
    if (block <= timers->far[BLOCKS].opened) {
        return;
    }
    if (span_of(tick) <= timers->far[SPANS].opened) {
        count_down(&timers->far[BLOCKS], block);
    } else if (span_of(tick) <= span_last(timers)) {
        count_down(&timers->far[SPANS], span_of(tick));
    }
}

/* ---- moving from a coarser level to the finer one -------------------------------------------- */

static uint32_t slot_first(const struct timers *timers, uint32_t head)
{
    uint32_t first = timers->nodes[head + OLDER].next;
    if (first == head + OLDER) {
        first = timers->nodes[head + DIRECT].next;
    }
    return first < timers->timers_max ? first : TIMERS_NONE;
}

/* Moves one timer of the opened slot; false if none is left. */
static bool move_one(struct timers *timers, int level)
{
    struct timers_far *far = &timers->far[level];
    uint32_t id = slot_first(timers, far_head(far, far->opened));
    if (id == TIMERS_NONE) {
        return false;
    }
    list_unlink(timers, id);
    count_down(far, far->opened);
    uint64_t tick = timers->tick_of(timers->tick_context, id);
    if (level == BLOCKS) {
        place_near(timers, id, tick, OLDER);
    } else {
        place_far(timers, BLOCKS, id, tick >> TIMERS_BLOCK_BITS, OLDER);
    }
    return true;
}

static void move_all(struct timers *timers, int level)
{
    while (move_one(timers, level)) {
    }
    struct timers_far *far = &timers->far[level];
    far->counts[far->opened % TIMERS_FAR_SLOTS] = 0;
}

/* The last span's list is new and empty: what waited beyond for it was armed before whatever will
 * be armed directly there. The list beyond is empty unless somebody asks for leases of 100 days. */
static void admit_beyond(struct timers *timers)
{
    uint32_t id = timers->nodes[timers->beyond].next;
    while (id != timers->beyond) {
        uint32_t next = timers->nodes[id].next;
        uint64_t span = span_of(timers->tick_of(timers->tick_context, id));
        if (span <= span_last(timers)) {
            list_unlink(timers, id);
            place_far(timers, SPANS, id, span, DIRECT);
        }
        id = next;
    }
}

/* The cursor enters the next block. */
static void enter_block(struct timers *timers)
{
    struct timers_far *blocks = &timers->far[BLOCKS];
    struct timers_far *spans = &timers->far[SPANS];
    move_all(timers, BLOCKS);
    timers->cursor = blocks->opened << TIMERS_BLOCK_BITS;
    blocks->opened++;
    if (blocks->opened >> TIMERS_SPAN_BITS == spans->opened) {
        move_all(timers, SPANS);
        spans->opened++;
        admit_beyond(timers);
    }
}

static uint64_t slot_ticks(int level)
{
    const uint64_t block = UINT64_C(1) << TIMERS_BLOCK_BITS;
    return level == BLOCKS ? block : block << TIMERS_SPAN_BITS;
}

/* When the slot that is being moved must be done. The first block of a span is opened one block
 * before it starts. */
static uint64_t moved_by(const struct timers *timers, int level)
{
    uint64_t start = timers->far[level].opened * slot_ticks(level);
    return level == BLOCKS ? start : start - slot_ticks(BLOCKS);
}

/* Moves the share of the opened slot that belongs to the time since the last call: a slot is opened
 * as long as itself before it must be done. */
static void pace_level(struct timers *timers, int level, uint64_t tick)
{
    const struct timers_far *far = &timers->far[level];
    const uint64_t start = moved_by(timers, level);
    const uint64_t lead = slot_ticks(level);
    if (slot_first(timers, far_head(far, far->opened)) == TIMERS_NONE) {
        return;
    }
    uint64_t opened = start > lead ? start - lead : 0;
    uint64_t from = timers->paced > opened ? timers->paced : opened;
    uint64_t left = start > from ? start - from : 1;
    uint64_t passed = tick > from ? tick - from : 0;
    uint64_t share = passed < left ? passed : left;
    uint64_t moves = TIMERS_MOVES_MIN + far->counts[far->opened % TIMERS_FAR_SLOTS] * share / left;
    while (moves-- > 0 && move_one(timers, level)) {
    }
}

void timers_pace(struct timers *timers, uint64_t tick)
{
    pace_level(timers, BLOCKS, tick);
    pace_level(timers, SPANS, tick);
    timers->paced = tick;
}

/* The tick at which so many moves are due that they are enough for one entry. */
static uint64_t pace_next(const struct timers *timers, int level)
{
    const struct timers_far *far = &timers->far[level];
    uint64_t count = far->counts[far->opened % TIMERS_FAR_SLOTS];
    if (count <= TIMERS_MOVES || slot_first(timers, far_head(far, far->opened)) == TIMERS_NONE) {
        return TIMERS_NEVER;
    }
    uint64_t end = moved_by(timers, level);
    uint64_t left = end > timers->paced ? end - timers->paced : 1;
    return timers->paced + 1 + left * TIMERS_MOVES / count;
}

/* ---- ending ---------------------------------------------------------------------------------- */

/* First tick in [from, end) that has timers. The range lies in one block. */
static uint64_t near_first(const struct timers *timers, uint64_t from, uint64_t end)
{
    static_assert(TIMERS_NEAR_SLOTS == 2 * 64 * 64, "a block's words are bits of one word");
    if (from >= end) {
        return TIMERS_NEVER;
    }
    uint32_t slot = (uint32_t)(from % TIMERS_NEAR_SLOTS);
    uint32_t word = slot / 64;
    uint64_t bits = timers->near_bits[word] >> (slot % 64);
    uint64_t tick = from;
    if (bits == 0) {
        uint64_t later = timers->near_words[word / 64] & ~(UINT64_MAX >> (63 - word % 64));
        if (later == 0) {
            return TIMERS_NEVER;
        }
        uint32_t found = word / 64 * 64 + (uint32_t)__builtin_ctzll(later);
        tick = from - slot % 64 + (uint64_t)(found - word) * 64;
        bits = timers->near_bits[found];
    }
    tick += (uint32_t)__builtin_ctzll(bits);
    return tick < end ? tick : TIMERS_NEVER;
}

/* Nothing is armed: the cursor may jump. */
static void jump(struct timers *timers, uint64_t tick)
{
    for (int level = BLOCKS; level <= SPANS; level++) {
        memset(timers->far[level].counts, 0, sizeof(timers->far[level].counts));
    }
    timers->cursor = tick;
    timers->far[BLOCKS].opened = (tick >> TIMERS_BLOCK_BITS) + 1;
    timers->far[SPANS].opened = (timers->far[BLOCKS].opened >> TIMERS_SPAN_BITS) + 1;
}

/* First slot above `opened`, up to `last`, that has timers. */
static uint64_t far_first(const struct timers_far *far, uint64_t last)
{
    static_assert(TIMERS_FAR_SLOTS == 32 * 64, "a level's words are bits of one word");
    uint64_t slot = far->opened + 1;
    uint32_t at = (uint32_t)(slot % TIMERS_FAR_SLOTS), word = at / 64;
    uint64_t bits = far->bits[word] >> (at % 64);
    if (bits == 0) {
        /* The words behind this one, in a ring: this one's lower slots come last. */
        uint32_t shift = (word + 1) % 32;
        uint32_t later = far->words >> shift | far->words << (32 - shift) % 32;
        if (later == 0) {
            return TIMERS_NEVER;
        }
        uint32_t skipped = (uint32_t)__builtin_ctz(later);
        slot += 64 - at % 64 + skipped * 64;
        bits = far->bits[(word + 1 + skipped) % 32];
    }
    slot += (uint32_t)__builtin_ctzll(bits);
    return slot <= last ? slot : TIMERS_NEVER;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Everything near is empty: the cursor skips blocks in which nothing is armed, up to the one before
 * the first in which something may be, or to that of `tick`. */
static void skip_blocks(struct timers *timers, uint64_t tick)
{
    struct timers_far *blocks = &timers->far[BLOCKS];
    struct timers_far *spans = &timers->far[SPANS];
    uint64_t to = (tick >> TIMERS_BLOCK_BITS) + 1;
    to = least(to, far_first(blocks, ((spans->opened + 1) << TIMERS_SPAN_BITS) - 1));
    if (slot_first(timers, far_head(spans, spans->opened)) != TIMERS_NONE) {
        to = least(to, (spans->opened << TIMERS_SPAN_BITS) - 1);
    } else {
        uint64_t span = least(far_first(spans, span_last(timers)), span_last(timers) + 1);
        to = least(to, ((span - 1) << TIMERS_SPAN_BITS) - 1);
    }
    if (to <= blocks->opened) {
        return;
    }
    blocks->opened = to;
    timers->cursor = (to - 1) << TIMERS_BLOCK_BITS;
    if (spans->opened != (to >> TIMERS_SPAN_BITS) + 1) {
        spans->opened = (to >> TIMERS_SPAN_BITS) + 1;
        admit_beyond(timers);
    }
}

static bool near_is_empty(const struct timers *timers)
{
    const struct timers_far *blocks = &timers->far[BLOCKS];
    uint64_t block_end = blocks->opened << TIMERS_BLOCK_BITS;
    return near_first(timers, block_end, block_end + (1u << TIMERS_BLOCK_BITS)) == TIMERS_NEVER &&
           slot_first(timers, far_head(blocks, blocks->opened)) == TIMERS_NONE;
}

uint32_t timers_first(struct timers *timers, uint64_t tick)
{
    for (;;) {
        uint64_t block_end = timers->far[BLOCKS].opened << TIMERS_BLOCK_BITS;
        uint64_t end = tick + 1 < block_end ? tick + 1 : block_end;
        uint64_t due = near_first(timers, timers->cursor, end);
        if (due != TIMERS_NEVER) {
            timers->cursor = due;
            uint32_t id = slot_first(timers, near_head(timers, due));
            assert(id != TIMERS_NONE);
            return id;
        }
        if (tick + 1 < block_end) {
            if (timers->cursor <= tick) {
                timers->cursor = tick + 1;
            }
            return TIMERS_NONE;
        }
        if (timers->armed == 0) {
            jump(timers, tick + 1);
            return TIMERS_NONE;
        }
        if (near_is_empty(timers)) {
            skip_blocks(timers, tick + 1);
        }
        if (timers->cursor >> TIMERS_BLOCK_BITS == (tick + 1) >> TIMERS_BLOCK_BITS) {
            timers->cursor = tick + 1;
            return TIMERS_NONE;
        }
        enter_block(timers);
    }
}

static uint64_t deadline_next(const struct timers *timers)
{
    const struct timers_far *blocks = &timers->far[BLOCKS];
    const struct timers_far *spans = &timers->far[SPANS];
    uint64_t block_end = blocks->opened << TIMERS_BLOCK_BITS;
    uint64_t tick = near_first(timers, timers->cursor, block_end);
    if (tick != TIMERS_NEVER) {
        return tick;
    }
    if (slot_first(timers, far_head(blocks, blocks->opened)) != TIMERS_NONE) {
        return block_end;
    }
    tick = near_first(timers, block_end, block_end + (1u << TIMERS_BLOCK_BITS));
    if (tick != TIMERS_NEVER) {
        return tick;
    }
    uint64_t bound = TIMERS_NEVER;
    uint64_t block = far_first(blocks, ((spans->opened + 1) << TIMERS_SPAN_BITS) - 1);
    if (block != TIMERS_NEVER) {
        bound = block << TIMERS_BLOCK_BITS;
    }
    unsigned span_shift = TIMERS_SPAN_BITS + TIMERS_BLOCK_BITS;
    if (slot_first(timers, far_head(spans, spans->opened)) != TIMERS_NONE) {
        return least(bound, spans->opened << span_shift);
    }
    uint64_t span = far_first(spans, span_last(timers));
    if (span != TIMERS_NEVER) {
        return least(bound, span << span_shift);
    }
    return least(bound, (span_last(timers) + 1) << span_shift);
}

uint64_t timers_next(const struct timers *timers)
{
    if (timers->armed == 0) {
        return TIMERS_NEVER;
    }
    return least(deadline_next(timers), least(pace_next(timers, BLOCKS), pace_next(timers, SPANS)));
}

/* ---- verifying ------------------------------------------------------------------------------- */

/* Whether the timer may stand in the list with this head number. */
static bool belongs(const struct timers *timers, uint32_t number, uint64_t tick)
{
    uint64_t block = tick >> TIMERS_BLOCK_BITS;
    if (tick < timers->cursor) {
        return false;
    }
    if (number < NEAR_HEADS) {
        return block <= timers->far[BLOCKS].opened && tick % TIMERS_NEAR_SLOTS == number / 2;
    }
    if (number < NEAR_HEADS + FAR_HEADS) {
        return block >= timers->far[BLOCKS].opened && span_of(tick) <= timers->far[SPANS].opened &&
               block % TIMERS_FAR_SLOTS == (number - NEAR_HEADS) / 2;
    }
    if (number < BEYOND_HEAD) {
        return span_of(tick) >= timers->far[SPANS].opened && span_of(tick) <= span_last(timers) &&
               span_of(tick) % TIMERS_FAR_SLOTS == (number - NEAR_HEADS - FAR_HEADS) / 2;
    }
    return span_of(tick) > span_last(timers);
}

static const char *verify_list(const struct timers *timers, uint32_t head, uint32_t *armed)
{
    uint32_t prev = head;
    for (uint32_t id = timers->nodes[head].next; id != head; id = timers->nodes[id].next) {
        if (id >= timers->timers_max || timers->nodes[id].prev != prev) {
            return "a timer list's links are broken";
        }
        if (++*armed > timers->armed) {
            return "more timers are linked than armed";
        }
        if (!belongs(timers, head - timers->timers_max,
                     timers->tick_of(timers->tick_context, id))) {
            return "a timer stands in a list that is not its tick's";
        }
        prev = id;
    }
    return timers->nodes[head].prev == prev ? NULL : "a timer list's last link is broken";
}

static bool slot_bit(const struct timers *timers, uint32_t number)
{
    const uint64_t *bits = timers->near_bits;
    if (number >= NEAR_HEADS) {
        number -= NEAR_HEADS;
        bits = timers->far[number / FAR_HEADS].bits;
        number %= FAR_HEADS;
    }
    return (bits[number / 2 / 64] >> (number / 2 % 64)) & 1;
}

const char *timers_verify(const struct timers *timers)
{
    uint32_t armed = 0;
    for (uint32_t number = 0; number < HEADS; number++) {
        const char *wrong = verify_list(timers, timers->timers_max + number, &armed);
        if (wrong != NULL) {
            return wrong;
        }
        if (number % 2 == 0 && number != BEYOND_HEAD) {
            uint32_t head = timers->timers_max + number;
            bool any = !list_empty(timers, head) || !list_empty(timers, head + 1);
            if (any != slot_bit(timers, number)) {
                return "a timer slot's bit is wrong";
            }
        }
    }
    for (uint32_t word = 0; word < TIMERS_NEAR_SLOTS / 64; word++) {
        if (((timers->near_words[word / 64] >> (word % 64)) & 1) !=
            (timers->near_bits[word] != 0)) {
            return "a timer word's bit is wrong";
        }
    }
    for (uint32_t word = 0; word < 2 * TIMERS_FAR_SLOTS / 64; word++) {
        const struct timers_far *far = &timers->far[word % 2];
        if (((far->words >> (word / 2)) & 1) != (far->bits[word / 2] != 0)) {
            return "a timer word's bit is wrong";
        }
    }
    return armed == timers->armed ? NULL : "armed timers are not linked";
}
