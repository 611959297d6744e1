#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes a leader away under load, again and again, and lets belay-bench say how long nobody got a
lock.

    failover.py --system belay|etcd|zookeeper --directory DIR --failure kill|stop|cut --times N
                --bench PROGRAM --seconds S --out PREFIX

The servers of DIR run already (cluster.py or peers/servers.py started them). Each time: the leader
is found, a load begins, a second later the leader is killed, stopped, or cut off from everybody by
dropped packets (which needs root and nft); the run goes to PREFIX-1.json, PREFIX-2.json ...; then
the node is brought back, and once all work again and the same node has led for a while, it goes on.
Prints the names of the files.
"""
import argparse
import json
import os
import signal
import subprocess
import sys
import time

import cluster as belay

servers = belay.servers
TABLE = f"belay_bench_{os.getpid()}"
SETTLED_S = 2.0   # Belay moves leadership about a second after an election
TROUBLE_S = 60.0  # to be whole again
AT_S = 1.0


def load(system, directory):
    return (belay.Cluster if system == "belay" else servers.Servers).load(directory)


def etcd_leader(cluster):
    for node in cluster.numbers():
        request = servers.urllib.request.Request(
            f"http://{cluster.endpoint(node)}/v3/maintenance/status", data=b"{}")
        opener = servers.urllib.request.build_opener(servers.urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=2.0) as answer:
            status = json.load(answer)
        if status["leader"] == status["header"]["member_id"]:
            return node
    return None


def zookeeper_leader(cluster):
    for node in cluster.numbers():
        if "Mode: leader" in servers.ask(cluster.port(node), b"srvr\n"):
            return node
    return None


def belay_leader(cluster):
    """One shard, all three nodes up to date."""
    status = cluster.status()
    rows = status["shards"]
    if not status["ready"] or len(rows) != cluster.nodes:
        return None
    applied = [int(row["applied_index"]) for row in rows]
    leaders = [row["node"] for row in rows if row["role"] == "leader"]
    if len(leaders) != 1 or max(applied) - min(applied) > 1000:
        return None
    return leaders[0]


LEADERS = {"belay": belay_leader, "etcd": etcd_leader, "zookeeper": zookeeper_leader}


def settled_leader(system, cluster):
    """Who has led for a while."""
    deadline = time.monotonic() + TROUBLE_S
    leader, since = None, time.monotonic()
    while True:
        try:
            now = LEADERS[system](cluster)
        except (OSError, ValueError, servers.urllib.error.URLError, subprocess.TimeoutExpired):
            now = None
        if now is None or now != leader:
            leader, since = now, time.monotonic()
        elif time.monotonic() - since > SETTLED_S:
            return leader
        if time.monotonic() > deadline:
            raise servers.Trouble(f"{system}: no steady leader in {TROUBLE_S:.0f} s\n"
                                  f"{cluster.report()}")
        time.sleep(0.1)  # between two looks; what is waited for is the condition


def ruleset(cluster, node):
    ports = ", ".join(str(cluster.port(node, which))
                      for which in range(servers.PORTS_PER_NODE))
    return (f"add table inet {TABLE}; "
            f"add chain inet {TABLE} in {{ type filter hook input priority 0; }}; "
            f"add rule inet {TABLE} in meta l4proto {{ tcp, udp }} th dport {{ {ports} }} drop; "
            f"add rule inet {TABLE} in meta l4proto {{ tcp, udp }} th sport {{ {ports} }} drop")


def command(cluster, node, failure):
    pid = cluster.processes[node][0]
    if failure == "cut":
        return f"nft '{ruleset(cluster, node)}'"
    return f"kill -{'KILL' if failure == 'kill' else 'STOP'} {pid}"


def heal(cluster, node, failure):
    if failure == "cut":
        subprocess.run(["nft", "delete", "table", "inet", TABLE], check=False,
                       stderr=subprocess.DEVNULL)
    elif failure == "stop":
        cluster.signal_node(node, signal.SIGCONT)
    elif not cluster.running(node):
        cluster.start_node(node)


def once(options, cluster, name):
    node = settled_leader(options.system, cluster)
    try:
        with open(name, "w", encoding="utf-8") as file:
            run = subprocess.run(
                [options.bench, "--target", f"{options.system}:{cluster.endpoints()}",
                 "--scenario", "failover", "--clients", "32", "--held", "100", "--rate", "1000",
                 "--warm-up", "1", "--seconds", str(options.seconds), "--quiet", "-o", "json",
                 "--at", f"{AT_S}s", command(cluster, node, options.failure)],
                stdout=file, stderr=subprocess.PIPE, text=True, timeout=120 + options.seconds,
                check=False)
    finally:
        heal(cluster, node, options.failure)
    if run.returncode not in (0, 1):
        raise servers.Trouble(f"{options.system}: {run.stderr.strip()}")
    if run.returncode == 1:
        print(f"failover: {name}: VIOLATION, see its checks", file=sys.stderr)
    with open(name, encoding="utf-8") as file:
        happening = json.load(file)["happenings"][0]
    if happening.get("exit_code") != 0:
        raise servers.Trouble(f"the leader was not taken away: {happening}")


def interrupt(*_):
    raise KeyboardInterrupt


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", choices=LEADERS, required=True)
    parser.add_argument("--directory", required=True)
    parser.add_argument("--failure", choices=("kill", "stop", "cut"), required=True)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, interrupt)
    try:
        cluster = load(options.system, options.directory)
        for number in range(1, options.times + 1):
            name = f"{options.out}-{number}.json"
            once(options, cluster, name)
            print(name, flush=True)
    except (servers.Trouble, OSError, subprocess.TimeoutExpired) as error:
        print(f"failover: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
