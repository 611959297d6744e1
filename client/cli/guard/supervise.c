/* SPDX-License-Identifier: Apache-2.0
 *
 * The front: what the shell started. It waits for the grant, lets the guardian start CMD, passes
 * signals on, and stands in for the guardian should that die.
 */
#include "client/cli/guard/supervise.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/exit_codes.h"
#include "client/cli/guard/cgroup.h"
#include "client/cli/guard/front.h"
#include "client/cli/guard/internal.h"

static bool make_channels(struct supervise *supervise)
{
    int type = SOCK_SEQPACKET | SOCK_CLOEXEC;
    supervise->front = getpid();
    supervise->nice_before = getpriority(PRIO_PROCESS, 0);
    supervise->front_pidfd = pidfd_open(supervise->front, 0);
    supervise->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    supervise->gone_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    void *page = mmap(NULL, sizeof *supervise->page, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    supervise->page = page == MAP_FAILED ? NULL : page;
    return supervise->page && supervise->front_pidfd >= 0 && supervise->wake_fd >= 0 &&
           supervise->gone_fd >= 0 && socketpair(AF_UNIX, type, 0, supervise->keeper_link) == 0 &&
           socketpair(AF_UNIX, type, 0, supervise->guardian_link) == 0 &&
           pipe2(supervise->guardian_life, O_CLOEXEC) == 0;
}

static bool start_keeper(struct supervise *supervise)
{
    supervise->keeper = fork();
    if (supervise->keeper < 0)
        return false;
    if (supervise->keeper == 0)
        keeper_main(supervise);
    supervise->keeper_pidfd = pidfd_open(supervise->keeper, 0);
    close(supervise->keeper_link[1]);
    return supervise->keeper_pidfd >= 0;
}

static bool start_guardian(struct supervise *supervise)
{
    if (!supervise->options->without_cgroup)
        (void)cgroup_make(supervise->page->cgroup, sizeof supervise->page->cgroup);
    supervise->guardian = fork();
    if (supervise->guardian < 0) {
        supervise->guardian = 0;
        (void)cgroup_remove(supervise->page->cgroup);
        return false;
    }
    if (supervise->guardian == 0)
        guardian_main(supervise);
    atomic_store(&supervise->page->guardian_pid, supervise->guardian);
    supervise->guardian_pidfd = pidfd_open(supervise->guardian, 0);
    close(supervise->guardian_link[1]);
    close(supervise->guardian_life[1]);
    return supervise->guardian_pidfd >= 0;
}

/* Waits until the lock is held (0), or gives the exit code. A signal cancels. */
static int wait_for_grant(struct supervise *supervise, int signal_fd)
{
    int cancelled_by = 0;
    for (;;) {
        struct pollfd fds[] = {{.fd = supervise->keeper_link[0], .events = POLLIN},
                               {.fd = signal_fd, .events = POLLIN}};
        (void)poll(fds, 2, -1);
        struct signalfd_siginfo info = {0};
        if (fds[1].revents && read(signal_fd, &info, sizeof info) == (ssize_t)sizeof info &&
            front_signal_ends((int)info.ssi_signo)) {
            cancelled_by = (int)info.ssi_signo;
            /* An end of file, not a message: one that is never read would reset the link and
             * destroy the answer on its way back. */
            shutdown(supervise->keeper_link[0], SHUT_WR);
        } else if (fds[1].revents && info.ssi_signo == SIGTSTP) {
            /* No CMD to stop yet. A lock that is granted meanwhile is not carried on. */
            raise(SIGSTOP);
        }
        if (!fds[0].revents)
            continue;
        struct link_message message;
        if (!link_receive(supervise->keeper_link[0], &message)) {
            fprintf(stderr, "belay: the process that keeps the lease died; nothing was started\n");
            return exit_code_of(BELAY_SYSTEM);
        }
        if (cancelled_by)
            return EXIT_CODE_SIGNAL_BASE + cancelled_by;
        return message.kind == LINK_GRANTED ? 0 : message.value;
    }
}

/* What belay has to say about how it ended, and the exit code that goes with it. */
static int explain(const struct supervise *supervise)
{
    const struct guard_page *page = supervise->page;
    const char *name = supervise->options->lock_name;
    const char *command = supervise->options->command[0];
    int exec_errno = (int)atomic_load(&page->exec_errno);
    int status = atomic_load(&page->wait_status);

    if (exec_errno == ESTALE) {
        fprintf(stderr, "belay: lost '%s' before '%s' could be started; run it again\n", name,
                command);
        return exit_code_of(BELAY_LOST);
    }
    if (exec_errno != 0) {
        fprintf(stderr, "belay: cannot run '%s': %s\n", command, strerror(exec_errno));
        return exec_errno == ENOENT ? EXIT_CODE_NOT_FOUND : EXIT_CODE_NOT_EXECUTABLE;
    }
    const char *why = NULL;
    switch ((enum guard_cause)atomic_load(&page->cause)) {
    case GUARD_CAUSE_NONE:
        if (atomic_load(&page->has_status))
            return WIFSIGNALED(status) ? EXIT_CODE_SIGNAL_BASE + WTERMSIG(status)
                                       : WEXITSTATUS(status);
        fprintf(stderr, "belay: '%s' ended, but its exit code is not known\n", command);
        return exit_code_of(BELAY_SYSTEM);
    case GUARD_CAUSE_DEADLINE:
        why = "no renewal succeeded in time";
        break;
    case GUARD_CAUSE_LOST:
        why = "its lease is over";
        break;
    case GUARD_CAUSE_REVOKED:
        why = "an operator took it back";
        break;
    case GUARD_CAUSE_KEEPER:
    case GUARD_CAUSE_FRONT:
    case GUARD_CAUSE_GUARDIAN:
        fprintf(stderr, "belay: ended '%s', for a process of belay died while it held '%s'\n",
                command, name);
        return exit_code_of(BELAY_SYSTEM);
    }
    fprintf(stderr, "belay: lost '%s' (%s): ended '%s'; check `belay status`, then run it again\n",
            name, why ? why : "cause unknown", command);
    return exit_code_of(BELAY_LOST);
}

/* The keeper releases the lock now; its own time limit bounds the wait. */
static void await_keeper(const struct supervise *supervise)
{
    while (waitpid(supervise->keeper, NULL, 0) < 0 && errno == EINTR)
        ;
}

static int run(struct supervise *supervise, int signal_fd)
{
    int code = wait_for_grant(supervise, signal_fd);
    if (code == 0 && !guard_may_start(supervise->page)) {
        atomic_store(&supervise->page->exec_errno, ESTALE);
        code = explain(supervise);
    } else if (code == 0 && !start_guardian(supervise)) {
        fprintf(stderr, "belay: cannot start a process: %s\n", strerror(errno));
        code = exit_code_of(BELAY_SYSTEM);
    } else if (code == 0) {
        front_watch(supervise, signal_fd);
        code = explain(supervise);
    }
    if (!atomic_load(&supervise->page->gone))
        announce_gone(supervise);
    await_keeper(supervise);
    return code;
}

static void close_all(struct supervise *supervise)
{
    int fds[] = {
        supervise->front_pidfd,    supervise->keeper_pidfd,     supervise->guardian_pidfd,
        supervise->keeper_link[0], supervise->guardian_link[0], supervise->guardian_life[0],
        supervise->wake_fd,        supervise->gone_fd,          supervise->tty.fd};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    munmap(supervise->page, sizeof *supervise->page);
}

int supervise_run(const struct supervise_options *options, const struct supervise_feed *feed)
{
    struct supervise supervise = {.options = options,
                                  .feed = feed,
                                  .front_pidfd = -1,
                                  .keeper_pidfd = -1,
                                  .guardian_pidfd = -1};
    int signal_fd = -1;
    bool ready = make_channels(&supervise);
    if (ready) {
        signal_fd = front_take_signals(&supervise.signals_before);
        /* What the guardian leaves behind, should it be killed, comes to this process. */
        ready = signal_fd >= 0 && prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 && start_keeper(&supervise);
    }
    if (!ready) {
        fprintf(stderr, "belay: cannot set up the supervisor: %s\n", strerror(errno));
        return exit_code_of(BELAY_SYSTEM);
    }
    tty_open(&supervise.tty);
    int code = run(&supervise, signal_fd);
    if (supervise.tty.lend && code >= EXIT_CODE_STATUS_BASE)
        tty_restore_modes(&supervise.tty);
    close_all(&supervise);
    close(signal_fd);
    sigprocmask(SIG_SETMASK, &supervise.signals_before, NULL);
    return code;
}
