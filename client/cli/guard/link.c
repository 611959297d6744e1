/* SPDX-License-Identifier: Apache-2.0
 *
 * Small pieces the three processes share.
 */
#include <assert.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "client/cli/guard/internal.h"

bool link_send(int fd, enum link_kind kind, int value)
{
    struct link_message message = {.kind = kind, .value = value};
    return send(fd, &message, sizeof message, MSG_DONTWAIT | MSG_NOSIGNAL) ==
           (ssize_t)sizeof message;
}

bool link_receive(int fd, struct link_message *message)
{
    return recv(fd, message, sizeof *message, MSG_DONTWAIT) == (ssize_t)sizeof *message;
}

int timer_make(void)
{
    return timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
}

void timer_set(int timer_fd, uint64_t at_ns)
{
    if (at_ns == 0)
        at_ns = 1; /* 0 would disarm it */
    struct itimerspec when = {.it_value = {.tv_sec = (time_t)(at_ns / 1000000000u),
                                           .tv_nsec = (long)(at_ns % 1000000000u)}};
    int result = timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
    assert(result == 0);
}

void drain(int fd)
{
    uint64_t count;
    (void)!read(fd, &count, sizeof count);
}

bool pidfd_ended(int pidfd)
{
    struct pollfd poll_fd = {.fd = pidfd, .events = POLLIN};
    return poll(&poll_fd, 1, 0) == 1;
}

void announce_gone(struct supervise *supervise)
{
    uint64_t one = 1;
    atomic_store(&supervise->page->gone, 1);
    (void)!write(supervise->gone_fd, &one, sizeof one);
}
