# SPDX-License-Identifier: Apache-2.0
"""Between a request and its answer there is no kernel and no allocator: under load, a worker that
polls busily and replicates to memory makes no system call, no allocation and no page fault. And
clients behind the same device may be killed as often as they like."""
import os
import re
import signal
import struct
import subprocess
import time

from check import Directory, equal, expect, remember, run, wait_until
from harness import BELAYD

ASKER = os.environ.get("BELAY_ASKER", "")
ALLOCATIONS = os.environ.get("BELAY_ALLOCATIONS_LIBRARY", "")
WATCHED_SECONDS = 5
CLIENTS = 64
KILLS = 10

CONFIGURATION = """
node: 1
members:
  - node: 1
    client: "{host}:7400"
    peer: "{host}:7500"
data_directory: "{directory}/data"
insecure: true
durability: memory
polling: busy
workers: 1
shards: 4
limits:
  leases: 4096
{more}
"""


class Server:
    """belayd with one busy worker, its allocations counted."""

    def __init__(self, host, more=""):
        self.directory = Directory().path
        config = os.path.join(self.directory, "belayd.yaml")
        with open(config, "w", encoding="ascii") as file:
            file.write(CONFIGURATION.format(host=host, directory=self.directory,
                                            more=more.format(directory=self.directory)))
        self.allocations_path = os.path.join(self.directory, "allocations")
        environment = dict(os.environ, LD_PRELOAD=ALLOCATIONS,
                           BELAY_ALLOCATIONS=self.allocations_path)
        self.log_path = os.path.join(self.directory, "log")
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen([BELAYD, "--config", config], env=environment,
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        remember(self)
        wait_until(self.ready, 30, "every shard has a leader")

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def ready(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"belayd has ended: {self.log()}")
        return "event=ready" in self.log()

    def threads(self):
        """{name: thread id}; workers are named belay-worker-N."""
        found = {}
        for thread in os.listdir(f"/proc/{self.process.pid}/task"):
            with open(f"/proc/{self.process.pid}/task/{thread}/comm", encoding="ascii") as file:
                found[file.read().strip()] = int(thread)
        return found

    def faults(self, thread):
        """Minor and major page faults."""
        with open(f"/proc/{self.process.pid}/task/{thread}/stat", encoding="ascii") as file:
            words = file.read().rsplit(")", 1)[1].split()
        return int(words[7]), int(words[9])

    def allocations(self):
        """{thread id: calls so far}"""
        with open(self.allocations_path, "rb") as file:
            pairs = struct.iter_unpack("<QQ", file.read())
        return {thread: calls for thread, calls in pairs if thread}

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def report(self):
        return f"---- belayd's log:\n{self.log()[-3000:]}"


VHOST = """dpdk:
  device: "net_vhost0,iface={directory}/vhost"
  address: 10.78.0.1/24
  hugepages: false
"""


def ask(server, seconds):
    device = f"net_virtio_user0,path={server.directory}/vhost"
    return subprocess.Popen([ASKER, device, str(CLIENTS), str(seconds)], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def system_calls(thread, seconds):
    """{name: calls} of this thread in that time."""
    done = subprocess.run(["timeout", "--signal=INT", str(seconds), "strace", "-qq", "-c", "-U",
                           "calls,name", "-p", str(thread)], capture_output=True, text=True,
                          check=False)
    expect("attach" not in done.stderr, f"strace: {done.stderr}")
    rows = re.findall(r"^ *(\d+) (\w+)$", done.stderr, re.MULTILINE)
    return {name: int(calls) for calls, name in rows if name != "total"}


def watch(server, thread):
    """(system calls, allocations, page faults) of the thread in WATCHED_SECONDS."""
    before = server.allocations().get(thread, 0), server.faults(thread)
    calls = system_calls(thread, WATCHED_SECONDS)
    after = server.allocations().get(thread, 0), server.faults(thread)
    return calls, after[0] - before[0], tuple(b - a for a, b in zip(before[1], after[1]))


def test_neither_kernel_nor_allocator():
    server = Server("10.78.0.1", VHOST)
    worker = server.threads()["belay-worker-0"]
    with ask(server, WATCHED_SECONDS + 2) as asker:
        try:
            equal(asker.stdout.readline(), "started\n", "what the load says")
            equal(asker.stdout.readline(), "warm\n", "what it says then")
            calls, allocations, faults = watch(server, worker)
            said = asker.stdout.read()
            equal(asker.wait(timeout=60), 0, f"the load ends well: {said}{asker.stderr.read()}")
        finally:
            asker.kill()
    pairs = int(re.search(r"pairs: (\d+)", said)[1])
    print(f"{pairs} acquires and releases in {WATCHED_SECONDS + 2} s; system calls: {calls}, "
          f"allocations: {allocations}, page faults: {faults}")
    expect(pairs > 10000, f"that was no load: {pairs}")
    equal(calls, {}, "system calls of the worker")
    equal(allocations, 0, "allocations of the worker")
    equal(faults, (0, 0), "page faults of the worker")
    # The counter does count: others have allocated.
    main = server.allocations().get(server.process.pid, 0)
    expect(main > 100, f"{main} allocations of the main thread")
    server.process.send_signal(signal.SIGTERM)
    equal(server.process.wait(timeout=20), 0, "exit code after SIGTERM")


def test_the_same_eyes_see_a_kernel_port():
    """Or they might be blind: a busy worker on kernel UDP calls the kernel all the time."""
    server = Server("127.0.0.1")
    calls = system_calls(server.threads()["belay-worker-0"], 1)
    expect(calls.get("recvmmsg", 0) > 100, f"system calls on kernel UDP: {calls}")


def test_clients_are_killed_and_come_again():
    server = Server("10.78.0.1", VHOST)
    for number in range(KILLS):
        with ask(server, 60) as asker:
            try:
                equal(asker.stdout.readline(), "started\n", f"what load {number} says")
                time.sleep(0.02 * number)  # not always at the same place
            finally:
                asker.kill()
        expect(server.process.poll() is None, f"belayd lives after kill {number + 1}")
    with ask(server, 1) as asker:
        said, wrong = asker.communicate(timeout=60)
        equal(asker.returncode, 0, f"the last one ends well: {said}{wrong}")


run(globals())
