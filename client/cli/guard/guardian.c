/* SPDX-License-Identifier: Apache-2.0
 *
 * The guardian: CMD's parent. It starts CMD, passes signals on, and sees to it that nothing of
 * CMD's tree outlives the lease. It depends on nobody: its timer runs on CLOCK_BOOTTIME against a
 * word in shared memory, and the others' deaths reach it through pidfds.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/guard/cgroup.h"
#include "client/cli/guard/internal.h"
#include "client/cli/guard/proctree.h"

enum {
    /* CMD's time to tidy up when the lease itself would allow much longer. */
    GUARD_GRACE_MS = 5000,
    /* Pause between two rounds of SIGKILL. */
    GUARD_KILL_ROUND_NS = 2000000,
    /* Waiting for what CMD left behind, or for tasks the kernel will not let go: seldom matters. */
    GUARD_WATCH_NS = 50000000,
};

enum guardian_phase {
    GUARDIAN_RUNNING,
    GUARDIAN_ENDING, /* the first signal is out, SIGKILL follows at kill_at */
    GUARDIAN_KILLING,
};

struct guardian {
    struct supervise *supervise;
    struct guard_page *page;
    struct proctree tree;
    unsigned kill_rounds;
    enum guardian_phase phase;
    uint64_t grace_until_ns; /* ENDING: SIGKILL at this instant or before the deadline */
    pid_t command;
    bool command_ended;
    int report_fd; /* -1 = CMD has started (or never will) */
    int signal_fd;
    int timer_fd;
};

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t kill_at_ns(const struct guardian *guardian)
{
    return earlier(guardian->grace_until_ns, guard_kill_at_ns(guardian->page));
}

static void signal_tree(struct guardian *guardian, int signal_number)
{
    /* The group at once, then whoever left it: the walk takes a moment. */
    (void)kill(-guardian->command, signal_number);
    (void)proctree_signal(&guardian->tree, getpid(), 0, signal_number);
    /* A stopped process would sleep through it. */
    (void)proctree_signal(&guardian->tree, getpid(), 0, SIGCONT);
}

/* Sends the first signal, once. */
static void end_tree(struct guardian *guardian, enum guard_cause cause, uint64_t grace_ns)
{
    if (guardian->phase != GUARDIAN_RUNNING)
        return;
    /* CMD that ended by itself has its own exit code; the cause is only for one that was ended. */
    if (!guardian->command_ended)
        atomic_store(&guardian->page->cause, cause);
    int signal_number = guardian->supervise->options->on_lost_signal;
    guardian->phase = GUARDIAN_ENDING;
    guardian->grace_until_ns = signal_number == SIGKILL ? 0 : guard_now_ns() + grace_ns;
    if (guard_now_ns() < kill_at_ns(guardian))
        signal_tree(guardian, signal_number);
}

/* What happened to the lease and to the others, in the order of how much it hurries. */
static void judge(struct guardian *guardian)
{
    struct guard_page *page = guardian->page;
    uint64_t grace_ns = (uint64_t)GUARD_GRACE_MS * 1000000u;
    uint32_t ending = atomic_load(&page->ending);

    if (ending == GUARD_CAUSE_LOST)
        end_tree(guardian, GUARD_CAUSE_LOST, page->margins.signal_ns);
    if (guard_now_ns() >= guard_signal_at_ns(page))
        end_tree(guardian, GUARD_CAUSE_DEADLINE, grace_ns);
    if (pidfd_ended(guardian->supervise->keeper_pidfd))
        end_tree(guardian, GUARD_CAUSE_KEEPER, grace_ns);
    if (pidfd_ended(guardian->supervise->front_pidfd))
        end_tree(guardian, GUARD_CAUSE_FRONT, grace_ns);
    if (ending == GUARD_CAUSE_REVOKED) /* still held: CMD may use all the time there is */
        end_tree(guardian, GUARD_CAUSE_REVOKED, UINT64_MAX / 4);
    if (guardian->command_ended && !guardian->supervise->options->leftovers_wait)
        end_tree(guardian, GUARD_CAUSE_NONE, grace_ns);
    if (guardian->phase == GUARDIAN_ENDING && guard_now_ns() >= kill_at_ns(guardian))
        guardian->phase = GUARDIAN_KILLING;
}

/* Front or keeper kill CMD's tree in the place of a guardian that was stopped past the deadline.
 * CMD's death then means that the lock was lost, not that somebody killed CMD. */
static void note_forced_end(struct guardian *guardian, int status)
{
    struct guard_page *page = guardian->page;

    if (guardian->phase != GUARDIAN_RUNNING || !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        return;
    if (atomic_load(&page->ending) == GUARD_CAUSE_LOST)
        atomic_store(&page->cause, GUARD_CAUSE_LOST);
    else if (guard_now_ns() >= guard_force_at_ns(page))
        atomic_store(&page->cause, GUARD_CAUSE_DEADLINE);
}

/* Takes every state change there is. True: nothing of the tree is left, for the kernel says that
 * there is no child and orphans of the tree become children of this subreaper. */
static bool reap(struct guardian *guardian)
{
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG | WUNTRACED);
        if (pid == 0)
            return false;
        if (pid < 0) {
            assert(errno == ECHILD);
            return true;
        }
        if (pid != guardian->command)
            continue;
        if (WIFSTOPPED(status)) {
            link_send(guardian->supervise->guardian_link[1], LINK_STOPPED, WSTOPSIG(status));
            continue;
        }
        note_forced_end(guardian, status);
        guardian->command_ended = true;
        atomic_store(&guardian->page->wait_status, status);
        atomic_store(&guardian->page->has_status, 1);
    }
}

static void pass_signals_on(struct guardian *guardian)
{
    struct link_message message;
    while (link_receive(guardian->supervise->guardian_link[1], &message))
        /* The group's number stays taken while anybody is in it; once CMD was reaped it may be
         * another's, so then only the tree counts. */
        if (message.kind == LINK_SIGNAL && !guardian->command_ended)
            (void)kill(-guardian->command, message.value);
        else if (message.kind == LINK_SIGNAL)
            (void)proctree_signal(&guardian->tree, getpid(), 0, message.value);
}

static void read_report(struct guardian *guardian)
{
    int error = 0;
    if (read(guardian->report_fd, &error, sizeof error) == (ssize_t)sizeof error)
        atomic_store(&guardian->page->exec_errno, (uint32_t)error);
    close(guardian->report_fd);
    guardian->report_fd = -1;
}

static void arm(struct guardian *guardian)
{
    uint64_t at_ns = 0;
    switch (guardian->phase) {
    case GUARDIAN_RUNNING:
        at_ns = guard_signal_at_ns(guardian->page);
        break;
    case GUARDIAN_ENDING:
        at_ns = earlier(kill_at_ns(guardian), guard_now_ns() + GUARD_WATCH_NS);
        break;
    case GUARDIAN_KILLING:
        at_ns = guard_now_ns() + GUARD_KILL_ROUND_NS;
        break;
    }
    timer_set(guardian->timer_fd, at_ns);
}

static void watch(struct guardian *guardian)
{
    struct supervise *supervise = guardian->supervise;
    for (;;) {
        bool over = guardian->phase != GUARDIAN_RUNNING;
        /* Descriptors that stay readable are left out once they have been acted upon. */
        struct pollfd fds[] = {
            {.fd = guardian->timer_fd, .events = POLLIN},
            {.fd = guardian->signal_fd, .events = POLLIN},
            {.fd = supervise->wake_fd, .events = POLLIN},
            {.fd = over ? -1 : supervise->guardian_link[1], .events = POLLIN},
            {.fd = over ? -1 : supervise->front_pidfd, .events = POLLIN},
            {.fd = over ? -1 : supervise->keeper_pidfd, .events = POLLIN},
            {.fd = guardian->report_fd, .events = POLLIN},
        };
        arm(guardian);
        (void)poll(fds, sizeof fds / sizeof fds[0], -1);
        if (fds[0].revents)
            drain(guardian->timer_fd);
        if (fds[1].revents) {
            struct signalfd_siginfo ignored;
            (void)!read(guardian->signal_fd, &ignored, sizeof ignored);
        }
        if (fds[2].revents)
            drain(supervise->wake_fd);
        if (fds[6].revents)
            read_report(guardian);
        pass_signals_on(guardian);
        if (reap(guardian))
            return;
        judge(guardian);
        if (guardian->phase == GUARDIAN_KILLING) {
            cgroup_kill(guardian->page->cgroup);
            if (!guardian->command_ended)
                (void)kill(-guardian->command, SIGKILL); /* the walk takes a moment */
            (void)proctree_kill(&guardian->tree, getpid(), 0, guardian->kill_rounds++);
        }
    }
}

/* False: fork failed. */
static bool start_command(struct guardian *guardian)
{
    struct supervise *supervise = guardian->supervise;
    pid_t self = getpid();
    int go[2], report[2];
    if (pipe2(go, O_CLOEXEC) != 0 || pipe2(report, O_CLOEXEC) != 0)
        return false;
    guardian->command = fork();
    if (guardian->command < 0)
        return false;
    if (guardian->command == 0) {
        close(go[1]);
        command_main(supervise, self, go[0], report[1]);
    }
    setpgid(guardian->command, guardian->command); /* whoever of the two comes first */
    atomic_store(&guardian->page->command_pid, guardian->command);
    (void)cgroup_add(guardian->page->cgroup, guardian->command);
    close(go[0]);
    close(report[1]);
    (void)!write(go[1], "", 1);
    close(go[1]);
    guardian->report_fd = report[0];
    return true;
}

static void settle_in(struct guardian *guardian)
{
    sigset_t all, child;
    setpgid(0, 0);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_NAME, "belay-guardian");
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    guardian->signal_fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    guardian->timer_fd = timer_make();
    /* A page fault at the deadline could wait for a swap device. Not fatal if it is not allowed. */
    (void)mlockall(MCL_CURRENT | MCL_ONFAULT);
    /* Nor should a busy machine delay it. As a rule only root may do this. */
    (void)setpriority(PRIO_PROCESS, 0, -20);
}

/* A reader of CMD's output would wait for an end of file that this process's copies of the
 * descriptors hold back. */
static void let_go_of_streams(void)
{
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null_fd < 0)
        return;
    dup2(null_fd, STDIN_FILENO);
    dup2(null_fd, STDOUT_FILENO);
    close(null_fd);
}

void guardian_main(struct supervise *supervise)
{
    struct guardian guardian = {.supervise = supervise, .page = supervise->page, .report_fd = -1};

    atomic_store(&supervise->page->guardian_pid, getpid());
    close(supervise->guardian_link[0]);
    close(supervise->keeper_link[0]);
    settle_in(&guardian);
    int result = proctree_init(&guardian.tree);
    if (result == 0 && (guardian.signal_fd < 0 || guardian.timer_fd < 0))
        result = -errno;
    if (result == 0 && !start_command(&guardian))
        result = -errno;
    if (result == 0) {
        let_go_of_streams();
        watch(&guardian);
        if (guardian.report_fd >= 0)
            read_report(&guardian);
    } else {
        atomic_store(&supervise->page->exec_errno, (uint32_t)-result);
    }
    (void)cgroup_remove(supervise->page->cgroup);
    announce_gone(supervise);
    _exit(0);
}
