/* SPDX-License-Identifier: Apache-2.0
 *
 * Breadth first: from answer to answer, all configurations at once. A configuration is the state,
 * which of the operations under way are placed, and which of the optional ones. Only those of one
 * answer are in memory.
 *
 * Of two configurations that differ in their optional operations alone, one that used a part of
 * what the other used can do all that the other can: the other is dropped. Without this rule the
 * number of configurations doubles with every optional operation.
 */
#include "tests/lincheck/plan.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* Configurations as records of equal length: {next of the same key, next of the same count, state,
 * slots of placed operations, optional operations that are placed}. Indices are + 1; 0: none. */
enum { REC_NEXT, REC_NEXT_IN_COUNT, REC_STATE, REC_SLOTS };

/* A set of configurations. */
struct layer {
    uint32_t *records;
    size_t records_count, records_capacity; /* in words */
    uint32_t *heads; /* hash table: first record + 1 of a chain (of several keys perhaps) */
    size_t heads_count;
};

struct breadth {
    struct model *model;
    const struct plan *plan;
    struct search_result *result;
    struct intern *visited; /* NULL: not wanted */
    struct layer frontier;  /* behind the answer before */
    struct layer work;      /* between the two, this answer's operation not placed */
    struct layer next;      /* behind this answer */
    uint32_t *counts; /* work: first record + 1 with that many optional operations, not expanded */
    uint32_t *required, *optional; /* nodes under way, in order of call */
    uint32_t *record;              /* a configuration being made */
    size_t required_count, optional_count;
    size_t slot_words, optional_words, record_words;
};

static uint32_t *record_at(const struct breadth *breadth, const struct layer *layer, uint32_t index)
{
    return layer->records + (size_t)(index - 1) * breadth->record_words;
}

/* Of state and slots. */
static size_t hash_key(const struct breadth *breadth, const uint32_t *record)
{
    uint64_t hash = 0x9e3779b97f4a7c15u;
    for (size_t i = REC_STATE; i < REC_SLOTS + breadth->slot_words; i++) {
        hash = (hash ^ record[i]) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    return (size_t)hash;
}

static size_t layer_size(const struct breadth *breadth, const struct layer *layer)
{
    return layer->records_count / breadth->record_words;
}

static int grow_heads(struct breadth *breadth, struct layer *layer)
{
    struct budget *budget = breadth->plan->budget;
    size_t count = layer->heads_count == 0 ? 64 : layer->heads_count * 2;
    uint32_t *heads = budget_resize(budget, NULL, 0, count * sizeof *heads);
    if (heads == NULL)
        return -ENOMEM;
    budget_release(budget, layer->heads, layer->heads_count * sizeof *heads);
    layer->heads = heads;
    layer->heads_count = count;
    for (uint32_t i = 1; i <= layer_size(breadth, layer); i++) {
        uint32_t *record = record_at(breadth, layer, i);
        uint32_t *head = &heads[hash_key(breadth, record) & (count - 1)];
        record[REC_NEXT] = *head;
        *head = i;
    }
    return 0;
}

/* True if the other has the same key and placed no optional operation that this has not. */
static bool is_as_good(const struct breadth *breadth, const uint32_t *other, const uint32_t *record)
{
    size_t key_words = 1 + breadth->slot_words;
    if (memcmp(other + REC_STATE, record + REC_STATE, key_words * sizeof *record) != 0)
        return false;
    size_t first = REC_SLOTS + breadth->slot_words;
    for (size_t i = first; i < first + breadth->optional_words; i++)
        if ((other[i] & ~record[i]) != 0)
            return false;
    return true;
}

/* Puts a copy of the configuration into the layer, unless one that is as good is there. 1: put,
 * *index says where; 0: not; -ENOMEM. */
static int layer_put(struct breadth *breadth, struct layer *layer, const uint32_t *record,
                     uint32_t *index)
{
    size_t size = layer_size(breadth, layer);
    if (size >= layer->heads_count && grow_heads(breadth, layer) < 0)
        return -ENOMEM;
    uint32_t *head = &layer->heads[hash_key(breadth, record) & (layer->heads_count - 1)];
    for (uint32_t i = *head; i != 0; i = record_at(breadth, layer, i)[REC_NEXT])
        if (is_as_good(breadth, record_at(breadth, layer, i), record))
            return 0;
    if (size >= UINT32_MAX - 1 ||
        budget_reserve(breadth->plan->budget, (void **)&layer->records, &layer->records_capacity,
                       layer->records_count + breadth->record_words, sizeof *record) < 0)
        return -ENOMEM;
    uint32_t *copy = layer->records + layer->records_count;
    memcpy(copy, record, breadth->record_words * sizeof *record);
    layer->records_count += breadth->record_words;
    *index = (uint32_t)size + 1;
    copy[REC_NEXT] = *head;
    copy[REC_NEXT_IN_COUNT] = 0;
    *head = *index;
    return 1;
}

static void layer_clear(struct layer *layer)
{
    layer->records_count = 0;
    if (layer->heads_count == 0)
        return;
    memset(layer->heads, 0, layer->heads_count * sizeof *layer->heads);
}

static void layer_free(struct breadth *breadth, struct layer *layer)
{
    struct budget *budget = breadth->plan->budget;
    budget_release(budget, layer->records, layer->records_capacity * sizeof *layer->records);
    budget_release(budget, layer->heads, layer->heads_count * sizeof *layer->heads);
}

static size_t count_optional(const struct breadth *breadth, const uint32_t *record)
{
    size_t count = 0, first = REC_SLOTS + breadth->slot_words;
    for (size_t i = first; i < first + breadth->optional_words; i++)
        count += (size_t)__builtin_popcount(record[i]);
    return count;
}

static bool has(const uint32_t *words, uint32_t bit)
{
    return (words[bit / 32] >> bit % 32 & 1) != 0;
}

/* Takes in the configuration in breadth->record: to the next answer's if this answer's operation is
 * placed in it, else to those still to be worked on. */
static int take_in(struct breadth *breadth, const struct plan_node *due)
{
    uint32_t *record = breadth->record, index, ignored;
    uint32_t *word = &record[REC_SLOTS + due->slot / 32], bit = 1u << due->slot % 32;
    if (breadth->visited != NULL) {
        int result = intern_put(breadth->visited, &record[REC_STATE], sizeof *record, &ignored);
        if (result < 0) { /* the verdict does not depend on whether there is room for these */
            intern_free(breadth->visited);
            breadth->visited = NULL;
        }
    }
    if ((*word & bit) != 0) {
        *word &= ~bit; /* the slot is free from here on */
        int result = layer_put(breadth, &breadth->next, record, &index);
        return result < 0 ? result : 0;
    }
    int result = layer_put(breadth, &breadth->work, record, &index);
    if (result <= 0)
        return result;
    uint32_t *head = &breadth->counts[count_optional(breadth, record)];
    record_at(breadth, &breadth->work, index)[REC_NEXT_IN_COUNT] = *head;
    *head = index;
    return 0;
}

/* Places one operation in the configuration at `from`. 1: it is possible, and taken in; 0: it is
 * not; negative: as depth_run(). */
static int try_node(struct breadth *breadth, uint32_t from, uint32_t index,
                    const struct plan_node *due)
{
    const struct plan_node *nodes = breadth->plan->nodes, *node = &nodes[index];
    const uint32_t *record = record_at(breadth, &breadth->work, from);
    size_t first = REC_SLOTS + breadth->slot_words;
    bool optional = node->answer == 0;
    if (optional ? has(record + first, node->bit) : has(record + REC_SLOTS, node->slot))
        return 0;
    if (node->twin != 0 && !has(record + first, nodes[node->twin - 1].bit))
        return 0;
    uint32_t next;
    breadth->result->steps_count++;
    int result = model_step(breadth->model, record[REC_STATE], node->op, &next);
    if (result <= 0 || (optional && next == record[REC_STATE]))
        return result < 0 ? result : 0;
    memcpy(breadth->record, record, breadth->record_words * sizeof *record);
    breadth->record[REC_STATE] = next;
    uint32_t bit = optional ? node->bit : node->slot;
    breadth->record[(optional ? first : REC_SLOTS) + bit / 32] |= 1u << bit % 32;
    result = take_in(breadth, due);
    return result < 0 ? result : 1;
}

/* All that can be placed next in one configuration. */
static int expand(struct breadth *breadth, uint32_t from, const struct plan_node *due)
{
    int result = 0;
    for (size_t i = 0; i < breadth->required_count && result == 0; i++)
        if (breadth->plan->nodes[breadth->required[i]].pure)
            result = try_node(breadth, from, breadth->required[i], due);
    if (result != 0) /* placed now, and nothing else instead */
        return result < 0 ? result : 0;
    for (size_t i = 0; i < breadth->required_count && result >= 0; i++)
        result = try_node(breadth, from, breadth->required[i], due);
    for (size_t i = 0; i < breadth->optional_count && result >= 0; i++)
        result = try_node(breadth, from, breadth->optional[i], due);
    return result < 0 ? result : 0;
}

/* A better one may have come after it. */
static bool is_outdone(const struct breadth *breadth, uint32_t index)
{
    const struct layer *work = &breadth->work;
    const uint32_t *record = record_at(breadth, work, index);
    uint32_t other = work->heads[hash_key(breadth, record) & (work->heads_count - 1)];
    for (; other != 0; other = record_at(breadth, work, other)[REC_NEXT])
        if (other != index && is_as_good(breadth, record_at(breadth, work, other), record))
            return true;
    return false;
}

/* Those with few optional operations first, so that they are there when worse ones come up. */
static int work_off(struct breadth *breadth, const struct plan_node *due, size_t steps_max)
{
    for (size_t count = 0; count <= breadth->plan->optional_count; count++) {
        while (breadth->counts[count] != 0) {
            uint32_t from = breadth->counts[count];
            breadth->counts[count] = record_at(breadth, &breadth->work, from)[REC_NEXT_IN_COUNT];
            int result = is_outdone(breadth, from) ? 0 : expand(breadth, from, due);
            if (result < 0)
                return result;
            if (breadth->result->steps_count > steps_max)
                return -ETIME;
        }
    }
    return 0;
}

/* From all configurations before this answer to all behind it. 1: there are some; 0: none. */
static int pass_answer(struct breadth *breadth, uint32_t entry, size_t steps_max)
{
    const struct plan_node *due = &breadth->plan->nodes[breadth->plan->entries[entry].node];
    int result = 0;
    layer_clear(&breadth->work);
    layer_clear(&breadth->next);
    for (uint32_t i = 1; i <= layer_size(breadth, &breadth->frontier) && result == 0; i++) {
        memcpy(breadth->record, record_at(breadth, &breadth->frontier, i),
               breadth->record_words * sizeof *breadth->record);
        result = take_in(breadth, due);
    }
    if (result == 0)
        result = work_off(breadth, due, steps_max);
    if (result < 0)
        return result;
    size_t passed = layer_size(breadth, &breadth->next);
    for (uint32_t i = 1; i <= layer_size(breadth, &breadth->work) && passed == 0; i++)
        plan_note_blocked(breadth->plan, breadth->result, entry,
                          record_at(breadth, &breadth->work, i)[REC_STATE]);
    struct layer behind = breadth->next;
    breadth->next = breadth->frontier;
    breadth->frontier = behind;
    return passed > 0;
}

static int begin(struct breadth *breadth)
{
    const struct search_input *input = breadth->plan->input;
    uint32_t index;
    for (size_t i = 0; i < input->initials_count; i++) {
        memset(breadth->record, 0, breadth->record_words * sizeof *breadth->record);
        breadth->record[REC_STATE] = input->initials[i];
        if (layer_put(breadth, &breadth->frontier, breadth->record, &index) < 0)
            return -ENOMEM;
    }
    return 1;
}

static void end_required(struct breadth *breadth, uint32_t node)
{
    size_t at = 0;
    while (breadth->required[at] != node)
        at++;
    breadth->required_count--;
    memmove(&breadth->required[at], &breadth->required[at + 1],
            (breadth->required_count - at) * sizeof breadth->required[0]);
}

/* All ends in order. */
static int walk(struct breadth *breadth, size_t steps_max)
{
    const struct plan *plan = breadth->plan;
    int result = begin(breadth);
    for (uint32_t i = 1; i <= plan->entries_count && result == 1; i++) {
        uint32_t node = plan->entries[i].node;
        if (plan->entries[i].is_return) {
            result = pass_answer(breadth, i, steps_max);
            end_required(breadth, node);
        } else if (plan->nodes[node].answer == 0) {
            breadth->optional[breadth->optional_count++] = node;
        } else {
            breadth->required[breadth->required_count++] = node;
        }
    }
    return result;
}

int breadth_run(struct model *model, const struct plan *plan, size_t steps_max,
                struct search_result *result, struct intern *visited)
{
    struct budget *budget = plan->budget;
    struct breadth breadth = {.model = model, .plan = plan, .result = result, .visited = visited};
    breadth.slot_words = (plan->slots_count + 31) / 32;
    breadth.optional_words = (plan->optional_count + 31) / 32;
    breadth.record_words = REC_SLOTS + breadth.slot_words + breadth.optional_words;
    breadth.counts = plan_take(budget, plan->optional_count, sizeof *breadth.counts);
    breadth.required = plan_take(budget, plan->slots_count, sizeof *breadth.required);
    breadth.optional = plan_take(budget, plan->optional_count, sizeof *breadth.optional);
    breadth.record = plan_take(budget, breadth.record_words, sizeof *breadth.record);
    int outcome = -ENOMEM;
    if (breadth.counts != NULL && breadth.required != NULL && breadth.optional != NULL &&
        breadth.record != NULL)
        outcome = walk(&breadth, steps_max);
    layer_free(&breadth, &breadth.frontier);
    layer_free(&breadth, &breadth.work);
    layer_free(&breadth, &breadth.next);
    plan_give_back(budget, breadth.counts, plan->optional_count, sizeof *breadth.counts);
    plan_give_back(budget, breadth.required, plan->slots_count, sizeof *breadth.required);
    plan_give_back(budget, breadth.optional, plan->optional_count, sizeof *breadth.optional);
    plan_give_back(budget, breadth.record, breadth.record_words, sizeof *breadth.record);
    return outcome;
}
