/* SPDX-License-Identifier: Apache-2.0
 *
 * A server that only says yes: every acquire is granted with the next token, every release is well,
 * and nothing is looked up, kept or remembered. What a lean client alone can drive shows against
 * it; and, told to, it makes the mistakes that a lean client must notice.
 */
#ifndef BELAY_BENCH_RAW_LEAN_NULL_H
#define BELAY_BENCH_RAW_LEAN_NULL_H

#include <stdbool.h>

#include "hw/port.h"

enum lean_fault {
    LEAN_FAULT_NONE,
    LEAN_FAULT_TOKEN,   /* a name is granted with the token it had before */
    LEAN_FAULT_REFUSED, /* an acquire is answered `busy` */
    LEAN_FAULT_LOST,    /* a release is told that there was nothing to release */
    LEAN_FAULT_SILENT,  /* a request is never answered, however often it is repeated */
    LEAN_FAULT_NUMBER,  /* a number is answered that was not asked */
    LEAN_FAULT_DROPS,   /* none: an answer in so many is dropped, as a network may */
    LEAN_FAULT_COUNT
};

/* By its name in lower case, "token" to "drops"; LEAN_FAULT_COUNT = there is none of that name. */
enum lean_fault lean_fault_of(const char *name);

/* Serves for ever at this address. It sleeps when the port can wake it. */
__attribute__((noreturn)) void lean_null_serve(struct port *port, const struct port_address *self,
                                               enum lean_fault fault);

#endif
