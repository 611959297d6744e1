/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files that make, read and write a WAL directory.
 */
#ifndef BELAY_HW_DISK_INTERNAL_H
#define BELAY_HW_DISK_INTERNAL_H

#include <stdint.h>

enum { DISK_PATH_BYTES_MAX = 4096 };

/* "<directory>/segment-<4 decimal digits>"; 0 or -ENAMETOOLONG. */
int disk_segment_path(char out[DISK_PATH_BYTES_MAX], const char *directory, uint32_t segment);

#endif
