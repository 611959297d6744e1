# SPDX-License-Identifier: Apache-2.0
"""Ethernet frames with something wrong: every field of every header, one at a time, and then some.

Written from the RFCs (826, 791, 768, 8200, 4443, 4861), not from the product.
"""
import random
import socket
import struct
from collections import namedtuple

Ends = namedtuple("Ends", "mac to_mac ip to_ip port to_port")

IPV4, ARP, IPV6, VLAN = 0x0800, 0x0806, 0x86dd, 0x8100
UDP = 17
SHORTEST = 60  # what is shorter is padded by a device
LONGEST = 1514


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def ethernet(ends, kind, payload):
    return ends.to_mac + ends.mac + struct.pack(">H", kind) + payload


def udp(ends, payload):
    """Header and payload, with a sound checksum over IPv4."""
    head = struct.pack(">HHHH", ends.port, ends.to_port, 8 + len(payload), 0)
    pseudo = (socket.inet_aton(ends.ip) + socket.inet_aton(ends.to_ip) +
              struct.pack(">BBH", 0, UDP, 8 + len(payload)))
    total = checksum(pseudo + head + payload) or 0xffff
    return head[:6] + struct.pack(">H", total) + payload


def ipv4(ends, payload, protocol=UDP, flags=0, sound=True, options=b""):
    head = struct.pack(">BBHHHBBH4s4s", 0x45 + len(options) // 4, 0,
                       20 + len(options) + len(payload), 7, flags, 64, protocol, 0,
                       socket.inet_aton(ends.ip), socket.inet_aton(ends.to_ip)) + options
    total = checksum(head) ^ (0 if sound else 0x1234)
    return ethernet(ends, IPV4, head[:10] + struct.pack(">H", total) + head[12:] + payload)


def with_byte(frame, offset, value):
    return frame[:offset] + bytes([value]) + frame[offset + 1:]


def mended(frame):
    """The IPv4 header's checksum made right again, so that only the changed field is wrong."""
    size = (frame[14] & 15) * 4
    if size < 20 or len(frame) < 14 + size:
        return frame
    head = frame[14:24] + b"\0\0" + frame[26:14 + size]
    return frame[:24] + struct.pack(">H", checksum(head)) + frame[26:]


def header_fields(ends):
    """Every byte of the Ethernet, IPv4 and UDP headers of a sound datagram, changed."""
    sound = ipv4(ends, udp(ends, b"no request of ours"))
    for offset in range(42):
        for value in {0, 1, 0x7f, 0x80, 0xff, sound[offset] ^ 1, sound[offset] ^ 0x80}:
            if value != sound[offset]:
                yield with_byte(sound, offset, value)
                yield mended(with_byte(sound, offset, value))


def lengths(ends):
    """Runts and giants, headers cut short, and lengths that say something else."""
    sound = ipv4(ends, udp(ends, bytes(range(200))))
    for length in range(14, len(sound), 3):
        yield sound[:length]
    yield ipv4(ends, udp(ends, b"x" * (LONGEST - 42)))
    for claimed in (0, 19, 20, 27, 28, 29, 227, 229, 1500, 65535):
        yield mended(sound[:16] + struct.pack(">H", claimed) + sound[18:])
        yield sound[:38] + struct.pack(">H", claimed) + sound[40:]


def fragments(ends):
    for flags in (0x2000, 0x2001, 0x0001, 0x1fff, 0x3fff, 0x8000, 0xa000):
        yield ipv4(ends, udp(ends, b"piece"), flags=flags)


def checksums(ends):
    yield ipv4(ends, udp(ends, b"header"), sound=False)
    whole = ipv4(ends, udp(ends, b"payload"))
    yield whole[:-1] + bytes([whole[-1] ^ 1])
    for protocol in (0, 1, 2, 6, 41, 50, 58, 132, 255):
        yield ipv4(ends, b"\x08\0\0\0" + bytes(60), protocol=protocol)
    for options in (b"\x01" * 4, b"\x94\x04\0\0", b"\x44\x28" + bytes(38), b"\x83\xff" + bytes(38)):
        yield ipv4(ends, udp(ends, b"options"), options=options)


def arp_of(ends, operation, mac, ip, to_ip, kind=b"\0\x01\x08\0\x06\x04"):
    return ethernet(ends, ARP, kind + struct.pack(">H", operation) + mac + socket.inet_aton(ip) +
                    bytes(6) + socket.inet_aton(to_ip)).ljust(SHORTEST, b"\0")


def arp(ends):
    """Claims to be the node itself, the client, nobody and everybody."""
    other = b"\x02\0\0\0\0\x66"
    for operation in (0, 1, 2, 3, 0xffff):
        for ip in (ends.to_ip, "0.0.0.0", "255.255.255.255", "224.0.0.1", "127.0.0.1", "10.9.9.9"):
            for mac in (ends.mac, other, ends.to_mac, bytes(6), b"\xff" * 6):
                yield arp_of(ends, operation, mac, ip, ends.to_ip)
    sound = arp_of(ends, 2, other, "10.78.0.77", ends.to_ip)
    for offset in range(12, 42):
        yield with_byte(sound, offset, sound[offset] ^ 0xff)
    for length in range(14, 42):
        yield sound[:length]


FROM_IPV6 = bytes.fromhex("fe80000000000000000000fffe000066")


def to_ipv6(ends):
    """The address that every host makes of its hardware address (RFC 4291, appendix A)."""
    mac = ends.to_mac
    return (bytes.fromhex("fe80000000000000") + bytes([mac[0] ^ 2]) + mac[1:3] + b"\xff\xfe" +
            mac[3:])


def ipv6(ends, next_header, payload, hops=255, claimed=None):
    length = len(payload) if claimed is None else claimed
    return ethernet(ends, IPV6, struct.pack(">IHBB", 0x60000000, length, next_header, hops) +
                    FROM_IPV6 + to_ipv6(ends) + payload)


def icmpv6(ends, message):
    """With a sound checksum."""
    pseudo = FROM_IPV6 + to_ipv6(ends) + struct.pack(">II", len(message), 58)
    total = checksum(pseudo + message)
    return ipv6(ends, 58, message[:2] + struct.pack(">H", total) + message[4:])


def ipv6_headers(ends):
    """Extension headers, alone, in chains, endless ones, and every discovery message cut short."""
    for header in (0, 43, 44, 50, 51, 59, 60, 135, 139, 140, 253, 255):
        for size in (0, 1, 31, 255):
            yield ipv6(ends, header, bytes([UDP, size]) + bytes(62))
            yield ipv6(ends, header, bytes([header, size]) + bytes(62))
        yield ipv6(ends, header, bytes([header, 0] + [0] * 6) * 80)
    for kind in (1, 2, 3, 4, 128, 129, 130, 133, 134, 135, 136, 137, 255):
        message = bytes([kind, 0, 0, 0]) + bytes(20) + b"\x01\0" + bytes(30)
        for length in range(0, len(message), 5):
            yield ipv6(ends, 58, message[:length])
            if length >= 4:
                yield icmpv6(ends, message[:length])
    for claimed in (0, 7, 9, 1280, 65535):
        yield ipv6(ends, UDP, bytes(8), claimed=claimed)


def noise(ends, count=3000):
    """Random bytes, and sound frames in which a few bits are turned over. The same every time."""
    dice = random.Random(2026)
    models = [ipv4(ends, udp(ends, bytes(64))), arp_of(ends, 1, ends.mac, ends.ip, ends.to_ip),
              ipv6(ends, 58, bytes([135, 0, 0, 0]) + bytes(28))]
    for number in range(count):
        if number % 4 == 0:
            kind = dice.choice([IPV4, ARP, IPV6, VLAN, dice.randrange(65536)])
            yield ethernet(ends, kind, dice.randbytes(dice.randrange(0, LONGEST - 14)))
            continue
        frame = bytearray(dice.choice(models))
        for _ in range(dice.randrange(1, 6)):
            frame[dice.randrange(12, len(frame))] ^= 1 << dice.randrange(8)
        yield bytes(frame)


def all_of(ends):
    """Each at most LONGEST and at least 14 bytes, which is what a socket sends."""
    for kind in (header_fields, lengths, fragments, checksums, arp, ipv6_headers, noise):
        for frame in kind(ends):
            yield frame[:LONGEST].ljust(14, b"\0")


def only_in_files(ends):
    """What no socket sends: less than a header, and more than a buffer holds."""
    sound = ipv4(ends, udp(ends, b"short"))
    for length in range(14):
        yield sound[:length]
    for length in (1515, 1600, 2048, 2176, 2177, 4000, 9000):
        yield sound.ljust(length, b"\0")


def write_pcap(path, frames):
    """In the classic format, microseconds, Ethernet. How many were written."""
    count = 0
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1))
        for frame in frames:
            file.write(struct.pack("<IIII", 0, count, len(frame), len(frame)) + frame)
            count += 1
    return count
