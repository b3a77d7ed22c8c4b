"""One of four nodes is stopped, continued, killed and restarted under streaming clients who enter elsewhere.

No request is lost, every stream carries exactly the tokens of a node that runs alone, and the node that comes back is a new one:
another epoch, none of the old cache believed, and soon used again.
"""
import collections
import concurrent.futures
import http.client
import json
import signal
import threading
import time
import unittest

import support

CLIENTS = 8
PROMPT_TOKENS = 160
ANSWER_TOKENS = 200
ROUNDS = 8  # to catch the victim at work, however quick it is and however slow we are
STOPPED_S = 10 * support.PATIENCE


class Client(threading.Thread):
    """Streams one answer; `node` is who answered first, `text` what came, `error` why it ended badly. `on_token` is called for each that comes."""

    def __init__(self, entry, body, on_token=lambda client: None):
        super().__init__(daemon=True)
        self.entry, self.body, self.on_token = entry, body, on_token
        self.node, self.text, self.tokens, self.error = None, "", 0, None
        self.start()

    def run(self):
        try:
            for headers, event in support.stream(self.entry, "/v1/completions", self.body):
                if event is None:
                    return
                self.node = headers["x-hearsay-node"]
                if "error" in event:
                    raise AssertionError(event["error"])
                for choice in event["choices"]:
                    self.text += choice["text"]
                    self.tokens += 1
                    self.on_token(self)
        except Exception as e:  # noqa: BLE001: whatever it was, the test reports it
            self.error = repr(e)


def peer_view(node, name):
    """What `node` says of the peer."""
    status, _, body = node.request("GET", "/cluster", timeout=5)
    peers = json.loads(body)["cluster"]["peers"] if status == 200 else []
    return next((p for p in peers if p["name"] == name), None)


class Faults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.bodies = []
        with support.Group(support.BINARY, support.MODEL, 1) as alone:
            node = alone.nodes[0]
            for i in range(CLIENTS):
                prompt = support.tokenize(node, support.story(f"fault{i}", 260))[:PROMPT_TOKENS]
                how = {"temperature": 0} if i % 2 else {"temperature": 0.8, "seed": i}
                cls.bodies.append({"prompt": prompt, "max_tokens": ANSWER_TOKENS, "ignore_eos": True, **how})
            clients = [Client(node, body) for body in cls.bodies]
            for client in clients:
                client.join()
            assert not any(c.error for c in clients), [c.error for c in clients]
            cls.expected = [c.text for c in clients]
        cls.group = support.Group(support.BINARY, support.MODEL, 4)
        cls.group.__enter__()
        cls.nodes = cls.group.nodes

    @classmethod
    def tearDownClass(cls):
        cls.group.__exit__(None)

    def prime(self, salt):
        """Leaves every prompt cached somewhere; the node that got most is the victim."""
        spread = support.Spread(self.nodes)
        self.salted = [{**body, "cache_salt": salt} for body in self.bodies]
        holders = [support.post(self.nodes[i % 4], "/v1/completions", {**body, "max_tokens": 1})[1]["x-hearsay-node"]
                   for i, body in enumerate(self.salted)]
        self.victim = max(self.nodes, key=lambda n: holders.count(n.name))
        self.others = [n for n in self.nodes if n is not self.victim]
        spread.wait(self.victim.name, holders.count(self.victim.name) * (PROMPT_TOKENS // 16))
        self.views = {n.name: peer_view(n, self.victim.name) for n in self.others}

    def takeovers(self):
        return sum(support.metric(n, "hearsay_takeovers_total") for n in self.others)

    def caught_at_work(self, salt):
        """Clients of all prompts, and the victim stopped while it computes for some of them: by the first of these whose answer has begun."""
        for round_ in range(ROUNDS):
            self.prime(f"{salt}{round_}")
            stopped = threading.Event()

            def stop(client):
                if client.node == self.victim.name and client.tokens == 4 and not stopped.is_set():
                    self.victim.kill(signal.SIGSTOP)
                    stopped.set()
            before = self.takeovers()
            clients = [Client(self.others[i % 3], body, stop) for i, body in enumerate(self.salted)]
            while not stopped.is_set() and any(c.is_alive() for c in clients):
                time.sleep(0.01)
            if stopped.is_set() and self.goes_on_nowhere(clients):
                return clients, before
            self.victim.kill(signal.SIGCONT)
            for client in clients:
                client.join(60 * support.PATIENCE)
            self.routable(True)
        return self.fail("the victim was never caught at work")

    def goes_on_nowhere(self, clients):
        """Whether an answer of the stopped victim is unfinished when all that it had sent has arrived."""
        at_victim, seen = [c for c in clients if c.node == self.victim.name], -1
        while seen != (seen := sum(c.tokens for c in at_victim)):
            time.sleep(0.5)
        return any(c.is_alive() for c in at_victim)

    def disturbed(self, salt, fault):
        """All clients at once; `fault` happens while the victim, stopped, has work for some. Every answer must be as if nothing had been."""
        clients, before = self.caught_at_work(salt)
        fault()
        for client in clients:
            client.join(60 * support.PATIENCE)
        for i, client in enumerate(clients):
            self.assertFalse(client.is_alive(), f"client {i} hangs at {client.tokens} tokens")
            self.assertIsNone(client.error, f"client {i}")
            self.assertEqual(client.text, self.expected[i], f"client {i}")
        self.assertGreater(self.takeovers(), before, "the streams waited for the victim instead of going on elsewhere")
        for node in self.others:
            for gauge in ("vllm:num_requests_running", "hearsay_requests_forwarded", "hearsay_requests_for_peers"):
                support.wait_until(lambda: support.metric(node, gauge) == 0, what=f"{gauge} of {node.name} at 0")

    def routable(self, wanted):
        for node in self.others:
            support.wait_until(lambda: bool((peer_view(node, self.victim.name) or {}).get("routable")) is wanted, 30,
                               f"{self.victim.name} {'used' if wanted else 'left alone'} by {node.name}")

    def test_a_stopped_node(self):
        goes_on = []

        def stop():
            goes_on.append(threading.Timer(STOPPED_S, lambda: self.victim.kill(signal.SIGCONT)))
            goes_on[0].start()
        self.disturbed("stop", stop)
        goes_on[0].join()
        self.routable(True)
        support.wait_until(lambda: support.metric(self.victim, "hearsay_requests_for_peers") == 0, what="the old work dropped")
        support.wait_until(lambda: support.metric(self.victim, "vllm:num_requests_running") == 0, what="the old work dropped")

    def test_b_killed_and_restarted(self):
        def kill():
            self.victim.kill(signal.SIGKILL)
            self.victim.process.wait()
        self.disturbed("kill", kill)
        before = self.views
        self.assertTrue(any(view["replica"]["blocks"] for view in before.values()))
        self.routable(False)
        self.victim.start()
        self.routable(True)
        for node in self.others:
            view = peer_view(node, self.victim.name)
            self.assertNotEqual(view["epoch"], before[node.name]["epoch"])
            self.assertEqual(view["replica"]["blocks"], 0, "blocks of the former life are believed")
        # What was cached there is not looked for there, and answers are what they were.
        for i, body in enumerate(self.salted[:3]):
            answer, headers = support.post(self.others[i], "/v1/completions", body)
            self.assertEqual(answer["choices"][0]["text"], self.expected[i])
            self.assertNotEqual(headers["x-hearsay-node"], self.victim.name, "routed by the digest of the former life")
        # New prompts come to it again, where several come at once.
        def fresh(i):
            body = {"prompt": support.story(f"after{i}", 120), "max_tokens": 1}
            return support.post(self.others[i % 3], "/v1/completions", body)[1]["x-hearsay-node"]
        used = collections.Counter()
        for burst in range(4):  # where clients are slower than nodes, few come at once
            with concurrent.futures.ThreadPoolExecutor(8 << burst) as pool:
                used.update(pool.map(fresh, range(32 * burst, 32 * (burst + 1))))
            if self.victim.name in used:
                break
        self.assertIn(self.victim.name, used, f"the restarted node is not used: {[peer_view(n, self.victim.name) for n in self.others]}")

    def test_c_clients_that_hang_up(self):
        """100 clients leave at once. A real model's answers take long: a peer that is not told would go on for nobody."""
        self.prime("leave")
        connections = []
        for i in range(100):
            connection = http.client.HTTPConnection("127.0.0.1", self.others[i % 3].http_port, timeout=60 * support.PATIENCE)
            body = {**self.salted[i % CLIENTS], "max_tokens": 2000, "stream": i % 4 > 0}
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            connections.append(connection)
        support.wait_until(lambda: sum(support.metric(n, "hearsay_requests_for_peers") for n in self.nodes) > 10, what="work for peers")
        for connection in connections:
            connection.close()
        deadline = time.monotonic() + 30 * support.PATIENCE  # all that was asked for takes minutes
        gauges = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "hearsay_requests_forwarded",
                  "hearsay_requests_for_peers")
        while left := {(n.name, g): v for n in self.nodes for g in gauges if (v := support.metric(n, g))}:
            self.assertLess(time.monotonic(), deadline, f"some time after the last client left: {left}")
            time.sleep(0.05)


if __name__ == "__main__":
    support.main()
