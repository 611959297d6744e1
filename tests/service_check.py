#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""systemd takes the service's unit as it is, and the drop-in for a network card that docs/tuning.md
shows. It warns of a setting that it does not know, and otherwise goes on without it.

    service_check.py BELAYD UNIT
"""
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def drop_in():
    text = (ROOT / "docs" / "tuning.md").read_text(encoding="utf-8")
    return re.search(r"```ini\n(\[Service\]\n.*?)```", text, re.DOTALL)[1]


def complaints(unit, more):
    """What systemd says to the unit with this drop-in."""
    with tempfile.TemporaryDirectory(prefix="belay-service-") as directory:
        path = pathlib.Path(directory) / "belayd.service"
        path.write_text(unit, encoding="utf-8")
        (pathlib.Path(directory) / "belayd.service.d").mkdir()
        (path.parent / "belayd.service.d" / "card.conf").write_text(more, encoding="utf-8")
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(path)],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False, timeout=60)
    about = [line for line in (done.stdout + done.stderr).splitlines() if "belay" in line]
    return about or ([f"exit code {done.returncode}: {done.stderr}"] if done.returncode else [])


def main(belayd, unit_path):
    unit = pathlib.Path(unit_path).read_text(encoding="utf-8")
    unit, count = re.subn(r"(?m)^ExecStart=\S+/belayd\b", f"ExecStart={belayd}", unit)
    wrong = [] if count == 1 else [f"{count} lines with ExecStart"]
    wrong += complaints(unit, "") + complaints(unit, drop_in())
    # And it does complain, of the one file and of the other.
    if not complaints(unit.replace("WatchdogSec", "WatchdogSecs"), ""):
        wrong.append("a wrong name in the unit goes unnoticed")
    if not complaints(unit, drop_in().replace("DeviceAllow", "DevicesAllow")):
        wrong.append("a wrong name in the drop-in goes unnoticed")
    print("\n".join(wrong) or "the unit and its drop-in are as systemd wants them")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
