# SPDX-License-Identifier: Apache-2.0
"""`belay status --workers`: what is shown is what was done, worker by worker."""
import socket

from check import equal, expect, run, wait_until
from harness import Cluster, UNREACHABLE, USAGE
from loadlog import Load

STAGES = ("rx", "decode", "propose", "log", "ship", "commit", "apply", "tx", "other")
SAMPLE_TURNS = 32  # ACCOUNT_SAMPLE_TURNS of dataplane/account.h
ROUNDS = 60


def workers_of(cluster):
    """{(node, worker): its object}"""
    document = cluster.belay("status", "--workers", "-o", "json").ok().json()
    return {(one["node"], one["worker"]): one for one in document["workers"]}


def counted(worker, name, detail=None):
    value = worker["counters"].get(name, 0 if detail is None else {})
    return int(value if detail is None else value.get(detail, 0))


def total(workers, name, detail=None):
    return sum(counted(one, name, detail) for one in workers.values())


def test_counts_are_those_of_the_load():
    cluster = Cluster(nodes=1, workers=2).start()
    equal(sorted(workers_of(cluster)), [(1, 0), (1, 1)], "workers listed")
    before = workers_of(cluster)
    for i in range(ROUNDS):
        cluster.belay("acquire", f"one/{i}", "--ttl", "60s").ok()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as noise:
        noise.sendto(b"runt", cluster[1].client_address)

    def settled():
        now = workers_of(cluster)
        expect(total(now, "requests") - total(before, "requests") >= 2 * ROUNDS,
               "an open and an acquire each")
        equal(total(now, "rejected_client", "runt"), 1, "the runt")
        return now
    after = wait_until(settled, 5, "all of it is counted")
    for worker in after.values():
        expect(0 < counted(worker, "turns_busy") <= counted(worker, "turns"), f"turns: {worker}")
        expect(0 < counted(worker, "busy_ns") < worker["uptime_ms"] * 1_000_000,
               f"busy for a part of its time: {worker}")
    expect(total(after, "datagrams", "clients_in") >= 2 * ROUNDS, "datagrams of clients")
    equal(total(after, "datagrams", "peers_in"), 0, "one node has no peers")
    text = cluster.belay("status", "--workers").ok().out
    expect("rejected_client" in text and "runt" in text, f"the table names the loss:\n{text}")


def test_stages_make_up_the_turn():
    cluster = Cluster(nodes=3, workers=1).start()
    load = Load(cluster)

    def sampled():
        now = workers_of(cluster)
        expect(all(counted(one, "sampled_turns") >= 20 for one in now.values()), "too few samples")
        return now
    workers = wait_until(sampled, 20, "turns were sampled on every node")
    load.kill9()
    for worker in workers.values():
        share = counted(worker, "sampled_turns") / counted(worker, "turns_busy")
        expect(0.3 / SAMPLE_TURNS < share < 3 / SAMPLE_TURNS, f"sampled: {share}")
        cycles = {stage: counted(worker, "stage_cycles", stage) for stage in STAGES}
        equal(sorted(cycles), sorted(STAGES), "stages")
        expect(sum(cycles.values()) > 0, "they took time")
        # Sampled turns are some of the busy ones.
        seconds = sum(cycles.values()) / int(worker["cycles_per_second"])
        expect(seconds * 1e9 <= counted(worker, "busy_ns"), f"no longer than all: {worker}")
    for stage in ("rx", "decode", "propose", "log", "ship", "commit", "apply", "tx"):
        expect(total(workers, "stage_cycles", stage) > 0, f"{stage} took time")
    expect(total(workers, "datagrams", "peers_in") > 0, "nodes talk to each other")


def test_a_node_that_is_gone_is_named():
    cluster = Cluster(nodes=3).start()
    cluster[2].kill9()
    done = cluster.belay("status", "--workers", "--timeout", "1s", "-o", "json").ok().json()
    equal(done["unreachable"], ["%s:%d" % cluster[2].client_address], "who does not answer")
    equal(sorted(one["node"] for one in done["workers"]), [1, 3], "who does")
    text = cluster.belay("status", "--workers", "--timeout", "1s").ok().out
    expect("%s:%d does not answer" % cluster[2].client_address in text, text)
    cluster[1].kill9()
    cluster[3].kill9()
    cluster.belay("status", "--workers", "--timeout", "1s").fails(UNREACHABLE)
    cluster.belay("status", "--workers", "--wait-ready").fails(USAGE, "do not go together")


if __name__ == "__main__":
    run(globals())
