"""Kill -9 of the node that computes, entry elsewhere: the client's stream goes on with exactly the undisturbed tokens."""
import unittest

import support


class Takeover(unittest.TestCase):
    def run_case(self, fields):
        """The kill must meet an answer under way: where nodes are quicker than this client, answers get longer."""
        for tokens in (200, 600, 1800):
            if self.was_taken_over(fields, tokens):
                return
        self.fail("every answer was over before the kill")

    def was_taken_over(self, fields, n):
        with support.Group(support.BINARY, support.MODEL, 4) as group:
            nodes = group.nodes
            prompt = support.tokenize(nodes[0], support.story("takeover", 1400))[:1000]
            body = {"prompt": prompt, "max_tokens": n, "ignore_eos": True, "logprobs": 1, "stream_options": {"include_usage": True}, **fields}
            # The undisturbed run, which also leaves the prefix at the node that computed it.
            plain, headers = support.post(nodes[0], "/v1/completions", {k: v for k, v in body.items() if k != "stream_options"})
            expected, expected_tokens = plain["choices"][0]["text"], plain["choices"][0]["logprobs"]
            holder = next(n for n in nodes if n.name == headers["x-hearsay-node"])
            entry = next(n for n in nodes if n is not holder)
            support.wait_until(lambda: support.peer_blocks(entry, holder.name) >= 60, what="the entry's replica of the holder")

            text, tokens, killed, usage = "", {"tokens": [], "token_logprobs": []}, False, None
            for headers, event in support.stream(entry, "/v1/completions", body):
                if event is None:
                    break
                self.assertNotIn("error", event)
                usage = event.get("usage") or usage
                for choice in event["choices"]:
                    text += choice["text"]
                    for name, list_ in tokens.items():
                        list_ += choice["logprobs"][name] if choice["logprobs"] else []
                if len(tokens["tokens"]) >= 10 and not killed:
                    self.assertEqual(headers["x-hearsay-node"], holder.name, "the entry computed it itself: nothing to take over")
                    holder.kill()
                    killed = True
            self.assertTrue(killed)
            self.assertEqual(text, expected)
            for name, list_ in tokens.items():
                self.assertEqual(list_, expected_tokens[name], name)
            self.assertEqual((len(tokens["tokens"]), usage["completion_tokens"]), (n, n))
            taken_over = support.metric(entry, "hearsay_takeovers_total")
            self.assertLessEqual(taken_over, 1)
            holder.process.wait()
            for node in nodes:
                if node is not holder:
                    support.wait_until(lambda: support.metric(node, "vllm:num_requests_running") == 0, 10, f"{node.name} idle")
            return taken_over == 1

    def test_greedy(self):
        self.run_case({"temperature": 0})

    def test_seeded(self):
        self.run_case({"temperature": 0.8, "seed": 99})


if __name__ == "__main__":
    support.main()
