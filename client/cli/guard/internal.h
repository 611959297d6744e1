/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the three processes of client/cli/guard/, see supervise.h.
 */
#ifndef BELAY_CLI_GUARD_INTERNAL_H
#define BELAY_CLI_GUARD_INTERNAL_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/cli/guard/page.h"
#include "client/cli/guard/supervise.h"
#include "client/cli/guard/tty.h"

/* Everything made before the first fork. Descriptors are close-on-exec: CMD sees none of them. */
struct supervise {
    const struct supervise_options *options;
    const struct supervise_feed *feed;
    struct guard_page *page; /* shared */
    struct tty tty;
    sigset_t signals_before; /* CMD gets this mask back */
    int nice_before;         /* and this priority: the guardian's is higher */

    pid_t front;
    int front_pidfd;
    pid_t keeper;
    int keeper_pidfd;
    pid_t guardian; /* 0 = not forked yet */
    int guardian_pidfd;

    int keeper_link[2];   /* [0] front, [1] keeper; datagrams, and an end of file cancels */
    int guardian_link[2]; /* [0] front, [1] guardian; datagrams */
    int guardian_life[2]; /* pipe: [1] open in the guardian alone, so [0] hangs up with it */
    int wake_fd;          /* eventfd: the keeper set page->ending */
    int gone_fd;          /* eventfd: page->gone is set */
};

enum link_kind {
    LINK_GRANTED = 1, /* keeper to front */
    LINK_FAILED = 2,  /* keeper to front: value = exit code */
    LINK_SIGNAL = 3,  /* front to guardian: value = signal for CMD's group */
    LINK_STOPPED = 4, /* guardian to front: value = signal that stopped CMD */
};

struct link_message {
    int32_t kind;
    int32_t value;
};

/* False: the other end is closed, or there is nothing to read now. Never blocks. */
bool link_send(int fd, enum link_kind kind, int value);
bool link_receive(int fd, struct link_message *message);

/* Arms a CLOCK_BOOTTIME timerfd; an instant in the past fires at once. */
void timer_set(int timer_fd, uint64_t at_ns);
int timer_make(void);

/* Takes what a timerfd or eventfd holds, so that poll() rests again. */
void drain(int fd);

/* True if the process behind a pidfd has ended. */
bool pidfd_ended(int pidfd);

/* Writes page->gone and tells those who wait for it. */
void announce_gone(struct supervise *supervise);

_Noreturn void guardian_main(struct supervise *supervise);
_Noreturn void keeper_main(struct supervise *supervise);

/* In the freshly forked child of the guardian: becomes CMD, or reports through report_fd. */
_Noreturn void command_main(struct supervise *supervise, pid_t guardian, int go_fd, int report_fd);

#endif
