/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/exit_codes.h"

#include <assert.h>

static_assert(EXIT_CODE_STATUS_BASE + BELAY_STATUS_COUNT <= EXIT_CODE_ABSENT,
              "the codes stay below EXIT_CODE_ABSENT, clear of 125..127 and 128 + n");

int exit_code_of(belay_status status)
{
    if (status == BELAY_OK)
        return EXIT_CODE_OK;
    if (status < BELAY_OK || status >= BELAY_STATUS_COUNT)
        return EXIT_CODE_STATUS_BASE + (int)BELAY_SYSTEM;
    return EXIT_CODE_STATUS_BASE + (int)status;
}

static const char *const meanings[BELAY_STATUS_COUNT] = {
    [BELAY_BUSY] = "somebody else holds the lock (--try)",
    [BELAY_TIMED_OUT] = "the wait limit passed, nothing is held",
    [BELAY_LOST] = "the lease is over; under `lock`, CMD was ended because of it",
    [BELAY_UNREACHABLE] = "no node answered in time, the outcome may be unknown",
    [BELAY_CANCELLED] = "cancelled before it was granted",
    [BELAY_DEADLOCK] = "this wait could never end",
    [BELAY_OVER_LIMIT] = "a limit of the cluster was reached; the message names it",
    [BELAY_DENIED] = "not allowed",
    [BELAY_BAD_REQUEST] = "the cluster refused an argument; the message names it",
    [BELAY_SESSION_LOST] = "the session ended and all that lived with it",
    [BELAY_DELAYED] = "closed for its lock delay (--try)",
    [BELAY_ALREADY_HELD] = "this client holds it already",
    [BELAY_STALE_REQUEST] = "the cluster no longer knows the outcome",
    [BELAY_WRONG_CLUSTER] = "another cluster answered",
    [BELAY_WRONG_VERSION] = "the cluster speaks another version",
    [BELAY_NO_MEMORY] = "out of memory",
    [BELAY_CLOSED] = "the client was closed meanwhile",
    [BELAY_SYSTEM] = "a system call failed; the message says which",
    [BELAY_REFUSED] = "fence, store: a token lower than the highest seen",
};

void exit_codes_print(FILE *stream)
{
    fprintf(stream, "  %-4d %s\n", EXIT_CODE_OK, "done");
    fprintf(stream, "  %-4d %s\n", EXIT_CODE_USAGE, "the command line is wrong");
    for (int status = 1; status < BELAY_STATUS_COUNT; status++)
        if (meanings[status])
            fprintf(stream, "  %-4d %s\n", exit_code_of((belay_status)status), meanings[status]);
    fprintf(stream, "  %-4d %s\n", EXIT_CODE_ABSENT, "store get: there is no such key");
    fprintf(stream, "  %-4d %s\n", EXIT_CODE_HOST_UNFIT, "check-host: a warning or an error");
    fprintf(stream, "  %-4d %s\n", EXIT_CODE_HOST_UNSEEN,
            "check-host: neither, but something could not be read");
    fprintf(stream, "  %-4d %s\n", EXIT_CODE_NOT_EXECUTABLE, "lock: CMD cannot be executed");
    fprintf(stream, "  %-4d %s\n", EXIT_CODE_NOT_FOUND, "lock: CMD was not found");
    fprintf(stream, "  %-4s %s\n", "else",
            "lock: CMD's own exit code, 128 + n if signal n ended it");
}
