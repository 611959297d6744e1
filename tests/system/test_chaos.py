# SPDX-License-Identifier: Apache-2.0
"""Everything at once for a while, from a seed: nodes are killed, stopped, restarted, wiped and cut
off, one or two at a time, under load. Afterwards what was acknowledged is there and all are equal.

BELAY_CHAOS_SEED and BELAY_CHAOS_SECONDS choose another run, a longer one."""
import os
import random
import shutil
import time

from check import Stopwatch, expect, run, wait_until
from harness import Cluster
from histories import Histories
from loadlog import Load
from netns import network_of, unshared

SEED = int(os.environ.get("BELAY_CHAOS_SEED", "1"))
SECONDS = float(os.environ.get("BELAY_CHAOS_SECONDS", "15"))
SMALL = {"log_ring": {"bytes": "256KiB", "entries": "1024", "ship_window": "32KiB"},
         "wal": {"segment": "2MiB", "segments": "4"}, "limits": {"leases": 2048}}
NODES = (1, 2, 3)


class Chaos:
    def __init__(self, seed, durability):
        self.random = random.Random(seed)
        self.network = network_of(4)
        self.cluster = Cluster(shards=3, durability=durability, settings=SMALL,
                               hosts={node: self.network.address(node) for node in NODES})
        for node in self.cluster:
            node.prefix = self.network.prefix(node.number)
        self.cluster.start(30)
        self.durability = durability
        self.steps = []
        self.slowest = (0.0, "")

    def note(self, what):
        self.steps.append(what)

    def wait_some(self, most_s):
        """Time for the fault to matter; there is no condition to wait for."""
        time.sleep(self.random.uniform(0.02, most_s))

    def kill(self, node):
        self.note(f"kill {node.number}")
        node.kill9()
        self.wait_some(1.0)
        node.start()

    def stop(self, node):
        self.note(f"stop {node.number}")
        node.sigstop()
        self.wait_some(1.0)
        node.sigcont()

    def restart(self, node):
        workers = self.random.randint(1, 3)
        self.note(f"restart {node.number} with {workers} workers")
        wait_until(node.status, 10, "the node takes signals")
        node.restart(workers)

    def wipe(self, node):
        self.note(f"wipe {node.number}")
        node.kill9()
        shutil.rmtree(node.data)
        self.wait_some(0.5)
        node.start()

    def cut(self, node):
        self.note(f"cut {node.number}")
        self.network.cut([node.number], [other for other in NODES if other != node.number])
        self.wait_some(1.5)
        self.network.heal()

    def deafen(self, node):
        other = self.random.choice([one for one in NODES if one != node.number])
        self.note(f"{node.number} cannot send to {other}")
        self.network.cut_oneway(node.number, other)
        self.wait_some(1.0)
        self.network.heal()

    def kill_all(self, _):
        if self.durability == "memory":
            return
        self.note("kill all")
        for node in self.cluster:
            node.kill9()
        for node in self.cluster:
            node.start()

    def step(self):
        fault = self.random.choice([self.kill] * 3 + [self.stop, self.restart, self.wipe, self.cut,
                                                      self.deafen, self.kill_all])
        fault(self.cluster[self.random.choice(NODES)])
        # A replica that is being rebuilt does not count: two of three at once would be data loss
        # that was asked for. Faults that keep the data may come one upon the other.
        if fault == self.wipe or self.durability == "memory" or self.random.random() < 0.3:
            healed = Stopwatch()
            self.cluster.wait_ready(30)
            self.cluster.wait_voting(30)
            self.slowest = max(self.slowest, (healed.seconds(), self.steps[-1]))


def chaos(durability):
    print(f"seed {SEED}, {SECONDS:.0f} s")
    chaos_run = Chaos(SEED, durability)
    cluster = chaos_run.cluster
    load = Load(cluster, threads=2, slots=8, keep_max=400)
    histories = Histories(cluster, "shared-lock" if SEED % 2 else "fenced-mutex", processes=2,
                          seed=SEED)
    deadline = time.monotonic() + SECONDS
    try:
        while time.monotonic() < deadline:
            chaos_run.step()
            for node in cluster:
                node.check_alive()
        cluster.wait_ready(30)
        load.wait_grants(load.grants() + 200)
        histories.wait_answers(50)
        load.kill9()
        histories.check(100)
        cluster.wait_equal(30)
        print(f"{len(chaos_run.steps)} faults, {load.grants()} grants, "
              f"{load.check_held()} locks are held; whole again at the latest "
              "%.1f s after '%s'" % chaos_run.slowest)
        load.check_next_tokens()
    except BaseException:
        print(f"faults: {chaos_run.steps}")
        raise
    expect(len(chaos_run.steps) >= 5, "something was done")


def test_disk():
    chaos("disk")


def test_memory():
    chaos("memory")


if __name__ == "__main__":
    unshared(network=True)
    run(globals())
