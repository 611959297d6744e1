# SPDX-License-Identifier: Apache-2.0
"""What a benchmark's runs come to: results.json, and ratios.md for people.

    bench/results.py DIRECTORY      reads DIRECTORY/runs.tsv and what it names, writes both
    bench/results.py --line FILE    one run in one line, for a log
    bench/results.py --best DIRECTORY SYSTEM ROUND    its acquire+release/s at saturation, or 0
    bench/results.py --cpu BEFORE AFTER FILE    processor seconds of servers, looked at by the two
                                    commands of that run, as time per command
    bench/results.py --machine      what this machine is, as JSON; MACHINE_* add to it
    bench/results.py --self-check   a known document gives the known ratios, and a wrong one is seen

A ratio is taken within each round and its median over the rounds is given, with the least and the
most: systems that took turns saw the same machine. What was not measured is left empty.
"""
import copy
import json
import math
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))

# In the order of tables and legends.
SYSTEMS = {
    "belay-disk-many": "Belay, disk, many requests per datagram",
    "belay-disk-one": "Belay, disk, one request per datagram",
    "belay-memory": "Belay, memory, many requests per datagram",
    "belay-one-kernel": "Belay, one node, memory, kernel UDP",
    "belay-one-dpdk": "Belay, one node, memory, past the kernel",
    "etcd": "etcd, disk",
    "zookeeper": "ZooKeeper, disk",
    "redis-fsync": "Redis, one node, appendfsync always",
    "redis": "Redis, one node, memory",
    "bare-disk": "bare chain, disk",
    "bare-memory": "bare chain, memory",
}

FAILURES = {"kill": "kill -9", "stop": "SIGSTOP", "cut": "packets dropped"}


# ---- reading runs -------------------------------------------------------------------------------

def load_figures(run):
    """The figures of one run of belay-bench, by the names used here; others have theirs."""
    if "commands" not in run:
        return run
    acquire = run["commands"]["acquire"]
    latency = acquire["latency_us"]
    figures = {"pairs_s": run["grants_per_s"], "p50_us": latency["p50"], "p90_us": latency["p90"],
               "p99_us": latency["p99"], "p99.9_us": latency["p99.9"], "max_us": latency["max"],
               "clients": int(run["scenario"]["clients"]),
               "commands_s": run["commands_per_s"], "lost": run["checks"]["locks_lost"],
               "fairness": run["grants_per_client"]["jain"]}
    if run["happenings"]:
        figures["gap_ms"] = run["happenings"][-1]["longest_without_grant"]["ms"]
    return figures


def read_runs(directory):
    """Lines of runs.tsv: round, cell, system, at, file."""
    with open(os.path.join(directory, "runs.tsv"), encoding="utf-8") as file:
        for line in file:
            number, cell, system, at, name = line.rstrip("\n").split("\t")
            with open(os.path.join(directory, name), encoding="utf-8") as run:
                yield int(number), cell, system, at, json.load(run)


def collect(directory):
    with open(os.path.join(directory, "machine.json"), encoding="utf-8") as file:
        results = {"machine": json.load(file), "cells": {}, "raw": {}, "cdf": {}, "timeline": {}}
    cells = results["cells"]
    for number, cell, system, at, run in read_runs(directory):
        if cell == "raw":
            for key, row in run["rows"].items():
                values = results["raw"].setdefault(system, {}).setdefault(
                    key, {"what": row["what"], "values": []})["values"]
                values.extend([number, value] for value in row["values"])
            continue
        place = cells.setdefault(cell, {}).setdefault(system, {}).setdefault(at, {})
        for name, value in load_figures(run).items():
            place.setdefault(name, []).append([number, value])
        if cell in ("sweep", "equal"):
            results["cdf"].setdefault(cell, {}).setdefault(system, {}).setdefault(
                at, run["commands"]["acquire"]["distribution"])
        if cell == "failover":
            results["timeline"].setdefault(system, {}).setdefault(at, {
                "span_ms": run["timeline"]["span_ms"], "grants": run["timeline"]["grants"],
                "at_ms": run["happenings"][-1]["at_s"] * 1000})
    return results


# ---- figures ------------------------------------------------------------------------------------

def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values),
            "rounds": len(values)}


def by_round(pairs):
    """[[round, value], ...] -> {round: median of that round's values}"""
    rounds = {}
    for number, value in pairs:
        rounds.setdefault(number, []).append(value)
    return {number: statistics.median(values) for number, values in rounds.items()}


def quantile(values, fraction):
    """The smallest value that this part of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]


def cell(results, name, system, at, figure):
    pairs = results["cells"].get(name, {}).get(system, {}).get(str(at), {}).get(figure, [])
    return by_round(pairs)


def raw(results, program, key):
    return by_round(results["raw"].get(program, {}).get(key, {"values": []})["values"])


def best(results, system):
    """Acquire+release/s at saturation: the most, over what was kept in flight, of each round."""
    most = {}
    for figures in results["cells"].get("sweep", {}).get(system, {}).values():
        for number, value in by_round(figures.get("pairs_s", [])).items():
            most[number] = max(value, most.get(number, 0))
    return most


def one_p50(results, system):
    if system.startswith("bare-"):
        return raw(results, "bare_chain", f"{system.removeprefix('bare-')}.one.p50_us")
    return cell(results, "sweep", system, 1, "p50_us")


def hand_overs(results, system, waiters):
    if system.startswith("bare-"):
        return raw(results, "bare_chain", f"{system.removeprefix('bare-')}.hand_overs_s")
    return cell(results, "hot", system, waiters, "pairs_s")


def waiter_counts(results):
    counts = {int(at) for figures in results["cells"].get("hot", {}).values() for at in figures}
    return sorted(counts)


def failover_ms(results, system, failure, fraction):
    """Of all that happened, whatever the round: {0: ms}."""
    pairs = results["cells"].get("failover", {}).get(system, {}).get(failure, {})
    values = [value for _, value in pairs.get("gap_ms", [])]
    return {0: quantile(values, fraction)} if values else {}


# ---- ratios -------------------------------------------------------------------------------------

def divide(numerator, denominator):
    return [numerator[number] / denominator[number] for number in sorted(numerator)
            if denominator.get(number)]


def wanted_ratios(results):
    """(what, numerator, denominator, sign, bound); bound None: nothing is promised."""
    rows = []

    def row(what, numerator, denominator, sign="", bound=None):
        rows.append((what, numerator, denominator, sign, bound))

    many, one, memory = (best(results, f"belay-{name}") for name in
                         ("disk-many", "disk-one", "memory"))
    rate = "acquire+release/s at saturation, "
    row(rate + "disk: Belay, many per datagram / etcd", many, best(results, "etcd"), ">=", 100)
    row(rate + "disk: Belay, many per datagram / ZooKeeper", many, best(results, "zookeeper"),
        ">=", 20)
    row(rate + "disk: Belay, one per datagram / etcd", one, best(results, "etcd"), ">=", 40)
    row(rate + "disk: Belay, many per datagram / Redis (one node, appendfsync always)", many,
        best(results, "redis-fsync"))
    row(rate + "Belay, three in memory / Redis (one node, in memory)", memory,
        best(results, "redis"), ">=", 1)
    for peer, label, bound in (("etcd", "etcd", 0.1), ("zookeeper", "ZooKeeper", 0.1),
                               ("redis-fsync", "Redis (appendfsync always)", None)):
        row(f"p99 of acquire at half of {label}'s most: Belay / {label}",
            cell(results, "equal", "belay-disk-one", peer, "p99_us"),
            cell(results, "equal", peer, peer, "p99_us"), "<=" if bound else "", bound)
    alone = one_p50(results, "belay-disk-one")
    row("one client, one in flight, disk, p50: Belay / bare chain", alone,
        one_p50(results, "bare-disk"), "<=", 1.25)
    row("one client, one in flight, disk, p50: Belay / etcd", alone, one_p50(results, "etcd"),
        "<=", 0.25)
    row("one client, one in flight, disk, p50: Belay / ZooKeeper", alone,
        one_p50(results, "zookeeper"))
    hot_ratios(results, row)
    port_ratios(results, row)
    promises(results, row)
    table_ratios(results, row)
    return rows


# Programs of bench/raw that look keys up, by how many there are.
TABLES = {"tables": "1 M keys", "tables_10m": "10 M keys"}


def table_ratios(results, row):
    """ck_ht has no way to fetch ahead: what is fetched ahead is beside its lookups one by one."""
    for program, size in TABLES.items():
        def ns(key, program=program):
            return raw(results, program, f"{key}_ns")

        for key, text in (("hit", "that finds"), ("miss", "that does not")):
            row(f"lookup {text}, {size}, one by one, ns: our index / ck_ht",
                ns(f"index.{key}"), ns(f"ck_ht.{key}"), "<=", 1)
            row(f"lookup {text}, {size}, fetched ahead, ns: our index / ck_ht one by one",
                ns(f"index.{key}_batch"), ns(f"ck_ht.{key}"), "<=", 1)
            row(f"lookup {text}, {size}, fetched ahead, ns: our index / rte_hash",
                ns(f"index.{key}_batch"), ns(f"rte_hash.{key}_batch"))
        row(f"removal and insertion, {size}, ns: our index / rte_hash",
            ns("index.remove_insert"), ns("rte_hash.remove_insert"), "<=", 1)


PACKINGS = (1, 4, 16, 32)  # requests per datagram, as far as its 1,400 bytes go


def lean(results, name, count, figure):
    """Of a lean client (bench/raw/lean_locks.c): beside `null`, a server that only says yes."""
    return raw(results, f"lean_{name}", f"p{count}.{figure}")


def minus(one, other):
    return {number: value - other[number] for number, value in one.items() if number in other}


def port_ratios(results, row):
    """One node past the kernel: beside the kernel's UDP, and beside a bare echo on the port."""
    ones = dict.fromkeys(lean(results, "dpdk", 1, "server_cycles"), 1)
    row("one node in memory, 1 per datagram: cycles of its core per request past the kernel, less "
        "those of a bare echo there", minus(lean(results, "dpdk", 1, "server_cycles"),
                                            raw(results, "dpdk_echo", "single.server_cycles")),
        ones, "<=", 450)
    row("the same by the node's own account of its busy turns",
        minus(lean(results, "dpdk", 1, "node_cycles"),
              raw(results, "dpdk_echo", "single.server_cycles")), ones)
    row("1 per datagram past the kernel, requests/s: what the client alone can drive / the node",
        lean(results, "null", 1, "steady_requests_s"),
        lean(results, "dpdk", 1, "steady_requests_s"), ">=", 2)
    for count in PACKINGS:
        bound = 10 if count == 1 else None
        row(f"one node in memory, {count} per datagram, requests/s: past the kernel / kernel UDP",
            lean(results, "dpdk", count, "steady_requests_s"),
            lean(results, "kernel", count, "steady_requests_s"), ">=" if bound else "", bound)
    for waiters in waiter_counts(results):
        what = f"hand-overs/s of one lock, {waiters} waiters, one node in memory: past the kernel"
        there = hand_overs(results, "belay-one-dpdk", waiters)
        row(f"{what} / kernel UDP", there, hand_overs(results, "belay-one-kernel", waiters))
        row(f"{what} / etcd", there, hand_overs(results, "etcd", waiters), ">=", 100)


def promises(results, row):
    """Figures that are to be reached by themselves: a ratio to one of their unit."""
    def absolute(what, value, bound):
        row(what, value, dict.fromkeys(value, 1), "<=", bound)

    for failure, text in FAILURES.items():
        absolute(f"leader lost ({text}): nobody is granted for, p99, Belay, ms",
                 failover_ms(results, "belay-disk-many", failure, 0.99), 100)
    for rate in places(results, "capacity"):
        text = capacity_text(results, rate)
        for figure, bound in (("p50_us", 10000), ("p99_us", 50000), ("lost", 0)):
            name = {"lost": "locks lost"}.get(figure, figure.replace("_us", " of acquire, us"))
            absolute(f"{text}: {name}, Belay",
                     cell(results, "capacity", "belay-disk-many", rate, figure), bound)
    for leases in places(results, "expiry"):
        absolute(f"{leases:,} leases end: the longest wait of others, Belay, us",
                 cell(results, "expiry", "belay-disk-many", leases, "max_us"), 10000)
    for seconds in places(results, "steady"):
        absolute(f"{seconds} s at saturation: elections, Belay",
                 cell(results, "elections", "belay-disk-many", "steady", "elections"), 0)


def places(results, name):
    """Where Belay was measured in this cell: rates, seconds, leases."""
    return sorted(int(at) for at in results["cells"].get(name, {}).get("belay-disk-many", {}))


def capacity_text(results, rate):
    clients = max(cell(results, "capacity", "belay-disk-many", rate, "clients").values())
    return f"{clients:,} clients with five locks each, {rate:,} commands/s"


def hot_ratios(results, row):
    counts = waiter_counts(results)
    for waiters in counts:
        what = f"hand-overs/s of one lock, {waiters} waiters, "
        disk = hand_overs(results, "belay-disk-many", waiters)
        memory = hand_overs(results, "belay-memory", waiters)
        row(what + "disk: Belay / bare chain", disk, hand_overs(results, "bare-disk", 0),
            ">=", 0.8)
        row(what + "memory: Belay / bare chain", memory, hand_overs(results, "bare-memory", 0),
            ">=", 0.8)
        row(what + "Belay, disk / etcd", disk, hand_overs(results, "etcd", waiters), ">=", 15)
        row(what + "Belay, memory / etcd", memory, hand_overs(results, "etcd", waiters), ">=", 50)
        row(what + "Belay, disk / ZooKeeper", disk, hand_overs(results, "zookeeper", waiters))
    if len(counts) > 1:
        for system, name in (("belay-disk-many", "disk"), ("belay-memory", "memory")):
            row(f"hand-overs/s, {name}: Belay with {counts[-1]} waiters / with {counts[0]} (flat)",
                hand_overs(results, system, counts[-1]), hand_overs(results, system, counts[0]),
                ">=", 0.8)


def reached(sign, bound, median):
    if bound is None:
        return None
    return median >= bound if sign == ">=" else median <= bound


def ratios(results):
    """One per row; those that could not be taken have no median."""
    found = []
    for what, numerator, denominator, sign, bound in wanted_ratios(results):
        values = divide(numerator, denominator)
        one = {"what": what, "wanted": f"{sign} {bound}" if bound is not None else None}
        if values:
            one.update(spread(values), values=values)
            one["reached"] = reached(sign, bound, one["median"])
        found.append(one)
    return found


# ---- Markdown -----------------------------------------------------------------------------------

def number(value):
    """Three figures, which is more than the spread allows."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        digits = 2 - int(math.floor(math.log10(abs(value))))
        return f"{round(value, digits):,.0f}"
    return f"{value:.3g}"


def shown(rounds):
    """{round: value} as 'median (least to most)'."""
    if not rounds:
        return ""
    values = list(rounds.values())
    text = number(statistics.median(values))
    if len(values) > 1:
        text += f" ({number(min(values))} to {number(max(values))})"
    return text


def ratio_table(results):
    lines = ["| ratio | median | least to most | rounds | wanted | reached |",
             "|---|---|---|---|---|---|"]
    for one in results["ratios"]:
        wanted = one["wanted"] or ""
        if "median" not in one:
            lines.append(f"| {one['what']} | | | | {wanted} | |")
            continue
        answer = {True: "yes", False: "no", None: ""}[one["reached"]]
        lines.append(f"| {one['what']} | {number(one['median'])} | {number(one['min'])} to "
                     f"{number(one['max'])} | {one['rounds']} | {wanted} | {answer} |")
    return lines


def figure_rows(results):
    """(what, {system: {round: value}})"""
    every = list(SYSTEMS)
    rows = [("acquire+release/s at saturation", {s: best(results, s) for s in every}),
            ("one client, one in flight: p50 of acquire, us",
             {s: one_p50(results, s) for s in every})]
    for waiters in waiter_counts(results):
        rows.append((f"hand-overs/s of one lock, {waiters} waiters",
                     {s: hand_overs(results, s, waiters) for s in every}))
    for count in PACKINGS:
        rows.append((f"requests/s, {count} per datagram",
                     {s: lean(results, s.removeprefix("belay-one-"), count, "steady_requests_s")
                      for s in every}))
    for peer in results["cells"].get("equal", {}):
        if peer.startswith("belay"):
            continue
        rows.append((f"p99 of acquire at half of what {SYSTEMS[peer].split(',')[0]} can do "
                     f"({peer}), us", {s: cell(results, "equal", s, peer, "p99_us")
                                       for s in every}))
    for failure, text in FAILURES.items():
        for fraction, name in ((0.5, "p50"), (0.99, "p99")):
            values = {s: failover_ms(results, s, failure, fraction) for s in every}
            rows.append((f"leader: {text}; no grant for, {name}, ms", values))
    for rate in places(results, "capacity"):
        for figure, text in (("p99_us", "p99 of acquire, us"), ("commands_s", "answered/s")):
            rows.append((f"{capacity_text(results, rate)}: {text}",
                         {s: cell(results, "capacity", s, rate, figure) for s in every}))
    for leases in places(results, "expiry"):
        for figure in ("p50_us", "p99_us", "p99.9_us", "max_us"):
            name = figure.replace("_us", " of acquire, us")
            rows.append((f"{leases:,} leases end, others: {name}",
                         {s: cell(results, "expiry", s, leases, figure) for s in every}))
    rows.append(("elections while loaded, all rounds together", election_counts(results)))
    return rows


def election_counts(results):
    """{system: {0: how many}}"""
    counts = {}
    for system in SYSTEMS:
        looks = cell(results, "elections", system, "rounds", "elections")
        counts[system] = {0: sum(looks.values())} if looks else {}
    return counts


def figure_table(results):
    rows = figure_rows(results)
    systems = [s for s in SYSTEMS if any(values[s] for _, values in rows)]
    lines = ["| what | " + " | ".join(SYSTEMS[s] for s in systems) + " |",
             "|---|" + "---|" * len(systems)]
    for what, values in rows:
        if not any(values.values()):
            continue  # nobody was asked
        lines.append(f"| {what} | " + " | ".join(shown(values[s]) for s in systems) + " |")
    return lines


def scaling_table(results):
    """Nodes, shards and workers; what a command costs all servers together."""
    mhz = results["machine"].get("mhz")
    lines = ["| nodes | shards | workers per node | acquire+release/s | "
             "processor time per command, us, all nodes | "
             f"cycles at {mhz} MHz |", "|---|---|---|---|---|---|"]
    for name in results["cells"].get("cpu", {}):
        time_us = statistics.median(cell(results, "cpu", name, 1024, "cpu_us").values())
        pairs = statistics.median(cell(results, "scaling", name, 1024, "pairs_s").values())
        cycles = number(time_us * mhz) if mhz else ""
        lines.append(f"| {' | '.join(name.split('-'))} | {number(pairs)} | {number(time_us)} | "
                     f"{cycles} |")
    return lines


def raw_table(results):
    lines = ["| program | figure | median (least to most) |", "|---|---|---|"]
    for program, rows in results["raw"].items():
        for key, row in rows.items():
            lines.append(f"| {program} | {key}: {row['what']} | "
                         f"{shown(by_round(row['values']))} |")
    return lines


def machine_lines(machine):
    lines = [f"* {name}: {value}" for name, value in machine.items()
             if name not in ("missing", "notes") and value]
    lines += [f"* not measured: {text}" for text in machine.get("missing", [])]
    lines += [f"* note: {text}" for text in machine.get("notes", [])]
    return lines


def markdown(results):
    parts = [["# Belay beside others, in one run", ""], machine_lines(results["machine"]),
             ["", "## Ratios", "",
              "Taken within each round; systems ran one after another on the same cores. An empty "
              "cell was not measured.", ""], ratio_table(results),
             ["", "## Figures", "", "Median over the rounds (least to most).", ""],
             figure_table(results),
             ["", "## Against nodes, shards and workers", "",
              "In memory, 1,024 pairs in flight, many requests per datagram. Load and servers "
              "share the cores.", ""], scaling_table(results),
             ["", "## What the machine gives without a lock service", ""], raw_table(results)]
    return "\n".join(line for part in parts for line in part) + "\n"


# ---- for script/bench ---------------------------------------------------------------------------

def line(path):
    with open(path, encoding="utf-8") as file:
        found = load_figures(json.load(file))
    text = f"    {found['pairs_s']:,.0f} locks/s, acquire p50 {found['p50_us']:,.0f} us, " \
           f"p99 {found['p99_us']:,.0f} us"
    return text + (f", no grant for {found['gap_ms']:,.1f} ms" if "gap_ms" in found else "")


def best_of_round(directory, system, wanted):
    rates = [load_figures(run)["pairs_s"] for number, cell_name, name, _, run
             in read_runs(directory) if (number, cell_name, name) == (wanted, "sweep", system)]
    return int(max(rates, default=0))


def cpu_per_command(before, after, path):
    with open(path, encoding="utf-8") as file:
        run = json.load(file)
    first, last = (happening["at_s"] for happening in run["happenings"][:2])
    return {"cpu_us": (after - before) / ((last - first) * run["commands_per_s"]) * 1e6}


def first_match(path, key):
    with open(path, encoding="utf-8", errors="replace") as file:
        for text in file:
            if text.startswith(key):
                return text.split(":", 1)[1].strip()
    return None


def version(words, pattern):
    """What a program says its version is; None: it is not here."""
    try:
        run = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(pattern, run.stdout + run.stderr)
    return found.group(1) if found else None


def machine():
    def given(name):
        return os.environ.get(f"MACHINE_{name}", "").strip()

    path = os.environ.get("PATH", "") + ":/usr/sbin"
    redis = shutil.which("redis-server", path=path) or "redis-server"
    memory_kib = int(first_match("/proc/meminfo", "MemTotal").split()[0])
    return {"date": time.strftime("%Y-%m-%d"), "mode": given("MODE"), "rounds": given("ROUNDS"),
            "cpu": first_match("/proc/cpuinfo", "model name") or platform.machine(),
            "mhz": round(float(first_match("/proc/cpuinfo", "cpu MHz") or 0)) or None,
            "cores": os.cpu_count(), "memory": f"{memory_kib / 2 ** 20:.0f} GiB",
            "kernel": f"{platform.system()} {platform.release()}", "disk": given("DISK"),
            "Belay": given("BELAY"),
            "etcd": version(["etcd", "--version"], r"etcd Version: (\S+)"),
            "ZooKeeper": version(["dpkg-query", "-W", "-f", "${Version}", "zookeeper"],
                                 r"^([^-]+)"),
            "Redis": version([redis, "--version"], r"v=(\S+)"),
            "missing": [text for text in given("MISSING").split("\n") if text],
            "notes": [text for text in given("NOTES").split("\n") if text]}


# ---- self-check ---------------------------------------------------------------------------------

def check(results, expected):
    """Sentences about what is not as the document says it must be."""
    found = {one["what"]: one for one in ratios(results)}
    wrong = []
    for what, wanted in expected.items():
        one = found.get(what)
        if one is None:
            wrong.append(f"no such ratio: {what}")
            continue
        for key, value in wanted.items():
            have = one.get(key)
            same = have == value if not isinstance(value, float) else (
                have is not None and abs(have - value) < 1e-9)
            if not same:
                wrong.append(f"{what}: {key} is {have}, not {value}")
    results = dict(results, ratios=ratios(results))
    text = markdown(results)
    wrong += [f"missing in the table: {what}" for what in expected if f"| {what} |" not in text]
    return wrong


def self_check():
    with open(os.path.join(HERE, "testdata", "results.json"), encoding="utf-8") as file:
        document = json.load(file)
    expected = document.pop("expected_ratios")
    wrong = check(document, expected)
    planted = copy.deepcopy(document)
    planted["cells"]["sweep"]["etcd"]["64"]["pairs_s"][0][1] *= 1.5
    if not check(planted, expected):
        wrong.append("a figure of etcd's was changed, and no ratio was found wrong")
    for text in wrong:
        print(f"results: {text}", file=sys.stderr)
    print(f"{len(expected)} ratios checked, {len(wrong)} findings")
    return 1 if wrong else 0


def main(arguments):
    if arguments == ["--self-check"]:
        return self_check()
    if arguments[:1] == ["--line"] and len(arguments) == 2:
        print(line(arguments[1]))
        return 0
    if arguments[:1] == ["--best"] and len(arguments) == 4:
        print(best_of_round(arguments[1], arguments[2], int(arguments[3])))
        return 0
    if arguments[:1] == ["--cpu"] and len(arguments) == 4:
        print(json.dumps(cpu_per_command(float(arguments[1]), float(arguments[2]), arguments[3])))
        return 0
    if arguments == ["--machine"]:
        print(json.dumps(machine(), indent=1))
        return 0
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__.strip())
        return 0 if arguments in (["-h"], ["--help"]) else 2
    directory = arguments[0]
    results = collect(directory)
    results["ratios"] = ratios(results)
    with open(os.path.join(directory, "results.json"), "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)
        file.write("\n")
    with open(os.path.join(directory, "ratios.md"), "w", encoding="utf-8") as file:
        file.write(markdown(results))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
