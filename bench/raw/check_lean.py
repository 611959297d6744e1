# SPDX-License-Identifier: Apache-2.0
"""What a lean client must notice: a server that makes one mistake ends it, with a sentence that
says which; answers that are only lost do not, and are asked for again.

    check_lean.py lean_locks
"""
import json
import os
import subprocess
import sys

FAULTS = {"token": "its token did not rise", "refused": "not granted", "lost": "not released",
          "silent": "has had no answer", "number": "never asked"}


def run(program, fault):
    return subprocess.run([program, "--fault", fault, "--keys", "4096", "--seconds", "0.3",
                           "--pack", "4", "--rounds", "1", "-o", "json"], capture_output=True,
                          text=True, timeout=60, check=False)


def directories():
    return {name for name in os.listdir("/tmp") if name.startswith("belay-lean-")}


def main(program):
    wrong, before = [], directories()
    for fault, words in FAULTS.items():
        ended = run(program, fault)
        if ended.returncode != 1 or words not in ended.stderr:
            wrong.append(f"{fault}: {ended.returncode}, {ended.stderr.strip()}")
    ended = run(program, "drops")
    if ended.returncode != 0:
        wrong.append(f"drops: {ended.returncode}, {ended.stderr.strip()}")
    elif json.loads(ended.stdout)["rows"]["p4.repeats"]["median"] == 0:
        wrong.append("drops: nothing was asked for again")
    wrong += [f"left behind: {name}" for name in directories() - before]
    for text in wrong:
        print(f"check: {text}", file=sys.stderr)
    print(f"{len(FAULTS)} mistakes and a lossy network, {len(wrong)} findings")
    return 1 if wrong else 0


sys.exit(main(sys.argv[1]))
