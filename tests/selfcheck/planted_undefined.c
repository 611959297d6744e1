/* SPDX-License-Identifier: Apache-2.0
 *
 * Overflows a signed integer: script/test wants UndefinedBehaviorSanitizer to stop it.
 */
#include <limits.h>
#include <stdio.h>

int main(void)
{
    volatile int large = INT_MAX;
    printf("%d\n", large + 1);
    return 0;
}
