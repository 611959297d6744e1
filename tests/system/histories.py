# SPDX-License-Identifier: Apache-2.0
"""Runs tests/system/history.c, several processes of it, and has belay-lincheck judge what they
wrote down together: is there an order of all these operations in which every answer is right?

What is added here are the leases' ends. A grant whose release was not confirmed ends by itself, at
the earliest when its TTL has passed or when the library stopped calling it valid, whichever is
later; an acquire whose outcome is unknown may be given back at any time (docs/lincheck.md, "Unknown
outcomes"). Each is a release that is asked for at that time and never answered.
"""
import json
import os
import signal
import subprocess

from check import Failed, expect, wait_until
from harness import HISTORY, LINCHECK, Command

READERS = 500000  # process numbers from here on are of a test's own reads
ENDINGS = 1000000  # process numbers from here on are of leases that ended by themselves


def read_lines(path):
    """The events of a file; a process that was killed may have left its last line torn."""
    with open(path, encoding="ascii") as file:
        text = file.read()
    return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]


class Attempt:
    """An acquire, and what was said about it and what it got."""

    def __init__(self, invoke):
        self.key, self.owner = invoke["key"], invoke["owner"]
        self.invoked_ns, self.ttl_ns = invoke["time"], invoke["ttl_ms"] * 1000000
        self.outcome = None  # ok, fail, info; None: its process died
        self.released = False

    def ending_ns(self, valid_until_ns, reentrant):
        """The earliest time at which it may end by itself, or None if it did not."""
        if self.outcome == "fail" or self.released:
            return None
        if self.outcome == "info":
            return self.invoked_ns
        if reentrant:  # the TTL may be an earlier acquire's
            return max(self.invoked_ns, valid_until_ns if self.outcome == "ok" else 0)
        return max(self.invoked_ns + self.ttl_ns, valid_until_ns)


def with_endings(events, model):
    """The history of these events: operations and the ends of leases."""
    history, attempts, open_by_process, valid_until_ns, held = [], [], {}, {}, {}
    for event in events:
        process, kind = event["process"], event["type"]
        if process == "lease":
            owner = event["owner"]
            valid_until_ns[owner] = max(valid_until_ns.get(owner, 0), event["valid_until"])
            continue
        history.append(event)
        if event["f"] == "acquire" and kind == "invoke":
            open_by_process[process] = Attempt(event)
            attempts.append(open_by_process[process])
        elif event["f"] == "acquire":
            one = open_by_process.pop(process)
            one.outcome = kind
            if kind == "ok":
                held.setdefault(one.owner, []).append(one)
        elif event["f"] == "release" and kind == "ok":
            held[event["owner"]].pop().released = True
    endings = 0
    for one in attempts:
        at_ns = one.ending_ns(valid_until_ns.get(one.owner, 0), model == "reentrant-mutex")
        if at_ns is not None:
            history.append({"process": ENDINGS + endings, "type": "invoke", "f": "release",
                            "key": one.key, "owner": one.owner, "time": at_ns})
            endings += 1
    return history


def judge(history, model, path):
    """(exit code, text) of belay-lincheck."""
    with open(path, "w", encoding="ascii") as file:
        file.writelines(json.dumps(event) + "\n" for event in history)
    done = subprocess.run([LINCHECK, "--model", model, "--memory", "1024", path],
                          capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, (done.stdout + done.stderr).strip()


def expect_linearizable(history, model, path):
    code, text = judge(history, model, path)
    if code != 0 and os.environ.get("BELAY_TEST_KEEP"):
        print(f"the history is {path}")
    expect(code == 0, f"{model}, {len(history)} events:\n{text}")


class Histories:
    """Processes that contend for a few locks, one file each."""

    def __init__(self, cluster, model="fenced-mutex", processes=3, clients=3, keys=6, ttl_ms=600,
                 seed=1):
        self.model, self.directory = model, cluster.directory
        self.keys, self.paths, self.commands, self.more = keys, [], [], []
        for number in range(processes):
            path = os.path.join(cluster.directory, f"history-{model}-{number}.json")
            self.paths.append(path)
            self.commands.append(Command([HISTORY, path, model, str(100 * number), str(clients),
                                          str(keys), str(ttl_ms), str(seed)],
                                         cluster.environment()))

    def answers(self):
        """How many operations went well so far."""
        count = 0
        for path in self.paths:
            try:
                with open(path, "rb") as file:
                    count += file.read().count(b'"type":"ok"')
            except FileNotFoundError:
                pass
        return count

    def wait_answers(self, more, timeout_s=30):
        """Until so many more operations went well."""
        target = self.answers() + more
        for command in self.commands:
            if command.done() and command.result is None:
                raise Failed(f"the history's clients ended: {command.wait(1)}")
        wait_until(lambda: self.answers() >= target, timeout_s, f"{more} more answers")

    def kill9(self, number):
        self.commands[number].signal(signal.SIGKILL)
        self.commands[number].wait(10)

    def key(self, number):
        """As history.c names them."""
        return f"history/{'s' if self.model == 'shared-lock' else 'x'}/{number}"

    def add_query(self, key, invoked_ns, answered_ns, answer):
        """What a test has read itself (wire.queried)."""
        event = {"process": READERS + len(self.more), "f": "query", "key": key}
        told = {"holders": answer["holders"]}
        if answer["holders"] > 0:
            told.update(token=str(answer["token"]),
                        mode="exclusive" if answer["exclusive"] else "shared")
        self.more += [dict(event, type="invoke", time=invoked_ns),
                      dict(event, **told, type="ok", time=answered_ns)]

    def finish(self):
        """Ends the clients. The events, and the history made of them."""
        for command in self.commands:
            if command.result is None:
                command.signal(signal.SIGTERM)
        for command in self.commands:
            if command.result is None:
                command.wait(60).ok()
        events = [event for path in self.paths for event in read_lines(path)]
        return with_endings(events + self.more, self.model)

    def check(self, least=250):
        """Ends the clients and judges what they saw."""
        history = self.finish()
        answered = sum(1 for event in history if event["type"] == "ok")
        expect(answered >= least, f"only {answered} operations were answered")
        path = os.path.join(self.directory, f"history-{self.model}.json")
        expect_linearizable(history, self.model, path)
        unknown = sum(1 for event in history if event["type"] == "info")
        endings = sum(1 for event in history if event["process"] >= ENDINGS)
        print(f"{self.model}: {answered} operations, {unknown} of unknown outcome, {endings} "
              "leases that ended by themselves: linearizable")
        return history
