/* SPDX-License-Identifier: Apache-2.0
 *
 * belayd --dev: one node on loopback that needs nothing and leaves nothing behind.
 */
#ifndef BELAY_MGMT_DEV_H
#define BELAY_MGMT_DEV_H

#include "mgmt/config.h"

/* Settings for a small node, before environment and flags. */
void dev_defaults(struct config *config);

/* After them: free ports, a key, and, if no data directory was named, a temporary one. 0, or a
 * negative errno with a sentence. *temporary: remove it with dev_remove() at the end. */
int dev_resolve(struct config *config, bool *temporary, struct config_error *error);

/* Removes a directory with all that is in it (not through symbolic links). */
void dev_remove(const char *directory);

#endif
