# SPDX-License-Identifier: Apache-2.0
"""Clusters of real belayd processes on loopback or in network namespaces, and the belay command.

BELAYD, BELAY and BELAY_LOAD name the programs (ctest sets them). BELAY_TEST_KEEP=1 keeps the files.
"""
import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time

import wire
from check import Directory, Failed, Stopwatch, equal, expect, remember, wait_until

BELAYD = os.environ.get("BELAYD", "belayd")
BELAY = os.environ.get("BELAY", "belay")
LOAD = os.environ.get("BELAY_LOAD", "")
MASS = os.environ.get("BELAY_MASS", "")
HISTORY = os.environ.get("BELAY_HISTORY", "")
LINCHECK = os.environ.get("BELAY_LINCHECK", "")
CAPACITY = os.environ.get("BELAY_CAPACITY", "")

# Exit codes of the command (client/cli/exit_codes.h).
USAGE, BUSY, TIMED_OUT, LOST, UNREACHABLE, OVER_LIMIT, REFUSED = 100, 101, 102, 103, 104, 107, 119

# Below the range that the kernel gives out on its own, so that nobody gets one by chance.
PORTS_FIRST, PORTS_LAST, PORTS_SPAN = 20000, 29952, 64

SETTLED_SECONDS = 1.5  # a leader passes leadership on about a second after its election


def free_ports():
    """The first of PORTS_SPAN consecutive free ports; several test runs at once keep apart."""
    slots = (PORTS_LAST - PORTS_FIRST) // PORTS_SPAN
    for attempt in range(slots):
        base = PORTS_FIRST + (os.getpid() + attempt) % slots * PORTS_SPAN
        held = []
        try:
            for port in range(base, base + PORTS_SPAN):
                for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
                    held.append(socket.socket(socket.AF_INET, kind))
                    held[-1].bind(("127.0.0.1", port))
            return base
        except OSError:
            continue
        finally:
            for one in held:
                one.close()
    raise Failed("no free ports on loopback")


def descendants(pid):
    """A process and all below it."""
    children = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="ascii", errors="replace") as file:
                parent = int(file.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(entry))
    found, rest = [], [pid]
    while rest:
        one = rest.pop()
        found.append(one)
        rest += children.get(one, [])
    return found


def alive(pid):
    """There, and not only waiting to be reaped."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Result:
    """What a finished command left: code, out, err, and json() of what it printed."""

    def __init__(self, words, code, out, err, seconds):
        self.words, self.code, self.out, self.err, self.seconds = words, code, out, err, seconds

    def json(self):
        try:
            return json.loads(self.out)
        except ValueError:
            raise Failed(f"no JSON from: {self}") from None

    def ok(self):
        expect(self.code == 0, f"expected success of: {self}")
        return self

    def fails(self, code, *texts):
        """Ends with that code and says each of the texts on standard error."""
        expect(self.code == code, f"expected exit code {code} of: {self}")
        for text in texts:
            expect(text in self.err, f"expected {text!r} on standard error of: {self}")
        return self

    def __str__(self):
        return (f"{' '.join(self.words)}\n    exit code {self.code} after {self.seconds:.2f} s"
                f"\n    stdout: {self.out.strip()[-800:]}\n    stderr: {self.err.strip()[-800:]}")


class Command:
    """A command that runs beside the test."""

    def __init__(self, words, environment, prefix=()):
        self.words, self.watch, self.result = list(words), Stopwatch(), None
        self.process = subprocess.Popen(list(prefix) + self.words, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env=environment, start_new_session=True, text=True)
        self.pid = self.process.pid
        remember(self)

    def done(self):
        return self.process.poll() is not None

    def wait(self, timeout_s):
        if self.result is None:
            try:
                out, err = self.process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                self.close()
                raise Failed(f"did not end within {timeout_s} s: {self.result}") from None
            self.result = Result(self.words, self.process.returncode, out, err,
                                 self.watch.seconds())
        return self.result

    def signal(self, number):
        self.process.send_signal(number)

    def signal_group(self, number):
        os.killpg(self.pid, number)

    def close(self):
        if self.result is None:
            for number in (signal.SIGCONT, signal.SIGKILL):
                try:
                    os.killpg(self.pid, number)
                except ProcessLookupError:
                    pass
            out, err = self.process.communicate()
            self.result = Result(self.words, self.process.returncode, out, err,
                                 self.watch.seconds())

    def report(self):
        state = f"ended with {self.process.returncode}" if self.done() else "still runs"
        return f"---- {' '.join(self.words)}: {state}"


class Node:
    """One belayd: its configuration, its process and its log."""

    def __init__(self, cluster, number):
        self.cluster, self.number = cluster, number
        self.data = os.path.join(cluster.directory, f"data{number}")
        self.config = os.path.join(cluster.directory, f"node{number}.yaml")
        self.log_path = os.path.join(cluster.directory, f"node{number}.log")
        self.process = None
        self.workers = cluster.workers
        self.prefix = []  # e.g. into a network namespace
        self.environment = dict(os.environ)

    @property
    def client_address(self):
        return self.cluster.address(self.number, "client")

    # ---- life ----------------------------------------------------------------------------------

    def write_config(self):
        with open(self.config, "w", encoding="ascii") as file:
            file.write(self.cluster.config_text(self.number, self.workers, self.data))

    def start(self):
        expect(self.process is None, f"node {self.number} runs already")
        self.write_config()
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.prefix + [BELAYD, "--config", self.config],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env=self.environment, start_new_session=True)

    def running(self):
        return self.process is not None and self.process.poll() is None

    def check_alive(self):
        expect(self.running(), f"node {self.number} ended with "
               f"{self.process.returncode if self.process else 'nothing started'}")

    def kill9(self):
        self.check_alive()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=10)
        self.process = None

    def sigstop(self):
        self.check_alive()
        self.process.send_signal(signal.SIGSTOP)

    def sigcont(self):
        self.check_alive()
        self.process.send_signal(signal.SIGCONT)

    def wait_end(self, timeout_s):
        try:
            code = self.process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise Failed(f"node {self.number} did not end within {timeout_s} s") from None
        self.process = None
        return code

    def terminate(self, timeout_s=10):
        """SIGTERM; the exit code."""
        self.check_alive()
        self.process.send_signal(signal.SIGTERM)
        return self.wait_end(timeout_s)

    def stop(self):
        equal(self.terminate(), 0, f"exit code of node {self.number} after SIGTERM")

    def restart(self, workers=None):
        if self.running():
            self.stop()
        self.process = None
        self.workers = workers or self.workers
        self.start()

    # ---- looking -------------------------------------------------------------------------------

    def http(self, path, method="GET", timeout_s=5.0):
        """Status, type and text of an answer of its HTTP server (clusters with http=True)."""
        connection = http.client.HTTPConnection(*self.cluster.address(self.number, "http"),
                                                timeout=timeout_s)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return (answer.status, answer.getheader("Content-Type"),
                    answer.read().decode("utf-8"))
        finally:
            connection.close()

    def status(self, timeout_s=1.0):
        """What the node says about itself over the wire."""
        with wire.Client(self.client_address, timeout_s) as client:
            return client.status()

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def log_tail(self, lines=40):
        try:
            return "".join(self.log().splitlines(keepends=True)[-lines:])
        except FileNotFoundError:
            return "(no log)\n"

    def rss_bytes(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            for line in file:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
        raise Failed("no VmRSS")


class Cluster:
    """Nodes in a temporary directory. settings: lines of YAML beside what is always there, e.g.
    {"limits": {"leases": 100}}. hosts: {node: address} if not all on loopback. http: each node has
    an HTTP server."""

    def __init__(self, nodes=3, workers=1, shards=4, durability="disk", settings=None, hosts=None,
                 http=False):
        self.directory = Directory().path
        self.count, self.workers, self.shards = nodes, workers, shards
        self.durability, self.hosts, self.with_http = durability, hosts or {}, http
        self.settings = {"limits": {"leases": 4096}}
        self.settings.update(settings or {})
        self.base = free_ports()
        self.key_path = os.path.join(self.directory, "cluster.key")
        self.key = os.urandom(16)
        with os.fdopen(os.open(self.key_path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(self.key.hex() + "\n")
        self.nodes = {number: Node(self, number) for number in range(1, nodes + 1)}
        remember(self)

    def __getitem__(self, number):
        return self.nodes[number]

    def __iter__(self):
        return iter(self.nodes.values())

    def address(self, number, which):
        offset = 20 * (number - 1) + {"client": 0, "peer": 10, "http": 19}[which]
        return self.hosts.get(number, "127.0.0.1"), self.base + offset

    def config_text(self, number, workers, data):
        lines = [f"node: {number}", "members:"]
        for other in self.nodes:
            lines.append(f"  - node: {other}")
            for which in ("client", "peer"):
                lines.append('    %s: "%s:%d"' % ((which,) + self.address(other, which)))
        lines += [f"shards: {self.shards}", f"workers: {workers}",
                  f"durability: {self.durability}", f'data_directory: "{data}"',
                  f'cluster_key_file: "{self.key_path}"']
        if self.hosts:
            lines.append("insecure: true")
        if self.with_http:
            lines += ["http:", '  listen: "%s:%d"' % self.address(number, "http")]
        for key, value in self.settings.items():
            if isinstance(value, dict):
                lines += [f"{key}:"] + [f"  {inner}: {given}" for inner, given in value.items()]
            else:
                lines.append(f"{key}: {value}")
        return "\n".join(lines) + "\n"

    # ---- life ----------------------------------------------------------------------------------

    def start(self, timeout_s=20, settled=False):
        for node in self:
            node.start()
        self.wait_ready(timeout_s)
        if settled:
            self.wait_settled(timeout_s)
        return self

    def close(self):
        for node in self:
            if node.running():
                node.process.send_signal(signal.SIGCONT)
                node.process.kill()
                node.process.wait()

    def report(self):
        parts = []
        for node in self:
            state = "not started" if node.process is None else (
                "runs" if node.running() else f"ended with {node.process.returncode}")
            parts.append(f"---- node {node.number}: {state}; the end of its log:\n"
                         f"{node.log_tail()}")
            if node.running():
                try:
                    parts.append(f"     says: {node.status(0.3)}")
                except (Failed, OSError) as error:
                    parts.append(f"     says nothing: {error}")
        return "\n".join(parts)

    # ---- looking -------------------------------------------------------------------------------

    def alive(self):
        return [node for node in self if node.running()]

    def statuses(self, nodes=None, timeout_s=1.0):
        """{node: what it says} of the nodes given (those that run)."""
        return {node.number: node.status(timeout_s)
                for node in (self.alive() if nodes is None else nodes)}

    def leaders(self, nodes=None):
        """{shard: node} as the leaders of the highest terms say themselves."""
        best = {}
        for number, status in self.statuses(nodes).items():
            for shard in status["shards"]:
                if shard["role"] == "leader":
                    best[shard["shard"]] = max(best.get(shard["shard"], (0, 0)),
                                               (shard["term"], number))
        return {shard: number for shard, (_, number) in best.items()}

    def is_ready(self, nodes=None):
        statuses = self.statuses(nodes)
        expect(all(one["state"] == "running" for one in statuses.values()), "not all run")
        leaders = self.leaders(nodes)
        expect(len(leaders) == self.shards, f"leaders: {leaders}")
        for status in statuses.values():
            for shard in status["shards"]:
                equal(shard["leader_node"], leaders[shard["shard"]], "a node's leader")
        return True

    def wait_ready(self, timeout_s=20, nodes=None):
        """Every node given (or alive) runs, and all name the same leader for every shard."""
        for node in self.alive() if nodes is None else nodes:
            node.check_alive()
        wait_until(lambda: self.is_ready(nodes), timeout_s, "the cluster is ready")

    def wait_settled(self, timeout_s=20):
        """Leadership has been spread and stays where it is."""
        seen = {"leaders": None, "since": 0.0}

        def still():
            self.is_ready()
            found = self.leaders()
            if found != seen["leaders"]:
                seen["leaders"], seen["since"] = found, time.monotonic()
            return time.monotonic() - seen["since"] > SETTLED_SECONDS
        wait_until(still, timeout_s, "leadership stays where it is")

    def shard_of(self, name):
        return wire.shard_of(name, self.shards)

    def leader_of(self, name, nodes=None, timeout_s=10):
        """The node that leads the shard of this lock."""
        shard = self.shard_of(name)
        return self[wait_until(lambda: self.leaders(nodes).get(shard), timeout_s,
                               f"shard {shard} has a leader")]

    def followers_of(self, name):
        leader = self.leader_of(name)
        return [node for node in self if node is not leader]

    def all_vote(self):
        """Every replica of every shard is a voter, and nobody is being rebuilt."""
        for number, status in self.statuses().items():
            for row in status["shards"]:
                equal((row["voters"], row["learners"]), (self.count, 0),
                      f"voters and learners of shard {row['shard']} at node {number}")
                expect(row["role"] in ("leader", "follower"),
                       f"shard {row['shard']} at node {number}: {row['role']}")
        return True

    def wait_voting(self, timeout_s=20):
        wait_until(self.all_vote, timeout_s, "every replica votes")

    def wait_equal(self, timeout_s=20):
        """Every replica votes and was seen with the same digest as the others at one index, not
        older than what any had when this began. Two digests at one index fail at once, for good."""
        seen, start = {}, {}

        def look():
            statuses = self.statuses()
            equal(len(statuses), self.count, "nodes that answer")
            for number, status in statuses.items():
                for row in status["shards"]:
                    shard, index = row["shard"], row["applied_index"]
                    seen.setdefault((shard, index), {})
                    if row["digest"] != 0:
                        seen[shard, index][number] = row["digest"]
                    if len(set(seen[shard, index].values())) > 1:
                        raise RuntimeError(f"shard {shard} has diverged at index {index}: "
                                           f"{seen[shard, index]}")
            for shard in range(self.shards):
                rows = [status["shards"][shard] for status in statuses.values()]
                start.setdefault(shard, max(row["applied_index"] for row in rows))
                expect(any(len(found) == self.count for (one, index), found in seen.items()
                           if one == shard and index >= start[shard]),
                       f"shard {shard}: no index at which all were seen; they are at "
                       f"{[row['applied_index'] for row in rows]}, it began at {start[shard]}")
            return self.all_vote()
        wait_until(look, timeout_s, "all nodes hold equal states, all replicas vote")

    # ---- the command ---------------------------------------------------------------------------

    def endpoints(self, nodes=None):
        return ",".join("%s:%d" % self.address(number, "client")
                        for number in (nodes or self.nodes))

    def environment(self, nodes=None):
        given = {key: value for key, value in os.environ.items() if not key.startswith("BELAY")}
        given["BELAY_ENDPOINTS"] = self.endpoints(nodes)
        return given

    def spawn(self, *words, nodes=None, prefix=()):
        return Command([BELAY] + [str(word) for word in words], self.environment(nodes), prefix)

    def belay(self, *words, nodes=None, prefix=(), timeout_s=30):
        return self.spawn(*words, nodes=nodes, prefix=prefix).wait(timeout_s)

    def acquire(self, name, ttl="60s", *words, **options):
        """Takes a lock; {"token": int, "lease": str}."""
        given = self.belay("acquire", name, "--ttl", ttl, "-o", "json", *words, **options)
        found = given.ok().json()
        return {"token": int(found["token"]), "lease": found["lease"], "seconds": given.seconds}

    def release(self, name, lock, **options):
        return self.belay("release", name, lock["lease"], **options).ok()

    def holders(self, name, **options):
        """[{"token": int, "remaining_ms": ..., "value": ...}] of a lock."""
        found = self.belay("holders", name, "-o", "json", **options).ok().json()["holders"]
        for one in found:
            one["token"] = int(one["token"])
        return found

    def queue(self, name, **options):
        return self.belay("queue", name, "-o", "json", **options).ok().json()["queue"]

    def locks(self, prefix="", **options):
        """{name: token} of all held locks whose names start with the prefix."""
        found = self.belay("list", prefix, "-o", "json", **options).ok().json()["locks"]
        return {one["name"]: int(one["token"]) for one in found if "token" in one}


class Waiter:
    """A `belay acquire` in the background that stands in the queue."""

    def __init__(self, cluster, name, ttl="60s", *words, **options):
        self.command = cluster.spawn("acquire", name, "--ttl", ttl, "-o", "json", *words, **options)

    def granted(self, timeout_s):
        found = self.command.wait(timeout_s).ok().json()
        return {"token": int(found["token"]), "lease": found["lease"]}


class InBackground:
    """Runs function(stop_event) in a thread; finish() stops it and gives what it returned."""

    def __init__(self, function):
        self.stop, self.value, self.error = threading.Event(), None, None

        def body():
            try:
                self.value = function(self.stop)
            except BaseException as error:  # handed to finish()
                self.error = error
        self.thread = threading.Thread(target=body, daemon=True)
        self.thread.start()

    def finish(self, timeout_s=10):
        self.stop.set()
        self.thread.join(timeout_s)
        expect(not self.thread.is_alive(), "the background work did not end")
        if self.error is not None:
            raise self.error
        return self.value
