# SPDX-License-Identifier: Apache-2.0
"""SIGSTOP: a stopped leader is replaced and can change nothing afterwards; a stopped holder is told
when it resumes, its command is dead, and its late write is refused."""
import contextlib
import os
import signal
import time

import wire
from check import equal, expect, run, wait_until
from harness import Cluster, LOST, REFUSED, alive, descendants


def test_stopped_leader():
    cluster = Cluster().start()
    held = cluster.acquire("job", "60s")
    leader = cluster.leader_of("job")
    others = [node for node in cluster if node is not leader]
    term = leader.status()["shards"][cluster.shard_of("job")]["term"]
    with wire.Client(leader.client_address) as late:
        shard = cluster.shard_of("job")
        session = late.open(shard)
        leader.sigstop()
        # Reaches the stopped leader's socket now, and is read when somebody else leads.
        late.send(wire.datagram([wire.acquire_item(shard, session, 1, "{job}/late", 60000)],
                                cookie=late.cookie))
        stopped = time.monotonic()
        successor = cluster.leader_of("job", nodes=others)
        print(f"another leads {time.monotonic() - stopped:.3f} s after the stop")
        numbers = [node.number for node in others]
        cluster.release("job", held, nodes=numbers)
        following = cluster.acquire("job", "60s", nodes=numbers)
        expect(following["token"] > held["token"], "the successor's token is higher")
        # The late request waits in the stopped leader's socket. Clients repeat the same number
        # elsewhere, so a later one by the same session is what the late one must not displace.
        leader.sigcont()
        wait_until(lambda: leader.status()["shards"][shard]["role"] != "leader" or
                   leader.status()["shards"][shard]["term"] > term, 10,
                   "the old leader knows that it is none")
        answer = late.acquire(session, 1, "{job}/late", 60000, shard)
        expect(answer["status"] in (wire.NOT_LEADER, wire.OK), f"the late request: {answer}")
    cluster.wait_equal()
    equal([one["token"] for one in cluster.holders("job")], [following["token"]], "the holder")
    cluster.belay("release", "job", held["lease"]).fails(LOST)
    expect(successor.running() and leader.running(), "both still run")


def test_stopped_holder():
    cluster = Cluster().start()
    store = os.path.join(cluster.directory, "store")
    os.mkdir(store)
    pid_file, token_file = (os.path.join(cluster.directory, name) for name in ("pid", "token"))
    script = f"echo $BELAY_TOKEN >{token_file}; echo $$ >{pid_file}; exec sleep 300"
    holder = cluster.spawn("lock", "job", "--ttl", "2s", "--", "sh", "-c", script)
    wait_until(lambda: os.path.exists(pid_file) and open(pid_file, encoding="ascii").read(), 10,
               "the command runs")
    with open(token_file, encoding="ascii") as file:
        token = int(file.read())
    with open(pid_file, encoding="ascii") as file:
        command = int(file.read())
    cluster.belay("store", "put", "report", "old", "--dir", store, "--token", token).ok()
    stopped = descendants(holder.pid)
    expect(command in stopped, "the command is a descendant of belay lock")
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    # Nobody renews: the next one waits for the end of the TTL, and is granted.
    following = cluster.acquire("job", "60s", "--wait", "20s")
    expect(following["token"] > token, "the next holder's token is higher")
    cluster.belay("store", "put", "report", "new", "--dir", store, "--token",
                  following["token"]).ok()
    expect(alive(command), "the stopped command is still there")
    for pid in stopped:
        # Whoever runs again first ends the others, as it should.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    ended = holder.wait(10)
    ended.fails(LOST, "lost")
    wait_until(lambda: not any(alive(pid) for pid in stopped), 5, "its whole tree is dead")
    late = cluster.belay("store", "put", "report", "late", "--dir", store, "--token", token)
    late.fails(REFUSED, "refused", str(following["token"]))
    equal(cluster.belay("store", "get", "report", "--dir", store).ok().out.strip(), "new",
          "what the store holds")
    equal([one["token"] for one in cluster.holders("job")], [following["token"]], "the holder")


def test_command_dies_before_the_lease():
    """The nodes are gone: nothing can be renewed, so the command must end before the deadline."""
    cluster = Cluster(nodes=1).start()
    pid_file = os.path.join(cluster.directory, "pid")
    holder = cluster.spawn("lock", "job", "--ttl", "2s", "--", "sh", "-c",
                           f"echo $$ >{pid_file}; trap '' TERM; while :; do sleep 1; done")
    wait_until(lambda: os.path.exists(pid_file) and open(pid_file, encoding="ascii").read(), 10,
               "the command runs")
    with open(pid_file, encoding="ascii") as file:
        command = int(file.read())
    cluster[1].kill9()
    killed = time.monotonic()
    wait_until(lambda: not alive(command), 5, "the command is dead")
    seconds = time.monotonic() - killed
    expect(seconds < 2.05, f"the command lived {seconds:.2f} s after the node, the TTL is 2 s")
    holder.wait(5).fails(LOST)


if __name__ == "__main__":
    run(globals())
