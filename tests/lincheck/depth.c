/* SPDX-License-Identifier: Apache-2.0
 *
 * Depth first: one order is followed until it fails, then its last choice is taken back. What has
 * been tried (which operations are placed, in which state) is remembered and not tried again.
 */
#include "tests/lincheck/plan.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

struct frame {
    uint32_t entry; /* of the operation that was placed */
    uint32_t state; /* before it was */
    uint32_t high;  /* as in struct search, before it was */
    bool forced;    /* nothing else is tried in its stead */
};

struct search {
    struct model *model;
    struct search_result *result;
    struct plan *plan;
    struct plan_node *nodes; /* the plan's */
    struct plan_entry *entries;
    struct frame *frames;
    uint64_t *required, *optional; /* bits of the placed ones */
    uint32_t *key;                 /* a configuration being looked up */
    struct intern tried;           /* configurations */
    size_t frames_count;
    size_t required_words, optional_words, key_words_max;
    size_t required_left;
    uint32_t low;  /* all required bits below word `low` are set */
    uint32_t high; /* no required bit is set in word `high` or beyond */
    uint32_t state;
};

static int set_up(struct search *search)
{
    struct budget *budget = search->plan->budget;
    search->nodes = search->plan->nodes;
    search->entries = search->plan->entries;
    search->required_left = search->plan->required_count;
    search->required_words = (search->plan->required_count + 63) / 64;
    search->optional_words = (search->plan->optional_count + 63) / 64;
    search->key_words_max = 3 + 2 * (search->required_words + search->optional_words);
    search->frames = plan_take(budget, search->plan->nodes_count, sizeof *search->frames);
    search->required = plan_take(budget, search->required_words, sizeof *search->required);
    search->optional = plan_take(budget, search->optional_words, sizeof *search->optional);
    search->key = plan_take(budget, search->key_words_max, sizeof *search->key);
    return search->frames == NULL || search->required == NULL || search->optional == NULL ||
                   search->key == NULL
               ? -ENOMEM
               : 0;
}

static void tear_down(struct search *search)
{
    struct budget *budget = search->plan->budget;
    plan_give_back(budget, search->frames, search->plan->nodes_count, sizeof *search->frames);
    plan_give_back(budget, search->required, search->required_words, sizeof *search->required);
    plan_give_back(budget, search->optional, search->optional_words, sizeof *search->optional);
    plan_give_back(budget, search->key, search->key_words_max, sizeof *search->key);
    intern_free(&search->tried);
}

static void put_words(uint32_t *key, size_t *used, const uint64_t *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        key[(*used)++] = (uint32_t)words[i];
        key[(*used)++] = (uint32_t)(words[i] >> 32);
    }
}

/* 1: this state with these operations placed has not been tried before. Operations are placed
 * nearly in order of call: of the required ones only the words between the first hole and the last
 * placed one are kept. */
static int remember(struct search *search)
{
    uint32_t reference;
    size_t used = 0, optional = search->optional_words;
    while (search->low < search->high && search->required[search->low] == UINT64_MAX)
        search->low++;
    while (optional > 0 && search->optional[optional - 1] == 0)
        optional--;
    search->key[used++] = search->state;
    search->key[used++] = search->low;
    search->key[used++] = search->high;
    put_words(search->key, &used, search->required + search->low, search->high - search->low);
    put_words(search->key, &used, search->optional, optional);
    return intern_put(&search->tried, search->key, used * sizeof search->key[0], &reference);
}

static void unlink_entry(struct search *search, uint32_t at)
{
    struct plan_entry *entry = &search->entries[at];
    search->entries[entry->previous].next = entry->next;
    if (entry->next != 0)
        search->entries[entry->next].previous = entry->previous;
}

static void relink_entry(struct search *search, uint32_t at)
{
    struct plan_entry *entry = &search->entries[at];
    search->entries[entry->previous].next = at;
    if (entry->next != 0)
        search->entries[entry->next].previous = at;
}

static void place(struct search *search, uint32_t at, uint32_t next_state, bool forced)
{
    struct plan_node *node = &search->nodes[search->entries[at].node];
    uint32_t word = node->bit / 64;
    search->frames[search->frames_count++] =
        (struct frame){at, search->state, search->high, forced};
    search->state = next_state;
    node->placed = true;
    unlink_entry(search, node->call);
    if (node->answer == 0) {
        search->optional[word] |= UINT64_C(1) << node->bit % 64;
        return;
    }
    unlink_entry(search, node->answer);
    search->required[word] |= UINT64_C(1) << node->bit % 64;
    if (word >= search->high)
        search->high = word + 1;
    search->required_left--;
}

static struct frame take_back(struct search *search)
{
    assert(search->frames_count > 0);
    struct frame frame = search->frames[--search->frames_count];
    struct plan_node *node = &search->nodes[search->entries[frame.entry].node];
    uint32_t word = node->bit / 64;
    search->state = frame.state;
    search->high = frame.high;
    node->placed = false;
    if (node->answer == 0) {
        search->optional[word] &= ~(UINT64_C(1) << node->bit % 64);
    } else {
        search->required[word] &= ~(UINT64_C(1) << node->bit % 64);
        if (word < search->low)
            search->low = word;
        if (search->low > search->high)
            search->low = search->high;
        search->required_left++;
        relink_entry(search, node->answer);
    }
    relink_entry(search, node->call);
    return frame;
}

/* What can come of trying an operation. */
enum tried {
    TRY_NO,     /* not possible, or it leads where the search has been */
    TRY_PLACED, /* it is placed */
    TRY_DEAD,   /* it is placed, leads where the search has been, and is what had to be done */
};

/* enum tried, or negative. */
static int try_entry(struct search *search, uint32_t at, bool forced)
{
    const struct plan_node *node = &search->nodes[search->entries[at].node];
    uint32_t next;
    if (node->twin != 0 && !search->nodes[node->twin - 1].placed)
        return TRY_NO;
    search->result->steps_count++;
    int result = model_step(search->model, search->state, node->op, &next);
    if (result <= 0)
        return result;
    if (node->answer == 0 && next == search->state)
        return TRY_NO;
    place(search, at, next, forced);
    result = remember(search);
    if (result != 0)
        return result < 0 ? result : TRY_PLACED;
    if (forced)
        return TRY_DEAD;
    take_back(search);
    return TRY_NO;
}

static bool is_optional(const struct search *search, uint32_t at)
{
    return search->nodes[search->entries[at].node].answer == 0;
}

/* Places one operation that changes nothing and is possible now, if there is one. */
static int force_pure(struct search *search)
{
    const struct plan_entry *entries = search->entries;
    for (uint32_t at = entries[0].next; at != 0 && !entries[at].is_return; at = entries[at].next) {
        if (!search->nodes[entries[at].node].pure)
            continue;
        int result = try_entry(search, at, true);
        if (result != TRY_NO)
            return result;
    }
    return TRY_NO;
}

/* From here on along the list, up to the next answer. */
static int try_some(struct search *search, uint32_t at, bool optional)
{
    const struct plan_entry *entries = search->entries;
    for (; !entries[at].is_return; at = entries[at].next) {
        assert(at != 0); /* while something is required an answer is in the list */
        if (is_optional(search, at) != optional)
            continue;
        int result = try_entry(search, at, false);
        if (result != TRY_NO)
            return result;
    }
    if (optional)
        plan_note_blocked(search->plan, search->result, at, search->state);
    return TRY_NO;
}

/* All that is required is tried before anything that is not: more often than not an operation that
 * was never answered never happened. `tried` is the one that was tried last here; 0: none. */
static int try_others(struct search *search, uint32_t tried)
{
    const struct plan_entry *entries = search->entries;
    if (tried != 0 && is_optional(search, tried))
        return try_some(search, entries[tried].next, true);
    int result = try_some(search, entries[tried].next, false);
    return result != TRY_NO ? result : try_some(search, entries[0].next, true);
}

/* Takes back placements until one is found whose alternatives are not used up. Returns the entry
 * that was tried last there; 0: all is tried. */
static uint32_t go_back(struct search *search)
{
    while (search->frames_count > 0) {
        struct frame frame = take_back(search);
        if (!frame.forced)
            return frame.entry;
    }
    return 0;
}

/* From one initial state. 1: found, 0: there is none, negative: as search_run(), -ETIME: too long.
 */
static int run_from(struct search *search, uint32_t initial, size_t steps_max)
{
    search->state = initial;
    int result = remember(search);
    if (result <= 0)
        return result;
    uint32_t tried = 0;
    for (;;) {
        if (search->required_left == 0)
            return 1;
        if (search->result->steps_count > steps_max)
            return -ETIME;
        result = tried == 0 ? force_pure(search) : TRY_NO;
        if (result == TRY_NO)
            result = try_others(search, tried);
        if (result < 0)
            return result;
        tried = 0;
        if (result == TRY_PLACED)
            continue;
        tried = go_back(search);
        if (tried == 0)
            return 0;
    }
}

static int visit_state(void *context, struct span entry)
{
    uint32_t reference, state;
    memcpy(&state, entry.bytes, sizeof state);
    int result = intern_put(context, &state, sizeof state, &reference);
    return result < 0 ? result : 0;
}

/* Leaves the list as it was. */
static void unwind(struct search *search)
{
    while (search->frames_count > 0)
        take_back(search);
}

int depth_run(struct model *model, struct plan *plan, size_t steps_max,
              struct search_result *result, struct intern *visited)
{
    struct search search = {.model = model, .plan = plan, .result = result};
    intern_init(&search.tried, plan->budget);
    int outcome = set_up(&search);
    for (size_t i = 0; i < plan->input->initials_count && outcome == 0; i++)
        outcome = run_from(&search, plan->input->initials[i], steps_max);
    /* The verdict does not depend on whether there was room for these. */
    if (outcome == 0 && visited != NULL && intern_each(&search.tried, visit_state, visited) < 0)
        intern_free(visited);
    unwind(&search);
    tear_down(&search);
    return outcome;
}
