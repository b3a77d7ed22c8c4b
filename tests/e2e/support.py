"""What the end-to-end tests share: where the binaries and the model are, groups of nodes, requests, deterministic prompts."""
import json
import os
import random
import re
import subprocess
import sys
import time
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "tools", "lib"))
import group  # noqa: E402
from group import Node, free_ports  # noqa: E402,F401

BUILD = os.environ.get("HEARSAY_BUILD", os.path.join(TOP, "build-test"))
BINARY = os.path.join(BUILD, "tools", "hearsay")
CTL = os.path.join(BUILD, "tools", "hearsay-ctl")
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "hearsay")
MODEL = os.environ.get("HEARSAY_TEST_MODEL") or os.path.join(CACHE, "SmolLM2-135M-Instruct.Q4_1.gguf")

WORDS = ("river stone garden market winter letter window bridge harbor engine forest candle mirror ladder kitchen "
         "teacher doctor sailor painter farmer writer soldier merchant morning evening summer autumn yellow silver "
         "green quiet heavy narrow broken gentle ancient distant").split()


# For a run of the same tests over RDMA: HEARSAY_FABRIC=verbs, and a device for each node of a group in turn.
DEVICES = os.environ.get("HEARSAY_TEST_DEVICES", "").split()


# Whether messages travel in datagrams. Over RDMA only the bootstrap's do: a few, and none with messages.
IN_DATAGRAMS = os.environ.get("HEARSAY_FABRIC") != "verbs"


# And over DPDK: HEARSAY_FABRIC=dpdk, and how the nodes are joined: "memif", a shared-memory link between any two, or "packet PREFIX", an
# interface PREFIX1, PREFIX2 .. for each node, whose other end PREFIXb1, PREFIXb2 .. is in a bridge (tests/lab/dpdk-test).
DPDK = os.environ.get("HEARSAY_TEST_DPDK", "").split()


def dpdk_options(count, number, first):
    """Addresses and options of a group's nodes. number: of the group, as memif sockets need names; first: interface of its first node, from 0 on."""
    def devices(i):
        if DPDK[0] == "packet":
            return [f"net_af_packet0,iface={DPDK[1]}{first + i + 1}"]
        return [f"net_memif{j},role={'server' if i < j else 'client'},socket=hearsay-{os.getpid()}-{number}-{min(i, j)}-{max(i, j)}"
                for j in range(count) if j != i] or ["net_ring0"]
    hosts = [f"10.78.0.{first + i + 1}" for i in range(count)]
    return hosts, {i: ["--eal", "--no-huge --no-pci " + " ".join(f"--vdev={d}" for d in devices(i))] for i in range(count)}


def fabric_address(node):
    """As its peers see it."""
    return node.command[node.command.index("--bind") + 1]


class Group(group.Group):
    """As in tools/lib, and every node must end well: a crash, a leak that a sanitizer found, or a hang fails the test."""

    made = 0

    def __init__(self, binary, model, count=4, options=(), node_options=None, folder=None, first=0):
        """first: a second group on the same interfaces has others than the first."""
        if DEVICES:
            given = node_options or {}
            node_options = {i: [*given.get(i, ()), *([] if "--device" in given.get(i, ()) else ["--device", DEVICES[i % len(DEVICES)]])]
                            for i in range(count)}
        hosts = None
        if DPDK:
            Group.made += 1
            hosts, own = dpdk_options(count, Group.made, first)
            node_options = {i: [*own[i], *(node_options or {}).get(i, ())] for i in range(count)}
        super().__init__(binary, model, count, options, node_options, folder, hosts)

    def __exit__(self, kind, *rest):
        statuses = self.stop()
        bad = [n for n, status in zip(self.nodes, statuses) if status not in (0, None) and not n.killed]
        if bad and kind is None:
            raise RuntimeError("\n".join(f"{n.name} ended with status {n.process.returncode}:\n{n.log()[-4000:]}" for n in bad))


def story(seed, words):
    """Plain, repeatable prose of so many words; different seeds share no beginning."""
    rng = random.Random(seed)
    sentences, line = [], []
    for _ in range(words):
        line.append(rng.choice(WORDS))
        if len(line) == 9:
            sentences.append("The " + " ".join(line) + ".")
            line = []
    return " ".join(sentences)


def post(node, path, body, **kwargs):
    """A JSON exchange that must succeed: (answer, headers)."""
    status, headers, data = node.request("POST", path, body, **kwargs)
    if status != 200:
        raise AssertionError(f"{node.name} {path}: {status} {data.decode(errors='replace')}")
    return json.loads(data), headers


def complete(node, prompt, max_tokens=16, **fields):
    """(text, token logprobs, cached tokens, name of the computing node, whole answer)"""
    body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "logprobs": 5, "ignore_eos": True, **fields}
    answer, headers = post(node, "/v1/completions", body)
    choice = answer["choices"][0]
    cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return choice["text"], choice["logprobs"], cached, headers.get("x-hearsay-node"), answer


def tokenize(node, text):
    """Token ids of a text, as the node's model reads it."""
    answer, _ = post(node, "/tokenize", {"prompt": text})
    return answer["tokens"]


def stream(node, path, body, timeout=None):
    """Yields (headers, event) for each event of a stream; [DONE] comes as None. Raises when the stream ends without it."""
    import http.client
    connection = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=timeout or node.timeout_s)
    try:
        connection.request("POST", path, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
        response = connection.getresponse()
        headers = {k.lower(): v for k, v in response.getheaders()}
        if response.status != 200:
            raise AssertionError(f"{node.name}: {response.status} {response.read().decode(errors='replace')}")
        for line in response:
            line = line.rstrip(b"\r\n")
            if not line:
                continue
            if not line.startswith(b"data: "):
                raise AssertionError(f"not an event: {line!r}")
            if line == b"data: [DONE]":
                yield headers, None
                return
            yield headers, json.loads(line[6:])
        raise AssertionError("the stream ended without [DONE]")
    finally:
        connection.close()


class KeepAlive:
    """A connection that stays open: post(path, body, headers) gives (status, bytes)."""

    def __init__(self, node, timeout=None):
        import http.client
        self.connection = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=timeout or node.timeout_s)

    def post(self, path, body, headers=None):
        self.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **(headers or {})})
        response = self.connection.getresponse()
        return response.status, response.read()

    def close(self):
        self.connection.close()


def metric(node, name):
    """Sum of a metric over its labels."""
    _, _, body = node.request("GET", "/metrics")
    total = 0.0
    for line in body.decode().splitlines():
        if line.startswith((name + "{", name + " ")):
            total += float(line.rsplit(" ", 1)[1])
    return total


# Where processors are emulated everything takes many times longer: so many times longer may it take.
PATIENCE = float(os.environ.get("HEARSAY_TEST_PATIENCE", "1"))
Node.timeout_s *= PATIENCE


# A busy machine must not fail a test, and a condition that comes true costs no time: nothing is waited for less long than this.
LEAST_PATIENCE_S = 60


def wait_until(condition, timeout=10, what="condition"):
    timeout = max(timeout, LEAST_PATIENCE_S) * PATIENCE
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError(f"{what} did not come true within {timeout} s")


def cluster(node):
    """What a node says of itself and its peers."""
    status, _, body = node.request("GET", "/cluster")
    if status != 200:
        raise AssertionError(f"{node.name} /cluster: {status}")
    return json.loads(body)["cluster"]


def peer_blocks(node, name):
    """How many blocks a node believes its peer to hold."""
    return next((p["replica"]["blocks"] for p in cluster(node)["peers"] if p["name"] == name), 0)


class Spread:
    """What peers believe each other to hold: taken before something is computed, to wait until all know of it."""

    def __init__(self, nodes):
        self.nodes = list(nodes)
        self.before = {(n.name, p["name"]): p["replica"]["blocks"] for n in self.nodes for p in cluster(n)["peers"]}

    def wait(self, holder, blocks):
        """holder: the name of a node that has so many more blocks now."""
        for node in self.nodes:
            if node.name != holder:
                wanted = self.before.get((node.name, holder), 0) + blocks
                wait_until(lambda: peer_blocks(node, holder) >= wanted, what=f"{node.name} knows of {blocks} more blocks at {holder}")


def is_sanitized():
    """Whether the build checks memory by itself: then freed memory stays with the process for a while."""
    try:
        with open(os.path.join(BUILD, "CMakeCache.txt")) as cache:
            return any(line.startswith("HEARSAY_SANITIZE:") and line.split("=", 1)[1].strip() for line in cache)
    except FileNotFoundError:
        return False


def subprocess_output(command):
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_names():
    """Of all tests of the build."""
    return set(re.findall(r"Test +#\d+: (\S+)", subprocess_output(["ctest", "--test-dir", BUILD, "-N"])))


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def main():
    """Runs the calling file's tests; 77 when the node or the model is not here."""
    for path in (BINARY, MODEL):
        if not os.path.exists(path):
            skip(f"{path} is missing; tests/run makes it")
    unittest.main(verbosity=2)
