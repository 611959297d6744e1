#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts and stops the systems that Belay is compared to, on loopback, in a directory of their own.

    servers.py start --system etcd --directory DIR           three members; prints the endpoints
    servers.py start --system zookeeper --directory DIR      an ensemble of three
    servers.py start --system redis --directory DIR          three nodes that know nothing of each
                                                             other, an fsync before every answer
    servers.py start --system redis --directory DIR --memory ... that write nothing to disk
    servers.py status --directory DIR                        who still runs, and who leads
    servers.py stop --directory DIR [--node N]               all, or one; the data stay

What is not said here is each system's default; etcd and ZooKeeper sync to disk before they answer.
Only the Python standard library; needs the packages etcd-server, zookeeper and redis-server, whose
own services need not run.
"""
import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

SYSTEMS = ("etcd", "zookeeper", "redis")
READY_SECONDS = 30.0
STOP_SECONDS = 10.0
STATE = "servers.json"
LOOPBACK = "127.0.0.1"

# Below the range that the kernel gives out on its own, so that nobody gets one by chance.
PORTS_FIRST, PORTS_LAST, PORTS_PER_NODE = 10000, 19968, 4

# Debian's jars: this one names through its manifest all others that a server needs, but a logger.
JARS = ("zookeeper", "slf4j-simple")


class Trouble(Exception):
    """The servers cannot be started, or did not become ready."""


def free_ports(count):
    """The first of `count` consecutive free TCP ports."""
    slots = (PORTS_LAST - PORTS_FIRST) // count
    for attempt in range(slots):
        base = PORTS_FIRST + (os.getpid() + attempt) % slots * count
        held = []
        try:
            for port in range(base, base + count):
                held.append(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
                held[-1].bind((LOOPBACK, port))
            return base
        except OSError:
            continue
        finally:
            for one in held:
                one.close()
    raise Trouble("no free ports on loopback")


def program(*names):
    for name in names:
        found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/bin")
        if found:
            return found
    raise Trouble(f"{names[0]} is not installed")


def started_at(pid):
    """When a process was started (clock ticks after boot), None if it is no more: with the pid it
    names one process for good."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def ask(port, text, timeout_s=1.0):
    """What a server answers to one line."""
    with socket.create_connection((LOOPBACK, port), timeout_s) as connection:
        connection.sendall(text)
        return connection.recv(4096).decode("ascii", "replace")


# ---- what each system wants ------------------------------------------------------------------


class Etcd:
    def __init__(self, servers):
        self.servers = servers

    def command(self, node, directory):
        peers = ",".join(f"n{one}=http://{LOOPBACK}:{self.servers.port(one, 1)}"
                         for one in self.servers.numbers())
        client = f"http://{LOOPBACK}:{self.servers.port(node)}"
        peer = f"http://{LOOPBACK}:{self.servers.port(node, 1)}"
        return [program("etcd"), "--name", f"n{node}",
                "--data-dir", os.path.join(directory, "data"),
                "--listen-client-urls", client, "--advertise-client-urls", client,
                "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                "--initial-cluster", peers, "--initial-cluster-token", "belay-bench",
                "--initial-cluster-state", "new", "--logger", "zap", "--log-level", "warn",
                "--quota-backend-bytes", str(8 << 30)]

    def ready(self, node):
        return json.loads(self.get(node, "health")).get("health") == "true"

    def leads(self, node):
        return "\netcd_server_is_leader 1\n" in self.get(node, "metrics")

    def get(self, node, what):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        url = f"http://{LOOPBACK}:{self.servers.port(node)}/{what}"
        with opener.open(url, timeout=1.0) as answer:
            return answer.read().decode("utf-8", "replace")


class ZooKeeper:
    def __init__(self, servers):
        self.servers = servers

    def command(self, node, directory):
        data = os.path.join(directory, "data")
        os.makedirs(data, exist_ok=True)
        with open(os.path.join(data, "myid"), "w", encoding="ascii") as file:
            file.write(f"{node}\n")
        tick_ms = self.servers.tick_ms
        lines = [f"tickTime={tick_ms}", f"initLimit={max(5, 20000 // tick_ms)}",
                 f"syncLimit={max(2, 10000 // tick_ms)}", f"dataDir={data}",
                 f"clientPort={self.servers.port(node)}", f"clientPortAddress={LOOPBACK}",
                 "maxClientCnxns=0", "maxSessionTimeout=60000", "admin.enableServer=false",
                 "autopurge.purgeInterval=1"]
        if len(self.servers.numbers()) > 1:
            lines += [f"server.{one}={LOOPBACK}:{self.servers.port(one, 1)}:"
                      f"{self.servers.port(one, 2)}" for one in self.servers.numbers()]
        path = os.path.join(directory, "zoo.cfg")
        with open(path, "w", encoding="ascii") as file:
            file.write("\n".join(lines) + "\n")
        jars = ":".join(f"/usr/share/java/{jar}.jar" for jar in JARS)
        return [program("java"), "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                "-cp", jars, "org.apache.zookeeper.server.quorum.QuorumPeerMain", path]

    def leads(self, node):
        return "Mode: leader" in ask(self.servers.port(node), b"srvr\n")

    def ready(self, node):
        return "Mode: " in ask(self.servers.port(node), b"srvr\n")


class Redis:
    def __init__(self, servers):
        self.servers = servers

    def command(self, node, directory):
        words = [program("redis-server"), "--port", str(self.servers.port(node)), "--bind",
                 LOOPBACK, "--dir", directory, "--save", "", "--daemonize", "no"]
        if self.servers.memory:
            return words + ["--appendonly", "no"]
        return words + ["--appendonly", "yes", "--appendfsync", "always"]

    def ready(self, node):
        return ask(self.servers.port(node), b"PING\r\n").startswith("+PONG")

    def leads(self, node):
        return False  # they know nothing of each other


KINDS = {"etcd": Etcd, "zookeeper": ZooKeeper, "redis": Redis}


# ---- servers of one system -------------------------------------------------------------------


class Servers:
    """Nodes 1 .. n of a system below `directory`. Their processes outlive this object: stop()."""

    def __init__(self, system, directory, nodes=3, memory=False, tick_ms=2000):
        if memory and system != "redis":
            raise Trouble(f"{system} has no way to run without its disk")
        self.system, self.directory, self.nodes = system, os.path.abspath(directory), nodes
        self.memory, self.tick_ms = memory, tick_ms
        self.base = None
        self.processes = {}  # node -> (pid, started_at)
        self.kind = KINDS[system](self)

    @classmethod
    def load(cls, directory):
        with open(os.path.join(directory, STATE), encoding="ascii") as file:
            state = json.load(file)
        servers = cls(state["system"], directory, state["nodes"], state["memory"],
                      state["tick_ms"])
        servers.base = state["base"]
        servers.processes = {int(node): tuple(one) for node, one in state["processes"].items()}
        return servers

    def save(self):
        state = {"system": self.system, "nodes": self.nodes, "memory": self.memory,
                 "tick_ms": self.tick_ms, "base": self.base, "processes": self.processes}
        path = os.path.join(self.directory, STATE)
        with open(path + ".new", "w", encoding="ascii") as file:
            json.dump(state, file)
        os.replace(path + ".new", path)

    def numbers(self):
        return range(1, self.nodes + 1)

    def port(self, node, which=0):
        return self.base + (node - 1) * PORTS_PER_NODE + which

    def endpoint(self, node):
        return f"{LOOPBACK}:{self.port(node)}"

    def endpoints(self):
        return ",".join(self.endpoint(node) for node in self.numbers())

    def leader(self):
        """The node that leads, None if nobody says so."""
        for node in self.numbers():
            try:
                if self.kind.leads(node):
                    return node
            except OSError:
                pass  # it is down, or hangs
        return None

    def running(self, node):
        pid, since = self.processes.get(node, (0, None))
        return since is not None and started_at(pid) == since

    def start_node(self, node):
        if self.running(node):
            raise Trouble(f"{self.system} node {node} runs already")
        directory = os.path.join(self.directory, f"node{node}")
        os.makedirs(directory, exist_ok=True)
        with open(os.path.join(directory, "log"), "ab") as log:
            process = subprocess.Popen(self.kind.command(node, directory), cwd=directory,
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                       start_new_session=True)
        self.processes[node] = (process.pid, started_at(process.pid))
        self.children = getattr(self, "children", {})
        self.children[node] = process  # reaped in stop_node, if it is ours
        self.save()

    def wait_ready(self, nodes=None, timeout_s=READY_SECONDS):
        """Until each of the nodes answers as a member of a working cluster."""
        deadline = time.monotonic() + timeout_s
        for node in nodes or self.numbers():
            last = "no answer"
            while True:
                try:
                    if self.kind.ready(node):
                        break
                    last = "not ready"
                except (OSError, ValueError, urllib.error.URLError) as error:
                    last = str(error)
                if not self.running(node):
                    raise Trouble(f"{self.system} node {node} ended:\n{self.log_tail(node)}")
                if time.monotonic() > deadline:
                    raise Trouble(f"{self.system} node {node} not ready in {timeout_s} s: {last}\n"
                                  f"{self.log_tail(node)}")
                time.sleep(0.02)  # between two looks; what is waited for is the answer

    def old_base(self):
        """The ports of data that are there already: members know each other by them."""
        if not os.path.exists(os.path.join(self.directory, STATE)):
            return None
        old = Servers.load(self.directory)
        if (old.system, old.nodes) != (self.system, self.nodes):
            raise Trouble(f"{self.directory} has the data of {old.nodes} nodes of {old.system}")
        if any(old.running(node) for node in old.numbers()):
            raise Trouble(f"servers of {self.directory} run already: stop them first")
        return old.base

    def start(self):
        os.makedirs(self.directory, exist_ok=True)
        self.base = self.old_base() or free_ports(PORTS_PER_NODE * self.nodes)
        try:
            for node in self.numbers():
                self.start_node(node)
            self.wait_ready()
        except BaseException:
            self.stop(kill=True)
            raise
        return self

    def signal_node(self, node, number):
        if self.running(node):
            os.kill(self.processes[node][0], number)

    def stop_node(self, node, kill=False):
        deadline = time.monotonic() + STOP_SECONDS
        self.signal_node(node, signal.SIGCONT)
        self.signal_node(node, signal.SIGKILL if kill else signal.SIGTERM)
        while self.running(node):
            if time.monotonic() > deadline:
                self.signal_node(node, signal.SIGKILL)
            time.sleep(0.01)  # between two looks
        child = getattr(self, "children", {}).pop(node, None)
        if child:
            child.wait()
        self.processes.pop(node, None)

    def stop(self, kill=False):
        for node in self.numbers():  # all at once: a last member waits for others otherwise
            self.signal_node(node, signal.SIGKILL if kill else signal.SIGTERM)
        for node in self.numbers():
            self.stop_node(node, kill)
        self.save()

    def close(self):
        """As a system test's runner calls it."""
        self.stop(kill=True)

    def log_tail(self, node, lines=8):
        try:
            path = os.path.join(self.directory, f"node{node}", "log")
            with open(path, encoding="utf-8", errors="replace") as file:
                return "".join(line[:240].rstrip() + "\n" for line in file.readlines()[-lines:])
        except OSError:
            return "(no log)\n"

    def report(self):
        return "".join(f"---- {self.system} node {node}, "
                       f"{'runs' if self.running(node) else 'does not run'}\n{self.log_tail(node)}"
                       for node in self.numbers())


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("start", "stop", "status"))
    parser.add_argument("--system", choices=SYSTEMS)
    parser.add_argument("--directory", required=True)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--node", type=int, help="stop only this one")
    parser.add_argument("--memory", action="store_true", help="redis: nothing goes to disk")
    parser.add_argument("--tick-ms", type=int, default=2000,
                        help="zookeeper: sessions last two ticks at least")
    options = parser.parse_args()
    try:
        if options.action == "start":
            if not options.system:
                parser.error("start needs --system")
            servers = Servers(options.system, options.directory, options.nodes, options.memory,
                              options.tick_ms)
            print(servers.start().endpoints())
        elif options.action == "status":
            servers = Servers.load(options.directory)
            leader = servers.leader()
            for node in servers.numbers():
                print(node, servers.endpoint(node), "runs" if servers.running(node) else "ended",
                      "leads" if node == leader else "")
        else:
            servers = Servers.load(options.directory)
            if options.node:
                servers.stop_node(options.node)
                servers.save()
            else:
                servers.stop()
    except (Trouble, FileNotFoundError) as error:
        print(f"servers: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
