# SPDX-License-Identifier: Apache-2.0
"""Many sessions that hold a few short leases each: none is lost, and the nodes agree afterwards.
The large form of this is in docs/capacity.md."""
import re

from check import equal, expect, run, wait_until
from harness import CAPACITY, Cluster, Command

CLIENTS, LOCKS, TTL_MS, SECONDS = 2000, 5, 3000, 10


def figure(text, name):
    found = re.search(rf"^{name} +(\d+)|(\d+) {name}", text, re.MULTILINE)
    expect(found, f"'{name}' is in: {text}")
    return int(found.group(1) or found.group(2))


def capacity(cluster, *words):
    return Command([CAPACITY, "--endpoints", cluster.endpoints(), *map(str, words)],
                   cluster.environment())


def test_no_lease_is_lost():
    cluster = Cluster(settings={"limits": {"leases": 8192, "sessions": 2048, "answers": 32768}})
    cluster.start()
    command = capacity(cluster, "--clients", CLIENTS, "--locks", LOCKS, "--ttl-ms", TTL_MS,
                       "--seconds", SECONDS)
    found = command.wait(40).ok().out
    equal((figure(found, "sessions"), figure(found, "locks held"), figure(found, "locks lost"),
           figure(found, "sessions lost")), (CLIENTS, CLIENTS * LOCKS, 0, 0),
          "sessions, locks held, locks lost, sessions lost")
    # Each is renewed at a third of its TTL.
    renewals = figure(found, "renewals/s")
    print(f"{CLIENTS * LOCKS} leases of {TTL_MS} ms, {renewals} renewals/s")
    expect(renewals >= CLIENTS * LOCKS * 1000 // TTL_MS, f"{renewals} renewals/s")
    cluster.wait_equal()


def test_it_sees_what_is_lost():
    """The program itself: a cluster that goes away takes leases along, and that is reported."""
    cluster = Cluster(settings={"limits": {"leases": 8192}})
    cluster.start()
    command = capacity(cluster, "--clients", 20, "--locks", 5, "--ttl-ms", 1000, "--seconds", 3)
    try:
        wait_until(lambda: sum(row["leases"] for status in cluster.statuses().values()
                               for row in status["shards"] if row["role"] == "leader") == 100,
                   10, "all is held")
    finally:
        for node in cluster:
            node.kill9()
    ended = command.wait(40).fails(1)
    equal(figure(ended.out, "locks lost"), 100, "locks lost")


if __name__ == "__main__":
    run(globals())
