/* SPDX-License-Identifier: Apache-2.0
 *
 * Exit codes of the `belay` command.
 *
 * `belay lock` passes CMD's own exit code through, so what belay itself has to say needs numbers
 * that commands hardly ever use: not 1, 2 (everybody), 64..78 (sysexits.h), 125..127 (env, timeout,
 * shells), 128 + n (signals). 100 is a wrong command line; 100 + status is a result of the library,
 * so that a code read in a log can be looked up in belay.h as well.
 */
#ifndef BELAY_CLI_EXIT_CODES_H
#define BELAY_CLI_EXIT_CODES_H

#include <stdio.h>

#include "belay/belay.h"

enum {
    EXIT_CODE_OK = 0,
    EXIT_CODE_USAGE = 100,
    EXIT_CODE_STATUS_BASE = 100,
    EXIT_CODE_ABSENT = 120,         /* store get: there is no such key */
    EXIT_CODE_HOST_UNFIT = 121,     /* check-host: at least one warning or error */
    EXIT_CODE_HOST_UNSEEN = 122,    /* check-host: neither, but something could not be read */
    EXIT_CODE_NOT_EXECUTABLE = 126, /* as shells have it: CMD is there but cannot be run */
    EXIT_CODE_NOT_FOUND = 127,      /* CMD is not there */
    EXIT_CODE_SIGNAL_BASE = 128,
};

/* 0 for BELAY_OK, else 101..119. A status this version does not know is BELAY_SYSTEM's code. */
int exit_code_of(belay_status status);

/* One line per code, for --help. */
void exit_codes_print(FILE *stream);

#endif
