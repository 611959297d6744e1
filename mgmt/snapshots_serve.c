/* SPDX-License-Identifier: Apache-2.0
 *
 * The serving half of the snapshot thread: a TCP listener, a few connections, each with one request
 * and one file. See mgmt/snapshots_internal.h.
 */
#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hw/journal.h"
#include "hw/port_socket.h"
#include "mgmt/snapshots_internal.h"

#define SECOND_NS UINT64_C(1000000000)

enum { LISTEN_BACKLOG = 64 };

/* ---- opening and closing --------------------------------------------------------------------- */

static int listen_on(const struct port_address *address, uint32_t socket_buffer_bytes)
{
    bool ipv4 = port_address_is_ipv4(address);
    struct sockaddr_storage storage = {0};
    socklen_t length = port_address_to_socket(address, ipv4, &storage);
    const int yes = 1, buffer_bytes = (int)socket_buffer_bytes;
    int fd = socket(ipv4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes); /* restarts at once */
    if (socket_buffer_bytes > 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes);
    if (bind(fd, (struct sockaddr *)&storage, length) < 0 || listen(fd, LISTEN_BACKLOG) < 0) {
        int result = -errno;
        close(fd);
        return result;
    }
    return fd;
}

int serve_open(struct snapshots *snapshots, uint32_t socket_buffer_bytes)
{
    for (uint32_t i = 0; i < SERVED_MAX; i++)
        snapshots->served[i].reader.fd = snapshots->served[i].fd = -1;
    const struct port_address *address = NULL;
    snapshots->listen_fd = -1;
    if (snapshots->members_count == 1)
        return 0; /* nobody to serve */
    for (uint16_t i = 0; i < snapshots->members_count; i++)
        if (snapshots->members[i].node == snapshots->node)
            address = &snapshots->members[i].management;
    if (address == NULL)
        return -EINVAL;
    snapshots->listen_fd = listen_on(address, socket_buffer_bytes);
    if (snapshots->listen_fd < 0)
        return snapshots->listen_fd;
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = tag_of(TAG_LISTENER, 0)};
    return epoll_ctl(snapshots->epoll_fd, EPOLL_CTL_ADD, snapshots->listen_fd, &event) < 0 ? -errno
                                                                                           : 0;
}

static void drop(struct served *served)
{
    if (served->fd >= 0)
        close(served->fd);
    store_reader_close(&served->reader);
    served->fd = -1;
    served->stage = SERVED_FREE;
}

void serve_close(struct snapshots *snapshots)
{
    for (uint32_t i = 0; i < SERVED_MAX; i++)
        if (snapshots->served[i].stage != SERVED_FREE)
            drop(&snapshots->served[i]);
    if (snapshots->listen_fd >= 0)
        close(snapshots->listen_fd);
    snapshots->listen_fd = -1;
}

/* Anybody can connect and talk nonsense: one line a second is enough about that. */
static void refuse(struct snapshots *snapshots, struct served *served, const char *reason)
{
    if (snapshots->now_ns >= snapshots->refused_journal_at_ns) {
        snapshots->refused_journal_at_ns = snapshots->now_ns + SECOND_NS;
        journal_write(JOURNAL_WARN, "snapshot_peer_refused", "reason=\"%s\"", reason);
    }
    drop(served);
}

/* ---- connections ----------------------------------------------------------------------------- */

/* A free place, or that of the oldest stranger: who does not authenticate cannot keep peers out. */
static struct served *place(struct snapshots *snapshots)
{
    struct served *oldest = NULL;
    for (uint32_t i = 0; i < SERVED_MAX; i++) {
        struct served *served = &snapshots->served[i];
        if (served->stage == SERVED_FREE)
            return served;
        if (served->stage <= SERVED_REQUEST &&
            (oldest == NULL || served->opened_ns < oldest->opened_ns))
            oldest = served;
    }
    if (oldest != NULL)
        drop(oldest);
    return oldest;
}

static void begin(struct snapshots *snapshots, struct served *served, int fd)
{
    uint8_t nonce[LINK_NONCE_BYTES];
    served->stage = SERVED_GREETING;
    served->fd = fd;
    served->blocked = false;
    served->opened_ns = snapshots->now_ns;
    served->timeout_at_ns = snapshots->now_ns + snapshots->tuning->request_timeout_ns;
    served->request_bytes = 0;
    served->sequence = 0;
    served->last = false;
    randombytes_buf(nonce, sizeof nonce);
    link_greet(&served->greeting, nonce);
    memcpy(served->out, &served->greeting, sizeof served->greeting);
    served->out_bytes = sizeof served->greeting;
    served->out_sent = 0;
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP,
                                .data.u64 =
                                    tag_of(TAG_SERVED, (uint32_t)(served - snapshots->served))};
    if (epoll_ctl(snapshots->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
        drop(served);
}

void serve_accept(struct snapshots *snapshots)
{
    for (uint32_t i = 0; i < SERVED_MAX; i++) {
        int fd = accept4(snapshots->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        struct served *served = place(snapshots);
        if (served == NULL)
            close(fd); /* every place has a peer in it; this one tries again */
        else
            begin(snapshots, served, fd);
    }
}

static void want_output(struct snapshots *snapshots, struct served *served, bool wanted)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | (wanted ? EPOLLOUT : 0u),
                                .data.u64 =
                                    tag_of(TAG_SERVED, (uint32_t)(served - snapshots->served))};
    served->blocked = wanted;
    if (epoll_ctl(snapshots->epoll_fd, EPOLL_CTL_MOD, served->fd, &event) < 0)
        drop(served);
}

/* ---- the request ----------------------------------------------------------------------------- */

/* Opens the newest file that will do; -ENOENT. */
static int open_next(struct snapshots *snapshots, struct served *served, uint64_t below)
{
    const struct link_request *request = &served->request;
    if (!store_newest_of_shard(&snapshots->store, request->shard, request->index_least, below,
                               &served->file))
        return -ENOENT;
    return store_reader_open(&snapshots->store, served->file.name, &served->reader);
}

static void answer(struct served *served, int result, uint64_t file_bytes)
{
    const struct link_answer body = {
        .result = result, .index = served->file.index, .file_bytes = file_bytes};
    memcpy(served->out + sizeof(struct link_frame), &body, sizeof body);
    served->out_bytes =
        link_frame_seal(served->out, LINK_ANSWER, sizeof body, served->sequence++, &served->keys);
    served->out_sent = 0;
    served->file_bytes = file_bytes;
    served->last = file_bytes == 0;
    served->stage = SERVED_SEND;
}

static void take_request(struct snapshots *snapshots, struct served *served)
{
    const struct link_request *request = &served->request;
    link_derive(&served->keys, snapshots->cluster_key, served->greeting.nonce, request->nonce);
    if (!link_request_check(request, &served->keys)) {
        refuse(snapshots, served, "not authentic");
        return;
    }
    if (request->cluster_id != snapshots->cluster_id || request->to_node != snapshots->node) {
        refuse(snapshots, served, "meant for another cluster or node");
        return;
    }
    served->peer_node = request->from_node;
    served->timeout_at_ns = snapshots->now_ns + snapshots->tuning->progress_timeout_ns;
    int result = open_next(snapshots, served, UINT64_MAX);
    if (result == 0)
        served->stage = SERVED_VERIFY;
    else
        answer(served, result, 0);
}

static bool read_request(struct snapshots *snapshots, struct served *served)
{
    uint8_t *to = (uint8_t *)&served->request + served->request_bytes;
    ssize_t got = recv(served->fd, to, sizeof served->request - served->request_bytes, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (got <= 0) {
        drop(served);
        return true;
    }
    served->request_bytes += (size_t)got;
    if (served->request_bytes == sizeof served->request)
        take_request(snapshots, served);
    return true;
}

void serve_event(struct snapshots *snapshots, struct served *served, uint32_t events)
{
    if (served->stage == SERVED_FREE) /* closed by an event of this same turn */
        return;
    if (served->blocked && (events & EPOLLOUT))
        want_output(snapshots, served, false);
    if (events & (EPOLLERR | EPOLLHUP)) {
        drop(served);
    } else if (served->stage == SERVED_REQUEST && (events & EPOLLIN)) {
        (void)read_request(snapshots, served);
    } else if (served->stage > SERVED_REQUEST && (events & (EPOLLIN | EPOLLRDHUP))) {
        drop(served); /* nothing more is to be said: it went away, or does not know the rules */
    }
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Sends nothing of a file that is not sound; an older one may do as well. */
static void verify(struct snapshots *snapshots, struct served *served)
{
    int result = store_reader_step(&served->reader, served->out, PIECE_BYTES, NULL);
    served->timeout_at_ns = snapshots->now_ns + snapshots->tuning->progress_timeout_ns;
    if (result == 0)
        return;
    if (result == 1) {
        result = store_reader_rewind(&served->reader);
        if (result == 0) {
            answer(served, 0, served->reader.file_bytes);
            return;
        }
    }
    journal_write(JOURNAL_ERROR, "snapshot_damaged", "file=%s error=\"%s\"", served->file.name,
                  strerrordesc_np(-result));
    store_reader_close(&served->reader);
    result = open_next(snapshots, served, served->file.index);
    if (result < 0)
        answer(served, result, 0);
}

static void frame_next(struct served *served)
{
    uint8_t *payload = served->out + sizeof(struct link_frame);
    size_t wanted = served->file_bytes < PIECE_BYTES ? (size_t)served->file_bytes : PIECE_BYTES;
    ssize_t got = read(served->reader.fd, payload, wanted);
    if (got <= 0) { /* it was whole a moment ago: the disk; the peer sees the end and tries again */
        drop(served);
        return;
    }
    served->file_bytes -= (uint64_t)got;
    served->last = served->file_bytes == 0;
    served->out_bytes =
        link_frame_seal(served->out, LINK_DATA, (size_t)got, served->sequence++, &served->keys);
    served->out_sent = 0;
}

/* The budget keeps a transfer from taking the cores and the disk away from the workers. */
static bool within_budget(struct snapshots *snapshots)
{
    uint64_t rate = snapshots->tuning->rate_bytes_per_s;
    uint64_t elapsed_ns = snapshots->now_ns - snapshots->budget_at_ns;
    uint64_t filled = elapsed_ns >= SECOND_NS ? rate : elapsed_ns * rate / SECOND_NS;
    if (filled > 0) {
        uint64_t most = rate / 16 > 2 * PIECE_BYTES ? rate / 16 : 2 * PIECE_BYTES;
        snapshots->budget_bytes += filled;
        if (snapshots->budget_bytes > most)
            snapshots->budget_bytes = most;
        snapshots->budget_at_ns = snapshots->now_ns;
    }
    if (snapshots->budget_bytes >= PIECE_BYTES)
        return true;
    wake_by(snapshots, snapshots->now_ns + SECOND_NS / 1000);
    return false;
}

static bool send_out(struct snapshots *snapshots, struct served *served)
{
    ssize_t sent = send(served->fd, served->out + served->out_sent,
                        served->out_bytes - served->out_sent, MSG_NOSIGNAL);
    if (sent < 0) {
        if (errno == EAGAIN)
            want_output(snapshots, served, true);
        else if (errno != EINTR)
            drop(served);
        return false;
    }
    served->out_sent += (size_t)sent;
    snapshots->budget_bytes -=
        (uint64_t)sent < snapshots->budget_bytes ? (uint64_t)sent : snapshots->budget_bytes;
    if (served->stage == SERVED_SEND)
        served->timeout_at_ns = snapshots->now_ns + snapshots->tuning->progress_timeout_ns;
    return true;
}

static void all_sent(struct snapshots *snapshots, struct served *served)
{
    if (served->stage == SERVED_GREETING) {
        served->stage = SERVED_REQUEST;
        (void)read_request(snapshots, served); /* it may be there already */
        return;
    }
    if (served->last) {
        if (served->reader.fd >= 0)
            journal_write(JOURNAL_INFO, "snapshot_served", "file=%s to_node=%u", served->file.name,
                          (unsigned)served->peer_node);
        drop(served);
        return;
    }
    frame_next(served);
}

/* One piece of work for one connection. True: there was some. */
static bool step_one(struct snapshots *snapshots, struct served *served)
{
    switch (served->stage) {
    case SERVED_FREE:
    case SERVED_REQUEST:
        return false;
    case SERVED_VERIFY:
        if (!within_budget(snapshots))
            return false;
        snapshots->budget_bytes -= PIECE_BYTES / 4; /* reading costs less than sending */
        verify(snapshots, served);
        return true;
    case SERVED_GREETING:
    case SERVED_SEND:
        break;
    }
    if (served->blocked || !within_budget(snapshots))
        return false;
    if (served->out_sent < served->out_bytes && !send_out(snapshots, served))
        return false;
    if (served->out_sent == served->out_bytes)
        all_sent(snapshots, served);
    return true;
}

bool serve_step(struct snapshots *snapshots)
{
    bool worked = false;
    for (uint32_t i = 0; i < SERVED_MAX; i++) {
        struct served *served = &snapshots->served[i];
        if (served->stage == SERVED_FREE)
            continue;
        if (snapshots->now_ns >= served->timeout_at_ns) {
            refuse(snapshots, served, "too slow");
            continue;
        }
        worked |= step_one(snapshots, served);
        if (served->stage != SERVED_FREE)
            wake_by(snapshots, served->timeout_at_ns);
    }
    return worked;
}
