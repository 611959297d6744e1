#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts and stops Belay nodes on loopback for a benchmark, as peers/servers.py does others.

    cluster.py start --directory DIR --durability disk|memory     prints the endpoints of three
          [--nodes N] [--shards N] [--workers N] [--leases N]     nodes, or of N
          [--dpdk PATH]     one node, whose clients come by a vhost socket there, not by the kernel
          [--core N]        workers poll and never sleep, on this core and those after it
    cluster.py stop --directory DIR
    cluster.py stop-all --directory DIR     whatever system runs below DIR, at once

BELAYD and BELAY name the programs, else build/release has them. Everything that is not said in
configuration() is a default.
"""
import argparse
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers"))
import servers  # noqa: E402  (the path is set above)

STATE = "cluster.json"
WORKERS_MAX = servers.PORTS_PER_NODE // 2  # each has a port for clients and one for peers
# Leases of all shards together: five locks of each of 100,000 clients, and some more.
SETTINGS = {"durability": "disk", "shards": 4, "workers": 1, "leases": 655360, "dpdk": None,
            "core": None}
DPDK_HOST, DPDK_PORT = "10.9.0.1", 7400


def program(variable, built):
    release = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "release")
    return os.environ.get(variable) or os.path.join(release, built)


class Kind:
    def __init__(self, cluster):
        self.cluster = cluster

    def command(self, node, directory):
        path = os.path.join(directory, "node.yaml")
        with open(path, "w", encoding="ascii") as file:
            json.dump(self.cluster.configuration(node, directory), file, indent=1)
        return [program("BELAYD", "mgmt/belayd"), "--config", path]

    def ready(self, node):
        """And leadership is spread: a transfer is not to be taken for an election."""
        if self.cluster.settings["dpdk"]:
            return "event=ready" in self.cluster.log_tail(node, 50)  # the kernel cannot ask it
        status = self.cluster.status()
        return status["ready"] and all(row["leader_node"] == row["shard"] % self.cluster.nodes + 1
                                       for row in status["shards"])


servers.KINDS["belay"] = Kind


class Cluster(servers.Servers):
    def __init__(self, directory, nodes=3, **settings):
        super().__init__("belay", directory, nodes)
        self.settings = {**SETTINGS, **settings}

    @classmethod
    def load(cls, directory):
        with open(os.path.join(directory, STATE), encoding="ascii") as file:
            cluster = cls(directory, **json.load(file))
        with open(os.path.join(directory, servers.STATE), encoding="ascii") as file:
            state = json.load(file)
        cluster.base = state["base"]
        cluster.processes = {int(node): tuple(one) for node, one in state["processes"].items()}
        return cluster

    def start(self):
        os.makedirs(self.directory, exist_ok=True)
        with open(os.path.join(self.directory, STATE), "w", encoding="ascii") as file:
            json.dump({"nodes": self.nodes, **self.settings}, file)
        with open(self.key(), "w", encoding="ascii", opener=private) as file:
            file.write(os.urandom(16).hex() + "\n")
        return super().start()

    def endpoint(self, node):
        return f"{DPDK_HOST}:{DPDK_PORT}" if self.settings["dpdk"] else super().endpoint(node)

    def key(self):
        return os.path.join(self.directory, "cluster.key")

    def configuration(self, node, directory):
        """JSON is YAML. Sessions and answers as in docs/capacity.md: for 100,000 clients."""
        shards, socket = self.settings["shards"], self.settings["dpdk"]
        # "insecure": not a loopback address, and yet reached by nobody but who may open the socket.
        port = {"insecure": True,
                "dpdk": {"device": f"net_vhost0,iface={socket}", "traffic": "clients",
                         "address": f"{DPDK_HOST}/24", "hugepages": False}}
        core = self.settings["core"]
        pinned = {"polling": "busy", "pin_first_core": core}
        return {"node": node,
                "members": [{"node": one, "client": self.endpoint(one),
                             "peer": f"{servers.LOOPBACK}:{self.port(one, WORKERS_MAX)}"}
                            for one in self.numbers()],
                "shards": shards, "durability": self.settings["durability"],
                "workers": self.settings["workers"],
                "limits": {"leases": self.settings["leases"] // shards,
                           "sessions": 131072 // shards, "answers": 1048576 // shards},
                "data_directory": os.path.join(directory, "data"),
                "cluster_key_file": self.key(), **(port if socket else {}),
                **(pinned if core is not None else {})}

    def status(self):
        words = [program("BELAY", "client/cli/belay"), "status", "-o", "json"]
        run = subprocess.run(words, env={**os.environ, "BELAY_ENDPOINTS": self.endpoints()},
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=10,
                             check=False)
        if not run.stdout:
            raise OSError("no node answers")
        return json.loads(run.stdout)


def private(path, flags):
    return os.open(path, flags, 0o600)


def stop_all(directory):
    """Kills what runs below a directory: nothing of it is wanted any more."""
    for parent, _, names in os.walk(directory):
        if servers.STATE in names:
            kind = Cluster if STATE in names else servers.Servers
            kind.load(parent).stop(kill=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("start", "stop", "stop-all"))
    parser.add_argument("--directory", required=True)
    parser.add_argument("--durability", choices=("disk", "memory"), default="disk")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--workers", type=int, choices=range(1, WORKERS_MAX + 1), default=1)
    for name in ("shards", "leases"):
        parser.add_argument(f"--{name}", type=int, default=SETTINGS[name])
    parser.add_argument("--dpdk", metavar="PATH")
    parser.add_argument("--core", type=int)
    options = parser.parse_args()
    if options.dpdk and options.nodes != 1:
        parser.error("--dpdk: one node, as there is one client beside its socket: --nodes 1")
    try:
        if options.action == "start":
            cluster = Cluster(options.directory, options.nodes,
                              **{name: getattr(options, name) for name in SETTINGS})
            print(cluster.start().endpoints())
        elif options.action == "stop":
            Cluster.load(options.directory).stop()
        else:
            stop_all(options.directory)
    except (servers.Trouble, FileNotFoundError) as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
