#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what bench/results.py put together, each plot as SVG and PNG.

    bench/plot.py DIRECTORY      reads DIRECTORY/results.json, draws into DIRECTORY
    bench/plot.py --self-check [DIRECTORY]   draws bench/testdata/results.json and looks whether
                                 axes, units, systems and captions are in the drawings

Every plot can be read alone: axes have units, and a caption says what was compared, on which
machine, and in which versions.
"""
import json
import os
import sys
import tempfile
import textwrap

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as pyplot  # noqa: E402  (after the choice of what draws)
from matplotlib.ticker import FuncFormatter, NullLocator  # noqa: E402

import results as figures  # noqa: E402

# Colours that also differ for the colour-blind (Okabe and Ito 2008), each with a mark of its own.
STYLES = {
    "belay-disk-many": ("#0072B2", "o", "-"), "belay-disk-one": ("#56B4E9", "s", "-"),
    "belay-one-kernel": ("#999999", "P", "-"), "belay-one-dpdk": ("#CC6677", "*", "-"),
    "belay-memory": ("#009E73", "D", "-"), "etcd": ("#D55E00", "^", "--"),
    "zookeeper": ("#CC79A7", "v", "--"), "redis-fsync": ("#E69F00", "P", ":"),
    "redis": ("#7F7F00", "X", ":"), "bare-disk": ("#555555", None, "-."),
    "bare-memory": ("#999999", None, "-."),
}
PLOTS = ("latency-throughput", "latency-distribution", "hand-overs", "failover")


def plain(value, _position=None):
    """1,000 rather than 10^3."""
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def caption_of(results, what):
    machine = results["machine"]
    parts = [what]
    where = [str(machine[key]) for key in ("cpu", "kernel", "disk") if machine.get(key)]
    if machine.get("cores"):
        where.insert(1, f"{machine['cores']} cores shared by servers and load")
    parts.append("Machine: " + ", ".join(where) + ".")
    versions = [f"{name} {machine[name]}" for name in ("Belay", "etcd", "ZooKeeper", "Redis")
                if machine.get(name)]
    parts.append("Versions: " + ", ".join(versions) + ".")
    if machine.get("date"):
        parts.append(f"{machine['date']}, {machine.get('mode', '')} run.")
    return " ".join(parts)


class Plot:
    """One drawing: a title, axes, a caption below."""

    def __init__(self, results, title, caption, columns=1, rows=1):
        self.figure, axes = pyplot.subplots(rows, columns, figsize=(10, 6.8), squeeze=False,
                                            sharey=columns > 1, sharex=rows > 1)
        self.axes = list(axes.flat)
        self.figure.suptitle(title, fontsize=14, x=0.07, ha="left", weight="bold")
        text = textwrap.fill(caption_of(results, caption), 148)
        self.figure.text(0.07, 0.015, text, fontsize=8.5, va="bottom", color="#333333")
        self.bottom = 0.03 + 0.02 * (text.count("\n") + 1)
        self.labelled = {}

    def line(self, axis, system, x, y, **more):
        colour, mark, dash = STYLES[system]
        (drawn,) = axis.plot(x, y, color=colour, marker=mark, linestyle=dash, linewidth=1.8,
                             markersize=6, label=figures.SYSTEMS[system], **more)
        self.labelled[system] = drawn

    def scales(self, axis, x, y):
        """(label, 'log' or 'linear') each."""
        for label, scale, set_label, set_scale, one in (
                (*x, axis.set_xlabel, axis.set_xscale, axis.xaxis),
                (*y, axis.set_ylabel, axis.set_yscale, axis.yaxis)):
            set_label(label, fontsize=11)
            set_scale(scale)
            if scale == "log":
                one.set_major_formatter(FuncFormatter(plain))
        axis.grid(True, which="major", color="#dddddd")
        axis.grid(True, which="minor", color="#f2f2f2")
        axis.set_axisbelow(True)

    def save(self, directory, name):
        top = 0.99  # the title is reckoned in
        if self.labelled:
            order = [s for s in STYLES if s in self.labelled]
            self.figure.legend([self.labelled[s] for s in order],
                               [figures.SYSTEMS[s] for s in order], fontsize=9, ncol=3,
                               loc="upper left", bbox_to_anchor=(0.06, 0.95), frameon=False)
            top -= 0.03 * ((len(order) + 2) // 3)
        self.figure.tight_layout(rect=(0.01, self.bottom, 0.99, top), w_pad=0.5)
        for kind in ("svg", "png"):
            self.figure.savefig(os.path.join(directory, f"{name}.{kind}"), dpi=130)
        pyplot.close(self.figure)


def medians(place, figure):
    """{at: median} of one system's cell, by number."""
    found = {}
    for at, measured in place.items():
        values = [value for _, value in measured.get(figure, [])]
        if values:
            found[int(at)] = figures.statistics.median(values)
    return dict(sorted(found.items()))


def band(axis, system, place, figure, counts):
    """From the least to the most of the rounds."""
    low = [min(value for _, value in place[str(at)][figure]) for at in counts]
    high = [max(value for _, value in place[str(at)][figure]) for at in counts]
    axis.fill_between(counts, low, high, color=STYLES[system][0], alpha=0.15, linewidth=0)


# ---- the plots ----------------------------------------------------------------------------------

def latency_throughput(results, directory):
    plot = Plot(results, "Latency of an acquire against locks per second",
                "Closed loop, uncontended names: each point is a number of requests kept in "
                "flight (written beside it), median of the rounds; strong line: p50, faint line: "
                "p99. Lower and further right is better.")
    axis = plot.axes[0]
    for system, place in results["cells"].get("sweep", {}).items():
        rate, middle, high = (medians(place, name) for name in ("pairs_s", "p50_us", "p99_us"))
        counts = sorted(set(rate) & set(middle) & set(high))
        x = [rate[at] for at in counts]
        plot.line(axis, system, x, [middle[at] for at in counts])
        axis.plot(x, [high[at] for at in counts], color=STYLES[system][0], alpha=0.35,
                  linestyle=STYLES[system][2])
        for at in counts:
            axis.annotate(f"{at:,}", (rate[at], middle[at]), textcoords="offset points",
                          xytext=(5, -11), fontsize=7.5, color=STYLES[system][0])
    plot.scales(axis, ("acquire + release per second", "log"),
                ("latency of acquire, microseconds", "log"))
    plot.save(directory, PLOTS[0])


def tail(fraction):
    """A place on an axis on which each step right is a tenth of the requests that were left."""
    return 1 / max(1 - fraction, 1e-4)


def distribution(axis, plot, system, points):
    x, y = [], []
    for latency_us, fraction in points:
        if 0.1 <= fraction <= 0.9999:
            x.append(tail(fraction))
            y.append(latency_us)
    plot.line(axis, system, x, y, markevery=(4, 5))


def latency_distribution(results, directory):
    equal = results["cdf"].get("equal", {})
    peers = sorted({peer for system in equal for peer in equal[system]},
                   key=list(figures.SYSTEMS).index)
    plot = Plot(results, "How long acquires take when both systems get the same load",
                "Open loop at half of what the peer in each panel's title can do at most on this "
                "machine (disk durability), latency from the intended time of each request; all "
                "requests of the first round. Lower is better.", max(1, len(peers)))
    for axis, peer in zip(plot.axes, peers):
        for system in figures.SYSTEMS:
            if peer in equal.get(system, {}):
                distribution(axis, plot, system, equal[system][peer])
        rates = medians({"0": results["cells"]["equal"][peer].get(peer, {})}, "pairs_s")
        rate = f", {rates[0]:,.0f} locks/s" if rates else ""
        axis.set_title(f"half of {figures.SYSTEMS[peer].split(',')[0]}'s most{rate}", fontsize=10)
        plot.scales(axis, ("part of the requests", "log"),
                    ("latency of acquire, microseconds", "log"))
        axis.set_xticks([2, 10, 100, 1000, 10000])
        axis.set_xticklabels(["50 %", "90 %", "99 %", "99.9 %", "99.99 %"], fontsize=8)
        axis.xaxis.set_minor_locator(NullLocator())
        if axis is not plot.axes[0]:
            axis.set_ylabel("")
    plot.save(directory, PLOTS[1])


def hand_overs(results, directory):
    plot = Plot(results, "Hand-overs of one contended lock",
                "N clients wait in the queue of one lock; whoever gets it releases at once and "
                "queues again. Median of the rounds, shaded from least to most. The bare chain "
                "passes a token between two clients through the same hops and writes without any "
                "lock logic. Higher is better; flat means that more waiters cost nothing; a line "
                "ends where there were none in the measured time.")
    axis = plot.axes[0]
    counts = figures.waiter_counts(results)
    for system, place in results["cells"].get("hot", {}).items():
        rate = {at: value for at, value in medians(place, "pairs_s").items() if value > 0}
        plot.line(axis, system, list(rate), list(rate.values()))
        band(axis, system, place, "pairs_s", list(rate))
    for system in ("bare-disk", "bare-memory"):
        values = list(figures.hand_overs(results, system, 0).values())
        if values and counts:
            plot.line(axis, system, [counts[0], counts[-1]],
                      [figures.statistics.median(values)] * 2)
    plot.scales(axis, ("clients that wait for the lock", "log"), ("hand-overs per second", "log"))
    plot.save(directory, PLOTS[2])


def failover(results, directory):
    timelines = results["timeline"]
    systems = [system for system in figures.SYSTEMS if "kill" in timelines.get(system, {})]
    plot = Plot(results, "Locks granted around the moment the leader is lost",
                "Open loop, 200 acquires per second of names that the lost leader's group serves; "
                "its process is killed (kill -9) at 0 s. Grants per 10 ms of the first run. What "
                "was asked for meanwhile is granted afterwards: the peak after the gap. A run ends "
                "where its grants do.",
                rows=max(1, len(systems)))
    for axis, system in zip(plot.axes, systems):
        line = timelines[system]["kill"]
        x = [(i * line["span_ms"] - line["at_ms"]) / 1000 for i in range(len(line["grants"]))]
        axis.fill_between(x, line["grants"], step="post", color=STYLES[system][0], linewidth=0)
        axis.axvline(0, color="#000000", linewidth=1)
        times = [value for _, value in results["cells"]["failover"][system]["kill"]["gap_ms"]]
        axis.set_title(f"{figures.SYSTEMS[system].split(',')[0]}: nobody was granted for "
                       f"{figures.statistics.median(times):,.0f} ms (median of {len(times)}, "
                       f"{min(times):,.0f} to {max(times):,.0f})", fontsize=10, loc="left")
        last = axis is plot.axes[-1]
        plot.scales(axis, ("seconds since the leader was killed" if last else "", "linear"),
                    ("grants per 10 ms", "linear"))
        axis.set_ylim(0, 1.1 * max(quiet_most(line["grants"]), 1))
        axis.margins(x=0)
    plot.save(directory, PLOTS[3])


def quiet_most(grants):
    """Nearly the most: the peak after a gap would make everything else flat."""
    return 2 * figures.quantile(grants, 0.95)


def draw(results, directory):
    pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "belay", "font.size": 10})
    for make in (latency_throughput, latency_distribution, hand_overs, failover):
        make(results, directory)


# ---- self-check ---------------------------------------------------------------------------------

WANTED = {
    "latency-throughput": ("acquire + release per second", "latency of acquire, microseconds",
                           "Latency of an acquire against locks per second"),
    "latency-distribution": ("part of the requests", "latency of acquire, microseconds", "99.9 %"),
    "hand-overs": ("clients that wait for the lock", "hand-overs per second",
                   "bare chain, disk"),
    "failover": ("seconds since the leader was killed", "grants per 10 ms",
                 "nobody was granted for 100 ms"),
}


def missing(directory, machine):
    """What is not in the drawings and must be."""
    gone = []
    for name, texts in WANTED.items():
        path = os.path.join(directory, name)
        if not os.path.exists(path + ".png") or os.path.getsize(path + ".png") < 10000:
            gone.append(f"{name}.png")
        if not os.path.exists(path + ".svg"):
            gone.append(f"{name}.svg")
            continue
        with open(path + ".svg", encoding="utf-8") as file:
            svg = file.read()
        for text in texts + (f"{machine['cores']} cores", f"etcd {machine['etcd']}"):
            # A caption's line may break where a text has a space.
            if text not in svg and text not in " ".join(svg.split()):
                gone.append(f"{name}.svg: '{text}'")
    return gone


def self_check(directory):
    with open(os.path.join(figures.HERE, "testdata", "results.json"), encoding="utf-8") as file:
        results = json.load(file)
    with tempfile.TemporaryDirectory(prefix="belay-plot-") as scratch:
        directory = directory or scratch
        os.makedirs(directory, exist_ok=True)
        draw(results, directory)
        gone = missing(directory, results["machine"])
        # The same look must see a drawing that lacks its axis.
        path = os.path.join(directory, PLOTS[2] + ".svg")
        with open(path, encoding="utf-8") as file:
            svg = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(svg.replace("hand-overs per second", ""))
        if not missing(directory, results["machine"]):
            gone.append("an axis title was taken away, and nothing was found missing")
        with open(path, "w", encoding="utf-8") as file:
            file.write(svg)
    for text in gone:
        print(f"plot: missing: {text}", file=sys.stderr)
    print(f"{len(PLOTS)} plots drawn, {len(gone)} findings")
    return 1 if gone else 0


def main(arguments):
    if arguments[:1] == ["--self-check"] and len(arguments) <= 2:
        return self_check(arguments[1] if len(arguments) == 2 else None)
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__.strip())
        return 0 if arguments in (["-h"], ["--help"]) else 2
    with open(os.path.join(arguments[0], "results.json"), encoding="utf-8") as file:
        draw(json.load(file), arguments[0])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
