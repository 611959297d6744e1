/* SPDX-License-Identifier: Apache-2.0
 *
 * Formation: how a node finds out whether the cluster is new, or which one it belongs to.
 *
 * A cluster is formed only when every listed node is present and blank: each node says hello with
 * the nonce of its data directory (of its process, in memory durability), and once it has heard all
 * of them from blank nodes, the set of nonces is the cluster. All compute the same replica ids and
 * the same cluster id from the same set, so no node needs to tell another. A blank node that meets
 * a formed one either finds its own nonce in that node's set (it formed too, but had not heard
 * all), or it lost its data and joins under new replica ids.
 */
#ifndef BELAY_MGMT_FORMATION_H
#define BELAY_MGMT_FORMATION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "dataplane/options.h"
#include "hw/port.h"

struct formation {
    uint64_t cluster_id;
    uint64_t nonces[NODE_MEMBERS_MAX]; /* [node - 1] */
    uint32_t epoch_max;                /* highest token epoch any of them has on disk */
    bool joins; /* the others formed without this data directory: new replicas, as learners */
};

/* Runs until formed (0), or `*stop` becomes true (-ECANCELED). ports[0] is worker 0's for peers;
 * the others share a device with it, where a frame for one may come by another, and so are polled,
 * too. Nobody else uses them meanwhile. Blocks; says in the journal what it waits for. */
int formation_run(const struct node_options *options, struct port *const *ports,
                  uint16_t ports_count, uint64_t own_nonce, uint32_t own_epoch,
                  const _Atomic bool *stop, struct formation *formation);

/* Ids that follow from what the cluster was formed with. Never 0. */
uint64_t formation_cluster_id(const uint64_t *nonces, uint16_t count);
uint64_t formation_replica_id(uint64_t nonce, uint16_t shard);

#endif
