# SPDX-License-Identifier: Apache-2.0
"""Datagrams from people who mean no good: no crash, never more bytes back than were sent, no term
raised, and real clients hardly notice."""
import random
import socket
import struct
import time

import wire
from check import Failed, equal, expect, run
from harness import Cluster, InBackground
from netns import call, unshared

SEED = 20240229
LOOPBACK = ("127.0.0.1", 0)


class Stranger:
    """A socket without a cookie. After each datagram the node is asked something from elsewhere on
    the same port: once that is answered, the hostile one has been dealt with."""

    def __init__(self, address, fence_address=None):
        self.address = address
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(LOOPBACK)
        self.socket.setblocking(False)
        self.fence = wire.Client(fence_address or address)
        self.fence.status()

    def close(self):
        self.socket.close()
        self.fence.close()

    def replies(self):
        found = []
        while True:
            try:
                found.append(self.socket.recv(65536))
            except (BlockingIOError, ConnectionRefusedError):
                return found

    def send(self, data):
        """Sends one and gives back all that came back for it."""
        self.socket.sendto(data, self.address)
        self.fence.status()
        return self.replies()


def some_valid(rng):
    """A well-formed request of any kind, by a client that has no session."""
    session, number = rng.getrandbits(64), rng.getrandbits(64)
    return rng.choice((
        lambda: wire.open_item(rng.randrange(4), rng.getrandbits(63) + 1, 10000),
        lambda: wire.acquire_item(rng.randrange(4), session, number, "x" * rng.randrange(1, 256),
                                  10000),
        lambda: wire.page_item(rng.choice((wire.MAP, wire.STATUS)), number),
        lambda: wire.request(wire.CLOSE, session, number),
        lambda: wire.request(wire.RELEASE, session, number, bytes(24)),
        lambda: wire.request(wire.RENEW, session, number, bytes(24) + struct.pack("<HHHH", 1, 0, 0,
                                                                                  0) + bytes(24)),
    ))()


def garbage_items(rng):
    """A right header, and items that are not."""
    return rng.choice((
        lambda: wire.datagram([rng.randbytes(8 * rng.randrange(1, 160))],
                              count=rng.randrange(1, 5)),
        lambda: wire.datagram([wire.item(rng.randrange(256), rng.randbytes(8 * rng.randrange(20)),
                                         flags=rng.randrange(256), shard=rng.randrange(65536))]),
        lambda: wire.datagram([wire.item(wire.ACQUIRE, rng.randbytes(64), length=length)
                               for length in (rng.choice((0, 4, 7, 8, 65535, 1400, 72)),)]),
        lambda: wire.datagram([some_valid(rng)], count=rng.choice((0, 2, 100, 65535))),
        lambda: wire.datagram([]),
        lambda: wire.datagram([wire.item(wire.MAP, b"")] * rng.randrange(1, 160)),
    ))()


def hostile(rng):
    """(kind, datagram)"""
    kind = rng.choice(("random", "truncated", "oversized", "version", "cluster", "kind", "magic",
                       "garbage", "valid", "cookie"))
    whole = wire.datagram([some_valid(rng)])
    if kind == "random":
        return kind, rng.randbytes(rng.randrange(0, 1500))
    if kind == "truncated":
        return kind, whole[:rng.randrange(len(whole))]
    if kind == "oversized":
        return kind, whole + rng.randbytes(rng.choice((1401, 2000, 9000, 60000)) - len(whole))
    if kind == "version":
        return kind, wire.datagram([some_valid(rng)], version=rng.choice((0, 2, 255)))
    if kind == "cluster":
        return kind, wire.datagram([some_valid(rng)], cluster=rng.getrandbits(64) | 1)
    if kind == "kind":
        return kind, wire.datagram([some_valid(rng)], kind=rng.choice((0, 2, 3, 9, 255)))
    if kind == "magic":
        return kind, wire.datagram([some_valid(rng)], magic=rng.getrandbits(32))
    if kind == "garbage":
        return kind, garbage_items(rng)
    if kind == "cookie":
        return kind, wire.datagram([some_valid(rng)], cookie=rng.getrandbits(64) | 1)
    return kind, whole


def serve(cluster, name):
    """Acquires and releases over and over; gives the times of both together, in seconds."""
    def work(stop):
        seconds = []
        client = wire.Follower(cluster, cluster.shard_of(name))
        while not stop.is_set():
            started = time.monotonic()
            granted = client.acquire(name, 20000)
            equal(granted["status"], wire.OK, "a real acquire")
            equal(client.release(granted, name)["status"], wire.OK, "a real release")
            seconds.append(time.monotonic() - started)
        client.close()
        return seconds
    return InBackground(work)


def check_served(real, where):
    seconds = sorted(real.finish())
    expect(len(seconds) > 20, f"only {len(seconds)} real acquires meanwhile")
    p99 = seconds[int(len(seconds) * 0.99)]
    print(f"{where}: {len(seconds)} real acquire+release meanwhile, p50 "
          f"{seconds[len(seconds) // 2] * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms")
    expect(p99 < 0.5, f"p99 of real clients is {p99:.2f} s")


def test_no_more_back_than_sent():
    rng = random.Random(SEED)
    cluster = Cluster().start(settled=True)
    real = serve(cluster, "real")
    stranger = Stranger(cluster[1].client_address)
    answered = {}
    for ordinal in range(2500):
        kind, data = hostile(rng)
        back = stranger.send(data)
        total = sum(len(one) for one in back)
        expect(total <= len(data), f"datagram {ordinal} ({kind}) of {len(data)} bytes got "
               f"{total} bytes back", data.hex(), [one.hex() for one in back])
        answered[kind] = answered.get(kind, 0) + (total > 0)
        for one in back:
            for item in wire.decode(one)[1]:
                equal(item["op"], wire.NODE, f"what a {kind} datagram is answered with")
    print(f"answered by kind: {answered}")
    expect(answered["version"] > 0 and answered["cluster"] > 0 and answered["valid"] > 0,
           "those that deserve a notice get one", answered)
    for kind in ("random", "truncated", "oversized", "kind", "magic"):
        equal(answered[kind], 0, f"answers to {kind} datagrams")
    stranger.close()
    check_served(real, "client port")
    for node in cluster:
        node.check_alive()


def test_garbage_with_a_cookie():
    """Who may be answered can still not crash anything or change what is not its own."""
    rng = random.Random(SEED + 1)
    cluster = Cluster().start(settled=True)
    held = cluster.acquire("job", "600s")
    with wire.Client(cluster.leader_of("job").client_address) as client:
        client.status()
        for _ in range(2500):
            data = garbage_items(rng) if rng.random() < 0.6 else wire.datagram([some_valid(rng)])
            if len(data) >= wire.HEADER_BYTES:
                data = data[:24] + struct.pack("<Q", client.cookie) + data[32:]
            client.send(data)
            if rng.random() < 0.05:
                client.status()
        client.status()
    for node in cluster:
        node.check_alive()
    equal(cluster.holders("job")[0]["token"], held["token"], "the holder")
    cluster.release("job", held)
    cluster.wait_equal()


def raft_message(rng, kind, term):
    """A peer item as raft_message_encode() has it, with fields that would do harm."""
    fields = [rng.getrandbits(64) for _ in range(10)]
    fields[2] = term
    return wire.item(1, bytes([kind, 0, 0, 0, 0, 0, 0, 0]) + struct.pack("<10Q", *fields))


def test_forged_peers():
    rng = random.Random(SEED + 2)
    cluster = Cluster().start(settled=True)
    cluster_id = cluster[1].status()["cluster_id"]
    terms = [row["term"] for row in cluster[1].status()["shards"]]
    real = serve(cluster, "real")
    stranger = Stranger(cluster.address(1, "peer"), cluster[1].client_address)
    for ordinal in range(1500):
        messages = [raft_message(rng, rng.randrange(14), rng.choice((2**63, 2**64 - 1, 10**6)))
                    for _ in range(rng.randrange(1, 4))]
        key = rng.choice((None, bytes(16), rng.randbytes(16)))
        data = rng.choice((
            lambda: wire.datagram(messages, wire.PEER, cluster_id, packet=2**63,
                                  sender=rng.randrange(1, 4), key=key),
            # The right key, but a sender that is no peer, another cluster, or no peer's datagram.
            lambda: wire.datagram(messages, wire.PEER, cluster_id, packet=2**63,
                                  sender=rng.choice((0, 1, 4, 65535)), key=cluster.key),
            lambda: wire.datagram(messages, wire.PEER, cluster_id ^ 1, packet=2**63, sender=2,
                                  key=cluster.key),
            lambda: wire.datagram(messages, wire.REQUEST, cluster_id, packet=2**63, sender=2,
                                  key=cluster.key),
            lambda: hostile(rng)[1],
            lambda: rng.randbytes(rng.randrange(1500)),
        ))()
        back = stranger.send(data)
        equal(back, [], f"what forged peer datagram {ordinal} is answered with")
    stranger.close()
    check_served(real, "peer port")
    found = [row["term"] for row in cluster[1].status()["shards"]]
    # A busy machine may have had an election; a forged term would be beyond 10**6.
    expect(all(now - before < 100 for now, before in zip(found, terms)), f"terms: {found}")


def recorded_peer_datagrams(cluster, count):
    """What other nodes send to node 1, as it passes on loopback."""
    port = cluster.address(1, "peer")[1]
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800)) as tap:
        tap.bind(("lo", 0x0800))
        tap.settimeout(5)
        found = []
        while len(found) < count:
            packet = tap.recv(65536)
            header_bytes = (packet[0] & 15) * 4
            if packet[9] != socket.IPPROTO_UDP:
                continue
            target, = struct.unpack_from(">H", packet, header_bytes + 2)
            if target == port and packet not in found:
                found.append(packet[header_bytes + 8:])
        return found


def with_higher_terms(data):
    """The same datagram with a million added to the term of every Raft message, or None."""
    data, at, any_found = bytearray(data), wire.HEADER_BYTES, False
    while at < len(data):
        length, op = struct.unpack_from("<HB", data, at)
        if op == 1:  # item header 8 bytes, kind and flags 8, from 8, to 8, then the term
            term, = struct.unpack_from("<Q", data, at + 32)
            struct.pack_into("<Q", data, at + 32, term + 10**6)
            any_found = True
        at += length
    return bytes(data) if any_found else None


def test_replayed_and_tampered_peers():
    """Real datagrams of peers, once more or with one field changed: no term moves."""
    rng = random.Random(SEED + 4)
    cluster = Cluster().start(settled=True)
    terms = [row["term"] for row in cluster[1].status()["shards"]]
    recorded = recorded_peer_datagrams(cluster, 200)
    stranger = Stranger(cluster.address(1, "peer"), cluster[1].client_address)
    tampered = 0
    for data in recorded:
        equal(stranger.send(data), [], "answers to a replayed peer datagram")
        higher = with_higher_terms(data)
        if higher is None:
            continue
        tampered += 1
        fresh = higher[:16] + struct.pack("<Q", 2**40 + tampered) + higher[24:]
        for one in (higher, fresh, fresh[:40] + wire.tag(fresh, rng.randbytes(16)) + fresh[56:]):
            equal(stranger.send(one), [], "answers to a tampered peer datagram")
    stranger.close()
    expect(tampered >= 20, f"{tampered} of {len(recorded)} datagrams could be tampered with")
    found = [row["term"] for row in cluster[1].status()["shards"]]
    expect(all(now - before < 100 for now, before in zip(found, terms)),
           f"terms {terms} became {found}")
    cluster.wait_ready()
    cluster.wait_equal()


def test_malformed_by_a_peer():
    """With the cluster's key and a peer's name, ill-formed items are still only counted."""
    rng = random.Random(SEED + 3)
    cluster = Cluster().start(settled=True)
    cluster_id = cluster[1].status()["cluster_id"]
    # Node 3 is down: its packet numbers are free to be used up.
    cluster[3].kill9()
    cluster.wait_ready()
    stranger = Stranger(cluster.address(1, "peer"), cluster[1].client_address)
    for ordinal in range(1500):
        body = rng.randbytes(8 * rng.randrange(0, 40))
        items = [wire.item(rng.choice((1, 2, 3, 4, 5, 255)), body, shard=rng.choice((0, 1, 9999)))]
        stranger.send(wire.datagram(items, wire.PEER, cluster_id, packet=10 + ordinal, sender=3,
                                    key=cluster.key))
    stranger.close()
    cluster[1].check_alive()
    held = cluster.acquire("job", nodes=[1, 2])
    cluster.release("job", held, nodes=[1, 2])


def test_replayed_requests():
    """A recorded acquire sent again: by its own address one effect, by another a challenge."""
    cluster = Cluster().start(settled=True)
    shard = cluster.shard_of("job")
    address = cluster.leader_of("job").client_address
    with wire.Client(address) as client:
        session = client.open(shard)
        granted = client.acquire(session, 1, "job", 60000, shard)
        recorded = wire.datagram([wire.acquire_item(shard, session, 1, "job", 60000,
                                                    acked_below=1)], cookie=client.cookie)
        for _ in range(20):
            again = client.acquire(session, 1, "job", 60000, shard)
            equal(wire.token_of(again), wire.token_of(granted), "the token of a repeated acquire")
        stranger = Stranger(address)
        for back in stranger.send(recorded):
            equal([item["status"] for item in wire.decode(back)[1]], [wire.CHALLENGE],
                  "a recorded datagram from another address")
        stranger.close()
        released = client.release(session, 2, granted, "job", shard)
        equal(released["status"], wire.OK, "the release")
        client.send(recorded)
        client.status()
        equal(cluster.holders("job"), [], "holders after the acquire was replayed once more")
        try:
            late = client.acquire(session, 1, "job", 60000, shard, timeout_s=0.5)
        except Failed:
            return
        equal(late["status"], wire.STALE_REQUEST, "an acquire below the window")


if __name__ == "__main__":
    unshared(network=True)  # a loopback of its own, which may be listened to
    call("ip", "link", "set", "lo", "up")
    run(globals())
