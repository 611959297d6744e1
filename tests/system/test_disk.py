# SPDX-License-Identifier: Apache-2.0
"""A full disk: the node steps down and says so, the others serve, nothing acknowledged is lost, and
with room again it comes back."""
import os

from check import Failed, expect, run, wait_until
from harness import Cluster
from loadlog import Load
from netns import call, unshared

DISK_BYTES = 64 << 20
# Small segments, so that they are soon used up and a snapshot must be saved.
SETTINGS = {"limits": {"leases": 4096}, "wal": {"segment": "2MiB", "segments": "4"},
            "log_ring": {"bytes": "256KiB", "entries": "1024", "ship_window": "32KiB"}}


def fill(directory):
    """Takes all the room that is left."""
    path = os.path.join(directory, "ballast")
    with open(path, "wb", buffering=0) as file:
        for step in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(bytes(step))
            except OSError:
                continue
    return path


def cluster_with_small_disk(victim):
    cluster = Cluster(shards=2, settings=SETTINGS)
    os.mkdir(cluster[victim].data)
    call("mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", cluster[victim].data)
    return cluster.start()


def test_full_disk():
    cluster = cluster_with_small_disk(1)
    victim, others = cluster[1], [cluster[2], cluster[3]]
    load = Load(cluster, slots=32)
    load.wait_grants(100)
    ballast = fill(victim.data)

    def steps_down():
        if not victim.running():
            raise Failed(f"the node ended with {victim.process.returncode}")
        return victim.status()["state"] == "stepping-down"
    wait_until(steps_down, 40, "the node with the full disk steps down")
    wait_until(lambda: all(shard["role"] != "leader" for shard in victim.status()["shards"]), 10,
               "it leads nothing")
    expect("full" in victim.log() or "no room" in victim.log(), "its log says why")
    status = cluster.belay("status", "-o", "json").json()
    states = {node.get("node"): node.get("state") for node in status["nodes"]}
    expect(states[1] == "stepping-down", f"belay status says so: {states}")
    before = load.grants()
    load.wait_grants(before + 300)
    numbers = [node.number for node in others]
    held = cluster.acquire("job", nodes=numbers)
    cluster.release("job", held, nodes=numbers)
    load.kill9()
    load.check_held()
    # Room again: a restart brings it back.
    os.unlink(ballast)
    if victim.running():
        victim.stop()
    victim.process = None
    victim.start()
    cluster.wait_ready(30)
    cluster.wait_equal(40)
    load.check_held()
    load.check_next_tokens()


def last_indexes(node):
    return {row["shard"]: row["last_index"] for row in node.status()["shards"]}


def test_room_again_without_restart():
    """No snapshot can be saved until neither log nor ring take any more, while the others go on.
    With room again it catches up by itself."""
    cluster = cluster_with_small_disk(1)
    victim = cluster[1]
    load = Load(cluster, slots=32)
    load.wait_grants(100)
    ballast = fill(victim.data)
    wait_until(lambda: all(last > last_indexes(victim)[shard] + 2000
                           for shard, last in last_indexes(cluster[2]).items()), 60,
               "the node with the full disk is left behind")
    load.wait_grants(load.grants() + 1000)
    before = {row["shard"]: row["snapshot_index"] for row in victim.status()["shards"]}
    os.unlink(ballast)
    wait_until(lambda: all(row["snapshot_index"] > before[row["shard"]]
                           for row in victim.status()["shards"]), 30, "snapshots are saved again")
    load.kill9()
    victim.check_alive()
    cluster.wait_equal(40)
    victim.kill9()
    victim.start()
    cluster.wait_ready(30)
    cluster.wait_equal(40)
    load.check_held()
    expect("replica_rebuilt" not in victim.log(), "no rebuild was necessary")


def test_starts_on_full_disk():
    """No room for the WAL: a clear error and an exit code, not a hang."""
    cluster = Cluster(nodes=1, shards=2, settings=SETTINGS)
    os.mkdir(cluster[1].data)
    call("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", cluster[1].data)
    cluster[1].start()
    code = cluster[1].wait_end(15)
    expect(code == 1, f"exit code {code}")
    expect("No space left" in cluster[1].log(), "its log says why")


if __name__ == "__main__":
    unshared()
    run(globals())
