#!/usr/bin/env python3
"""Writes tests/vectors/sampling.json: what sampling must choose, computed the slow and obvious way.

    python3 tests/vectors/make_sampling_vectors.py > tests/vectors/sampling.json

Penalties follow their definitions: repetition (CTRL, arXiv 1909.05858) over prompt and answer, presence and frequency (OpenAI's API
reference) over the answer. top-k keeps exactly k, the lower id first among equals; top-p keeps the smallest set of the likeliest
tokens that reaches p; min-p keeps what has at least that share of the likeliest's probability. Noise: Philox4x32-10 (Salmon et al.,
SC'11), checked here against a known answer of the Random123 distribution. Needs numpy.
"""
import json
import math

import numpy as np

M32 = 0xFFFFFFFF
N_VOCAB = 50
N_DRAWS = 12


def philox(key, counter):
    k0, k1 = key
    c = list(counter)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k0, p1 & M32, (p0 >> 32) ^ c[3] ^ k1, p0 & M32]
        k0, k1 = (k0 + 0x9E3779B9) & M32, (k1 + 0xBB67AE85) & M32
    return c


def noise(seed, choice, position, token):
    bits = philox((seed & M32, seed >> 32), (token // 4, position, choice, 0))[token % 4]
    return float(np.float32(-math.log(-math.log((bits + 0.5) / 2**32))))


def adjust(logits, case):
    x = logits.astype(np.float32).copy()
    history, n_prompt = case["history"], case["n_prompt"]
    answer = history[n_prompt:]
    for token, bias in case["bias"]:
        x[token] += np.float32(bias)
    if len(answer) < case["min_tokens"]:
        for token in case["stop_ids"]:
            x[token] = -np.inf
    r = np.float32(case["repetition_penalty"])
    for token in set(history):
        x[token] = x[token] / r if x[token] > 0 else x[token] * r
    for token in set(answer):
        x[token] -= np.float32(np.float32(case["presence_penalty"])
                               + np.float32(answer.count(token)) * np.float32(case["frequency_penalty"]))
    return x


def survivors(x, case):
    temperature = float(np.float32(case["temperature"]))
    order = np.argsort(-x, kind="stable")
    order = order[np.isfinite(x[order])]
    if case["top_k"]:
        order = order[: case["top_k"]]
    p = np.exp((x[order].astype(np.float64) - float(x.max())) / temperature)
    if np.float32(case["top_p"]) < 1:
        cumulative = np.cumsum(p / p.sum())
        top_p = float(np.float32(case["top_p"]))
        assert np.abs(cumulative - top_p).min() > 1e-9
        n = int(np.searchsorted(cumulative, top_p)) + 1
        order, p = order[:n], p[:n]
    min_p = float(np.float32(case["min_p"]))
    assert min_p == 0 or np.abs(p - min_p).min() > 1e-9
    return order[p >= min_p]


def draw(x, kept, case, position):
    if case["temperature"] == 0:
        return int(np.argmax(x))
    temperature = float(np.float32(case["temperature"]))
    scores = [(-(float(x[t]) + temperature * noise(case["seed"], case["choice"], position, int(t))), int(t)) for t in kept]
    scores.sort()
    assert len(scores) < 2 or scores[1][0] - scores[0][0] > 1e-6
    return scores[0][1]


def random_case(rng, number):
    logits = (rng.normal(size=N_VOCAB) * rng.choice([1, 3, 8])).astype(np.float32)
    if number % 4 == 0:
        logits = np.round(logits)  # many ties
    history = [int(t) for t in rng.integers(0, N_VOCAB, size=rng.integers(1, 30))]

    def sometimes(off, values):
        return float(rng.choice(values)) if rng.random() < 0.4 else off

    return {
        "logits": [float(str(x)) for x in logits],  # the shortest text that reads back as the same float32
        "history": history,
        "n_prompt": int(rng.integers(0, len(history) + 1)),
        "temperature": sometimes(1.0, [0.0, 0.3, 0.8, 2.0]),
        "top_k": int(sometimes(0, [1, 2, 5, 20, 60])),
        "top_p": sometimes(1.0, [0.1, 0.5, 0.9, 0.95]),
        "min_p": sometimes(0.0, [0.02, 0.1, 0.5]),
        "repetition_penalty": sometimes(1.0, [0.8, 1.1, 1.5]),
        "presence_penalty": sometimes(0.0, [-1.0, 0.5, 2.0]),
        "frequency_penalty": sometimes(0.0, [-0.5, 0.3, 1.0]),
        "bias": [[int(t), float(b)] for t, b in zip(rng.integers(0, N_VOCAB, 3), rng.choice([-100.0, -1.5, 2.0, 100.0], 3))]
        if rng.random() < 0.3 else [],
        "min_tokens": int(rng.integers(0, 12)) if rng.random() < 0.5 else 0,
        "stop_ids": [int(np.argmax(logits)), 7],
        "seed": int(rng.integers(0, 2**63)),
        "choice": int(rng.integers(0, 3)),
    }


def main():
    assert philox((0xA4093822, 0x299F31D0), (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)) == [
        0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]
    rng = np.random.default_rng(20260101)
    cases = []
    for number in range(60):
        case = random_case(rng, number)
        logits = np.array(case["logits"], dtype=np.float32)
        x = adjust(logits, case)
        kept = survivors(x, case) if case["temperature"] else [int(np.argmax(x))]
        position = len(case["history"])
        # The same row drawn under other seeds; the first is the case's own.
        case["draws"] = [draw(x, kept, {**case, "seed": case["seed"] + i}, position) for i in range(N_DRAWS)]
        case["survivors"] = sorted(int(t) for t in kept)
        wide = logits.astype(np.float64)
        logprobs = wide - wide.max() - math.log(np.exp(wide - wide.max()).sum())
        top = np.argsort(-logits, kind="stable")[:20]
        case["top"] = [int(t) for t in top]
        case["top_logprobs"] = [round(float(logprobs[t]), 9) for t in top]
        cases.append(case)
    noises = [[s, c, p, t, noise(s, c, p, t)] for s, c, p, t in [(0, 0, 0, 0), (1, 0, 1, 1), (2**62 + 5, 2, 8191, 49151),
                                                                 (42, 1, 100, 151935), (42, 1, 100, 151934)]]
    print('{"noise": %s, "cases": [' % json.dumps(noises))
    print(",\n".join(json.dumps(c, separators=(",", ":")) for c in cases))
    print("]}")


if __name__ == "__main__":
    main()
