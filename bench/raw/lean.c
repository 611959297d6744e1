/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/raw/lean.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "bench/raw/raw.h"
#include "hw/clock.h"

enum {
    BY_ID = 4 * LEAN_SESSIONS_MAX, /* buckets; power of two */
    SLICE_NS = 1000000,
    /* No server says nothing for longer than this, and this for each request of a burst of
     * datagrams: it was put off. */
    SILENCE_NS = 250000,
    SILENCE_NS_EACH = 500,
    AWAY_NS = 300000, /* nor does a turn of ours take that */
    POLLS_PER_CLOCK = 64,
    NO_SESSION = UINT16_MAX,
    BURSTS = 4, /* that everything under way is sent in */
};

static void *room_for(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);
    if (memory == NULL)
        raw_die("no memory for %zu times %zu bytes", count, bytes);
    return memory;
}

/* ---- datagrams ------------------------------------------------------------------------------- */

static void begin_datagram(struct lean *lean)
{
    lean->buffer = port_tx_buffer(lean->options.port);
    if (lean->buffer == NULL) {
        port_tx_flush(lean->options.port);
        lean->buffer = port_tx_buffer(lean->options.port);
    }
    *(struct wire_header *)lean->buffer = (struct wire_header){.magic = WIRE_MAGIC,
                                                               .version = WIRE_VERSION,
                                                               .kind = WIRE_KIND_REQUEST,
                                                               .cluster_id = lean->cluster_id,
                                                               .cookie = lean->cookie};
    lean->bytes = sizeof(struct wire_header);
    lean->items = 0;
}

void *lean_item(struct lean *lean, uint8_t op, uint16_t shard, uint32_t bytes)
{
    if (lean->buffer != NULL && lean->bytes + bytes > WIRE_DATAGRAM_BYTES_MAX)
        lean_send(lean);
    if (lean->buffer == NULL)
        begin_datagram(lean);
    struct wire_item *item = (struct wire_item *)(lean->buffer + lean->bytes);
    memset(item, 0, bytes);
    *item = (struct wire_item){.bytes = (uint16_t)bytes, .op = op, .shard = shard};
    lean->bytes += bytes;
    lean->items++;
    return item;
}

void lean_send(struct lean *lean)
{
    if (lean->buffer == NULL)
        return;
    ((struct wire_header *)lean->buffer)->item_count = (uint16_t)lean->items;
    port_tx_push(lean->options.port, lean->bytes, &lean->options.node);
    lean->buffer = NULL;
    lean->counts.datagrams++;
    lean->counts.requests += lean->items;
}

/* ---- sessions -------------------------------------------------------------------------------- */

static uint16_t *bucket_of(const struct lean *lean, uint64_t id)
{
    uint32_t at = (uint32_t)id & (BY_ID - 1);
    while (lean->by_id[at] != NO_SESSION && lean->sessions[lean->by_id[at]].id != id)
        at = (at + 1) & (BY_ID - 1);
    return &lean->by_id[at];
}

struct lean_session *lean_session_of(const struct lean *lean, uint64_t id)
{
    uint16_t session = *bucket_of(lean, id);
    return session == NO_SESSION ? NULL : &lean->sessions[session];
}

void lean_index_sessions(struct lean *lean)
{
    memset(lean->by_id, 0xff, BY_ID * sizeof *lean->by_id);
    for (uint32_t i = 0; i < lean->sessions_count; i++)
        *bucket_of(lean, lean->sessions[i].id) = (uint16_t)i;
}

bool lean_has_room(const struct lean_session *session)
{
    return session->next_number - session->acked_below < session->window;
}

struct lean_request *lean_number(struct lean *lean, struct lean_session *session, uint8_t op,
                                 uint32_t name, uint64_t *number)
{
    *number = session->next_number++;
    struct lean_request *request = &session->requests[*number % LEAN_WINDOW_MAX];
    *request = (struct lean_request){.sent_ns = lean->now_ns,
                                     .repeat_ns = lean->now_ns + LEAN_PAUSE_MS * UINT64_C(1000000),
                                     .name = name,
                                     .pause_ms = LEAN_PAUSE_MS,
                                     .op = op};
    return request;
}

/* A number is kept for the session's keepalive. */
static bool has_room_for_more(const struct lean_session *session)
{
    return session->next_number + 1 - session->acked_below < session->window;
}

static bool write_new(struct lean *lean, uint32_t session_number, uint8_t op, uint32_t name)
{
    struct lean_session *session = &lean->sessions[session_number];
    uint64_t number;
    if (!has_room_for_more(session))
        return false;
    const struct lean_request *request = lean_number(lean, session, op, name, &number);
    lean_write(lean, session, number, request);
    lean->under_way++;
    return true;
}

/* ---- what is asked --------------------------------------------------------------------------- */

enum { REQUEST_BYTES_MAX = sizeof(struct wire_acquire) + LEAN_NAME_BYTES };
enum { REQUESTS_TO_DATAGRAM = 18 /* more do not fit */ };

/* By the session that holds it: another's would be taken for somebody else's. */
static bool write_release(struct lean *lean)
{
    uint32_t name = lean->granted[lean->granted_first & lean->granted_mask];
    if (!write_new(lean, lean->names[name].session, WIRE_OP_RELEASE, name))
        return false;
    lean->granted_first++;
    return true;
}

static bool write_acquire(struct lean *lean)
{
    struct lean_name *name = &lean->names[lean->next_name];
    uint32_t each = lean->options.sessions_per_shard;
    if (name->taken || lean->closing)
        return false;
    for (uint32_t i = 0; i < each; i++) {
        uint32_t turn = lean->turn_of[name->shard]++ % each;
        name->session = (uint16_t)(name->shard * each + turn);
        if (!write_new(lean, name->session, WIRE_OP_ACQUIRE, lean->next_name))
            continue;
        name->taken = true;
        lean->next_name = lean->next_name + 1 == lean->options.names ? 0 : lean->next_name + 1;
        return true;
    }
    return false;
}

/* The next acquire or release of those that are to be made. False: it cannot be made now. */
static bool write_next(struct lean *lean)
{
    bool release = lean->granted_end - lean->granted_first > lean->options.held;
    return release ? write_release(lean) : write_acquire(lean);
}

static uint32_t at_most(uint32_t value, uint32_t most)
{
    return value < most ? value : most;
}

/* In bursts: a few datagrams at a time cost both sides more, and while some of all that may be
 * under way is missing the server has the rest. */
static bool fill(struct lean *lean, uint32_t pack)
{
    uint32_t before = lean->under_way, limit = lean->options.in_flight * at_most(pack, LEAN_DEEPER);
    if (before + limit / BURSTS > limit)
        return false;
    while (lean->under_way + pack <= limit && write_next(lean)) {
        for (uint32_t i = 1; i < pack; i++) {
            if (lean->bytes + REQUEST_BYTES_MAX > WIRE_DATAGRAM_BYTES_MAX || !write_next(lean))
                break;
        }
        lean_send(lean);
    }
    if (lean->under_way == before)
        return false;
    port_tx_flush(lean->options.port);
    return true;
}

/* ---- turns ----------------------------------------------------------------------------------- */

/* Takes what has come; false: nothing. */
static bool receive(struct lean *lean)
{
    struct port_packet packets[PORT_BURST_MAX];
    uint32_t count = port_rx_burst(lean->options.port, packets, PORT_BURST_MAX);
    lean->counts.polls++;
    if (count == 0) {
        lean->counts.polls_idle++;
        if (lean->counts.polls_idle % POLLS_PER_CLOCK == 0)
            lean->now_ns = clock_monotonic_ns();
        return false;
    }
    lean->now_ns = clock_monotonic_ns();
    for (uint32_t i = 0; i < count; i++)
        lean_take(lean, &packets[i]);
    port_rx_done(lean->options.port);
    return true;
}

static void look_each_millisecond(struct lean *lean)
{
    if (lean->now_ns - lean->looked_ns < SLICE_NS)
        return;
    lean->looked_ns = lean->now_ns;
    lean_look(lean);
    lean_send(lean);
    port_tx_flush(lean->options.port);
}

struct slice {
    uint64_t began_ns, answers, heard_ns;
    uint64_t silence_ns; /* longer is a disturbance */
    bool disturbed;
};

static void end_slice(struct lean *lean, struct slice *slice)
{
    struct lean_counts *counts = &lean->counts;
    if (!slice->disturbed) {
        counts->sound_ns += lean->now_ns - slice->began_ns;
        counts->sound_answers += counts->answers - slice->answers;
    }
    slice->began_ns = slice->heard_ns = lean->now_ns;
    slice->answers = counts->answers;
    slice->disturbed = false;
}

static void account(struct lean *lean, struct slice *slice, bool worked, uint64_t spent)
{
    struct lean_counts *counts = &lean->counts;
    if ((double)spent > AWAY_NS * lean->cycles_per_ns) {
        counts->away_cycles += spent;
        slice->disturbed = true;
    } else if (worked) {
        counts->busy_cycles += spent;
        slice->heard_ns = lean->now_ns;
    } else {
        counts->idle_cycles += spent;
        slice->disturbed |= lean->now_ns - slice->heard_ns > slice->silence_ns;
    }
    if (lean->now_ns - slice->began_ns >= SLICE_NS)
        end_slice(lean, slice);
}

void lean_drive(struct lean *lean, uint32_t pack, uint64_t for_ns)
{
    const uint64_t began_ns = lean->now_ns = clock_monotonic_ns();
    struct slice slice = {.began_ns = began_ns,
                          .answers = lean->counts.answers,
                          .heard_ns = began_ns,
                          .silence_ns = SILENCE_NS + PORT_BURST_MAX * SILENCE_NS_EACH *
                                                         at_most(pack, REQUESTS_TO_DATAGRAM)};
    uint64_t before = raw_cycles();
    while (lean->now_ns - began_ns < for_ns) {
        bool worked = receive(lean);
        look_each_millisecond(lean);
        worked |= fill(lean, pack);
        uint64_t after = raw_cycles();
        account(lean, &slice, worked, after - before);
        before = after;
    }
    lean->counts.measured_ns += lean->now_ns - began_ns;
}

void lean_reset(struct lean *lean)
{
    memset(&lean->counts, 0, sizeof lean->counts);
    histogram_reset(&lean->counts.latency_ns);
}

/* ---- beginning ------------------------------------------------------------------------------- */

static void shuffle(struct lean *lean)
{
    uint64_t state = 1;
    for (uint32_t i = lean->options.names - 1; i > 0; i--) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407u; /* Knuth, MMIX */
        uint32_t j = (uint32_t)((state >> 33) % (i + 1));
        struct lean_name kept = lean->names[i];
        lean->names[i] = lean->names[j];
        lean->names[j] = kept;
    }
}

static void make_names(struct lean *lean)
{
    uint32_t ring = 1;
    lean->names = room_for(lean->options.names, sizeof *lean->names);
    for (uint32_t i = 0; i < lean->options.names; i++) {
        struct lean_name *name = &lean->names[i];
        char text[LEAN_NAME_BYTES + 1];
        (void)snprintf(text, sizeof text, "lean/%011u", i);
        memcpy(name->text, text, LEAN_NAME_BYTES);
        name->key_tag = (uint32_t)wire_key_hash(NULL, 0, name->text, LEAN_NAME_BYTES);
        name->shard = wire_shard_of(name->text, 0, name->text, LEAN_NAME_BYTES, lean->shards);
    }
    shuffle(lean);
    while (ring < lean->options.held + lean->options.in_flight * LEAN_DEEPER)
        ring *= 2;
    lean->granted = room_for(ring, sizeof *lean->granted);
    lean->granted_mask = ring - 1;
}

/* Asks until `done`; each time what is still to be asked. */
static void converse(struct lean *lean, void (*ask)(struct lean *), bool (*done)(struct lean *),
                     const char *what)
{
    uint64_t give_up_ns = clock_monotonic_ns() + LEAN_GIVE_UP_NS, asked_ns = 0;
    lean->asks_on = false;
    while (!done(lean)) {
        if (lean->now_ns - asked_ns >= LEAN_PAUSE_MS * UINT64_C(1000000)) {
            asked_ns = lean->now_ns;
            ask(lean);
            lean_send(lean);
            port_tx_flush(lean->options.port);
        }
        if (receive(lean))
            asked_ns = lean->asks_on ? 0 : asked_ns;
        lean->asks_on = false;
        if (lean->now_ns > give_up_ns)
            raw_die("no answer: %s", what);
    }
}

static void ask_map(struct lean *lean)
{
    (void)lean_item(lean, WIRE_OP_MAP, 0, sizeof(struct wire_page_request));
}

static bool has_map(struct lean *lean)
{
    return lean->shards > 0;
}

enum { OPENS_AT_ONCE = 64 };

static void ask_open(struct lean *lean)
{
    uint32_t asked = 0;
    for (uint32_t i = 0; i < lean->sessions_count && asked < OPENS_AT_ONCE; i++) {
        const struct lean_session *session = &lean->sessions[i];
        if (session->id != 0)
            continue;
        struct wire_open *open =
            lean_item(lean, WIRE_OP_OPEN, session->shard, sizeof(struct wire_open));
        open->nonce = session->nonce;
        open->ttl_ms = LEAN_TTL_MS;
        asked++;
    }
}

static bool has_opened(struct lean *lean)
{
    for (uint32_t i = 0; i < lean->sessions_count; i++)
        if (lean->sessions[i].id == 0)
            return false;
    return true;
}

void lean_open(struct lean *lean, const struct lean_options *options)
{
    *lean = (struct lean){.options = *options};
    lean->cycles_per_ns = raw_cycles_per_ns();
    lean->now_ns = clock_monotonic_ns();
    converse(lean, ask_map, has_map, "the map of shards");
    lean->sessions_count = lean->shards * options->sessions_per_shard;
    if (lean->shards > LEAN_SHARDS_MAX || lean->sessions_count > LEAN_SESSIONS_MAX)
        raw_die("%u shards with %u sessions each are more than this program has room for",
                lean->shards, options->sessions_per_shard);
    lean->sessions = room_for(lean->sessions_count, sizeof *lean->sessions);
    lean->by_id = room_for(BY_ID, sizeof *lean->by_id);
    for (uint32_t i = 0; i < lean->sessions_count; i++) {
        struct lean_session *session = &lean->sessions[i];
        session->shard = (uint16_t)(i / options->sessions_per_shard);
        session->next_number = session->acked_below = 1;
        if (getrandom(&session->nonce, sizeof session->nonce, 0) != sizeof session->nonce)
            raw_die("no random numbers");
        session->nonce |= 1; /* not zero */
    }
    converse(lean, ask_open, has_opened, "sessions to be opened");
    lean_index_sessions(lean);
    make_names(lean);
    lean_reset(lean);
}

/* ---- the node's own account --------------------------------------------------------------------
 */

static void ask_account(struct lean *lean)
{
    struct wire_page_request *request =
        lean_item(lean, WIRE_OP_WORKER, 0, sizeof(struct wire_page_request));
    request->number = lean->accounts_asked;
}

static bool has_account(struct lean *lean)
{
    return lean->account.number == lean->accounts_asked;
}

struct lean_account lean_account(struct lean *lean)
{
    lean->accounts_asked++;
    converse(lean, ask_account, has_account, "what the node's worker has counted");
    return lean->account;
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void drain(struct lean *lean)
{
    lean->closing = true;
    lean->options.held = 0;
    while (lean->under_way > 0 || lean->granted_first != lean->granted_end) {
        (void)receive(lean);
        look_each_millisecond(lean);
        (void)fill(lean, 1);
    }
}

static bool all_answered(const struct lean_session *session)
{
    return session->acked_below == session->next_number;
}

void lean_close(struct lean *lean)
{
    drain(lean);
    for (uint32_t i = 0; i < lean->sessions_count; i++) {
        struct lean_session *session = &lean->sessions[i];
        uint64_t number;
        while (!lean_has_room(session) || lean->closes == OPENS_AT_ONCE) {
            (void)receive(lean);
            look_each_millisecond(lean);
        }
        const struct lean_request *request = lean_number(lean, session, WIRE_OP_CLOSE, 0, &number);
        lean_write(lean, session, number, request);
        lean->closes++;
        lean_send(lean);
        port_tx_flush(lean->options.port);
    }
    for (uint32_t i = 0; i < lean->sessions_count; i++) {
        while (!all_answered(&lean->sessions[i])) {
            (void)receive(lean);
            look_each_millisecond(lean);
        }
    }
    free(lean->sessions);
    free(lean->by_id);
    free(lean->names);
    free(lean->granted);
}
