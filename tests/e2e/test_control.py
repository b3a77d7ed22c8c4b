"""hearsay-ctl against a running group, metrics, clean ends."""
import json
import subprocess
import threading
import unittest

import support


def ctl(node, *args):
    done = subprocess.run([support.CTL, f"127.0.0.1:{node.http_port}", *args], capture_output=True, text=True, timeout=30)
    return done.returncode, done.stdout, done.stderr


class Control(unittest.TestCase):
    def seen_running(self, a, b, prompt):
        """A request under way, in a thread, and where its text will be. Nodes may be quick and we slow: then the answer gets longer."""
        for tokens in (200, 800, 3200):
            text = []
            runner = threading.Thread(target=lambda: text.append(support.complete(a, prompt, tokens)[0]))
            runner.start()
            while runner.is_alive():
                if any(support.metric(n, "vllm:num_requests_running") > 0 for n in (a, b)):
                    return runner, text
            runner.join()
        self.fail("no request was ever seen running")

    def test_ctl_metrics_and_end(self):
        group = support.Group(support.BINARY, support.MODEL, 2)
        with group:
            a, b = group.nodes
            prompt = support.tokenize(a, support.story("control", 300))[:200]
            _, _, _, by, _ = support.complete(a, prompt)
            holder = a if by == a.name else b

            code, out, _ = ctl(a, "status")
            self.assertEqual(code, 0)
            self.assertIn(a.name, out)
            code, out, _ = ctl(a, "peers")
            self.assertEqual(code, 0)
            self.assertIn(b.name, out)
            self.assertEqual(json.loads(ctl(a, "peers", "--json")[1])[0]["name"], b.name)
            self.assertEqual(ctl(holder, "tree")[0], 0)
            self.assertGreater(support.metric(holder, "vllm:prompt_tokens_total"), 0)

            # flush: nothing is found any more
            self.assertEqual(ctl(a, "flush")[0], 0)
            self.assertEqual(ctl(b, "flush")[0], 0)
            _, _, cached, _, _ = support.complete(a, prompt)
            self.assertEqual(cached, 0)

            # drain: what runs is finished, new work is refused, the peer computes for others
            runner, text = self.seen_running(a, b, prompt)
            self.assertEqual(ctl(a, "drain")[0], 0)
            self.assertEqual(a.request("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1})[0], 503)
            self.assertEqual(a.request("GET", "/health")[0], 503)
            runner.join()
            self.assertEqual(len(text), 1)
            _, _, _, by, _ = support.complete(b, prompt)
            self.assertEqual(by, b.name)
            self.assertEqual(ctl(a, "undrain")[0], 0)
            support.wait_until(a.healthy, 5, "health after undrain")
        self.assertEqual([n.process.returncode for n in group.nodes], [0, 0])
        for node in group.nodes:
            self.assertNotIn(" error ", node.log())


if __name__ == "__main__":
    support.main()
