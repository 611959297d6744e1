#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which seeds find which planted fault: a checker that finds nothing is worth nothing.

    plants.py BELAY-SIM [--seeds N] [--all] [PLANT...]

Each plant is run from seed 1 on, at most N seeds (default 400), until a promise breaks. Prints one
line per plant: the seed, the promise, what was seen. Exit code 1 if a plant was not found.
--all goes on to find five seeds per plant. Rare plants are only looked for by name.
"""

import re
import subprocess
import sys


def find(program, plant, first, last):
    """(seed, promise) of the first failing seed, or None."""
    run = subprocess.run([program, "--seeds", f"{first}..{last}", "--quiet", "--plant", plant],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    hit = re.search(r"^seed (\d+): BROKEN ([^:]*?)(?: at [\d.]+ s)?: (.*)$", run.stdout, re.M)
    if hit is None:
        return None
    said = hit.group(3)
    stopped = re.search(r"Assertion `(.*)' failed", run.stderr)
    if stopped:
        said = f"assertion {stopped.group(1)}"
    return int(hit.group(1)), hit.group(2), said


def main(arguments):
    seeds, everything, words = 400, False, []
    while arguments:
        word = arguments.pop(0)
        if word == "--seeds":
            seeds = int(arguments.pop(0))
        elif word == "--all":
            everything = True
        else:
            words.append(word)
    program, chosen = words[0], words[1:]
    listed = subprocess.run([program, "--list-plants"], stdout=subprocess.PIPE, text=True,
                            check=True).stdout
    plants = [line.split(None, 1) for line in listed.splitlines()]
    missed = []
    for name, what in plants:
        if name not in chosen and (chosen or what.startswith("(rare)")):
            continue
        found, first = [], 1
        while first <= seeds and len(found) < (5 if everything else 1):
            hit = find(program, name, first, seeds)
            if hit is None:
                break
            found.append(hit)
            first = hit[0] + 1
        if not found:
            missed.append(name)
            print(f"{name:24} NOT FOUND in {seeds} seeds", flush=True)
            continue
        at = ",".join(str(hit[0]) for hit in found)
        print(f"{name:24} seed {at:>4}  {found[0][1]}: {found[0][2][:120]}", flush=True)
    print(f"{len(missed)} plants were not found" if missed else "every plant was found")
    return 1 if missed else 0


if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
    print(__doc__.strip())
    sys.exit(0 if len(sys.argv) > 1 else 2)
sys.exit(main(sys.argv[1:]))
