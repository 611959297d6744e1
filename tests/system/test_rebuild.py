# SPDX-License-Identifier: Apache-2.0
"""A node whose data is damaged or gone: its replicas do not vote, are rebuilt under new ids and
catch up. A torn tail is no damage. Memory durability: every restart is a rebuild."""
import glob
import os
import re
import shutil

from check import equal, expect, run
from harness import Cluster
from loadlog import Load


def wal_files(node):
    """Segments, those with data first in the order of their names."""
    found = sorted(path for path in glob.glob(os.path.join(node.data, "**", "*"), recursive=True)
                   if os.path.isfile(path) and "wal" in os.path.relpath(path, node.data) and
                   os.path.getsize(path) >= 1 << 20)
    expect(found, f"WAL segments in {os.listdir(node.data)}")
    return found


def last_data_offset(path):
    """Where the zero-filled rest begins."""
    with open(path, "rb") as file:
        return len(file.read().rstrip(b"\0"))


def written_segments(node):
    return [path for path in wal_files(node) if last_data_offset(path) > 0]


def flip_in_the_middle(path):
    """One bit of a frame with valid ones after it. Frames are padded with zeroes, which mean
    nothing: the byte must be one that does."""
    with open(path, "r+b") as file:
        data = file.read()
        offset = len(data.rstrip(b"\0")) // 2
        while data[offset] == 0 or offset % 4096 < 128:
            offset += 1
        expect(offset < len(data.rstrip(b"\0")) - 8192, "frames follow the one that is damaged")
        file.seek(offset)
        file.write(bytes([data[offset] ^ 0x40]))


def rebuilt(node):
    """{shard: (lost id, new id)} as its log has it."""
    found = re.findall(r"event=replica_rebuilt shard=(\d+) lost=(\w+) new=(\w+)", node.log())
    return {int(shard): (lost, new) for shard, lost, new in found}


def loaded_cluster(**options):
    cluster = Cluster(**options).start()
    load = Load(cluster)
    load.wait_grants(300)
    load.kill9()
    cluster.wait_equal()
    return cluster, load


def rejoins(cluster, load, node):
    cluster.wait_ready(30)
    cluster.wait_equal(40)
    node.check_alive()
    load.check_held()
    load.check_next_tokens()
    # What it was given is durable: the others can now fail one by one.
    other = next(one for one in cluster if one is not node)
    other.kill9()
    cluster.wait_ready(20)
    load.check_held()
    other.start()
    cluster.wait_ready(20)
    cluster.wait_equal(30)


def test_flipped_byte_in_the_middle():
    cluster, load = loaded_cluster()
    victim = cluster[2]
    victim.stop()
    flip_in_the_middle(written_segments(victim)[0])
    victim.start()
    rejoins(cluster, load, victim)
    expect("event=wal_corrupt" in victim.log(), "the log says that the WAL is damaged")
    found = rebuilt(victim)
    expect(found, "replicas are rebuilt")
    print(f"rebuilt: {found}")
    expect(all(lost != new for lost, new in found.values()), f"under new ids: {found}")


def test_wiped_directory():
    cluster, load = loaded_cluster()
    victim = cluster[3]
    victim.kill9()
    shutil.rmtree(victim.data)
    victim.start()
    rejoins(cluster, load, victim)


def test_torn_tail_is_cut():
    cluster, load = loaded_cluster()
    victim = cluster[1]
    victim.kill9()
    path = max(written_segments(victim), key=lambda one: os.stat(one).st_mtime_ns)
    with open(path, "r+b") as file:
        end = last_data_offset(path)
        file.seek(end - 3)
        file.write(b"\0\0\0")
    victim.start()
    cluster.wait_ready(20)
    cluster.wait_equal(20)
    load.check_held()
    equal(rebuilt(victim), {}, "replicas rebuilt because of a torn tail")
    expect("event=wal_cut" in victim.log(), "the log says that the tail was cut")


def test_memory_node_comes_back():
    cluster, load = loaded_cluster(durability="memory")
    victim = cluster[2]
    victim.kill9()
    cluster.wait_ready(20)
    victim.start()
    rejoins(cluster, load, victim)


def test_memory_restart_of_all():
    cluster, load = loaded_cluster(durability="memory")
    for node in cluster:
        node.kill9()
    for node in cluster:
        node.start()
    cluster.wait_ready(30)
    equal(cluster.locks("load/"), {}, "locks after everybody's restart in memory durability")
    load.check_next_tokens()


def test_all_restart_after_rebuild():
    """The rebuilt node's data must carry its weight in a restart of everybody."""
    cluster, load = loaded_cluster()
    cluster[3].kill9()
    shutil.rmtree(cluster[3].data)
    cluster[3].start()
    cluster.wait_ready(30)
    cluster.wait_equal(40)
    for node in cluster:
        node.kill9()
    cluster[2].start()
    cluster[3].start()
    cluster.wait_ready(30, nodes=[cluster[2], cluster[3]])
    load.check_held()
    cluster[1].start()
    cluster.wait_ready(30)
    cluster.wait_equal(30)


if __name__ == "__main__":
    run(globals())
