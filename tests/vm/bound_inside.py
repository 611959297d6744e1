#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""In a guest: belayd drives a PCI network card that is bound to a user-space driver; its clients
are processes behind the guest's other card, which the kernel drives.

    bound_inside.py PCI-ADDRESS DRIVER SLEEPING [NUMA-NODE]

SLEEPING: what belayd's journal is to say that workers do who have nothing to do. NUMA-NODE: the
card is made one of that node, on which its memory must be then.
"""
import os
import re
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(SOURCE, "tests", "system"))

from check import equal, expect, run, wait_until  # noqa: E402 (found beneath the path above)

BELAYD = os.path.join(SOURCE, "build", "release", "mgmt", "belayd")
BELAY = os.path.join(SOURCE, "build", "release", "client", "cli", "belay")
PCI, DRIVER, SLEEPING = sys.argv[1:4]
NUMA_NODE = sys.argv[4] if len(sys.argv) > 4 else None
del sys.argv[1:]  # the rest would name tests

# Emulation: everything takes some fifty times as long as on the machine itself.
START_SECONDS = 90
STOP_SECONDS = 30
LINK_SECONDS = 30

CONFIGURATION = f"""
node: 1
members:
  - node: 1
    client: "10.9.0.1:7400"
    peer: "10.9.0.1:7500"
data_directory: /tmp/data
insecure: true
polling: adaptive
workers: 1
durability: memory
dpdk:
  device: "{PCI}"
  address: 10.9.0.1/24
  hugepages: true
limits:
  leases: 1000
"""


def write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def bind():
    device = f"/sys/bus/pci/devices/{PCI}"
    if os.path.exists(device + "/driver"):
        write(device + "/driver/unbind", PCI)
    if NUMA_NODE:
        write(device + "/numa_node", NUMA_NODE)
    write(device + "/driver_override", DRIVER)
    write("/sys/bus/pci/drivers_probe", PCI)
    equal(os.path.basename(os.path.realpath(device + "/driver")), DRIVER, "the card's driver")


def bring_up_client():
    """The card that the kernel drives gets the clients' address."""
    names = [name for name in os.listdir("/sys/class/net")
             if os.path.exists(f"/sys/class/net/{name}/device")]
    equal(len(names), 1, f"cards that the kernel drives ({names})")
    subprocess.run(["ip", "address", "add", "10.9.0.2/24", "dev", names[0]], check=True)
    subprocess.run(["ip", "link", "set", names[0], "up"], check=True)


def belay(*words, timeout_s=60):
    environment = {"PATH": os.environ["PATH"], "BELAY_ENDPOINTS": "10.9.0.1:7400"}
    return subprocess.run([BELAY, *words], env=environment, capture_output=True, text=True,
                          timeout=timeout_s, check=False, stdin=subprocess.DEVNULL)


class Node:
    def __init__(self):
        write("/tmp/belayd.yaml", CONFIGURATION)
        self.log = open("/tmp/belayd.log", "wb")
        # Core 0 is on node 0: memory on another one is there by choice.
        self.process = subprocess.Popen(["taskset", "--cpu-list", "0", BELAYD, "--config",
                                         "/tmp/belayd.yaml"],
                                        stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=self.log)

    def serves(self):
        if self.process.poll() is not None:
            raise RuntimeError("belayd has ended")
        return belay("acquire", "ready", "--try", "--ttl", "100ms", timeout_s=20).returncode == 0

    def journal(self):
        with open("/tmp/belayd.log", encoding="utf-8", errors="replace") as file:
            return file.read()

    def hugepages(self):
        """How many of them are on which node."""
        found = {}
        with open(f"/proc/{self.process.pid}/numa_maps", encoding="ascii") as file:
            for line in file:
                if "kernelpagesize_kB=2048" in line:
                    for node, count in re.findall(r" N(\d+)=(\d+)", line):
                        found[node] = found.get(node, 0) + int(count)
        return found

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=STOP_SECONDS)


def test_a_bound_card_serves_locks():
    bind()
    bring_up_client()
    node = Node()
    try:
        started = time.monotonic()
        wait_until(node.serves, START_SECONDS, "a first lock over the bound card")
        print(f"{PCI}, {DRIVER}: serves {time.monotonic() - started:.1f} s after its start, "
              f"hugepages by node: {node.hugepages()}")
        # But for a few words of DPDK's own, which go by the core that it was started on.
        pages = node.hugepages()
        expect(pages.get(NUMA_NODE or "0", 0) > 0.9 * sum(pages.values()),
               f"hugepages by node: {pages}")
        exercise()
        pull_the_cable(node)
        equal(node.stop(), 0, "belayd's exit code after SIGTERM")
        said = re.search(r"sleeping=(\w+)", node.journal())
        equal(said and said[1], SLEEPING, "what ends a worker's sleep")
    except BaseException:
        print(node.journal())
        node.process.kill()
        raise


def links(node):
    """What the journal says of the card's link: at the start, and at each change."""
    return re.findall(r"event=(?:device|link) device=\S+ (?:.* )?link=(\w+)", node.journal())


def pull_the_cable(node):
    """belayd sees it go and come, and serves as before."""
    wait_until(lambda: links(node)[-1] == "up", LINK_SECONDS, "the link is up to begin with")
    before = links(node)
    print("belay-guest: monitor set_link card off", flush=True)
    wait_until(lambda: links(node) == [*before, "down"], LINK_SECONDS, "the link goes")
    equal(belay("lock", "job", "--timeout", "2s", "--", "true").returncode, 104, "unreachable")
    print("belay-guest: monitor set_link card on", flush=True)
    wait_until(lambda: links(node) == [*before, "down", "up"], LINK_SECONDS, "the link comes")
    wait_until(node.serves, START_SECONDS, "a lock after that")
    equal(links(node), [*before, "down", "up"], "what was said about the link")
    print(f"link: {', '.join(links(node))}")


def exercise():
    tokens = []
    for _ in range(5):
        done = belay("lock", "job", "--", "sh", "-c", "echo $BELAY_TOKEN")
        equal(done.returncode, 0, f"a lock over the bound card: {done}")
        tokens.append(int(done.stdout))
    equal(tokens, sorted(set(tokens)), "tokens rise")
    # Who comes second waits for who holds it.
    holder = subprocess.Popen([BELAY, "lock", "job", "--", "sh", "-c", "echo held; read x"],
                              env={"PATH": os.environ["PATH"],
                                   "BELAY_ENDPOINTS": "10.9.0.1:7400"},
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    equal(holder.stdout.readline(), b"held\n", "what the holder says")
    equal(belay("lock", "job", "--try", "--", "true").returncode, 101, "busy")
    holder.stdin.write(b"\n")
    holder.stdin.close()
    equal(belay("lock", "job", "--", "true").returncode, 0, "the lock passes on")
    equal(holder.wait(timeout=30), 0, "the holder's exit code")
    done = subprocess.run(["/bin/busybox", "ping", "-c", "3", "-W", "10", "10.9.0.1"],
                          capture_output=True, text=True, check=False)
    equal(re.findall(r"(\d+) packets received", done.stdout), ["3"], f"ping: {done.stdout}")


run(globals())
