/* SPDX-License-Identifier: Apache-2.0
 *
 * The front while CMD runs: signals, job control, and standing in for a guardian that died.
 */
#ifndef BELAY_CLI_GUARD_FRONT_H
#define BELAY_CLI_GUARD_FRONT_H

#include <signal.h>
#include <stdbool.h>

struct supervise;

/* Blocks the signals that are passed on, but for those the caller had ignored (nohup, background
 * jobs of a script), and returns a signalfd for them; -1 with errno. */
int front_take_signals(sigset_t *before);

/* True for the signals that end a wait for the lock. */
bool front_signal_ends(int signal_number);

/* Returns when nothing of the tree is left. */
void front_watch(struct supervise *supervise, int signal_fd);

#endif
