"""Two nodes whose datagrams pass through a relay that can lose them: what they believe of each other once the path is mended.

On the null backend, whose prompts cost nothing: behind the cut both sides change all that they hold.
"""
import json
import select
import socket
import statistics
import threading
import time
import unittest

import support

ROUND_S = 0.1  # --gossip-interval's default
CAP_BYTES_PER_S = 1 << 20
PAGES = 2000
SLACK_S = 0.3  # a busy machine, and the looking itself


class Relay:
    """What reaches one of two sockets leaves by the other, to the peer behind it. `lost`: directions that lose all."""

    def __init__(self):
        self.sides = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
        for s in self.sides:
            s.bind(("127.0.0.1", 0))
        self.peers = [None, None]
        self.lost = set()
        self.running = True
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def port(self, side):
        return self.sides[side].getsockname()[1]

    def run(self):
        while self.running:
            for s in select.select(self.sides, [], [], 0.2)[0]:
                side = self.sides.index(s)
                data, self.peers[side] = s.recvfrom(65536)
                if side not in self.lost and self.peers[1 - side]:
                    self.sides[1 - side].sendto(data, self.peers[1 - side])

    def close(self):
        self.running = False
        self.thread.join()
        for s in self.sides:
            s.close()


def only_peer(node):
    peers = json.loads(node.request("GET", "/cluster", timeout=5)[2])["cluster"]["peers"]
    return peers[0] if peers else {"routable": False, "replica": {"blocks": 0}}


class Partition(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.relay = Relay()
        cls.group = support.Group(support.BINARY, support.MODEL, 2,
                                  options=("--backend", "null", "--kv-pages", str(PAGES), "--join", f"127.0.0.1:{cls.relay.port(0)}"))
        a, b = cls.nodes = cls.group.nodes
        for node in cls.nodes:
            # Of all addresses that lead to the other only the relay's is told, and that to one of them.
            at = node.command.index("--join")
            del node.command[at:at + 2]
        at = b.command.index("--join")
        del b.command[at:at + 2]
        cls.relay.peers[1] = ("127.0.0.1", b.fabric_port)
        cls.group.__enter__()

    @classmethod
    def tearDownClass(cls):
        try:
            cls.group.__exit__(None)
        finally:
            cls.relay.close()

    def fill(self, seed):
        """New prompts of 20 pages until nothing of what was before is left."""
        for i, node in enumerate(self.nodes):
            connection = support.KeepAlive(node)
            for k in range(PAGES // 20 + 10):
                head = 100 + (seed * 7919 + i * 104729 + k * 1299709) % 30000
                body = {"prompt": [head] + [200 + (head + j) % 20000 for j in range(330)], "max_tokens": 1, "ignore_eos": True}
                self.assertEqual(connection.post("/v1/completions", body)[0], 200)
            connection.close()

    def are_equal(self):
        a, b = self.nodes
        return all(only_peer(x)["routable"] and only_peer(x)["replica"]["blocks"] == support.metric(y, "hearsay_advertised_blocks") > PAGES / 2
                   for x, y in ((a, b), (b, a)))

    def heal(self, seed, lost, seconds):
        """Seconds from the mending until both believe what is true."""
        support.wait_until(self.are_equal, 10, "equal at first")
        began = time.monotonic()
        self.relay.lost = lost
        self.fill(seed)
        time.sleep(max(0, seconds - (time.monotonic() - began)))
        self.assertFalse(any(only_peer(self.nodes[side])["routable"] for side in (0, 1)), "the cut was noticed")
        self.relay.lost = set()
        mended = time.monotonic()
        support.wait_until(self.are_equal, 20, "equal after the cut")
        return time.monotonic() - mended

    def test_back_within_three_rounds(self):
        self.fill(0)
        took = [self.heal(1, {0, 1}, 20), self.heal(2, {0, 1}, 7), self.heal(3, {1}, 7)]
        print("equal after", [f"{t:.2f} s" for t in took])
        self.assertLess(statistics.median(took), 3 * ROUND_S + (PAGES * 8 + 256 * 32) / CAP_BYTES_PER_S + SLACK_S)


if __name__ == "__main__":
    support.main()
