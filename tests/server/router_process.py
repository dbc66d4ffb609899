# SPDX-License-Identifier: Apache-2.0
"""Nodes and a router as processes: `reprise serve --cluster-listen` and `reprise route`."""
import json
import os
import subprocess
import tempfile
import time

from server_process import MODEL, PROGRAM, Server


class Node(Server):
    """A node: addresses[0] is its clients' port, addresses[1] the cluster's."""

    def __init__(self, secret, name, *options, port=0):
        super().__init__("--log", "off", "--cluster-listen", f"127.0.0.1:{port}", "--cluster-secret", secret, "--cluster-name", name, *options)
        self.name = name

    @property
    def listed(self):
        return f"{self.name}={self.addresses[1]}"


class Router(Server):
    def __init__(self, secret, nodes, *options):
        self.errors = tempfile.TemporaryFile("w+")
        listed = [word for node in nodes for word in ("--node", node.listed)]
        self.process = subprocess.Popen([PROGRAM, "route", "-m", MODEL, "--port", "0", "--cluster-secret", secret, "--log", "off", *listed, *options],
                                        stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.addresses = []
        self.is_killed = False

    headers = {}

    def cluster(self):
        """Its nodes by name, each with the identity that plans are made for."""
        reply = self.get("/v1/cluster", headers=self.headers).json
        return {node["name"]: {**node, "is_planned": node["identity"] == reply["planned_identity"]} for node in reply["nodes"]}

    def wait(self, what):
        """Asks for the nodes, again and again, until `what` of them is true."""
        while not what(nodes := self.cluster()):
            if self.process.poll() is not None:
                raise AssertionError(f"the router ended: {self.said()}")
            time.sleep(0.01)
        return nodes

    def wait_well(self, *names):
        """Until those nodes are well, and get requests, and plans are made for them."""
        return self.wait(lambda nodes: all(name in nodes and nodes[name]["health"] == "well" and nodes[name]["stream"]["state"] == "live" and
                                           not nodes[name]["draining"] and nodes[name]["is_planned"] for name in names))

    def wait_names(self, name, at_least):
        """Until the router knows so many names of the node's KV."""
        return self.wait(lambda nodes: nodes[name]["names"] >= at_least)

    def wait_idle_router(self):
        """Until it has no request that it has not answered."""
        while True:
            m = self.metrics()
            if not any(m[f"reprise_{name}"] for name in ("requests_active", "requests_suspended", "body_bytes", "route_sent", "route_queued", "reply_buffer_bytes")):
                return m

    def explain(self, reply):
        return self.get(f"/v1/requests/{reply.headers['x-request-id']}/explain").json


def make_secret(folder):
    path = os.path.join(folder, "secret")
    with open(path, "w", encoding="ascii") as f:
        f.write("07" * 32 + "\n")
    os.chmod(path, 0o600)
    return path


def text_of_stream(reply, delta):
    """The joined text of a stream. delta: of a frame's data."""
    if reply.headers["Content-Type"] == "application/x-ndjson":
        frames = [json.loads(line) for line in reply.body.decode().splitlines() if line]
    else:
        frames = [json.loads(data) for _, data in reply.frames if data != "[DONE]"]
    return "".join(delta(frame) or "" for frame in frames)
