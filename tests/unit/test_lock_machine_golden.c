/* SPDX-License-Identifier: Apache-2.0
 *
 * Transcripts of one lock machine, tests/golden/lock/: commands ("> ...") and what came out. The
 * commands are run again and the whole text must come out the same, so a file is a specification
 * that is read and reviewed. BELAY_GOLDEN_WRITE=1 writes them anew, on purpose.
 *
 *   > limits KEY=N ...           before anything else; the rest is rig_limits()
 *   > open S [ttl=T] [nonce=N] [port=N]        S: any word; the session's name from now on
 *   > acquire S N X|S NAME [ttl=T] [bound] [try] [wait=T] [barge] [reentrant] [prio=N] [delay=T]
 *                          [grace=T] [value=W] [ack=N]
 *   > release S N LEASE          LEASE: S/N of the acquire that got it
 *   > renew S N LEASE... [ttl=T] [ack=N] · keepalive S N [LEASE...] [port=N] [ack=N]
 *   > cancel S N TARGET · convert S N LEASE X|S [wait=T] · force S N NAME [now] · close S N
 *   > wait T                     time passes; the next entry bears it
 *   > tick                       an empty entry
 *   > batch ... > end            the commands between are one entry
 *   > endings N                  endings_max of the entries from now on
 *   > restore                    goes on with a machine restored from a snapshot
 *   > admit COMMAND...           what admission says to it
 *   > query NAME · list PREFIX · unconfirmed · deadline
 *
 * T is a number with ms or s; every entry is printed as one paragraph, indented. After every entry
 * the machine's invariants are checked.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/machine_rig.h"

enum { WORDS_MAX = 24, SESSIONS_MAX = 64, LEASES_MAX = 256, WORD_BYTES = 64 };

struct named_session {
    char name[WORD_BYTES];
    uint64_t id;
    uint64_t nonce;
};

struct named_lease {
    char name[WORD_BYTES]; /* S/N */
    char resource[WIRE_NAME_BYTES_MAX + 1];
    struct wire_lease_id id;
};

struct script {
    struct machine_rig rig;
    bool running;
    bool batching;
    FILE *out;
    struct named_session sessions[SESSIONS_MAX];
    uint32_t sessions_count;
    struct named_lease leases[LEASES_MAX];
    uint32_t leases_count;
    char opening[64][WORD_BYTES]; /* by command of the batch: the name an open will have */
    char acquiring[64][WIRE_NAME_BYTES_MAX + 1]; /* by command: the resource */
    char *words[WORDS_MAX];
    int words_count;
};

/* ---- words ----------------------------------------------------------------------------------- */

static bool has_word(const struct script *script, const char *word)
{
    for (int i = 1; i < script->words_count; i++) {
        if (strcmp(script->words[i], word) == 0) {
            return true;
        }
    }
    return false;
}

/* Value of KEY=VALUE; NULL. */
static const char *option(const struct script *script, const char *key)
{
    size_t length = strlen(key);
    for (int i = 1; i < script->words_count; i++) {
        if (strncmp(script->words[i], key, length) == 0 && script->words[i][length] == '=') {
            return script->words[i] + length + 1;
        }
    }
    return NULL;
}

static uint64_t number_of(const char *word)
{
    char *end;
    uint64_t number = strtoull(word, &end, 0);
    cr_assert(end != word, "'%s' is no number", word);
    return number;
}

static uint64_t number_option(const struct script *script, const char *key, uint64_t otherwise)
{
    const char *value = option(script, key);
    return value == NULL ? otherwise : number_of(value);
}

static uint64_t ms_of(const char *word)
{
    char *end;
    uint64_t number = strtoull(word, &end, 10);
    if (strcmp(end, "s") == 0) {
        return number * 1000;
    }
    cr_assert(strcmp(end, "ms") == 0, "'%s' is no time", word);
    return number;
}

static uint32_t ms_option(const struct script *script, const char *key, uint32_t otherwise)
{
    const char *value = option(script, key);
    if (value != NULL && strcmp(value, "forever") == 0) {
        return WIRE_WAIT_FOREVER;
    }
    return value == NULL ? otherwise : (uint32_t)ms_of(value);
}

static const char *word_at(const struct script *script, int at)
{
    cr_assert(at < script->words_count, "'%s' needs more words", script->words[0]);
    return script->words[at];
}

/* ---- names ----------------------------------------------------------------------------------- */

static struct named_session *session_named(struct script *script, const char *name)
{
    for (uint32_t i = 0; i < script->sessions_count; i++) {
        if (strcmp(script->sessions[i].name, name) == 0) {
            return &script->sessions[i];
        }
    }
    return NULL;
}

static uint64_t session_id(struct script *script, const char *name)
{
    const struct named_session *session = session_named(script, name);
    cr_assert(session != NULL, "no session '%s'", name);
    return session->id;
}

static const char *session_name(struct script *script, uint64_t id)
{
    if (id == 0) {
        return "nobody";
    }
    for (uint32_t i = 0; i < script->sessions_count; i++) {
        if (script->sessions[i].id == id) {
            return script->sessions[i].name;
        }
    }
    return "unknown";
}

static struct named_lease *lease_named(struct script *script, const char *name)
{
    for (uint32_t i = 0; i < script->leases_count; i++) {
        if (strcmp(script->leases[i].name, name) == 0) {
            return &script->leases[i];
        }
    }
    /* Never granted: an id that no lease has. */
    static struct named_lease nothing = {.resource = "nothing", .id = {.secret = 1}};
    return &nothing;
}

static const char *lease_name(struct script *script, const struct wire_lease_id *id)
{
    for (uint32_t i = 0; i < script->leases_count; i++) {
        if (script->leases[i].id.secret == id->secret && script->leases[i].id.slot == id->slot) {
            return script->leases[i].name;
        }
    }
    return "unknown";
}

/* The lease that the acquire with this number gets, or will get; the resource is what `command` of
 * this batch asked for, if it is new. */
static struct named_lease *lease_of(struct script *script, const struct wire_reply *reply,
                                    uint32_t command)
{
    char name[WORD_BYTES];
    snprintf(name, sizeof(name), "%.40s/%" PRIu64, session_name(script, reply->session),
             reply->number);
    for (uint32_t i = 0; i < script->leases_count; i++) {
        if (strcmp(script->leases[i].name, name) == 0) {
            return &script->leases[i];
        }
    }
    cr_assert(script->leases_count < LEASES_MAX);
    struct named_lease *lease = &script->leases[script->leases_count++];
    memcpy(lease->name, name, sizeof(name));
    memcpy(lease->resource, script->acquiring[command], sizeof(lease->resource));
    return lease;
}

/* ---- printing -------------------------------------------------------------------------------- */

static char mode_letter(uint8_t mode)
{
    return mode == WIRE_EXCLUSIVE ? 'X' : mode == WIRE_SHARED ? 'S' : '-';
}

static void print_token(struct script *script, uint64_t token)
{
    fprintf(script->out, " token=%" PRIu64 ".%" PRIu64, token >> 48,
            token & ((UINT64_C(1) << 48) - 1));
}

static void print_granted(struct script *script, const struct wire_granted *granted)
{
    fprintf(script->out, " %c lease=%s", mode_letter(granted->mode),
            lease_name(script, &granted->lease));
    print_token(script, granted->token);
    if (granted->ttl_ms == 0) {
        fprintf(script->out, " bound");
    } else {
        fprintf(script->out, " ttl=%" PRIu32 "ms", granted->ttl_ms);
    }
    if (granted->waited) {
        fprintf(script->out, " waited keepalive=%" PRIu64 " since=%" PRIu64 "ms",
                granted->keepalive_number, granted->since_keepalive_ns / RIG_MS);
    }
}

static void print_party(struct script *script, const struct wire_party *party)
{
    static const char *const roles[] = {"holder", "waiter", "upgrader"};
    fprintf(script->out, " %s %c by %s", roles[party->waiting], mode_letter(party->mode),
            session_name(script, party->session));
    if (party->waiting == 0) {
        print_token(script, party->token);
    } else {
        fprintf(script->out, " position=%" PRIu32 " prio=%u", party->position, party->priority);
    }
    if (party->remaining_ms == UINT64_MAX) {
        fprintf(script->out, " without end");
    } else {
        fprintf(script->out, " remaining=%" PRIu64 "ms", party->remaining_ms);
    }
    if (party->value_bytes > 0) {
        fprintf(script->out, " value=%.*s", party->value_bytes, (const char *)(party + 1));
    }
}

static void print_busy(struct script *script, const struct wire_busy *busy)
{
    fprintf(script->out, " holders=%" PRIu32, busy->holders);
    if (busy->holders > 0) {
        print_party(script, &busy->first);
    }
}

static void print_ok(struct script *script, const struct wire_item *item)
{
    const struct wire_opened *opened = (const void *)item;
    const struct wire_renewed *renewed = (const void *)item;
    switch (item->op) {
    case WIRE_OP_OPEN:
        fprintf(script->out, " ttl=%" PRIu32 "ms window=%" PRIu32, opened->ttl_ms, opened->window);
        break;
    case WIRE_OP_ACQUIRE:
    case WIRE_OP_CONVERT:
        print_granted(script, (const void *)item);
        break;
    case WIRE_OP_KEEPALIVE:
    case WIRE_OP_RENEW:
        for (uint16_t i = 0; i < renewed->count; i++) {
            fprintf(script->out, " %s", wire_status_name(renewed->results[i]));
        }
        break;
    default:
        break;
    }
}

static const char *op_name(uint8_t op)
{
    static const char *const names[] = {
        [WIRE_OP_OPEN] = "open",          [WIRE_OP_KEEPALIVE] = "keepalive",
        [WIRE_OP_CLOSE] = "close",        [WIRE_OP_ACQUIRE] = "acquire",
        [WIRE_OP_RELEASE] = "release",    [WIRE_OP_RENEW] = "renew",
        [WIRE_OP_CANCEL] = "cancel",      [WIRE_OP_CONVERT] = "convert",
        [WIRE_OP_FORCE_RELEASE] = "force"};
    return op <= WIRE_OP_LOGGED_LAST ? names[op] : "read";
}

static void print_reply(struct script *script, const struct wire_item *item)
{
    const struct wire_reply *reply = (const void *)item;
    const struct wire_problem *problem = (const void *)item;
    fprintf(script->out, "    %s %s", session_name(script, reply->session), op_name(item->op));
    if (reply->number != 0) {
        fprintf(script->out, " %" PRIu64, reply->number);
    }
    fprintf(script->out, ": %s", wire_status_name(item->status));
    switch (item->status) {
    case WIRE_OK:
        print_ok(script, item);
        break;
    case WIRE_QUEUED:
        fprintf(script->out, " position=%" PRIu32, ((const struct wire_queued *)item)->position);
        break;
    case WIRE_BUSY:
        print_busy(script, (const void *)item);
        break;
    case WIRE_DELAYED:
        fprintf(script->out, " remaining=%" PRIu64 "ms",
                ((const struct wire_delayed *)item)->remaining_ms);
        break;
    case WIRE_OVER_LIMIT:
    case WIRE_BAD_REQUEST:
        fprintf(script->out, " (%s, limit %" PRIu64 ")", wire_what_text(problem->what),
                problem->limit);
        break;
    default:
        break;
    }
    fprintf(script->out, "\n");
}

static void print_push(struct script *script, const struct rig_output *output)
{
    const struct wire_reply *reply = (const void *)output->item;
    if (output->kind == LOCK_OUT_PUSH_GRANT) {
        fprintf(script->out, "    push to %s:%u: granted %" PRIu64,
                session_name(script, reply->session), output->port, reply->number);
        print_granted(script, (const void *)output->item);
    } else {
        const struct wire_lost *lost = (const void *)output->item;
        fprintf(script->out, "    push to %s:%u: %s lease=%s (%s)",
                session_name(script, reply->session), output->port, lost->final ? "lost" : "let go",
                lease_name(script, &lost->lease), wire_status_name(lost->reason));
        print_token(script, lost->token);
    }
    fprintf(script->out, "\n");
}

/* What is granted or opened gets its name before anything is printed. */
static void learn_name(struct script *script, const struct rig_output *output)
{
    const struct wire_reply *reply = (const void *)output->item;
    const struct wire_granted *granted = (const void *)output->item;
    bool granting = output->kind == LOCK_OUT_PUSH_GRANT ||
                    (reply->item.op == WIRE_OP_ACQUIRE && reply->item.status == WIRE_OK);
    if (output->kind == LOCK_OUT_PUSH_LOST) {
        return;
    }
    if (granting && strcmp(lease_name(script, &granted->lease), "unknown") == 0) {
        lease_of(script, reply, output->command)->id = granted->lease;
    } else if (reply->item.op == WIRE_OP_ACQUIRE && reply->item.status == WIRE_QUEUED) {
        (void)lease_of(script, reply, output->command); /* a push will grant it */
    } else if (reply->item.op == WIRE_OP_OPEN && reply->item.status == WIRE_OK) {
        session_named(script, script->opening[output->command])->id = reply->session;
    }
}

static void learn_names(struct script *script)
{
    for (uint32_t i = 0; i < script->rig.outputs_count; i++) {
        learn_name(script, &script->rig.outputs[i]);
    }
}

static void apply(struct script *script)
{
    int error = rig_apply(&script->rig);
    cr_assert_eq(error, 0, "entry %" PRIu64 " was refused: %d", script->rig.index, error);
    learn_names(script);
    for (uint32_t i = 0; i < script->rig.outputs_count; i++) {
        const struct rig_output *output = &script->rig.outputs[i];
        if (output->kind == LOCK_OUT_REPLY) {
            print_reply(script, (const void *)output->item);
        } else {
            print_push(script, output);
        }
    }
    const char *wrong = lock_machine_verify(script->rig.machine);
    cr_assert(wrong == NULL, "after entry %" PRIu64 ": %s", script->rig.index, wrong);
}

/* ---- commands of the log --------------------------------------------------------------------- */

static void add_open(struct script *script)
{
    struct named_session *session = session_named(script, word_at(script, 1));
    if (session == NULL) {
        cr_assert(script->sessions_count < SESSIONS_MAX);
        session = &script->sessions[script->sessions_count++];
        snprintf(session->name, sizeof(session->name), "%s", word_at(script, 1));
        session->nonce = 100 + script->sessions_count;
    }
    session->nonce = number_option(script, "nonce", session->nonce);
    snprintf(script->opening[script->rig.count], WORD_BYTES, "%s", session->name);
    struct wire_open *open =
        rig_open(&script->rig, session->nonce, ms_option(script, "ttl", 10000));
    open->address.port = (uint16_t)number_option(script, "port", session->nonce);
}

static uint8_t mode_of(const char *word)
{
    cr_assert(strcmp(word, "X") == 0 || strcmp(word, "S") == 0, "'%s' is no mode", word);
    return *word == 'X' ? WIRE_EXCLUSIVE : WIRE_SHARED;
}

static void add_acquire(struct script *script)
{
    const char *value = option(script, "value");
    const char *name = word_at(script, 4);
    snprintf(script->acquiring[script->rig.count], WIRE_NAME_BYTES_MAX + 1, "%s", name);
    struct wire_acquire *acquire = rig_acquire_value(
        &script->rig, session_id(script, word_at(script, 1)), number_of(word_at(script, 2)),
        mode_of(word_at(script, 3)), "", name, value == NULL ? "" : value,
        has_word(script, "bound") ? 0 : ms_option(script, "ttl", 10000));
    acquire->request.acked_below = number_option(script, "ack", 0);
    acquire->request.item.flags |= (uint8_t)((has_word(script, "try") ? WIRE_TRY : 0) |
                                             (has_word(script, "barge") ? WIRE_BARGE : 0) |
                                             (has_word(script, "reentrant") ? WIRE_REENTRANT : 0));
    acquire->wait_ms = ms_option(script, "wait", WIRE_WAIT_FOREVER);
    acquire->lock_delay_ms = ms_option(script, "delay", 0);
    acquire->grace_ms = ms_option(script, "grace", 0);
    acquire->priority = (uint8_t)number_option(script, "prio", 0);
}

static void add_release(struct script *script)
{
    const struct named_lease *lease = lease_named(script, word_at(script, 3));
    struct wire_release *release =
        rig_release(&script->rig, session_id(script, word_at(script, 1)),
                    number_of(word_at(script, 2)), lease->id, lease->resource);
    release->request.acked_below = number_option(script, "ack", 0);
}

static void add_renew(struct script *script, uint8_t op)
{
    uint16_t count = 0;
    for (int i = 3; i < script->words_count; i++) {
        count = (uint16_t)(count + (strchr(script->words[i], '=') == NULL));
    }
    struct wire_renew *renew = rig_renew(&script->rig, op, session_id(script, word_at(script, 1)),
                                         number_of(word_at(script, 2)), count);
    renew->request.acked_below = number_option(script, "ack", 0);
    for (uint16_t i = 0; i < count; i++) {
        const struct named_lease *lease = lease_named(script, word_at(script, 3 + i));
        renew->renewals[i].lease = lease->id;
        renew->renewals[i].key_tag = rig_key_tag("", lease->resource);
        renew->renewals[i].ttl_ms = ms_option(script, "ttl", 0);
    }
    if (op == WIRE_OP_KEEPALIVE) {
        const struct named_session *session = session_named(script, word_at(script, 1));
        renew->address.port = (uint16_t)number_option(script, "port", session->nonce);
    }
}

static bool add_command(struct script *script)
{
    const char *verb = script->words[0];
    uint64_t session = 0;
    uint64_t number = 0;
    if (strcmp(verb, "open") == 0) {
        add_open(script);
        return true;
    }
    if (script->words_count >= 3 && session_named(script, script->words[1]) != NULL) {
        session = session_id(script, script->words[1]);
        number = number_of(script->words[2]);
    }
    if (strcmp(verb, "acquire") == 0) {
        add_acquire(script);
    } else if (strcmp(verb, "release") == 0) {
        add_release(script);
    } else if (strcmp(verb, "renew") == 0) {
        add_renew(script, WIRE_OP_RENEW);
    } else if (strcmp(verb, "keepalive") == 0) {
        add_renew(script, WIRE_OP_KEEPALIVE);
    } else if (strcmp(verb, "cancel") == 0) {
        (void)rig_cancel(&script->rig, session, number, number_of(word_at(script, 3)));
    } else if (strcmp(verb, "convert") == 0) {
        const struct named_lease *lease = lease_named(script, word_at(script, 3));
        (void)rig_convert(&script->rig, session, number, lease->id, lease->resource,
                          mode_of(word_at(script, 4)),
                          ms_option(script, "wait", WIRE_WAIT_FOREVER));
    } else if (strcmp(verb, "force") == 0) {
        struct wire_named *named =
            rig_named(&script->rig, WIRE_OP_FORCE_RELEASE, session, number, "", word_at(script, 3));
        named->request.item.flags = has_word(script, "now") ? WIRE_NOW : 0;
    } else if (strcmp(verb, "close") == 0) {
        (void)rig_close(&script->rig, session, number);
    } else {
        return false;
    }
    return true;
}

/* ---- other commands -------------------------------------------------------------------------- */

static void set_limits(struct script *script)
{
    struct lock_limits limits = rig_limits();
    const struct {
        const char *key;
        uint32_t *field;
    } fields[] = {
        {"leases", &limits.leases_max},     {"resources", &limits.resources_max},
        {"sessions", &limits.sessions_max}, {"waiters", &limits.waiters_max},
        {"answers", &limits.answers_max},   {"long_names", &limits.long_names_max},
        {"extras", &limits.extras_max},     {"window", &limits.window},
        {"queue", &limits.queue_max},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        *fields[i].field = (uint32_t)number_option(script, fields[i].key, *fields[i].field);
    }
    limits.token_epoch = (uint16_t)number_option(script, "epoch", limits.token_epoch);
    rig_init(&script->rig, &limits, true);
    script->running = true;
}

static void print_query(struct script *script)
{
    _Alignas(8) uint8_t out[1280];
    const char *name = word_at(script, 1);
    struct wire_named *named = rig_named(&script->rig, WIRE_OP_QUERY, 0, 0, "", name);
    named->request.drawn = 0;
    size_t bytes = lock_machine_read(script->rig.machine, named, 0, out, sizeof(out));
    script->rig.count = 0;
    script->rig.payload_bytes = sizeof(struct lock_batch);
    const struct wire_state *state = (const void *)out;
    cr_assert(bytes == state->reply.item.bytes && wire_judge_reply(&state->reply.item));
    fprintf(script->out, "    %s: holders=%" PRIu32 " waiters=%" PRIu32, name, state->holders,
            state->waiters);
    if (state->delay_remaining_ms > 0) {
        fprintf(script->out, " closed for %" PRIu64 "ms", state->delay_remaining_ms);
    }
    fprintf(script->out, "\n");
    const uint8_t *at = (const uint8_t *)(state + 1);
    for (uint32_t i = 0; i < state->parties; i++) {
        const struct wire_party *party = (const void *)at;
        fprintf(script->out, "     ");
        print_party(script, party);
        fprintf(script->out, "\n");
        at += wire_pad8(sizeof(*party) + party->value_bytes);
    }
}

static void print_list(struct script *script)
{
    _Alignas(8) uint8_t out[1280];
    const char *prefix = script->words_count > 1 ? script->words[1] : "";
    struct wire_named *named = rig_named(&script->rig, WIRE_OP_LIST, 0, 0, "", prefix);
    size_t bytes = lock_machine_read(script->rig.machine, named, 0, out, sizeof(out));
    script->rig.count = 0;
    script->rig.payload_bytes = sizeof(struct lock_batch);
    const struct wire_list *list = (const void *)out;
    cr_assert(bytes == list->reply.item.bytes && wire_judge_reply(&list->reply.item));
    const uint8_t *at = (const uint8_t *)(list + 1);
    for (uint32_t i = 0; i < list->count; i++) {
        const struct wire_listed *listed = (const void *)at;
        fprintf(script->out, "    %.*s %c holders=%" PRIu32 " waiters=%" PRIu32 "\n",
                listed->name_bytes, (const char *)(listed + 1), mode_letter(listed->mode),
                listed->holders, listed->waiters);
        at += wire_pad8(sizeof(*listed) + listed->name_bytes);
    }
    fprintf(script->out, "    (%" PRIu32 " names)\n", list->count);
}

static void print_admission(struct script *script)
{
    static const char *const names[] = {"admit", "answered", "refused"};
    _Alignas(8) uint8_t out[RIG_ITEM_BYTES_MAX];
    memmove(script->words, script->words + 1, sizeof(char *) * (size_t)(script->words_count - 1));
    script->words_count--;
    cr_assert(add_command(script));
    const struct wire_request *request =
        (const void *)(script->rig.payload + sizeof(struct lock_batch));
    enum lock_admission admission = lock_machine_admit(script->rig.machine, request, out);
    script->rig.count = 0;
    script->rig.payload_bytes = sizeof(struct lock_batch);
    fprintf(script->out, "    %s\n", names[admission]);
    if (admission != LOCK_ADMIT) {
        cr_assert(wire_judge_reply((const void *)out));
        print_reply(script, (const void *)out);
    }
}

static void print_unconfirmed(void *context, const struct lock_output *output)
{
    struct script *script = context;
    struct rig_output kept = {.kind = output->kind, .port = output->address->port};
    memcpy(kept.item, output->item, output->item->bytes);
    print_push(script, &kept);
}

static void run_other(struct script *script)
{
    const char *verb = script->words[0];
    if (strcmp(verb, "wait") == 0) {
        script->rig.stamp_ns += ms_of(word_at(script, 1)) * RIG_MS;
    } else if (strcmp(verb, "tick") == 0) {
        apply(script);
    } else if (strcmp(verb, "endings") == 0) {
        script->rig.endings_max = (uint32_t)number_of(word_at(script, 1));
    } else if (strcmp(verb, "restore") == 0) {
        cr_assert_eq(rig_restore(&script->rig, 1000), 0);
        const char *wrong = lock_machine_verify(script->rig.machine);
        cr_assert(wrong == NULL, "after restore: %s", wrong);
    } else if (strcmp(verb, "query") == 0) {
        print_query(script);
    } else if (strcmp(verb, "list") == 0) {
        print_list(script);
    } else if (strcmp(verb, "admit") == 0) {
        print_admission(script);
    } else if (strcmp(verb, "unconfirmed") == 0) {
        struct lock_sink sink = {.emit = print_unconfirmed, .context = script};
        uint64_t cursor = 0;
        while (lock_machine_unconfirmed(script->rig.machine, &cursor, 2, &sink)) {
        }
    } else if (strcmp(verb, "deadline") == 0) {
        uint64_t deadline = lock_machine_next_deadline(script->rig.machine);
        if (deadline == UINT64_MAX) {
            fprintf(script->out, "    none\n");
        } else {
            fprintf(script->out, "    in %" PRIu64 "ms\n",
                    deadline > script->rig.stamp_ns ? (deadline - script->rig.stamp_ns) / RIG_MS
                                                    : 0);
        }
    } else {
        cr_assert_fail("unknown command '%s'", verb);
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

static void run_line(struct script *script, const char *line)
{
    char copy[1024];
    snprintf(copy, sizeof(copy), "%s", line + 2);
    script->words_count = 0;
    char *rest = copy;
    for (char *word; (word = strtok_r(rest, " ", &rest)) != NULL;) {
        cr_assert(script->words_count < WORDS_MAX);
        script->words[script->words_count++] = word;
    }
    cr_assert(script->words_count > 0, "an empty command");
    if (strcmp(script->words[0], "limits") == 0) {
        cr_assert(!script->running, "limits come first");
        set_limits(script);
        return;
    }
    if (!script->running) {
        struct lock_limits limits = rig_limits();
        rig_init(&script->rig, &limits, true);
        script->running = true;
    }
    if (strcmp(script->words[0], "batch") == 0) {
        script->batching = true;
    } else if (strcmp(script->words[0], "end") == 0) {
        script->batching = false;
        apply(script);
    } else if (!add_command(script)) {
        run_other(script);
    } else if (!script->batching) {
        apply(script);
    }
}

/* Runs the commands of the text; returns the whole transcript. */
static char *run_text(const char *text)
{
    char *made;
    size_t made_bytes;
    struct script *script = calloc(1, sizeof(*script));
    script->out = open_memstream(&made, &made_bytes);
    while (*text != '\0') {
        size_t length = strcspn(text, "\n");
        char line[1024];
        snprintf(line, sizeof(line), "%.*s", (int)length, text);
        if (strncmp(line, "    ", 4) != 0) { /* what came out is made anew */
            fprintf(script->out, "%s\n", line);
        }
        if (strncmp(line, "> ", 2) == 0) {
            run_line(script, line);
        }
        text += length + (text[length] == '\n');
    }
    fclose(script->out);
    rig_free(&script->rig);
    free(script);
    return made;
}

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "r");
    cr_assert(file != NULL, "%s cannot be read", path);
    char *text = calloc(1, 1 << 20);
    size_t length = fread(text, 1, (1 << 20) - 1, file);
    cr_assert(length < (1 << 20) - 1);
    fclose(file);
    return text;
}

static void check_file(const char *path)
{
    char *expected = read_file(path);
    char *made = run_text(expected);
    if (getenv("BELAY_GOLDEN_WRITE") != NULL) {
        FILE *file = fopen(path, "w");
        cr_assert(file != NULL);
        fputs(made, file);
        fclose(file);
    } else if (strcmp(expected, made) != 0) {
        size_t at = 0;
        while (expected[at] == made[at]) {
            at++;
        }
        while (at > 0 && expected[at - 1] != '\n') {
            at--;
        }
        cr_expect_fail("%s differs:\n  expected: %.*s\n  came out: %.*s", path,
                       (int)strcspn(expected + at, "\n"), expected + at,
                       (int)strcspn(made + at, "\n"), made + at);
    }
    free(expected);
    free(made);
}

Test(lock_machine_golden, transcripts)
{
    DIR *directory = opendir(BELAY_GOLDEN_DIR);
    cr_assert(directory != NULL);
    int files = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        size_t length = strlen(entry->d_name);
        if (length > 4 && strcmp(entry->d_name + length - 4, ".txt") == 0) {
            char path[1024];
            snprintf(path, sizeof(path), "%s/%s", BELAY_GOLDEN_DIR, entry->d_name);
            check_file(path);
            files++;
        }
    }
    closedir(directory);
    cr_assert_geq(files, 12, "only %d transcripts were found", files);
}
