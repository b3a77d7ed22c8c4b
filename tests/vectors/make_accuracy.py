#!/usr/bin/env python3
"""Makes accuracy.json: what `hearsay-perf accuracy` has to find over a short text with the tiny models.

    python3 make_accuracy.py        writes accuracy.json and tiny/llama3_coarse.gguf, tiny/llama3.gguf with its matrices rounded

Needs numpy, gguf and tokenizers. Logits come from reference.py, token ids from `tokenizers`; log-softmax, perplexity, Kullback-Leibler
divergence and cosine are written here from their definitions, in double precision. The text is cut into sequences of `context` tokens,
each run for itself; where `begin` says so, behind the begin token, whose prediction counts, too.
"""
import json
import os
import shutil

import gguf
import numpy as np
from tokenizers import Tokenizer

import reference

HERE = os.path.dirname(os.path.abspath(__file__))
TEXT = ("The herder led the hens there: in the inner thicket they ate, then the other herders came, in winter, with their lanterns.\n\n"
        "Whether 42 hens or 7, says the \"Third Letter\", the thinner the ice the braver the hen; café, naïve, Ærø.\n")
CASES = [  # model, reference, context, sequences (0: all), begin token
    ("llama3_coarse", "llama3", 48, 0, False),
    ("qwen2", "qwen3", 30, 2, True),
]


def write_coarse(path, source):
    """Matrices of n/256 or n/64 to multiples of 1/64 and 1/16, which BF16 holds."""
    shutil.copyfile(source, path)
    for tensor in gguf.GGUFReader(path, "r+").tensors:
        if tensor.tensor_type == gguf.GGMLQuantizationType.BF16:
            values = gguf.dequantize(tensor.data, tensor.tensor_type)
            unit = 2.0 ** np.round(np.log2(np.abs(values).max())) / 32
            rounded = (np.rint(values / unit) * unit).astype("<f4")
            tensor.data[...] = (rounded.view(np.uint32) >> 16).astype("<u2").view(np.uint8).reshape(tensor.data.shape)


def log_softmax(logits):
    x = logits.astype(np.float64)
    top = x.max(axis=-1, keepdims=True)
    return x - top - np.log(np.exp(x - top).sum(axis=-1, keepdims=True))


def score(name, sequences, begin):
    """Logits in front of each scored token, [scored][n_vocab], and the scored tokens."""
    model = reference.Model(*reference.load_gguf(f"{HERE}/tiny/{name}.gguf"))
    logits, targets = [], []
    for tokens in sequences:
        history = [begin] * (begin is not None) + tokens
        model.reset()
        logits.append(model.forward(history[:-1]))
        targets += history[1:]
    return np.concatenate(logits), targets


def case(name, against, context, n_sequences, begins):
    tokenizer = Tokenizer.from_file(f"{HERE}/tiny/{name.removesuffix('_coarse')}/tokenizer.json")
    ids = tokenizer.encode(TEXT, add_special_tokens=False).ids
    assert ids == Tokenizer.from_file(f"{HERE}/tiny/{against}/tokenizer.json").encode(TEXT, add_special_tokens=False).ids
    sequences = [ids[at:at + context] for at in range(0, len(ids), context)][:n_sequences or None]
    begin = tokenizer.token_to_id("<|endoftext|>") if begins else None
    logits, targets = score(name, sequences, begin)
    other, _ = score(against, sequences, begin)
    log_p, log_q = log_softmax(logits), log_softmax(other)
    rows = np.arange(len(targets))
    loss, divergence = -log_p[rows, targets], (np.exp(log_q) * (log_q - log_p)).sum(axis=-1)
    a, b = logits.astype(np.float64), other.astype(np.float64)
    cosine = (a * b).sum(axis=-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
    each = np.cumsum([len(s) - 1 + begins for s in sequences])[:-1]
    perplexities = [float(np.exp(part.mean())) for part in np.split(loss, each)]
    return {"model": name, "against": against, "context": context, "sequences": n_sequences, "begin": begins, "n": len(targets),
            "n_sequences": len(sequences), "perplexity": float(np.exp(loss.mean())), "least_perplexity": min(perplexities),
            "most_perplexity": max(perplexities), "reference_perplexity": float(np.exp(-log_q[rows, targets].mean())),
            "most_loss": float(loss.max()), "divergence": float(divergence.mean()), "most_divergence": float(divergence.max()),
            "same_percent": float(100 * (logits.argmax(axis=-1) == other.argmax(axis=-1)).mean()), "least_cosine": float(cosine.min())}


def main():
    write_coarse(f"{HERE}/tiny/llama3_coarse.gguf", f"{HERE}/tiny/llama3.gguf")
    with open(f"{HERE}/accuracy.json", "w", encoding="utf-8") as f:
        json.dump({"text": TEXT, "cases": [case(*c) for c in CASES]}, f, indent=1, ensure_ascii=False)
        f.write("\n")


main()
