"""The unmodified OpenAI Python client against a group of two nodes."""
import json
import unittest

import support

try:
    import openai
except ImportError:
    support.skip("the openai package is missing; tests/run installs it")


class OpenAIClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.group = support.Group(support.BINARY, support.MODEL, 2)
        cls.group.__enter__()
        cls.clients = [openai.OpenAI(base_url=node.url + "/v1", api_key="unused", max_retries=0) for node in cls.group.nodes]
        cls.client = cls.clients[0]
        cls.model = cls.client.models.list().data[0].id

    @classmethod
    def tearDownClass(cls):
        cls.group.stop()

    def chat(self, text, client=None, **kwargs):
        kwargs = {"max_tokens": 24, "temperature": 0, **kwargs}
        return (client or self.client).chat.completions.create(model=self.model, messages=[{"role": "user", "content": text}], **kwargs)

    def test_chat(self):
        answer = self.chat("What is the capital of France?")
        self.assertIn("Paris", answer.choices[0].message.content)
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertIn(answer.choices[0].finish_reason, ("stop", "length"))
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)
        self.assertEqual(answer.model, self.model)

    def test_chat_stream_equals_whole(self):
        whole = self.chat("Name three colours.")
        text, roles, reason, usage = "", [], None, None
        for chunk in self.chat("Name three colours.", stream=True, stream_options={"include_usage": True}):
            if chunk.usage:
                usage = chunk.usage
                self.assertEqual(chunk.choices, [])
                continue
            delta = chunk.choices[0].delta
            text += delta.content or ""
            roles += [delta.role] if delta.role else []
            reason = chunk.choices[0].finish_reason or reason
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(roles, ["assistant"])
        self.assertEqual(reason, whole.choices[0].finish_reason)
        self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)
        self.assertEqual(usage.prompt_tokens, whole.usage.prompt_tokens)

    def test_completion_and_stream(self):
        kwargs = dict(model=self.model, prompt="Once upon a time", max_tokens=20, temperature=0)
        whole = self.client.completions.create(**kwargs)
        text = "".join(c.choices[0].text for c in self.client.completions.create(stream=True, **kwargs))
        self.assertEqual(text, whole.choices[0].text)
        self.assertEqual(whole.usage.completion_tokens, 20)
        self.assertEqual(whole.choices[0].finish_reason, "length")

    def test_prompt_forms(self):
        node = self.group.nodes[0]
        ids = support.tokenize(node, "The moon is")
        by_text = self.client.completions.create(model=self.model, prompt="The moon is", max_tokens=8, temperature=0)
        by_ids = self.client.completions.create(model=self.model, prompt=ids, max_tokens=8, temperature=0)
        several = self.client.completions.create(model=self.model, prompt=["The moon is", "The sun is"], max_tokens=8, temperature=0)
        self.assertEqual(by_text.choices[0].text, by_ids.choices[0].text)
        self.assertEqual([c.index for c in several.choices], [0, 1])
        self.assertEqual(several.choices[0].text, by_text.choices[0].text)

    def test_stop(self):
        plain = self.client.completions.create(model=self.model, prompt="1 2 3 4 5 6", max_tokens=24, temperature=0).choices[0].text
        stop = plain.strip().split()[3]
        at = plain.index(stop)
        for stream in (False, True):
            answer = self.client.completions.create(model=self.model, prompt="1 2 3 4 5 6", max_tokens=24, temperature=0, stop=[stop], stream=stream)
            if stream:
                chunks = list(answer)
                text, reason = "".join(c.choices[0].text for c in chunks), [c.choices[0].finish_reason for c in chunks][-1]
            else:
                text, reason = answer.choices[0].text, answer.choices[0].finish_reason
            self.assertEqual(text, plain[:at])
            self.assertEqual(reason, "stop")

    def test_seed(self):
        def draw(seed, client=None):
            return self.chat("Tell me a story about a fox.", client, temperature=0.9, seed=seed).choices[0].message.content
        self.assertEqual(draw(7), draw(7, self.clients[1]))
        self.assertGreater(len({draw(s) for s in range(4)}), 1)

    def test_n(self):
        answer = self.chat("Say something.", n=3, temperature=1.0, seed=11)
        self.assertEqual(sorted(c.index for c in answer.choices), [0, 1, 2])
        texts = {c.message.content for c in answer.choices}
        self.assertGreater(len(texts), 1)
        one = self.chat("Say something.", n=1, temperature=1.0, seed=11)
        self.assertEqual(one.choices[0].message.content, [c for c in answer.choices if c.index == 0][0].message.content)

    def test_logprobs(self):
        answer = self.chat("What is two plus two?", logprobs=True, top_logprobs=4)
        entries = answer.choices[0].logprobs.content
        self.assertEqual(len(entries), answer.usage.completion_tokens - (answer.choices[0].finish_reason == "stop"))
        for entry in entries:
            self.assertEqual(len(entry.top_logprobs), 4)
            self.assertLessEqual(entry.logprob, 0)
            # Greedy: the token chosen is the likeliest.
            self.assertEqual(entry.top_logprobs[0].token, entry.token)
            self.assertEqual(entry.top_logprobs[0].logprob, entry.logprob)
            self.assertEqual(bytes(entry.bytes).decode(errors="replace"), entry.token)

    def test_streamed_choices_and_logprobs_elsewhere(self):
        """Two seeded choices, whole from one node and streamed from the other: the same text, tokens and log-probabilities."""
        kwargs = dict(model=self.model, prompt="The sea is", max_tokens=20, temperature=0.8, seed=5, n=2, logprobs=2)
        whole = self.client.completions.create(**kwargs)
        texts, tokens = ["", ""], [[], []]
        for chunk in self.clients[1].completions.create(stream=True, **kwargs):
            for choice in chunk.choices:
                texts[choice.index] += choice.text
                if choice.logprobs:
                    tokens[choice.index] += zip(choice.logprobs.tokens, choice.logprobs.token_logprobs)
        for choice in whole.choices:
            self.assertEqual(texts[choice.index], choice.text)
            self.assertEqual(tokens[choice.index], list(zip(choice.logprobs.tokens, choice.logprobs.token_logprobs)))
        self.assertNotEqual(texts[0], texts[1])

    def test_completion_logprobs_and_echo(self):
        answer = self.client.completions.create(model=self.model, prompt="The quick brown fox", max_tokens=4, temperature=0, logprobs=3, echo=True)
        choice = answer.choices[0]
        self.assertTrue(choice.text.startswith("The quick brown fox"))
        self.assertEqual("".join(choice.logprobs.tokens), choice.text)
        self.assertIsNone(choice.logprobs.token_logprobs[0])
        self.assertTrue(all(p <= 0 for p in choice.logprobs.token_logprobs[1:]))
        self.assertEqual(choice.logprobs.text_offset[0], 0)

    def test_errors(self):
        with self.assertRaises(openai.NotFoundError):
            self.client.completions.create(model="no-such-model", prompt="x", max_tokens=1)
        for fields, name in (({"temperature": 9.0}, "temperature"), ({"max_tokens": -1}, "max_tokens"), ({"top_p": 1.5}, "top_p"), ({"n": 0}, "n")):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.chat("x", **fields)
            self.assertEqual(caught.exception.param, name)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat("word " * 9000)
        self.assertEqual(caught.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.BadRequestError):
            self.chat("x", tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}])

    def test_error_shape_and_request_id(self):
        node = self.group.nodes[0]
        status, headers, body = node.request("POST", "/v1/completions", b"{", headers={"x-request-id": "abc-1"})
        self.assertEqual(status, 400)
        self.assertEqual(headers["x-request-id"], "abc-1")
        self.assertEqual(set(json.loads(body)["error"]), {"message", "type", "param", "code"})
        self.assertEqual(node.request("GET", "/nowhere")[0], 404)


if __name__ == "__main__":
    support.main()
