/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/guard/front.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/guard/cgroup.h"
#include "client/cli/guard/internal.h"
#include "client/cli/guard/proctree.h"

enum {
    FRONT_GRACE_MS = 5000,
    FRONT_ROUND_NS = 2000000,
};

static const int passed_on[] = {SIGHUP,  SIGINT,  SIGQUIT,  SIGTERM, SIGUSR1,
                                SIGUSR2, SIGCONT, SIGWINCH, SIGTSTP};

enum { PASSED_ON_COUNT = sizeof passed_on / sizeof passed_on[0] };

int front_take_signals(sigset_t *before)
{
    sigset_t taken;
    sigemptyset(&taken);
    for (int i = 0; i < PASSED_ON_COUNT; i++) {
        struct sigaction action;
        if (sigaction(passed_on[i], NULL, &action) != 0 || action.sa_handler == SIG_IGN)
            continue;
        sigaddset(&taken, passed_on[i]);
    }
    /* The terminal is taken back and lent from the background too. */
    sigset_t blocked = taken;
    sigaddset(&blocked, SIGTTOU);
    sigaddset(&blocked, SIGPIPE);
    if (sigprocmask(SIG_BLOCK, &blocked, before) != 0)
        return -1;
    return signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
}

bool front_signal_ends(int signal_number)
{
    return signal_number == SIGHUP || signal_number == SIGINT || signal_number == SIGQUIT ||
           signal_number == SIGTERM;
}

static pid_t command_of(const struct supervise *supervise)
{
    return atomic_load(&supervise->page->command_pid);
}

/* Ctrl-Z reached CMD: this job must look stopped to the shell, all its processes together. The
 * lease is kept meanwhile, which the keeper must know before this process stops. */
static void suspend(struct supervise *supervise)
{
    atomic_store(&supervise->page->front_suspended, 1);
    if (tty_is_foreground(&supervise->tty, command_of(supervise)))
        tty_give(&supervise->tty, getpgrp());
    kill(0, SIGTSTP);
    /* This process has it blocked, and must not stop again by it later. */
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    sigaction(SIGTSTP, &ignore, &before);
    sigaction(SIGTSTP, &before, NULL);
    raise(SIGSTOP);
    /* Continued (`fg`, `bg`): SIGCONT is pending now and does the rest. */
    atomic_store(&supervise->page->front_suspended, 0);
}

static void on_stopped(struct supervise *supervise, int signal_number)
{
    if (supervise->tty.fd < 0 || signal_number == SIGSTOP)
        return; /* somebody stopped CMD on purpose: its lock stays, this process goes on */
    bool wants_terminal = signal_number == SIGTTIN || signal_number == SIGTTOU;
    if (wants_terminal && tty_is_foreground(&supervise->tty, getpgrp())) {
        supervise->tty.lend = true;
        tty_give(&supervise->tty, command_of(supervise));
        link_send(supervise->guardian_link[0], LINK_SIGNAL, SIGCONT);
        return;
    }
    suspend(supervise);
}

static void on_signal(struct supervise *supervise, int signal_number)
{
    if (signal_number == SIGCONT && supervise->tty.lend &&
        tty_is_foreground(&supervise->tty, getpgrp()))
        tty_give(&supervise->tty, command_of(supervise));
    link_send(supervise->guardian_link[0], LINK_SIGNAL, signal_number);
}

/* Takes children that came here from a dead guardian. The keeper is waited for elsewhere. */
static void reap_orphans(struct supervise *supervise)
{
    siginfo_t info;
    for (;;) {
        info.si_pid = 0;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0 ||
            info.si_pid == supervise->keeper)
            return;
        waitpid(info.si_pid, NULL, WNOHANG);
    }
}

/* Stands in for the guardian's word, unless it gave it already or CMD ended by itself. */
static void set_cause(struct guard_page *page, enum guard_cause cause)
{
    uint32_t none = GUARD_CAUSE_NONE;
    if (!atomic_load(&page->has_status))
        atomic_compare_exchange_strong(&page->cause, &none, cause);
}

/* The guardian died with the tree alive: what it was the parent of is below this process now. */
static void end_orphans(struct supervise *supervise, int timer_fd)
{
    struct guard_page *page = supervise->page;
    struct proctree tree;
    unsigned kill_rounds = 0;
    if (proctree_init(&tree) < 0)
        abort(); /* the tree must not live on unseen; CMD itself died with the guardian */
    set_cause(page, GUARD_CAUSE_GUARDIAN);
    int first_signal = supervise->options->on_lost_signal;
    uint64_t grace_ns = first_signal == SIGKILL ? 0 : (uint64_t)FRONT_GRACE_MS * 1000000u;
    uint64_t grace_until_ns = guard_now_ns() + grace_ns;

    (void)proctree_signal(&tree, getpid(), supervise->keeper, first_signal);
    (void)proctree_signal(&tree, getpid(), supervise->keeper, SIGCONT);
    for (;;) {
        reap_orphans(supervise);
        bool in_time = guard_now_ns() < grace_until_ns && guard_now_ns() < guard_kill_at_ns(page);
        int alive;
        if (in_time) {
            alive = proctree_signal(&tree, getpid(), supervise->keeper, 0);
        } else {
            cgroup_kill(page->cgroup);
            alive = proctree_kill(&tree, getpid(), supervise->keeper, kill_rounds++);
        }
        if (alive == 0)
            break;
        timer_set(timer_fd, guard_now_ns() + FRONT_ROUND_NS);
        struct pollfd rest = {.fd = timer_fd, .events = POLLIN};
        (void)poll(&rest, 1, -1);
    }
    (void)cgroup_remove(page->cgroup);
    announce_gone(supervise);
}

static void read_link(struct supervise *supervise)
{
    struct link_message message;
    while (link_receive(supervise->guardian_link[0], &message))
        if (message.kind == LINK_STOPPED)
            on_stopped(supervise, message.value);
}

/* The terminal and, if CMD died of a keystroke, the news of it belong to this whole job: a script
 * that runs belay must see the Ctrl-C that was typed at CMD. */
static void take_terminal_back(struct supervise *supervise)
{
    if (!supervise->tty.lend)
        return;
    bool ours = tty_is_foreground(&supervise->tty, command_of(supervise));
    if (ours)
        tty_give(&supervise->tty, getpgrp());
    int status = atomic_load(&supervise->page->wait_status);
    bool typed = ours && atomic_load(&supervise->page->has_status) && WIFSIGNALED(status) &&
                 WTERMSIG(status) == SIGINT;
    if (typed && getpgrp() != getpid()) {
        struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
        sigaction(SIGINT, &ignore, &before);
        kill(0, SIGINT);
        sigaction(SIGINT, &ignore, NULL); /* drops this process's own copy */
        sigaction(SIGINT, &before, NULL);
    }
}

void front_watch(struct supervise *supervise, int signal_fd)
{
    int timer_fd = timer_make();
    bool ended = false;
    while (!ended) {
        struct pollfd fds[] = {{.fd = supervise->guardian_pidfd, .events = POLLIN},
                               {.fd = signal_fd, .events = POLLIN},
                               {.fd = supervise->guardian_link[0], .events = POLLIN},
                               {.fd = timer_fd, .events = POLLIN}};
        timer_set(timer_fd, guard_force_at_ns(supervise->page));
        (void)poll(fds, sizeof fds / sizeof fds[0], -1);
        struct signalfd_siginfo info;
        while (read(signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
            on_signal(supervise, (int)info.ssi_signo);
        read_link(supervise);
        ended = pidfd_ended(supervise->guardian_pidfd);
        drain(timer_fd);
        /* The tree is still there: the guardian is stopped. Killing it makes the tree this
         * process's own. */
        if (!ended && guard_now_ns() >= guard_force_at_ns(supervise->page)) {
            set_cause(supervise->page, GUARD_CAUSE_DEADLINE);
            kill(supervise->guardian, SIGKILL);
        }
    }
    waitpid(supervise->guardian, NULL, 0);
    if (!atomic_load(&supervise->page->gone))
        end_orphans(supervise, timer_fd);
    take_terminal_back(supervise);
    close(timer_fd);
}
