# SPDX-License-Identifier: Apache-2.0
"""Five thousand waiters on one lock: each release wakes exactly one, the first."""
from check import run
from harness import MASS, Cluster, Command

LIMITS = {"leases": 8192, "sessions": 8192, "waiters": 8192, "queue": 8192}
WAITERS = 5000


def mass(cluster, name, waiters, hand_overs):
    leader = cluster.leader_of(name)
    address, port = leader.client_address
    done = Command([MASS, address, str(port), str(cluster.shard_of(name)), name, str(waiters),
                    str(hand_overs)], cluster.environment()).wait(50).ok()
    print(done.out.strip())


def test_five_thousand_waiters():
    cluster = Cluster(shards=1, durability="memory", settings={"limits": LIMITS})
    cluster.start(settled=True)
    mass(cluster, "hot", WAITERS, WAITERS)
    cluster.wait_equal()


def test_durable_hand_overs():
    cluster = Cluster(shards=1, settings={"limits": LIMITS}).start(settled=True)
    mass(cluster, "hot", WAITERS, 1000)
    cluster.wait_equal()


if __name__ == "__main__":
    run(globals())
