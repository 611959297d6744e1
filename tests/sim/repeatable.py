#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A seed is one history: alone, after others in the same process, or beside others.

    repeatable.py BELAY-SIM [SEEDS]

Each line ends with the state of the seed's random words at its end, so it differs if anything did.
"""

import subprocess
import sys

program = sys.argv[1]
seeds = int(sys.argv[2]) if len(sys.argv) > 2 else 6


def lines(*arguments):
    done = subprocess.run([program, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    return sorted(line for line in done.stdout.splitlines() if line.startswith("seed "))


several = lines("--seeds", f"1..{seeds}")
if len(several) != seeds:
    sys.exit(f"{len(several)} lines for {seeds} seeds")
if several != lines("--seeds", f"1..{seeds}", "--jobs", "2"):
    sys.exit("two processes make other histories than one")
alone = sorted(line for seed in range(1, seeds + 1) for line in lines("--seed", str(seed)))
if several != alone:
    sys.exit("a seed alone makes another history than one after others")
if len({line.rsplit(None, 1)[1] for line in several}) != seeds:
    sys.exit("two seeds make one history")
print(f"{seeds} seeds, each the same three times")
