/* SPDX-License-Identifier: Apache-2.0
 *
 * Start and stop of a node: data directory, ports, formation, recovery, workers, snapshot thread.
 */
#include "mgmt/node.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "dataplane/worker.h"
#include "hw/clock.h"
#include "hw/file.h"
#include "hw/journal.h"
#include "mgmt/formation.h"
#include "mgmt/ports.h"
#include "mgmt/recovery.h"
#include "mgmt/snapshots.h"

enum { NODE_ERROR_BYTES = 512 };

struct node {
    struct node_options options;
    struct board board;
    struct manifest manifest;
    struct recovery recovery;
    struct formation formation;
    int lock_descriptor;
    int failure_descriptor;
    pthread_mutex_t failure_mutex; /* text below; written once */
    char failure_text[NODE_ERROR_BYTES];
    _Atomic bool failed;
    char error[NODE_ERROR_BYTES];

    struct worker *workers[NODE_WORKERS_MAX];
    struct arena arenas[NODE_WORKERS_MAX];
    struct shard *shards[WIRE_SHARDS_MAX];
    struct shard_start starts[WIRE_SHARDS_MAX];
    struct snapshots *snapshots;
    struct ports ports;
    uint16_t workers_running;

    pthread_t starter; /* formation, then the rest of the start */
    bool starter_running;
    _Atomic bool stop;
};

__attribute__((format(printf, 3, 4))) static int fail(struct node *node, int result,
                                                      const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(node->error, sizeof node->error, format, arguments);
    va_end(arguments);
    return result;
}

/* ---- failure --------------------------------------------------------------------------------- */

static void give_up(struct node *node, const char *text)
{
    uint64_t one = 1;

    pthread_mutex_lock(&node->failure_mutex);
    if (!node->failure_text[0])
        (void)snprintf(node->failure_text, sizeof node->failure_text, "%s", text);
    atomic_store(&node->failed, true);
    pthread_mutex_unlock(&node->failure_mutex);
    (void)!write(node->failure_descriptor, &one, sizeof one);
}

static void worker_failed(void *context, int error, const char *what)
{
    char text[NODE_ERROR_BYTES];

    (void)snprintf(text, sizeof text, "%s: %s", what, strerror(-error));
    give_up(context, text);
}

bool node_failed(const struct node *node)
{
    return atomic_load(&node->failed);
}

int node_failure_descriptor(const struct node *node)
{
    return node->failure_descriptor;
}

const char *node_failure_text(const struct node *node)
{
    return node->failure_text;
}

/* ---- data directory -------------------------------------------------------------------------- */

static void blank_manifest(struct node *node)
{
    const struct node_options *options = &node->options;
    struct manifest *manifest = &node->manifest;

    memset(manifest, 0, sizeof *manifest);
    do
        randombytes_buf(&manifest->nonce, sizeof manifest->nonce);
    while (!manifest->nonce);
    manifest->node_id = options->node;
    manifest->durability = options->durability == NODE_DISK ? RAFT_DISK : RAFT_MEMORY;
    manifest->shards_count = options->shards;
    manifest->next_incarnation = 1;
    manifest->nodes_count = options->members_count;
    for (uint16_t i = 0; i < options->members_count; i++)
        manifest->nodes[i].node = (uint16_t)(i + 1);
    manifest->nodes[options->node - 1].nonce = manifest->nonce;
}

static int manifest_differs(struct node *node)
{
    const struct node_options *options = &node->options;
    const struct manifest *manifest = &node->manifest;
    const char *directory = options->data_directory;

    if (manifest->node_id != options->node)
        return fail(node, -EINVAL, "%s belongs to node %u, not to node %u", directory,
                    manifest->node_id, options->node);
    if (manifest->shards_count != options->shards)
        return fail(node, -EINVAL,
                    "%s was formed with %u shards, the configuration says %u; the number is fixed "
                    "when a cluster is formed",
                    directory, manifest->shards_count, options->shards);
    if ((manifest->durability == RAFT_DISK) != (options->durability == NODE_DISK))
        return fail(node, -EINVAL, "%s was formed with durability '%s'; it can't be changed",
                    directory, manifest->durability == RAFT_DISK ? "disk" : "memory");
    if (manifest->nodes_count != options->members_count)
        return fail(node, -EINVAL, "%s was formed with %u members, the configuration lists %u",
                    directory, manifest->nodes_count, options->members_count);
    return 0;
}

static int read_manifest(struct node *node)
{
    const char *directory = node->options.data_directory;
    char path[FILE_PATH_BYTES_MAX];
    uint8_t *bytes = malloc(MANIFEST_BYTES_MAX);
    long length;
    int result;

    if (!bytes)
        return fail(node, -ENOMEM, "no memory for the manifest");
    result = file_join(path, directory, MANIFEST_FILE_NAME);
    length = result < 0 ? result : file_read(path, bytes, MANIFEST_BYTES_MAX);
    if (length == -ENOENT) {
        blank_manifest(node);
    } else if (length < 0) {
        result = fail(node, (int)length, "cannot read %s: %s", path, strerror((int)-length));
    } else {
        result = manifest_decode(&node->manifest, bytes, (size_t)length);
        if (result < 0)
            result = fail(node, result,
                          "%s is damaged: this node cannot know which replicas it holds; move the "
                          "directory away and start it blank: it is rebuilt from the others",
                          path);
        else
            result = manifest_differs(node);
    }
    free(bytes);
    return result;
}

static int open_directory(struct node *node)
{
    const char *directory = node->options.data_directory;
    char path[FILE_PATH_BYTES_MAX];
    int result = file_make_directory(directory);

    if (result < 0)
        return fail(node, result, "cannot make the data directory %s: %s", directory,
                    strerror(-result));
    node->lock_descriptor = disk_lock_directory(directory);
    if (node->lock_descriptor == -EWOULDBLOCK)
        return fail(node, -EWOULDBLOCK,
                    "the data directory %s is in use by another belayd; stop that one or choose "
                    "another directory",
                    directory);
    if (node->lock_descriptor < 0)
        return fail(node, node->lock_descriptor, "cannot lock the data directory %s: %s", directory,
                    strerror(-node->lock_descriptor));
    result = file_join(path, directory, RECOVERY_SNAPSHOT_DIRECTORY);
    if (result == 0)
        result = file_make_directory(path);
    if (result < 0)
        return fail(node, result, "cannot make %s: %s", path, strerror(-result));
    return read_manifest(node);
}

/* ---- memory and ports ------------------------------------------------------------------------ */

static size_t arena_bytes(const struct node_options *options, const struct worker *worker)
{
    size_t bytes = worker_memory_bytes(options) + 64 * 1024;

    bytes += worker->shards_count *
             (shard_memory_bytes(options) + sizeof(struct shard) + NODE_MEMBERS_MAX + 4096);
    return bytes;
}

static void take_mailboxes(struct node *node, struct worker *worker, struct arena *arena)
{
    void *memory =
        arena_take(arena, mailbox_memory_bytes(SNAPSHOT_MAILS, sizeof(struct snapshot_mail)));

    worker->to_snapshots = mailbox_init(memory, SNAPSHOT_MAILS, sizeof(struct snapshot_mail));
    memory = arena_take(arena, mailbox_memory_bytes(SNAPSHOT_MAILS, sizeof(struct snapshot_mail)));
    worker->from_snapshots = mailbox_init(memory, SNAPSHOT_MAILS, sizeof(struct snapshot_mail));
    for (uint16_t i = 0; i < node->options.workers; i++) {
        if (i == worker->index)
            continue;
        memory = arena_take(arena,
                            mailbox_memory_bytes(WORKER_HANDOVERS, sizeof(struct worker_handover)));
        worker->inbox[i] = mailbox_init(memory, WORKER_HANDOVERS, sizeof(struct worker_handover));
    }
}

static void take_wal_memory(struct node *node, struct worker *worker, struct arena *arena)
{
    struct wal_options wal_options = worker_wal_options(&node->options, 1);
    uintptr_t block = DISK_BLOCK_BYTES;
    uintptr_t memory =
        (uintptr_t)arena_take(arena, wal_memory_bytes(&wal_options) + DISK_BLOCK_BYTES);

    worker->wal = (struct wal_writer *)((memory + block - 1) & ~(block - 1));
}

static int make_worker(struct node *node, uint16_t index)
{
    const struct node_options *options = &node->options;
    struct arena *arena = &node->arenas[index];
    struct worker sizes = {0};
    struct worker *worker;
    int result;

    worker_init(&sizes, index, options, &node->board);
    /* A worker that owns its core shall not stop for a page that it touches for the first time. */
    bool prefault = options->polling == POLLER_BUSY;
    result = arena_create(arena, arena_bytes(options, &sizes), options->hugepages, prefault);
    if (result < 0)
        return fail(node, result, "cannot map %zu bytes for worker %u: %s",
                    arena_bytes(options, &sizes), index, strerror(-result));
    worker = arena_take(arena, sizeof *worker);
    worker_init(worker, index, options, &node->board);
    worker->effects = arena_take(arena, sizeof *worker->effects);
    worker->fail = worker_failed;
    worker->fail_context = node;
    take_mailboxes(node, worker, arena);
    if (options->durability == NODE_DISK)
        take_wal_memory(node, worker, arena);
    worker->shards = arena_take(arena, worker->shards_count * sizeof *worker->shards);
    worker->peer_workers = arena_take(arena, worker->shards_count * sizeof *worker->peer_workers);
    for (uint32_t i = 0; i < worker->shards_count; i++) {
        uint16_t id = (uint16_t)(index + i * options->workers);

        shard_layout(&worker->shards[i], arena_take(arena, shard_memory_bytes(options)), options);
        node->shards[id] = &worker->shards[i];
        for (uint16_t peer = 0; peer < options->members_count; peer++)
            worker->peer_workers[i][peer] = (uint8_t)index;
    }
    node->workers[index] = worker;
    return poller_open(options->polling, options->spin_ns, &worker->poller);
}

/* ---- what the shards start from -------------------------------------------------------------- */

static void initial_configuration(const struct node *node, uint16_t shard,
                                  struct raft_configuration *configuration)
{
    memset(configuration, 0, sizeof *configuration);
    configuration->count = node->options.members_count;
    for (uint16_t i = 0; i < node->options.members_count; i++)
        configuration->members[i] = (struct raft_member){
            .replica_id = formation_replica_id(node->formation.nonces[i], shard),
            .node = (uint16_t)(i + 1),
            .role = RAFT_VOTER,
        };
}

/* The cluster was formed just now, or this node joins it with new replicas. */
static int start_from_formation(struct node *node)
{
    struct manifest *manifest = &node->manifest;
    bool joins = node->formation.joins;
    int result = 0;

    manifest->cluster_id = node->formation.cluster_id;
    manifest->formed = 1;
    /* A shard that starts from nothing starts above every epoch known. */
    manifest->token_epoch = node->formation.epoch_max + (joins ? 0 : 1);
    manifest->replicas_count = 0;
    for (uint16_t i = 0; i < node->options.members_count; i++) {
        manifest->nodes[i].nonce = node->formation.nonces[i];
        manifest->nodes[i].formed = 1;
    }
    for (uint16_t s = 0; s < node->options.shards && result == 0; s++) {
        uint64_t replica = formation_replica_id(manifest->nonce, s);

        node->starts[s] = (struct shard_start){
            .id = s,
            .replica = replica,
            .token_epoch = (uint16_t)manifest->token_epoch,
            .joining = joins,
        };
        if (!joins)
            initial_configuration(node, s, &node->starts[s].configuration);
        result = manifest_add(manifest, replica, s);
        if (result == 0 && joins)
            manifest_find(manifest, replica)->state = MANIFEST_REBUILDING;
    }
    return result < 0
               ? fail(node, result, "the manifest cannot hold %u shards", node->options.shards)
               : 0;
}

static void wake_snapshots(void *context)
{
    snapshots_wake(((struct node *)context)->snapshots);
}

static void connect_workers(struct node *node)
{
    for (uint16_t i = 0; i < node->options.workers; i++) {
        struct worker *worker = node->workers[i];
        const uint8_t *key = node->options.cluster_key;

        worker->wake_snapshots = wake_snapshots;
        worker->wake_context = node;
        packer_init(&worker->replies, worker->clients, WIRE_KIND_REPLY, node->board.cluster_id,
                    node->options.node, NULL);
        packer_init(&worker->messages, worker->peers, WIRE_KIND_PEER, node->board.cluster_id,
                    node->options.node, key);
        if (worker->disk)
            (void)poller_add_edge(worker->poller, disk_event_fd(worker->disk));
        for (uint16_t k = 0; k < node->options.workers; k++) {
            worker->siblings[k] = node->workers[k]->poller;
            worker->outbox[k] = k == i ? NULL : node->workers[k]->inbox[i];
        }
    }
}

static void begin_shards(struct node *node)
{
    uint64_t now_ns = clock_monotonic_ns();

    for (uint16_t s = 0; s < node->options.shards; s++) {
        struct worker *worker = node->workers[s % node->options.workers];
        struct shard *shard = node->shards[s];

        shard->host = &worker->host;
        shard->host_context = worker;
        shard->board = &node->board;
        shard->wal = node->options.durability == NODE_DISK ? worker->wal : NULL;
        shard->effects = worker->effects;
        shard->turnstile = &worker->turnstile;
        node->board.machines[s] = shard->machine;
        shard_begin(shard, &node->starts[s], now_ns);
    }
}

static int start_snapshots(struct node *node)
{
    struct snapshots_worker mail[NODE_WORKERS_MAX];
    int result;

    for (uint16_t i = 0; i < node->options.workers; i++)
        mail[i] = (struct snapshots_worker){
            .to_thread = node->workers[i]->to_snapshots,
            .from_thread = node->workers[i]->from_snapshots,
            .poller = node->workers[i]->poller,
        };
    result = snapshots_start(&node->options, node->board.cluster_id, mail, node->options.workers,
                             &node->snapshots);
    if (result < 0)
        return fail(node, result,
                    "cannot start the snapshot thread (TCP on the management address): %s",
                    strerror(-result));
    return 0;
}

/* Everything after it is known which cluster this is. */
static int bring_up(struct node *node)
{
    int result = 0;

    if (node->options.durability == NODE_DISK)
        result = recovery_renew(&node->recovery);
    else
        result = recovery_save_manifest(&node->recovery);
    if (result < 0)
        return result;
    node->board.cluster_id = node->manifest.cluster_id;
    node->board.token_epoch = node->manifest.token_epoch;
    for (uint16_t i = 0; i < node->options.members_count; i++)
        node->board.nonces[i] = node->manifest.nodes[i].nonce;
    connect_workers(node);
    result = start_snapshots(node);
    if (result < 0)
        return result;
    begin_shards(node);
    for (uint16_t i = 0; i < node->options.workers; i++)
        arena_seal(&node->arenas[i]);
    BOARD_SET(node->board.state, NODE_RUNNING);
    for (uint16_t i = 0; i < node->options.workers; i++) {
        result = worker_start(node->workers[i]);
        if (result < 0)
            return fail(node, result, "cannot start worker %u: %s", i, strerror(-result));
        node->workers_running++;
    }
    journal_write(JOURNAL_INFO, "running", "node=%u cluster=%016llx shards=%u workers=%u",
                  node->options.node, (unsigned long long)node->board.cluster_id,
                  node->options.shards, node->options.workers);
    return 0;
}

static int form(struct node *node)
{
    struct manifest *manifest = &node->manifest;
    struct port *ports[NODE_WORKERS_MAX];
    int result;

    /* In memory durability nothing outlives the process: each one is a new, blank member. */
    if (manifest->durability == RAFT_MEMORY)
        randombytes_buf(&manifest->nonce, sizeof manifest->nonce);
    for (uint16_t i = 0; i < node->options.workers; i++)
        ports[i] = node->workers[i]->peers;
    result = formation_run(&node->options, ports, node->ports.device ? node->options.workers : 1,
                           manifest->nonce, manifest->token_epoch, &node->stop, &node->formation);
    if (result < 0)
        return result;
    journal_write(JOURNAL_INFO, node->formation.joins ? "joins" : "formed",
                  "node=%u cluster=%016llx", node->options.node,
                  (unsigned long long)node->formation.cluster_id);
    result = start_from_formation(node);
    return result < 0 ? result : bring_up(node);
}

static void *starter_main(void *context)
{
    struct node *node = context;
    int result = form(node);

    if (result < 0 && result != -ECANCELED)
        give_up(node, node->error);
    return NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void tear_down(struct node *node)
{
    for (uint16_t i = 0; i < node->options.workers; i++) {
        struct worker *worker = node->workers[i];

        if (!worker)
            continue;
        if (worker->disk)
            disk_close(worker->disk);
    }
    ports_close(&node->ports, node->workers);
    for (uint16_t i = 0; i < node->options.workers; i++) {
        if (node->workers[i] && node->workers[i]->poller)
            poller_close(node->workers[i]->poller);
    }
    for (uint16_t i = 0; i < node->options.workers; i++) {
        if (node->arenas[i].base)
            arena_destroy(&node->arenas[i]);
    }
    if (node->lock_descriptor >= 0)
        (void)close(node->lock_descriptor);
    if (node->failure_descriptor >= 0)
        (void)close(node->failure_descriptor);
    pthread_mutex_destroy(&node->failure_mutex);
    free(node);
}

static int start(struct node *node)
{
    int result = open_directory(node);

    for (uint16_t i = 0; i < node->options.workers && result == 0; i++)
        result = make_worker(node, i);
    if (result == 0)
        result = ports_open(&node->ports, &node->options, node->workers, node->error,
                            sizeof node->error);
    if (result == 0)
        result = recovery_reserve(&node->recovery);
    if (result < 0)
        return result;
    /* A known cluster on disk starts at once; else the others must be heard first. */
    if (node->manifest.formed && node->options.durability == NODE_DISK) {
        result = recovery_read(&node->recovery);
        return result < 0 ? result : bring_up(node);
    }
    result = -pthread_create(&node->starter, NULL, starter_main, node);
    if (result < 0)
        return fail(node, result, "cannot start a thread: %s", strerror(-result));
    node->starter_running = true;
    return 0;
}

int node_start(const struct node_options *options, struct node **out, char *error,
               size_t error_bytes)
{
    struct node *node;
    int result;

    *out = NULL;
    node = calloc(1, sizeof *node);
    if (!node || sodium_init() < 0) {
        free(node);
        (void)snprintf(error, error_bytes, "no memory to start a node");
        return -ENOMEM;
    }
    node->options = *options;
    node->lock_descriptor = -1;
    node->failure_descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&node->failure_mutex, NULL);
    node->board.options = &node->options;
    node->board.started_ns = clock_monotonic_ns();
    node->board.started_cycles = clock_cycles();
    randombytes_buf(node->board.cookie_secret, sizeof node->board.cookie_secret);
    node->recovery = (struct recovery){
        .options = &node->options,
        .manifest = &node->manifest,
        .shards = node->shards,
        .starts = node->starts,
        .workers = node->workers,
        .error = node->error,
        .error_bytes = sizeof node->error,
    };
    result = start(node);
    if (result < 0) {
        (void)snprintf(error, error_bytes, "%s", node->error);
        node_stop(node);
        return result;
    }
    *out = node;
    return 0;
}

void node_stop(struct node *node)
{
    atomic_store_explicit(&node->stop, true, memory_order_release);
    BOARD_SET(node->board.state, NODE_STOPPING);
    if (node->starter_running)
        (void)pthread_join(node->starter, NULL);
    for (uint16_t i = 0; i < node->workers_running; i++)
        worker_request_stop(node->workers[i]);
    for (uint16_t i = 0; i < node->workers_running; i++)
        worker_join(node->workers[i]);
    if (node->snapshots)
        snapshots_stop(node->snapshots);
    tear_down(node);
}

void node_look(struct node *node)
{
    ports_look(&node->ports);
}

const struct board *node_board(const struct node *node)
{
    return &node->board;
}

enum node_state node_state(const struct node *node)
{
    return (enum node_state)BOARD_GET(node->board.state);
}

bool node_ready(const struct node *node)
{
    if (BOARD_GET(node->board.state) != NODE_RUNNING)
        return false;
    for (uint16_t s = 0; s < node->options.shards; s++) {
        if (!BOARD_GET(node->board.shards[s].leader_node))
            return false;
    }
    return true;
}
