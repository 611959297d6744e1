/* SPDX-License-Identifier: Apache-2.0
 *
 * The last steps before CMD runs.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "client/cli/guard/internal.h"

static void set_environment(const struct supervise *supervise)
{
    char token[24];
    snprintf(token, sizeof token, "%llu", (unsigned long long)supervise->page->token);
    setenv("BELAY_TOKEN", token, 1);
    setenv("BELAY_LEASE", supervise->page->lease, 1);
    setenv("BELAY_LOCK", supervise->options->lock_name, 1);
    if (supervise->options->name_space)
        setenv("BELAY_NAMESPACE", supervise->options->name_space, 1);
}

void command_main(struct supervise *supervise, pid_t guardian, int go_fd, int report_fd)
{
    int error = 0;
    char go;

    setpgid(0, 0);
    (void)setpriority(PRIO_PROCESS, 0, supervise->nice_before);
    if (supervise->tty.lend)
        tty_give(&supervise->tty, getpid());
    /* If everybody above is killed at once, at least CMD itself goes with the guardian. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != guardian)
        _exit(1);
    /* The guardian first puts this process where it can find it. */
    if (read(go_fd, &go, 1) != 1)
        _exit(1);
    set_environment(supervise);
    sigprocmask(SIG_SETMASK, &supervise->signals_before, NULL);
    /* The check stands as near to the exec as it can. Should this process be held up between the
     * two, the guardian ends it at the deadline like any other CMD. */
    if (guard_may_start(supervise->page)) {
        execvp(supervise->options->command[0], supervise->options->command);
        error = errno;
    } else {
        error = ESTALE;
    }
    (void)!write(report_fd, &error, sizeof error);
    _exit(1);
}
