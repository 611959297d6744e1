/* SPDX-License-Identifier: Apache-2.0
 *
 * The window as a table with a time line.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lincheck/verdict.h"

enum { LINE_COLUMNS = 40, TEXT_BYTES = 160, LEFT_OVER_ROWS_MAX = 8 };

struct table {
    const struct verdict *verdict;
    const struct model *model;
    const struct history_op *ops;
    uint32_t first_at, last_at; /* of the window's events */
    FILE *out;
};

static const struct history_op *blocked_op(const struct table *table)
{
    return &table->ops[table->verdict->window.blocked_op];
}

static void measure(struct table *table)
{
    const struct window *window = &table->verdict->window;
    table->last_at = blocked_op(table)->return_at;
    table->first_at = blocked_op(table)->call_at;
    for (size_t i = 0; i < window->ops_count; i++)
        if (window->roles[i] == ROLE_REQUIRED && table->ops[i].call_at < table->first_at)
            table->first_at = table->ops[i].call_at;
}

static size_t column_of(const struct table *table, uint32_t at)
{
    uint64_t span = table->last_at - table->first_at;
    if (span < LINE_COLUMNS)
        return at - table->first_at;
    return (size_t)((uint64_t)(at - table->first_at) * (LINE_COLUMNS - 1) / span);
}

/* |---| from call to answer; '<' and '>' where it goes beyond the window. */
static void draw(const struct table *table, const struct history_op *op,
                 char line[LINE_COLUMNS + 1])
{
    bool before = op->call_at<table->first_at, after = op->return_at> table->last_at;
    size_t first = before ? 0 : column_of(table, op->call_at);
    size_t last = column_of(table, after ? table->last_at : op->return_at);
    memset(line, ' ', LINE_COLUMNS);
    for (size_t i = first; i <= last; i++)
        line[i] = '-';
    line[last] = after ? '>' : '|';
    if (first != last)
        line[first] = before ? '<' : '|';
    line[last + 1] = '\0';
}

static void print_row(const struct table *table, size_t index)
{
    const struct history_op *op = &table->ops[index];
    char text[TEXT_BYTES], lines[32], line[LINE_COLUMNS + 1];
    model_print_op(table->model, op, text, sizeof text);
    if (op->return_line != 0)
        snprintf(lines, sizeof lines, "%" PRIu32 "-%" PRIu32, op->call_line, op->return_line);
    else
        snprintf(lines, sizeof lines, "%" PRIu32 "-", op->call_line);
    draw(table, op, line);
    const char *answer = "ok";
    if (op->return_line == 0)
        answer = "unknown";
    else if (table->verdict->window.roles[index] == ROLE_OPTIONAL)
        answer = "ok, maybe";
    else if (op->mismatch)
        answer = "fail";
    fprintf(table->out, "%c %-11s %7" PRId64 "  %-32s %-9s  %s\n",
            index == table->verdict->window.blocked_op ? '*' : ' ', lines, op->process, text,
            answer, line);
}

/* Left over from before the window. */
static bool is_left_over(const struct table *table, size_t index)
{
    return table->verdict->window.roles[index] == ROLE_OPTIONAL &&
           table->ops[index].return_at == POSITION_NEVER &&
           table->ops[index].call_at < table->first_at;
}

static void print_rows(const struct table *table)
{
    const struct window *window = &table->verdict->window;
    size_t left_over = 0;
    for (size_t i = 0; i < window->ops_count; i++)
        left_over += is_left_over(table, i);
    bool together = left_over > LEFT_OVER_ROWS_MAX;
    fprintf(table->out, "\n  %-11s %7s  %-32s %-9s  %s\n", "lines", "process", "operation",
            "answer", "time");
    if (together)
        fprintf(table->out, "  (%zu operations begun before and never answered)\n", left_over);
    for (size_t i = 0; i < window->ops_count; i++)
        if (window->roles[i] != ROLE_ABSENT && !(together && is_left_over(table, i)))
            print_row(table, i);
}

static void print_states(const struct table *table)
{
    const struct search_result *result = &table->verdict->result;
    char text[TEXT_BYTES];
    size_t shown = result->blocked_states_count;
    if (shown > SEARCH_STATES_MAX)
        shown = SEARCH_STATES_MAX;
    fprintf(table->out, "\nWhen its answer was due, the state in the orders tried was%s\n",
            shown > 1 ? " one of" : "");
    for (size_t i = 0; i < shown; i++) {
        model_print_state(table->model, result->blocked_states[i], text, sizeof text);
        fprintf(table->out, "    %s\n", text);
    }
    if (result->blocked_states_count > shown)
        fprintf(table->out, "    or another\n");
}

void verdict_print(const struct verdict *verdict, const struct model *model, FILE *out)
{
    const struct window *window = &verdict->window;
    struct table table = {.verdict = verdict,
                          .model = model,
                          .ops = model->history->ops + window->first_op,
                          .out = out};
    const struct history_op *op = blocked_op(&table);
    char text[TEXT_BYTES];
    measure(&table);
    model_print_op(model, op, text, sizeof text);
    if (op->key != 0) {
        struct span key = intern_get(&model->history->texts, op->key);
        fprintf(out, "key %.*s\n",
                (int)(key.length_bytes < TEXT_BYTES ? key.length_bytes : TEXT_BYTES),
                (const char *)key.bytes);
    }
    fprintf(out,
            "No linearization gets beyond line %" PRIu32 ", the answer to: %s (process %" PRId64
            ")\n",
            op->return_line, text, op->process);
    if (window->is_tail)
        fprintf(out,
                "The operations from the beginning up to there fit in no order; the last %zu of "
                "them:\n",
                window->shown_count);
    else
        fprintf(
            out,
            "These %zu of %zu operations fit in no order, whichever of the %zu states seen in the "
            "search\nthey begin with ('maybe': it need not be among them):\n",
            window->shown_count, window->ops_count, window->initials_count);
    print_rows(&table);
    print_states(&table);
}
