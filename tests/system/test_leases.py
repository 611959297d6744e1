# SPDX-License-Identifier: Apache-2.0
"""Leases end on time and never early: of a client that was killed, across a leader change, and of a
session's waiters."""
import os
import signal
import time

from check import equal, expect, run, wait_until
from harness import Cluster, LOST, Waiter, alive, descendants

# A tick, a stamp interval and the machine's own delays.
LATE_SECONDS = 1.5


def test_killed_client():
    """`belay acquire` leaves the lock behind like a client that was killed while it held it."""
    cluster = Cluster().start()
    started = time.monotonic()
    held = cluster.acquire("job", "3s")
    answered = time.monotonic()
    granted = Waiter(cluster, "job", "60s", "--wait", "30s").granted(20)
    now = time.monotonic()
    print(f"granted {now - started:.2f} s after the first request for a TTL of 3 s")
    # The server stamped the grant between those two moments.
    expect(now - started >= 3.0, f"the waiter was granted {now - started:.3f} s after the request")
    expect(now - answered < 3.0 + LATE_SECONDS, f"only after {now - answered:.2f} s")
    expect(granted["token"] > held["token"], "the waiter's token is higher")
    cluster.belay("renew", "job", held["lease"]).fails(LOST)


def start_holder(cluster, ttl):
    """belay lock around a command whose pid is written down; (command, pid, token)."""
    pid_file = os.path.join(cluster.directory, "pid")
    holder = cluster.spawn("lock", "job", "--ttl", ttl, "--", "sh", "-c",
                           f"echo $$ >{pid_file}; exec sleep 60")
    wait_until(lambda: os.path.exists(pid_file) and open(pid_file, encoding="ascii").read(), 10,
               "the command runs")
    with open(pid_file, encoding="ascii") as file:
        pid = int(file.read())
    waiter = Waiter(cluster, "job", "60s", "--wait", "30s")
    wait_until(lambda: len(cluster.queue("job")) == 1, 10, "the waiter is queued")
    return holder, pid, cluster.holders("job")[0]["token"], waiter


def test_killed_belay_lock():
    """Only the process that the user started is killed: its command is ended, then released."""
    cluster = Cluster().start()
    holder, pid, token, waiter = start_holder(cluster, "30s")
    holder.signal(signal.SIGKILL)
    granted = waiter.granted(20)
    expect(not alive(pid), "the command is dead before the next one is granted")
    expect(granted["token"] > token, "the waiter's token is higher")


def test_killed_tree():
    """The holder dies as a whole: the lock goes to the waiter after the TTL, not before."""
    cluster = Cluster().start()
    holder, _, token, waiter = start_holder(cluster, "3s")
    tree = descendants(holder.pid)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for one in tree:
            os.kill(one, number)
    remaining = cluster.holders("job")[0]["remaining_ms"] / 1000
    killed = time.monotonic()
    granted = waiter.granted(20)
    seconds = time.monotonic() - killed
    print(f"granted {seconds:.2f} s after the kill, with {remaining:.2f} s of the lease left")
    # What is read rounds to milliseconds and was on its way for a while.
    expect(seconds > remaining - 0.1, f"granted {seconds:.2f} s after the kill, "
           f"{remaining:.2f} s of the lease were left")
    expect(seconds < remaining + LATE_SECONDS, f"granted only after {seconds:.2f} s")
    expect(granted["token"] > token, "the waiter's token is higher")


def test_leader_change_neither_ends_nor_resets():
    cluster = Cluster(shards=1).start()
    ttl = 6.0
    started = time.monotonic()
    held = cluster.acquire("job", "6s")
    answered = time.monotonic()
    waiter = Waiter(cluster, "job", "60s", "--wait", "60s")
    wait_until(lambda: len(cluster.queue("job")) == 1, 10, "the waiter is queued")

    def remaining():
        return cluster.holders("job")[0]["remaining_ms"] / 1000
    wait_until(lambda: remaining() < ttl - 1, 10, "a second of the lease has passed")
    for _ in range(2):
        before = remaining()
        victim = cluster.leader_of("job")
        victim.kill9()
        wait_until(remaining, 10, "the new leader answers")
        # The new one goes on from the last stamp in the log, which may be a stamp interval old.
        after = remaining()
        expect(after < before + 0.4, f"the lease was {before:.2f} s and is {after:.2f} s")
        victim.start()
        cluster.wait_ready(20)
    expect(time.monotonic() - started < ttl - 0.5, "the leader changes took no longer than the TTL")
    equal(cluster.holders("job")[0]["token"], held["token"], "the holder's token")
    granted = waiter.granted(30)
    now = time.monotonic()
    print(f"the lease of {ttl} s ended after {now - started:.2f} s, two leaders having died")
    expect(now - started >= ttl, f"the lease ended early, after {now - started:.2f} s")
    expect(now - answered < ttl + 2 * 0.8 + LATE_SECONDS, f"only after {now - answered:.2f} s")
    expect(granted["token"] > held["token"], "the waiter's token is higher")


def test_killed_waiter_leaves_the_queue():
    cluster = Cluster().start()
    held = cluster.acquire("job", "60s")
    waiter = cluster.spawn("acquire", "job", "--ttl", "60s", "--wait", "60s")
    wait_until(lambda: len(cluster.queue("job")) == 1, 10, "the waiter is queued")
    waiter.signal(signal.SIGKILL)
    # Its session (10 s) ends; it is never granted afterwards.
    wait_until(lambda: not cluster.queue("job"), 20, "the dead waiter is out of the queue")
    cluster.release("job", held)
    equal(cluster.holders("job"), [], "holders after the release")


def test_renewal_keeps_it():
    cluster = Cluster().start()
    held = cluster.acquire("job", "2s")
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        cluster.belay("renew", "job", held["lease"]).ok()
        found = cluster.holders("job")
        equal([one["token"] for one in found], [held["token"]], "the holder while it renews")
    cluster.belay("acquire", "job", "--try").fails(101)
    cluster.release("job", held)


if __name__ == "__main__":
    run(globals())
