"""What a node refuses, and that nothing else suffers: 4xx, full queues, requests larger than the pool, peers of another kind,
tenants and salts, strange datagrams. On the null backend, which answers at once and whose tokens follow from the prompt alone.
"""
import collections
import concurrent.futures
import http.client
import json
import os
import random
import re
import secrets
import selectors
import signal
import socket
import tempfile
import threading
import time
import unittest

import outsider as outsiders
import support

TINY = os.path.join(support.TOP, "tests", "vectors", "tiny", "llama3.gguf")
NULL = ("--backend", "null")
TRIES = 20  # where something must come together that a slow client or a quick node may miss


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


def raw_request(body, tenant):
    data = json.dumps(body).encode()
    return (f"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nX-Tenant-Id: {tenant}\r\n"
            f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n").encode() + data


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def limit(node, name, kind="hits_total"):
    """Of hearsay_limit_hits_total, or with kind "used" or None of the level or the bound; None if it is not shown."""
    family = "hearsay_limit" + (f"_{kind}" if kind else "")
    _, _, body = node.request("GET", "/metrics")
    found = re.search(rf'^{family}\{{limit="{name}"\}} (\d+)$', body.decode(), re.M)
    return int(found.group(1)) if found else None


def log_line(node, name):
    found = re.search(rf"limit {name} \(\d+\) was hit, times: \d+: (.*)", node.log())
    return found.group(1) if found else None


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
                status, _, answer = ask(g.nodes[0], ids, max_tokens)
                self.assertEqual(status, 400, answer)
                self.assertIn("128", answer["error"]["message"])
            self.assertEqual((limit(g.nodes[0], "context_tokens", None), limit(g.nodes[0], "context_tokens")), (128, 3))
            status, _, answer = ask(g.nodes[0], prompt("pool", 100), 28)
            self.assertEqual((status, answer["usage"]["completion_tokens"]), (200, 28))

    def test_all_full(self):
        with group(2, "--max-sequences", "1", "--max-waiting", "2", "--push-back", "2") as g:
            def one(i):
                return ask(g.nodes[i % 2], prompt(f"full{i}", 40), 7000)
            answers = []
            for _ in range(TRIES):  # until so many came at once that both were full
                with concurrent.futures.ThreadPoolExecutor(48) as pool:
                    answers += pool.map(one, range(48))
                if all(limit(node, "waiting_requests") for node in g.nodes):
                    break
            counts = collections.Counter(status for status, _, _ in answers)
            self.assertEqual(set(counts), {200, 429}, counts)
            for status, headers, answer in answers:
                if status == 429:
                    self.assertGreaterEqual(int(headers["retry-after"]), 1)
                    self.assertIn("error", answer)
                else:
                    self.assertEqual(answer["usage"]["completion_tokens"], 7000)
            self.assertIn("2 requests wait here, which is the limit (--max-waiting)", " ".join(
                answer["error"]["message"] for status, _, answer in answers if status == 429))
            for node in g.nodes:
                for i in range(4):
                    self.assertEqual(ask(node, prompt(f"again{i}", 40))[0], 200, "no recovery")
                self.assertEqual(limit(node, "waiting_requests", None), 2)
                self.assertGreater(limit(node, "waiting_requests"), 0)
                self.assertIn("--max-waiting", log_line(node, "waiting_requests"))
                support.wait_until(lambda: limit(node, "requests_under_way", "used") == 0, 3, "an empty node")

    def test_full_pools_computing_for_each_other(self):
        """More than both pools hold, through both entries, prefixes at the other node: everything finishes, with a lone node's tokens."""
        jobs = [(prompt(f"each{i % 8}", 160) + prompt(f"tail{i}", 20 + 3 * i), 200) for i in range(48)]
        with group(1) as g:
            expected = [ask(g.nodes[0], ids, n)[2]["choices"][0]["text"] for ids, n in jobs]
        with group(2, "--push-back", "1000", kv_pages=48) as g:
            for _ in range(TRIES):  # until so many came at once that the pools were full
                with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
                    answers = list(pool.map(lambda j: ask(g.nodes[j % 2], *jobs[j]), range(len(jobs))))
                for (status, _, answer), text in zip(answers, expected):
                    self.assertEqual(status, 200, answer)
                    self.assertEqual(answer["choices"][0]["text"], text)
                preemptions, forwards = (sum(support.metric(n, f"hearsay_{name}_total") for n in g.nodes) for name in ("preemptions", "forwards"))
                if preemptions and forwards:
                    break
            self.assertGreater(preemptions, 0, "the pools were never full")
            self.assertGreater(forwards, 0, "nothing was forwarded")


class Documented(unittest.TestCase):
    def test_the_table_is_what_a_node_shows(self):
        with open(os.path.join(support.TOP, "docs", "limits.md")) as f:
            page = f.read()
        rows = re.findall(r"^\| `([a-z_]+)` \|(.*)\|$", page, re.M)
        named = {name for name, _ in rows}
        self.assertEqual(len(named), len(rows), "a limit stands there twice")
        if not support.IN_DATAGRAMS:
            named.remove("fabric_receive_bytes")
        with group(2) as g:
            _, _, body = g.nodes[0].request("GET", "/metrics")
            body = body.decode()
            shown = {kind: set(re.findall(rf'^hearsay_limit{kind}\{{limit="([a-z_]+)"\}} \d+$', body, re.M)) for kind in ("", "_used", "_hits_total")}
            self.assertEqual(shown[""], named)
            self.assertEqual(shown["_hits_total"], named)
            self.assertLess(shown["_used"], named)
            families = set(re.findall(r"^# TYPE (\S+) ", body, re.M))
            for metric in re.findall(r"`(hearsay_[a-z_]+)", page):
                self.assertIn(metric, families, "named in docs/limits.md")
            options = support.subprocess_output([support.BINARY, "--help"])
            for option in set(re.findall(r"`(--[a-z-]+)", page)):
                self.assertIn(option, options, "named in docs/limits.md")
        known = support.test_names() | {"e2e"}
        for name, columns in rows:
            for test in filter(None, re.split(r"[, ]+", columns.split("|")[-1].strip())):
                self.assertIn(test, known, f"the test of {name}")


class Bounds(unittest.TestCase):
    """Limits with an option, provoked through it."""

    def test_connections(self):
        with group(1, "--max-connections", "3") as g:
            node = g.nodes[0]
            idle = []

            def one_is_taken():  # one that was closed a moment ago may count still, and this one be refused in its place
                connection = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=60 * support.PATIENCE)
                connection.request("GET", "/v1/models")
                with connection.getresponse() as response:
                    response.read()
                if response.status == 200:
                    idle.append(connection)
                else:
                    connection.close()
                return len(idle) == 3
            support.wait_until(one_is_taken, what="three connections that stay")
            with socket.create_connection(("127.0.0.1", node.http_port)) as one_more:
                one_more.settimeout(60 * support.PATIENCE)
                one_more.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
                answer = b""
                while chunk := one_more.recv(4096):
                    answer += chunk
            self.assertIn(b"HTTP/1.1 503", answer)
            self.assertIn(b"3 connections, which is its limit (--max-connections)", answer)
            for connection in idle:
                connection.close()
            support.wait_until(lambda: node.request("GET", "/v1/models")[0] == 200, 5, "room again")
            self.assertGreaterEqual(limit(node, "http_connections"), 1)
            support.wait_until(lambda: log_line(node, "http_connections"), 5, "a line in the log")

    def test_body_and_headers(self):
        with group(1, "--max-body", "16K") as g:
            node = g.nodes[0]
            status, _, answer = ask(node, prompt("body", 100), user="x" * 20000)
            self.assertEqual(status, 413)
            self.assertIn("at most 16384 are taken (--max-body)", answer["error"]["message"])
            status, _, answer = ask(node, prompt("body", 100), headers={"x-long": "x" * 40000})
            self.assertEqual(status, 431)
            self.assertIn("at most 32768 are taken", answer["error"]["message"])
            self.assertEqual((limit(node, "http_body_bytes"), limit(node, "http_header_bytes")), (1, 1))

    def test_tree_and_replicas(self):
        with group(2, "--tree-memory", "16K", "--max-advertised-blocks", "100", "--max-replica-blocks", "40", "--route", "none") as g:
            a, b = g.nodes
            for i in range(40):
                self.assertEqual(ask(a, prompt(f"tree{i}", 330))[0], 200)
            self.assertEqual(limit(a, "tree_bytes", None), 16384)
            support.wait_until(lambda: limit(a, "tree_bytes") > 50, 3, "forgotten pages")
            self.assertLessEqual(limit(a, "tree_bytes", "used"), 16384)
            support.wait_until(lambda: limit(a, "advertised_blocks", "used") == 100, 5, "all that may be told")
            self.assertGreater(limit(a, "advertised_blocks"), 0)
            self.assertGreater(support.metric(a, "hearsay_unadvertised_blocks"), 0)
            support.wait_until(lambda: limit(b, "replica_blocks_of_one_peer") > 0, 5, "what found no place")
            self.assertEqual((limit(b, "replica_blocks", None), limit(b, "replica_blocks_of_one_peer", None)), (40, 20))
            self.assertLessEqual(limit(b, "replica_blocks", "used"), 20)
            for node, name, option in ((a, "tree_bytes", "--tree-memory"), (b, "replica_blocks_of_one_peer", "--max-replica-blocks")):
                support.wait_until(lambda: option in (log_line(node, name) or ""), 5, f"a line on {name}")

    def test_drain_timeout(self):
        for _ in range(TRIES):  # until the end comes before the answer's
            with group(1, "--drain-timeout", "1ms") as g:
                node = g.nodes[0]
                events = support.stream(node, "/v1/completions", {"prompt": prompt("drain", 40), "max_tokens": 8000, "ignore_eos": True})
                next(events)
                self.assertEqual(node.stop(), 0)
                if " answers were cut" in node.log():
                    break
        self.assertRegex(node.log(), r"1 answers were cut: they had not finished in 0.001 s \(--drain-timeout\)")
        with self.assertRaises(Exception):
            list(events)

    def test_weights(self):
        """Many of both wait at one small node: by the time the heavy tenant is served, the light one has had about a third of that."""
        with group(1, "--max-sequences", "1", "--tenant-weight", "heavy=3", "--tenant-weight", "x=2,y=0.5") as g:
            # All are there when the node, stopped meanwhile, goes on; each takes it an eighth of a second, so that the order of the answers shows.
            tenants, clients = {}, selectors.DefaultSelector()
            g.nodes[0].kill(signal.SIGSTOP)
            for i in range(48):
                client = socket.create_connection(("127.0.0.1", g.nodes[0].http_port), timeout=60)
                tenants[client] = ("heavy", "light")[i % 2]
                client.sendall(raw_request({"prompt": prompt(f"weight{i}", 64), "max_tokens": 6000, "ignore_eos": True}, tenants[client]))
                clients.register(client, selectors.EVENT_READ)
            g.nodes[0].kill(signal.SIGCONT)
            done = []
            while len(done) < len(tenants):
                ready = clients.select(60 * support.PATIENCE)
                self.assertTrue(ready, f"nothing more after {len(done)} answers")
                for key, _ in ready:
                    self.assertTrue(key.fileobj.recv(65536).startswith(b"HTTP/1.1 200"))
                    done.append(tenants[key.fileobj])
                    clients.unregister(key.fileobj)
            for client in tenants:
                client.close()
            last = max(i for i, tenant in enumerate(done) if tenant == "heavy")
            light = done[:last].count("light")
            self.assertTrue(4 <= light <= 14, f"{light} light ones before the last of 24 heavy ones")


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
            stranger = rf"peer {re.escape(support.fabric_address(g.nodes[3]))} .*key"
            support.wait_until(lambda: a.log().count("not routed to") == 2, 10, "both mismatches logged")
            support.wait_until(lambda: re.search(stranger, a.log()), 10, "the other key logged")
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
            self.assertEqual(len(re.findall(stranger, log)), 1, log)
            self.assertEqual(a.alive_peers(), 0)
            self.assertEqual(support.metric(a, "hearsay_forwards_total"), 0)
        finally:
            g.stop()

    def test_tenants_and_salts_share_nothing(self):
        with group(2, "--isolate-tenants", "--route", "longest") as g:
            ids = prompt("tenants", 320)
            spread = support.Spread(g.nodes)
            who = [({"x-tenant-id": t}, {"cache_salt": s} if s else {}) for t in ("red", "blue") for s in (None, "x", "y")]
            for entry in g.nodes:
                for i, (headers, fields) in enumerate(who):
                    status, _, answer = ask(entry, ids, headers=headers, **fields)
                    self.assertEqual(status, 200)
                    if entry is g.nodes[0]:
                        self.assertEqual(cached(answer), 0, f"{headers} {fields} found what is another's")
                    else:
                        self.assertGreaterEqual(cached(answer), 304, f"{headers} {fields} does not find its own")
                if entry is g.nodes[0]:  # where namespaces shared names in the digests, there would be fewer
                    spread.wait(entry.name, 20 * len(who))


class Datagrams(unittest.TestCase):
    def test_random_and_replayed(self):
        """A forwarder between the nodes records their datagrams; these come again, cut, changed and as they were, among noise."""
        with group(3, "--route", "longest") as g:
            a, b, _ = g.nodes
            head = prompt("noise", 320)
            spread = support.Spread(g.nodes)
            self.assertEqual(ask(b, head)[0], 200)
            spread.wait(b.name, 20)
            expected = ask(a, head, 64)[2]["choices"][0]["text"]
            outsider = outsiders.outsider(b)
            if outsider is None:
                self.skipTest("a link of shared memory has two ends, and nobody is between them")
            try:
                self.record(outsider)
                self.assertGreater(len(outsider.seen), 10)
                self.flooded(g.nodes, outsider, head, expected)
            finally:
                outsider.close()

    def flooded(self, nodes, outsider, head, expected):
        a, b = nodes[:2]
        stop = threading.Event()
        flood = threading.Thread(target=self.flood, args=(nodes, outsider, stop), daemon=True)
        flood.start()
        try:
            for _ in range(100):
                status, headers, answer = ask(a, head, 64)
                self.assertEqual((status, headers["x-hearsay-node"], answer["choices"][0]["text"]), (200, b.name, expected))
            support.wait_until(lambda: support.metric(b, "hearsay_fabric_rejected") > 100, 10, "a hundred datagrams refused")
            if support.DPDK:
                support.wait_until(lambda: support.metric(b, "hearsay_dpdk_foreign_frames_total") > 10, 10, "foreign frames counted")
        finally:
            stop.set()
            flood.join()
        for node in nodes:
            support.wait_until(lambda: node.alive_peers() == 2, 5, "only the fourth node gone")
            self.assertEqual(support.metric(node, "hearsay_deaths_total"), 0)
            self.assertEqual(support.metric(node, "hearsay_takeovers_total"), 0)
            self.assertLess(len(node.log().splitlines()), 40, "the log was flooded")

    def record(self, outsider):
        """Datagrams of a fourth node that comes and goes: both directions, handshake and sealed packets, to the farewell."""
        extra = support.Group(support.BINARY, support.MODEL, 1, options=(*NULL, "--kv-pages", "64"), first=outsider.first)
        extra.nodes[0].command += ["--join", outsider.join]
        try:
            extra.nodes[0].start()
            enough = 60 if support.IN_DATAGRAMS else 12
            support.wait_until(lambda: len(outsider.seen) >= enough, 30, f"{enough} datagrams")
        finally:
            extra.stop()
            time.sleep(0.2)
            outsider.stop_recording()

    def flood(self, nodes, outsider, stop):
        rng = random.Random(8)
        while not stop.is_set():
            for node in nodes:
                data = bytearray(rng.choice(outsider.seen))
                kind = rng.randrange(4)
                if kind == 0:
                    data = bytearray(rng.randbytes(rng.randrange(0, 1400)))
                elif kind == 1:
                    data = data[:rng.randrange(len(data) + 1)]
                elif kind == 2 and data:
                    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
                outsider.send(node, bytes(data))
            time.sleep(0.0005)


if __name__ == "__main__":
    support.main()
