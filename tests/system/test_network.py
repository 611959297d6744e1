# SPDX-License-Identifier: Apache-2.0
"""Nodes in network namespaces, cut from each other with nftables: the minority's leader steps down,
the majority goes on, clients on the minority's side are told in time, and all converges after."""
import os
import time

from check import equal, expect, run, wait_until
from harness import Cluster, LOST, UNREACHABLE, alive
from netns import network_of, unshared

NODES = (1, 2, 3)


def start():
    """Three nodes on hosts 1 to 3; hosts 4 and 5 are for clients. The test sees all of them."""
    network = network_of(5)
    cluster = Cluster(hosts={node: network.address(node) for node in NODES})
    for node in cluster:
        node.prefix = network.prefix(node.number)
    return network, cluster.start(30)


def test_minority_leader():
    network, cluster = start()
    leader = cluster.leader_of("job")
    others = [node for node in cluster if node is not leader]
    majority = [node.number for node in others]
    # Client 4 is on the leader's side of the cut, client 5 on the others'.
    near, far = network.prefix(4), network.prefix(5)
    pid_file = os.path.join(cluster.directory, "pid")
    holder = cluster.spawn("lock", "job", "--ttl", "4s", "--", "sh", "-c",
                           f"echo $$ >{pid_file}; exec sleep 120", prefix=near)
    wait_until(lambda: cluster.holders("job"), 10, "the lock is held")
    token = cluster.holders("job")[0]["token"]
    remaining = cluster.holders("job")[0]["remaining_ms"] / 1000
    network.cut([leader.number, 4], majority + [5])
    cut = time.monotonic()
    successor = cluster.leader_of("job", nodes=others)
    print(f"the majority has a leader {time.monotonic() - cut:.3f} s after the cut")
    expect(successor is not leader, "the successor is another node")
    wait_until(lambda: all(shard["role"] != "leader" for shard in leader.status()["shards"]), 5,
               "the cut-off node leads nothing")
    # A client of the minority: nothing can be had there, and it says so.
    cluster.belay("acquire", "{job}/other", "--try", "--timeout", "1s",
                  prefix=near).fails(UNREACHABLE)
    # The holder learns before its lease can be given to another.
    granted = cluster.spawn("acquire", "job", "--ttl", "60s", "--wait", "30s", "-o", "json",
                            nodes=majority, prefix=far)
    with open(pid_file, encoding="ascii") as file:
        command = int(file.read())
    wait_until(lambda: not alive(command), remaining + 1, "the command is dead")
    told = time.monotonic()
    expect(not granted.done(), "the next holder was granted after the last one had stopped")
    expect(told - cut < remaining, f"stopped {told - cut:.2f} s after the cut, with "
           f"{remaining:.2f} s of the lease left")
    # belay itself still tries to give the lock back, for a while.
    holder.wait(6).fails(LOST)
    following = granted.wait(20).ok().json()
    expect(int(following["token"]) > token, "the next holder's token is higher")
    # The majority serves everything.
    held = cluster.acquire("other", "60s", nodes=majority, prefix=far)
    cluster.release("other", held, nodes=majority, prefix=far)
    network.heal()
    cluster.wait_ready(20)
    cluster.wait_equal(20)
    equal([one["token"] for one in cluster.holders("job", prefix=near)],
          [int(following["token"])], "the holder, seen from the side that was cut off")


def test_minority_follower():
    """A node cut off for a while must not disturb the others when it comes back: no election."""
    network, cluster = start()
    cluster.wait_settled()
    victim = cluster.leader_of("job")
    rest = [node.number for node in cluster if node is not victim]

    def terms():
        """Of the shards that were led by others than the victim before the cut."""
        return {number: {row["shard"]: row["term"] for row in cluster[number].status()["shards"]
                         if before[row["shard"]] != victim.number} for number in rest}
    before = cluster.leaders()
    expect(len(set(before.values())) == 3, f"every node leads something: {before}")
    found = terms()
    network.cut([victim.number], rest)
    # Time for many election timeouts on the side that cannot win.
    wait_until(lambda: all(row["role"] != "leader" and row["leader_node"] == 0
                           for row in victim.status()["shards"]), 10,
               "the cut-off node knows no leader")
    cluster.wait_ready(20, nodes=[cluster[number] for number in rest])
    for ordinal in range(20):
        held = cluster.acquire(f"n/{ordinal}", nodes=rest)
        cluster.release(f"n/{ordinal}", held, nodes=rest)
    network.heal()
    cluster.wait_ready(20)
    cluster.wait_equal(20)
    equal(terms(), found, "terms after the cut-off node came back")


def test_all_apart():
    """No two nodes hear each other: nothing is granted, nothing ends; then all is as it was."""
    network, cluster = start()
    held = cluster.acquire("job", "30s")
    network.cut([1], [2, 3])
    network.cut([2], [3])
    wait_until(lambda: not cluster.leaders(), 10, "nobody leads anything")
    cluster.belay("acquire", "job2", "--try", "--timeout", "1s").fails(UNREACHABLE)
    cluster.belay("holders", "job", "--timeout", "1s").fails(UNREACHABLE)
    stale = cluster.belay("holders", "job", "--stale", "-o", "json").ok().json()
    equal([int(one["token"]) for one in stale["holders"]], [held["token"]], "a stale answer")
    network.heal()
    cluster.wait_ready(20)
    equal([one["token"] for one in cluster.holders("job")], [held["token"]], "the holder")
    cluster.release("job", held)
    cluster.wait_equal(20)


def test_one_way():
    """The leader is heard by nobody but hears everybody: check-quorum must end its leadership."""
    network, cluster = start()
    leader = cluster.leader_of("job")
    others = [node for node in cluster if node is not leader]
    for node in others:
        network.cut_oneway(leader.number, node.number)
    successor = cluster.leader_of("job", nodes=others)
    expect(successor is not leader, "another leads")
    wait_until(lambda: leader.status()["shards"][cluster.shard_of("job")]["role"] != "leader", 10,
               "the deaf-mute leader steps down")
    held = cluster.acquire("job", "60s", nodes=[node.number for node in others])
    network.heal()
    cluster.wait_ready(20)
    equal([one["token"] for one in cluster.holders("job")], [held["token"]], "the holder")
    cluster.wait_equal(20)


if __name__ == "__main__":
    unshared(network=True)
    run(globals())
