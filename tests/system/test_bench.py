# SPDX-License-Identifier: Apache-2.0
"""belay-bench against real nodes: every cheap scenario runs, its figures are there and are sane,
and nothing that it checks is violated. That it finds violations is tests/unit/test_bench_load.c."""
import os
import subprocess

from check import Directory, Stopwatch, equal, expect, remember, run, wait_until
from harness import BELAYD, Cluster, Command

PROGRAM = os.environ.get("BELAY_BENCH_PROGRAM", "belay-bench")
LEAN = os.environ.get("BELAY_LEAN_LOCKS", "lean_locks")
QUICK = ("--seconds", "2", "--warm-up", "0.3")
STATUSES = {"ok", "busy", "timed_out", "lost", "unreachable", "refused"}


class Dev:
    """belayd --dev."""

    def __init__(self):
        self.process = subprocess.Popen([BELAYD, "--dev"], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        text=True, start_new_session=True)
        remember(self)
        line = self.process.stdout.readline()
        expect(line.startswith("belayd is ready at "), f"what --dev says: {line!r}")
        self.endpoint = line.split()[4].rstrip(";")

    def close(self):
        self.process.terminate()
        self.process.communicate(timeout=10)

    def report(self):
        return f"---- belayd --dev at {self.endpoint}"


def bench(endpoints, scenario, *words):
    given = {key: value for key, value in os.environ.items() if not key.startswith("BELAY")}
    return Command([PROGRAM, "--target", f"belay:{endpoints}", "--scenario", scenario,
                    *map(str, words)], given)


def figures(endpoints, scenario, *words, timeout_s=60):
    result = bench(endpoints, scenario, "-o", "json", *words).wait(timeout_s).ok()
    found = result.json()
    equal(found["checks"]["violations"], 0, "violations")
    equal(found["checks"]["first"], None, "the first violation")
    equal(found["name"], scenario, "the scenario's name")
    return found


def sound(found, *commands):
    """These commands and no others were answered, all of them well, at latencies in order."""
    equal(set(found["commands"]), set(commands), "commands")
    for name in commands:
        one = found["commands"][name]
        latency = one["latency_us"]
        expect(one["answered_per_s"] > 0, f"{name}: answered", one)
        equal(set(one["statuses"]), STATUSES, "statuses")
        equal(sum(one["statuses"].values()) + one["unfinished"] + one["unsent"], one["intended"],
              f"{name}: what became of what was intended")
        equal(one["statuses"]["ok"] + one["unfinished"] + one["unsent"], one["intended"],
              f"{name}: ended well")
        values = [latency[point] for point in ("p50", "p90", "p99", "p99.9", "max")]
        expect(0 < values[0] and values == sorted(values), f"{name}: latencies", values)
        expect(latency["mean"] <= latency["max"], f"{name}: mean", latency)
    expect(found["commands_per_s"] > 0, "commands_per_s", found)


def test_pairs():
    dev = Dev()
    found = figures(dev.endpoint, "uncontended", *QUICK)
    sound(found, "acquire", "release")
    expect(found["grants_per_s"] > 100, "grants_per_s", found["grants_per_s"])
    expect(0 < found["grants_per_client"]["least"] <= found["grants_per_client"]["most"],
           "grants per client", found["grants_per_client"])
    one = figures(dev.endpoint, "uncontended", *QUICK, "--clients", 1, "--pack", 1)
    sound(one, "acquire", "release")
    expect(one["grants_per_s"] < found["grants_per_s"], "one client does less than 64",
           one["grants_per_s"], found["grants_per_s"])
    equal(one["scenario"]["pack"], "1", "a flag is in the report")
    distribution = found["commands"]["acquire"]["distribution"]
    expect(distribution == sorted(distribution) and distribution[0][1] == 0 and
           distribution[-1] == [found["commands"]["acquire"]["latency_us"]["max"], 1],
           "the distribution rises to the greatest", distribution)


def test_two_at_once():
    """Generators with names of their own do not meet."""
    dev = Dev()
    both = [bench(dev.endpoint, "uncontended", *QUICK, "--held", 50, "--group", group, "-o", "json")
            for group in ("one", "other")]
    for command in both:
        found = command.wait(30).ok().json()
        sound(found, "acquire", "release")
        expect(found["grants_per_client"]["least"] > 0, "grants", found["grants_per_client"])


def test_rate():
    """An open loop keeps its rate, which counts both commands of a pair."""
    found = figures(Dev().endpoint, "zipf", *QUICK, "--clients", 200, "--rate", 2000)
    sound(found, "acquire", "release")
    expect(700 < found["commands"]["acquire"]["intended"] / 2 < 1300,
           "acquires intended per second", found["commands"]["acquire"])


def test_contended():
    dev = Dev()
    hot = figures(dev.endpoint, "hot-lock", *QUICK, "--clients", 50)
    sound(hot, "acquire", "release")
    expect(hot["grants_per_client"]["jain"] > 0.9, "a fair queue", hot["grants_per_client"])
    sound(figures(dev.endpoint, "readers-writers", *QUICK), "acquire", "release")
    tries = figures(dev.endpoint, "hot-lock", *QUICK, "--clients", 20, "--wait-ms", 0)
    statuses = tries["commands"]["acquire"]["statuses"]
    expect(statuses["busy"] > 0 and statuses["ok"] > 0, "tries of a lock that others hold",
           statuses)


def test_held():
    dev = Dev()
    for scenario, command in (("renewals", "renew"), ("queries", "query"),
                              ("queries-stale", "query")):
        found = figures(dev.endpoint, scenario, *QUICK, "--held", 1000)
        sound(found, command)
        held = found["held"]
        equal((held["locks"], held["lost"], held["gone_unheard"], held["unsure"]),
              (1000, 0, 0, 0), f"{scenario}: held, lost, gone, unsure")


def test_run_out_together():
    found = figures(Dev().endpoint, "mass-expiry", "--seconds", 3, "--warm-up", 0, "--held", 2000,
                    "--ttl-ms", 1500, "--rate", 500)
    sound(found, "acquire", "release")
    equal(found["held"]["lost"], 2000, "held locks that ran out")


def test_a_leader_dies():
    cluster = Cluster()
    cluster.start(settled=True)
    victim = cluster.leader_of("bench/{all}/0")
    found = figures(cluster.endpoints(), "failover", "--seconds", 4, "--warm-up", 0.5, "--held",
                    200, "--clients", 50, "--rate", 1000, "--at", "1s",
                    f"kill -9 {victim.process.pid}")
    victim.process.wait(timeout=10)
    victim.process = None
    happening, = found["happenings"]
    gap = happening["longest_without_grant"]
    print(f"killed at {happening['at_s']:.3f} s; no grant for {gap['ms']:.0f} ms, first one asked "
          f"for afterwards {happening['first_grant_ms']:.0f} ms later")
    equal(happening["exit_code"], 0, "exit code of the command")
    expect(1.0 <= happening["at_s"] < 1.5, "when it was run", happening)
    expect(20 < gap["ms"] < 3000 and gap["from_s"] < 1.5, "the longest time without a grant", gap)
    expect(happening["slowest_ms"] > gap["ms"] * 0.9, "somebody waited all that time", happening)
    held = found["held"]
    equal((held["locks"], held["lost"], held["gone_unheard"], held["unsure"]), (200, 0, 0, 0),
          "held, lost, gone, unsure")
    timeline = found["timeline"]
    equal(timeline["span_ms"], 10, "span of the timeline")
    equal(len(timeline["grants"]), len(timeline["slowest_us"]), "spans")
    longest = max(len(part) for part in
                  "".join("x" if grants else "." for grants in timeline["grants"]).split("x"))
    expect(abs(longest * 10 - gap["ms"]) < 40, "the timeline shows the same gap", longest, gap)


def test_lean_client():
    """It keeps to the protocol: with some locks held at any time and its sessions' windows full,
    every answer is the one that was due, and nothing of it is left on the node."""
    cluster = Cluster(nodes=1)
    cluster.start(settled=True)
    result = Command([LEAN, "--target", cluster.endpoints(), "--keys", "20000", "--held", "500",
                      "--seconds", "0.3", "--rounds", "1", "-o", "json"],
                     dict(os.environ)).wait(60).ok()
    rows = result.json()["rows"]
    for pack in (1, 4, 16, 32):
        expect(rows[f"p{pack}.requests_s"]["median"] > 100, f"{pack} to a datagram", rows)
    expect(rows["p4.per_datagram"]["median"] > 3, "requests to a datagram",
           rows["p4.per_datagram"])
    wait_until(lambda: all(shard["leases"] == shard["sessions"] == 0
                           for shard in cluster.nodes[1].status()["shards"]), 5,
               "leases and sessions gone")


def test_table_and_progress():
    result = bench(Dev().endpoint, "uncontended", *QUICK, "--progress").wait(30).ok()
    for text in ("answered/s", "p99.9", "acquire", "release", "violations             0"):
        expect(text in result.out, f"{text!r} is in the table", result)
    expect("commands/s" in result.err, "the live line", result)


def test_wrong_usage():
    def refused(code, *words_and_texts, words):
        Command([PROGRAM, *words], dict(os.environ)).wait(40).fails(code, *words_and_texts)

    target = ["--target", "belay:127.0.0.1:1"]
    refused(2, "needs --target and --scenario", words=[])
    refused(2, "expected SYSTEM:HOST:PORT", "zookeeper", words=["--target", "x:1", "--scenario",
                                                                "zipf"])
    refused(2, "bench/scenarios", words=[*target, "--scenario", "none"])
    refused(2, "--clients: expected 1 to 1000000, found \"many\"",
            words=[*target, "--scenario", "zipf", "--clients", "many"])
    refused(2, "--colour: ", "unknown key", words=[*target, "--scenario", "zipf", "--colour", "1"])
    refused(2, "found \"later\"", words=[*target, "--scenario", "zipf", "--at", "later", "true"])
    refused(2, "raise --seconds", words=[*target, "--scenario", "zipf", "--at", "90s", "true"])
    refused(3, "not an endpoint", words=["--target", "belay:here", "--scenario", "zipf"])
    path = os.path.join(Directory().path, "mine.scenario")
    with open(path, "w", encoding="ascii") as file:
        file.write("# mine\nclients = 3\nwork = play\n")
    refused(2, f"{path}:3: work: expected pairs, renewals or queries, found \"play\"",
            words=[*target, "--scenario", path])
    help_text = Command([PROGRAM, "--help"], dict(os.environ)).wait(10).ok().out
    for text in ("--in-flight", "--ttl-ms", "-o json|table", "redis", "exit codes"):
        expect(text in help_text, f"{text!r} is in --help")


def test_nobody_answers():
    watch = Stopwatch()
    result = Command([PROGRAM, "--target", "belay:127.0.0.1:1", "--scenario", "zipf"],
                     dict(os.environ)).wait(30)
    result.fails(3, "no node answers at 127.0.0.1:1")
    expect(watch.seconds() < 20, "it gives up", watch.seconds())


if __name__ == "__main__":
    run(globals())
