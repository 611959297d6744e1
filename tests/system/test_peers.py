# SPDX-License-Identifier: Apache-2.0
"""The benchmark's drivers of etcd, ZooKeeper and Redis against real servers on loopback: a driver
that takes a lock wrongly would make its system look faster, or slower, than it is.

BELAY_PEERS is the program that drives them (tests/system/peers.c says what each scenario wants);
BELAY_PEERS_BUILT names the drivers that are in it.
"""
import base64
import json
import os
import select
import socket
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..",
                                "bench", "peers"))
import servers  # noqa: E402 (the path comes first)
from check import Directory, expect, remember, run, wait_until

PEERS = os.environ.get("BELAY_PEERS", "")
BUILT = os.environ.get("BELAY_PEERS_BUILT", "").split()
SCENARIO_SECONDS = 50


class Scenario:
    """A run of the program beside the test."""

    def __init__(self, target, endpoints, *words):
        self.words = [PEERS, target, endpoints, *words]
        self.process = subprocess.Popen(self.words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT)
        self.output = b""
        remember(self)

    def read_until(self, text, timeout_s):
        """Reads until `text` was seen, or the end of the output if that is None."""
        deadline = time.monotonic() + timeout_s
        while text is None or text not in self.output:
            left = deadline - time.monotonic()
            expect(left > 0, f"{timeout_s} s were not enough: {self.report()}")
            if select.select([self.process.stdout], [], [], left)[0]:
                more = os.read(self.process.stdout.fileno(), 65536)
                if not more:
                    expect(text is None, f"it ended without {text!r}: {self.report()}")
                    return
                self.output += more

    def ready(self):
        self.read_until(b"ready\n", SCENARIO_SECONDS)
        return self

    def go_on(self, word=""):
        try:
            self.process.stdin.write(word.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended: passes() says how
        return self

    def passes(self):
        self.read_until(None, SCENARIO_SECONDS)
        code = self.process.wait(timeout=5)
        expect(code == 0, f"exit code {code}: {self.report()}")
        return self.output.decode("utf-8", "replace")

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def report(self):
        return f"---- {' '.join(self.words)}\n{self.output.decode('utf-8', 'replace')}"


def start(system, **settings):
    return remember(servers.Servers(system, Directory().path, **settings).start())


def all_pass(targets, *scenarios):
    """Each scenario once for each (target, endpoints), all beside each other: they have names of
    their own."""
    runs = [Scenario(target, endpoints, scenario) for scenario in scenarios
            for target, endpoints in targets if target in BUILT]
    expect(runs, "none of the drivers is built")
    for one in runs:
        one.passes()


def check_system(system, targets, break_one):
    """What every driver must do with a working system, one that loses a node, and none at all."""
    all_pass(targets, "kept", "expire", "basics", "exclusion", "many")
    outages = [Scenario(target, endpoints, "outage", "20").ready()
               for target, endpoints in targets if target in BUILT]
    break_one()
    for one in outages:
        one.go_on()
    for one in outages:
        one.passes()
    gone = [Scenario(target, endpoints, "unreachable").ready()
            for target, endpoints in targets if target in BUILT]
    system.stop(kill=True)
    for one in gone:
        one.go_on()
    for one in gone:
        one.passes()


def kill_leader(system):
    leader = wait_until(system.leader, 10, f"{system.system} has a leader")
    system.stop_node(leader, kill=True)
    wait_until(system.leader, 15, f"{system.system} has another leader")


def test_etcd():
    etcd = start("etcd")
    check_system(etcd, [("etcd", etcd.endpoints()), ("etcd-lock", etcd.endpoints())],
                 lambda: kill_leader(etcd))
    again = remember(servers.Servers("etcd", etcd.directory).start())  # with the same data
    expect(again.endpoints() == etcd.endpoints(), "members know each other by their ports")
    all_pass([("etcd", again.endpoints())], "many")


def test_etcd_leftover():
    """A client finds a key of its own lease that an earlier, unanswered command left."""
    etcd = start("etcd", nodes=1)

    def ask(what, **fields):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        url = f"http://{etcd.endpoint(1)}/v3/{what}"
        with opener.open(url, data=json.dumps(fields).encode(), timeout=5) as answer:
            return json.load(answer)

    def text(words):
        return base64.b64encode(words.encode()).decode()

    scenario = Scenario("etcd", etcd.endpoints(), "leftover").ready()
    leases = [int(one["ID"]) for one in ask("lease/leases")["leases"]]
    expect(len(leases) == 1, f"the lease of its one client: {leases}")
    put = ask("kv/put", key=text(f"belay-bench/etcd/left/{leases[0]:x}"), lease=str(leases[0]))
    scenario.go_on(put["header"]["revision"]).passes()


def test_zookeeper():
    zookeeper = start("zookeeper", tick_ms=500)
    check_system(zookeeper, [("zookeeper", zookeeper.endpoints())],
                 lambda: kill_leader(zookeeper))


def test_redis():
    redis = start("redis")

    def break_one():
        redis.stop_node(1, kill=True)
        redis.start_node(1)
        redis.wait_ready([1])
        redis.stop_node(3, kill=True)

    check_system(redis, [("redis", redis.endpoint(1)), ("redlock", redis.endpoints())], break_one)


def test_nobody_there():
    """Opening says which endpoint, and why."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused
        endpoint = f"127.0.0.1:{taken.getsockname()[1]}"
        for target in BUILT:
            endpoints = ",".join([endpoint] * (3 if target == "redlock" else 1))
            scenario = Scenario(target, endpoints, "basics")
            scenario.read_until(None, 10)
            expect(scenario.process.wait(timeout=5) == 1 and endpoint.encode() in scenario.output,
                   f"a sentence with {endpoint}: {scenario.report()}")
            wrong = Scenario(target, "127.0.0.1", "basics")
            wrong.read_until(None, 10)
            expect(b"host:port" in wrong.output, f"a sentence on the form: {wrong.report()}")


def test_memory():
    """Redis without a disk, for the other half of the comparison."""
    redis = start("redis", nodes=1, memory=True)
    all_pass([("redis", redis.endpoints())], "exclusion")
    expect(os.listdir(os.path.join(redis.directory, "node1")) == ["log"], "it wrote to disk")


if not BUILT:
    sys.exit("BELAY_PEERS_BUILT names no driver")
run({name: test for name, test in list(globals().items())
     if not (name.startswith("test_etcd") and "etcd" not in BUILT
             or name == "test_zookeeper" and "zookeeper" not in BUILT
             or name in ("test_redis", "test_memory") and "redis" not in BUILT)})
