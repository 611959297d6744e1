/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/guard/tty.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

void tty_open(struct tty *tty)
{
    *tty = (struct tty){.fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY)};
    if (tty->fd < 0)
        return;
    struct stat output;
    bool output_is_pipe = fstat(STDOUT_FILENO, &output) == 0 && S_ISFIFO(output.st_mode);
    tty->lend = isatty(STDIN_FILENO) && !output_is_pipe && tty_is_foreground(tty, getpgrp());
    tty->modes_known = tcgetattr(tty->fd, &tty->modes) == 0;
}

bool tty_is_foreground(const struct tty *tty, pid_t group)
{
    return tty->fd >= 0 && group > 0 && tcgetpgrp(tty->fd) == group;
}

void tty_give(const struct tty *tty, pid_t group)
{
    if (tty->fd >= 0)
        (void)tcsetpgrp(tty->fd, group);
}

void tty_restore_modes(const struct tty *tty)
{
    if (tty->fd >= 0 && tty->modes_known)
        (void)tcsetattr(tty->fd, TCSADRAIN, &tty->modes);
}
