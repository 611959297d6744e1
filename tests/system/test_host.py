# SPDX-License-Identifier: Apache-2.0
"""belay check-host against machines that are written down: tests/golden/host/NAME.root holds the
options and the files of one, NAME.expected what is printed. BELAY_GOLDEN_WRITE=1 writes the latter
anew, on purpose, to be reviewed as a diff.

A machine's lines: "? OPTIONS"; "== PATH" and the file's text up to the next such line; "~~ PATH"
with escapes in it; "** PATH COUNT TEXT", repeated; "-> PATH TARGET", a link; "// PATH", a
directory; "!! PATH", something that cannot be read; "%% PATH", a pipe that nobody writes to."""
import json
import os
import pathlib
import re
import subprocess

from check import Directory, equal, expect, run
from harness import BELAY

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden" / "host"
START = re.compile(r"^(==|~~|\*\*|->|//|!!|%%|\?) (.*)$")


def place(root, path):
    full = pathlib.Path(os.path.normpath(root / path))
    if "/../" in path:  # "259:5/../queue" goes through a directory that must be there too
        (root / path.split("/../")[0]).mkdir(parents=True, exist_ok=True)
    full.parent.mkdir(parents=True, exist_ok=True)
    return full


def build(root, text):
    """Makes the machine below `root`; returns its options."""
    options = []
    kind, path, lines = None, None, []

    def finish():
        if kind in ("==", "~~"):
            content = "\n".join(lines)
            if kind == "~~":
                content = content.encode().decode("unicode_escape").encode("latin-1")
                place(root, path).write_bytes(content)
            else:
                place(root, path).write_text(content + "\n")

    for line in text.splitlines() + ["// proc"]:
        found = START.match(line)
        if not found:
            lines.append(line)
            continue
        finish()
        kind, rest = found.groups()
        path, lines = rest, []
        if kind == "?":
            options = rest.split()
        elif kind == "**":
            path, count, repeated = rest.split(" ", 2)
            repeated = repeated.replace("\\n", "\n")
            with place(root, path).open("w") as file:
                for _ in range(int(count) // 100):
                    file.write(repeated * 100)
        elif kind == "->":
            path, target = rest.split(" ")
            place(root, path).symlink_to(target)
        elif kind in ("//", "!!"):
            place(root, path).mkdir(parents=True, exist_ok=True)
        elif kind == "%%":
            os.mkfifo(place(root, path))
    return options


def check_host(*words):
    done = subprocess.run([BELAY, "check-host", *words], stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=60, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_machines():
    roots = sorted(GOLDEN.glob("*.root"))
    expect(len(roots) >= 4, f"machines in {GOLDEN}: {roots}")
    for machine in roots:
        directory = pathlib.Path(Directory().path)
        options = build(directory, machine.read_text())
        code, out, err = check_host("--root", str(directory), "--all", *options)
        equal(err, "", f"{machine.name}: errors")
        found = f"{out}exit code {code}\n"
        expected = machine.with_suffix(".expected")
        if os.environ.get("BELAY_GOLDEN_WRITE"):
            expected.write_text(found)
        equal(found.splitlines(), expected.read_text().splitlines(), machine.name)
        judge_json(machine.name, out, code, ["--root", str(directory), *options])


def judge_json(name, text, code, words):
    """The same in JSON; and without --all nothing that is well."""
    again, out, _ = check_host(*words, "--all", "-o", "json")
    equal(again, code, f"{name}: exit code with JSON")
    report = json.loads(out)
    heads = re.findall(r"^(ok|advice|unknown|warning|error) +(\w+): (.*)$", text, re.M)
    equal([(one["severity"], one["id"], one["is"]) for one in report["findings"]], heads,
          f"{name}: findings in JSON")
    for severity, count in report["counts"].items():
        equal(count, sum(head[0] == severity for head in heads), f"{name}: count of {severity}")
    _, out, _ = check_host(*words, "-o", "json")
    expect(all(one["severity"] != "ok" for one in json.loads(out)["findings"]), f"{name}: {out}")


def test_an_empty_machine_is_not_well():
    """Where nothing can be read, nothing is said to be well."""
    directory = Directory().path
    code, out, _ = check_host("--root", directory, "--all", "--cores", "1", "--device",
                              "0000:3b:00.0", "--data-dir", "/data", "-o", "json")
    equal(code, 122, "exit code")
    good = [one for one in json.loads(out)["findings"] if one["severity"] != "unknown"]
    equal([one["id"] for one in good], ["cores"], "all that is known: which cores were asked for")


def test_this_machine():
    """Whatever it is, container or not: an answer, and the page has every section it names."""
    code, out, err = check_host("--all", "--cores", "0", "--data-dir", "/", "-o", "json")
    expect(code in (0, 121, 122), f"exit code {code}: {err}")
    page = (GOLDEN.parent.parent.parent / "docs" / "tuning.md").read_text()
    for one in json.loads(out)["findings"]:
        expect(f"\n## {one['section']}\n" in page, f"no such section in docs/tuning.md: {one}")


def test_wrong_command_lines():
    for words in (["--cores", "3-1"], ["--cores", ""], ["--cores", "0-256"], ["--cores", "1024"],
                  ["--device", "../x"], ["--device", "a\x1bb"], ["--data-dir", "relative"]):
        code, out, err = check_host(*words)
        equal((code, out), (100, ""), f"{words}: exit code and output")
        expect(words[0] in err and "\x1b" not in err, f"{words}: {err}")
    for words in (["--root", "/nonexistent"], ["--data-dir", "/nonexistent"]):
        code, _, err = check_host(*words)
        equal(code, 118, f"{words}: exit code")
        expect("/nonexistent: No such file" in err, err)


if __name__ == "__main__":
    run(globals())
