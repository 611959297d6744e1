/* SPDX-License-Identifier: Apache-2.0
 *
 * How a worker waits. `busy` never waits. `adaptive` goes on polling for a short spin after the
 * last work, then sleeps until a descriptor is readable, a mailbox is rung, or a deadline is
 * reached.
 */
#ifndef BELAY_HW_POLLER_H
#define BELAY_HW_POLLER_H

#include <stdbool.h>
#include <stdint.h>

#include "hw/port.h"

enum poller_mode { POLLER_BUSY, POLLER_ADAPTIVE };

struct poller;

/* spin_ns: how long adaptive polls without work before it sleeps (0 = at once). */
int poller_open(enum poller_mode mode, uint64_t spin_ns, struct poller **poller);
void poller_close(struct poller *poller);

/* Descriptor whose readability ends a sleep (level-triggered; not read here). */
int poller_add(struct poller *poller, int descriptor);

/* The same, but each new event ends one sleep (edge-triggered): for eventfds that nobody reads. */
int poller_add_edge(struct poller *poller, int descriptor);

/* What comes to the port ends a sleep. Where nothing tells of it (PORT_LOOK_AGAIN), sleeps are
 * short: an eighth of the time that nothing was found, at most half a millisecond. */
int poller_add_port(struct poller *poller, struct port *port);

/* Ends the current or next sleep. Any thread; async-signal-safe; cheap when the owner is awake. */
void poller_wake(struct poller *poller);

/* Called once per iteration by the owner: `worked` says whether this iteration found anything;
 * `deadline_ns` (monotonic) is when it must be awake again. Returns the time now. */
uint64_t poller_rest(struct poller *poller, bool worked, uint64_t deadline_ns);

#endif
