# SPDX-License-Identifier: Apache-2.0
"""Between a request and its answer there is no kernel and no allocator: under load, a worker that
polls busily and replicates to memory makes no system call, no allocation and no page fault. And
clients behind the same device may be killed as often as they like."""
import mmap
import os
import re
import struct
import subprocess
import threading

from check import equal, expect, run, wait_until
from harness import Cluster

ASKER = os.environ.get("BELAY_ASKER", "")
ALLOCATIONS = os.environ.get("BELAY_ALLOCATIONS_LIBRARY", "")
WATCHED_SECONDS = 5
CLIENTS = 64
KILLS = 10
WARM_PAIRS = 200000  # by then every buffer of either side has been used


def faults_of(pid, thread):
    """Minor and major page faults so far."""
    with open(f"/proc/{pid}/task/{thread}/stat", encoding="ascii") as file:
        words = file.read().rsplit(")", 1)[1].split()
    return int(words[7]), int(words[9])


class Server(Cluster):
    """belayd with one busy worker, its allocations counted; behind a vhost socket if so wanted."""

    def __init__(self, vhost=False):
        self.vhost = vhost
        # A worker that the machine holds up for half an election's time writes that into the log.
        super().__init__(nodes=1, durability="memory",
                         settings={"polling": "busy", "election_timeout": "2s"},
                         hosts={1: "10.78.0.1"} if vhost else None)
        self.socket_path = os.path.join(self.directory, "vhost")
        if vhost:
            self.settings["dpdk"] = {"device": f'"net_vhost0,iface={self.socket_path}"',
                                     "address": "10.78.0.1/24", "hugepages": "false"}
        self.allocations_path = os.path.join(self.directory, "allocations")
        self[1].environment.update(LD_PRELOAD=ALLOCATIONS,
                                   BELAY_ALLOCATIONS=self.allocations_path)
        self[1].start()
        wait_until(self.is_ready, 30, "every shard has a leader")

    def address(self, number, which):
        if not self.vhost:
            return super().address(number, which)
        return "10.78.0.1", {"client": 7400, "peer": 7500}[which]  # which the load asks

    def is_ready(self):
        if not self[1].running():
            raise RuntimeError("belayd has ended")  # not "not yet"
        return "event=ready" in self[1].log()

    @property
    def pid(self):
        return self[1].process.pid

    def threads(self):
        """{name: thread id}; workers are named belay-worker-N."""
        found = {}
        for thread in os.listdir(f"/proc/{self.pid}/task"):
            with open(f"/proc/{self.pid}/task/{thread}/comm", encoding="ascii") as file:
                found[file.read().strip()] = int(thread)
        return found

    def allocations(self):
        """{thread id: calls so far}"""
        with open(self.allocations_path, "rb") as file:
            pairs = struct.iter_unpack("<QQ", file.read())
        return {thread: calls for thread, calls in pairs if thread}


def ask(server, warm, seconds):
    """The load; it says "started" and, after `warm` acquires and releases, "warm"."""
    device = f"net_virtio_user0,path={server.socket_path}"
    return subprocess.Popen([ASKER, device, str(CLIENTS), str(warm), str(seconds)],
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def says(asker, line):
    found = asker.stdout.readline()
    expect(found == line + "\n", f"expected {line!r} of the load, not {found!r}",
           asker.stderr.read() if not found else "")


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
    before = server.allocations().get(thread, 0), faults_of(server.pid, thread)
    calls = system_calls(thread, WATCHED_SECONDS)
    after = server.allocations().get(thread, 0), faults_of(server.pid, thread)
    return calls, after[0] - before[0], tuple(b - a for a, b in zip(before[1], after[1]))


def test_neither_kernel_nor_allocator():
    server = Server(vhost=True)
    worker = server.threads()["belay-worker-0"]
    with ask(server, WARM_PAIRS, WATCHED_SECONDS + 2) as asker:
        try:
            says(asker, "started")
            says(asker, "warm")
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
    main = server.allocations().get(server.pid, 0)
    expect(main > 100, f"{main} allocations of the main thread")
    server[1].stop()


def test_the_same_eyes_see_a_kernel_port():
    """Or they might be blind: a busy worker on kernel UDP calls the kernel all the time."""
    server = Server()
    calls = system_calls(server.threads()["belay-worker-0"], 1)
    expect(calls.get("recvmmsg", 0) > 100, f"system calls on kernel UDP: {calls}")
    server[1].stop()


def test_the_same_eyes_see_page_faults():
    """Those of this thread, which touches so many pages for the first time, and of no other."""
    pages = 1000
    other = threading.Thread(target=threading.Event().wait, args=(60,), daemon=True)
    other.start()
    with mmap.mmap(-1, pages * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        threads = threading.get_native_id(), other.native_id
        before = [faults_of(os.getpid(), thread)[0] for thread in threads]
        for page in range(pages):
            memory[page * mmap.PAGESIZE] = 1
        after = [faults_of(os.getpid(), thread)[0] for thread in threads]
    seen = [b - a for a, b in zip(before, after)]
    expect(pages <= seen[0] < 2 * pages, f"{seen[0]} page faults of a thread that had {pages}")
    expect(seen[1] < 100, f"{seen[1]} page faults of a thread that waits")


def test_clients_are_killed_and_come_again():
    server = Server(vhost=True)
    for number in range(KILLS):
        with ask(server, 1 + 1000 * number, 60) as asker:  # not always at the same place
            try:
                says(asker, "started")
                says(asker, "warm")
            finally:
                asker.kill()
        server[1].check_alive()
    with ask(server, 1, 1) as asker:
        said, wrong = asker.communicate(timeout=60)
        equal(asker.returncode, 0, f"the last one ends well: {said}{wrong}")
    server[1].stop()


run(globals())
