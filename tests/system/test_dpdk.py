# SPDX-License-Identifier: Apache-2.0
"""Nodes that drive a network device of their own without the kernel: net_af_packet on one end of a
veth pair, a bridge behind the other ends. Clients are ordinary processes on the bridge."""
import os
import re
import select
import socket
import subprocess

import frames
import netns
import wire
from check import Directory, equal, expect, remember, run, wait_until
from harness import Cluster, UNREACHABLE, Waiter
from netns import call, network_of, unshared

REPLAY = os.environ.get("BELAY_REPLAY", "")
NODES = 3
# Every reason to drop a received frame (hw/net/net.h), but for too many echo requests.
LOSSES = ("runt not_ours ethertype source ip_header ip_checksum fragment extension protocol "
          "udp_header udp_checksum icmp arp discovery").split()
BRIDGE = "10.78.0.254"


def wire_up():
    """Host n gets a device d<n> whose other end is v<n>, at the bridge, with the test itself.
    Management goes by the routed network beside it."""
    network = network_of(NODES)
    if "br0" not in call("ip", "link"):
        call("ip", "link", "add", "br0", "type", "bridge")
        call("ip", "addr", "add", BRIDGE + "/24", "dev", "br0")
        call("ip", "link", "set", "br0", "up")
        for host in range(1, NODES + 1):
            call("ip", "link", "add", f"v{host}", "type", "veth", "peer", "name", f"d{host}",
                 "netns", f"h{host}")
            call("ip", "-n", f"h{host}", "link", "set", f"d{host}", "up")
            call("ip", "link", "set", f"v{host}", "master", "br0", "up")
            # A real wire completes checksums; between veth ends nobody does.
            call("ethtool", "-K", f"v{host}", "tx", "off")
        call("ethtool", "-K", "br0", "tx", "off")
    return network


class Cards(Cluster):
    """Each node has the address 10.78.0.n, which no kernel has."""

    def __init__(self, network, nodes, **more):
        super().__init__(nodes, hosts={node: f"10.78.0.{node}" for node in range(1, nodes + 1)},
                         **more)
        self.network = network
        for node in self:
            node.prefix = network.prefix(node.number)

    def config_text(self, number, workers, data):
        lines = []
        for line in super().config_text(number, workers, data).splitlines():
            lines.append(line)
            peer = re.match(r'    peer: "10\.78\.0\.(\d+):(\d+)"', line)
            if peer:
                lines.append('    management: "%s:%s"'
                             % (self.network.address(int(peer[1])), peer[2]))
        lines += ["dpdk:", f'  device: "net_af_packet0,iface=d{number}"',
                  f"  address: 10.78.0.{number}/24", f'  address6: "fd78::{number}/64"',
                  "  hugepages: false"]
        return "\n".join(lines) + "\n"


def lock_everywhere(cluster):
    """A lock in every shard, so that every worker is asked, by whatever queue it comes."""
    names, number = {}, 0
    while len(names) < cluster.shards:
        names.setdefault(cluster.shard_of(f"lock-{number}"), f"lock-{number}")
        number += 1
    for name in names.values():
        cluster.belay("lock", name, "--", "true").ok()


def counted(words, pattern):
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    found = re.search(pattern, done.stdout)
    expect(found, f"{' '.join(words)}: {done.stdout}{done.stderr}")
    return int(found[1])


def test_one_node():
    cluster = Cards(wire_up(), 1, workers=2)
    cluster.start(30)
    lock_everywhere(cluster)
    equal(counted(["/bin/busybox", "ping", "-c", "3", "10.78.0.1"], r"(\d+) packets received"), 3,
          "echo requests answered")
    equal(counted(["/bin/busybox", "arping", "-c", "3", "-I", "br0", "10.78.0.1"],
                  r"Received (\d+) resp"), 3, "ARP requests answered")
    call("ip", "link", "set", "v1", "down")
    cluster.belay("lock", "unheard", "--timeout", "1s", "--", "true").fails(UNREACHABLE)
    call("ip", "link", "set", "v1", "up")
    lock_everywhere(cluster)
    cluster[1].stop()


def test_three_nodes_replicate():
    cluster = Cards(wire_up(), NODES)
    cluster.start(40, settled=True)
    lock_everywhere(cluster)
    leader = cluster.leader_of("job")
    cluster.belay("acquire", "job", "--ttl", "60s").ok()
    token = cluster.holders("job")[0]["token"]
    leader.kill9()
    expect(cluster.leader_of("job") is not leader, "another node leads")
    equal(cluster.holders("job")[0]["token"], token, "the lock outlives the leader")
    lock_everywhere(cluster)
    leader.start()
    cluster.wait_ready(30)
    cluster.wait_equal(30)
    for node in cluster:
        node.stop()


def mac_in(text):
    found = re.search(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", text)
    expect(found, f"no hardware address in {text!r}")
    return bytes.fromhex(found[0].replace(":", ""))


def hardware_address():
    """That of node 1, as the kernel learned it."""
    subprocess.run(["/bin/busybox", "ping", "-c", "1", "10.78.0.1"], capture_output=True,
                   check=False, timeout=60)
    return mac_in(call("ip", "neighbour", "show", "10.78.0.1"))


def test_malformed_frames_change_nothing():
    cluster = Cards(wire_up(), 1, workers=2)
    cluster.start(30)
    ends = frames.Ends(mac=mac_in(call("ip", "-brief", "link", "show", "br0")),
                       to_mac=hardware_address(), ip=BRIDGE, to_ip="10.78.0.1", port=40000,
                       to_port=cluster[1].client_address[1])
    cluster.belay("acquire", "kept", "--ttl", "60s").ok()
    token = cluster.holders("kept")[0]["token"]
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind(("br0", 0))
        sent = 0
        for frame in frames.all_of(ends):
            raw.send(frame)
            sent += 1
            if sent % 64 == 0:
                cluster[1].check_alive()
                cluster[1].status()  # and so as fast as they are looked at
    print(f"{sent} malformed frames")
    expect(sent > 3000, f"only {sent} frames")
    lock_everywhere(cluster)
    equal(cluster.holders("kept")[0]["token"], token, "what was held")
    equal(counted(["/bin/busybox", "ping", "-c", "3", "10.78.0.1"], r"(\d+) packets received"), 3,
          "echo requests answered afterwards")
    cluster[1].stop()


SPOOFER, NOBODY = "10.78.0.66", "10.78.0.77"


class Spoofer:
    """Host 2, whose kernel has an address of its own and whose test claims to be others, too."""

    def __init__(self, to_mac):
        call("ip", "-n", "h2", "addr", "replace", SPOOFER + "/24", "dev", "d2")
        call("ip", "netns", "exec", "h2", "ethtool", "-K", "d2", "tx", "off")
        self.mac = mac_in(call("ip", "-n", "h2", "-brief", "link", "show", "d2"))
        self.to_mac = to_mac
        self.raw = netns.raw_socket("h2", "d2")
        self.raw.settimeout(20)
        self.heard = []
        remember(self)

    def close(self):
        self.raw.close()
        call("ip", "-n", "h2", "addr", "flush", "dev", "d2")  # it is a node's in other tests

    def report(self):
        return f"---- the spoofer heard {len(self.heard)} frames"

    def ends(self, ip):
        return frames.Ends(mac=self.mac, to_mac=self.to_mac, ip=ip, to_ip="10.78.0.1", port=40000,
                           to_port=7)

    def claim(self, ip):
        """That it has this address: questions and answers that nobody asked for."""
        for operation in (1, 2):
            self.raw.send(frames.arp_of(self.ends(ip), operation, self.mac, ip, "10.78.0.1"))

    def ping(self, ip):
        """As if from this address; until the answer comes, all that came before is done with."""
        number = len(self.heard).to_bytes(2, "big")
        message = b"\x08\0\0\0\x42\x42" + number + bytes(24)
        total = frames.checksum(message).to_bytes(2, "big")
        self.raw.send(frames.ipv4(self.ends(ip), message[:2] + total + message[4:], protocol=1))
        while not (self.heard and self.heard[-1][34:36] == b"\0\0" and
                   self.heard[-1][38:42] == b"\x42\x42" + number):
            self.heard.append(self.raw.recv(2048))

    def ask(self, ip, to_port):
        """A datagram from this address, whose answer goes where node 1 believes that it is."""
        ends = self.ends(ip)._replace(to_port=to_port)
        question = wire.datagram([wire.page_item(wire.STATUS, 1)])
        self.raw.send(frames.ipv4(ends, frames.udp(ends, question)))
        while not self.heard_for(ip):
            self.heard.append(self.raw.recv(2048))

    def heard_for(self, ip):
        """IPv4 packets to this address that node 1 has sent here."""
        return [one for one in self.heard if one[6:12] == self.to_mac and
                one[12:14] == b"\x08\0" and one[30:34] == socket.inet_aton(ip)]


def doubts(raw, of_mac, heard):
    """How often node 1, which has this address, has asked the bridge alone where it is."""
    while raw in select.select([raw], [], [], 0)[0]:
        heard.append(raw.recv(2048))
    return sum(one[:6] != b"\xff" * 6 and one[6:14] == of_mac + b"\x08\x06" and
               one[20:22] == b"\0\1" for one in heard)


def test_a_spoofer_gets_nothing_of_others():
    """Two hosts on the wire, both of which were answered: one says that it was the other."""
    network = wire_up()
    cluster = Cards(network, 1, workers=2)
    cluster.start(30)
    spoofer = Spoofer(hardware_address())
    spoofer.ping(SPOOFER)
    other = {"prefix": network.prefix(2)}
    # While the other asks: node 1 doubts, asks again, and takes the answer of whom it asked.
    heard = []
    with netns.raw_socket(None, "br0") as raw:
        def doubted():
            spoofer.claim(BRIDGE)
            spoofer.ping(SPOOFER)
            cluster[1].status()
            return doubts(raw, spoofer.to_mac, heard) >= 3
        wait_until(doubted, 30, "node 1 asks the one that it knows, more than once")
    # While the other waits, and has said nothing since.
    held = cluster.acquire("passed on", **other)
    waiter = Waiter(cluster, "passed on")
    wait_until(lambda: len(cluster.queue("passed on", **other)) == 1, 10, "one waits")
    spoofer.claim(BRIDGE)
    spoofer.ping(SPOOFER)
    cluster.release("passed on", held, **other)
    waiter.granted(20)
    spoofer.ping(SPOOFER)
    equal(len(spoofer.heard_for(BRIDGE)), 0, "frames for the other host that came to the spoofer")
    # It would have heard them, as it hears its own, and what is for an address of nobody's.
    expect(len(spoofer.heard_for(SPOOFER)) > 3, "its own answers")
    spoofer.claim(NOBODY)
    spoofer.ask(NOBODY, cluster[1].client_address[1])
    cluster[1].stop()


def test_no_buffer_is_lost():
    """The same, and what no socket sends, from a file; then sound datagrams, which are answered."""
    directory = Directory().path
    ends = frames.Ends(mac=b"\x02\0\0\0\0\x02", to_mac=b"\x02pcap\0", ip="10.78.0.2",
                       to_ip="10.78.0.1", port=40000, to_port=7401)
    sound = [frames.ipv4(ends, frames.udp(ends, bytes([i]) * i)) for i in range(100)]
    introduction = frames.arp_of(ends, 1, ends.mac, ends.ip, ends.to_ip)
    path, out = os.path.join(directory, "in.pcap"), os.path.join(directory, "out.pcap")
    count = frames.write_pcap(path, [*frames.all_of(ends), *frames.only_in_files(ends),
                                     introduction, *sound])
    done = subprocess.run([REPLAY, path, out], capture_output=True, text=True, check=False,
                          timeout=60)
    print(f"{count} frames; {done.stdout.replace(chr(10), ', ')}")
    said = dict(re.findall(r"^(.+): (-?\d+)$", done.stdout, re.MULTILINE))
    equal(done.returncode, 0, f"replay: {done.stderr}")
    equal(said["buffers missing"], "0", "buffers")
    expect(int(said["answered"]) >= len(sound), "sound datagrams are answered")
    expect(int(said["handed over"]) >= len(sound), "they came to the other queue")
    expect(int(said["oversized"]) >= 5, "giants are counted")
    for loss in LOSSES:
        expect(int(said.get(loss, 0)) > 0, f"nothing was dropped as {loss!r}: {done.stdout}")


unshared(network=True)
run(globals())
