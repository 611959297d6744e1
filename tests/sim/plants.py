#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which seeds find which planted fault: a checker that finds nothing is worth nothing.

    plants.py BELAY-SIM [--seeds N] [PLANT...]          each until its first seed; N at most (600)
    plants.py BELAY-SIM --table [--seeds N] [PLANT...]  all N seeds (60) of each, as PLANTS.md

Each plant runs in the profile that --list-plants names. Exit code 1 if a plant was not found.
"""

import re
import subprocess
import sys
import time

HEAD = """# Planted faults

What `belay-sim` finds when a fault is switched on inside the product (`consensus/plant.h`). Each
row: `belay-sim --plant NAME --seeds 1..N` fails, first at the seed named, with the promise named.
Written by `tests/sim/plants.py BELAY-SIM --table`; after a change to the product or the simulator
the seeds are others, the promises seldom.

| plant | the fault | profile | promise broken | first seed | seeds | virtual s | events |
|---|---|---|---|---|---|---|---|
"""


class Hit:
    def __init__(self, line):
        found = re.match(r"seed (\d+): BROKEN ([^:]*?)(?: at ([\d.]+) s, step (\d+))?: (.*)$", line)
        self.seed = int(found.group(1))
        self.promise = found.group(2)
        self.at_s = found.group(3)
        self.events = found.group(4)
        self.said = found.group(5)


def run(program, plant, seeds, more):
    """Every failing seed, lowest first."""
    done = subprocess.run([program, "--plant", plant, "--seeds", f"1..{seeds}", "--quiet", *more],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    hits = [Hit(line) for line in done.stdout.splitlines() if re.match(r"seed \d+: BROKEN", line)]
    stopped = re.search(r"Assertion `(.*)' failed", done.stderr)
    for hit in hits:
        if hit.promise == "invariant" and stopped:
            hit.said = f"assertion {stopped.group(1)}"
    return sorted(hits, key=lambda hit: hit.seed)


def row(name, profile, what, hits, seeds):
    first = hits[0]
    found = sum(hit.seed <= seeds for hit in hits)
    events = f"{int(first.events):,}" if first.events else "an assertion"
    return (f"| `{name}` | {what} | {profile} | {first.promise} | {first.seed} | "
            f"{found} of {seeds} | {float(first.at_s):.1f} | {events} |" if first.at_s else
            f"| `{name}` | {what} | {profile} | {first.promise} | {first.seed} | "
            f"{found} of {seeds} | - | {events} |")


def main(arguments):
    seeds, table, words = None, False, []
    while arguments:
        word = arguments.pop(0)
        if word == "--seeds":
            seeds = int(arguments.pop(0))
        elif word == "--table":
            table = True
        else:
            words.append(word)
    program, chosen = words[0], words[1:]
    seeds = seeds or (60 if table else 600)
    listed = subprocess.run([program, "--list-plants"], stdout=subprocess.PIPE, text=True,
                            check=True).stdout
    missed, start = [], time.monotonic()
    if table:
        print(HEAD, end="")
    for name, profile, what in (line.split(None, 2) for line in listed.splitlines()):
        if chosen and name not in chosen:
            continue
        hits = run(program, name, seeds, ["--keep-going", "--jobs", "2"] if table else [])
        if table and not hits: # rarer than that
            hits = run(program, name, 10 * seeds, ["--jobs", "2"])
        if not hits:
            missed.append(name)
            print(f"{name:24} NOT FOUND in {seeds} seeds", flush=True)
        elif table:
            print(row(name, profile, what, hits, seeds), flush=True)
        else:
            print(f"{name:24} seed {hits[0].seed:>4}  {hits[0].promise}: {hits[0].said[:120]}",
                  flush=True)
    if not table:
        print(f"{len(missed)} plants were not found" if missed else "every plant was found",
              f"({time.monotonic() - start:.0f} s)")
    return 1 if missed else 0


if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
    print(__doc__.strip())
    sys.exit(0 if len(sys.argv) > 1 else 2)
sys.exit(main(sys.argv[1:]))
