/* SPDX-License-Identifier: Apache-2.0
 *
 * Transcripts of small clusters, tests/golden/raft/: each file holds commands ("> ...") and what
 * the cores did in answer. The commands are run again and the whole text must come out the same, so
 * a file is a specification that is read and reviewed. BELAY_GOLDEN_WRITE=1 writes them anew, on
 * purpose.
 *
 *   > cluster disk|memory [lease] [ring BYTES] nodes 1 2 3     (first command)
 *   > start N              a blank replica without a configuration
 *   > elect N              times out N with everything delivered; prints little
 *   > timeout N            moves time to N's next deadline and ticks it
 *   > wait MS              moves time only
 *   > deliver FROM TO [KIND] · drop FROM TO [KIND] · duplicate FROM TO [KIND]   (what is queued
 * now) > deliver all · drop all · settle         (settle: until nothing moves; prints little) >
 * hold N · release N · disk N [COUNT]     (a held disk completes nothing by itself) > propose N
 * BYTES · read N CONTEXT · transfer N TO · change N add|promote|remove ID > save N · crash N ·
 * restart N · revoked N · granted N · stepdown N · durable N INDEX TERM > hand revoke|grant their
 * completions wait for `revoked` and `granted` > state
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/raft_rig.h"

#define MS UINT64_C(1000000)

enum { WORDS_MAX = 16, KIND_ANY = 0, KIND_SHIP = 100, KIND_SNAPSHOT = 101 };

struct script {
    struct rig rig;
    FILE *out;
    bool quiet; /* messages and disk traffic are not printed */
    bool running;
};

static const char *const message_names[RAFT_MSG_KIND_COUNT] = {
    NULL,          "PREVOTE",         "PREVOTE_REPLY", "VOTE",      "VOTE_REPLY",
    "ATTACH",      "ATTACH_REPLY",    "ACK",           "HEARTBEAT", "HEARTBEAT_REPLY",
    "TIMEOUT_NOW", "SNAPSHOT_NEEDED", "SNAPSHOT_DONE",
};

static const char *const role_names[] = {"follower", "precandidate", "candidate", "leader"};

/* ---- printing -------------------------------------------------------------------------------- */

static void print_field(struct script *script, const char *name, uint64_t value)
{
    if (value != 0)
        fprintf(script->out, " %s=%" PRIu64, name, value);
}

static void print_message(struct script *script, const struct raft_message *message)
{
    bool leader = message->kind == RAFT_MSG_ATTACH || message->kind == RAFT_MSG_HEARTBEAT ||
                  message->kind == RAFT_MSG_SNAPSHOT_NEEDED;

    fprintf(script->out, "  %" PRIu64 " sends %s to %" PRIu64, message->from,
            message_names[message->kind], message->to);
    if ((message->flags & RAFT_MSG_GRANTED) != 0)
        fprintf(script->out, " granted");
    if ((message->flags & RAFT_MSG_TRANSFER) != 0)
        fprintf(script->out, " transfer");
    if ((message->flags & RAFT_MSG_RETRANSMIT) != 0)
        fprintf(script->out, " again");
    print_field(script, "term", message->term);
    print_field(script, "index", message->index);
    print_field(script, "log_term", message->log_term);
    print_field(script, "grant", message->grant);
    print_field(script, "commit", message->commit);
    print_field(script, message->kind == RAFT_MSG_ATTACH ? "next_term" : "round", message->round);
    print_field(script, "position", message->position);
    if (!leader)
        print_field(script, "limit", message->limit);
    fprintf(script->out, "\n");
}

static void print_configuration(struct script *script,
                                const struct raft_configuration *configuration)
{
    for (uint32_t i = 0; i < configuration->count; i++)
        fprintf(script->out, " %" PRIu64 "%s", configuration->members[i].replica_id,
                configuration->members[i].role == RAFT_VOTER ? "" : "(learner)");
    fprintf(script->out, " @%" PRIu64, configuration->index);
}

static const char *refusal_name(enum raft_refusal why)
{
    static const char *const names[] = {"none",      "not leader", "busy",
                                        "too early", "invalid",    "behind"};
    return names[why];
}

/* What is printed also when a command settles. */
static bool print_state_effect(struct script *script, const struct raft_effect *effect)
{
    FILE *out = script->out;

    switch (effect->kind) {
    case RAFT_FX_COMMITTED:
        fprintf(out, "commits %" PRIu64 "..%" PRIu64, effect->range.first, effect->range.last);
        return true;
    case RAFT_FX_ROLE:
        fprintf(out, "is %s, term %" PRIu64 ", leader %" PRIu64, role_names[effect->role.role],
                effect->role.term, effect->role.leader);
        return true;
    case RAFT_FX_CONFIGURATION:
        fprintf(out, "has members");
        print_configuration(script, &effect->configuration);
        return true;
    case RAFT_FX_NEED_SNAPSHOT:
        fprintf(out, "needs a snapshot for %" PRIu64, effect->snapshot.peer);
        return true;
    case RAFT_FX_FETCH_SNAPSHOT:
        fprintf(out, "fetches a snapshot from %" PRIu64, effect->snapshot.peer);
        return true;
    case RAFT_FX_READ_READY:
        fprintf(out, "may serve read %" PRIu64 " at %" PRIu64, effect->read.context,
                effect->read.index);
        return true;
    case RAFT_FX_READ_FAILED:
        fprintf(out, "fails read %" PRIu64, effect->read.context);
        return true;
    case RAFT_FX_CHANGE_REFUSED:
        fprintf(out, "refuses: %s", refusal_name(effect->refused.why));
        return true;
    case RAFT_FX_ENTRIES_LOST:
        fprintf(out, "loses entries from %" PRIu64, effect->range.first);
        return true;
    default:
        return false;
    }
}

static void print_traffic(struct script *script, const struct raft_effect *effect)
{
    FILE *out = script->out;

    switch (effect->kind) {
    case RAFT_FX_PERSIST_HARD:
        fprintf(out, "writes term %" PRIu64 " vote %" PRIu64, effect->hard.term, effect->hard.vote);
        break;
    case RAFT_FX_PERSIST_ENTRIES:
        fprintf(out, "writes entries %" PRIu64 "..%" PRIu64, effect->range.first,
                effect->range.last);
        break;
    case RAFT_FX_PERSIST_CUT:
        fprintf(out, "writes cut from %" PRIu64, effect->range.first);
        break;
    case RAFT_FX_SHIP:
        fprintf(out,
                "ships to %" PRIu64 " grant=%" PRIu64 " bytes %" PRIu64 "..%" PRIu64
                " up to %" PRIu64 " of term %" PRIu64,
                effect->ship.peer, effect->ship.grant, effect->ship.from, effect->ship.to,
                effect->ship.last_index, effect->ship.last_term);
        break;
    case RAFT_FX_DETACH:
        fprintf(out, "stops shipping to %" PRIu64, effect->ship.peer);
        break;
    case RAFT_FX_GRANT:
        fprintf(out, "opens its ring to %" PRIu64 " grant=%" PRIu64 " position=%" PRIu64,
                effect->grant.leader, effect->grant.number, effect->grant.position);
        break;
    case RAFT_FX_REVOKE:
        fprintf(out, "closes its ring to %" PRIu64 " grant=%" PRIu64, effect->grant.leader,
                effect->grant.number);
        break;
    default:
        break;
    }
}

static void on_effect(struct rig *rig, struct rig_node *node, const struct raft_effect *effect)
{
    struct script *script = rig->context;
    char *text = NULL;
    size_t length = 0;
    FILE *out = script->out;

    if (effect->kind == RAFT_FX_SEND) {
        if (!script->quiet)
            print_message(script, &effect->message);
        return;
    }
    script->out = open_memstream(&text, &length);
    if (!print_state_effect(script, effect) && !script->quiet)
        print_traffic(script, effect);
    fclose(script->out);
    script->out = out;
    if (length > 0)
        fprintf(out, "  %" PRIu64 " %s\n", node->id, text);
    free(text);
}

static void print_terms(struct script *script, const struct rig_node *node)
{
    fprintf(script->out, " terms");
    for (uint64_t index = node->log.base.index; index <= node->log.last_index; index++)
        fprintf(script->out, " %" PRIu64, log_term(&node->log, index));
}

static void print_state(struct script *script)
{
    for (uint32_t i = 0; i < script->rig.nodes_count; i++) {
        struct rig_node *node = &script->rig.nodes[i];
        if (!node->alive) {
            fprintf(script->out, "  %" PRIu64 ": down\n", node->id);
            continue;
        }
        struct raft_view view = rig_look(node);
        fprintf(script->out,
                "  %" PRIu64 ": %s%s term %" PRIu64 " vote %" PRIu64 " log %" PRIu64 "..%" PRIu64
                " durable %" PRIu64 " commit %" PRIu64,
                node->id, role_names[view.role], view.ready ? " (ready)" : "", view.term, view.vote,
                node->log.base.index, view.last_index, view.durable_index, view.commit_index);
        print_terms(script, node);
        fprintf(script->out, " members");
        print_configuration(script, view.configuration);
        fprintf(script->out, "\n");
    }
}

/* ---- commands -------------------------------------------------------------------------------- */

static uint64_t number(const char *word)
{
    return word == NULL ? 0 : strtoull(word, NULL, 10);
}

static int kind_of(const char *word)
{
    if (word == NULL)
        return KIND_ANY;
    if (strcmp(word, "SHIP") == 0)
        return KIND_SHIP;
    if (strcmp(word, "SNAPSHOT") == 0)
        return KIND_SNAPSHOT;
    for (int kind = 1; kind < RAFT_MSG_KIND_COUNT; kind++)
        if (strcmp(word, message_names[kind]) == 0)
            return kind;
    cr_assert_fail("no such message: %s", word);
    return KIND_ANY;
}

static int packet_kind(const struct rig_packet *packet)
{
    if (packet->kind == RIG_SHIP)
        return KIND_SHIP;
    if (packet->kind == RIG_SNAPSHOT)
        return KIND_SNAPSHOT;
    return packet->message.kind;
}

/* Acts on the packets that are queued now and fit. */
static void on_packets(struct script *script, char **words)
{
    struct rig *rig = &script->rig;
    bool all = strcmp(words[1], "all") == 0;
    uint64_t newest = rig->packet_next, from = all ? 0 : number(words[1]);
    uint64_t to = all ? 0 : number(words[2]);
    int kind = all ? KIND_ANY : kind_of(words[3]);
    uint64_t count = !all && words[3] != NULL && words[4] != NULL ? number(words[4]) : UINT64_MAX;

    for (uint32_t i = 0; i < rig->packets_count && count > 0;) {
        const struct rig_packet *packet = &rig->packets[i];
        bool fits = packet->id <= newest && (all || (packet->from == from && packet->to == to)) &&
                    (kind == KIND_ANY || kind == packet_kind(packet));
        count -= fits;
        if (!fits) {
            i++;
        } else if (strcmp(words[0], "deliver") == 0) {
            rig_deliver(rig, i);
        } else if (strcmp(words[0], "drop") == 0) {
            rig_drop(rig, i);
        } else {
            rig_duplicate(rig, i);
            i++;
        }
    }
}

static void cluster(struct script *script, char **words)
{
    struct rig_options options = {
        .durability = strcmp(words[1], "memory") == 0 ? RAFT_MEMORY : RAFT_DISK,
        .ring_bytes = 65536,
        .slots_count = 1024,
        .window_bytes = 4096,
        .heartbeat_ns = 10 * MS,
        .election_timeout_ns = 100 * MS,
        .lease_drift_ppm = 1000,
        .seed = 1,
    };
    uint64_t ids[RIG_NODES_MAX];
    uint32_t count = 0;
    char **word = words + 2;

    for (; *word != NULL && strcmp(*word, "nodes") != 0; word++) {
        if (strcmp(*word, "lease") == 0)
            options.lease_reads = true;
        else if (strcmp(*word, "ring") == 0)
            options.ring_bytes = number(*++word);
    }
    if (options.window_bytes > options.ring_bytes / 4)
        options.window_bytes = (uint32_t)(options.ring_bytes / 4);
    for (word++; *word != NULL; word++)
        ids[count++] = number(*word);
    rig_init(&script->rig, &options);
    script->rig.context = script;
    script->rig.on_effect = on_effect;
    script->running = true;
    struct raft_configuration configuration = rig_configuration(ids, count);
    for (uint32_t i = 0; i < count; i++)
        rig_start(&script->rig, ids[i], &configuration);
}

static void timeout(struct script *script, struct rig_node *node)
{
    uint64_t deadline_ns = raft_next_deadline(node->raft), clock_ns = rig_clock(&script->rig, node);

    if (deadline_ns > clock_ns)
        script->rig.now_ns += deadline_ns - clock_ns;
    rig_tick(&script->rig, node);
}

static void change(struct script *script, struct rig_node *node, char **words)
{
    enum raft_change_kind kind = strcmp(words[2], "add") == 0       ? RAFT_ADD_LEARNER
                                 : strcmp(words[2], "promote") == 0 ? RAFT_PROMOTE
                                                                    : RAFT_REMOVE;
    rig_change(&script->rig, node, kind, number(words[3]));
}

static void durable(struct script *script, struct rig_node *node, char **words)
{
    struct raft_event event = {.kind = RAFT_EV_DURABLE};

    event.progress.index = number(words[2]);
    event.progress.term = number(words[3]);
    rig_event(&script->rig, node, &event);
}

static bool node_command(struct script *script, struct rig_node *node, char **words)
{
    struct rig *rig = &script->rig;
    const char *name = words[0];
    struct raft_event step_down = {.kind = RAFT_EV_STEP_DOWN};

    if (strcmp(name, "elect") == 0) {
        script->quiet = true;
        rig_elect(rig, node);
        rig_settle(rig);
    } else if (strcmp(name, "timeout") == 0) {
        timeout(script, node);
    } else if (strcmp(name, "hold") == 0 || strcmp(name, "release") == 0) {
        node->disk_held = name[0] == 'h';
    } else if (strcmp(name, "disk") == 0) {
        uint64_t count = words[2] == NULL ? node->disk.ops_count : number(words[2]);
        for (; count > 0; count--)
            rig_disk_step(rig, node);
    } else if (strcmp(name, "propose") == 0) {
        if (!rig_propose(rig, node, number(words[2])))
            fprintf(script->out, "  %" PRIu64 " takes no proposal\n", node->id);
    } else if (strcmp(name, "read") == 0) {
        rig_read(rig, node, number(words[2]));
    } else if (strcmp(name, "transfer") == 0) {
        rig_transfer(rig, node, number(words[2]));
    } else if (strcmp(name, "change") == 0) {
        change(script, node, words);
    } else if (strcmp(name, "save") == 0) {
        rig_save(rig, node);
    } else if (strcmp(name, "crash") == 0) {
        rig_crash(rig, node);
    } else if (strcmp(name, "restart") == 0) {
        rig_restart(rig, node);
    } else if (strcmp(name, "revoked") == 0) {
        rig_revoked(rig, node);
        rig_run_events(rig, node);
    } else if (strcmp(name, "granted") == 0) {
        rig_granted(rig, node);
        rig_run_events(rig, node);
    } else if (strcmp(name, "stepdown") == 0) {
        rig_event(rig, node, &step_down);
    } else if (strcmp(name, "durable") == 0) {
        durable(script, node, words);
    } else {
        return false;
    }
    return true;
}

static void command(struct script *script, char *line)
{
    char *words[WORDS_MAX + 1] = {0}, *rest = NULL;
    int count = 0;

    for (char *word = strtok_r(line, " \n", &rest); word != NULL && count < WORDS_MAX;
         word = strtok_r(NULL, " \n", &rest))
        words[count++] = word;
    cr_assert_gt(count, 0);
    script->quiet = false;
    if (strcmp(words[0], "cluster") == 0) {
        cluster(script, words);
    } else if (strcmp(words[0], "start") == 0) {
        rig_start(&script->rig, number(words[1]), NULL);
    } else if (strcmp(words[0], "deliver") == 0 || strcmp(words[0], "drop") == 0 ||
               strcmp(words[0], "duplicate") == 0) {
        on_packets(script, words);
    } else if (strcmp(words[0], "settle") == 0) {
        script->quiet = true;
        rig_settle(&script->rig);
    } else if (strcmp(words[0], "wait") == 0) {
        script->rig.now_ns += number(words[1]) * MS;
    } else if (strcmp(words[0], "hand") == 0) {
        script->rig.options.revoke_by_hand |= strcmp(words[1], "revoke") == 0;
        script->rig.options.grant_by_hand |= strcmp(words[1], "grant") == 0;
    } else if (strcmp(words[0], "state") == 0) {
        print_state(script);
    } else {
        struct rig_node *node = rig_node(&script->rig, number(words[1]));
        cr_assert(node != NULL && node_command(script, node, words), "not a command: %s", line);
    }
    rig_check(&script->rig);
}

/* ---- files ----------------------------------------------------------------------------------- */

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t length = 0;

    cr_assert(file != NULL, "cannot open %s", path);
    FILE *copy = open_memstream(&text, &length);
    for (int byte; (byte = fgetc(file)) != EOF;)
        fputc(byte, copy);
    fclose(copy);
    fclose(file);
    return text;
}

/* The text that the file's commands produce now: comments, blank lines and commands stay. */
static char *play(const char *text)
{
    static struct script script;
    char *result = NULL;
    size_t length = 0;

    memset(&script, 0, sizeof(script));
    script.out = open_memstream(&result, &length);
    for (const char *line = text; *line != '\0';) {
        size_t bytes = strcspn(line, "\n");
        if (line[0] == '>' || line[0] == '#' || bytes == 0)
            fprintf(script.out, "%.*s\n", (int)bytes, line);
        if (line[0] == '>') {
            char *copy = strndup(line + 1, bytes - 1);
            command(&script, copy);
            free(copy);
        }
        line += bytes + (line[bytes] == '\n');
    }
    fclose(script.out);
    if (script.running)
        rig_free(&script.rig);
    return result;
}

static void say_difference(const char *name, const char *expected, const char *actual)
{
    unsigned line = 1;

    while (*expected != '\0' && *expected == *actual) {
        line += *expected == '\n';
        expected++;
        actual++;
    }
    cr_assert_fail("%s differs in line %u:\n--- file\n%.300s\n--- now\n%.300s", name, line,
                   expected, actual);
}

static void check_file(const char *name)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/%s", BELAY_GOLDEN_DIR, name);
    char *expected = read_file(path);
    char *actual = play(expected);
    if (getenv("BELAY_GOLDEN_WRITE") != NULL) {
        FILE *file = fopen(path, "w");
        fputs(actual, file);
        fclose(file);
    } else if (strcmp(expected, actual) != 0) {
        say_difference(name, expected, actual);
    }
    free(expected);
    free(actual);
}

Test(raft_golden, transcripts)
{
    struct dirent **entries = NULL;
    int files = 0, count = scandir(BELAY_GOLDEN_DIR, &entries, NULL, alphasort);

    cr_assert_gt(count, 0, "no directory %s", BELAY_GOLDEN_DIR);
    for (int i = 0; i < count; i++) {
        if (strstr(entries[i]->d_name, ".txt") != NULL) {
            check_file(entries[i]->d_name);
            files++;
        }
        free(entries[i]);
    }
    free(entries);
    cr_assert_geq(files, 12);
}
