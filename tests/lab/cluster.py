# SPDX-License-Identifier: Apache-2.0
"""A cluster of real processes on this machine: nodes, routers, HAProxy with share/compose/haproxy.cfg; what can be done to them, and what is asked of
them afterwards."""
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "server"))
from server_process import SOURCE, WAIT_S, Server, key_line  # noqa: E402

import traffic  # noqa: E402

TENANTS = ("acme", "blue", "coral")
METRICS_KEY = "key-of-the-operator-0123456789"


def keys():
    return [f"key-of-{tenant}-0123456789" for tenant in TENANTS]


def free_ports(n):
    """Ports that were free a moment ago, all different."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def processor_seconds(pid):
    """Of all threads of a process: its clock, as Linux numbers those of other processes (clock_getcpuclockid)."""
    return time.clock_gettime((~pid << 3) | 2)


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        name = re.search(r"^model name\s*: (.*)$", f.read(), re.M)
    return f"{name[1] if name else os.uname().machine}, {os.cpu_count()} cores"


def say(text):
    print(text, flush=True)


class Folder:
    """Files that all processes of a cluster share."""

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="reprise-lab-")
        self.write("secret", secrets.token_hex(32))
        self.write("new-secret", secrets.token_hex(32))
        lines = [key_line(key, f"tenant={tenant}", "rights=request,schemas") for key, tenant in zip(keys(), TENANTS)]
        self.write("keys", "".join(lines) + key_line(METRICS_KEY, "rights=request,operate"))
        self.write("library.xml", traffic.schema_text())

    def write(self, name, text):
        at = self.at(name)
        with open(os.open(at, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as f:
            f.write(text)
        return at

    def at(self, name):
        return os.path.join(self.path, name)

    def common(self):
        return ["--api-keys", self.at("keys"), "--schema", self.at("library.xml")]

    def remove(self):
        shutil.rmtree(self.path, ignore_errors=True)


class Member:
    """A process with a place of its own in the cluster, which may be ended and started again there."""

    def __init__(self, name, make):
        self.name, self.make, self.server, self.starts = name, make, None, 0

    def start(self):
        self.server = self.make()
        self.starts += 1
        return self

    def ready(self):
        self.server.wait_ready()
        return self

    @property
    def pid(self):
        return self.server.process.pid

    def kill(self):
        self.server.end(signal.SIGKILL)
        self.server.stop()

    def terminate(self):
        """Drains it and waits for its end; raises if it did not end well."""
        self.server.stop()

    def signal(self, number):
        os.kill(self.pid, number)

    def port(self, address=0):
        return int(self.server.addresses[address].rsplit(":", 1)[1])

    def get(self, path, key=METRICS_KEY):
        return self.server.get(path, headers={"Authorization": f"Bearer {key}"})

    def metrics(self):
        found = {}
        for line in self.get("/metrics").body.decode().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                found[name] = float(value)
        return found


class RouterServer(Server):
    command = ("route",)


class Front:
    """HAProxy, as share/compose configures it, before the routers."""

    def __init__(self, folder, port, routers):
        with open(os.path.join(SOURCE, "share", "compose", "haproxy.cfg"), encoding="utf-8") as f:
            text = f.read()
        text = re.sub(r"^resolvers compose\n(?:    .*\n)*", "", text, flags=re.M).replace(" resolvers compose init-addr last,libc,none", "")
        text = text.replace("bind :8080", f"bind 127.0.0.1:{port}").replace("log stdout format raw local0", "log stdout format raw local0 err")
        text = re.sub(r"^    server .*\n", "", text, flags=re.M)
        text += "".join(f"    server {name} 127.0.0.1:{at}\n" for name, at in routers)
        self.port, self.text = port, text
        self.path = folder.write("haproxy.cfg", text)
        program = shutil.which("haproxy") or "/usr/sbin/haproxy"
        self.log = open(folder.at("haproxy.log"), "w+", encoding="utf-8")
        self.process = subprocess.Popen([program, "-db", "-f", self.path], stdout=self.log, stderr=self.log)

    def stop(self):
        self.process.terminate()
        self.process.wait(WAIT_S)
        self.log.close()


class Redis:
    """A Redis server that keeps nothing on disk, for a pool."""

    def __init__(self, memory="512mb", policy="allkeys-lru"):
        self.port, self.memory, self.policy = free_ports(1)[0], memory, policy
        self.process = None
        self.start()

    @property
    def address(self):
        return f"redis://127.0.0.1:{self.port}"

    def start(self):
        self.process = subprocess.Popen(["redis-server", "--port", str(self.port), "--save", "", "--appendonly", "no", "--maxmemory", self.memory,
                                         "--maxmemory-policy", self.policy], stdout=subprocess.DEVNULL)
        until(lambda: Cluster.accepts(self.port), "Redis listens")

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.process.wait(WAIT_S)

    def command(self, *words):
        return subprocess.run(["redis-cli", "-p", str(self.port), *words], capture_output=True, text=True, check=True, timeout=WAIT_S).stdout.strip()

    def stop(self):
        self.signal(signal.SIGCONT)
        self.kill()


class Cluster:
    def __init__(self, n_nodes, n_routers=2, node_options=(), router_options=(), stores=False, front=True, router_secrets=None):
        self.folder = Folder()
        ports = free_ports(n_nodes + n_routers + 1)
        self.node_options = list(node_options)
        self.nodes = [self.node(i, port, stores) for i, port in enumerate(ports[:n_nodes])]
        nodes = [w for n in self.nodes for w in ("--node", f"{n.name}=http://127.0.0.1:{n.cluster_port}")]
        self.router_secrets = router_secrets or ["secret"] * n_routers
        self.routers = [self.router(i, port, [*nodes, *router_options]) for i, port in enumerate(ports[n_nodes:-1])]
        self.front_port = ports[-1]
        self.wants_front = front
        self.front = None

    def node(self, i, port, stores):
        options = ["--cluster-listen", f"127.0.0.1:{port}", "--cluster-secret", self.folder.at("secret"), "--cluster-name", f"node-{i + 1}",
                   "--log", "off", *self.folder.common(), *self.node_options]
        if stores:
            options += ["--store", self.folder.at(f"store-{i + 1}"), "--disk", "256M"]
        made = Member(f"node-{i + 1}", lambda: Server(*options))
        made.cluster_port = port
        return made

    def router(self, i, port, options):
        secret = self.folder.at(self.router_secrets[i])
        made = Member(f"router-{i + 1}", lambda: RouterServer("--port", str(port), "--cluster-secret", secret, "--log", "off", *self.folder.common(),
                                                              *options))
        made.fixed_port = port
        return made

    def __enter__(self):
        try:
            for member in self.nodes + self.routers:
                member.start()
            for member in self.nodes + self.routers:
                member.ready()
            for _ in range(2):
                for router, secret in zip(self.routers, self.router_secrets):
                    self.wait_nodes(router, len(self.nodes) if secret == "secret" else 0)
                time.sleep(1)  # a router gives its schemas to the nodes that it has found, which are not used meanwhile
            if self.wants_front:
                self.front = Front(self.folder, self.front_port, [(r.name, r.fixed_port) for r in self.routers])
                until(lambda: self.accepts(self.front_port), "HAProxy listens")
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *failure):
        self.end(failed=failure[0] is not None)

    def end(self, failed=True):
        """All processes end; those that run must end well, unless something failed before."""
        if self.front:
            self.front.stop()
        for member in self.routers + self.nodes:
            try:
                if member.server and member.server.process.poll() is None:
                    member.signal(signal.SIGCONT)
                    member.terminate()
            except AssertionError as e:
                say(f"{member.name}: {e}")
                if not failed:
                    raise
        self.folder.remove()

    @staticmethod
    def accepts(port):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True
        except OSError:
            return False

    # ---- What routers know

    def well(self, router):
        """Names of the nodes to which a router sends requests."""
        return {n["name"] for n in router.get("/v1/cluster").json["nodes"] if n["health"] == "well" and not n["draining"] and not n["waits_for_schemas"]}

    def wait_nodes(self, router, n, limit=WAIT_S):
        return until(lambda: len(self.well(router)) == n, f"{router.name} knows {n} nodes", limit)


def until(condition, what, limit=WAIT_S):
    """Asks again until it holds; the seconds that it took."""
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > limit:
            raise AssertionError(f"after {limit} s not yet: {what}")
        time.sleep(0.01)
    return time.monotonic() - start
