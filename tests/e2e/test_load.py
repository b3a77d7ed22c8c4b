"""Many clients at once: cold bursts with one head, clients that hang up, prefixes without end, an idle group.

HEARSAY_TEST_FULL=1 runs the long forms (a million distinct prefixes, a minute of idleness).
"""
import collections
import concurrent.futures
import json
import os
import random
import socket
import threading
import time
import unittest

import support

FULL = os.environ.get("HEARSAY_TEST_FULL") == "1"
NULL = ("--backend", "null")


def prompt(seed, n):
    """n token ids; different seeds share no beginning."""
    rng = random.Random(seed)
    return [rng.randrange(100, 40000) for _ in range(n)]


def is_level(before, after, share):
    """Whether memory has grown by less than a share of what it was."""
    return after <= before * (1 + share) or support.is_sanitized()


def resident_kib(node):
    with open(f"/proc/{node.process.pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))


def cpu_seconds(node):
    with open(f"/proc/{node.process.pid}/stat") as f:
        fields = f.read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def raw_request(body):
    data = json.dumps(body).encode()
    return (f"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n").encode() + data


def warm_up(nodes, tokens):
    """Each node has computed something and all know how fast, and links take as little of a prefill of so many tokens as makes nodes agree.

    On a machine that has only begun, and more so on an emulated one, the first round trips take as long as a prefill, and then each node
    rightly computes by itself (route.c: near). Whether the links came to be short.
    """
    def near(peer):
        rate, link_us = peer["load"]["prefill_tokens_per_s"], peer["rtt_us"] + 4 * peer["rtt_deviation_us"]
        return rate > 0 and link_us / 1e6 + 0.002 < 0.05 * tokens / rate
    for i, node in enumerate(nodes):
        support.complete(node, prompt(f"warm up {i}", 100), max_tokens=2)
    try:
        support.wait_until(lambda: all(near(p) for n in nodes for p in support.cluster(n)["peers"]))
    except AssertionError:
        return False
    return True


class OneHead(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.group = support.Group(support.BINARY, support.MODEL, 4)
        cls.group.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.group.__exit__(None)

    def test_cold_burst(self):
        """32 requests with one new head of 1,000 tokens over four entries within 10 ms: it is computed on two nodes at most."""
        g = self.group
        text = support.story("burst", 1400)
        head = support.tokenize(g.nodes[0], text)[:1000]
        if not warm_up(g.nodes, len(head)):
            self.skipTest("the nodes answer each other too slowly, beside what a prefill takes, to agree on one of them")
        sockets = []
        for i in range(32):
            s = socket.create_connection(("127.0.0.1", g.nodes[i % 4].http_port))
            s.settimeout(240 * support.PATIENCE)
            sockets.append((s, raw_request({"prompt": head + [300 + i] * 8, "max_tokens": 2, "temperature": 0})))
        before = [support.metric(n, "vllm:prefix_cache_hits_total") for n in g.nodes]
        began = time.monotonic()
        for s, data in sockets:
            s.sendall(data)
        spent_ms = (time.monotonic() - began) * 1e3
        computed = collections.Counter()
        for s, _ in sockets:
            response = b""
            while b"\r\n\r\n" not in response or not response.rstrip().endswith(b"}"):
                data = s.recv(65536)
                self.assertTrue(data, response)
                response += data
            self.assertTrue(response.startswith(b"HTTP/1.1 200"), response[:300])
            header, body = response.split(b"\r\n\r\n", 1)
            name = next(line.split(b": ")[1].decode() for line in header.lower().split(b"\r\n") if line.startswith(b"x-hearsay-node"))
            if json.loads(body)["usage"]["prompt_tokens_details"]["cached_tokens"] < 900:
                computed[name] += 1
            s.close()
        hits = [support.metric(n, "vllm:prefix_cache_hits_total") - b for n, b in zip(g.nodes, before)]
        print(f"sent within {spent_ms:.1f} ms; head computed by {dict(computed)}; cached tokens by node {hits}", flush=True)
        self.assertLessEqual(sum(computed.values()), 2)

    def answers_by_node(self, name, at_once, requests):
        """One new head, different tails, so many at a time over four entries: who answered how many."""
        g = self.group
        head = support.tokenize(g.nodes[0], support.story(name, 500))[:320]
        before = [support.metric(n, "hearsay_step_rows_total") for n in g.nodes]
        def one(i):
            tail = prompt(f"{name}{i}", 48)
            body = {"prompt": head + tail, "max_tokens": 4, "ignore_eos": True}
            return support.post(g.nodes[i % 4], "/v1/completions", body, timeout=240 * support.PATIENCE)[1]["x-hearsay-node"]
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            by = collections.Counter(pool.map(one, range(requests)))
        rows = [support.metric(n, "hearsay_step_rows_total") - b for n, b in zip(g.nodes, before)]
        print(f"{at_once} at a time: answers by node {dict(by)}, rows computed {rows}", flush=True)
        return by

    def test_different_tails(self):
        """One head, different tails: every node gets it and answers its part.

        64 at a time queue for longer than another prefill of the head. 24 do not: what they wait adds up to its price. Where nothing else runs the busiest
        node answers 1.1 to 1.2 times the mean (test_cluster_route_fleet has equal nodes); nodes that share a machine with others are not equally
        fast, and the faster ones rightly answer more.
        """
        for at_once in (64, 24):
            with self.subTest(at_once=at_once):
                by = self.answers_by_node(f"tails{at_once}", at_once, 240)
                self.assertEqual(len(by), 4, "a node was left out")
                self.assertGreaterEqual(min(by.values()), 240 / 4 / 4)
                self.assertLessEqual(max(by.values()), 2 * 240 / 4)


class HangUps(unittest.TestCase):
    GAUGES = ("vllm:num_requests_running", "vllm:num_requests_waiting", "hearsay_requests_forwarded", "hearsay_requests_for_peers",
              "vllm:kv_cache_usage_perc")

    def storm(self, nodes, number):
        """1,000 clients in groups; each leaves after a time of its own: while waiting, in prefill, in decode, here or at a peer."""
        rng = random.Random(number)
        for group in range(10):
            open_sockets = []
            for i in range(100):
                s = socket.create_connection(("127.0.0.1", nodes[rng.randrange(len(nodes))].http_port))
                n = rng.choice((20, 600, 4000))
                ids = self.heads[rng.randrange(len(self.heads))] + prompt(f"storm{number}.{group}.{i}", n)
                s.sendall(raw_request({"prompt": ids, "max_tokens": 4000, "stream": rng.random() < 0.7, "ignore_eos": True}))
                open_sockets.append(s)
            time.sleep(rng.random() * 0.3)
            rng.shuffle(open_sockets)
            for s in open_sockets:
                if rng.random() < 0.3:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset, not a farewell
                s.close()
        deadline = time.monotonic() + 30 * support.PATIENCE
        while True:
            left = {(n.name, g): v for n in nodes for g in self.GAUGES if (v := support.metric(n, g))}
            if not left:
                return
            self.assertLess(time.monotonic(), deadline, f"some time after the storm: {left}")
            time.sleep(0.05)

    def test_hang_ups(self):
        options = (*NULL, "--kv-pages", "8192", "--route", "longest")
        with support.Group(support.BINARY, support.MODEL, 2, options=options) as g:
            self.heads = [prompt(f"head{i}", 320) for i in range(4)]
            spread = support.Spread(g.nodes)
            for i, head in enumerate(self.heads):
                support.post(g.nodes[i % 2], "/v1/completions", {"prompt": head, "max_tokens": 1})
            for node in g.nodes:
                spread.wait(node.name, 2 * 20)
            memory = []
            for number in range(4):
                self.storm(g.nodes, number)
                memory.append([resident_kib(n) for n in g.nodes])
            forwarded = [support.metric(n, "hearsay_forwards_total") for n in g.nodes]
            canceled = [support.metric(n, "hearsay_requests_canceled_total") for n in g.nodes]
            print(f"resident KiB after each storm {memory}, forwarded {forwarded}, canceled {canceled}", flush=True)
            self.assertGreater(min(forwarded), 50)
            self.assertGreater(sum(canceled), 0)
            for i, node in enumerate(g.nodes):
                self.assertTrue(is_level(memory[1][i], memory[3][i], 0.03), f"{node.name} grows: {memory}")
                support.complete(node, self.heads[0])


class Prefixes(unittest.TestCase):
    def test_distinct_prefixes_without_end(self):
        """Far more prefixes than pool, tree and digest hold: everything stays under its cap, resident memory is flat."""
        total = 1000000 if FULL else 100000
        options = (*NULL, "--kv-pages", "2048", "--route", "cost", "--max-sequences", "256")
        with support.Group(support.BINARY, support.MODEL, 2, options=options) as g:
            samples, lock, done = [], threading.Lock(), [0]

            def client(number):
                rng = random.Random(number)
                connections = [support.KeepAlive(n) for n in g.nodes]
                try:
                    while True:
                        with lock:
                            if done[0] >= total:
                                return
                            done[0] += 20
                            if done[0] % (total // 20) < 20:
                                samples.append([resident_kib(n) for n in g.nodes])
                        # 20 prefixes in one request: prompts of one batch are distinct requests to the node
                        batch = [[rng.randrange(100, 40000) for _ in range(40)] for _ in range(20)]
                        connection = connections[rng.randrange(2)]
                        status, body = connection.post("/v1/completions", {"prompt": batch, "max_tokens": 1, "ignore_eos": True})
                        if status != 200:
                            raise AssertionError(f"{status} {body[:200]!r}")
                finally:
                    for c in connections:
                        c.close()

            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                for one in [pool.submit(client, i) for i in range(4)]:
                    one.result()
            half = samples[len(samples) // 2:]
            for i, node in enumerate(g.nodes):
                tree = json.loads(node.request("GET", "/admin/tree")[2])
                known = support.metric(node, "hearsay_replica_blocks")
                print(f"{node.name}: tree {tree['pages']} pages {tree['bytes']} bytes, {known:.0f} blocks of peers, "
                      f"RSS KiB {[s[i] for s in samples[::4]]}", flush=True)
                self.assertLessEqual(tree["pages"], 2048)
                self.assertLessEqual(known, 2048 * 1.1)
                self.assertTrue(is_level(min(s[i] for s in half), max(s[i] for s in half), 0.02), "resident memory grows")


    def test_distinct_salts_and_tenants(self):
        """Each request in a namespace and of a tenant of its own: those that are gone leave nothing behind."""
        total = 100000 if FULL else 8000
        with support.Group(support.BINARY, support.MODEL, 2, options=(*NULL, "--kv-pages", "512", "--isolate-tenants")) as g:
            def client(number):
                connections, memory = [support.KeepAlive(n) for n in g.nodes], []
                for i in range(total // 4):
                    name = f"{number}.{i}"
                    body = {"prompt": [100 + i % 50] * 40, "max_tokens": 1, "cache_salt": name}
                    status, data = connections[i % 2].post("/v1/completions", body, {"x-tenant-id": name})
                    if status != 200:
                        raise AssertionError(f"{status} {data[:200]!r}")
                    if i % (total // 80) == 0:
                        memory.append([resident_kib(n) for n in g.nodes])
                for c in connections:
                    c.close()
                return memory
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                memory = list(pool.map(client, range(4)))[0]
            half = memory[len(memory) // 2:]
            for i, node in enumerate(g.nodes):
                tree = json.loads(node.request("GET", "/admin/tree")[2])
                print(f"{node.name}: {tree['namespaces']} namespaces, {tree['bytes']} bytes, RSS KiB {[m[i] for m in memory[::4]]}", flush=True)
                self.assertLessEqual(tree["namespaces"], 512)
                self.assertTrue(is_level(min(m[i] for m in half), max(m[i] for m in half), 0.02), "resident memory grows")


class Idle(unittest.TestCase):
    def test_idle_group(self):
        seconds = 60 if FULL else 8
        with support.Group(support.BINARY, support.MODEL, 4, options=(*NULL, "--kv-pages", "512")) as g:
            for i in range(20):
                support.post(g.nodes[i % 4], "/v1/completions", {"prompt": prompt(i, 200), "max_tokens": 4})
            least = [1.0] * 4
            for _ in range(6):  # what others do to the caches makes every wake-up dearer, and a start takes its time to come to rest
                time.sleep(3)
                cpu = [cpu_seconds(n) for n in g.nodes]
                sent = [support.metric(n, "hearsay_gossip_sent_bytes_total") for n in g.nodes]
                began = time.monotonic()
                time.sleep(seconds)
                passed = time.monotonic() - began
                cpu = [(cpu_seconds(n) - c) / passed for n, c in zip(g.nodes, cpu)]
                sent = [(support.metric(n, "hearsay_gossip_sent_bytes_total") - s) / passed for n, s in zip(g.nodes, sent)]
                print(f"idle: CPU {[f'{c * 100:.2f} %' for c in cpu]}, gossip bytes/s {[round(s) for s in sent]}", flush=True)
                least = [min(pair) for pair in zip(least, cpu)]
                if max(least) < 0.03 * support.PATIENCE and max(sent) < 20000:
                    return
            self.fail("six times")


if __name__ == "__main__":
    support.main()
