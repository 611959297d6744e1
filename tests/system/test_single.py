# SPDX-License-Identifier: Apache-2.0
"""One node started by hand, and what `belay lock` promises: token, exit code, --try, --wait."""
import os
import signal
import subprocess

from check import Directory, Stopwatch, equal, expect, remember, run, wait_until
from harness import BELAY, BELAYD, BUSY, Command, TIMED_OUT, USAGE

UP_SECONDS = 3.0  # a second is the aim; what is above is a busy machine's
RSS_BYTES = 300 << 20


class Dev:
    """belayd --dev, which says on standard output when it is ready and where."""

    def __init__(self, *words):
        self.directory = Directory().path
        self.watch = Stopwatch()
        self.log = open(os.path.join(self.directory, "log"), "wb")
        self.process = subprocess.Popen([BELAYD, "--dev", *words], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        start_new_session=True)
        remember(self)
        line = self.process.stdout.readline()
        self.up_seconds = self.watch.seconds()
        expect(line.startswith("belayd is ready at "), f"what --dev says: {line!r}")
        self.endpoint = line.split()[4].rstrip(";")

    def environment(self):
        given = {key: value for key, value in os.environ.items() if not key.startswith("BELAY")}
        given["BELAY_ENDPOINTS"] = self.endpoint
        return given

    def spawn(self, *words):
        return Command([BELAY, *words], self.environment())

    def belay(self, *words, timeout_s=20):
        return self.spawn(*words).wait(timeout_s)

    def rss_bytes(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) * 1024

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()

    def report(self):
        with open(self.log.name, encoding="utf-8", errors="replace") as file:
            return f"---- the node's log:\n{file.read()[-4000:]}"


def held_by(dev, name):
    return dev.belay("holders", name, "-o", "json").ok().json()["holders"]


def test_up_quickly_and_small():
    dev = Dev()
    dev.belay("acquire", "first", "--ttl", "60s").ok()
    rss = dev.rss_bytes()
    print(f"up in {dev.up_seconds * 1000:.0f} ms, RSS {rss >> 20} MiB")
    expect(dev.up_seconds < UP_SECONDS, f"up in {dev.up_seconds:.2f} s")
    expect(rss < RSS_BYTES, f"RSS is {rss >> 20} MiB")
    dev.process.send_signal(signal.SIGTERM)
    equal(dev.process.wait(timeout=10), 0, "exit code after SIGTERM")


def test_lock_passes_through():
    dev = Dev()
    done = dev.belay("lock", "job", "--", "sh", "-c", "echo $BELAY_TOKEN $BELAY_LOCK; exit 7")
    equal(done.code, 7, f"CMD's own exit code: {done}")
    token, name = done.out.split()
    expect(int(token) > 0, "CMD finds a token")
    equal(name, "job", "BELAY_LOCK")
    done = dev.belay("lock", "job", "--", "sh", "-c", "kill -9 $$")
    equal(done.code, 128 + 9, f"a signalled CMD: {done}")
    equal(held_by(dev, "job"), [], "holders after CMD ended")
    dev.belay("lock", "job", "--", "/nonexistent/program").fails(127)
    dev.belay("lock", "job", "--try").fails(USAGE)
    again = dev.belay("lock", "job", "--", "sh", "-c", "echo $BELAY_TOKEN").ok()
    expect(int(again.out) > int(token), "a later grant has a higher token")


def test_try_says_who():
    dev = Dev()
    holder = dev.spawn("lock", "job", "--value", "the first one", "--", "sleep", "60")
    wait_until(lambda: held_by(dev, "job"), 10, "the lock is held")
    token = held_by(dev, "job")[0]["token"]
    dev.belay("lock", "job", "--try", "--", "true").fails(BUSY, "the first one", token)
    dev.belay("acquire", "job", "--try").fails(BUSY, "the first one", token)
    dev.belay("acquire", "job", "--wait", "300ms").fails(TIMED_OUT)
    equal(dev.belay("queue", "job", "-o", "json").ok().json()["queue"], [],
          "the queue after a timed-out wait")
    holder.signal(signal.SIGTERM)
    equal(holder.wait(10).code, 128 + signal.SIGTERM, "a holder that was asked to end")
    dev.belay("lock", "job", "--try", "--", "true").ok()


def test_wait_waits_its_turn():
    dev = Dev()
    out = os.path.join(dev.directory, "out")
    # Opening the FIFO holds the first one inside until the test says so.
    fifo = os.path.join(dev.directory, "fifo")
    os.mkfifo(fifo)
    first = dev.spawn("lock", "job", "--", "sh", "-c",
                      f"echo 1 in >>{out}; read x <{fifo}; echo 1 out >>{out}")
    wait_until(lambda: os.path.exists(out), 20, "the first one is in")
    second = dev.spawn("lock", "job", "--wait", "20s", "--", "sh", "-c", f"echo 2 in >>{out}")
    wait_until(lambda: len(dev.belay("queue", "job", "-o", "json").ok().json()["queue"]) == 1, 10,
               "the second one stands in the queue")
    expect(not second.done(), "the second one waits")
    with open(fifo, "w", encoding="ascii") as file:
        file.write("go\n")
    first.wait(10).ok()
    second.wait(10).ok()
    with open(out, encoding="ascii") as file:
        equal(file.read(), "1 in\n1 out\n2 in\n", "what happened in which order")


if __name__ == "__main__":
    run(globals())
