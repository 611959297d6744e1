/* SPDX-License-Identifier: Apache-2.0
 *
 * What the fake's two halves share: client_fake_service.c (network, lock service, nodes) and
 * client_fake.c (the core's sink, virtual time).
 */
#ifndef BELAY_TESTS_CLIENT_FAKE_INTERNAL_H
#define BELAY_TESTS_CLIENT_FAKE_INTERNAL_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client_fake.h"

/* A check that stops the test program: shows as a crash of the test. */
#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

struct wire_address fake_address(const struct fake *f, uint8_t node);
/* Puts a datagram on its way, or loses it, or doubles it. */
void fake_post(struct fake *f, bool to_client, uint8_t node, const void *bytes, size_t length);
/* Time passes for sessions, waiters and leases. */
void fake_settle(struct fake *f);
struct fake_lease *fake_by_secret(struct fake *f, uint64_t secret);

#endif
