/* SPDX-License-Identifier: Apache-2.0
 *
 * PLANTED(name): a fault that the simulator's build can switch on at this very place, to see that
 * its checkers find it (belay-sim --plant NAME). In every other build it is the constant false and
 * leaves nothing behind.
 */
#ifndef BELAY_CONSENSUS_PLANT_H
#define BELAY_CONSENSUS_PLANT_H

#ifdef BELAY_PLANTS
#include <stdbool.h>
#include <stddef.h>

extern const char *plant_active; /* tests/sim/plants.c; NULL = none */
bool plant_is(const char *name);
#define PLANTED(name) (plant_active != NULL && plant_is(#name))
#else
#define PLANTED(name) 0
#endif

#endif
