/* SPDX-License-Identifier: Apache-2.0
 *
 * The kinds of faults, and what they share.
 */
#ifndef BELAY_TESTS_SIM_FAULTS_H
#define BELAY_TESTS_SIM_FAULTS_H

#include "tests/sim/sim.h"

struct sim_node *sim_any_node(struct sim *sim);
struct sim_node *sim_leader_of(struct sim *sim, uint16_t shard); /* NULL = none */
void sim_crash_briefly(struct sim_node *node, const char *why);
void sim_node_pause(struct sim_node *node, uint64_t for_ns);
/* Every shard has a full set of voters, all of them on the nodes as they are. */
bool sim_may_destroy(struct sim *sim);
bool sim_may_crash(const struct sim_node *node);
void sim_cut(struct sim *sim, uint32_t from, uint32_t to, uint64_t for_ns);

/* faults_node.c */
void fault_crash(struct sim *sim);
void fault_power(struct sim *sim);
void fault_pause(struct sim *sim);
void fault_disk_stall(struct sim *sim);
void fault_disk_error(struct sim *sim);
void fault_disk_full(struct sim *sim);
void fault_rot(struct sim *sim);
void fault_snapshot_rot(struct sim *sim);
void fault_wipe(struct sim *sim);
void fault_transfer(struct sim *sim);
void fault_snapshot(struct sim *sim);
/* faults_net.c */
void fault_partition(struct sim *sim);
void fault_clog(struct sim *sim);
void fault_queue_pairs(struct sim *sim);
void fault_deposed(struct sim *sim);
void fault_storm(struct sim *sim);
/* figure8.c */
void fault_figure8(struct sim *sim);

#endif
