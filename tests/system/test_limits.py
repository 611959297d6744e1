# SPDX-License-Identifier: Apache-2.0
"""Every limit is a named error with its number, nothing is lost by reaching it, and room that
becomes free can be used again."""
import struct

import wire
from check import equal, expect, run, wait_until
from harness import OVER_LIMIT, USAGE, Cluster

LIMITS = {"leases": 16, "resources": 32, "sessions": 8, "waiters": 8, "queue": 4, "window": 8,
          "ttl_min": "100ms", "ttl_max": "60s", "session_ttl_min": "1s", "session_ttl_max": "60s",
          "wait_max": "30s", "lock_delay_max": "5s", "grace_max": "5s"}

(TTL_MIN, TTL_MAX, WAIT_MAX, SESSIONS, LEASES, WAITERS, QUEUE) = (4, 5, 6, 13, 11, 14, 16)


def start():
    cluster = Cluster(shards=1, settings={"limits": LIMITS}).start(settled=True)
    return cluster, wire.Client(cluster.leader_of("x").client_address)


def refused(answer, what, limit):
    equal(answer["status"], wire.OVER_LIMIT, f"the status of {answer}")
    found_what, = struct.unpack_from("<H", answer["bytes"], 24)
    found_limit, = struct.unpack_from("<Q", answer["bytes"], 32)
    equal((found_what, found_limit), (what, limit), "which limit, and how much it is")


def test_arguments():
    cluster, client = start()
    cluster.belay("acquire", "n" * 256).fails(USAGE, "255")
    cluster.belay("acquire", "").fails(USAGE)
    cluster.belay("acquire", "x", "--value", "v" * 256).fails(USAGE, "255")
    cluster.belay("acquire", "x", "--namespace", "n" * 64).fails(USAGE, "63")
    cluster.belay("acquire", "x", "--ttl", "61s").fails(OVER_LIMIT, "60000")
    cluster.belay("acquire", "x", "--ttl", "99ms").fails(OVER_LIMIT, "100")
    cluster.belay("acquire", "x", "--ttl", "10s", "--wait", "31s").fails(OVER_LIMIT, "30000")
    cluster.belay("acquire", "x", "--ttl", "10s", "--lock-delay", "6s").fails(OVER_LIMIT, "5000")
    cluster.belay("acquire", "x", "--ttl", "10s", "--grace", "6s").fails(OVER_LIMIT, "5000")
    equal(cluster.locks(), {}, "locks after all those refusals")
    longest = "n" * 255
    held = cluster.acquire(longest, "60s", "--value", "v" * 255)
    equal(cluster.holders(longest)[0]["value"], "v" * 255, "the longest value")
    cluster.release(longest, held)
    session = client.open()
    refused(client.acquire(session, 1, "x", 60001), TTL_MAX, 60000)
    refused(client.acquire(session, 2, "x", 99), TTL_MIN, 100)
    refused(client.acquire(session, 3, "x", 2**32 - 1), TTL_MAX, 60000)
    refused(client.acquire(session, 4, "x", 1000, wait_ms=30001), WAIT_MAX, 30000)
    client.close()


def test_sessions():
    cluster, client = start()
    sessions = [client.open(ttl_ms=5000) for _ in range(8)]
    expect(all(isinstance(one, int) for one in sessions), f"eight sessions: {sessions}")
    refused(client.open(ttl_ms=5000), SESSIONS, 8)
    cluster.belay("acquire", "y", "--try", "--timeout", "1s").fails(OVER_LIMIT, "8")
    granted = client.acquire(sessions[0], 1, "x", 60000)
    equal(granted["status"], wire.OK, "a session that was there goes on working")
    # Sessions end; then there is room again.
    fresh = wait_until(lambda: (lambda one: one if isinstance(one, int) else None)(client.open()),
                       15, "a session after the others ended")
    equal(len(cluster.holders("x")), 1, "holders: a lock with its own TTL outlives its session")
    expect(fresh not in sessions, "session ids are not used again")
    client.close()


def test_leases():
    cluster, client = start()
    session = client.open(ttl_ms=60000)
    held = []
    for number in range(1, 17):
        granted = client.acquire(session, number, f"x/{number}", 60000)
        equal(granted["status"], wire.OK, f"lock {number} of 16")
        held.append(granted)
    refused(client.acquire(session, 17, "x/17", 60000), LEASES, 16)
    equal(len(cluster.locks("x/")), 16, "locks held at the limit")
    equal(client.release(session, 18, held[3], "x/4")["status"], wire.OK, "a release at the limit")
    granted = client.acquire(session, 19, "x/17", 60000)
    equal(granted["status"], wire.OK, "the same name once there is room")
    expect(wire.token_of(granted) > max(wire.token_of(one) for one in held), "its token is higher")
    client.close()
    cluster.wait_equal()


def test_waiters():
    cluster, client = start()
    sessions = [client.open(ttl_ms=60000) for _ in range(7)]
    for name in ("x", "y", "z"):
        equal(client.acquire(sessions[0], {"x": 1, "y": 2, "z": 3}[name], name, 60000)["status"],
              wire.OK, f"the holder of {name}")
    for ordinal, session in enumerate(sessions[1:5]):
        equal(client.acquire(session, 1, "x", 60000)["status"], wire.QUEUED, f"waiter {ordinal}")
    refused(client.acquire(sessions[5], 1, "x", 60000), QUEUE, 4)
    for ordinal, session in enumerate(sessions[1:5]):
        equal(client.acquire(session, 2, "y", 60000)["status"], wire.QUEUED, f"waiter {ordinal}")
    refused(client.acquire(sessions[5], 2, "z", 60000), WAITERS, 8)
    equal(len(cluster.queue("x")), 4, "the queue at its limit")
    client.close()
    cluster.wait_equal()


def test_window():
    """Numbers far above those that were acknowledged are refused, and nothing of them happens."""
    cluster, client = start()
    session = client.open(ttl_ms=60000)

    def acquire(number, acked_below, name=None):
        return client.call(wire.ACQUIRE, lambda: wire.acquire_item(
            0, session, number, name or f"w/{number}", 60000, acked_below=acked_below), session,
            number)
    for number in range(1, 9):
        equal(acquire(number, 1)["status"], wire.OK, f"number {number} inside the window")
    equal(acquire(9, 1)["status"], wire.WINDOW_FULL, "the ninth without an acknowledgement")
    equal(len(cluster.locks("w/")), 8, "locks held")
    equal(acquire(9, 9)["status"], wire.OK, "the same number with the acknowledgement")
    equal(acquire(3, 1, "w/other")["status"], wire.STALE_REQUEST, "a number below the window")
    equal(acquire(3, 1)["status"], wire.OK, "one below it that names what the session holds")
    equal(len(cluster.locks("w/")), 9, "locks held in the end")
    client.close()


if __name__ == "__main__":
    run(globals())
