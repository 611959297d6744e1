/* SPDX-License-Identifier: Apache-2.0
 *
 * The supervisor of `belay lock`, driven by a made-up lease: whatever is killed or stopped, nothing
 * of the command's tree is alive at the lease's deadline, and the lock is released only after that.
 *
 * The victims write CLOCK_BOOTTIME into a shared page for as long as they live. The feed writes the
 * true deadline there (the clock a server would go by) and when it released. So each case compares
 * what really happened; it waits on conditions and never for a fixed time.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/exit_codes.h"
#include "client/cli/guard/internal.h"
#include "client/cli/guard/proctree.h"
#include "client/cli/guard/supervise.h"

enum {
    TTL_MS = 2400,
    VICTIMS = 4,
    WAIT_LIMIT_MS = 30000, /* a condition that does not come true by then is a failure */
};

struct victim {
    _Atomic int pid;
    _Atomic uint64_t alive_ns; /* last sign of life */
    _Atomic uint64_t term_ns;  /* when SIGTERM arrived */
    _Atomic uint32_t signals;  /* SIGUSR1 received */
};

/* Shared by all processes of a case. */
struct stage {
    /* the case's wishes */
    _Atomic uint32_t renewing;   /* the feed's lease is renewed */
    _Atomic uint32_t event;      /* enum guard_cause the feed reports */
    _Atomic uint32_t may_finish; /* victims end by themselves */
    _Atomic uint32_t grant_now;  /* the feed may grant */
    _Atomic uint32_t born_late;  /* the feed grants with too little time left */
    _Atomic uint32_t deny;       /* the feed fails with this exit code */
    /* what happened */
    _Atomic int keeper;
    _Atomic int guardian;
    _Atomic uint64_t deadline_ns; /* the latest one the server agreed to */
    _Atomic uint64_t released_ns;
    _Atomic uint64_t abandoned_ns;
    _Atomic int shell_saw[3]; /* wait statuses of its job, + 1 */
    _Atomic uint32_t shell_may_continue;
    struct victim victims[VICTIMS];
};

static struct stage *stage;
static char stage_path[64];
static bool without_cgroup;
static const char *case_name;

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s%s: ", __FILE__, __LINE__, case_name,                        \
                    without_cgroup ? " (walking /proc)" : " (cgroup)");                            \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Waits for a condition without assuming how long it takes. */
#define AWAIT(condition)                                                                           \
    do {                                                                                           \
        uint64_t limit_ns_ = guard_now_ns() + (uint64_t)WAIT_LIMIT_MS * 1000000u;                  \
        while (!(condition)) {                                                                     \
            CHECK(guard_now_ns() < limit_ns_, "never came true: %s", #condition);                  \
            (void)poll(NULL, 0, 1);                                                                \
        }                                                                                          \
    } while (0)

/* ---- victims: this program, run as CMD ------------------------------------------------------- */

static struct victim *self_victim;

static void note_term(int signal_number)
{
    (void)signal_number;
    if (atomic_load(&self_victim->term_ns) == 0)
        atomic_store(&self_victim->term_ns, guard_now_ns());
}

static void note_usr1(int signal_number)
{
    (void)signal_number;
    atomic_fetch_add(&self_victim->signals, 1);
}

static void live(struct victim *victim, bool obeys_term)
{
    self_victim = victim;
    struct sigaction action = {.sa_handler = note_term};
    sigaction(SIGTERM, &action, NULL);
    action.sa_handler = note_usr1;
    sigaction(SIGUSR1, &action, NULL);
    atomic_store(&victim->pid, getpid());
    while (!atomic_load(&stage->may_finish) && !(obeys_term && atomic_load(&victim->term_ns))) {
        atomic_store(&victim->alive_ns, guard_now_ns());
        (void)poll(NULL, 0, 1);
    }
    atomic_store(&victim->alive_ns, guard_now_ns());
}

/* A grandchild in a session of its own whose parent is gone: what a daemon does. */
static void start_daemon(int index)
{
    pid_t middle = fork();
    assert(middle >= 0);
    if (middle > 0) {
        waitpid(middle, NULL, 0);
        return;
    }
    setsid();
    if (fork() == 0) {
        setsid();
        live(&stage->victims[index], false);
    }
    _exit(0);
}

static int victim_main(const char *role)
{
    CHECK(getenv("BELAY_TOKEN") && strcmp(getenv("BELAY_TOKEN"), "18446744073709551615") == 0,
          "BELAY_TOKEN is wrong");
    CHECK(getenv("BELAY_LEASE") && strlen(getenv("BELAY_LEASE")) == 24, "BELAY_LEASE is wrong");
    CHECK(getenv("BELAY_LOCK") && strcmp(getenv("BELAY_LOCK"), "a lock") == 0, "BELAY_LOCK");
    atomic_store(&stage->guardian, getppid());
    if (strcmp(role, "exit7") == 0)
        return 7;
    if (strcmp(role, "usr2") == 0) {
        raise(SIGUSR2);
    } else if (strcmp(role, "obeys") == 0) {
        live(&stage->victims[0], true);
    } else if (strcmp(role, "stubborn") == 0) {
        live(&stage->victims[0], false);
    } else if (strcmp(role, "family") == 0) {
        /* A child in the group, a daemon outside of it, and the parent: none heeds SIGTERM. */
        if (fork() == 0) {
            live(&stage->victims[1], false);
            _exit(0);
        }
        start_daemon(2);
        live(&stage->victims[0], false);
    } else if (strcmp(role, "terminal") == 0) {
        if (tcgetpgrp(STDIN_FILENO) != getpgrp())
            return 5;
        live(&stage->victims[0], false);
    } else if (strcmp(role, "leaves") == 0) {
        start_daemon(2);
        AWAIT(atomic_load(&stage->victims[2].pid) != 0);
        return 3;
    } else if (strcmp(role, "masks") == 0) {
        sigset_t mask;
        sigprocmask(SIG_BLOCK, NULL, &mask);
        for (int i = 1; i < 32; i++)
            if (sigismember(&mask, i))
                return 1;
        for (int fd = 3; fd < 256; fd++)
            if (fcntl(fd, F_GETFD) >= 0)
                return 2;
    }
    return 0;
}

/* ---- the feed -------------------------------------------------------------------------------- */

static uint64_t renewed_deadline_ns(void)
{
    return guard_now_ns() + (uint64_t)TTL_MS * 1000000u;
}

static int feed_acquire(void *context, int cancel_fd, struct supervise_grant *grant)
{
    (void)context;
    atomic_store(&stage->keeper, getpid());
    while (!atomic_load(&stage->grant_now)) {
        struct pollfd cancel = {.fd = cancel_fd, .events = POLLIN};
        if (poll(&cancel, 1, 1) == 1)
            return exit_code_of(BELAY_CANCELLED);
    }
    if (atomic_load(&stage->deny))
        return (int)atomic_load(&stage->deny);
    uint64_t deadline_ns = renewed_deadline_ns();
    if (atomic_load(&stage->born_late)) /* as if the grant had come after a long stall */
        deadline_ns -= (uint64_t)TTL_MS * 1000000u - guard_margins_of(TTL_MS).signal_ns / 2;
    atomic_store(&stage->deadline_ns, deadline_ns);
    *grant = (struct supervise_grant){.token = UINT64_MAX,
                                      .ttl_ms = TTL_MS,
                                      .deadline_ns = deadline_ns,
                                      .lease = "0123456789abcdef01234567"};
    return 0;
}

static uint64_t feed_valid_until_ns(void *context)
{
    (void)context;
    /* Renewals come when a third of the TTL has gone. */
    uint64_t deadline_ns = atomic_load(&stage->deadline_ns);
    uint64_t left_ns = deadline_ns - guard_now_ns();
    if (atomic_load(&stage->renewing) && left_ns < (uint64_t)TTL_MS * 1000000u * 2 / 3)
        atomic_store(&stage->deadline_ns, renewed_deadline_ns());
    return atomic_load(&stage->deadline_ns);
}

static enum guard_cause feed_event(void *context)
{
    (void)context;
    return (enum guard_cause)atomic_load(&stage->event);
}

static int feed_event_fd(void *context)
{
    return *(int *)context;
}

static void feed_finish(void *context, bool release)
{
    (void)context;
    atomic_store(release ? &stage->released_ns : &stage->abandoned_ns, guard_now_ns());
}

/* ---- running a case -------------------------------------------------------------------------- */

static void open_stage(void)
{
    int fd = memfd_create("stage", MFD_CLOEXEC);
    assert(fd >= 0 && ftruncate(fd, sizeof *stage) == 0);
    void *page = mmap(NULL, sizeof *stage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert(page != MAP_FAILED);
    stage = page;
    snprintf(stage_path, sizeof stage_path, "/proc/%d/fd/%d", (int)getpid(), fd);
    setenv("STAGE", stage_path, 1);
}

static void begin(const char *name)
{
    case_name = name;
    memset(stage, 0, sizeof *stage);
    atomic_store(&stage->renewing, 1);
    atomic_store(&stage->grant_now, 1);
}

struct play {
    pid_t front;
    int pidfd;
};

static int supervise_here(char **words, int on_lost_signal, bool leftovers_wait)
{
    int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct supervise_feed feed = {.context = &event_fd,
                                  .acquire = feed_acquire,
                                  .valid_until_ns = feed_valid_until_ns,
                                  .event = feed_event,
                                  .event_fd = feed_event_fd,
                                  .finish = feed_finish};
    struct supervise_options options = {.command = words,
                                        .lock_name = "a lock",
                                        .on_lost_signal = on_lost_signal,
                                        .leftovers_wait = leftovers_wait,
                                        .without_cgroup = without_cgroup};
    return supervise_run(&options, &feed);
}

static struct play start_words(char **words, int on_lost_signal, bool leftovers_wait)
{
    fflush(NULL);
    pid_t front = fork();
    assert(front >= 0);
    if (front == 0)
        _exit(supervise_here(words, on_lost_signal, leftovers_wait));
    return (struct play){.front = front, .pidfd = pidfd_open(front, 0)};
}

static struct play start(const char *role)
{
    char *words[] = {"/proc/self/exe", "--victim", (char *)role, NULL};
    return start_words(words, SIGTERM, false);
}

/* The wait status of the front. */
static int finish(struct play play)
{
    struct pollfd ended = {.fd = play.pidfd, .events = POLLIN};
    CHECK(poll(&ended, 1, WAIT_LIMIT_MS) == 1, "the front did not end");
    close(play.pidfd);
    int status;
    assert(waitpid(play.front, &status, 0) == play.front);
    return status;
}

static int exit_code(struct play play)
{
    int status = finish(play);
    CHECK(WIFEXITED(status), "the front died of signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

static void await_victims(int first, int last)
{
    for (int i = first; i <= last; i++)
        AWAIT(atomic_load(&stage->victims[i].pid) != 0);
}

/* A zombie is as dead as can be: its parent may be stopped. */
static bool is_alive(const struct victim *victim)
{
    char state = proctree_state_of(atomic_load(&victim->pid));
    return state != '\0' && state != 'Z' && state != 'X';
}

/* The promise: dead before the deadline, and released (if at all) only then. */
static void check_all_dead_in_time(void)
{
    uint64_t deadline_ns = atomic_load(&stage->deadline_ns);
    uint64_t released_ns = atomic_load(&stage->released_ns);
    for (int i = 0; i < VICTIMS; i++) {
        struct victim *victim = &stage->victims[i];
        uint64_t alive_ns = atomic_load(&victim->alive_ns);
        if (atomic_load(&victim->pid) == 0)
            continue;
        AWAIT(!is_alive(victim));
        CHECK(atomic_load(&victim->alive_ns) < deadline_ns, "victim %d outlived it by %lld us", i,
              (long long)(alive_ns - deadline_ns) / 1000);
        CHECK(!released_ns || alive_ns < released_ns, "victim %d outlived the release", i);
    }
}

static void await_end_of_keeper(void)
{
    AWAIT(atomic_load(&stage->released_ns) || atomic_load(&stage->abandoned_ns));
}

/* ---- the cases ------------------------------------------------------------------------------- */

static void exit_codes_pass_through(void)
{
    begin("exit code 7");
    CHECK(exit_code(start("exit7")) == 7, "7 is not 7");
    CHECK(atomic_load(&stage->released_ns), "not released");
    begin("ended by a signal");
    CHECK(exit_code(start("usr2")) == 128 + SIGUSR2, "128 + n");
    begin("not found");
    char *missing[] = {"/nonexistent/command", NULL};
    CHECK(exit_code(start_words(missing, SIGTERM, false)) == 127, "127");
    CHECK(atomic_load(&stage->released_ns), "not released");
    begin("not executable");
    char *directory[] = {"/proc", NULL};
    CHECK(exit_code(start_words(directory, SIGTERM, false)) == 126, "126");
    begin("refused");
    atomic_store(&stage->deny, 101);
    CHECK(exit_code(start("exit7")) == 101, "the feed's own code");
    begin("signal mask and descriptors of CMD");
    CHECK(exit_code(start("masks")) == 0, "CMD inherits something");
}

static void renewals_carry_it_on(void)
{
    begin("renewals");
    struct play play = start("family");
    await_victims(0, 2);
    uint64_t first_ns = atomic_load(&stage->deadline_ns);
    AWAIT(guard_now_ns() > first_ns + (uint64_t)TTL_MS * 1000000u);
    for (int i = 0; i < 3; i++)
        CHECK(is_alive(&stage->victims[i]) && !atomic_load(&stage->victims[i].term_ns),
              "victim %d was ended under a good lease", i);
    atomic_store(&stage->may_finish, 1);
    CHECK(exit_code(play) == 0, "exit code");
    check_all_dead_in_time();
}

static void lease_runs_out(void)
{
    begin("no renewal succeeds");
    struct play play = start("family");
    await_victims(0, 2);
    atomic_store(&stage->renewing, 0);
    CHECK(exit_code(play) == exit_code_of(BELAY_LOST), "exit code");
    check_all_dead_in_time();
    struct guard_margins margins = guard_margins_of(TTL_MS);
    uint64_t deadline_ns = atomic_load(&stage->deadline_ns);
    for (int i = 0; i < 3; i++) {
        uint64_t term_ns = atomic_load(&stage->victims[i].term_ns);
        CHECK(term_ns && term_ns < deadline_ns - margins.kill_ns, "victim %d: no SIGTERM first", i);
        CHECK(term_ns >= deadline_ns - margins.signal_ns, "victim %d: SIGTERM too early", i);
    }
}

static void lease_runs_out_without_grace(void)
{
    begin("--on-lost KILL");
    char *words[] = {"/proc/self/exe", "--victim", "stubborn", NULL};
    struct play play = start_words(words, SIGKILL, false);
    await_victims(0, 0);
    atomic_store(&stage->renewing, 0);
    CHECK(exit_code(play) == exit_code_of(BELAY_LOST), "exit code");
    CHECK(!atomic_load(&stage->victims[0].term_ns), "SIGTERM was sent");
    check_all_dead_in_time();
}

static void front_is_killed(void)
{
    begin("kill -9 of the front");
    struct play play = start("obeys");
    await_victims(0, 0);
    kill(play.front, SIGKILL);
    (void)finish(play);
    await_end_of_keeper();
    CHECK(atomic_load(&stage->victims[0].term_ns), "SIGTERM comes first");
    CHECK(atomic_load(&stage->released_ns), "the lock goes as soon as the tree is gone");
    check_all_dead_in_time();
    /* At once: the keeper went on renewing, so nothing but the death itself ended CMD. */
    begin("kill -9 of the front, stubborn family");
    play = start("family");
    await_victims(0, 2);
    kill(play.front, SIGKILL);
    (void)finish(play);
    await_end_of_keeper();
    check_all_dead_in_time();
}

static void front_is_stopped(void)
{
    begin("SIGSTOP of the front");
    struct play play = start("family");
    await_victims(0, 2);
    kill(play.front, SIGSTOP);
    uint64_t limit_ns = atomic_load(&stage->deadline_ns) + (uint64_t)TTL_MS * 1000000u;
    for (int i = 0; i < 3; i++)
        AWAIT(!is_alive(&stage->victims[i]));
    CHECK(guard_now_ns() < limit_ns, "the lease of a stopped front was carried on");
    kill(play.front, SIGCONT);
    CHECK(exit_code(play) == exit_code_of(BELAY_LOST), "exit code");
    check_all_dead_in_time();
}

static void keeper_is_killed(void)
{
    begin("kill -9 of the keeper");
    struct play play = start("family");
    await_victims(0, 2);
    kill(atomic_load(&stage->keeper), SIGKILL);
    CHECK(exit_code(play) == exit_code_of(BELAY_SYSTEM), "exit code");
    check_all_dead_in_time();
}

static void keeper_is_stopped(void)
{
    begin("SIGSTOP of the keeper");
    struct play play = start("family");
    await_victims(0, 2);
    kill(atomic_load(&stage->keeper), SIGSTOP);
    for (int i = 0; i < 3; i++)
        AWAIT(!is_alive(&stage->victims[i]));
    check_all_dead_in_time();
    kill(atomic_load(&stage->keeper), SIGCONT);
    CHECK(exit_code(play) == exit_code_of(BELAY_LOST), "exit code");
}

static void guardian_is_killed(void)
{
    begin("kill -9 of the guardian");
    struct play play = start("family");
    await_victims(0, 2);
    kill(atomic_load(&stage->guardian), SIGKILL);
    CHECK(exit_code(play) == exit_code_of(BELAY_SYSTEM), "exit code");
    check_all_dead_in_time();
    CHECK(atomic_load(&stage->released_ns), "not released");
}

static void guardian_is_stopped(void)
{
    begin("SIGSTOP of the guardian");
    struct play play = start("family");
    await_victims(0, 2);
    kill(atomic_load(&stage->guardian), SIGSTOP);
    atomic_store(&stage->renewing, 0);
    (void)exit_code(play);
    check_all_dead_in_time();
}

static void front_and_guardian_are_killed(void)
{
    begin("kill -9 of front and guardian");
    struct play play = start("stubborn");
    await_victims(0, 0);
    kill(play.front, SIGSTOP); /* so that both are gone before either can act */
    kill(atomic_load(&stage->guardian), SIGKILL);
    kill(play.front, SIGKILL);
    (void)finish(play);
    await_end_of_keeper();
    CHECK(atomic_load(&stage->abandoned_ns), "a lock nobody can vouch for is left to run out");
    check_all_dead_in_time();
}

static void all_are_killed(void)
{
    begin("kill -9 of front, keeper and guardian");
    struct play play = start("stubborn");
    await_victims(0, 0);
    kill(play.front, SIGSTOP); /* so that none can act before all are gone */
    kill(atomic_load(&stage->keeper), SIGSTOP);
    kill(atomic_load(&stage->guardian), SIGKILL);
    kill(play.front, SIGKILL);
    kill(atomic_load(&stage->keeper), SIGKILL);
    (void)finish(play);
    check_all_dead_in_time();
}

static void lock_is_lost(void)
{
    begin("the server says lost");
    struct play play = start("family");
    await_victims(0, 2);
    uint64_t deadline_ns = atomic_load(&stage->deadline_ns);
    atomic_store(&stage->event, GUARD_CAUSE_LOST);
    CHECK(exit_code(play) == exit_code_of(BELAY_LOST), "exit code");
    CHECK(atomic_load(&stage->victims[0].alive_ns) < deadline_ns + (uint64_t)TTL_MS * 333333u,
          "not ended at once");
    CHECK(atomic_load(&stage->victims[2].term_ns), "SIGTERM comes first");
    check_all_dead_in_time();
    begin("an operator revokes");
    play = start("obeys");
    await_victims(0, 0);
    atomic_store(&stage->event, GUARD_CAUSE_REVOKED);
    CHECK(exit_code(play) == exit_code_of(BELAY_LOST), "exit code");
    CHECK(atomic_load(&stage->released_ns), "given back");
    check_all_dead_in_time();
}

static void never_started_too_late(void)
{
    begin("too late to start");
    atomic_store(&stage->born_late, 1);
    atomic_store(&stage->renewing, 0);
    CHECK(exit_code(start("stubborn")) == exit_code_of(BELAY_LOST), "exit code");
    CHECK(atomic_load(&stage->victims[0].pid) == 0, "it ran");
}

/* The check right before the exec: time may have passed since the front looked. */
static void not_executed_too_late(bool in_time)
{
    begin("the last check before CMD");
    char *words[] = {"/bin/true", NULL};
    struct supervise_options options = {.command = words, .lock_name = "a lock"};
    struct guard_page page = {.margins = guard_margins_of(TTL_MS)};
    struct supervise supervise = {.options = &options, .page = &page, .tty = {.fd = -1}};
    sigemptyset(&supervise.signals_before);
    uint64_t deadline_ns = guard_now_ns() + page.margins.signal_ns;
    atomic_store(&page.deadline_ns, in_time ? deadline_ns + 3600000000000u : deadline_ns);
    int go[2], report[2], status, error = 0;
    assert(pipe2(go, O_CLOEXEC) == 0 && pipe2(report, O_CLOEXEC) == 0);
    assert(write(go[1], "", 1) == 1);
    pid_t self = getpid(), child = fork();
    assert(child >= 0);
    if (child == 0)
        command_main(&supervise, self, go[0], report[1]);
    assert(waitpid(child, &status, 0) == child);
    close(report[1]);
    ssize_t bytes = read(report[0], &error, sizeof error);
    if (in_time)
        CHECK(bytes == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0, "it did not run");
    else
        CHECK(bytes == (ssize_t)sizeof error && error == ESTALE, "it ran (%d)", error);
    close(go[0]);
    close(go[1]);
    close(report[0]);
}

static void granted_while_the_front_was_stopped(void)
{
    begin("granted to a stopped front");
    atomic_store(&stage->grant_now, 0);
    struct play play = start("stubborn");
    AWAIT(atomic_load(&stage->keeper) != 0);
    kill(play.front, SIGSTOP);
    atomic_store(&stage->grant_now, 1);
    await_end_of_keeper();
    CHECK(atomic_load(&stage->released_ns), "released unused");
    kill(play.front, SIGCONT);
    CHECK(exit_code(play) == exit_code_of(BELAY_LOST), "exit code");
    CHECK(atomic_load(&stage->victims[0].pid) == 0, "it ran");
}

static void leftovers(void)
{
    begin("leftovers are ended");
    CHECK(exit_code(start("leaves")) == 3, "exit code");
    CHECK(atomic_load(&stage->victims[2].term_ns), "SIGTERM comes first");
    check_all_dead_in_time();
    begin("leftovers are waited for");
    char *words[] = {"/proc/self/exe", "--victim", "leaves", NULL};
    struct play play = start_words(words, SIGTERM, true);
    await_victims(2, 2);
    uint64_t first_ns = atomic_load(&stage->deadline_ns);
    AWAIT(guard_now_ns() > first_ns);
    CHECK(is_alive(&stage->victims[2]) && !atomic_load(&stage->released_ns), "not held for it");
    atomic_store(&stage->may_finish, 1);
    CHECK(exit_code(play) == 3, "exit code");
    check_all_dead_in_time();
}

static void signals_are_passed_on(void)
{
    begin("SIGUSR1 goes to the whole group");
    struct play play = start("family");
    await_victims(0, 2);
    kill(play.front, SIGUSR1);
    AWAIT(atomic_load(&stage->victims[0].signals) == 1);
    AWAIT(atomic_load(&stage->victims[1].signals) == 1);
    CHECK(atomic_load(&stage->victims[2].signals) == 0, "it left the group");
    kill(play.front, SIGTERM);
    AWAIT(atomic_load(&stage->victims[0].term_ns) && atomic_load(&stage->victims[1].term_ns));
    CHECK(is_alive(&stage->victims[0]), "a SIGTERM from a person is CMD's to decide upon");
    atomic_store(&stage->may_finish, 1);
    CHECK(exit_code(play) == 0, "exit code");

    begin("SIGINT while waiting for the lock");
    atomic_store(&stage->grant_now, 0);
    play = start("stubborn");
    AWAIT(atomic_load(&stage->keeper) != 0);
    kill(play.front, SIGINT);
    CHECK(exit_code(play) == 128 + SIGINT, "exit code");
    CHECK(atomic_load(&stage->released_ns), "cancelled");
    CHECK(atomic_load(&stage->victims[0].pid) == 0, "it ran");

    begin("front killed while waiting for the lock");
    atomic_store(&stage->grant_now, 0);
    play = start("stubborn");
    AWAIT(atomic_load(&stage->keeper) != 0);
    kill(play.front, SIGKILL);
    (void)finish(play);
    AWAIT(atomic_load(&stage->released_ns));
}

/* What an interactive shell does with one job: foreground, Ctrl-Z, `fg`, Ctrl-C. */
static void be_a_shell(const char *terminal)
{
    signal(SIGTTOU, SIG_IGN);
    setsid();
    int fd = open(terminal, O_RDWR);
    for (int i = 0; i < 3; i++)
        dup2(fd, i == 2 ? 1 : i); /* stderr stays: it is where failures go */
    pid_t job = fork();
    if (job == 0) {
        setpgid(0, 0);
        tcsetpgrp(STDIN_FILENO, getpid());
        signal(SIGTTOU, SIG_DFL);
        char *words[] = {"/proc/self/exe", "--victim", "terminal", NULL};
        _exit(supervise_here(words, SIGTERM, false));
    }
    setpgid(job, job);
    for (int i = 0; i < 3; i++) {
        int status;
        pid_t pid = waitpid(job, &status, WUNTRACED | WCONTINUED);
        atomic_store(&stage->shell_saw[i], pid == job ? status + 1 : -1);
        if (!WIFSTOPPED(status))
            continue;
        tcsetpgrp(STDIN_FILENO, getpgrp());
        AWAIT(atomic_load(&stage->shell_may_continue));
        tcsetpgrp(STDIN_FILENO, job);
        kill(-job, SIGCONT);
    }
    _exit(0);
}

static int shell_saw(int which)
{
    AWAIT(atomic_load(&stage->shell_saw[which]) != 0);
    return atomic_load(&stage->shell_saw[which]) - 1;
}

static void job_control(void)
{
    begin("job control");
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    pid_t shell = fork();
    assert(shell >= 0);
    if (shell == 0)
        be_a_shell(ptsname(master));
    await_victims(0, 0);
    assert(write(master, "\x1a", 1) == 1); /* Ctrl-Z */
    CHECK(WIFSTOPPED(shell_saw(0)), "the shell does not see the job stopped");
    AWAIT(proctree_state_of(atomic_load(&stage->victims[0].pid)) == 'T');
    uint64_t stopped_ns = atomic_load(&stage->deadline_ns);
    AWAIT(guard_now_ns() > stopped_ns + (uint64_t)TTL_MS * 1000000u);
    CHECK(proctree_state_of(atomic_load(&stage->victims[0].pid)) == 'T',
          "a suspended command does not keep its lock");
    uint64_t before_ns = atomic_load(&stage->victims[0].alive_ns);
    atomic_store(&stage->shell_may_continue, 1);
    CHECK(WIFCONTINUED(shell_saw(1)), "not continued");
    AWAIT(atomic_load(&stage->victims[0].alive_ns) > before_ns);
    assert(write(master, "\x03", 1) == 1); /* Ctrl-C */
    int status = shell_saw(2);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGINT, "status %x", (unsigned)status);
    CHECK(atomic_load(&stage->released_ns), "not released");
    check_all_dead_in_time();
    waitpid(shell, NULL, 0);
    close(master);
}

static void margins_fit_every_ttl(void)
{
    case_name = "margins";
    for (uint64_t ttl_ms = 1; ttl_ms < 100000000; ttl_ms += 1 + ttl_ms / 7) {
        struct guard_margins margins = guard_margins_of(ttl_ms);
        CHECK(margins.signal_ns <= ttl_ms * 500000, "TTL %llu", (unsigned long long)ttl_ms);
        CHECK(margins.kill_ns <= margins.signal_ns / 2, "TTL %llu", (unsigned long long)ttl_ms);
        CHECK(margins.signal_ns <= 5000000000u, "TTL %llu", (unsigned long long)ttl_ms);
    }
    CHECK(guard_margins_of(10000).signal_ns == 2000000000u, "10 s: 2 s");
    CHECK(guard_margins_of(10000).kill_ns == 1000000000u, "10 s: 1 s");
    CHECK(guard_margins_of(1000).signal_ns == 200000000u, "1 s: 200 ms");
}

static void half_of_cases(bool first)
{
    if (!first) {
        keeper_is_stopped();
        guardian_is_killed();
        guardian_is_stopped();
        front_and_guardian_are_killed();
        all_are_killed();
        lock_is_lost();
        never_started_too_late();
        not_executed_too_late(false);
        not_executed_too_late(true);
        granted_while_the_front_was_stopped();
        leftovers();
        signals_are_passed_on();
        job_control();
        return;
    }
    exit_codes_pass_through();
    renewals_carry_it_on();
    lease_runs_out();
    lease_runs_out_without_grace();
    front_is_killed();
    front_is_stopped();
    keeper_is_killed();
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--victim") == 0) {
        int fd = open(getenv("STAGE"), O_RDWR | O_CLOEXEC);
        void *page = fd < 0 ? MAP_FAILED
                            : mmap(NULL, sizeof *stage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (page == MAP_FAILED)
            return 99;
        close(fd);
        stage = page;
        case_name = argv[2];
        return victim_main(argv[2]);
    }
    (void)close_range(3, UINT32_MAX, 0); /* what a test runner left open is not the subject */
    margins_fit_every_ttl();
    /* Side by side: they mostly wait. */
    pid_t lanes[4];
    for (int lane = 0; lane < 4; lane++) {
        lanes[lane] = fork();
        assert(lanes[lane] >= 0);
        if (lanes[lane] == 0) {
            without_cgroup = lane % 2 == 1;
            open_stage();
            half_of_cases(lane / 2 == 0);
            exit(0);
        }
    }
    bool passed = true;
    for (int lane = 0; lane < 4; lane++) {
        int status;
        assert(waitpid(lanes[lane], &status, 0) == lanes[lane]);
        passed = passed && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    if (passed)
        puts("guardian: all cases passed, with a cgroup (where one can be made) and without");
    return passed ? 0 : 1;
}
