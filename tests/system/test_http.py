# SPDX-License-Identifier: Apache-2.0
"""What a node says by HTTP: health, and numbers that a real Prometheus takes."""
import json
import os
import re
import socket
import subprocess
import urllib.parse
import urllib.request

from check import Directory, equal, expect, remember, run, wait_until
from harness import Cluster, Command, free_ports

MONITORING = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/monitoring")
HOST_CONNECTIONS_MAX = 64  # HTTP_HOST_CONNECTIONS_MAX of mgmt/http.h

SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="[^"\\\n]*",?)+)\})? (-?[0-9.e+-]+)')


def cluster_with_http(nodes):
    return Cluster(nodes=nodes, http=True)


def samples_of(node):
    """{(name, (label, ...)): value}; every line must be sound and belong to a family before it."""
    status, kind, text = node.http("/metrics")
    equal(status, 200, "status of /metrics")
    equal(kind, "text/plain; version=0.0.4; charset=utf-8", "type of /metrics")
    found, family = {}, None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            continue
        if line.startswith("# TYPE "):
            family, kind = line.split()[2:]
            expect(kind in ("gauge", "counter"), f"type of a family: {line}")
            expect(kind != "counter" or family.endswith("_total"), f"a counter's name: {line}")
            continue
        match = SAMPLE.fullmatch(line)
        expect(match is not None, f"not a sample: {line!r}")
        name, labels, value = match.groups()
        equal(name, family, "the family of a sample")
        key = (name, tuple(sorted(filter(None, (labels or "").split(",")))))
        expect(key not in found, f"twice: {line}")
        found[key] = float(value)
    return found


def total(samples, name):
    return sum(value for (one, _), value in samples.items() if one == name)


def test_numbers_agree_with_what_was_done():
    cluster = cluster_with_http(1).start()
    node = cluster[1]
    before = samples_of(node)
    for i in range(5):
        cluster.belay("acquire", f"held/{i}", "--ttl", "600s").ok()
    cluster.belay("lock", "passing", "--", "true").ok()

    def agree():
        after = samples_of(node)
        equal(total(after, "belay_shard_leases"), 5, "leases held")
        equal(total(after, "belay_granted_total") - total(before, "belay_granted_total"), 6,
              "grants")
        equal(total(after, "belay_released_total") - total(before, "belay_released_total"), 1,
              "releases")
        expect(total(after, "belay_requests_total") >= total(before, "belay_requests_total") + 7,
               "requests are counted")
        return after
    after = wait_until(agree, 5, "the numbers are those of what was done")
    for shard in range(cluster.shards):
        equal(after[("belay_shard_is_leader", (f'shard="{shard}"',))], 1, "the only node leads")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as noise:
        noise.sendto(b"x" * 10, node.client_address)
    key = ("belay_datagrams_rejected_total", ('port="client"', 'reason="runt"', 'worker="0"'))
    wait_until(lambda: samples_of(node)[key] == 1, 5, "the runt is counted")


def test_health_follows_the_cluster():
    cluster = cluster_with_http(3).start()
    for node in cluster:
        equal(node.http("/livez")[::2], (200, "ok\n"), "a live node")
        equal(node.http("/readyz")[::2], (200, "ok\n"), "a ready node")
    equal(cluster[1].http("/readyz?verbose")[2],
          "[+] process\n[+] state\n[+] leaders\nreadyz: passed\n", "the checks in full")
    equal(cluster[1].http("/readyz/leaders")[::2], (200, "ok\n"), "one check")
    status, kind, text = cluster[1].http("/readyz/nonsense")
    equal((status, kind), (404, "application/problem+json"), "an unknown check")
    expect("process, state, leaders" in json.loads(text)["detail"], f"names the checks: {text}")
    cluster[2].kill9()
    cluster[3].kill9()

    def says_why():
        status, _, text = cluster[1].http("/readyz")
        expect(status == 503 and "[-] leaders: no leader is known of 4 of 4 shards: 0, 1, 2, 3\n"
               in text, text)
        return True
    wait_until(says_why, 10, "a node without a majority is not ready, and says why")
    equal(cluster[1].http("/livez")[0], 200, "it is alive all the same")
    cluster[2].start()
    wait_until(lambda: cluster[1].http("/readyz")[0] == 200, 20, "ready again")


def raw(node, data, timeout_s=5.0):
    """The first line of what comes back for these bytes; "" = nothing, or closed."""
    with socket.create_connection(node.cluster.address(node.number, "http"), timeout_s) as client:
        try:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            return client.recv(65536).split(b"\r\n", 1)[0].decode("ascii", "replace")
        except OSError:  # it waits for more, or has closed while we were sending
            return ""


def test_bad_input():
    cluster = cluster_with_http(1).start()
    node = cluster[1]
    for path in ("/", "/metric", "/metrics/", "/metricsx", "/livezz", "/%00", "/../etc/passwd"):
        status, kind, text = node.http(path)
        equal((status, kind), (404, "application/problem+json"), f"{path}")
        equal(json.loads(text)["status"], 404, "the status inside the problem")
    for method in ("POST", "PUT", "DELETE", "PATCH", "BREW"):
        status, _, text = node.http("/livez", method)
        equal((status, json.loads(text)["detail"]), (405, "expected GET or HEAD"), method)
    equal(node.http("/livez", "HEAD"), (200, "text/plain; charset=utf-8", ""), "HEAD")
    close = b"Connection: close\r\n\r\n"
    equal(raw(node, b"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n" + close + b"hello"),
          "HTTP/1.1 413 Content Too Large", "a body")
    for garbage in (b"GET /livez HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 20000 + b"\r\n\r\n",
                    b"GET /livez?" + b"y" * 20000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
                    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
                    b"\x00" * 4096 + b"\r\n\r\n", b"GET\r\n\r\n", os.urandom(2048) + b"\r\n\r\n"):
        expect(not raw(node, garbage, 0.3).startswith("HTTP/1.1 200"), f"garbage: {garbage[:16]}")
    idle = []
    for _ in range(4 * HOST_CONNECTIONS_MAX):
        try:
            idle.append(socket.create_connection(cluster.address(1, "http"), 5))
        except OSError:
            break
    served = sum(not closed_by_server(one) for one in idle)
    expect(served <= HOST_CONNECTIONS_MAX, f"{served} idle connections of one host are served")
    for one in idle:
        one.close()
    wait_until(lambda: node.http("/livez")[0] == 200, 10, "it answers afterwards")
    cluster.belay("lock", "unharmed", "--", "true").ok()


def closed_by_server(connection):
    """Whether the server ended it: a look that waits until it would have."""
    connection.settimeout(0.05)
    try:
        return connection.recv(1) == b""
    except socket.timeout:
        return False
    except ConnectionResetError:
        return True


# ---- Prometheus ----------------------------------------------------------------------------------

class Prometheus:
    """A real one that scrapes the cluster each second, with the alerts of docs/monitoring."""

    def __init__(self, cluster):
        self.directory = Directory().path
        self.port = free_ports() + 60
        targets = ", ".join('"%s:%d"' % cluster.address(node.number, "http") for node in cluster)
        path = os.path.join(self.directory, "prometheus.yml")
        with open(path, "w", encoding="ascii") as file:
            file.write("global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
                       f'rule_files: ["{os.path.realpath(MONITORING)}/alerts.yml"]\n'
                       f"scrape_configs: [{{job_name: belay, static_configs: "
                       f"[{{targets: [{targets}]}}]}}]\n")
        self.command = Command(["prometheus", f"--config.file={path}",
                                f"--storage.tsdb.path={self.directory}/data",
                                f"--web.listen-address=127.0.0.1:{self.port}"], dict(os.environ))
        remember(self)

    def get(self, path, **query):
        url = f"http://127.0.0.1:{self.port}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=5) as answer:
            body = json.load(answer)
        equal(body["status"], "success", f"Prometheus's answer to {url}")
        return body["data"]

    def query(self, expression):
        """{labels without the name: value}"""
        rows = self.get("/api/v1/query", query=expression)["result"]
        return {tuple(sorted(row["metric"].items())): float(row["value"][1]) for row in rows}

    def scalar(self, expression):
        rows = list(self.query(expression).values())
        equal(len(rows), 1, f"rows of {expression}")
        return rows[0]

    def close(self):
        self.command.close()

    def report(self):
        return self.command.report()


def names_in(text):
    return set(re.findall(r"belay_[a-z_]+", text))


def test_prometheus_takes_the_numbers_and_the_alerts():
    cluster = cluster_with_http(3).start()
    prometheus = Prometheus(cluster)
    cluster.belay("acquire", "watched", "--ttl", "600s").ok()
    wait_until(lambda: prometheus.scalar('sum(up{job="belay"})') == 3, 20, "three nodes scraped")
    wait_until(lambda: prometheus.scalar("sum(belay_shard_is_leader)") == cluster.shards, 10,
               "every shard has one leader")
    wait_until(lambda: prometheus.scalar(
        "sum(belay_shard_leases and belay_shard_is_leader == 1)") == 1, 10, "the lease is seen")
    rules = prometheus.get("/api/v1/rules")["groups"][0]["rules"]
    with open(os.path.join(MONITORING, "alerts.yml"), encoding="utf-8") as file:
        equal(len(rules), file.read().count("- alert:"), "rules loaded")
    wait_until(lambda: all(rule["health"] == "ok" for rule in
                           prometheus.get("/api/v1/rules")["groups"][0]["rules"]), 10,
               "every rule can be evaluated")
    cluster[3].kill9()
    wait_until(lambda: prometheus.query('ALERTS{alertname="BelayNodeDown"}'), 10,
               "the missing node is noticed")


def test_what_is_shown_is_there():
    """Alerts and dashboard ask for nothing that a node does not say; promtool finds no fault."""
    cluster = cluster_with_http(1).start()
    there = {name for name, _ in samples_of(cluster[1])}
    for name in ("alerts.yml", "dashboard.json"):
        with open(os.path.join(MONITORING, name), encoding="utf-8") as file:
            asked = names_in(file.read())
        expect(asked and asked <= there, f"{name} asks for {sorted(asked - there)}")
    text = cluster[1].http("/metrics")[2]
    for words, given in ((["check", "metrics"], text),
                         (["check", "rules", f"{MONITORING}/alerts.yml"], ""),
                         (["test", "rules", f"{MONITORING}/alerts_test.yml"], "")):
        done = subprocess.run(["promtool", *words], input=given, text=True, capture_output=True,
                              check=False)
        expect(done.returncode == 0, f"promtool {' '.join(words)}", done.stdout, done.stderr)


def test_a_taken_address_is_told():
    cluster = cluster_with_http(1)
    with socket.socket() as taken:
        taken.bind(cluster.address(1, "http"))
        taken.listen()
        cluster[1].start()
        equal(cluster[1].wait_end(20), 1, "exit code")
    expect("cannot listen at http.listen" in cluster[1].log() and
           "Address already in use" in cluster[1].log(), cluster[1].log_tail())


if __name__ == "__main__":
    run(globals())
