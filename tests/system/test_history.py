# SPDX-License-Identifier: Apache-2.0
"""Clients in several processes contend for a few locks while nodes are killed, stopped and cut off.
Everything they asked for and were told, reads included, must have happened in one order: judged by
belay-lincheck, which shares no code with Belay."""
import copy
import os
import struct
import time

import wire
from check import Directory, equal, expect, remember, run, wait_until
from harness import Cluster
from histories import ENDINGS, Histories, judge
from netns import network_of, unshared

NODES = (1, 2, 3)
KEY = "history/x/0"


def start(durability="disk", apart=False):
    """Three nodes; apart: each in a network namespace of its own."""
    network = network_of(4)  # also brings up loopback in this test's own namespace
    cluster = Cluster(shards=2, durability=durability,
                      hosts={node: network.address(node) for node in NODES} if apart else None)
    for node in cluster:
        node.prefix = network.prefix(node.number) if apart else []
    return cluster.start(30)


def leader_of_load(cluster, nodes=None):
    return cluster.leader_of(KEY, nodes)


def test_leader_killed():
    cluster = start()
    for model in ("fenced-mutex", "shared-lock", "reentrant-mutex"):
        histories = Histories(cluster, model)
        for _ in range(2):
            histories.wait_answers(150)
            victim = leader_of_load(cluster)
            victim.kill9()
            histories.wait_answers(150)
            victim.start()
            cluster.wait_ready()
        histories.check()


def test_leader_killed_in_memory():
    cluster = start("memory")
    histories = Histories(cluster)
    histories.wait_answers(150)
    victim = leader_of_load(cluster)
    victim.kill9()
    histories.wait_answers(150)
    victim.start()
    cluster.wait_ready()
    cluster.wait_voting()
    histories.wait_answers(100)
    histories.check()


def test_follower_killed():
    cluster = start()
    histories = Histories(cluster)
    histories.wait_answers(150)
    victim = cluster.followers_of(KEY)[0]
    victim.kill9()
    histories.wait_answers(150)
    victim.start()
    cluster.wait_ready()
    histories.wait_answers(100)
    histories.check()


def test_all_killed():
    cluster = start()
    for model in ("fenced-mutex", "shared-lock"):
        histories = Histories(cluster, model)
        for _ in range(2):
            histories.wait_answers(150)
            for node in cluster:
                node.kill9()
            for node in cluster:
                node.start()
            cluster.wait_ready()
        histories.wait_answers(150)
        histories.check()


class LateReader:
    """Reads that lie in a stopped leader's socket until it runs again."""

    def __init__(self, cluster, leader, histories):
        self.client, self.histories, self.asked = wire.Client(leader.client_address), histories, {}
        self.keys = [key for key in map(histories.key, range(histories.keys))
                     if cluster.shard_of(key) == cluster.shard_of(KEY)]
        self.shard = cluster.shard_of(KEY)
        self.client.open(self.shard)  # its cookie is what is needed
        remember(self)

    def send(self):
        for number, key in enumerate(self.keys, 1):
            self.asked[number] = (key, time.clock_gettime_ns(time.CLOCK_BOOTTIME))
            self.client.send(wire.datagram([wire.query_item(self.shard, number, key)],
                                           cookie=self.client.cookie))

    def receive(self):
        """Puts answers into the history; how many reads were answered at all."""
        answered, deadline = 0, time.monotonic() + 5
        while answered < len(self.asked) and time.monotonic() < deadline:
            data = self.client.receive(deadline - time.monotonic())
            now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            for one in wire.decode(data)[1] if data else []:
                if one["op"] != wire.QUERY:
                    continue
                answered += 1
                key, asked_ns = self.asked[struct.unpack_from("<Q", one["bytes"], 16)[0]]
                if one["status"] == wire.OK:
                    self.histories.add_query(key, asked_ns, now_ns, wire.queried(one))
        return answered

    def close(self):
        self.client.close()

    def report(self):
        return ""


def test_leader_stopped():
    """The stopped leader comes back while clients still send to it, and must not answer from what
    it knew, reads least of all."""
    cluster = start()
    for model in ("fenced-mutex", "shared-lock"):
        histories = Histories(cluster, model)
        for _ in range(2):
            histories.wait_answers(150)
            victim = leader_of_load(cluster)
            others = [node for node in cluster if node is not victim]
            late = LateReader(cluster, victim, histories)
            victim.sigstop()
            wait_until(lambda: leader_of_load(cluster, others), 10, "another leads")
            histories.wait_answers(100)
            late.send()
            histories.wait_answers(50)
            victim.sigcont()
            expect(late.receive() > 0, "the late reads are answered: not to be served here")
            histories.wait_answers(100)
        histories.check()


def test_network_cut():
    """The leader is cut off with its clients' packets still arriving: it may answer nothing."""
    network = network_of(4)
    cluster = start(apart=True)
    for model in ("fenced-mutex", "shared-lock"):
        histories = Histories(cluster, model)
        for oneway in (False, True):
            histories.wait_answers(150)
            victim = leader_of_load(cluster)
            others = [node for node in cluster if node is not victim]
            if oneway:
                for node in others:
                    network.cut_oneway(victim.number, node.number)
            else:
                network.cut([victim.number], [node.number for node in others])
            wait_until(lambda: leader_of_load(cluster, others), 10, "another leads")
            histories.wait_answers(100)
            network.heal()
            cluster.wait_ready(20)
            histories.wait_answers(100)
        histories.check()


def test_clients_killed():
    """Their locks are given to others, and not before their time."""
    cluster = start()
    histories = Histories(cluster)
    histories.wait_answers(150)
    histories.kill9(0)
    histories.wait_answers(100)
    histories.kill9(1)
    histories.wait_answers(100)
    history = histories.check()
    endings = sum(1 for event in history if event["process"] >= ENDINGS)
    expect(endings > 5, f"only {endings} leases ended by themselves")


# ---- the check itself ----------------------------------------------------------------------------


def planted(history, change, path):
    """The verdict on a history after change(its events by time) has spoiled it."""
    events = copy.deepcopy(sorted(history, key=lambda event: event["time"]))
    change(events)
    return judge(events, "fenced-mutex", path)


def two_holders(events):
    """Somebody is granted a lock, by the next token, in the middle of another's hold."""
    for position, event in enumerate(events):
        if event["f"] != "release" or event["type"] != "ok":
            continue
        grant = next(one for one in reversed(events[:position]) if one["owner"] == event["owner"]
                     and one["f"] == "acquire" and one["type"] == "ok")
        asked = next(one for one in reversed(events[:position]) if one["owner"] == event["owner"]
                     and one["f"] == "release" and one["type"] == "invoke")
        if asked["time"] - grant["time"] < 1000000:
            continue
        middle_ns = (grant["time"] + asked["time"]) // 2
        other = {"process": 2 * ENDINGS, "f": "acquire", "key": event["key"], "owner": "planted"}
        events += [dict(other, type="invoke", time=middle_ns),
                   dict(other, type="ok", time=middle_ns + 1, token=str(int(grant["token"]) + 1))]
        return
    raise RuntimeError("nobody held a lock for long enough")


def token_again(events):
    """A grant bears the token of the one before on that lock."""
    last = {}
    for event in events:
        if event["f"] == "acquire" and event["type"] == "ok":
            if event["key"] in last:
                event["token"] = last[event["key"]]
                return
            last[event["key"]] = event["token"]


def stale_read(events):
    """A query sees nobody though the lock was held from before it until after it."""
    holds = {}
    for position, event in enumerate(events):
        if event["f"] == "acquire" and event["type"] == "ok":
            holds[event["owner"]] = event
        elif event["f"] == "release" and event["type"] == "invoke" and event["owner"] in holds:
            grant = holds[event["owner"]]
            if event["process"] >= ENDINGS or event["time"] - grant["time"] < 1000000:
                continue
            middle_ns = (grant["time"] + event["time"]) // 2
            query = {"process": 2 * ENDINGS, "f": "query", "key": event["key"]}
            events += [dict(query, type="invoke", time=middle_ns),
                       dict(query, type="ok", time=middle_ns + 1, holders=0)]
            return
    raise RuntimeError("nobody held a lock for long enough")


def ended_early(events):
    """A lock is given to the next one although the lease before it has not ended yet."""
    granted = {event["owner"] for event in events
               if event["f"] == "acquire" and event["type"] == "ok"}
    for event in events:
        if event["process"] >= ENDINGS and event["owner"] in granted and any(
                one["key"] == event["key"] and one["f"] == "acquire" and one["type"] == "ok" and
                one["time"] > event["time"] for one in events):
            event["time"] = events[-1]["time"] + 1
            return
    raise RuntimeError("no lease ended by itself")


def test_planted_faults_are_found():
    cluster = start()
    histories = Histories(cluster, keys=2)
    histories.wait_answers(800)
    history = histories.check()
    path = os.path.join(Directory().path, "planted.json")
    equal(planted(history, lambda events: None, path)[0], 0, "the verdict without a fault")
    for change in (two_holders, token_again, stale_read, ended_early):
        code, text = planted(history, change, path)
        equal((code, text.split("\n")[0]), (1, "not linearizable"),
              f"the verdict on {change.__name__}")


if __name__ == "__main__":
    unshared(network=True)
    run(globals())
