/* SPDX-License-Identifier: Apache-2.0
 *
 * A decoder that reads one byte too far for inputs that begin with "BLY": script/test wants the
 * fuzzing stage to find it.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    if (length < 4 || memcmp(bytes, "BLY", 3) != 0)
        return 0;
    uint8_t *copy = malloc(length);
    if (copy == NULL)
        return 0;
    memcpy(copy, bytes, length);
    volatile uint8_t beyond = copy[length];
    (void)beyond;
    free(copy);
    return 0;
}
