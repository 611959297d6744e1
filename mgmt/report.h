/* SPDX-License-Identifier: Apache-2.0
 *
 * What --check-config prints: the bytes of every table, and their sums.
 */
#ifndef BELAY_MGMT_REPORT_H
#define BELAY_MGMT_REPORT_H

#include <stdio.h>

#include "mgmt/config.h"

void report_memory(FILE *out, const struct node_options *options);

#endif
