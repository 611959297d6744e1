/* SPDX-License-Identifier: Apache-2.0
 *
 * A plain program: what strangers, false peers and a full disk can do to snapshot threads; and
 * stopping them in the middle of everything.
 */
#include "tests/unit/snapshots_rig.h"

/* ---- strangers ------------------------------------------------------------------------------- */

static int connect_to(const struct node_fixture *node)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
        .sin_port = htons(node->options.members[node->options.node - 1].management.port)};
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
                                  .sin_port = htons(nodes[0].options.members[0].management.port)};
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

int main(void)
{
    rig_open();
    RUN(test_full_disk);
    RUN(test_every_bit_of_a_frame_counts);
    RUN(test_garbage_on_the_port);
    RUN(test_strangers_cannot_keep_peers_out);
    RUN(test_requests_are_judged);
    RUN(test_slow_readers_are_dropped);
    RUN(test_false_server);
    RUN(test_stop_in_the_middle_of_everything);
    rig_close();
    return 0;
}
