#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts and stops three Belay nodes on loopback for a benchmark, as peers/servers.py does others.

    cluster.py start --directory DIR --durability disk|memory [--shards N]   prints the endpoints
    cluster.py stop --directory DIR
    cluster.py stop-all --directory DIR     whatever system runs below DIR, at once

BELAYD and BELAY name the programs. Everything that is not said in configuration() is a default.
"""
import argparse
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers"))
import servers  # noqa: E402  (the path is set above)

STATE = "cluster.json"


class Kind:
    def __init__(self, cluster):
        self.cluster = cluster

    def command(self, node, directory):
        path = os.path.join(directory, "node.yaml")
        with open(path, "w", encoding="ascii") as file:
            json.dump(self.cluster.configuration(node, directory), file, indent=1)
        return [os.environ["BELAYD"], "--config", path]

    def ready(self, _node):
        return self.cluster.status()["ready"]


servers.KINDS["belay"] = Kind


class Cluster(servers.Servers):
    def __init__(self, directory, durability="disk", shards=4, nodes=3):
        super().__init__("belay", directory, nodes)
        self.durability, self.shards = durability, shards

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
            json.dump({"durability": self.durability, "shards": self.shards,
                       "nodes": self.nodes}, file)
        with open(self.key(), "w", encoding="ascii", opener=private) as file:
            file.write(os.urandom(16).hex() + "\n")
        return super().start()

    def key(self):
        return os.path.join(self.directory, "cluster.key")

    def configuration(self, node, directory):
        """JSON is YAML. The limits are those of docs/capacity.md: 100,000 clients, five locks
        each, in four shards."""
        scale = 4 / self.shards
        return {"node": node,
                "members": [{"node": one, "client": self.endpoint(one),
                             "peer": f"{servers.LOOPBACK}:{self.port(one, 1)}"}
                            for one in self.numbers()],
                "shards": self.shards, "durability": self.durability,
                "limits": {"leases": int(163840 * scale), "sessions": int(32768 * scale),
                           "answers": int(262144 * scale)},
                "data_directory": os.path.join(directory, "data"),
                "cluster_key_file": self.key()}

    def status(self):
        words = [os.environ["BELAY"], "status", "-o", "json"]
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
    parser.add_argument("--shards", type=int, default=4)
    options = parser.parse_args()
    try:
        if options.action == "start":
            cluster = Cluster(options.directory, options.durability, options.shards)
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
