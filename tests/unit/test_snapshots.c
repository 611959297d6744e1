/* SPDX-License-Identifier: Apache-2.0
 *
 * A plain program: snapshot threads of two nodes in one process, the test as their workers. Files,
 * loading, transfer over loopback, and everything that a peer, a stranger or a disk can do wrong.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hw/clock.h"
#include "hw/journal.h"
#include "mgmt/snapshots_internal.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: failed: %s\n", __FILE__, __LINE__, __func__, #condition);  \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define MILLISECOND_NS UINT64_C(1000000)
#define SECOND_NS      UINT64_C(1000000000)

enum { STATE_BYTES_MAX = 2 * 1024 * 1024, CLUSTER = 77 };

/* Short times: what the default ones do after seconds happens here after a moment. */
static const struct snapshots_tuning hasty = {
    .fetch_give_up_ns = 400 * MILLISECOND_NS,
    .fetch_retry_ns_min = 5 * MILLISECOND_NS,
    .fetch_retry_ns_max = 20 * MILLISECOND_NS,
    .request_timeout_ns = 100 * MILLISECOND_NS,
    .progress_timeout_ns = 200 * MILLISECOND_NS,
    .rate_bytes_per_s = 1 << 30,
    .socket_buffer_bytes = 16 * 1024,
};

/* Long ones, where only success is expected: machines under test are slow. */
static const struct snapshots_tuning patient = {
    .fetch_give_up_ns = 60 * SECOND_NS,
    .fetch_retry_ns_min = 5 * MILLISECOND_NS,
    .fetch_retry_ns_max = 20 * MILLISECOND_NS,
    .request_timeout_ns = 30 * SECOND_NS,
    .progress_timeout_ns = 30 * SECOND_NS,
    .rate_bytes_per_s = 1 << 30,
};

/* ---- nodes ----------------------------------------------------------------------------------- */

struct node_fixture {
    struct node_options options;
    struct snapshots *snapshots;
    struct poller *poller;
    struct mailbox *to_thread;
    struct mailbox *from_thread;
    void *memory[2];
};

static struct node_fixture nodes[2];
static char root_directory[64];

static uint16_t free_tcp_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(fd, (struct sockaddr *)&address, length) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&address, &length) == 0);
    close(fd);
    return ntohs(address.sin_port);
}

static void snapshots_path(const struct node_fixture *node, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/snapshots", node->options.data_directory);
}

static void start(struct node_fixture *node, const struct snapshots_tuning *tuning,
                  uint64_t cluster_id)
{
    size_t bytes = mailbox_memory_bytes(SNAPSHOT_MAILS, sizeof(struct snapshot_mail));
    for (int i = 0; i < 2; i++)
        CHECK((node->memory[i] = aligned_alloc(64, (bytes + 63) / 64 * 64)) != NULL);
    node->to_thread = mailbox_init(node->memory[0], SNAPSHOT_MAILS, sizeof(struct snapshot_mail));
    node->from_thread = mailbox_init(node->memory[1], SNAPSHOT_MAILS, sizeof(struct snapshot_mail));
    CHECK(poller_open(POLLER_ADAPTIVE, 0, &node->poller) == 0);
    const struct snapshots_worker worker = {node->to_thread, node->from_thread, node->poller};
    CHECK(snapshots_start_tuned(&node->options, cluster_id, &worker, 1, tuning, &node->snapshots) ==
          0);
}

static void stop(struct node_fixture *node)
{
    snapshots_stop(node->snapshots);
    poller_close(node->poller);
    free(node->memory[0]);
    free(node->memory[1]);
}

/* Two nodes with empty directories below `parent`; started by the caller. */
static void prepare(const char *parent)
{
    uint16_t ports[2] = {free_tcp_port(), free_tcp_port()};
    for (int i = 0; i < 2; i++) {
        struct node_options *options = &nodes[i].options;
        memset(options, 0, sizeof *options);
        options->node = (uint16_t)(i + 1);
        options->members_count = 2;
        for (int k = 0; k < 2; k++)
            options->members[k] = (struct node_member){
                .node = (uint16_t)(k + 1),
                .peer = {.ip = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}, .port = ports[k]}};
        memset(options->cluster_key, 0x5a, sizeof options->cluster_key);
        snprintf(options->data_directory, sizeof options->data_directory, "%s/node-%d-XXXXXX",
                 parent, i + 1);
        CHECK(mkdtemp(options->data_directory) != NULL);
    }
}

static void start_both(const struct snapshots_tuning *tuning)
{
    prepare(root_directory);
    start(&nodes[0], tuning, CLUSTER);
    start(&nodes[1], tuning, CLUSTER);
}

static void stop_both(void)
{
    stop(&nodes[0]);
    stop(&nodes[1]);
}

/* ---- mails ----------------------------------------------------------------------------------- */

static struct snapshot_mail *claim(struct node_fixture *node, enum snapshot_mail_kind kind,
                                   uint64_t replica)
{
    struct snapshot_mail *mail;
    while ((mail = mailbox_claim(node->to_thread)) == NULL)
        sched_yield();
    memset(mail, 0, offsetof(struct snapshot_mail, block));
    mail->kind = kind;
    mail->shard = 3;
    mail->replica = replica;
    return mail;
}

static void post(struct node_fixture *node)
{
    mailbox_publish(node->to_thread);
    snapshots_wake(node->snapshots);
}

/* The next mail, still in its box: dropped by the caller. */
static const struct snapshot_mail *next_mail(struct node_fixture *node)
{
    uint64_t limit_ns = clock_monotonic_ns() + 60 * SECOND_NS;
    const struct snapshot_mail *mail;
    while ((mail = mailbox_peek(node->from_thread)) == NULL) {
        CHECK(clock_monotonic_ns() < limit_ns);
        poller_rest(node->poller, false, limit_ns);
    }
    return mail;
}

static void expect_end(struct node_fixture *node, enum snapshot_mail_kind kind, int result)
{
    const struct snapshot_mail *mail = next_mail(node);
    if (mail->kind != kind || mail->result != result)
        fprintf(stderr, "kind %u result %d\n", mail->kind, mail->result);
    CHECK(mail->kind == kind);
    CHECK(mail->result == result);
    mailbox_drop(node->from_thread);
}

/* ---- state ----------------------------------------------------------------------------------- */

/* Bytes of a state that differs with its index. */
static void make_state(uint8_t *bytes, size_t length, uint64_t index)
{
    uint8_t seed[randombytes_SEEDBYTES] = {0};
    memcpy(seed, &index, sizeof index);
    randombytes_buf_deterministic(bytes, length, seed);
}

static struct log_base base_of(uint64_t index)
{
    return (struct log_base){.index = index,
                             .term = index / 7 + 1,
                             .position = index * 64,
                             .checksum = index * 1001,
                             .stamp_ns = index * 5};
}

static void save_begin(struct node_fixture *node, uint64_t replica, uint64_t index)
{
    struct snapshot_mail *mail = claim(node, SNAPSHOT_SAVE_BEGIN, replica);
    mail->base = base_of(index);
    mail->token_epoch = 9;
    mail->configuration.index = index - 1;
    mail->configuration.count = 2;
    mail->configuration.members[0] = (struct raft_member){0x11, 1, RAFT_VOTER, {0}};
    mail->configuration.members[1] = (struct raft_member){0x22, 2, RAFT_LEARNER, {0}};
    post(node);
}

static void save_blocks(struct node_fixture *node, uint64_t replica, uint64_t index, size_t length)
{
    static uint8_t state[STATE_BYTES_MAX];
    static const size_t sizes[] = {SNAPSHOT_BLOCK_BYTES, 1, 7, 40000, 4096, 65535};
    make_state(state, length, index);
    size_t at = 0;
    for (size_t i = 0; at < length; i++) {
        struct snapshot_mail *mail = claim(node, SNAPSHOT_SAVE_BLOCK, replica);
        size_t size = sizes[i % (sizeof sizes / sizeof *sizes)];
        mail->length = (uint32_t)(size < length - at ? size : length - at);
        memcpy(mail->block, state + at, mail->length);
        at += mail->length;
        post(node);
    }
}

static void save_end(struct node_fixture *node, uint64_t replica, uint64_t index, int result)
{
    struct snapshot_mail *mail = claim(node, SNAPSHOT_SAVE_END, replica);
    mail->digest = index * 31;
    post(node);
    const struct snapshot_mail *answer = next_mail(node);
    CHECK(answer->kind == SNAPSHOT_SAVED);
    if (answer->result != result)
        fprintf(stderr, "result %d, expected %d\n", answer->result, result);
    CHECK(answer->result == result);
    CHECK(answer->base.index == index);
    CHECK(answer->replica == replica);
    CHECK(answer->shard == 3);
    mailbox_drop(node->from_thread);
}

static void save(struct node_fixture *node, uint64_t replica, uint64_t index, size_t length)
{
    save_begin(node, replica, index);
    save_blocks(node, replica, index, length);
    save_end(node, replica, index, 0);
}

/* LOAD_BEGIN, blocks, LOAD_END: the whole of what was saved at `index`. */
static void expect_state(struct node_fixture *node, uint64_t replica, uint64_t index, size_t length)
{
    static uint8_t expected[STATE_BYTES_MAX], got[STATE_BYTES_MAX];
    const struct snapshot_mail *mail = next_mail(node);
    if (mail->kind != SNAPSHOT_LOAD_BEGIN)
        fprintf(stderr, "kind %u result %d\n", mail->kind, mail->result);
    CHECK(mail->kind == SNAPSHOT_LOAD_BEGIN);
    CHECK(mail->replica == replica && mail->shard == 3);
    const struct log_base base = base_of(index);
    CHECK(memcmp(&mail->base, &base, sizeof base) == 0);
    CHECK(mail->token_epoch == 9);
    CHECK(mail->configuration.count == 2); /* its index is not in a file */
    CHECK(mail->configuration.members[1].replica_id == 0x22);
    mailbox_drop(node->from_thread);
    size_t at = 0;
    for (;;) {
        mail = next_mail(node);
        if (mail->kind != SNAPSHOT_LOAD_BLOCK)
            break;
        CHECK(mail->length > 0 && mail->length <= SNAPSHOT_BLOCK_BYTES);
        CHECK(at + mail->length <= length);
        memcpy(got + at, mail->block, mail->length);
        at += mail->length;
        mailbox_drop(node->from_thread);
    }
    CHECK(mail->kind == SNAPSHOT_LOAD_END && mail->result == 0);
    CHECK(mail->digest == index * 31);
    mailbox_drop(node->from_thread);
    make_state(expected, length, index);
    CHECK(at == length && memcmp(got, expected, length) == 0);
}

static void load(struct node_fixture *node, uint64_t replica)
{
    claim(node, SNAPSHOT_LOAD, replica);
    post(node);
}

static void fetch(struct node_fixture *node, uint64_t replica, uint16_t peer_node, uint64_t least)
{
    struct snapshot_mail *mail = claim(node, SNAPSHOT_FETCH, replica);
    mail->peer_node = peer_node;
    mail->base.index = least;
    post(node);
}

/* ---- files ----------------------------------------------------------------------------------- */

static bool has_file(const struct node_fixture *node, uint64_t replica, uint64_t index)
{
    char path[PATH_MAX], name[SNAPSHOT_NAME_BYTES];
    struct stat status;
    snapshots_path(node, path);
    snapshot_name(name, replica, index);
    strncat(path, "/", sizeof path - strlen(path) - 1);
    strncat(path, name, sizeof path - strlen(path) - 1);
    return stat(path, &status) == 0;
}

static uint32_t count_files(const struct node_fixture *node)
{
    char path[PATH_MAX];
    snapshots_path(node, path);
    DIR *directory = opendir(path);
    CHECK(directory != NULL);
    uint32_t count = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}

static int open_file(const struct node_fixture *node, uint64_t replica, uint64_t index)
{
    char path[PATH_MAX], name[SNAPSHOT_NAME_BYTES];
    snapshots_path(node, path);
    snapshot_name(name, replica, index);
    int directory = open(path, O_RDONLY | O_DIRECTORY);
    int fd = openat(directory, name, O_RDWR);
    CHECK(fd >= 0);
    close(directory);
    return fd;
}

/* Flips one bit, counted from the end. */
static void damage(const struct node_fixture *node, uint64_t replica, uint64_t index,
                   off_t from_end)
{
    int fd = open_file(node, replica, index);
    uint8_t byte;
    off_t at = lseek(fd, 0, SEEK_END) - from_end;
    CHECK(pread(fd, &byte, 1, at) == 1);
    byte ^= 4;
    CHECK(pwrite(fd, &byte, 1, at) == 1);
    close(fd);
}

/* ---- own files ------------------------------------------------------------------------------- */

static void test_save_and_load(void)
{
    start_both(&patient);
    load(&nodes[0], 0x11);
    expect_end(&nodes[0], SNAPSHOT_LOAD_END, -ENOENT);
    save(&nodes[0], 0x11, 50, 1000003);
    load(&nodes[0], 0x11);
    expect_state(&nodes[0], 0x11, 50, 1000003);
    save(&nodes[0], 0x11, 60, 1); /* the least there is */
    load(&nodes[0], 0x11);
    expect_state(&nodes[0], 0x11, 60, 1);
    load(&nodes[0], 0x12); /* another replica's is not its own */
    expect_end(&nodes[0], SNAPSHOT_LOAD_END, -ENOENT);
    stop(&nodes[0]);
    start(&nodes[0], &patient, CLUSTER); /* and after a restart */
    load(&nodes[0], 0x11);
    expect_state(&nodes[0], 0x11, 60, 1);
    stop_both();
}

static void test_newest_two_are_kept(void)
{
    start_both(&patient);
    const uint64_t indexes[] = {10, 30, 20, 40}; /* also if an older one comes late */
    for (int i = 0; i < 4; i++) {
        save(&nodes[0], 0x11, indexes[i], 1000);
        save(&nodes[0], 0x12, indexes[i], 1000);
    }
    CHECK(count_files(&nodes[0]) == 4);
    CHECK(has_file(&nodes[0], 0x11, 30) && has_file(&nodes[0], 0x11, 40));
    CHECK(has_file(&nodes[0], 0x12, 30) && has_file(&nodes[0], 0x12, 40));
    claim(&nodes[0], SNAPSHOT_DROP, 0x11);
    post(&nodes[0]);
    load(&nodes[0], 0x11);
    expect_end(&nodes[0], SNAPSHOT_LOAD_END, -ENOENT);
    CHECK(count_files(&nodes[0]) == 2 && has_file(&nodes[0], 0x12, 40));
    stop_both();
}

static void test_abandoned_saves_leave_nothing(void)
{
    start_both(&patient);
    struct node_fixture *node = &nodes[0];
    save_begin(node, 0x11, 50);
    save_blocks(node, 0x11, 50, 200000);
    claim(node, SNAPSHOT_SAVE_ABORT, 0x11);
    post(node);
    load(node, 0x11);
    expect_end(node, SNAPSHOT_LOAD_END, -ENOENT);
    CHECK(count_files(node) == 0);

    save_begin(node, 0x11, 51); /* its abort found no room: the next BEGIN stands for it */
    save_blocks(node, 0x11, 51, 200000);
    save(node, 0x12, 52, 1000);
    CHECK(count_files(node) == 1 && has_file(node, 0x12, 52));
    save_end(node, 0x11, 0, -EPROTO); /* an end that has no beginning */

    save_begin(node, 0x11, 53); /* dropped in the middle */
    save_blocks(node, 0x11, 53, 1000);
    claim(node, SNAPSHOT_DROP, 0x11);
    post(node);
    save_end(node, 0x11, 0, -EPROTO);
    CHECK(count_files(node) == 1);
    stop_both();
}

static void test_damaged_files_are_not_loaded(void)
{
    start_both(&patient);
    struct node_fixture *node = &nodes[0];
    save(node, 0x11, 50, 300000);
    save(node, 0x11, 60, 300000);
    damage(node, 0x11, 60, 1); /* the last bit of all: nothing of it may have reached the worker */
    load(node, 0x11);
    expect_state(node, 0x11, 50, 300000);
    damage(node, 0x11, 50, 150000);
    load(node, 0x11);
    expect_end(node, SNAPSHOT_LOAD_END, -EBADMSG);

    save(node, 0x11, 70, 300000);
    int fd = open_file(node, 0x11, 70);
    CHECK(ftruncate(fd, lseek(fd, 0, SEEK_END) - SNAPSHOT_FOOTER_BYTES) ==
          0); /* a whole block's end */
    close(fd);
    load(node, 0x11);
    expect_end(node, SNAPSHOT_LOAD_END, -EBADMSG);
    stop_both();
}

static void test_start_tidies_up(void)
{
    start_both(&patient);
    save(&nodes[0], 0x11, 50, 1000);
    stop(&nodes[0]);
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/snapshots/snap.belay.tmp", nodes[0].options.data_directory);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    CHECK(count_files(&nodes[0]) == 2);
    start(&nodes[0], &patient, CLUSTER);
    CHECK(count_files(&nodes[0]) == 1 && has_file(&nodes[0], 0x11, 50));
    stop(&nodes[0]);
    nodes[0].options.durability = NODE_MEMORY; /* its replicas did not outlive their process */
    start(&nodes[0], &patient, CLUSTER);
    CHECK(count_files(&nodes[0]) == 0);
    stop_both();
}

/* ---- transfer -------------------------------------------------------------------------------- */

static void test_fetch(void)
{
    start_both(&patient);
    save(&nodes[0], 0x11, 50, 1500001);
    fetch(&nodes[1], 0x22, 1, 40);
    expect_state(&nodes[1], 0x22, 50, 1500001);
    CHECK(has_file(&nodes[1], 0x22, 50) && count_files(&nodes[1]) == 1);
    stop(&nodes[1]);
    start(&nodes[1], &patient, CLUSTER); /* it is its own now */
    load(&nodes[1], 0x22);
    expect_state(&nodes[1], 0x22, 50, 1500001);
    fetch(&nodes[0], 0x11, 2, 50); /* and can be given back */
    expect_state(&nodes[0], 0x11, 50, 1500001);
    stop_both();
}

static void test_fetch_waits_for_one_new_enough(void)
{
    start_both(&patient);
    save(&nodes[0], 0x11, 50, 1000);
    fetch(&nodes[1], 0x22, 1, 51);
    fetch(&nodes[1], 0x23, 1, 1); /* one at a time */
    expect_end(&nodes[1], SNAPSHOT_LOAD_END, -EBUSY);
    save(&nodes[0], 0x11, 60, 70000);
    expect_state(&nodes[1], 0x22, 60, 70000);
    stop_both();
}

static void test_fetch_waits_for_a_listener(void)
{
    prepare(root_directory);
    start(&nodes[1], &patient, CLUSTER);
    fetch(&nodes[1], 0x22, 1, 50);
    start(&nodes[0], &patient, CLUSTER);
    save(&nodes[0], 0x11, 50, 1000);
    expect_state(&nodes[1], 0x22, 50, 1000);
    stop_both();
}

static void test_fetch_gives_up(void)
{
    start_both(&hasty);
    fetch(&nodes[1], 0x22, 1, 1); /* it has none */
    expect_end(&nodes[1], SNAPSHOT_LOAD_END, -ETIMEDOUT);
    save(&nodes[0], 0x11, 50, 1000);
    fetch(&nodes[1], 0x22, 1, 51); /* none new enough */
    expect_end(&nodes[1], SNAPSHOT_LOAD_END, -ETIMEDOUT);
    claim(&nodes[1], SNAPSHOT_FETCH, 0x22)->peer_node = 3; /* no such node */
    post(&nodes[1]);
    expect_end(&nodes[1], SNAPSHOT_LOAD_END, -EINVAL);
    struct snapshot_mail *mail = claim(&nodes[1], SNAPSHOT_FETCH, 0x22);
    mail->peer_node = 1;
    mail->shard = 4; /* it has none of that shard */
    post(&nodes[1]);
    expect_end(&nodes[1], SNAPSHOT_LOAD_END, -ETIMEDOUT);
    stop(&nodes[0]);
    fetch(&nodes[1], 0x22, 1, 1); /* nobody there */
    expect_end(&nodes[1], SNAPSHOT_LOAD_END, -ETIMEDOUT);
    CHECK(count_files(&nodes[1]) == 0);
    stop(&nodes[1]);
}

static void test_wrong_key_and_wrong_cluster(void)
{
    prepare(root_directory);
    nodes[1].options.cluster_key[15] ^= 1;
    start(&nodes[0], &hasty, CLUSTER);
    start(&nodes[1], &hasty, CLUSTER);
    save(&nodes[0], 0x11, 50, 1000);
    fetch(&nodes[1], 0x22, 1, 1);
    expect_end(&nodes[1], SNAPSHOT_LOAD_END, -ETIMEDOUT);
    stop(&nodes[1]);
    nodes[1].options.cluster_key[15] ^= 1;
    start(&nodes[1], &hasty, CLUSTER + 1);
    fetch(&nodes[1], 0x22, 1, 1);
    expect_end(&nodes[1], SNAPSHOT_LOAD_END, -ETIMEDOUT);
    CHECK(count_files(&nodes[1]) == 0);
    stop_both();
}

static void test_damaged_files_are_not_served(void)
{
    start_both(&hasty);
    save(&nodes[0], 0x11, 50, 300000);
    save(&nodes[0], 0x11, 60, 300000);
    damage(&nodes[0], 0x11, 60, 1);
    fetch(&nodes[1], 0x22, 1, 55); /* only the damaged one would do */
    expect_end(&nodes[1], SNAPSHOT_LOAD_END, -ETIMEDOUT);
    CHECK(count_files(&nodes[1]) == 0);
    fetch(&nodes[1], 0x22, 1, 45); /* the one before it does as well */
    expect_state(&nodes[1], 0x22, 50, 300000);
    stop_both();
}

/* ---- strangers ------------------------------------------------------------------------------- */

static int connect_to(const struct node_fixture *node)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
        .sin_port = htons(node->options.members[node->options.node - 1].peer.port)};
    const int buffer_bytes = 16 * 1024;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes);
    CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

/* Reads until the other side has closed; what came, at most `capacity` of it, is in bytes. */
static size_t read_to_end(int fd, uint8_t *bytes, size_t capacity)
{
    size_t length = 0;
    for (;;) {
        uint8_t beyond[4096];
        struct pollfd poller = {.fd = fd, .events = POLLIN};
        CHECK(poll(&poller, 1, 30000) == 1); /* it must not hang for ever */
        bool room = length < capacity;
        ssize_t got =
            recv(fd, room ? bytes + length : beyond, room ? capacity - length : sizeof beyond, 0);
        if (got <= 0)
            return length;
        length += room ? (size_t)got : 0;
    }
}

static void test_garbage_on_the_port(void)
{
    start_both(&hasty);
    save(&nodes[0], 0x11, 50, 1000);
    for (size_t length = 0; length <= 4096; length = length * 2 + 1) {
        uint8_t garbage[4096], answer[256];
        make_state(garbage, sizeof garbage, length);
        int fd = connect_to(&nodes[0]);
        CHECK(send(fd, garbage, length, MSG_NOSIGNAL) == (ssize_t)length);
        /* The greeting and nothing else, then it is closed: at once, or when its time is over. */
        CHECK(read_to_end(fd, answer, sizeof answer) <= sizeof(struct link_greeting));
        close(fd);
    }
    fetch(&nodes[1], 0x22, 1, 1);
    expect_state(&nodes[1], 0x22, 50, 1000);
    stop_both();
}

static void test_strangers_cannot_keep_peers_out(void)
{
    /* Strangers could stay longer than a fetch waits: only their eviction lets it through. */
    struct snapshots_tuning tuning = patient;
    tuning.request_timeout_ns = 300 * SECOND_NS;
    tuning.fetch_give_up_ns = 20 * SECOND_NS;
    start_both(&tuning);
    save(&nodes[0], 0x11, 50, 1000);
    int strangers[3 * SERVED_MAX];
    for (int i = 0; i < 3 * SERVED_MAX; i++)
        strangers[i] = connect_to(&nodes[0]);
    fetch(&nodes[1], 0x22, 1, 1);
    expect_state(&nodes[1], 0x22, 50, 1000);
    for (int i = 0; i < 3 * SERVED_MAX; i++)
        close(strangers[i]);
    stop_both();
}

/* What a peer asks for that knows the key. */
static struct link_request sound_request(void)
{
    return (struct link_request){
        .cluster_id = CLUSTER, .from_node = 2, .to_node = 1, .shard = 3, .index_least = 1};
}

/* Takes the greeting and sends this request, with one bit of the tag flipped if `forged`. */
static int ask(const struct node_fixture *to, struct link_request request, bool forged,
               struct link_keys *keys)
{
    struct link_greeting greeting;
    int fd = connect_to(to);
    CHECK(recv(fd, &greeting, sizeof greeting, MSG_WAITALL) == sizeof greeting);
    CHECK(link_greeting_sound(&greeting));
    randombytes_buf(request.nonce, sizeof request.nonce);
    link_derive(keys, to->options.cluster_key, greeting.nonce, request.nonce);
    link_request_seal(&request, keys);
    request.tag[LINK_TAG_BYTES - 1] ^= forged;
    CHECK(send(fd, &request, sizeof request, MSG_NOSIGNAL) == sizeof request);
    return fd;
}

/* How many bytes come back; the first frame's result is in *result. */
static size_t answer_to(const struct link_request *request, bool forged, int32_t *result)
{
    struct link_keys keys;
    uint8_t got[8192];
    int fd = ask(&nodes[0], *request, forged, &keys);
    size_t length = read_to_end(fd, got, sizeof got);
    struct link_answer answer = {.result = 1};
    if (length > 0) {
        CHECK(link_frame_check(got, length, 0, &keys) > 0);
        memcpy(&answer, got + sizeof(struct link_frame), sizeof answer);
    }
    *result = answer.result;
    close(fd);
    return length;
}

static void test_requests_are_judged(void)
{
    start_both(&patient);
    save(&nodes[0], 0x11, 50, 1000);
    int32_t result;
    struct link_request request = sound_request();
    CHECK(answer_to(&request, false, &result) > 1000 && result == 0);
    CHECK(answer_to(&request, true, &result) == 0); /* not a byte beyond the greeting */
    request.index_least = 50;
    CHECK(answer_to(&request, false, &result) > 1000 && result == 0);
    request.index_least = 51;
    CHECK(answer_to(&request, false, &result) < 100 && result == -ENOENT);
    request = sound_request();
    request.shard = 4;
    CHECK(answer_to(&request, false, &result) < 100 && result == -ENOENT);
    request = sound_request();
    request.cluster_id++;
    CHECK(answer_to(&request, false, &result) == 0);
    request = sound_request();
    request.to_node = 2; /* sent back to its sender, or on to another node */
    CHECK(answer_to(&request, false, &result) == 0);
    stop_both();
}

/* Peers that ask and do not read take every place; one that does read gets its own once these were
 * found too slow. */
static void test_slow_readers_are_dropped(void)
{
    struct snapshots_tuning tuning = hasty;
    struct link_keys keys[SERVED_MAX];
    int slow[SERVED_MAX];
    static uint8_t got[STATE_BYTES_MAX + 65536];
    tuning.fetch_give_up_ns = 60 * SECOND_NS;
    start_both(&tuning);
    save(&nodes[0], 0x11, 50, STATE_BYTES_MAX);
    for (int i = 0; i < SERVED_MAX; i++)
        slow[i] = ask(&nodes[0], sound_request(), false, &keys[i]);
    fetch(&nodes[1], 0x22, 1, 1);
    expect_state(&nodes[1], 0x22, 50, STATE_BYTES_MAX);
    for (int i = 0; i < SERVED_MAX; i++) {
        size_t length = read_to_end(slow[i], got, sizeof got);
        CHECK(length > 0 && length < STATE_BYTES_MAX); /* an answer, and not all of the file */
        CHECK(link_frame_check(got, length, 0, &keys[i]) > 0);
        close(slow[i]);
    }
    stop_both();
}

/* A server that is not one: what it says is not believed, how long it says nothing does not matter.
 */
static void test_false_server(void)
{
    prepare(root_directory);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons(nodes[0].options.members[0].peer.port)};
    const int yes = 1;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(listen(listener, 64) == 0);
    start(&nodes[1], &hasty, CLUSTER);
    fetch(&nodes[1], 0x22, 1, 1); /* the backlog accepts, and nobody greets */
    expect_end(&nodes[1], SNAPSHOT_LOAD_END, -ETIMEDOUT);
    for (int kind = 0; kind < 3; kind++) {
        fetch(&nodes[1], 0x22, 1, 1);
        bool ended = false;
        while (!ended) {
            struct pollfd poller = {.fd = listener, .events = POLLIN};
            if (poll(&poller, 1, 20) == 1) {
                uint8_t bytes[4096];
                struct link_greeting greeting;
                make_state(bytes, sizeof bytes, (uint64_t)kind);
                link_greet(&greeting, bytes);
                if (kind == 1) /* a sound greeting, then rubbish */
                    memcpy(bytes, &greeting, sizeof greeting);
                int fd = accept(listener, NULL, NULL);
                (void)!send(fd, bytes, kind == 2 ? 1 : sizeof bytes, MSG_NOSIGNAL);
                close(fd);
            }
            ended = mailbox_peek(nodes[1].from_thread) != NULL;
        }
        expect_end(&nodes[1], SNAPSHOT_LOAD_END, -ETIMEDOUT);
    }
    close(listener);
    CHECK(count_files(&nodes[1]) == 0);
    stop(&nodes[1]);
}

/* ---- frames ---------------------------------------------------------------------------------- */

static void test_every_bit_of_a_frame_counts(void)
{
    uint8_t key[LINK_KEY_BYTES] = {1}, nonces[2][LINK_NONCE_BYTES] = {{2}, {3}};
    uint8_t frame[LINK_FRAME_BYTES_MAX], bent[LINK_FRAME_BYTES_MAX];
    struct link_keys keys, others;
    link_derive(&keys, key, nonces[0], nonces[1]);
    memset(frame + sizeof(struct link_frame), 7, 40);
    size_t length = link_frame_seal(frame, LINK_DATA, 40, 5, &keys);
    CHECK(link_frame_check(frame, length, 5, &keys) == (long)length);
    CHECK(link_frame_check(frame, length, 4, &keys) == -EBADMSG); /* repeated, or one missing */
    for (size_t cut = 0; cut < length; cut++)
        CHECK(link_frame_check(frame, cut, 5, &keys) == 0);
    for (size_t bit = 0; bit < 8 * length; bit++) {
        memcpy(bent, frame, length);
        bent[bit / 8] ^= (uint8_t)(1 << bit % 8);
        long whole = link_frame_check(bent, length, 5, &keys);
        CHECK(whole == -EBADMSG || whole == 0); /* 0: it says that it is longer */
    }
    link_derive(&others, key, nonces[1], nonces[0]); /* another connection's */
    CHECK(link_frame_check(frame, length, 5, &others) == -EBADMSG);
    others = keys;
    memcpy(others.to_client, keys.to_server, LINK_KEY_BYTES); /* the other direction's */
    CHECK(link_frame_check(frame, length, 5, &others) == -EBADMSG);

    struct link_request request = {.cluster_id = 1, .shard = 2}, changed;
    link_request_seal(&request, &keys);
    CHECK(link_request_check(&request, &keys));
    for (size_t bit = 0; bit < 8 * sizeof request; bit++) {
        changed = request;
        ((uint8_t *)&changed)[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CHECK(!link_request_check(&changed, &keys));
    }
}

/* ---- a full disk ----------------------------------------------------------------------------- */

static void full_disk(const char *mount_point)
{
    prepare(mount_point);
    nodes[1].options.data_directory[0] = '\0';
    snprintf(nodes[1].options.data_directory, sizeof nodes[1].options.data_directory,
             "%s/node-2-XXXXXX", root_directory);
    CHECK(mkdtemp(nodes[1].options.data_directory) != NULL);
    start(&nodes[0], &patient, CLUSTER);
    start(&nodes[1], &patient, CLUSTER);
    save(&nodes[0], 0x11, 50, 100000);
    save_begin(&nodes[0], 0x11, 60);
    save_blocks(&nodes[0], 0x11, 60, 1500000);
    save_end(&nodes[0], 0x11, 60, -ENOSPC);
    CHECK(count_files(&nodes[0]) == 1 && has_file(&nodes[0], 0x11, 50)); /* nothing lost, or left */
    save(&nodes[0], 0x11, 70, 100000);

    save(&nodes[1], 0x22, 80, 1500000); /* too much to be taken over */
    fetch(&nodes[0], 0x11, 2, 75);
    expect_end(&nodes[0], SNAPSHOT_LOAD_END, -ENOSPC);
    CHECK(count_files(&nodes[0]) == 2);
    load(&nodes[0], 0x11);
    expect_state(&nodes[0], 0x11, 70, 100000);
    stop_both();
}

/* In a child, which alone sees the small file system: before there are threads. */
static void test_full_disk(void)
{
    char mount_point[PATH_MAX];
    snprintf(mount_point, sizeof mount_point, "%s/small", root_directory);
    CHECK(mkdir(mount_point, 0700) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        /* A user of a name space of its own may mount, too. */
        if (unshare(CLONE_NEWNS | (geteuid() == 0 ? 0 : CLONE_NEWUSER)) < 0 ||
            mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("tmpfs", mount_point, "tmpfs", 0, "size=1m,mode=777") < 0) {
            fprintf(stderr, "a small file system cannot be mounted here (%s): not tested\n",
                    strerrordesc_np(errno));
            _exit(0);
        }
        full_disk(mount_point);
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- stopping -------------------------------------------------------------------------------- */

static void test_stop_in_the_middle_of_everything(void)
{
    start_both(&patient);
    save(&nodes[0], 0x11, 50, STATE_BYTES_MAX);
    load(&nodes[0], 0x11); /* more than the mailbox holds, and nobody takes it */
    save_begin(&nodes[0], 0x12, 60);
    save_blocks(&nodes[0], 0x12, 60, 100000);
    fetch(&nodes[1], 0x22, 1, 51); /* waits for what never comes */
    CHECK(next_mail(&nodes[0])->kind == SNAPSHOT_LOAD_BEGIN);
    stop_both();
    CHECK(count_files(&nodes[0]) == 1);
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status, (void)kind, (void)walk;
    return remove(path);
}

#define RUN(test)                                                                                  \
    do {                                                                                           \
        uint64_t begin_ns = clock_monotonic_ns();                                                  \
        test();                                                                                    \
        printf("%-46s %6llu ms\n", #test,                                                          \
               (unsigned long long)((clock_monotonic_ns() - begin_ns) / MILLISECOND_NS));          \
    } while (0)

int main(void)
{
    CHECK(sodium_init() >= 0);
    /* Damage and refusals are expected here. */
    journal_setup((enum journal_level)(JOURNAL_ERROR + 1), JOURNAL_TEXT);
    snprintf(root_directory, sizeof root_directory, "/tmp/belay-snapshots-XXXXXX");
    CHECK(mkdtemp(root_directory) != NULL);
    RUN(test_full_disk);
    RUN(test_every_bit_of_a_frame_counts);
    RUN(test_save_and_load);
    RUN(test_newest_two_are_kept);
    RUN(test_abandoned_saves_leave_nothing);
    RUN(test_damaged_files_are_not_loaded);
    RUN(test_start_tidies_up);
    RUN(test_fetch);
    RUN(test_fetch_waits_for_one_new_enough);
    RUN(test_fetch_waits_for_a_listener);
    RUN(test_fetch_gives_up);
    RUN(test_wrong_key_and_wrong_cluster);
    RUN(test_damaged_files_are_not_served);
    RUN(test_garbage_on_the_port);
    RUN(test_strangers_cannot_keep_peers_out);
    RUN(test_requests_are_judged);
    RUN(test_slow_readers_are_dropped);
    RUN(test_false_server);
    RUN(test_stop_in_the_middle_of_everything);
    nftw(root_directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return 0;
}
