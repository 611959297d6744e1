# SPDX-License-Identifier: Apache-2.0
"""Private namespaces: the test process re-executes itself in a network and mount namespace of its
own, so that nothing of what it sets up outlives it or touches the machine."""
import ctypes
import os
import socket
import subprocess
import sys
import threading

from check import wait_until

_INSIDE = "BELAY_TEST_UNSHARED"


def unshared(network=False):
    """Call first in a test program that mounts file systems or makes network namespaces."""
    if os.environ.get(_INSIDE) == "1":
        return
    words = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--mount-proc",
             "--kill-child"]
    if network:
        words.append("--net")
    if os.geteuid() != 0:
        words += ["--user", "--map-root-user"]
    os.environ[_INSIDE] = "1"
    sys.stdout.flush()
    os.execvp(words[0], words + [sys.executable, "-B"] + sys.argv)


def call(*words, given=None):
    done = subprocess.run(words, input=given, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


CLONE_NEWNET = 0x40000000
EVERY_PROTOCOL = 3  # ETH_P_ALL


def raw_socket(namespace, device):
    """Sends and hears frames on a device in that namespace, or in the test's own (None)."""
    opened = []

    def open_there():  # a thread enters a namespace alone, and a socket stays in its own
        if namespace is not None:
            with open(f"/run/netns/{namespace}", encoding="ascii") as file:
                if ctypes.CDLL(None).setns(file.fileno(), CLONE_NEWNET) != 0:
                    return
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(EVERY_PROTOCOL))
        raw.bind((device, 0))
        opened.append(raw)

    thread = threading.Thread(target=open_there)
    thread.start()
    thread.join()
    if not opened:
        raise RuntimeError(f"no raw socket on {device} in {namespace}")
    return opened[0]


_networks = {}


def network_of(hosts):
    """The network of this test program, nothing cut."""
    if hosts not in _networks:
        _networks[hosts] = Network(hosts)
    _networks[hosts].heal()
    return _networks[hosts]


class Network:
    """Hosts 1..n, each a network namespace with the address 10.77.n.2, behind one router: the
    namespace of the test itself. cut() drops packets between two hosts in the router."""

    def __init__(self, hosts):
        call("mount", "-t", "tmpfs", "tmpfs", "/run")
        os.makedirs("/run/netns", exist_ok=True)
        self.hosts = hosts
        call("ip", "link", "set", "lo", "up")
        with open("/proc/sys/net/ipv4/ip_forward", "w", encoding="ascii") as file:
            file.write("1")
        for host in range(1, hosts + 1):
            name = f"h{host}"
            call("ip", "netns", "add", name)
            call("ip", "link", "add", f"r{host}", "type", "veth", "peer", "name", "eth0", "netns",
                 name)
            call("ip", "addr", "add", f"10.77.{host}.1/24", "dev", f"r{host}")
            call("ip", "link", "set", f"r{host}", "up")
            for words in (("addr", "add", f"10.77.{host}.2/24", "dev", "eth0"),
                          ("link", "set", "lo", "up"), ("link", "set", "eth0", "up"),
                          ("route", "add", "default", "via", f"10.77.{host}.1")):
                call("ip", "-n", name, *words)
        call("nft", "-f", "-", given="add table ip belay\n"
             "add chain ip belay cut { type filter hook forward priority 0; policy accept; }\n")
        for host in range(1, hosts + 1):
            inside = ("ip", "-n", f"h{host}", "link", "show", "eth0")
            wait_until(lambda: "state UP" in call(*inside) and
                       "state UP" in call("ip", "link", "show", f"r{host}"), 10, "links are up")

    def address(self, host):
        return f"10.77.{host}.2"

    def prefix(self, host):
        return ["ip", "netns", "exec", f"h{host}"]

    def cut(self, some, others):
        """Nothing passes between a host of `some` and one of `others`."""
        rules = []
        for one in some:
            for other in others:
                for a, b in ((one, other), (other, one)):
                    rules.append(f"add rule ip belay cut ip saddr {self.address(a)} "
                                 f"ip daddr {self.address(b)} drop")
        call("nft", "-f", "-", given="\n".join(rules) + "\n")

    def cut_oneway(self, source, target):
        call("nft", "-f", "-", given=f"add rule ip belay cut ip saddr {self.address(source)} "
             f"ip daddr {self.address(target)} drop\n")

    def heal(self):
        call("nft", "flush", "chain", "ip", "belay", "cut")
