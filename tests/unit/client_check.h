/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of libbelay that are plain programs: what must be so, else the program ends with 1 and
 * says what was not so, where, and what libbelay says to it.
 */
#ifndef BELAY_TESTS_CLIENT_CHECK_H
#define BELAY_TESTS_CLIENT_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#include "belay/belay.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: failed: %s (%s)\n", __FILE__, __LINE__, #condition,            \
                    belay_error_text());                                                           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#endif
