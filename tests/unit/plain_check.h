/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests that are plain programs: what must be so, else the program ends with 1 and says what
 * was not so and where.
 */
#ifndef BELAY_TESTS_PLAIN_CHECK_H
#define BELAY_TESTS_PLAIN_CHECK_H

#include <stdio.h>
#include <stdlib.h>

/* With a format and its arguments. */
#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: failed: %s: ", __FILE__, __LINE__, #condition);                \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#endif
