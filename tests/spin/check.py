#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Searches all states of the fence model, whole or with one rule left out.

    check.py CASE         one case: 0 if the search says what it must
    check.py --list       their names
    check.py --show CASE  for a case that must fail: a schedule that leads there
"""

import os
import re
import subprocess
import sys
import tempfile

MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fence.pml")
MEMORY_MIB = 1900
STATES_MIN = 1_000_000  # fewer, and the model has lost its substance

# What the violated assertion looks like when the verifier prints it: macros are unfolded by then.
FENCE = r"\.term<=pair\["  # nothing lands behind the fence
COUNTED = r"cell\[\(n-1\)\]=="  # what is counted is there
COMPLETE = r"final_term\[0\]>=replica\[_pid\]\.term"  # leaders hold what was committed
APPLIED = r"grant_term==replica\[0\]\.term"  # what followers apply is what was committed
REACHED = r"violated +!\("  # the moment that was denied

HOLDS = {
    "holds": ["TERMS=3"],
    "holds_attached_twice": ["TERMS=2", "GRANTS=2"],
}
FAILS = {
    "no_fence": (["NO_FENCE"], FENCE),
    "no_fence_loses": (["NO_FENCE", "LOSS_ONLY"], COMPLETE),
    "no_stand_fence": (["NO_STAND_FENCE"], FENCE),
    "no_stand_fence_loses": (["NO_STAND_FENCE", "LOSS_ONLY"], COMPLETE),
    "keep_grant": (["KEEP_GRANT"], FENCE),
    "keep_grant_loses": (["KEEP_GRANT", "LOSS_ONLY"], COMPLETE),
    "no_takeover": (["NO_TAKEOVER"], COMPLETE),
    "no_reset": (["NO_RESET"], FENCE),
    "no_reset_loses": (["NO_RESET", "LOSS_ONLY"], APPLIED),
    "no_zero": (["NO_ZERO"], APPLIED),
    "no_checksum": (["NO_CHECKSUM"], APPLIED),
    "count_posted": (["COUNT_POSTED"], COUNTED),
    "count_posted_loses": (["COUNT_POSTED", "LOSS_ONLY"], COMPLETE),
    "reach_takeover": (["REACH_TAKEOVER"], REACHED),
    "reach_late": (["REACH_LATE"], REACHED),
    "reach_again": (["REACH_AGAIN"], REACHED),
}


def run(arguments, directory):
    made = subprocess.run(arguments, cwd=directory, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return made.returncode, made.stdout


def search(defines, directory, long=False, shortest=False):
    """The verifier's output. It is a C program, made for this one search; to compile it with
    optimisation takes longer than most searches."""
    flags = [f"-D{define}" for define in defines]
    code, output = run(["spin", "-a", *flags, MODEL], directory)
    if code != 0 or "Error" in output:
        raise SystemExit(f"spin does not take the model:\n{output}")
    # No partial order reduction: in a model of atomic steps on shared state it finds nothing.
    options = ["-DBFS"] if shortest else ["-DSPACE"]
    options += ["-O2" if long else "-O0", f"-DMEMLIM={MEMORY_MIB}"]
    code, output = run(["gcc", "-w", "-DSAFETY", "-DNOREDUCE", *options, "-o", "pan", "pan.c"],
                       directory)
    if code != 0:
        raise SystemExit(f"the verifier does not compile:\n{output}")
    return run(["./pan", "-w24", "-m100000"], directory)[1]


def summary(output):
    def number(pattern):
        found = re.search(pattern, output)
        return float(found.group(1)) if found else -1

    return {
        "errors": int(number(r"errors: (\d+)")),
        "states": int(number(r"([\d.e+]+) states, stored")),
        "steps": int(number(r"([\d.e+]+) transitions")),
        "memory_mib": number(r"([\d.]+)\s+total actual memory"),
        "complete": "Search not completed" not in output and "reached -DMEMLIM" not in output
                    and "max search depth too small" not in output,
    }


def check(name):
    with tempfile.TemporaryDirectory(prefix="belay-fence-") as directory:
        defines, wanted = FAILS[name] if name in FAILS else (HOLDS[name], None)
        output = search(defines, directory, long=wanted is None)
    seen = summary(output)
    violated = re.search(r"pan:\d+: (.*)", output)
    print(f"{name}: {seen['states']} states, {seen['steps']} steps, "
          f"{seen['memory_mib']:.0f} MiB: {violated.group(1) if violated else 'no error'}")
    if wanted is None:
        good = (seen["errors"] == 0 and seen["complete"] and violated is None
                and seen["states"] >= STATES_MIN)
    else:
        good = (seen["errors"] == 1 and violated is not None
                and violated.group(1).startswith("assertion violated")
                and re.search(wanted, violated.group(1)) is not None)
    if not good:
        print(f"{name}: not what it must be ({wanted or 'no error, all states'}):\n{output}")
    return 0 if good else 1


def show(name):
    """The shortest schedule, or, where that is too far to look for, any."""
    defines = FAILS[name][0]
    for flags in ([*defines, "SHORTEST"], defines):
        with tempfile.TemporaryDirectory(prefix="belay-fence-") as directory:
            search(flags, directory, shortest="SHORTEST" in flags)
            trail = os.path.join(directory, "fence.pml.trail")
            if not os.path.exists(trail):
                continue
            told = run(["spin", "-T", *[f"-D{flag}" for flag in flags], "-t", "-k", trail, MODEL],
                       directory)[1]
            print(re.split(r"\nspin: (?:trail|text|/)", told)[0])
            return 0
    print(f"{name}: no schedule found")
    return 1


def main(arguments):
    if arguments == ["--list"]:
        print("\n".join([*HOLDS, *FAILS]))
        return 0
    if len(arguments) == 2 and arguments[0] == "--show" and arguments[1] in FAILS:
        return show(arguments[1])
    if len(arguments) == 1 and (arguments[0] in HOLDS or arguments[0] in FAILS):
        return check(arguments[0])
    print(__doc__.strip(), file=sys.stderr)
    return 2


sys.exit(main(sys.argv[1:]))
