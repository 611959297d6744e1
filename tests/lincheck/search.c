/* SPDX-License-Identifier: Apache-2.0
 *
 * The search proper. Three rules keep it small without losing an answer:
 *
 *  - An operation that changes no state (a read, a comparison that failed) and is possible now is
 *    placed now, and nothing else is tried instead: any later place for it could be moved here.
 *  - An optional operation that would change nothing now is not placed now.
 *  - Of optional operations that are equal, the one called first is placed first.
 */
#include "tests/lincheck/search.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* One end of an operation, in a list ordered by place. Entry 0 is the list's head. */
struct entry {
    uint32_t at;
    uint32_t node; /* index of its operation's node */
    uint32_t previous, next;
    bool is_return;
};

struct node {
    size_t op;             /* index into the input */
    uint32_t call, answer; /* its entries; answer 0: optional */
    uint32_t bit;          /* among the required, or among the optional */
    uint32_t twin;         /* optional: index + 1 of the equal one called before; 0: none */
    bool pure, placed;
};

struct frame {
    uint32_t entry; /* of the operation that was placed */
    uint32_t state; /* before it was */
    uint32_t high;  /* as in struct search, before it was */
    bool forced;    /* nothing else is tried in its stead */
};

struct search {
    struct model *model;
    const struct search_input *input;
    struct search_result *result;
    struct budget *budget;
    struct node *nodes;
    struct entry *entries;
    struct frame *frames;
    uint64_t *required, *optional; /* bits of the placed ones */
    uint32_t *key;                 /* a configuration being looked up */
    struct intern tried;           /* configurations */
    size_t nodes_count, entries_count, frames_count;
    size_t required_words, optional_words, key_words_max;
    size_t required_left;
    uint32_t low;  /* all required bits below word `low` are set */
    uint32_t high; /* no required bit is set in word `high` or beyond */
    uint32_t state;
};

static void *take(struct search *search, size_t count, size_t bytes)
{
    return budget_resize(search->budget, NULL, 0, (count + 1) * bytes);
}

static void give_back(struct search *search, void *memory, size_t count, size_t bytes)
{
    budget_release(search->budget, memory, (count + 1) * bytes);
}

static int by_place(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static void make_nodes(struct search *search)
{
    const struct search_input *input = search->input;
    uint32_t required = 0, optional = 0;
    for (size_t i = 0; i < input->ops_count; i++) {
        const struct history_op *op = &input->ops[i];
        bool needed = input->roles[i] == ROLE_REQUIRED;
        /* What need not be placed and changes nothing is nothing. */
        if (input->roles[i] == ROLE_ABSENT || (!needed && model_is_pure(op)))
            continue;
        uint32_t index = (uint32_t)search->nodes_count++;
        search->nodes[index] = (struct node){
            .op = i, .pure = model_is_pure(op), .bit = needed ? required++ : optional++};
        search->entries[++search->entries_count] = (struct entry){.at = op->call_at, .node = index};
        if (needed)
            search->entries[++search->entries_count] =
                (struct entry){.at = op->return_at, .node = index, .is_return = true};
    }
    search->required_left = required;
    search->required_words = (required + 63) / 64;
    search->optional_words = (optional + 63) / 64;
}

static void link_entries(struct search *search)
{
    struct entry *entries = search->entries;
    qsort(entries + 1, search->entries_count, sizeof *entries, by_place);
    for (uint32_t i = 0; i <= search->entries_count; i++) {
        entries[i].previous = i == 0 ? 0 : i - 1;
        entries[i].next = i == search->entries_count ? 0 : i + 1;
        if (i == 0)
            continue;
        struct node *node = &search->nodes[entries[i].node];
        *(entries[i].is_return ? &node->answer : &node->call) = i;
    }
}

struct twin {
    const struct history_op *op;
    uint32_t node;
};

/* Equal in all that a model looks at. */
static int compare_ops(const struct history_op *x, const struct history_op *y)
{
    const uint64_t pairs[][2] = {{x->kind, y->kind},
                                 {x->mode, y->mode},
                                 {x->owner, y->owner},
                                 {x->value, y->value},
                                 {x->value_to, y->value_to},
                                 {x->permits, y->permits},
                                 {x->token_known, y->token_known},
                                 {x->token, y->token}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (pairs[i][0] != pairs[i][1])
            return pairs[i][0] > pairs[i][1] ? 1 : -1;
    return 0;
}

static int by_likeness(const void *a, const void *b)
{
    const struct twin *x = a, *y = b;
    int order = compare_ops(x->op, y->op);
    return order != 0 ? order : (x->node > y->node) - (x->node < y->node);
}

/* Nodes are in order of call, so of equal ones the lower index was called first. */
static int find_twins(struct search *search)
{
    size_t count = 0;
    struct twin *twins = take(search, search->nodes_count, sizeof *twins);
    if (twins == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < search->nodes_count; i++)
        if (search->nodes[i].answer == 0)
            twins[count++] = (struct twin){&search->input->ops[search->nodes[i].op], i};
    qsort(twins, count, sizeof *twins, by_likeness);
    for (size_t i = 1; i < count; i++)
        if (compare_ops(twins[i - 1].op, twins[i].op) == 0)
            search->nodes[twins[i].node].twin = twins[i - 1].node + 1;
    give_back(search, twins, search->nodes_count, sizeof *twins);
    return 0;
}

static int set_up(struct search *search)
{
    size_t count = search->input->ops_count;
    if (count >= UINT32_MAX / 4)
        return -ENOMEM;
    search->nodes = take(search, count, sizeof *search->nodes);
    search->entries = take(search, 2 * count, sizeof *search->entries);
    search->frames = take(search, count, sizeof *search->frames);
    if (search->nodes == NULL || search->entries == NULL || search->frames == NULL)
        return -ENOMEM;
    make_nodes(search);
    link_entries(search);
    search->required = take(search, search->required_words, sizeof *search->required);
    search->optional = take(search, search->optional_words, sizeof *search->optional);
    search->key_words_max = 3 + 2 * (search->required_words + search->optional_words);
    search->key = take(search, search->key_words_max, sizeof *search->key);
    if (search->required == NULL || search->optional == NULL || search->key == NULL)
        return -ENOMEM;
    return find_twins(search);
}

static void tear_down(struct search *search)
{
    size_t count = search->input->ops_count;
    give_back(search, search->nodes, count, sizeof *search->nodes);
    give_back(search, search->entries, 2 * count, sizeof *search->entries);
    give_back(search, search->frames, count, sizeof *search->frames);
    give_back(search, search->required, search->required_words, sizeof *search->required);
    give_back(search, search->optional, search->optional_words, sizeof *search->optional);
    give_back(search, search->key, search->key_words_max, sizeof *search->key);
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
    struct entry *entry = &search->entries[at];
    search->entries[entry->previous].next = entry->next;
    if (entry->next != 0)
        search->entries[entry->next].previous = entry->previous;
}

static void relink_entry(struct search *search, uint32_t at)
{
    struct entry *entry = &search->entries[at];
    search->entries[entry->previous].next = at;
    if (entry->next != 0)
        search->entries[entry->next].previous = at;
}

static void place(struct search *search, uint32_t at, uint32_t next_state, bool forced)
{
    struct node *node = &search->nodes[search->entries[at].node];
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
    struct node *node = &search->nodes[search->entries[frame.entry].node];
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

/* Notes how far this configuration got: `at` is the answer that has to come next. */
static void note_blocked(struct search *search, uint32_t at)
{
    struct search_result *result = search->result;
    const struct entry *entry = &search->entries[at];
    if (result->blocked_states_count > 0 && entry->at < result->blocked_at)
        return;
    if (entry->at != result->blocked_at)
        result->blocked_states_count = 0;
    result->blocked_at = entry->at;
    result->blocked_op = search->nodes[entry->node].op;
    size_t kept = result->blocked_states_count;
    if (kept > SEARCH_STATES_MAX)
        return;
    for (size_t i = 0; i < kept && i < SEARCH_STATES_MAX; i++)
        if (result->blocked_states[i] == search->state)
            return;
    if (kept < SEARCH_STATES_MAX)
        result->blocked_states[kept] = search->state;
    result->blocked_states_count++;
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
    const struct node *node = &search->nodes[search->entries[at].node];
    uint32_t next;
    if (node->twin != 0 && !search->nodes[node->twin - 1].placed)
        return TRY_NO;
    search->result->steps_count++;
    int result = model_step(search->model, search->state, &search->input->ops[node->op], &next);
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
    const struct entry *entries = search->entries;
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
    const struct entry *entries = search->entries;
    for (; !entries[at].is_return; at = entries[at].next) {
        assert(at != 0); /* while something is required an answer is in the list */
        if (is_optional(search, at) != optional)
            continue;
        int result = try_entry(search, at, false);
        if (result != TRY_NO)
            return result;
    }
    if (optional)
        note_blocked(search, at);
    return TRY_NO;
}

/* All that is required is tried before anything that is not: more often than not an operation that
 * was never answered never happened. `tried` is the one that was tried last here; 0: none. */
static int try_others(struct search *search, uint32_t tried)
{
    const struct entry *entries = search->entries;
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
static int run_from(struct search *search, uint32_t initial)
{
    search->state = initial;
    int result = remember(search);
    if (result <= 0)
        return result;
    uint32_t tried = 0;
    for (;;) {
        if (search->required_left == 0)
            return 1;
        if (search->result->steps_count > search->input->steps_max)
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

int search_run(struct model *model, const struct search_input *input, struct search_result *result,
               struct intern *visited)
{
    struct search search = {
        .model = model, .input = input, .result = result, .budget = model->history->budget};
    memset(result, 0, sizeof *result);
    intern_init(&search.tried, search.budget);
    int outcome = set_up(&search);
    for (size_t i = 0; i < input->initials_count && outcome == 0; i++)
        outcome = run_from(&search, input->initials[i]);
    /* The verdict does not depend on whether there was room for these. */
    if (outcome == 0 && visited != NULL && intern_each(&search.tried, visit_state, visited) < 0)
        intern_free(visited);
    result->verdict = outcome == 0   ? SEARCH_NOT_LINEARIZABLE
                      : outcome == 1 ? SEARCH_LINEARIZABLE
                                     : SEARCH_UNKNOWN;
    tear_down(&search);
    return outcome == -ENOMEM || outcome == -E2BIG ? outcome : 0;
}
