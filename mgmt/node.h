/* SPDX-License-Identifier: Apache-2.0
 *
 * A node: data directory, workers and snapshot thread as one thing to start and stop.
 */
#ifndef BELAY_MGMT_NODE_H
#define BELAY_MGMT_NODE_H

#include "dataplane/board.h"

struct node;

enum node_state { NODE_STARTING = 0, NODE_RUNNING = 1, NODE_STEPPING_DOWN = 2, NODE_STOPPING = 3 };

/* Locks and reads the data directory, recovers, opens ports, starts the workers and the snapshot
 * thread. Returns once the ports are open (formation of the cluster and elections go on in the
 * background). 0 or a negative errno with a sentence in error (error_bytes > 0). */
int node_start(const struct node_options *options, struct node **node, char *error,
               size_t error_bytes);

/* Gives up leadership, finishes what is in flight, stops the threads, syncs, frees everything. */
void node_stop(struct node *node);

/* Looks after what no worker does (a device's link). Every second or so, by one thread. */
void node_look(struct node *node);

enum node_state node_state(const struct node *node);

/* True once every shard of this node knows a leader (readiness). Any thread. */
bool node_ready(const struct node *node);

/* What the workers publish: valid as long as the node. Any thread. */
const struct board *node_board(const struct node *node);

/* Becomes readable when the node cannot go on (disk failed): the process must end with an error. */
int node_failure_descriptor(const struct node *node);

/* True once it cannot go on; then node_failure_text() says why. Any thread. */
bool node_failed(const struct node *node);
const char *node_failure_text(const struct node *node);

#endif
