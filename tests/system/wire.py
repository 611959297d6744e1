# SPDX-License-Identifier: Apache-2.0
"""The wire format seen from outside (dataplane/wire/wire.h): packing, unpacking, and a small client
over one UDP socket. It shares no code with what it tests, but the two hash functions."""
import collections
import ctypes
import random
import socket
import struct
import time

from check import Failed, expect, wait_until

MAGIC, VERSION = 0x31594C42, 1
REQUEST, REPLY, PEER = 1, 2, 3
HEADER_BYTES, DATAGRAM_BYTES_MAX = 56, 1400

OPEN, KEEPALIVE, CLOSE, ACQUIRE, RELEASE, RENEW, CANCEL, CONVERT, FORCE_RELEASE = range(1, 10)
QUERY, LIST, MAP, STATUS, PUSH_ACK = 32, 33, 48, 49, 64
PUSH_GRANT, PUSH_LOST, NODE = 80, 81, 82

(OK, QUEUED, BUSY, DELAYED, TIMED_OUT, LOST, CANCELLED, DEADLOCK, OVER_LIMIT, DENIED, BAD_REQUEST,
 SESSION_LOST, WINDOW_FULL, STALE_REQUEST, NOT_LEADER, WRONG_SHARD, CHALLENGE, WRONG_VERSION,
 WRONG_CLUSTER, UNKNOWN_COMMAND, UNAVAILABLE, ALREADY_HELD) = range(22)

SHARED, EXCLUSIVE = 1, 2
TRY = 1
FOREVER = 0xFFFFFFFF
ROLES = ("follower", "candidate", "leader", "learner", "rebuilding")

_HEADER = struct.Struct("<IBBHQQQIHH16s")
assert _HEADER.size == HEADER_BYTES

_xxhash = ctypes.CDLL("libxxhash.so.0")
_xxhash.XXH3_64bits.restype = ctypes.c_uint64
_xxhash.XXH3_64bits.argtypes = (ctypes.c_char_p, ctypes.c_size_t)
_sodium = ctypes.CDLL("libsodium.so.23")


def pad8(data):
    return data + bytes(-len(data) % 8)


def key_hash(namespace, name):
    key = bytes([len(namespace)]) + namespace + name
    return _xxhash.XXH3_64bits(key, len(key))


def shard_of(name, shards, namespace=""):
    """Jump consistent hash (Lamping and Veach, 2014) of the key, or what is in its first braces."""
    name, namespace = name.encode(), namespace.encode()
    start = name.find(b"{")
    end = name.find(b"}", start + 1) if start >= 0 else -1
    if end > start + 1:
        name = name[start + 1:end]
    key, bucket, following = key_hash(namespace, name), 0, 0
    while following < shards:
        bucket = following
        key = (key * 2862933555777941757 + 1) & (2**64 - 1)
        following = int(float(bucket + 1) * (float(1 << 31) / float((key >> 33) + 1)))
    return bucket


def tag(datagram, key):
    """SipHash-2-4 with 128 bits of the datagram whose tag field is zero."""
    blank = datagram[:40] + bytes(16) + datagram[56:]
    out = ctypes.create_string_buffer(16)
    _sodium.crypto_shorthash_siphashx24(out, blank, ctypes.c_ulonglong(len(blank)), key)
    return out.raw


def datagram(items, kind=REQUEST, cluster=0, cookie=0, packet=0, sender=0, version=VERSION,
             magic=MAGIC, count=None, key=None):
    header = _HEADER.pack(magic, version, kind, len(items) if count is None else count, cluster,
                          packet, cookie, 0, sender, 0, bytes(16))
    whole = header + b"".join(items)
    if key is not None:
        whole = whole[:40] + tag(whole, key) + whole[56:]
    return whole


def item(op, body, flags=0, shard=0, status=0, length=None):
    body = pad8(body)
    return struct.pack("<HBBHH", 8 + len(body) if length is None else length, op, flags, shard,
                       status) + body


def request(op, session, number, body=b"", flags=0, shard=0, acked_below=0):
    return item(op, struct.pack("<QQQQ", session, number, acked_below, 0) + body, flags, shard)


def open_item(shard, nonce, ttl_ms):
    return request(OPEN, 0, 0, struct.pack("<QII24s", nonce, ttl_ms, 0, bytes(24)), shard=shard)


def acquire_item(shard, session, number, name, ttl_ms, wait_ms=FOREVER, flags=0, mode=EXCLUSIVE,
                 value=b"", namespace=b"", acked_below=0, priority=0):
    name = name.encode() if isinstance(name, str) else name
    body = struct.pack("<IIIIBBBBB3s", ttl_ms, wait_ms, 0, 0, mode, priority, len(namespace),
                       len(name), len(value), bytes(3)) + namespace + name + value
    return request(ACQUIRE, session, number, body, flags, shard, acked_below)


def query_item(shard, number, name):
    """A linearizable read of a lock: without a session, its number is echoed."""
    name = name.encode()
    return request(QUERY, 0, number, struct.pack("<QBB6s", 0, 0, len(name), bytes(6)) + name,
                   shard=shard)


def queried(reply):
    """{"holders", and of the first one "exclusive", "token"} of a query's answer."""
    holders, _, parties = struct.unpack_from("<III", reply["bytes"], 56)
    if holders == 0 or parties == 0:
        return {"holders": holders}
    token, = struct.unpack_from("<Q", reply["bytes"], 72 + 8)
    return {"holders": holders, "token": token, "exclusive": reply["bytes"][72 + 24] == EXCLUSIVE}


def page_item(op, number, start=0):
    return item(op, struct.pack("<QII96s", number, start, 0, bytes(96)))


def decode(data):
    """(header, [item]); an item is a dict with op, flags, shard, status and its raw bytes."""
    expect(len(data) >= HEADER_BYTES, f"a reply of {len(data)} bytes is shorter than a header")
    values = _HEADER.unpack(data[:HEADER_BYTES])
    header = dict(zip(("magic", "version", "kind", "items", "cluster", "packet", "cookie", "key",
                       "sender", "zero", "tag"), values))
    items, at = [], HEADER_BYTES
    for _ in range(header["items"]):
        length, op, flags, shard, status = struct.unpack_from("<HBBHH", data, at)
        expect(length >= 8 and at + length <= len(data), "a reply's items overrun it")
        items.append({"op": op, "flags": flags, "shard": shard, "status": status,
                      "bytes": data[at:at + length]})
        at += length
    expect(at == len(data), "a reply's items do not fill it")
    return header, items


def _status_of(one, row):
    fields = struct.unpack_from("<HHBBBBQQQQQIIIIQ", one, row)
    keys = ("shard", "leader_node", "role", "voters", "learners", "ship_mode", "term", "last_index",
            "commit_index", "applied_index", "snapshot_index", "leases", "resources", "sessions",
            "waiters", "digest")
    shard = dict(zip(keys, fields))
    shard["role"] = ROLES[shard["role"]]
    return shard


class Client:
    """Asks one node. Blocking, with timeouts; retries until they are over. The socket is not
    connected: a shard's worker answers from its own port, whichever one was asked. A session that
    moves to another node with its shard's leader must be asked from the same socket: `shares`."""

    def __init__(self, address, timeout_s=2.0, shares=None):
        self.address = address
        self.timeout_s = timeout_s
        self.owns = shares is None
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM) if self.owns else \
            shares.socket
        self.cookie = 0
        self.number = random.getrandbits(40)
        self.pushes = collections.deque()

    def close(self):
        if self.owns:
            self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def receive(self, timeout_s):
        """One datagram, or None."""
        self.socket.settimeout(max(timeout_s, 0.0001))
        try:
            return self.socket.recvfrom(65536)[0]
        except TimeoutError:
            return None

    def send(self, data):
        self.socket.sendto(data, self.address)

    def ask(self, make, matches, timeout_s=None, resend_s=0.1):
        """Sends [items] until an item matches; answers challenges on the way."""
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        while time.monotonic() < deadline:
            self.send(datagram(make(), cookie=self.cookie))
            again = min(time.monotonic() + resend_s, deadline)
            while time.monotonic() < again:
                data = self.receive(again - time.monotonic())
                if data is None:
                    continue
                found = self._sort(data, matches)
                if found == "again":
                    break
                if found is not None:
                    return found
        raise Failed(f"no answer from {self.address[0]}:{self.address[1]}")

    def _sort(self, data, matches):
        found = None
        for one in decode(data)[1]:
            if one["op"] == NODE and one["status"] == CHALLENGE:
                self.cookie = struct.unpack_from("<Q", one["bytes"], 8)[0]
                return "again"
            if matches(one):
                found = one
            elif one["op"] in (PUSH_GRANT, PUSH_LOST):
                self.pushes.append(one)
        return found

    def status(self, timeout_s=None):
        """This node's answer about itself: {"node", "state", ..., "shards": [...]}."""
        node, shards = None, []
        while node is None or len(shards) < node["shards_count"]:
            self.number += 1
            number, start = self.number, len(shards)

            def matches(one):
                return (one["op"] == STATUS and len(one["bytes"]) >= 176 and
                        struct.unpack_from("<Q", one["bytes"], 8)[0] == number)
            one = self.ask(lambda: [page_item(STATUS, number, start)], matches, timeout_s)["bytes"]
            cluster, uptime, count = struct.unpack_from("<QQI", one, 16)
            rows, who, nodes, workers, durability, state = struct.unpack_from("<HHHHBB", one, 40)
            node = {"node": who, "nodes": nodes, "workers": workers, "cluster_id": cluster,
                    "durability": ("disk", "memory")[durability], "uptime_ns": uptime,
                    "shards_count": count,
                    "state": ("starting", "running", "stepping-down", "stopping")[state]}
            expect(rows > 0, "a status answer without shards")
            shards += [_status_of(one, 176 + 72 * row) for row in range(rows)]
        node["shards"] = shards
        return node

    # ---- sessions ------------------------------------------------------------------------------

    def open(self, shard=0, ttl_ms=10000, timeout_s=None):
        """A session id, or the reply item if the status is not OK."""
        nonce = random.getrandbits(63) + 1

        def matches(one):
            if one["op"] != OPEN or one["status"] == UNAVAILABLE:
                return False
            return one["status"] != OK or struct.unpack_from("<Q", one["bytes"], 24)[0] == nonce
        one = self.ask(lambda: [open_item(shard, nonce, ttl_ms)], matches, timeout_s)
        return struct.unpack_from("<Q", one["bytes"], 8)[0] if one["status"] == OK else one

    def call(self, op, make, session, number, timeout_s=None):
        """Sends one request of a session until its answer is there; the reply item."""
        def matches(one):
            return (one["op"] == op and one["status"] != UNAVAILABLE and
                    struct.unpack_from("<QQ", one["bytes"], 8) == (session, number))
        return self.ask(lambda: [make()], matches, timeout_s)

    def acquire(self, session, number, name, ttl_ms, shard=0, timeout_s=None, **options):
        return self.call(ACQUIRE, lambda: acquire_item(shard, session, number, name, ttl_ms,
                                                       acked_below=number, **options),
                         session, number, timeout_s)

    def release(self, session, number, granted, name, shard=0, namespace=b"", timeout_s=None):
        name = name.encode() if isinstance(name, str) else name
        tag_of_key = key_hash(namespace, name) & 0xFFFFFFFF
        body = granted["bytes"][24:40] + struct.pack("<II", tag_of_key, 0)
        return self.call(RELEASE, lambda: request(RELEASE, session, number, body, shard=shard,
                                                  acked_below=number), session, number, timeout_s)


def token_of(granted):
    return struct.unpack_from("<Q", granted["bytes"], 40)[0]


class Follower:
    """A session at one shard that goes where its leader is, as libbelay does: one socket, the same
    numbers, and a repeated request has one effect."""

    def __init__(self, cluster, shard, ttl_ms=60000):
        self.cluster, self.shard, self.number, self.leader = cluster, shard, 0, None
        self.first = Client(cluster.address(1, "client"))
        self.clients = {}
        self.session = self._do(lambda client: client.open(shard, ttl_ms, 0.5))

    def close(self):
        self.first.close()

    def _client(self):
        if self.leader is None:
            self.leader = self.cluster.leaders().get(self.shard)
            if self.leader is None:
                raise Failed(f"shard {self.shard} has no leader")
        if self.leader not in self.clients:
            self.clients[self.leader] = Client(self.cluster.address(self.leader, "client"),
                                               shares=self.first)
        return self.clients[self.leader]

    def _do(self, action):
        def attempt():
            try:
                found = action(self._client())
                if isinstance(found, int) or found["status"] != NOT_LEADER:
                    return found
            except Failed:
                self.leader = None
                raise
            self.leader = None
            return None
        return wait_until(attempt, 20, f"an answer of shard {self.shard}")

    def acquire(self, name, ttl_ms, **options):
        self.number += 1
        return self._do(lambda client: client.acquire(self.session, self.number, name, ttl_ms,
                                                      self.shard, 0.5, **options))

    def release(self, granted, name):
        self.number += 1
        return self._do(lambda client: client.release(self.session, self.number, granted, name,
                                                      self.shard, timeout_s=0.5))
