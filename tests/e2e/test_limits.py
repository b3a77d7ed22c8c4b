"""What a node refuses, and that nothing else suffers: 4xx, full queues, requests larger than the pool, peers of another kind,
tenants and salts, strange datagrams. On the null backend, which answers at once and whose tokens follow from the prompt alone.
"""
import collections
import concurrent.futures
import json
import os
import random
import re
import secrets
import select
import socket
import tempfile
import threading
import time
import unittest

import support

TINY = os.path.join(support.TOP, "tests", "vectors", "tiny", "llama3.gguf")
NULL = ("--backend", "null")


def group(count, *options, node_options=None, kv_pages=4096):
    kv = () if kv_pages is None else ("--kv-pages", str(kv_pages))
    return support.Group(support.BINARY, support.MODEL, count, options=(*NULL, *kv, *options), node_options=node_options)


def prompt(seed, n):
    """n token ids; different seeds share no beginning."""
    rng = random.Random(seed)
    return [rng.randrange(100, 40000) for _ in range(n)]


def ask(node, ids, max_tokens=4, headers=None, **fields):
    """(status, headers, answer) of a completion, whatever the status."""
    body = {"prompt": ids, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, **fields}
    status, head, data = node.request("POST", "/v1/completions", body, headers=headers)
    return status, head, json.loads(data)


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def peers(node):
    return json.loads(node.request("GET", "/cluster")[2])["cluster"]["peers"]


class Refusals(unittest.TestCase):
    def test_client_errors_cost_no_trust(self):
        """B holds the prefix but has a small pool: what is too long for it is its client's matter, not a fault of B."""
        with group(2, "--route", "longest", kv_pages=None, node_options={0: ("--kv-pages", "4096"), 1: ("--kv-pages", "128")}) as g:
            a, b = g.nodes
            heads = [prompt(f"trust{i}", 32) for i in range(40)]
            for head in heads:
                self.assertEqual(ask(b, head)[0], 200)
            support.wait_until(lambda: support.metric(a, "hearsay_replica_blocks") >= 80, 5, "the replica of B")
            bad = [
                {"prompt": [1] * 9000}, {"prompt": heads[0], "max_tokens": 9000}, {"prompt": []}, {"prompt": [10**7]},
                {"prompt": heads[0], "n": -1}, {"prompt": heads[0], "temperature": "hot"}, {"model": "nobody", "prompt": heads[0]},
            ]
            for i in range(20):
                status, _, body = a.request("POST", "/v1/completions", {"max_tokens": 4, **bad[i % len(bad)]})
                self.assertTrue(400 <= status < 500, (status, body))
                self.assertIn("error", json.loads(body))
                status, headers, _ = ask(a, heads[2 * i] + prompt(i, 8), 3000)
                self.assertEqual((status, headers["x-hearsay-node"]), (200, a.name), "too long for B, so here")
                status, headers, answer = ask(a, heads[2 * i + 1] + prompt(i, 8))
                self.assertEqual((status, headers["x-hearsay-node"]), (200, b.name), f"round {i}: B is not trusted any more")
                self.assertEqual(cached(answer), 32)
            self.assertEqual(support.metric(a, "hearsay_refusals_received_total"), 20)
            self.assertEqual(support.metric(a, "hearsay_takeovers_total"), 0)

    def test_larger_than_the_pool(self):
        with group(2, kv_pages=8) as g:
            for ids, max_tokens in ((prompt("pool", 100), 29), (prompt("pool", 129), 1), (prompt("pool", 4000), 4000)):
                began = time.monotonic()
                status, _, answer = ask(g.nodes[0], ids, max_tokens)
                self.assertEqual(status, 400, answer)
                self.assertIn("128", answer["error"]["message"])
                self.assertLess(time.monotonic() - began, 1)
            status, _, answer = ask(g.nodes[0], prompt("pool", 100), 28)
            self.assertEqual((status, answer["usage"]["completion_tokens"]), (200, 28))

    def test_all_full(self):
        with group(2, "--max-sequences", "1", "--max-waiting", "2", "--push-back", "2") as g:
            def one(i):
                return ask(g.nodes[i % 2], prompt(f"full{i}", 40), 7000)
            with concurrent.futures.ThreadPoolExecutor(48) as pool:
                answers = list(pool.map(one, range(48)))
            counts = collections.Counter(status for status, _, _ in answers)
            self.assertEqual(set(counts), {200, 429}, counts)
            for status, headers, answer in answers:
                if status == 429:
                    self.assertGreaterEqual(int(headers["retry-after"]), 1)
                    self.assertIn("error", answer)
                else:
                    self.assertEqual(answer["usage"]["completion_tokens"], 7000)
            for node in g.nodes:
                for i in range(4):
                    self.assertEqual(ask(node, prompt(f"again{i}", 40))[0], 200, "no recovery")

    def test_full_pools_computing_for_each_other(self):
        """More than both pools hold, through both entries, prefixes at the other node: everything finishes, with a lone node's tokens."""
        jobs = [(prompt(f"each{i % 8}", 160) + prompt(f"tail{i}", 20 + 3 * i), 200) for i in range(48)]
        with group(1) as g:
            expected = [ask(g.nodes[0], ids, n)[2]["choices"][0]["text"] for ids, n in jobs]
        with group(2, "--push-back", "1000", kv_pages=48) as g:
            with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
                answers = list(pool.map(lambda j: ask(g.nodes[j % 2], *jobs[j]), range(len(jobs))))
            for (status, _, answer), text in zip(answers, expected):
                self.assertEqual(status, 200, answer)
                self.assertEqual(answer["choices"][0]["text"], text)
            self.assertGreater(sum(support.metric(n, "hearsay_preemptions_total") for n in g.nodes), 0, "the pools were never full")
            self.assertGreater(sum(support.metric(n, "hearsay_forwards_total") for n in g.nodes), 0, "nothing was forwarded")


class Strangers(unittest.TestCase):
    def test_another_page_size_model_or_key(self):
        folder = tempfile.mkdtemp(prefix="hearsay-keys-")
        keys = []
        for i in range(2):
            keys.append(os.path.join(folder, f"key{i}"))
            with open(os.open(keys[i], os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
                f.write(secrets.token_hex(32) + "\n")
        special = {i: ("--group-key-file", keys[0]) for i in range(4)}
        special[1] += ("--page-tokens", "32")
        special[2] += ("--model", TINY)
        special[3] = ("--group-key-file", keys[1])
        g = support.Group(support.BINARY, support.MODEL, 4, options=(*NULL, "--kv-pages", "512"), node_options=special)
        try:
            for node in g.nodes:
                node.start()
            for node in g.nodes:
                support.wait_until(node.healthy, 60, f"{node.name} up")
            a = g.nodes[0]
            support.wait_until(lambda: a.log().count("not routed to") == 2, 10, "both mismatches logged")
            time.sleep(2)  # many more headers and handshakes
            head = prompt("strangers", 300)
            for i in range(40):
                ids = head + prompt(i, 30) if i % 2 else prompt(i, 200)
                if i % 5 == 0:
                    for other in g.nodes[1:]:
                        self.assertIn(ask(other, [t % 250 for t in ids])[0], (200, 400))
                status, headers, _ = ask(a, ids)
                self.assertEqual((status, headers["x-hearsay-node"]), (200, a.name))
            log = a.log()
            self.assertEqual(len(re.findall(r"node2 has another page size", log)), 1, log)
            self.assertEqual(len(re.findall(r"node3 serves another model", log)), 1, log)
            self.assertEqual(len(re.findall(rf"127\.0\.0\.1:{g.nodes[3].fabric_port}.*key", log)), 1, log)
            self.assertEqual(a.alive_peers(), 0)
            self.assertEqual(support.metric(a, "hearsay_forwards_total"), 0)
        finally:
            g.stop()

    def test_tenants_and_salts_share_nothing(self):
        with group(2, "--isolate-tenants", "--route", "longest") as g:
            ids = prompt("tenants", 320)
            who = [({"x-tenant-id": t}, {"cache_salt": s} if s else {}) for t in ("red", "blue") for s in (None, "x", "y")]
            for entry in g.nodes:
                for i, (headers, fields) in enumerate(who):
                    status, _, answer = ask(entry, ids, headers=headers, **fields)
                    self.assertEqual(status, 200)
                    if entry is g.nodes[0]:
                        self.assertEqual(cached(answer), 0, f"{headers} {fields} found what is another's")
                    else:
                        self.assertGreaterEqual(cached(answer), 304, f"{headers} {fields} does not find its own")
                if entry is g.nodes[0]:
                    time.sleep(1)
            blocks = sum(json.loads(n.request("GET", "/cluster")[2])["cluster"]["self"]["advertised_blocks"] for n in g.nodes)
            self.assertGreaterEqual(blocks, 20 * len(who), "namespaces share names in the digests")


class Datagrams(unittest.TestCase):
    def test_random_and_replayed(self):
        """A forwarder between the nodes records their datagrams; these come again, cut, changed and as they were, among noise."""
        with group(3, "--route", "longest") as g:
            a, b, _ = g.nodes
            head = prompt("noise", 320)
            self.assertEqual(ask(b, head)[0], 200)
            time.sleep(0.5)
            expected = ask(a, head, 64)[2]["choices"][0]["text"]
            recorded = self.record(b)
            self.assertGreater(len(recorded), 10)
            stop = threading.Event()
            flood = threading.Thread(target=self.flood, args=(g.nodes, recorded, stop), daemon=True)
            flood.start()
            try:
                for _ in range(100):
                    status, headers, answer = ask(a, head, 64)
                    self.assertEqual((status, headers["x-hearsay-node"], answer["choices"][0]["text"]), (200, b.name, expected))
            finally:
                stop.set()
                flood.join()
            self.assertGreater(support.metric(b, "hearsay_fabric_rejected"), 100)
            for node in g.nodes:
                support.wait_until(lambda: node.alive_peers() == 2, 5, "only the fourth node gone")
                self.assertEqual(support.metric(node, "hearsay_deaths_total"), 0)
                self.assertEqual(support.metric(node, "hearsay_takeovers_total"), 0)
                self.assertLess(len(node.log().splitlines()), 40, "the log was flooded")

    def record(self, target):
        """Datagrams of a fourth node that reaches `target` through us: both directions, handshake and sealed packets, to the farewell."""
        seen, stop = [], threading.Event()
        front, out = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        front.bind(("127.0.0.1", 0))
        relay = threading.Thread(target=self.relay, args=(front, out, target.fabric_port, seen, stop), daemon=True)
        relay.start()
        extra = support.Group(support.BINARY, support.MODEL, 1, options=(*NULL, "--kv-pages", "64"))
        extra.nodes[0].command += ["--join", f"127.0.0.1:{front.getsockname()[1]}"]
        try:
            extra.nodes[0].start()
            support.wait_until(lambda: len(seen) >= 60, 30, "60 datagrams")
        finally:
            extra.stop()
            time.sleep(0.2)
            stop.set()
            relay.join()
            front.close()
            out.close()
        return seen

    def relay(self, front, out, port, seen, stop):
        back = None
        while not stop.is_set():
            for source in select.select([front, out], [], [], 0.05)[0]:
                data, address = source.recvfrom(65536)
                seen.append(data)
                if source is front:
                    back = address
                    out.sendto(data, ("127.0.0.1", port))
                elif back:
                    front.sendto(data, back)

    def flood(self, nodes, recorded, stop):
        rng = random.Random(8)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            while not stop.is_set():
                for node in nodes:
                    data = bytearray(rng.choice(recorded))
                    kind = rng.randrange(4)
                    if kind == 0:
                        data = bytearray(rng.randbytes(rng.randrange(0, 1500)))
                    elif kind == 1:
                        data = data[:rng.randrange(len(data) + 1)]
                    elif kind == 2 and data:
                        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
                    s.sendto(bytes(data), ("127.0.0.1", node.fabric_port))
                time.sleep(0.0005)


if __name__ == "__main__":
    support.main()
