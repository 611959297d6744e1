/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults compiled into the product for this program only (consensus/plant.h). At most one is in
 * force; the product asks at the place of the fault.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "consensus/plant.h"
#include "tests/sim/sim.h"

static const struct plant {
    const char *name;
    const char *what;
} plants[] = {
    {"none", "nothing is planted"},
};

const char *plant_active;
static uint64_t plant_hits;

bool plant_is(const char *name)
{
    if (strcmp(plant_active, name) != 0)
        return false;
    plant_hits++;
    return true;
}

bool sim_plant_choose(const char *name)
{
    for (size_t i = 0; i < sizeof plants / sizeof plants[0]; i++) {
        if (strcmp(plants[i].name, name) == 0) {
            plant_active = plants[i].name;
            return true;
        }
    }
    return false;
}

void sim_plants_list(void)
{
    for (size_t i = 1; i < sizeof plants / sizeof plants[0]; i++)
        printf("%-28s %s\n", plants[i].name, plants[i].what);
}

uint64_t sim_plant_hits(void)
{
    return plant_hits;
}
