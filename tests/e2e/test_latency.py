"""What forwarding costs: the same request sent straight to the node that holds its prefix, and through another node.

The null backend answers at once, so all that is seen is the way there and back. Medians over many requests, taken in turns, so that
whatever else the machine does meets both alike.
"""
import json
import socket
import statistics
import time
import unittest

import support


class Connection:
    """Sends whole requests and reads whole answers with as little of its own as Python allows."""

    def __init__(self, node):
        self.socket = socket.create_connection(("127.0.0.1", node.http_port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request, streams):
        """(seconds, bytes of the answer)"""
        began = time.perf_counter()
        self.socket.sendall(request)
        answer = b""
        while not self.whole(answer, streams):
            data = self.socket.recv(65536)
            if not data:
                raise AssertionError(f"closed after {answer!r}")
            answer += data
        return time.perf_counter() - began, answer

    @staticmethod
    def whole(answer, streams):
        if streams:
            return answer.endswith(b"\r\n0\r\n\r\n")
        head, found, body = answer.partition(b"\r\n\r\n")
        return bool(found) and len(body) >= int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])


def request(ids, max_tokens, streams):
    body = json.dumps({"prompt": ids, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "stream": streams}).encode()
    return b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body


class Latency(unittest.TestCase):
    ROUNDS = 600
    GOAL_S = 100e-6  # what a machine of its own shows; not asked of a busy one
    STALL_S = 20e-3  # half of a delayed acknowledgement, a fifth of a loop asleep until the next gossip; less is the machine's own doing
    TRIES = 6

    def test_forwarding(self):
        options = ("--backend", "null", "--route", "longest", "--kv-pages", "1024")
        with support.Group(support.BINARY, support.MODEL, 2, options=options) as g:
            entry, holder = g.nodes
            ids = list(range(100, 228))
            support.complete(holder, ids)
            support.wait_until(lambda: support.metric(entry, "hearsay_replica_blocks") >= 7, 5, "the replica")
            for streams in (False, True):
                # On a machine that others use too the difference is noise at times: the best of a few tries is shown.
                added = self.measure(entry, holder, request(ids, 1, streams), streams)
                for _ in range(self.TRIES - 1):
                    if added[0] <= self.GOAL_S:
                        break
                    added = min(added, self.measure(entry, holder, request(ids, 1, streams), streams))
                print(f"{'streamed' if streams else 'whole'}: straight {added[1] * 1e6:.0f} us, forwarded {added[2] * 1e6:.0f} us, "
                      f"added {added[0] * 1e6:.0f} us at p50", flush=True)
                self.assertLessEqual(added[0], self.STALL_S)

    def measure(self, entry, holder, data, streams):
        far, near = Connection(entry), Connection(holder)
        times = {far: [], near: []}
        for _ in range(self.ROUNDS):
            for connection in (near, far):
                seconds, answer = connection.ask(data, streams)
                self.assertIn(b"x-hearsay-node: " + holder.name.encode(), answer.lower())
                times[connection].append(seconds)
        straight, forwarded = statistics.median(times[near]), statistics.median(times[far])
        far.socket.close()
        near.socket.close()
        return forwarded - straight, straight, forwarded


if __name__ == "__main__":
    support.main()
