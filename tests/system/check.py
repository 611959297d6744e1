# SPDX-License-Identifier: Apache-2.0
"""Assertions, polling and the runner of the system tests.

A test is a function named test_*; run(globals()) calls every one of a file in order. It fails by
raising; what was expected and what happened is in the message, and the runner adds the log tails of
every cluster that is still alive.
"""
import os
import shutil
import sys
import tempfile
import time
import traceback


class Failed(AssertionError):
    """Something else happened than what was expected."""


def expect(condition, message, *details):
    if not condition:
        raise Failed(message + "".join("\n    " + str(one) for one in details))


def equal(found, expected, what):
    expect(found == expected, f"{what}: expected {expected!r}, found {found!r}")


def wait_until(condition, timeout_s, what):
    """Polls until condition() is true and returns what it gave. Exceptions of the kinds that a
    cluster in motion causes count as "not yet"; the last one is shown if time runs out."""
    deadline = time.monotonic() + timeout_s
    pause_s = 0.005
    last = None
    while True:
        try:
            last = condition()
            if last:
                return last
        except (Failed, OSError, KeyError, IndexError, StopIteration, ValueError) as error:
            last = error
        if time.monotonic() >= deadline:
            raise Failed(f"did not happen within {timeout_s} s: {what}; last seen: {last!r}")
        time.sleep(pause_s)  # between two looks; what is waited for is the condition
        pause_s = min(pause_s * 1.5, 0.1)


class Stopwatch:
    def __init__(self):
        self.started = time.monotonic()

    def seconds(self):
        return time.monotonic() - self.started


# Clusters and files of the test that runs; the runner closes them, newest first.
_open = []


def remember(thing):
    _open.append(thing)
    return thing


class Directory:
    """A temporary directory that goes away with the test."""

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="belay-test-")
        remember(self)

    def close(self):
        if not os.environ.get("BELAY_TEST_KEEP"):
            shutil.rmtree(self.path, ignore_errors=True)

    def report(self):
        return ""


def _close_all():
    while _open:
        one = _open.pop()
        try:
            one.close()
        except Exception:  # the next ones must be closed as well
            traceback.print_exc()


def run(names):
    """Runs the test_* functions of a module, or those named on the command line; exits 0 or 1."""
    tests = [(name, value) for name, value in names.items() if name.startswith("test_")]
    if len(sys.argv) > 1:
        tests = [(name, value) for name, value in tests if name in sys.argv[1:]]
    if not tests:
        sys.exit("there is no such test")
    failures = 0
    for name, test in tests:
        watch = Stopwatch()
        print(f"---- {name}", flush=True)
        try:
            test()
            print(f"ok   {name} ({watch.seconds():.1f} s)", flush=True)
        except BaseException as error:
            failures += 1
            print(f"FAIL {name} ({watch.seconds():.1f} s)")
            traceback.print_exc(file=sys.stdout)
            for one in list(_open):
                print(one.report())
            sys.stdout.flush()
            if isinstance(error, KeyboardInterrupt):
                _close_all()
                sys.exit(130)
        finally:
            _close_all()
    print(f"{len(tests) - failures} of {len(tests)} passed")
    sys.exit(1 if failures else 0)
