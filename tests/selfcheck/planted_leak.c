/* SPDX-License-Identifier: Apache-2.0
 *
 * A Criterion test that passes and leaks. script/test runs it the way it runs the unit tests under
 * AddressSanitizer and wants it refused: Criterion's runner alone would let the leak go unseen.
 */
#include <criterion/criterion.h>
#include <stdlib.h>

static void *volatile kept;

Test(planted, leak)
{
    kept = malloc(100);
    cr_assert(kept != NULL);
    kept = NULL;
}
