/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshot threads of two nodes in one process, the test as their workers: what the plain programs
 * test_snapshots*.c share.
 */
#ifndef BELAY_TESTS_SNAPSHOTS_RIG_H
#define BELAY_TESTS_SNAPSHOTS_RIG_H

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

static inline uint16_t free_tcp_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(fd, (struct sockaddr *)&address, length) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&address, &length) == 0);
    close(fd);
    return ntohs(address.sin_port);
}

static inline void snapshots_path(const struct node_fixture *node, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/snapshots", node->options.data_directory);
}

static inline void start(struct node_fixture *node, const struct snapshots_tuning *tuning,
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

static inline void stop(struct node_fixture *node)
{
    snapshots_stop(node->snapshots);
    poller_close(node->poller);
    free(node->memory[0]);
    free(node->memory[1]);
}

/* Two nodes with empty directories below `parent`; started by the caller. */
static inline void prepare(const char *parent)
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
                .management = {.ip = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1},
                               .port = ports[k]}};
        memset(options->cluster_key, 0x5a, sizeof options->cluster_key);
        snprintf(options->data_directory, sizeof options->data_directory, "%s/node-%d-XXXXXX",
                 parent, i + 1);
        CHECK(mkdtemp(options->data_directory) != NULL);
    }
}

static inline void start_both(const struct snapshots_tuning *tuning)
{
    prepare(root_directory);
    start(&nodes[0], tuning, CLUSTER);
    start(&nodes[1], tuning, CLUSTER);
}

static inline void stop_both(void)
{
    stop(&nodes[0]);
    stop(&nodes[1]);
}

/* ---- mails ----------------------------------------------------------------------------------- */

static inline struct snapshot_mail *claim(struct node_fixture *node, enum snapshot_mail_kind kind,
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

static inline void post(struct node_fixture *node)
{
    mailbox_publish(node->to_thread);
    snapshots_wake(node->snapshots);
}

/* The next mail, still in its box: dropped by the caller. */
static inline const struct snapshot_mail *next_mail(struct node_fixture *node)
{
    uint64_t limit_ns = clock_monotonic_ns() + 60 * SECOND_NS;
    const struct snapshot_mail *mail;
    while ((mail = mailbox_peek(node->from_thread)) == NULL) {
        CHECK(clock_monotonic_ns() < limit_ns);
        poller_rest(node->poller, false, limit_ns);
    }
    return mail;
}

static inline void expect_end(struct node_fixture *node, enum snapshot_mail_kind kind, int result)
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
static inline void make_state(uint8_t *bytes, size_t length, uint64_t index)
{
    uint8_t seed[randombytes_SEEDBYTES] = {0};
    memcpy(seed, &index, sizeof index);
    randombytes_buf_deterministic(bytes, length, seed);
}

static inline struct log_base base_of(uint64_t index)
{
    return (struct log_base){.index = index,
                             .term = index / 7 + 1,
                             .position = index * 64,
                             .checksum = index * 1001,
                             .stamp_ns = index * 5};
}

static inline void save_begin(struct node_fixture *node, uint64_t replica, uint64_t index)
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

static inline void save_blocks(struct node_fixture *node, uint64_t replica, uint64_t index,
                               size_t length)
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

static inline void save_end(struct node_fixture *node, uint64_t replica, uint64_t index, int result)
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

static inline void save(struct node_fixture *node, uint64_t replica, uint64_t index, size_t length)
{
    save_begin(node, replica, index);
    save_blocks(node, replica, index, length);
    save_end(node, replica, index, 0);
}

/* LOAD_BEGIN, blocks, LOAD_END: the whole of what was saved at `index`. */
static inline void expect_state(struct node_fixture *node, uint64_t replica, uint64_t index,
                                size_t length)
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

static inline void load(struct node_fixture *node, uint64_t replica)
{
    claim(node, SNAPSHOT_LOAD, replica);
    post(node);
}

static inline void fetch(struct node_fixture *node, uint64_t replica, uint16_t peer_node,
                         uint64_t least)
{
    struct snapshot_mail *mail = claim(node, SNAPSHOT_FETCH, replica);
    mail->peer_node = peer_node;
    mail->base.index = least;
    post(node);
}

/* ---- files ----------------------------------------------------------------------------------- */

static inline bool has_file(const struct node_fixture *node, uint64_t replica, uint64_t index)
{
    char directory[PATH_MAX], path[FILE_PATH_BYTES_MAX], name[SNAPSHOT_NAME_BYTES];
    struct stat status;
    snapshots_path(node, directory);
    snapshot_name(name, replica, index);
    CHECK(file_join(path, directory, name) == 0);
    return stat(path, &status) == 0;
}

static inline uint32_t count_files(const struct node_fixture *node)
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

static inline int open_file(const struct node_fixture *node, uint64_t replica, uint64_t index)
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
static inline void damage(const struct node_fixture *node, uint64_t replica, uint64_t index,
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

static inline int remove_one(const char *path, const struct stat *status, int kind,
                             struct FTW *walk)
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

/* Before the tests: a directory of their own, and silence: damage and refusals are expected. */
static inline void rig_open(void)
{
    CHECK(sodium_init() >= 0);
    journal_setup((enum journal_level)(JOURNAL_ERROR + 1), JOURNAL_TEXT);
    snprintf(root_directory, sizeof root_directory, "/tmp/belay-snapshots-XXXXXX");
    CHECK(mkdtemp(root_directory) != NULL);
}

static inline void rig_close(void)
{
    nftw(root_directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

#endif
