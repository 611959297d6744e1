/* SPDX-License-Identifier: Apache-2.0
 *
 * The keeper: gets the lock, publishes its deadline, releases it when nothing of CMD's tree is
 * left.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "client/cli/guard/cgroup.h"
#include "client/cli/guard/internal.h"
#include "client/cli/guard/proctree.h"

enum { KEEPER_ROUND_NS = 2000000 }; /* between two rounds of SIGKILL */

struct keeper {
    struct supervise *supervise;
    struct guard_page *page;
    const struct supervise_feed *feed;
    struct proctree tree;
    unsigned kill_rounds;
    uint64_t publish_every_ns;
    int timer_fd;
};

/* A front that somebody stopped from outside would not notice anything any more, so its lease is
 * not carried on; one that stopped itself for job control said so. */
static bool front_is_stopped(const struct keeper *keeper)
{
    char state = proctree_state_of(keeper->supervise->front);
    return (state == 'T' || state == 't') && !atomic_load(&keeper->page->front_suspended);
}

static void set_ending(struct keeper *keeper, enum guard_cause cause)
{
    uint64_t one = 1;
    if (atomic_load(&keeper->page->ending) == (uint32_t)cause)
        return;
    atomic_store(&keeper->page->ending, cause);
    (void)!write(keeper->supervise->wake_fd, &one, sizeof one);
}

static void publish(struct keeper *keeper)
{
    struct guard_page *page = keeper->page;
    enum guard_cause event = keeper->feed->event(keeper->feed->context);
    uint64_t deadline_ns = keeper->feed->valid_until_ns(keeper->feed->context);

    if (event == GUARD_CAUSE_LOST || deadline_ns == 0)
        set_ending(keeper, GUARD_CAUSE_LOST);
    else if (event == GUARD_CAUSE_REVOKED)
        set_ending(keeper, GUARD_CAUSE_REVOKED);
    if (atomic_load(&page->ending) != GUARD_CAUSE_NONE || front_is_stopped(keeper))
        return;
    if (deadline_ns > atomic_load(&page->deadline_ns))
        atomic_store(&page->deadline_ns, deadline_ns);
}

static bool guardian_was_started(const struct keeper *keeper)
{
    return atomic_load(&keeper->page->guardian_pid) != 0;
}

/* The deadline is at hand and nobody has reported the tree gone: whoever should have ended it is
 * stopped, slow or dead. Done with what this process can reach. The guardian itself is spared: if
 * it is merely slow, it is the one that will say when the tree is gone. */
static void end_by_force(struct keeper *keeper, bool guardian_died)
{
    struct supervise *supervise = keeper->supervise;
    pid_t guardian = atomic_load(&keeper->page->guardian_pid);
    pid_t command = atomic_load(&keeper->page->command_pid);

    cgroup_kill(keeper->page->cgroup);
    if (command > 0 &&
        !atomic_load(&keeper->page->has_status)) /* else its number may be another's */
        (void)kill(-command, SIGKILL);
    if (guardian > 0 && !guardian_died)
        (void)proctree_kill(&keeper->tree, guardian, 0, keeper->kill_rounds++);
    else if (!pidfd_ended(supervise->front_pidfd)) /* the orphans went to the front */
        (void)proctree_kill(&keeper->tree, supervise->front, getpid(), keeper->kill_rounds++);
}

/* True: front and guardian both died without a word. The tree's orphans went to init and cannot be
 * found for certain any more, so the lease must run out by itself. */
static bool all_others_died(const struct keeper *keeper, bool life_hung_up)
{
    return life_hung_up && pidfd_ended(keeper->supervise->front_pidfd) &&
           !atomic_load(&keeper->page->gone);
}

/* Only the kill is certain to be needed; that the group is empty is worth waiting for, to remove
 * it. */
static void end_without_others(struct keeper *keeper)
{
    do {
        end_by_force(keeper, true);
        if (cgroup_remove(keeper->page->cgroup))
            return;
        timer_set(keeper->timer_fd, guard_now_ns() + KEEPER_ROUND_NS);
        struct pollfd rest = {.fd = keeper->timer_fd, .events = POLLIN};
        (void)poll(&rest, 1, -1);
        drain(keeper->timer_fd);
    } while (guard_now_ns() < atomic_load(&keeper->page->deadline_ns));
}

/* Returns whether the lock may be released. */
static bool hold(struct keeper *keeper)
{
    struct supervise *supervise = keeper->supervise;
    bool life_hung_up = false;
    while (!atomic_load(&keeper->page->gone)) {
        struct pollfd fds[] = {
            {.fd = supervise->gone_fd, .events = POLLIN},
            {.fd = keeper->feed->event_fd(keeper->feed->context), .events = POLLIN},
            {.fd = keeper->timer_fd, .events = POLLIN},
            {.fd = life_hung_up ? -1 : supervise->guardian_life[0], .events = POLLIN},
            {.fd = life_hung_up ? supervise->front_pidfd : -1, .events = POLLIN},
        };
        timer_set(keeper->timer_fd, guard_now_ns() + keeper->publish_every_ns);
        (void)poll(fds, sizeof fds / sizeof fds[0], -1);
        if (fds[1].revents)
            drain(fds[1].fd);
        if (fds[2].revents)
            drain(keeper->timer_fd);
        life_hung_up = life_hung_up || fds[3].revents != 0;
        publish(keeper);
        if (all_others_died(keeper, life_hung_up)) {
            end_without_others(keeper);
            return !guardian_was_started(keeper);
        }
        if (guard_now_ns() < guard_force_at_ns(keeper->page))
            continue;
        set_ending(keeper, GUARD_CAUSE_LOST); /* from here on nothing is started either */
        if (!guardian_was_started(keeper))
            return true;
        end_by_force(keeper, life_hung_up);
    }
    return true;
}

static void settle_in(struct supervise *supervise)
{
    sigset_t all;
    setpgid(0, 0);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_NAME, "belay-keeper");
    close(supervise->keeper_link[0]);
    close(supervise->guardian_link[0]);
    close(supervise->guardian_link[1]);
    close(supervise->guardian_life[1]);
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null_fd >= 0) {
        dup2(null_fd, STDIN_FILENO);
        dup2(null_fd, STDOUT_FILENO);
        close(null_fd);
    }
}

static void take_over(struct keeper *keeper, const struct supervise_grant *grant)
{
    struct guard_page *page = keeper->page;
    page->margins = guard_margins_of(grant->ttl_ms);
    page->token = grant->token;
    page->ttl_ms = grant->ttl_ms;
    for (int i = 0; i < GUARD_LEASE_TEXT_BYTES; i++)
        page->lease[i] = grant->lease[i];
    atomic_store(&page->deadline_ns, grant->deadline_ns);
    /* Often enough that what is published lags the truth by a small part of the margins. */
    keeper->publish_every_ns = page->margins.kill_ns / 2;
}

void keeper_main(struct supervise *supervise)
{
    const struct supervise_feed *feed = supervise->feed;
    struct keeper keeper = {.supervise = supervise, .page = supervise->page, .feed = feed};
    struct supervise_grant grant = {0};

    settle_in(supervise);
    keeper.timer_fd = timer_make();
    int code = proctree_init(&keeper.tree) == 0 && keeper.timer_fd >= 0 ? 0 : 118;
    if (code == 0)
        code = feed->acquire(feed->context, supervise->keeper_link[1], &grant);
    if (code != 0) {
        feed->finish(feed->context, true);
        link_send(supervise->keeper_link[1], LINK_FAILED, code);
        _exit(0);
    }
    take_over(&keeper, &grant);
    link_send(supervise->keeper_link[1], LINK_GRANTED, 0);
    feed->finish(feed->context, hold(&keeper));
    _exit(0);
}
