/* SPDX-License-Identifier: Apache-2.0
 *
 * The workers' ports, as the configuration says: on kernel UDP, on a network device past the
 * kernel, or some on the one and some on the other.
 */
#ifndef BELAY_MGMT_PORTS_H
#define BELAY_MGMT_PORTS_H

#include "dataplane/worker.h"
#include "hw/dpdk/dpdk.h"

struct ports {
    const struct node_options *options;
    struct dpdk_device *device; /* NULL = everything is the kernel's */
    bool link_up;               /* as the journal last said */
};

/* Opens both ports of every worker and adds them to its poller. 0, or a negative errno and a
 * sentence in `error`; what was opened is in the workers either way. */
int ports_open(struct ports *ports, const struct node_options *options,
               struct worker *const *workers, char *error, size_t error_bytes);

/* After the workers' threads have ended. */
void ports_close(struct ports *ports, struct worker *const *workers);

/* Tells the journal when the device's link goes or comes. Now and then; one thread, no worker's. */
void ports_look(struct ports *ports);

#endif
