"""Writer of the logits vector files (*.hslv) that logits_vectors.h reads. Little-endian:

    "HSLV"  u32 version = 1
    u32 n_vocab   u32 n_top   u32 n_prompts
    u64 bytes of the model file   u8[32] its SHA-256       (zeros for folders)
    per prompt:
        u32 n_tokens   u32 n_greedy
        u32 tokens[n_tokens]
        u32 greedy[n_greedy]     the tokens that follow when the largest logit is always taken (end-of-text ignored)
        f32 gap[n_greedy]        largest minus second largest logit where each was chosen
        per token of the prompt, the logits behind it:
            f32 norm             Euclidean, over the whole vocabulary
            f32 sketch[64]       sum over ids t of (+ or - logit[t]); the sign of entry j is bit j of mix(t): 1 is plus
            u32 id[n_top]        of the largest logits, largest first
            f32 logit[n_top]

mix(t) is splitmix64's output for the state t. The sketch stands for the whole row: for another row's sketch, the mean over j
of the squared differences estimates the squared distance between the rows, with a relative deviation of sqrt(2/64), so the cosine
of whole rows can be held to 1e-4 without storing them.
"""

import hashlib
import os
import struct

import numpy as np


def mix(t):
    z = (np.asarray(t, np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def sketch(rows):
    bits = mix(np.arange(rows.shape[1]))[:, None] >> np.arange(64, dtype=np.uint64)[None, :] & np.uint64(1)
    return (rows.astype(np.float64) @ (bits.astype(np.float64) * 2 - 1)).astype("<f4")


def greedy(model, logits, n):
    """n tokens and gaps behind the last row of logits; the model holds the prompt."""
    row, tokens, gaps = logits[-1], [], []
    for _ in range(n):
        token = int(row.argmax())
        second, first = np.partition(row, -2)[-2:]
        tokens.append(token)
        gaps.append(float(first - second))
        row = model.forward([token])[-1]
    return tokens, gaps


def write(path, model, prompts, n_greedy, n_top=64, model_path=None):
    """prompts: lists of token ids. Returns the smallest gap of each."""
    n_top = min(n_top, model.c.n_vocab)
    size, digest = 0, bytes(32)
    if model_path:
        size = os.path.getsize(model_path)
        with open(model_path, "rb") as f:
            hasher = hashlib.sha256()
            while block := f.read(1 << 20):
                hasher.update(block)
            digest = hasher.digest()
    out = [b"HSLV", struct.pack("<4IQ", 1, model.c.n_vocab, n_top, len(prompts), size), digest]
    smallest = []
    for tokens in prompts:
        model.reset()
        logits = model.forward(tokens)
        follow, gaps = greedy(model, logits, n_greedy)
        smallest.append(min(gaps))
        out.append(struct.pack("<2I", len(tokens), n_greedy))
        out += [np.array(tokens, "<u4").tobytes(), np.array(follow, "<u4").tobytes(), np.array(gaps, "<f4").tobytes()]
        for row, entry in zip(logits, sketch(logits)):
            top = np.argsort(-row, kind="stable")[:n_top]
            out += [np.array([np.linalg.norm(row.astype(np.float64))], "<f4").tobytes(), entry.tobytes(),
                    top.astype("<u4").tobytes(), row[top].astype("<f4").tobytes()]
    with open(path, "wb") as f:
        f.write(b"".join(out))
    return smallest
