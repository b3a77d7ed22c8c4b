"""Two nodes over soft-RoCE: what one has cached becomes known at the other by one-sided reads, without a question. Runs inside the virtual
machine of tests/lab/vm (tests/lab/verbs-test reads).
"""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "e2e"))
import support  # noqa: E402

OPTIONS = ("--backend", "null", "--kv-pages", "4096", "--route", "none")
PROMPTS, TOKENS = 8, 400


def requests_served(device):
    """RDMA packets that the device took as a responder: reads of its memory are among them, its host's program sees none of those."""
    with open(f"/sys/class/infiniband/{device}/ports/1/hw_counters/rcvd_pkts") as f:
        return int(f.read())


class Reads(unittest.TestCase):
    def test_a_newcomer_reads_all_of_it(self):
        with support.Group(support.BINARY, support.MODEL, 2, options=OPTIONS) as group:
            origin, reader = group.nodes
            for i in range(PROMPTS):
                ids = [(i * 7919 + k * 31) % 1000 + 10 for k in range(TOKENS)]
                support.complete(origin, ids, 1)
            expected = PROMPTS * (TOKENS // 16)
            support.wait_until(lambda: support.metric(origin, "hearsay_advertised_blocks") >= expected, 5, "the gauge, which is set once a second")
            blocks = support.metric(origin, "hearsay_advertised_blocks")
            support.wait_until(lambda: support.metric(reader, "hearsay_replica_blocks") == blocks, 20, "all known at the reader")
            reader.kill()
            reader.process.wait()
            reader.start()
            support.wait_until(reader.healthy, 30, "the reader is back")
            packets = requests_served("rxe0")
            support.wait_until(lambda: support.metric(reader, "hearsay_replica_blocks") == blocks, 30, "all known at the reader again")
            self.assertGreater(requests_served("rxe0"), packets)
            for node in group.nodes:
                for question in ("pulls", "manifests", "pages"):
                    self.assertEqual(support.metric(node, f"hearsay_gossip_{question}_total"), 0, f"{node.name}: {question}")
            seen = {name: support.metric(reader, name) for name in (
                "hearsay_digest_reads_total", "hearsay_digest_read_bytes_total", "hearsay_digest_read_failures_total", "hearsay_verbs_reads_total")}
            print(f"{blocks:.0f} blocks; {seen}", file=sys.stderr)
            self.assertGreaterEqual(seen["hearsay_digest_read_bytes_total"], 8 * blocks)
            self.assertGreaterEqual(seen["hearsay_verbs_reads_total"], 2)
            self.assertEqual(seen["hearsay_digest_read_failures_total"], 0)


if __name__ == "__main__":
    support.main()
