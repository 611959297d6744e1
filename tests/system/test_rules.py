# SPDX-License-Identifier: Apache-2.0
"""Schedules from other services' reports that need whole processes."""
import os
import time

from check import equal, expect, run, wait_until
from harness import Cluster, LOST, alive


def read(path):
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def test_all_restart_past_the_ttl():
    """curator#1211: every server goes away for longer than the TTL and comes back. The holder has
    given up by its own clock before anybody else is granted; those who come then get it in turn."""
    ttl = 3.0
    cluster = Cluster().start()
    places = {name: os.path.join(cluster.directory, name)
              for name in ("pid", "inside", "overlap", "tokens")}
    holder = cluster.spawn("lock", "job", "--ttl", "3s", "--", "sh", "-c",
                           f"echo $$ >{places['pid']}; trap '' TERM; while :; do sleep 1; done")
    wait_until(lambda: read(places["pid"]).endswith("\n"), 10, "the command runs")
    command = int(read(places["pid"]))
    token = cluster.holders("job")[0]["token"]
    for node in cluster:
        node.kill9()
    killed = time.monotonic()
    wait_until(lambda: not alive(command), ttl + 1, "the holder's command is dead")
    expect(time.monotonic() - killed < ttl + 0.05, "it was dead within the TTL")
    holder.wait(5).fails(LOST)
    wait_until(lambda: time.monotonic() - killed > ttl + 1, 5, "the TTL has passed")
    for node in cluster:
        node.start()
    # Each finds the place empty, and leaves it empty.
    script = (f"mkdir {places['inside']} || echo overlap >>{places['overlap']}; "
              f"echo $BELAY_TOKEN >>{places['tokens']}; sleep 0.3; rmdir {places['inside']}")
    contenders = [cluster.spawn("lock", "job", "--ttl", "3s", "--wait", "30s", "--", "sh", "-c",
                                script) for _ in range(3)]
    for one in contenders:
        one.wait(40).ok()
    equal(read(places["overlap"]), "", "holders that met another one")
    tokens = [int(line) for line in read(places["tokens"]).split()]
    equal(len(tokens), len(contenders), "grants")
    expect([token] + tokens == sorted({token, *tokens}), f"tokens rise: {token}, then {tokens}")
    equal(cluster.holders("job"), [], "the holders in the end")


if __name__ == "__main__":
    run(globals())
