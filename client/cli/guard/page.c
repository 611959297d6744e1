/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/guard/page.h"

#include <time.h>

enum { NS_PER_MS = 1000000 };

uint64_t guard_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t clamp(uint64_t value, uint64_t min, uint64_t max)
{
    return value < min ? min : value > max ? max : value;
}

struct guard_margins guard_margins_of(uint64_t ttl_ms)
{
    uint64_t signal_ms = clamp(ttl_ms / 5, 200, 5000);
    if (signal_ms > ttl_ms / 2)
        signal_ms = ttl_ms / 2;
    uint64_t kill_ms = clamp(ttl_ms / 10, 50, 1000);
    if (kill_ms > signal_ms / 2)
        kill_ms = signal_ms / 2;
    return (struct guard_margins){.signal_ns = signal_ms * NS_PER_MS,
                                  .kill_ns = kill_ms * NS_PER_MS};
}

static uint64_t before_deadline(const struct guard_page *page, uint64_t margin_ns)
{
    uint64_t deadline_ns = atomic_load(&page->deadline_ns);
    return deadline_ns > margin_ns ? deadline_ns - margin_ns : 0;
}

uint64_t guard_kill_at_ns(const struct guard_page *page)
{
    return before_deadline(page, page->margins.kill_ns);
}

uint64_t guard_force_at_ns(const struct guard_page *page)
{
    return before_deadline(page, page->margins.kill_ns / 2);
}

uint64_t guard_signal_at_ns(const struct guard_page *page)
{
    return before_deadline(page, page->margins.signal_ns);
}

bool guard_may_start(const struct guard_page *page)
{
    return atomic_load(&page->ending) == GUARD_CAUSE_NONE &&
           guard_now_ns() < guard_signal_at_ns(page);
}
