"""hearsay-quantize from the command line, and a node that serves what it wrote."""
import json
import os
import subprocess
import tempfile
import unittest

import support

QUANTIZE = os.path.join(support.BUILD, "tools", "hearsay-quantize")
TINY = os.path.join(support.TOP, "tests", "vectors", "tiny")


def run(*arguments, binary=QUANTIZE):
    done = subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


class Quantize(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="hearsay-quantize-")
        self.addCleanup(self.folder.cleanup)

    def place(self, name):
        return os.path.join(self.folder.name, name)

    def test_bad_usage(self):
        model = os.path.join(TINY, "qwen3.gguf")
        for arguments, texts in ((("--model", model, "--out", self.place("x"), "--method", "gptq"), ["gptq", "rtn"]),
                                 (("--model", model, "--out", self.place("x"), "--group", "16"), ["16", "32", "128"]),
                                 (("--model", model, "--out", self.place("x"), "--bits", "3"), ["3", "4"]),
                                 (("--model", model), ["--out"]), (("--out", "x"), ["--model"])):
            code, out, err = run(*arguments)
            self.assertEqual((code, out), (2, ""), err)
            for text in texts:
                self.assertIn(text, err)
        self.assertEqual(run("--model", self.place("none"), "--out", self.place("x"))[0], 1)
        self.assertEqual(os.listdir(self.folder.name), [])

    def check(self, source, out, *options):
        code, text, err = run("--model", source, "--out", out, *options)
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(text, r"\d+ tensors in 4 bits, \d+ kept, .* relative error 0\.\d+")
        for form, expected in (("auto", r"-native\.\d+\)"), ("16bit", r"-f32\.\d+\)")):
            code, text, err = run("--model", out, "--check", "--http", "127.0.0.1:0", "--bind", "127.0.0.1:0", "--weights", form,
                                  binary=support.BINARY)
            self.assertEqual(code, 0, err)
            self.assertRegex(text, expected)

    def test_file_and_folder(self):
        self.check(os.path.join(TINY, "qwen3.gguf"), self.place("file.gguf"), "--group", "32", "--asym")
        self.check(os.path.join(TINY, "qwen2"), self.place("folder"), "--keep-embedding")

    def test_forms_are_told_apart(self):
        """Two nodes of one model, one with integers, one in 16 bits: --same-bits keeps their work apart, and each answers."""
        out = self.place("served.gguf")
        self.assertEqual(run("--model", os.path.join(TINY, "llama_linear.gguf"), "--out", out, "--quiet"), (0, "", ""))
        group = support.Group(support.BINARY, out, count=2, options=("--same-bits",), node_options={1: ["--weights", "16bit"]})
        self.addCleanup(group.stop)
        for node in group.nodes:
            node.start()
        classes = set()
        for node in group.nodes:
            support.wait_until(node.healthy, 60, "a node that answers")
            support.wait_until(lambda: len(self.cluster(node)["cluster"]["peers"]) == 1, 30, "nodes that know each other")
            self.assertEqual(node.alive_peers(), 0, "routable across arithmetics")
            answer, _ = support.post(node, "/v1/completions", {"prompt": "once upon a time", "max_tokens": 4, "temperature": 0})
            self.assertEqual(len(answer["choices"]), 1)
            classes.add(self.cluster(node)["arithmetic"])
        self.assertEqual(len(classes), 2)
        self.assertEqual(sum("-native." in c for c in classes), 1)
        self.assertEqual([s for s in group.stop() if s not in (0, None)], [])

    def cluster(self, node):
        status, _, data = node.request("GET", "/cluster")
        self.assertEqual(status, 200)
        return json.loads(data)


if __name__ == "__main__":
    support.main()
