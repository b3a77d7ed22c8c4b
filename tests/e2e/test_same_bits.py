"""The same tokens and the same log-probabilities alone, after a cache hit, in a batch, forwarded; greedy and seeded.

Log-probabilities travel as decimal text that names each float exactly, so equal text is equal bits.
"""
import concurrent.futures
import os
import unittest

import support

CASES = ({"temperature": 0}, {"temperature": 0.8, "seed": 1234})


class SameBits(unittest.TestCase):
    def reference(self, node, prompt, case):
        text, logprobs, _, _, _ = support.complete(node, prompt, 64, **case)
        return text, logprobs

    def test_alone_cached_batched_forwarded(self):
        with support.Group(support.BINARY, support.MODEL, 2) as group:
            first, second = group.nodes
            prompt = support.tokenize(first, support.story("bits", 420))[:320]
            for case in CASES:
                # cold, under a salt of its own: nothing shared with what follows
                text, logprobs, cached, _, _ = support.complete(first, prompt, 64, cache_salt=f"cold{case}", **case)
                self.assertEqual(cached, 0)
                self.assertEqual(len(logprobs["tokens"]), 64)

                text_again, logprobs_again, cached, _, _ = support.complete(first, prompt, 64, cache_salt=f"cold{case}", **case)
                self.assertGreaterEqual(cached, 304)
                self.assertEqual((text_again, logprobs_again), (text, logprobs), "after a cache hit")

                with concurrent.futures.ThreadPoolExecutor(16) as pool:
                    others = [pool.submit(support.complete, first, support.story(f"other{i}", 60 + 5 * i), 48, temperature=0.7, seed=i) for i in range(15)]
                    mine = pool.submit(support.complete, first, prompt, 64, cache_salt=f"batch{case}", **case)
                    text_batch, logprobs_batch, _, _, _ = mine.result()
                    for other in others:
                        other.result()
                self.assertEqual((text_batch, logprobs_batch), (text, logprobs), "in a batch with 15 others")

    def test_forwarded(self):
        # To the match, whatever it saves: with a small model the cost may speak against it.
        with support.Group(support.BINARY, support.MODEL, 2, options=("--route", "longest")) as group:
            prompt = support.tokenize(group.nodes[0], support.story("forward", 900))[:640]
            for case in CASES:
                salt = f"f{case}"
                text, logprobs, _, by, _ = support.complete(group.nodes[0], prompt, 64, cache_salt=salt, **case)
                other = next(n for n in group.nodes if n.name != by)
                support.wait_until(lambda: support.metric(other, "hearsay_replica_blocks") >= 40, 5, "the peer's replica")
                text_far, logprobs_far, cached, by_far, _ = support.complete(other, prompt, 64, cache_salt=salt, **case)
                self.assertEqual(by_far, by, "not forwarded")
                self.assertGreaterEqual(cached, 624)
                self.assertEqual((text_far, logprobs_far), (text, logprobs))

    def test_chunks_and_threads(self):
        """A lone node each: whole prompt in one step, chunks of 128, 7 and 1, one thread and two."""
        both = f"0-{min(1, (os.cpu_count() or 1) - 1)}"
        answers = {}
        for options in (("--cpus", both), ("--cpus", "0"), *(("--cpus", both, "--max-batch-tokens", n) for n in ("512", "128", "7", "1"))):
            with support.Group(support.BINARY, support.MODEL, 1, options=options) as group:
                prompt = support.tokenize(group.nodes[0], support.story("chunks", 240))[:190]
                answers[options] = [self.reference(group.nodes[0], prompt, case) for case in CASES]
        first = next(iter(answers.values()))
        for options, answer in answers.items():
            self.assertEqual(answer, first, options)


if __name__ == "__main__":
    support.main()
