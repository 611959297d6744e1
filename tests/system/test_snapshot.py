# SPDX-License-Identifier: Apache-2.0
"""Snapshots: the log is dropped behind them, a node that was away too long gets one, and crashes at
any point of saving them lose nothing."""
import os

from check import expect, run, wait_until
from harness import Cluster
from loadlog import Load

# A ring and WAL so small that a few thousand entries pass them by.
SMALL = {"log_ring": {"bytes": "256KiB", "entries": "1024", "ship_window": "32KiB"},
         "wal": {"segment": "2MiB", "segments": "4"}, "limits": {"leases": 2048}}


def start(**options):
    cluster = Cluster(shards=2, settings=SMALL, **options).start()
    return cluster, Load(cluster, threads=2, slots=8, keep_max=200)


def last_indexes(node):
    return {row["shard"]: row["last_index"] for row in node.status()["shards"]}


def wait_snapshots(cluster, timeout_s=40):
    """Every node has saved one of every shard."""
    wait_until(lambda: all(row["snapshot_index"] > 0 for node in cluster.alive()
                           for row in node.status()["shards"]), timeout_s,
               "every node has saved a snapshot of every shard")


def away_too_long(durability):
    cluster, load = start(durability=durability)
    load.wait_grants(200)
    victim = cluster[3]
    before = last_indexes(victim)
    victim.kill9()
    wait_until(lambda: all(index > before[shard] + 2500
                           for shard, index in last_indexes(cluster[1]).items()), 60,
               "the ring has passed what the absent node has")
    victim.start()
    cluster.wait_ready(30)
    wait_until(lambda: "event=snapshot_installed" in victim.log(), 30, "it is given a snapshot")
    load.wait_grants(load.grants() + 200)
    load.kill9()
    cluster.wait_equal(30)
    load.check_held()
    # It must be able to carry on with one of the others.
    cluster[1].kill9()
    cluster.wait_ready(20)
    load.check_held()
    load.check_next_tokens()


def test_away_too_long():
    away_too_long("disk")


def test_away_too_long_in_memory():
    away_too_long("memory")


def test_restart_from_snapshots():
    cluster, load = start()
    wait_snapshots(cluster)
    for _ in range(2):
        for node in cluster:
            node.kill9()
        for node in cluster:
            node.start()
        cluster.wait_ready(30)
        load.wait_grants(load.grants() + 300)
    load.kill9()
    cluster.wait_equal()
    print(f"{load.check_held()} locks are held, {load.grants()} were granted")
    load.check_next_tokens()


def test_crashes_while_saving():
    """One node dies again and again while the load makes it save snapshots."""
    cluster, load = start()
    wait_snapshots(cluster)
    victim = cluster[2]
    for round_number in range(6):
        files = set(os.listdir(os.path.join(victim.data, "snapshots")))
        wait_until(lambda: set(os.listdir(os.path.join(victim.data, "snapshots"))) != files, 30,
                   "its snapshot files change")
        victim.kill9()
        victim.start()
        cluster.wait_ready(30)
    load.kill9()
    cluster.wait_equal(30)
    load.check_held()
    expect("replica_rebuilt" not in victim.log(), "no crash made a rebuild necessary")


def test_bounded_disk():
    """What a data directory holds does not grow with the number of operations."""
    cluster, load = start()

    def size_of(path):
        try:
            return os.path.getsize(path)
        except FileNotFoundError:  # an old snapshot was removed just now
            return 0

    def size():
        return sum(size_of(os.path.join(path, name))
                   for path, _, names in os.walk(cluster[1].data) for name in names)
    wait_snapshots(cluster)
    before, grants = size(), load.grants()
    load.wait_grants(grants + 10000, 60)
    load.kill9()
    print(f"{before >> 10} KiB, after 10,000 more grants {size() >> 10} KiB")
    expect(size() < before + (8 << 20), f"{before} bytes grew to {size()}")


if __name__ == "__main__":
    run(globals())
