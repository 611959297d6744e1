# SPDX-License-Identifier: Apache-2.0
"""Runs tests/system/load.c and judges its log against what the cluster says afterwards."""
import os
import signal

import wire
from check import equal, expect, wait_until
from harness import LOAD, Command


class Load:
    def __init__(self, cluster, threads=2, slots=8, keep_every=5, keep_max=400, ttl_ms=600000):
        self.cluster = cluster
        self.read_bytes, self.read_lines, self.grants_count = 0, [], 0
        self.path = os.path.join(cluster.directory, f"load{len(os.listdir(cluster.directory))}.log")
        self.command = Command([LOAD, self.path, str(threads), str(slots), str(keep_every),
                                str(keep_max), str(ttl_ms)], cluster.environment())

    def lines(self):
        """[(monotonic ns, what, name, token, status)]; a line that is not whole is left out."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self.read_bytes)
                text = file.read()
        except FileNotFoundError:
            return []
        text = text[:text.rfind(b"\n") + 1]
        self.read_bytes += len(text)
        for line in text.decode().splitlines():
            at, what, name, token, status = line.split()
            self.read_lines.append((int(at), what, name, int(token), status))
            self.grants_count += what == "grant"
        return self.read_lines

    def grants(self):
        self.lines()
        return self.grants_count

    def wait_grants(self, count, timeout_s=30):
        expect(not self.command.done(), "the load runs")
        wait_until(lambda: self.grants() >= count, timeout_s, f"{count} grants under load")

    def kill9(self):
        self.command.signal(signal.SIGKILL)
        self.command.wait(10)

    def grant_times(self, shard=None):
        return [at for at, what, name, _, _ in self.lines() if what == "grant" and
                (shard is None or self.cluster.shard_of(name) == shard)]

    def grants_after(self, time_ns, shard=None):
        return sum(1 for at in self.grant_times(shard) if at > time_ns)

    def longest_pause(self, since_ns, shard=None):
        """Seconds between two grants that follow each other, the later one after since_ns."""
        times = self.grant_times(shard)
        return max(later - before for before, later in zip(times, times[1:])
                   if later > since_ns) / 1e9

    def held(self):
        """{name: token} of grants that were acknowledged and not asked to be released."""
        found = {}
        for _, what, name, token, _ in self.lines():
            if what == "grant":
                found[name] = token
            elif what in ("release", "lost"):
                found.pop(name, None)
        return found

    def check_tokens_rise(self):
        """Per name, and on the whole shard: tokens come from a counter of the shard."""
        last = {}
        for _, what, name, token, _ in self.lines():
            if what != "grant":
                continue
            expect(token > last.get(name, 0), f"{name}: token {token} after {last.get(name)}")
            last[name] = token
        return last

    def check_held(self):
        """Everything that must be held is held under its token. Returns how many."""
        self.check_tokens_rise()
        expected = self.held()
        expect(expected, "the load left locks behind")
        found = self.cluster.locks("load/")
        lost = {name: token for name, token in expected.items() if found.get(name) != token}
        equal(lost, {}, f"acknowledged locks that are gone or have another token "
              f"(found: {[(name, found.get(name)) for name in lost][:5]})")
        return len(expected)

    def highest_tokens(self):
        """{shard: highest token that was acknowledged}."""
        highest = {}
        for _, what, name, token, _ in self.lines():
            if what == "grant":
                shard = self.cluster.shard_of(name)
                highest[shard] = max(highest.get(shard, 0), token)
        return highest

    def check_next_tokens(self):
        """A new lock in every shard gets a token above all that were acknowledged there."""
        highest, ordinal = self.highest_tokens(), 0
        for shard, token in highest.items():
            name = f"next/{ordinal}"
            while wire.shard_of(name, self.cluster.shards) != shard:
                ordinal += 1
                name = f"next/{ordinal}"
            fresh = self.cluster.acquire(name)
            expect(fresh["token"] > token, f"shard {shard}: token {fresh['token']} after {token}")
            self.cluster.release(name, fresh)
