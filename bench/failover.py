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
Shortly before the blow the leader is looked up again: if it is another one by then, nothing was
measured and that time is repeated. Prints the names of the files.
"""
import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time

import cluster as belay

servers = belay.servers
TABLE = f"belay_bench_{os.getpid()}"
# Belay gives leadership back to the node that is meant to have it, seconds after an election.
SETTLED_S = {"belay": 7.5, "etcd": 2.0, "zookeeper": 2.0}
TROUBLE_S = 60.0  # to be whole again
LOOK_S, AT_S = 0.5, 1.0  # after measuring began
REPEATS_MAX = 10


def load(system, directory):
    return (belay.Cluster if system == "belay" else servers.Servers).load(directory)


def etcd_status(cluster, node):
    request = servers.urllib.request.Request(
        f"http://{cluster.endpoint(node)}/v3/maintenance/status", data=b"{}")
    opener = servers.urllib.request.build_opener(servers.urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=2.0) as answer:
        return json.load(answer)


def etcd_leader(cluster):
    for node in cluster.numbers():
        status = etcd_status(cluster, node)
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
        elif time.monotonic() - since > SETTLED_S[system]:
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


def words_of(options, cluster, node, looked):
    look = shlex.join([sys.executable, "-B", os.path.abspath(__file__), "--who", "--system",
                       options.system, "--directory", options.directory])
    return [options.bench, "--target", f"{options.system}:{cluster.endpoints()}",
            # More clients than would ask during any outage: those that hang on the lost node, or
            # on what it had been told, must not keep others from asking the next one.
            "--scenario", "failover", "--clients", "1000", "--held", "100", "--rate", "400",
            "--spacing", "fixed", "--warm-up", "1", "--seconds", str(options.seconds), "--quiet",
            "-o", "json",
            "--at", f"{LOOK_S}s", f"{look} > {shlex.quote(looked)}",
            "--at", f"{AT_S}s", command(cluster, node, options.failure)]


def once(options, cluster, name):
    """False: the node that was hit did not lead any more."""
    node = settled_leader(options.system, cluster)
    looked = f"{name}.leader"
    try:
        with open(name, "w", encoding="utf-8") as file:
            run = subprocess.run(words_of(options, cluster, node, looked), stdout=file,
                                 stderr=subprocess.PIPE, text=True,
                                 timeout=90 + options.seconds, check=False)
    finally:
        heal(cluster, node, options.failure)
    if run.returncode not in (0, 1):
        raise servers.Trouble(f"{options.system}: {run.stderr.strip()}")
    if run.returncode == 1:
        print(f"failover: {name}: VIOLATION, see its checks", file=sys.stderr)
    with open(name, encoding="utf-8") as file:
        happening = json.load(file)["happenings"][-1]
    if happening.get("exit_code") != 0:
        raise servers.Trouble(f"the leader was not taken away: {happening}")
    with open(looked, encoding="utf-8") as file:
        led = file.read().strip()
    os.unlink(looked)
    return led == str(node)


def interrupt(*_):
    raise KeyboardInterrupt


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", choices=LEADERS, required=True)
    parser.add_argument("--directory", required=True)
    parser.add_argument("--who", action="store_true", help="only print which node leads")
    parser.add_argument("--failure", choices=("kill", "stop", "cut"))
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--bench")
    parser.add_argument("--out")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, interrupt)
    try:
        cluster = load(options.system, options.directory)
        if options.who:
            print(LEADERS[options.system](cluster))
            return 0
        if not (options.failure and options.bench and options.out):
            parser.error("needs --failure, --bench and --out")
        repeats = 0
        for number in range(1, options.times + 1):
            name = f"{options.out}-{number}.json"
            while not once(options, cluster, name):
                repeats += 1
                if repeats > REPEATS_MAX:
                    raise servers.Trouble(f"{options.system}: the leader keeps changing by itself")
            print(name, flush=True)
    except (servers.Trouble, OSError, subprocess.TimeoutExpired) as error:
        print(f"failover: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
