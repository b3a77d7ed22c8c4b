"""A group of hearsay nodes on loopback: start, wait until they know each other, end. Standard library only.

Used by tools/quickstart and by the end-to-end tests.
"""
import http.client
import json
import os
import signal
import socket
import subprocess
import tempfile
import time


def free_ports(count, kind):
    """count ports that nobody uses right now (kind: socket.SOCK_STREAM or SOCK_DGRAM)."""
    held = []
    for _ in range(count):
        s = socket.socket(socket.AF_INET, kind)
        s.bind(("127.0.0.1", 0))
        held.append(s)
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports


class Node:
    timeout_s = 120  # of an exchange, unless it says otherwise

    def __init__(self, name, command, http_port, fabric_port, log_path):
        self.name = name
        self.command = command
        self.http_port = http_port
        self.fabric_port = fabric_port
        self.log_path = log_path
        self.process = None
        self.killed = False  # by us, on purpose

    @property
    def url(self):
        return f"http://127.0.0.1:{self.http_port}"

    def start(self):
        self.killed = False
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def request(self, method, path, body=None, timeout=None, headers=None):
        """One HTTP exchange: (status, headers, bytes)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=timeout or self.timeout_s)
        try:
            data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
            connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            return response.status, dict((k.lower(), v) for k, v in response.getheaders()), response.read()
        finally:
            connection.close()

    def healthy(self):
        try:
            return self.request("GET", "/health", timeout=2)[0] == 200
        except OSError:
            return False

    def alive_peers(self):
        """How many peers this node may route to."""
        status, _, body = self.request("GET", "/cluster", timeout=5)
        if status != 200:
            return 0
        return sum(1 for peer in json.loads(body)["cluster"]["peers"] if peer["routable"])

    def log(self):
        with open(self.log_path, errors="replace") as f:
            return f.read()

    def kill(self, sig=signal.SIGKILL):
        self.killed |= sig == signal.SIGKILL
        self.process.send_signal(sig)

    def stop(self, timeout=15):
        """Ends the node as an operator would (SIGTERM) and returns its exit status."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return self.process.returncode


class Group:
    """with Group(binary, model, count=4) as group: group.nodes[0].request(...)"""

    def __init__(self, binary, model, count=4, options=(), node_options=None, folder=None, hosts=None):
        """hosts: an address for each node in place of loopback."""
        self.folder = folder or tempfile.mkdtemp(prefix="hearsay-")
        hosts = hosts or ["127.0.0.1"] * count
        http_ports = free_ports(count, socket.SOCK_STREAM)
        fabric_ports = free_ports(count, socket.SOCK_DGRAM)
        join = ",".join(f"{host}:{port}" for host, port in zip(hosts, fabric_ports))
        # Nodes of one machine share its memory: each takes an equal part of what one alone would, and no more than tests and the quickstart need.
        share = min(512, max(64, available_memory_mib() // 4 // count))
        self.nodes = []
        for i in range(count):
            name = f"node{i + 1}"
            command = [binary, "--model", model, "--name", name, "--http", f"127.0.0.1:{http_ports[i]}",
                       "--bind", f"{hosts[i]}:{fabric_ports[i]}"]
            if count > 1:
                command += ["--join", join]
            command += list(options)
            command += list((node_options or {}).get(i, ()))
            if not any(o.startswith("--kv-") for o in command):
                command += ["--kv-memory", f"{share}MiB"]
            self.nodes.append(Node(name, command, http_ports[i], fabric_ports[i], os.path.join(self.folder, name + ".log")))

    def start(self, timeout=120):
        for node in self.nodes:
            node.start()
        self.wait_ready(timeout)

    def wait_ready(self, timeout=120):
        """Until every node answers and knows all the others."""
        deadline = time.monotonic() + timeout
        for node in self.nodes:
            while not (node.healthy() and node.alive_peers() == len(self.nodes) - 1):
                if node.process.poll() is not None:
                    raise RuntimeError(f"{node.name} ended with status {node.process.returncode}:\n{node.log()}")
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{node.name} was not ready after {timeout} s:\n{node.log()}")
                time.sleep(0.05)

    def stop(self):
        return [node.stop() for node in self.nodes]

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc):
        self.stop()


def available_memory_mib():
    with open("/proc/meminfo") as f:
        for line in f:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) // 1024
    return 1024
