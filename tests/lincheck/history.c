/* SPDX-License-Identifier: Apache-2.0
 *
 * From bytes to events: the three formats, and which one it is.
 */
#include "tests/lincheck/history.h"

#include <errno.h>
#include <string.h>

#include "tests/lincheck/events.h"

static const char *const model_names[] = {
    [MODEL_REGISTER] = "register",
    [MODEL_KV] = "kv",
    [MODEL_MUTEX] = "mutex",
    [MODEL_REENTRANT_MUTEX] = "reentrant-mutex",
    [MODEL_FENCED_MUTEX] = "fenced-mutex",
    [MODEL_SHARED_LOCK] = "shared-lock",
    [MODEL_SEMAPHORE] = "semaphore",
};

const char *model_name(enum model_kind model)
{
    return model_names[model];
}

int model_by_name(const char *name, enum model_kind *model)
{
    for (size_t i = 0; i < sizeof model_names / sizeof model_names[0]; i++) {
        if (strcmp(name, model_names[i]) != 0)
            continue;
        *model = (enum model_kind)i;
        return 0;
    }
    return -EINVAL;
}

bool model_is_lock(enum model_kind model)
{
    return model != MODEL_REGISTER && model != MODEL_KV;
}

void history_init(struct history *history, struct budget *budget)
{
    memset(history, 0, sizeof *history);
    history->budget = budget;
    intern_init(&history->texts, budget);
}

void history_free(struct history *history)
{
    budget_release(history->budget, history->ops, history->ops_capacity * sizeof *history->ops);
    intern_free(&history->texts);
    history_init(history, history->budget);
}

/* The first byte that is neither white space nor in an EDN comment; end if there is none. */
static const char *first_of_text(const char *at, const char *end)
{
    while (at < end) {
        if (*at == ';') {
            while (at < end && *at != '\n')
                at++;
        } else if (memchr(" \t\r\n\f,", *at, 6) != NULL) {
            at++;
        } else {
            break;
        }
    }
    return at;
}

enum history_format history_detect(const char *bytes, size_t length_bytes)
{
    const char *end = bytes + length_bytes;
    const char *at = first_of_text(bytes, end);
    bool inside = false;
    if (at < end && (*at == '[' || *at == '(')) {
        at = first_of_text(at + 1, end);
        inside = true;
    }
    if (at == end)
        return FORMAT_AUTO;
    if (*at == '#' || *at == ']' || *at == ')')
        return FORMAT_EDN;
    if (*at != '{')
        return inside && *at == '[' ? FORMAT_EDN : FORMAT_JEPSEN;
    at = first_of_text(at + 1, end);
    return at < end && (*at == '"' || *at == '}') ? FORMAT_JSON : FORMAT_EDN;
}

/* Fields of an event's map. Others (index, node, ...) are of no interest. */
static uint32_t *part_by_name(struct event_parts *parts, const struct datum_pool *pool,
                              uint32_t name)
{
    const struct {
        const char *name;
        uint32_t *part;
    } known[] = {
        {"process", &parts->process}, {"type", &parts->type},       {"f", &parts->f},
        {"value", &parts->value},     {"key", &parts->key},         {"token", &parts->token},
        {"fence", &parts->token},     {"owner", &parts->owner},     {"client", &parts->owner},
        {"mode", &parts->mode},       {"permits", &parts->permits}, {"holders", &parts->holders},
        {"error", &parts->error},     {"time", &parts->time},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (datum_names(pool, name, known[i].name))
            return known[i].part;
    return NULL;
}

static int add_map(struct loading *loading, uint32_t line, uint32_t map)
{
    struct event_parts parts = {.line = line};
    const struct datum_pool *pool = &loading->pool;
    if (datum_at(pool, map)->kind != DATUM_MAP)
        return parse_fail(loading->cursor.error, line, "an event is a map, this is none");
    uint32_t name = datum_at(pool, map)->first_child;
    while (name != 0) {
        uint32_t value = datum_at(pool, name)->next;
        uint32_t *part = part_by_name(&parts, pool, name);
        if (part != NULL && *part != 0)
            return parse_fail(loading->cursor.error, line, "a field is given twice in one event");
        if (part != NULL)
            *part = value;
        name = datum_at(pool, value)->next;
    }
    return event_add(loading, parts);
}

static int skip_between(struct loading *loading)
{
    if (loading->history->format == FORMAT_EDN)
        return edn_skip(&loading->cursor);
    json_skip(&loading->cursor);
    return 0;
}

static int read_one(struct loading *loading)
{
    uint32_t map, line = loading->cursor.line;
    datum_reset(&loading->pool);
    int result = loading->history->format == FORMAT_EDN ? edn_read(&loading->cursor, &map)
                                                        : json_read(&loading->cursor, &map);
    return result < 0 ? result : add_map(loading, line, map);
}

/* Maps one after another, or all in one vector, list or array. The file is read event by event, so
 * that no more than one is in memory as a tree. */
static int read_maps(struct loading *loading)
{
    struct cursor *cursor = &loading->cursor;
    char closing = '\0';
    int result = skip_between(loading);
    if (result == 0 && cursor->at < cursor->end && (*cursor->at == '[' || *cursor->at == '('))
        closing = *cursor->at++ == '[' ? ']' : ')';
    for (bool first = true; result == 0; first = false) {
        result = skip_between(loading);
        if (result < 0)
            return result;
        if (cursor->at == cursor->end) {
            if (closing == '\0')
                return 0;
            return parse_fail(cursor->error, cursor->line, "the file ends before its last '%c'",
                              closing);
        }
        if (closing != '\0' && *cursor->at == closing) {
            cursor->at++;
            result = skip_between(loading);
            if (result == 0 && cursor->at < cursor->end)
                return parse_fail(cursor->error, cursor->line, "something follows the last '%c'",
                                  closing);
            return result;
        }
        if (closing != '\0' && loading->history->format == FORMAT_JSON && !first) {
            if (*cursor->at != ',')
                return parse_fail(cursor->error, cursor->line, "expected ',' between events");
            cursor->at++;
        }
        result = read_one(loading);
    }
    return result;
}

static bool is_type(const char *word, size_t length)
{
    static const char *const types[] = {":invoke", ":ok", ":fail", ":info"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (length == strlen(types[i]) && memcmp(word, types[i], length) == 0)
            return true;
    return false;
}

static bool blank(char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r';
}

/* Finds "PROCESS :TYPE" in a line that begins with what a logger puts there. Returns where the
 * process begins, or NULL if this is a log line of another kind. */
static const char *find_event(const char *line, const char *end)
{
    const char *before = NULL; /* the word before this one */
    for (const char *at = line; at < end;) {
        if (blank(*at)) {
            at++;
            continue;
        }
        const char *word = at;
        while (at < end && !blank(*at))
            at++;
        if (before != NULL && is_type(word, (size_t)(at - word)))
            return before;
        before = word;
    }
    return NULL;
}

/* PROCESS :TYPE :F VALUE [ERROR], each as EDN. */
static int read_jepsen_line(struct loading *loading, const char *at, const char *end)
{
    struct cursor *cursor = &loading->cursor;
    struct cursor line = *cursor;
    struct event_parts parts = {.line = cursor->line};
    uint32_t *const wanted[] = {&parts.process, &parts.type, &parts.f, &parts.value, &parts.error};
    line.at = at;
    line.end = end;
    datum_reset(&loading->pool);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        int result = edn_skip(&line);
        if (result == 0 && line.at == line.end && i >= 3)
            break;
        if (result == 0)
            result = edn_read(&line, wanted[i]);
        if (result < 0)
            return result;
    }
    return event_add(loading, parts);
}

static int read_jepsen(struct loading *loading)
{
    struct cursor *cursor = &loading->cursor;
    while (cursor->at < cursor->end) {
        size_t left = (size_t)(cursor->end - cursor->at);
        const char *end = memchr(cursor->at, '\n', left);
        if (end == NULL)
            end = cursor->end;
        const char *event = find_event(cursor->at, end);
        int result = 0;
        if (event != NULL)
            result = read_jepsen_line(loading, event, end);
        else
            loading->history->skipped_count += end > cursor->at;
        if (result < 0)
            return result;
        cursor->at = end < cursor->end ? end + 1 : end;
        cursor->line++;
    }
    return 0;
}

static int intern_constants(struct history *history)
{
    int result = intern_put(&history->texts, "nil", 3, &history->nil);
    if (result >= 0)
        result = intern_put(&history->texts, "\"\"", 2, &history->empty);
    return result < 0 ? result : 0;
}

static int load(struct loading *loading)
{
    int result = intern_constants(loading->history);
    if (result < 0)
        return result;
    result = loading->history->format == FORMAT_JEPSEN ? read_jepsen(loading) : read_maps(loading);
    if (result < 0)
        return result;
    if (loading->events_count == 0)
        return parse_fail(loading->cursor.error, 0, "no operation is in it: nothing to check");
    return events_pair(loading);
}

int history_read(struct history *history, const struct history_options *options, const char *bytes,
                 size_t length_bytes, struct parse_error *error)
{
    struct loading loading = {.history = history, .options = options};
    error->text[0] = '\0';
    error->line = 0;
    history->format = options->format;
    if (history->format == FORMAT_AUTO)
        history->format = history_detect(bytes, length_bytes);
    if (history->format == FORMAT_AUTO)
        return parse_fail(error, 0, "no operation is in it: nothing to check");
    datum_pool_init(&loading.pool, history->budget);
    loading.cursor = (struct cursor){
        .at = bytes, .end = bytes + length_bytes, .line = 1, .pool = &loading.pool, .error = error};
    int result = load(&loading);
    datum_pool_free(&loading.pool);
    budget_release(history->budget, loading.events,
                   loading.events_capacity * sizeof *loading.events);
    return result;
}
