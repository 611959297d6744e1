/* SPDX-License-Identifier: Apache-2.0
 *
 * The controlling terminal, as far as job control needs it.
 */
#ifndef BELAY_CLI_GUARD_TTY_H
#define BELAY_CLI_GUARD_TTY_H

#include <stdbool.h>
#include <sys/types.h>
#include <termios.h>

struct tty {
    int fd;    /* -1 = no terminal */
    bool lend; /* give it to CMD's group when this job is in the foreground */
    bool modes_known;
    struct termios modes; /* as they were at the start */
};

/* Looks at standard input and output. The terminal is lent if this job is in the foreground and its
 * output is not a pipe: the program that reads the pipe (a pager) needs the terminal more. */
void tty_open(struct tty *tty);

bool tty_is_foreground(const struct tty *tty, pid_t group);

/* Makes `group` the foreground one; SIGTTOU must be blocked. */
void tty_give(const struct tty *tty, pid_t group);

void tty_restore_modes(const struct tty *tty);

#endif
