#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every test, transcript and function that RULES.md and REGRESSIONS.md name is there. A renamed
test must not leave its rule without one unnoticed."""
import pathlib
import re
import sys

TESTS = pathlib.Path(__file__).resolve().parent
CODE = ("client", "consensus", "dataplane", "hw", "mgmt", "tests")


def criterion_cases():
    found = set()
    for path in TESTS.glob("unit/*.[ch]"):
        text = path.read_text(encoding="utf-8")
        found.update(re.findall(r"^\s*Test\((\w+),\s*(\w+)", text, re.M))
    return found


def named_in(path, word):
    return re.search(rf"\b{re.escape(word)}\b", path.read_text(encoding="utf-8")) is not None


def sources(name):
    return [path for folder in CODE for path in (TESTS.parent / folder).rglob(name)]


def missing(line, cases):
    """The words in back quotes of one table row that stand for nothing."""
    suite = None
    for word in re.findall(r"`([^`]*)`", line):
        case = re.fullmatch(r"(\w*)::([\w*]+)", word)
        place = re.fullmatch(r"(?:[\w/]*/)?(\w+\.(?:c|h|py))(?::(\w+))?", word)
        if case:
            suite = case[1] or suite
            pattern = re.compile(case[2].replace("*", r"\w*"))
            if not any(one == suite and pattern.fullmatch(name) for one, name in cases):
                yield word
        elif word.endswith(".txt"):
            if not list(TESTS.glob("golden/*/" + word)):
                yield word
        elif place:
            files = sources(place[1])
            if not files or (place[2] and not any(named_in(path, place[2]) for path in files)):
                yield word


def main():
    cases = criterion_cases()
    named = wrong = 0
    for table in ("RULES.md", "REGRESSIONS.md"):
        for number, line in enumerate((TESTS / table).read_text(encoding="utf-8").split("\n"), 1):
            if not line.startswith("| "):
                continue
            named += line.count("`") // 2
            for word in missing(line, cases):
                print(f"tests/{table}:{number}: there is no {word}")
                wrong += 1
    print(f"{named} names in the tables, {wrong} of them stand for nothing")
    sys.exit(1 if wrong or named < 100 else 0)


if __name__ == "__main__":
    main()
