# SPDX-License-Identifier: Apache-2.0
"""belayd as a process: one per data directory, signals, the service manager's protocol, and errors
of the configuration with their place."""
import os
import re
import signal
import socket
import subprocess

from check import Directory, Stopwatch, equal, expect, remember, run, wait_until
from harness import BELAYD, Cluster


def belayd(*words, environment=None):
    done = subprocess.run([BELAYD, *words], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=20, env=environment or os.environ, check=False)
    return done.returncode, done.stdout, done.stderr


def test_one_per_data_directory():
    cluster = Cluster(nodes=1).start()
    held = cluster.acquire("job")
    other = Cluster(nodes=1)
    other[1].data = cluster[1].data
    other[1].start()
    code = other[1].wait_end(10)
    equal(code, 1, "exit code of the second belayd")
    expect("in use by another belayd" in other[1].log(), f"its reason: {other[1].log()!r}")
    equal(cluster.holders("job")[0]["token"], held["token"], "the first one goes on")
    cluster.release("job", held)


def test_sigterm():
    for number in (signal.SIGTERM, signal.SIGINT):
        cluster = Cluster(nodes=1).start()
        held = cluster.acquire("job", "600s")
        watch = Stopwatch()
        cluster[1].process.send_signal(number)
        equal(cluster[1].wait_end(10), 0, f"exit code after {number.name}")
        print(f"{number.name}: ended after {watch.seconds() * 1000:.0f} ms")
        expect(watch.seconds() < 3, f"it took {watch.seconds():.1f} s")
        cluster[1].start()
        cluster.wait_ready()
        equal(cluster.holders("job")[0]["token"], held["token"], "the holder after a restart")


def test_sigterm_while_forming():
    """Alone of three: it waits for the others, and must still end when asked."""
    cluster = Cluster()
    cluster[1].start()
    wait_until(lambda: "wait" in cluster[1].log(), 10, "it says what it waits for")
    equal(cluster[1].terminate(5), 0, "exit code")


def test_sigterm_before_anything():
    """A signal that comes while belayd has not done anything yet: still an ordinary end. It is
    held up where it writes its first line, to a pipe that is full."""
    cluster = Cluster(nodes=1)
    for number in (signal.SIGTERM, signal.SIGINT):
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        try:
            while True:
                os.write(writer, b"." * 4096)
        except BlockingIOError:
            os.set_blocking(writer, True)
        cluster[1].write_config()
        process = subprocess.Popen([BELAYD, "--config", cluster[1].config], stderr=writer)
        os.close(writer)

        def held_up():
            with open(f"/proc/{process.pid}/syscall", encoding="ascii") as file:
                words = file.read().split()
            return len(words) > 1 and words[1] == "0x2"  # write(2, ...)
        try:
            wait_until(held_up, 10, "belayd writes its first line")
            process.send_signal(number)
            equal(process.wait(10), 0, f"exit code after {number.name}")
        finally:
            process.kill()
            os.close(reader)


class NotifySocket:
    """What a service manager would receive."""

    def __init__(self):
        self.path = os.path.join(Directory().path, "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(0)
        self.seen = []
        remember(self)

    def take(self):
        try:
            while True:
                self.seen += self.socket.recv(4096).decode().splitlines()
        except BlockingIOError:
            return self.seen

    def close(self):
        self.socket.close()

    def report(self):
        return f"---- the service manager was told: {self.take()}"


def test_service_manager():
    notify = NotifySocket()
    cluster = Cluster(nodes=1)
    cluster[1].environment["NOTIFY_SOCKET"] = notify.path
    cluster[1].environment["WATCHDOG_USEC"] = "400000"
    cluster[1].start()
    wait_until(lambda: "READY=1" in notify.take(), 10, "READY=1 is sent")
    cluster.is_ready()  # at once: READY means ready
    expect(notify.seen.index("READY=1") > 0 and notify.seen[0].startswith("STATUS="),
           f"a status comes before it: {notify.seen}")
    watchdogs = notify.seen.count("WATCHDOG=1")
    wait_until(lambda: notify.take().count("WATCHDOG=1") >= watchdogs + 3, 5, "the watchdog is fed")
    equal(cluster[1].terminate(), 0, "exit code")
    seen = notify.take()
    equal(seen.count("READY=1"), 1, "READY=1 is sent once")
    expect("STOPPING=1" in seen, f"STOPPING=1 is sent: {seen}")


def test_ready_only_with_a_majority():
    notify = NotifySocket()
    cluster = Cluster()
    cluster[1].environment["NOTIFY_SOCKET"] = notify.path
    cluster.start()
    wait_until(lambda: "READY=1" in notify.take(), 10, "READY=1 is sent")
    for node in cluster:
        node.kill9()
    notify.seen.clear()
    cluster[1].start()
    wait_until(lambda: any("leader" in line for line in notify.take()), 10, "it waits for leaders")
    expect("READY=1" not in notify.take(), "one of three is not ready")
    cluster[2].start()
    wait_until(lambda: "READY=1" in notify.take(), 20, "two of three are")


BAD = [
    # key and value in place of the sound one, what the message must say after FILE:LINE
    ("shards: 0", "shards", "expected a whole number from 1 to 1024"),
    ("shards: many", "shards", "found 'many'"),
    ("workers: 65", "workers", "expected a whole number from 1 to 64"),
    ("durability: ssd", "durability", "expected disk or memory"),
    ("heartbeat: 20", "heartbeat", "with its unit"),
    ("election_timeout: 1ms", "election_timeout", "expected a duration"),
    ("log_ring: {bytes: 300KiB}", "log_ring.bytes", "power of two"),
    ("limits: {leases: 0}", "limits.leases", "expected a whole number"),
    ("limits: {leeses: 10}", "leeses", "did you mean 'leases'"),
    ("node: 4", "node", "between 1 and 3"),
    ("cluster_key_file: /nonexistent/key", "cluster_key_file", "No such file"),
    ("shard: 4", "shard", "did you mean 'shards'"),
    ("spin: -5us", "spin", "found '-5us'"),
]


def test_bad_configuration():
    cluster = Cluster()
    sound = cluster.config_text(1, 1, cluster[1].data).splitlines()
    path = os.path.join(cluster.directory, "bad.yaml")
    for wrong, key, text in BAD:
        name = wrong.split(":")[0]
        lines = [line for line in sound if not line.startswith(name + ":") and
                 not (name == "limits" and "leases" in line)]
        lines.append(wrong)
        with open(path, "w", encoding="ascii") as file:
            file.write("\n".join(lines) + "\n")
        for words in (("--check-config", path), ("--config", path)):
            code, out, err = belayd(*words)
            equal(code, 1, f"exit code for '{wrong}' ({err.strip()})")
            expect(re.search(re.escape(path) + f":{len(lines)}: .*{re.escape(key)}.*", err) and
                   text in err, f"'{wrong}' is reported with its place, key and {text!r}", err, out)
    equal(os.path.exists(cluster[1].data), False, "a data directory was made before the check")


def test_bad_flags_and_variables():
    code, _, err = belayd()
    equal(code, 1, "exit code without a configuration")
    expect("--config FILE" in err, f"it says what is needed: {err!r}")
    code, _, err = belayd("--confg", "x")
    equal(code, 2, "exit code of a wrong flag")
    expect("did you mean --config" in err, f"it suggests: {err!r}")
    cluster = Cluster(nodes=1)
    cluster[1].write_config()
    code, _, err = belayd("--check-config", cluster[1].config,
                          environment={**os.environ, "BELAYD_LIMITS_LEASES": "0"})
    equal(code, 1, "exit code of a wrong variable")
    expect("BELAYD_LIMITS_LEASES" in err, f"it names the variable: {err!r}")
    code, out, err = belayd("--check-config", cluster[1].config)
    equal(code, 0, f"exit code of a sound configuration: {err!r}")
    expect("valid" in out, f"it says so: {out!r}")


def test_a_core_that_is_not_there():
    """It says so in words, and works all the same."""
    cluster = Cluster(nodes=1, settings={"pin_first_core": 1023}).start()
    said = re.findall(r"event=not_pinned worker=0 core=1023 (.*)", cluster[1].log())
    equal(said, ['error="Invalid argument" what="there is no such core, or this process\' cpuset '
                 'leaves it out: choose another pin_first_core"'], "what the log says")
    cluster.release("job", cluster.acquire("job"))


def test_changed_facts_are_refused():
    """What was fixed when the cluster was formed cannot be changed by editing the file."""
    cluster = Cluster(nodes=1).start()
    cluster[1].stop()
    for shards, durability, text in ((8, "disk", "shards"), (4, "memory", "durability")):
        cluster.shards, cluster.durability = shards, durability
        cluster[1].start()
        equal(cluster[1].wait_end(10), 1, "exit code")
        expect(text in cluster[1].log_tail(2), f"the reason names {text}")
    cluster.shards, cluster.durability = 4, "disk"
    cluster[1].start()
    cluster.wait_ready()


if __name__ == "__main__":
    run(globals())
