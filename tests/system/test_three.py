# SPDX-License-Identifier: Apache-2.0
"""Three nodes: a queue in order, tokens that rise, leaders on every node, any endpoint will do."""
from check import equal, expect, run, wait_until
from harness import Cluster, Waiter


def test_queue_order_and_tokens():
    cluster = Cluster().start()
    first = cluster.acquire("job", "60s", "--value", "A")
    waiters = []
    for ordinal in range(3):
        waiters.append(Waiter(cluster, "job", "60s", "--wait", "60s", "--value", f"W{ordinal}"))
        wait_until(lambda: len(cluster.queue("job")) == ordinal + 1, 10, f"W{ordinal} is queued")
    urgent = Waiter(cluster, "job", "60s", "--wait", "60s", "--value", "U", "--priority", "9")
    wait_until(lambda: len(cluster.queue("job")) == 4, 10, "U is queued")
    equal([one["value"] for one in cluster.queue("job")], ["U", "W0", "W1", "W2"], "the queue")
    held = first
    for expected in (urgent, *waiters):
        for other in (urgent, *waiters):
            expect(other.command.done() == (other.command.result is not None),
                   "nobody is granted before a release")
        cluster.release("job", held)
        granted = expected.granted(10)
        expect(granted["token"] > held["token"],
               f"token {granted['token']} is higher than {held['token']}")
        equal([one["token"] for one in cluster.holders("job")], [granted["token"]], "the holder")
        held = granted
    cluster.release("job", held)
    cluster.belay("release", "job", held["lease"]).fails(103)
    equal(cluster.holders("job"), [], "holders at the end")


def test_shared_batch():
    cluster = Cluster().start()
    writer = cluster.acquire("doc")
    readers = []
    for ordinal in range(3):
        readers.append(Waiter(cluster, "doc", "60s", "--shared", "--wait", "60s"))
        wait_until(lambda: len(cluster.queue("doc")) == ordinal + 1, 10, "a reader is queued")
    late = Waiter(cluster, "doc", "60s", "--wait", "60s")
    wait_until(lambda: len(cluster.queue("doc")) == 4, 10, "the next writer is queued")
    cluster.release("doc", writer)
    granted = [reader.granted(10) for reader in readers]
    equal(len(cluster.holders("doc")), 3, "shared holders")
    cluster.belay("acquire", "doc", "--shared", "--try").fails(101)
    for one in granted[1:]:
        cluster.release("doc", one)
    expect(not late.command.done(), "the writer waits for the last reader")
    cluster.release("doc", granted[0])
    expect(late.granted(10)["token"] > max(one["token"] for one in granted), "the writer's token")


def test_leaders_are_spread():
    cluster = Cluster(shards=6).start()
    leaders = wait_until(lambda: (lambda found: found if len(set(found.values())) == 3 else None)(
        cluster.leaders()), 20, "every node leads some shard")
    print(f"leaders: {leaders}")
    status = cluster.belay("status", "--wait-ready", "-o", "json").ok().json()
    equal(status["ready"], True, "what belay status says")
    equal(len(status["nodes"]), 3, "nodes in belay status")


def test_any_endpoint_will_do():
    cluster = Cluster().start()
    for number in cluster.nodes:
        for ordinal in range(4):
            held = cluster.acquire(f"from/{number}/{ordinal}", nodes=[number])
            equal([one["token"] for one in cluster.holders(f"from/{number}/{ordinal}")],
                  [held["token"]], "what is held")
    equal(len(cluster.locks("from/")), 12, "locks in the list")
    equal(len(cluster.locks("from/2/")), 4, "locks under a prefix")
    cluster.wait_equal()


if __name__ == "__main__":
    run(globals())
