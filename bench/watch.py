#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What running servers have been up to, for a difference between two looks.

    watch.py elections --system belay|etcd|zookeeper --directory DIR    terms (epochs), all groups
                                                                        together
    watch.py cpu --system SYSTEM --directory DIR    processor time of all nodes, seconds
"""
import argparse
import os
import subprocess
import sys

import failover
from failover import servers


def belay_terms(cluster):
    terms = {}
    for row in cluster.status()["shards"]:
        terms[row["shard"]] = max(int(row["term"]), terms.get(row["shard"], 0))
    return sum(terms.values())


def etcd_terms(cluster):
    return max(int(failover.etcd_status(cluster, node)["raftTerm"]) for node in cluster.numbers())


def zookeeper_epochs(cluster):
    """The upper half of the last transaction's number."""
    epochs = []
    for node in cluster.numbers():
        for line in servers.ask(cluster.port(node), b"srvr\n").splitlines():
            if line.startswith("Zxid:"):
                epochs.append(int(line.split()[1], 16) >> 32)
    return max(epochs)


ELECTIONS = {"belay": belay_terms, "etcd": etcd_terms, "zookeeper": zookeeper_epochs}


def cpu_seconds(cluster):
    ticks = 0
    for pid, _ in cluster.processes.values():
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            ticks += sum(int(field) for field in file.read().rsplit(")", 1)[1].split()[11:13])
    return ticks / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("elections", "cpu"))
    parser.add_argument("--system", required=True)
    parser.add_argument("--directory", required=True)
    options = parser.parse_args()
    try:
        cluster = failover.load(options.system, options.directory)
        if options.what == "cpu":
            print(cpu_seconds(cluster))
        elif options.system in ELECTIONS:
            print(ELECTIONS[options.system](cluster))
        else:
            parser.error(f"{options.system} holds no elections")
    except (servers.Trouble, OSError, ValueError, KeyError, servers.urllib.error.URLError,
            subprocess.TimeoutExpired) as error:
        print(f"watch: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
