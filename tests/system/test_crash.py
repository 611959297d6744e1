# SPDX-License-Identifier: Apache-2.0
"""kill -9 of a leader, of a follower, and of everybody at once, under load: what was acknowledged
is still there, and tokens go on rising."""
import time

from check import expect, run, wait_until
from harness import Cluster, Waiter
from loadlog import Load


def test_leader_killed_under_load():
    cluster = Cluster().start()
    load = Load(cluster)
    load.wait_grants(200)
    shard = cluster.shard_of("load/0/0/0")
    victim = cluster.leader_of("load/0/0/0")
    killed_ns = time.monotonic_ns()
    victim.kill9()
    wait_until(lambda: load.grants_after(killed_ns, shard) > 50, 20, "grants by the new leader")
    seconds = load.longest_pause(killed_ns, shard)
    print(f"no grant for {seconds * 1000:.0f} ms when the leader was killed")
    expect(seconds < 2, f"failover took {seconds:.2f} s")
    load.wait_grants(load.grants() + 200)
    print(f"{load.check_held()} locks are held after the failover")
    victim.start()
    cluster.wait_ready()
    load.kill9()
    cluster.wait_equal()
    load.check_held()
    load.check_next_tokens()


def test_follower_killed_under_load():
    cluster = Cluster(shards=1).start()
    load = Load(cluster)
    load.wait_grants(200)
    victim = cluster.followers_of("load/0/0/0")[0]
    killed_ns = time.monotonic_ns()
    victim.kill9()
    load.wait_grants(load.grants() + 500)
    seconds = load.longest_pause(killed_ns)
    print(f"no grant for {seconds * 1000:.0f} ms when a follower was killed")
    expect(seconds < 0.5, f"grants paused for {seconds:.2f} s although only a follower died")
    victim.start()
    cluster.wait_ready()
    load.wait_grants(load.grants() + 100)
    load.kill9()
    cluster.wait_equal()
    load.check_held()


def test_all_killed_under_load():
    cluster = Cluster().start()
    load = Load(cluster)
    for round_number in range(3):
        load.wait_grants(load.grants() + 200)
        for node in cluster:
            node.kill9()
        if round_number == 2:
            load.kill9()
        for node in cluster:
            node.start()
        cluster.wait_ready()
    print(f"{load.check_held()} locks are held after three crashes of everybody")
    cluster.wait_equal()
    load.check_next_tokens()


def test_queue_survives_leader():
    cluster = Cluster().start()
    held = cluster.acquire("job", "60s")
    waiter = Waiter(cluster, "job", "60s", "--wait", "60s")
    wait_until(lambda: len(cluster.queue("job")) == 1, 10, "the waiter is queued")
    victim = cluster.leader_of("job")
    victim.kill9()
    wait_until(lambda: [one["token"] for one in cluster.holders("job")] == [held["token"]], 20,
               "the new leader knows the holder")
    expect(len(cluster.queue("job")) == 1, "the new leader knows the waiter")
    cluster.release("job", held)
    expect(waiter.granted(10)["token"] > held["token"], "the waiter's token is higher")


if __name__ == "__main__":
    run(globals())
