# SPDX-License-Identifier: Apache-2.0
"""A node behind net_vhost and the guide's polled client on net_virtio_user, one after another: what
the first leaves, the second finds. Needs neither root nor hugepages."""
import json
import os
import signal
import subprocess

from check import Directory, equal, expect, remember, run
from harness import BELAYD, free_ports

EXAMPLE = os.environ["BELAY_DPDK_EXAMPLE"]


class Behind:
    """belayd whose clients come by a socket of the file system alone."""

    def __init__(self):
        self.directory = Directory().path
        self.socket = os.path.join(self.directory, "port")
        loopback = f"127.0.0.1:{free_ports()}"
        path = os.path.join(self.directory, "node.yaml")
        with open(path, "w", encoding="ascii") as file:
            json.dump({"node": 1, "members": [{"node": 1, "client": "10.9.0.1:7400",
                                               "peer": loopback, "management": loopback}],
                       "durability": "memory", "insecure": True, "shards": 4, "workers": 1,
                       "data_directory": os.path.join(self.directory, "data"),
                       "dpdk": {"device": f"net_vhost0,iface={self.socket}", "hugepages": False,
                                "traffic": "clients", "address": "10.9.0.1/24"}}, file)
        self.process = subprocess.Popen([BELAYD, "--config", path], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                        text=True, start_new_session=True)
        remember(self)
        self.said = []
        for line in self.process.stderr:
            self.said.append(line)
            if "event=ready" in line:
                return
        expect(False, "belayd ended before it was ready")

    def example(self, endpoints="10.9.0.1:7400"):
        device = f"net_virtio_user0,path={self.socket},mac=02:00:00:00:00:02"
        return subprocess.run([EXAMPLE, device, "10.9.0.2/24", endpoints, "no-huge"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=60, check=False)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stderr.close()

    def report(self):
        return "---- the node's log:\n" + "".join(self.said[-40:])


def test_polled_clients_one_after_another():
    node = Behind()
    for _ in range(2):
        done = node.example()
        equal(done.returncode, 0, f"the example's exit code: {done.stderr}")
        equal(done.stdout, "held 32 of 32\n", "what it says")
    node.process.send_signal(signal.SIGTERM)
    equal(node.process.wait(timeout=10), 0, "exit code after SIGTERM")


def test_nobody_there():
    done = Behind().example("10.9.0.1:7401")  # the host, and another port
    equal(done.returncode, 1, "the example's exit code")
    equal(done.stdout, "held 0 of 32\n", "what it says")


run(globals())
