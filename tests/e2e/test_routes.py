"""--route none, longest and cost."""
import http.client
import json
import unittest

import support


def head(node, seed, n=800):
    return support.tokenize(node, support.story(seed, 1200))[:n]


def busy(node, number):
    """A client whose answer takes minutes."""
    client = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=120)
    body = {"prompt": support.story(f"busy{number}", 40), "max_tokens": 8000, "ignore_eos": True, "cache_salt": str(number)}
    client.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    return client


class Routes(unittest.TestCase):
    def test_none_stays_local(self):
        with support.Group(support.BINARY, support.MODEL, 2, options=("--route", "none")) as group:
            a, b = group.nodes
            prompt = head(a, "none")
            spread = support.Spread(group.nodes)
            text, _, _, by, _ = support.complete(a, prompt)
            self.assertEqual(by, a.name)
            spread.wait(by, 50)
            text_b, _, cached, by, _ = support.complete(b, prompt)
            self.assertEqual((by, cached), (b.name, 0))
            self.assertEqual(text_b, text)

    def test_longest_goes_to_the_match(self):
        with support.Group(support.BINARY, support.MODEL, 2, options=("--route", "longest")) as group:
            a, b = group.nodes
            prompt = head(a, "longest")
            spread = support.Spread(group.nodes)
            text, _, _, by, _ = support.complete(a, prompt)
            self.assertEqual(by, a.name, "no match anywhere: local")
            spread.wait(by, 50)
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
            spread = support.Spread(group.nodes)
            support.complete(a, prompt, 4)
            spread.wait(a.name, 50)
            # Answers longer than any test waits for: their clients leave when it is over.
            clients = [busy(a, i) for i in range(4)]
            try:
                support.wait_until(lambda: support.cluster(b)["peers"][0]["load"]["waiting"] >= 2, what="the queue at the holder is known")
                _, _, _, by, _ = support.complete(b, prompt, 4)
                self.assertEqual(by, b.name)
            finally:
                for client in clients:
                    client.close()

    def test_cost_goes_to_the_cache(self):
        with support.Group(support.BINARY, support.MODEL, 2, options=("--route", "cost")) as group:
            a, b = group.nodes
            prompt = head(a, "cost")
            spread = support.Spread(group.nodes)
            text, _, _, by, _ = support.complete(a, prompt)
            holder = a if by == a.name else b
            other = b if holder is a else a
            spread.wait(by, 50)
            text_far, _, cached, by, _ = support.complete(other, prompt)
            self.assertEqual(by, holder.name)
            self.assertGreaterEqual(cached, 760)
            self.assertEqual(text_far, text)


if __name__ == "__main__":
    support.main()
