/* SPDX-License-Identifier: Apache-2.0
 *
 * See hw/poller.h. Sleeping is an epoll wait with a nanosecond timeout; a wake-up from another
 * thread is an eventfd in the same set.
 *
 * No wake-up is lost, because `state` is changed by atomic exchanges only:
 *   - a waker first publishes its message, then sets NOTIFIED; it writes the eventfd if and only if
 *     it found ASLEEP;
 *   - the owner looked for messages while the state was AWAKE, and goes to sleep only by changing
 *     AWAKE into ASLEEP. A message it missed has its waker still to come (which finds ASLEEP and
 *     writes) or already gone by (the state is NOTIFIED, the change fails, the owner looks again).
 * The eventfd is edge-triggered and never read: each write is a new edge, and a counter of 64 bits
 * does not fill up.
 */
#include "hw/poller.h"

#include <assert.h>
#include <errno.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "hw/clock.h"

enum { PORTS_MAX = 4, NAP_SHARE = 8, NAP_NS_MIN = 5000, NAP_NS_MAX = 500000 };
enum poller_state { POLLER_AWAKE, POLLER_ASLEEP, POLLER_NOTIFIED };

struct poller {
    enum poller_mode mode;
    int epoll_descriptor;
    int event_descriptor;
    uint64_t spin_ns;
    uint64_t worked_ns; /* when an iteration last found anything */
    bool naps;          /* some port wakes nobody */
    uint32_t ports_count;
    struct port *ports[PORTS_MAX];
    /* A line of its own: other threads write it. */
    alignas(64) _Atomic int state; /* enum poller_state */
    char padding[60];
};

static int poller_set_up(struct poller *poller)
{
    poller->epoll_descriptor = epoll_create1(EPOLL_CLOEXEC);
    if (poller->epoll_descriptor < 0)
        return -errno;
    poller->event_descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (poller->event_descriptor < 0)
        return -errno;
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    if (epoll_ctl(poller->epoll_descriptor, EPOLL_CTL_ADD, poller->event_descriptor, &event) < 0)
        return -errno;
    /* Kernels before 5.11 lack this call: say so now, not in the middle of the night. */
    struct timespec at_once = {0};
    if (epoll_pwait2(poller->epoll_descriptor, &event, 1, &at_once, NULL) < 0)
        return -errno;
    return 0;
}

int poller_open(enum poller_mode mode, uint64_t spin_ns, struct poller **poller)
{
    struct poller *opened = aligned_alloc(alignof(struct poller), sizeof *opened);
    if (opened == NULL)
        return -ENOMEM;
    *opened = (struct poller){
        .mode = mode, .epoll_descriptor = -1, .event_descriptor = -1, .spin_ns = spin_ns};
    atomic_init(&opened->state, POLLER_AWAKE);
    int result = poller_set_up(opened);
    if (result < 0) {
        poller_close(opened);
        return result;
    }
    *poller = opened;
    return 0;
}

void poller_close(struct poller *poller)
{
    if (poller == NULL)
        return;
    if (poller->event_descriptor >= 0)
        close(poller->event_descriptor);
    if (poller->epoll_descriptor >= 0)
        close(poller->epoll_descriptor);
    free(poller);
}

static int add(struct poller *poller, int descriptor, uint32_t events)
{
    struct epoll_event event = {.events = events};
    int result = epoll_ctl(poller->epoll_descriptor, EPOLL_CTL_ADD, descriptor, &event);
    return result < 0 ? -errno : 0;
}

int poller_add(struct poller *poller, int descriptor)
{
    return add(poller, descriptor, EPOLLIN);
}

int poller_add_edge(struct poller *poller, int descriptor)
{
    return add(poller, descriptor, EPOLLIN | EPOLLET);
}

int poller_add_port(struct poller *poller, struct port *port)
{
    int descriptor = port_descriptor(port);
    if (poller->ports_count == PORTS_MAX)
        return -ENOSPC;
    poller->ports[poller->ports_count++] = port;
    port_wakes(port, poller);
    if (descriptor >= 0) {
        int result = poller_add(poller, descriptor);
        return result == -EEXIST ? 0 : result; /* two ports of one queue have the same */
    }
    poller->naps |= descriptor == PORT_LOOK_AGAIN;
    return 0;
}

void poller_wake(struct poller *poller)
{
    if (atomic_exchange_explicit(&poller->state, POLLER_NOTIFIED, memory_order_acq_rel) !=
        POLLER_ASLEEP)
        return;
    int saved_errno = errno; /* a signal handler may be calling */
    const uint64_t one = 1;
    ssize_t written = write(poller->event_descriptor, &one, sizeof one);
    assert(written == (ssize_t)sizeof one);
    errno = saved_errno;
}

static void sleep_until(struct poller *poller, uint64_t now_ns, uint64_t deadline_ns)
{
    struct timespec timeout;
    const struct timespec *limit = NULL; /* UINT64_MAX: for ever */
    if (deadline_ns != UINT64_MAX) {
        uint64_t sleep_ns = deadline_ns - now_ns;
        timeout.tv_sec = (time_t)(sleep_ns / UINT64_C(1000000000));
        timeout.tv_nsec = (long)(sleep_ns % UINT64_C(1000000000));
        limit = &timeout;
    }
    /* What is readable does not matter: the owner polls everything it has. */
    struct epoll_event event;
    int ready = epoll_pwait2(poller->epoll_descriptor, &event, 1, limit, NULL);
    assert(ready >= 0 || errno == EINTR);
}

static uint64_t nap_until(const struct poller *poller, uint64_t now_ns, uint64_t deadline_ns)
{
    uint64_t nap_ns = (now_ns - poller->worked_ns) / NAP_SHARE;
    if (!poller->naps)
        return deadline_ns;
    nap_ns = nap_ns < NAP_NS_MIN ? NAP_NS_MIN : nap_ns > NAP_NS_MAX ? NAP_NS_MAX : nap_ns;
    return deadline_ns - now_ns < nap_ns ? deadline_ns : now_ns + nap_ns;
}

static bool arm(struct poller *poller)
{
    bool quiet = true;
    for (uint32_t i = 0; i < poller->ports_count; i++)
        quiet &= port_arm(poller->ports[i]);
    return quiet;
}

static void disarm(struct poller *poller)
{
    for (uint32_t i = 0; i < poller->ports_count; i++)
        port_disarm(poller->ports[i]);
}

uint64_t poller_rest(struct poller *poller, bool worked, uint64_t deadline_ns)
{
    uint64_t now_ns = clock_monotonic_ns();
    if (poller->mode == POLLER_BUSY)
        return now_ns;
    if (worked)
        poller->worked_ns = now_ns;
    if (worked || now_ns - poller->worked_ns < poller->spin_ns || now_ns >= deadline_ns)
        return now_ns;
    int expected = POLLER_AWAKE;
    if (atomic_compare_exchange_strong_explicit(&poller->state, &expected, POLLER_ASLEEP,
                                                memory_order_acq_rel, memory_order_acquire)) {
        if (arm(poller))
            sleep_until(poller, now_ns, nap_until(poller, now_ns, deadline_ns));
        disarm(poller);
        now_ns = clock_monotonic_ns();
    }
    /* acquire: what wakers published before NOTIFIED is seen by the iteration that follows */
    atomic_exchange_explicit(&poller->state, POLLER_AWAKE, memory_order_acq_rel);
    return now_ns;
}
