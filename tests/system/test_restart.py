# SPDX-License-Identifier: Apache-2.0
"""Orderly restarts: of everybody, node by node, and with another number of workers."""
import time

from check import expect, run
from harness import Cluster
from loadlog import Load


def test_other_number_of_workers():
    cluster = Cluster(shards=6).start()
    load = Load(cluster)
    load.wait_grants(200)
    load.kill9()
    held = load.check_held()
    for workers in (2, 1):
        for node in cluster:
            node.stop()
        for node in cluster:
            node.restart(workers)
        cluster.wait_ready()
        cluster.wait_equal()
        for node in cluster:
            expect(node.status()["workers"] == workers, f"node {node.number} has {workers} workers")
        expect(load.check_held() == held, f"all locks are held with {workers} workers")
        load.check_next_tokens()


def test_mixed_numbers_of_workers():
    cluster = Cluster(shards=6)
    cluster[1].workers = 2
    cluster[2].workers = 3
    cluster.start()
    load = Load(cluster)
    load.wait_grants(300)
    cluster[2].restart(1)
    cluster.wait_ready()
    load.wait_grants(load.grants() + 200)
    load.kill9()
    cluster.wait_equal()
    load.check_held()


def test_rolling_restart_under_load():
    cluster = Cluster().start()
    load = Load(cluster)
    load.wait_grants(200)
    for node in cluster:
        node.restart()
        cluster.wait_ready()
        load.wait_grants(load.grants() + 200)
    load.kill9()
    cluster.wait_equal()
    print(f"{load.check_held()} locks are held after a rolling restart")
    load.check_next_tokens()


def test_orderly_stop_hands_over():
    """SIGTERM gives up leadership first: clients wait less than for an election by timeout."""
    cluster = Cluster(shards=1, settings={"election_timeout": "2s"}).start(40)
    load = Load(cluster)
    load.wait_grants(100)
    leader = cluster.leader_of("load/0/0/0")
    stopped_ns = time.monotonic_ns()
    leader.stop()
    expect(time.monotonic_ns() - stopped_ns < 5e9, "an orderly stop takes less than 5 s")
    load.wait_grants(load.grants() + 100)
    longest = load.longest_pause(stopped_ns)
    print(f"the longest pause between grants was {longest * 1000:.0f} ms")
    expect(longest < 1.5, f"grants paused for {longest:.2f} s with an election timeout of 2 s")
    load.kill9()


if __name__ == "__main__":
    run(globals())
