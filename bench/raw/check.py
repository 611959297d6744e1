# SPDX-License-Identifier: Apache-2.0
"""A raw measurement, very short: it ends well, leaves nothing behind, and has the figures.

    check.py PROGRAM FLAG... : KEY...

Every KEY must be among its rows, and every value of every row above zero and finite; of a KEY
that is followed by a question mark it may be zero.
"""
import json
import math
import os
import subprocess
import sys
import tempfile


def main(arguments):
    colon = arguments.index(":")
    words, keys = arguments[:colon], [key.rstrip("?") for key in arguments[colon + 1:]]
    may_be_zero = {key.rstrip("?") for key in arguments[colon + 1:] if key.endswith("?")}
    with tempfile.TemporaryDirectory(prefix="belay-raw-", dir=".") as directory:
        words = [directory if word == "DIRECTORY" else word for word in words]
        run = subprocess.run(words + ["--rounds", "2", "-o", "json"], stdout=subprocess.PIPE,
                             timeout=60, check=True)
        left = os.listdir(directory)
    rows = json.loads(run.stdout)["rows"]
    wrong = [f"no row {key}" for key in keys if key not in rows]
    wrong += [f"left behind: {name}" for name in left]
    for key, row in rows.items():
        sound = [value for value in row["values"] if math.isfinite(value) and
                 (value > 0 or value == 0 and key in may_be_zero)]
        if len(sound) != 2 or not min(sound) <= row["median"] <= max(sound):
            wrong.append(f"{key}: {row}")
    for text in wrong:
        print(f"check: {text}", file=sys.stderr)
    print(f"{len(rows)} rows, {len(wrong)} findings")
    return 1 if wrong else 0


sys.exit(main(sys.argv[1:]))
