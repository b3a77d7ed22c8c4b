"""Prefixes are found in cache wherever a request enters; salts keep apart; a chat keeps its history."""
import unittest

import support


class Cache(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.group = support.Group(support.BINARY, support.MODEL, 4)
        cls.group.__enter__()
        cls.nodes = cls.group.nodes

    @classmethod
    def tearDownClass(cls):
        cls.group.stop()

    def thousand(self, seed):
        ids = support.tokenize(self.nodes[0], support.story(seed, 1400))
        self.assertGreaterEqual(len(ids), 1000)
        return ids[:1000]

    def test_same_answer_and_cached_prefix_from_every_entry(self):
        head = self.thousand("head")
        tail = support.tokenize(self.nodes[0], " In the end, the old sailor said:")
        spread = support.Spread(self.nodes)
        text, logprobs, cached, computed_by, _ = support.complete(self.nodes[0], head + tail)
        self.assertLess(cached, 50)
        spread.wait(computed_by, 60)
        for node in self.nodes[1:] + self.nodes[:1]:
            again, logprobs_again, cached, by, _ = support.complete(node, head + tail)
            self.assertEqual(again, text)
            self.assertEqual(logprobs_again, logprobs, f"entry {node.name}, computed by {by}, first by {computed_by}")
            self.assertGreaterEqual(cached, 950, f"entry {node.name}, computed by {by}, first by {computed_by}")

    def test_another_salt_finds_nothing(self):
        prompt = self.thousand("salt")
        spread = support.Spread(self.nodes)
        text, logprobs, _, computed_by, _ = support.complete(self.nodes[0], prompt, cache_salt="a")
        spread.wait(computed_by, 62)
        for node, salt, expected in ((self.nodes[1], "a", True), (self.nodes[2], "b", False), (self.nodes[3], None, False)):
            fields = {"cache_salt": salt} if salt else {}
            again, logprobs_again, cached, _, _ = support.complete(node, prompt, **fields)
            self.assertEqual((again, logprobs_again), (text, logprobs))
            if expected:
                self.assertGreaterEqual(cached, 950)
            else:
                self.assertEqual(cached, 0)

    def test_six_turns_at_changing_entries(self):
        messages = [{"role": "system", "content": "You are a story teller. " + support.story("chat", 650)}]
        history = 0
        for turn in range(6):
            node = self.nodes[turn % len(self.nodes)]
            messages.append({"role": "user", "content": f"Question {turn + 1}: what did the {support.WORDS[turn]} do next?"})
            spread = support.Spread(self.nodes)
            answer, headers = support.post(node, "/v1/chat/completions", {"messages": messages, "max_tokens": 40, "temperature": 0})
            usage = answer["usage"]
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            if turn > 0:
                self.assertGreaterEqual(history, 600)
                whole_pages = history // 16 * 16
                self.assertGreaterEqual(cached, 0.9 * whole_pages,
                                        f"turn {turn + 1} at {node.name}: {cached} of {history}, computed by {headers['x-hearsay-node']}")
            messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
            history = usage["prompt_tokens"] + usage["completion_tokens"]
            spread.wait(headers["x-hearsay-node"], (history - 1) // 16 - -(-cached // 16))


if __name__ == "__main__":
    support.main()
