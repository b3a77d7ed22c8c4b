"""A decoder of the Llama family in numpy, float32 throughout: the reference that hearsay's backends are compared with.

Written for clarity from the papers (Llama 2, arXiv 2307.09288; Qwen2, arXiv 2407.10671; Qwen3, arXiv 2505.09388; rotary
embedding, arXiv 2104.09864; YaRN, arXiv 2309.00071) and from the published definition of Llama 3's rope scaling. Weights
come from a GGUF file through the `gguf` package's own dequantisation, or from arrays given directly.
"""

import math
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Config:
    architecture: str
    n_layers: int
    d_model: int
    d_ff: int
    n_heads: int
    n_kv_heads: int
    d_head: int
    n_vocab: int
    n_context: int
    rms_epsilon: float
    rope_theta: float
    interleaved: bool  # pairs (2i, 2i+1) instead of (i, i + d/2)
    sliding_window: int = 0
    rope_scaling: dict = field(default_factory=dict)  # as in Hugging Face's config.json, rope_type included
    freq_factors: np.ndarray | None = None  # divides each frequency (rope_freqs.weight of GGUF files)


def rope_frequencies(c):
    """Radians per position of each pair, and the factor on sine and cosine; double precision, rounded once."""
    half = c.d_head // 2
    plain = c.rope_theta ** (-np.arange(half, dtype=np.float64) * 2 / c.d_head)
    s = c.rope_scaling
    kind = s.get("rope_type", "default")
    magnitude = 1.0
    if kind == "default":
        speed = plain
    elif kind == "linear":
        speed = plain / s["factor"]
    elif kind == "llama3":
        turns = s["original_max_position_embeddings"] * plain / (2 * math.pi)  # turns within the original context
        low, high, factor = s["low_freq_factor"], s["high_freq_factor"], s["factor"]
        keep = np.clip((turns - low) / (high - low), 0, 1)  # 1: fast pair, kept; 0: slow pair, stretched
        speed = keep * plain + (1 - keep) * plain / factor
    elif kind == "yarn":
        factor, original = s["factor"], s["original_max_position_embeddings"]

        def pair_turning(times):  # the (fractional) pair that turns so many times within the original context
            return c.d_head * math.log(original / (times * 2 * math.pi)) / (2 * math.log(c.rope_theta))

        low = max(math.floor(pair_turning(s.get("beta_fast", 32))), 0)
        high = min(math.ceil(pair_turning(s.get("beta_slow", 1))), c.d_head - 1)
        ramp = np.clip((np.arange(half) - low) / max(high - low, 0.001), 0, 1)
        speed = plain * (1 - ramp) + plain / factor * ramp
        magnitude = s.get("attention_factor") or (0.1 * math.log(factor) + 1 if factor > 1 else 1.0)
    else:
        raise ValueError(f"rope type {kind}")
    if c.freq_factors is not None:
        speed = speed / c.freq_factors.astype(np.float64)
    return speed.astype(np.float32), np.float32(magnitude)


def rms_norm(x, weight, epsilon):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(epsilon)) * weight


def silu(x):
    return x / (1 + np.exp(-x))


class Model:
    """weights: GGUF tensor names to float32 arrays, matrices [rows][cols]. Absent biases and norms are skipped."""

    def __init__(self, config, weights):
        self.c, self.w = config, weights
        self.inv_freq, self.magnitude = rope_frequencies(config)
        self.reset()

    def reset(self):
        self.past = [None] * self.c.n_layers
        self.position = 0

    def rope(self, x, positions):
        """x: [tokens][heads][d_head]"""
        angle = positions[:, None].astype(np.float64) * self.inv_freq.astype(np.float64)
        cos = (np.cos(angle) * self.magnitude).astype(np.float32)[:, None, :]
        sin = (np.sin(angle) * self.magnitude).astype(np.float32)[:, None, :]
        half = self.c.d_head // 2
        first, second = (slice(0, None, 2), slice(1, None, 2)) if self.c.interleaved else (slice(0, half), slice(half, None))
        out = np.empty_like(x)
        out[..., first] = x[..., first] * cos - x[..., second] * sin
        out[..., second] = x[..., first] * sin + x[..., second] * cos
        return out

    def linear(self, x, name):
        y = x @ self.w[name + ".weight"].T
        bias = self.w.get(name + ".bias")
        return y if bias is None else y + bias

    def attention(self, layer, x, positions):
        c, p = self.c, f"blk.{layer}."
        n = len(x)
        q = self.linear(x, p + "attn_q").reshape(n, c.n_heads, c.d_head)
        k = self.linear(x, p + "attn_k").reshape(n, c.n_kv_heads, c.d_head)
        v = self.linear(x, p + "attn_v").reshape(n, c.n_kv_heads, c.d_head)
        if p + "attn_q_norm.weight" in self.w:
            q = rms_norm(q, self.w[p + "attn_q_norm.weight"], c.rms_epsilon)
            k = rms_norm(k, self.w[p + "attn_k_norm.weight"], c.rms_epsilon)
        q, k = self.rope(q, positions), self.rope(k, positions)
        if self.past[layer] is not None:
            k, v = np.concatenate([self.past[layer][0], k]), np.concatenate([self.past[layer][1], v])
        self.past[layer] = (k, v)
        distance = positions[:, None] - np.arange(len(k))[None, :]
        visible = distance >= 0
        if c.sliding_window:
            visible &= distance < c.sliding_window
        out = np.empty((n, c.n_heads, c.d_head), np.float32)
        for head in range(c.n_heads):
            kv = head // (c.n_heads // c.n_kv_heads)
            score = (q[:, head] @ k[:, kv].T) / np.float32(math.sqrt(c.d_head))
            score = np.where(visible, score, -np.inf)
            weight = np.exp(score - score.max(axis=-1, keepdims=True))
            out[:, head] = (weight / weight.sum(axis=-1, keepdims=True)) @ v[:, kv]
        return self.linear(out.reshape(n, -1), p + "attn_output")

    def forward(self, tokens):
        """Logits of each token, [tokens][n_vocab], behind what was given since reset()."""
        c = self.c
        positions = np.arange(self.position, self.position + len(tokens))
        self.position += len(tokens)
        x = self.w["token_embd.weight"][np.asarray(tokens)].astype(np.float32)
        for layer in range(c.n_layers):
            p = f"blk.{layer}."
            x = x + self.attention(layer, rms_norm(x, self.w[p + "attn_norm.weight"], c.rms_epsilon), positions)
            h = rms_norm(x, self.w[p + "ffn_norm.weight"], c.rms_epsilon)
            x = x + self.linear(silu(self.linear(h, p + "ffn_gate")) * self.linear(h, p + "ffn_up"), p + "ffn_down")
        x = rms_norm(x, self.w["output_norm.weight"], c.rms_epsilon)
        return x @ self.w.get("output.weight", self.w["token_embd.weight"]).T


def load_gguf(path):
    """(Config, weights) of a llama, qwen2 or qwen3 file."""
    import gguf

    reader = gguf.GGUFReader(path)
    value = {name: f.contents() for name, f in reader.fields.items() if not name.startswith("tokenizer.")}
    arch = value["general.architecture"]
    get = lambda key, default=None: value.get(f"{arch}.{key}", default)
    weights = {}
    for t in reader.tensors:
        shape = [int(n) for n in reversed(t.shape)]
        weights[t.name] = np.ascontiguousarray(gguf.dequantize(t.data, t.tensor_type).astype(np.float32).reshape(shape))
    n_heads, d_model = get("attention.head_count"), get("embedding_length")
    scaling = {}
    if get("rope.scaling.type", "none") != "none":
        scaling = {"rope_type": get("rope.scaling.type"), "factor": get("rope.scaling.factor"),
                   "original_max_position_embeddings": get("rope.scaling.original_context_length")}
    config = Config(
        architecture=arch, n_layers=get("block_count"), d_model=d_model, d_ff=get("feed_forward_length"), n_heads=n_heads,
        n_kv_heads=get("attention.head_count_kv", n_heads), d_head=get("attention.key_length", d_model // n_heads),
        n_vocab=weights["token_embd.weight"].shape[0], n_context=get("context_length"),
        rms_epsilon=get("attention.layer_norm_rms_epsilon"), rope_theta=get("rope.freq_base", 10000.0),
        interleaved=arch == "llama", sliding_window=get("attention.sliding_window", 0), rope_scaling=scaling,
        freq_factors=weights.pop("rope_freqs.weight", None))
    return config, weights
