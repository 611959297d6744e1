/* SPDX-License-Identifier: Apache-2.0
 *
 * Between a file and its operations: single events, and the pairing of invocations with answers.
 * Private to the history module.
 */
#ifndef TESTS_LINCHECK_EVENTS_H
#define TESTS_LINCHECK_EVENTS_H

#include "tests/lincheck/history.h"

enum event_type { EVENT_INVOKE, EVENT_OK, EVENT_FAIL, EVENT_INFO };

struct event {
    struct history_op said; /* what this event says of its operation; 0 where it says nothing */
    uint64_t time_ns;
    uint32_t line;
    uint32_t place; /* in the order of events, once that is settled */
    uint8_t type;   /* enum event_type */
    bool has_error; /* it bears :error, or a failure's value is a keyword such as :timed-out */
    bool timed;
};

struct loading {
    struct history *history;
    const struct history_options *options;
    struct cursor cursor;
    struct datum_pool pool;
    struct event *events;
    size_t events_count, events_capacity;
};

/* Where an event's parts are in the pool; 0: not there. */
struct event_parts {
    uint32_t line;
    uint32_t process, type, f, value, key, token, owner, mode, permits, holders, error, time;
};

/* Turns the parts into an event, or skips one that is of no client. 0, -EBADMSG, -ENOMEM. */
int event_add(struct loading *loading, struct event_parts parts);

/* The name of an owner that is a process and no more. No printed value looks like it. 0, -ENOMEM.
 */
int event_process_owner(struct history *history, int64_t process, uint32_t *owner);

/* Events into operations. 0, -EBADMSG, -ENOMEM. */
int events_pair(struct loading *loading);

#endif
