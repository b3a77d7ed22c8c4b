"""--route none, longest and cost."""
import concurrent.futures
import time
import unittest

import support


def head(node, seed, n=800):
    return support.tokenize(node, support.story(seed, 1200))[:n]


class Routes(unittest.TestCase):
    def test_none_stays_local(self):
        with support.Group(support.BINARY, support.MODEL, 2, options=("--route", "none")) as group:
            a, b = group.nodes
            prompt = head(a, "none")
            text, _, _, by, _ = support.complete(a, prompt)
            self.assertEqual(by, a.name)
            time.sleep(1)
            text_b, _, cached, by, _ = support.complete(b, prompt)
            self.assertEqual((by, cached), (b.name, 0))
            self.assertEqual(text_b, text)

    def test_longest_goes_to_the_match(self):
        with support.Group(support.BINARY, support.MODEL, 2, options=("--route", "longest")) as group:
            a, b = group.nodes
            prompt = head(a, "longest")
            text, _, _, by, _ = support.complete(a, prompt)
            self.assertEqual(by, a.name, "no match anywhere: local")
            time.sleep(1)
            text_b, _, cached, by, _ = support.complete(b, prompt)
            self.assertEqual(by, a.name)
            self.assertGreaterEqual(cached, 760)
            self.assertEqual(text_b, text)

    def test_longest_is_pushed_back(self):
        """With the holder's queue at the push-back depth, requests stay local though the match is remote."""
        options = ("--route", "longest", "--push-back", "1", "--max-sequences", "1")
        with support.Group(support.BINARY, support.MODEL, 2, options=options) as group:
            a, b = group.nodes
            prompt = head(a, "pushed")
            support.complete(a, prompt, 4)
            time.sleep(1)
            with concurrent.futures.ThreadPoolExecutor(6) as pool:
                busy = [pool.submit(support.complete, a, support.story(f"busy{i}", 40), 300, cache_salt=str(i)) for i in range(4)]
                support.wait_until(lambda: support.metric(a, "vllm:num_requests_waiting") >= 2, 10, "a queue at the holder")
                time.sleep(0.5)
                _, _, _, by, _ = support.complete(b, prompt, 4)
                self.assertEqual(by, b.name)
                for one in busy:
                    one.result()

    def test_cost_goes_to_the_cache(self):
        with support.Group(support.BINARY, support.MODEL, 2, options=("--route", "cost")) as group:
            a, b = group.nodes
            prompt = head(a, "cost")
            text, _, _, by, _ = support.complete(a, prompt)
            holder = a if by == a.name else b
            other = b if holder is a else a
            time.sleep(1)
            text_far, _, cached, by, _ = support.complete(other, prompt)
            self.assertEqual(by, holder.name)
            self.assertGreaterEqual(cached, 760)
            self.assertEqual(text_far, text)


if __name__ == "__main__":
    support.main()
