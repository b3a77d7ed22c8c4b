#!/usr/bin/env python3
"""Makes tiny models with 4-bit weights, as a GGUF file and as a folder, and reference logits of the dequantised weights.

    python3 make_tiny_w4.py tiny        writes tiny/w4.gguf and tiny/w4.hslv, tiny/w4_min/ and tiny/w4_min.hslv

The layout is written from docs/quantized-weights.md and shares nothing with core/model: a second writer, by which the reader and the
kernels are checked. Widths are no multiple of the group (160 and 288 inputs in groups of 128 and 64), so that last groups are short.
Needs what make_tiny_models.py needs.
"""

import json
import struct
import sys

import numpy as np

import logits_file
import make_tiny_models as tiny
import reference

MODELS = {
    "w4": {"like": "llama_linear", "group": 128, "minimum": False},
    "w4_min": {"like": "qwen2", "group": 64, "minimum": True},
}
MATRICES = ("token_embd", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


def pack(matrix, group, minimum):
    """Bytes of every row, and the values that they stand for (float32)."""
    rows, values = [], np.zeros_like(matrix)
    for r, row in enumerate(matrix):
        out = b""
        for first in range(0, len(row), group):
            x = row[first:first + group]
            low = np.float16(x.min()) if minimum else np.float16(0)
            scale = np.float16((x.max() - np.float32(low)) / 15 if minimum else np.abs(x).max() / 7)
            zero = 0 if minimum else 8
            b = np.clip(np.rint((x - np.float32(low)) / np.float32(scale)) + zero, 0, 15).astype(np.uint8)
            out += scale.tobytes() + (low.tobytes() if minimum else b"") + (b[0::2] | b[1::2] << 4).tobytes()
            values[r, first:first + group] = (b.astype(np.float32) - zero) * np.float32(scale) + np.float32(low)
        rows.append(out)
    return b"".join(rows), values


def is_packed(name):
    return name.split(".")[-2] in MATRICES and name.endswith(".weight")


def write_gguf(path, source, weights, packed, group, minimum):
    """source: a GGUF file whose metadata and tensor list are taken over."""
    with open(source, "rb") as f:
        data = f.read()
    reader = tiny.gguf.GGUFReader(source)
    first = min(t.field.offset for t in reader.tensors)  # of the tensor list, behind the metadata
    head, body = b"", b""
    for t in reader.tensors:
        number, raw = 0, weights[t.name].astype("<f4").tobytes()
        if t.name in packed:
            number, raw = 0x57340000 + group + (0x1000 if minimum else 0), packed[t.name]
        body += b"\0" * (-len(body) % 32)
        name = t.name.encode()
        head += struct.pack("<Q", len(name)) + name + struct.pack("<I", len(t.shape))
        head += struct.pack(f"<{len(t.shape)}Q", *[int(n) for n in t.shape]) + struct.pack("<IQ", number, len(body))
        body += raw
    whole = data[:first] + head
    with open(path, "wb") as f:
        f.write(whole + b"\0" * (-len(whole) % 32) + body)


def write_safetensors(path, weights, packed, group, minimum):
    header = {"__metadata__": {"format": "pt", "hearsay.packing": f"W4_G{group}{'_MIN' if minimum else ''}"}}
    data = b""
    for name, value in weights.items():
        raw, dtype, shape = value.astype("<f4").tobytes(), "F32", list(value.shape)
        if name in packed:
            raw, dtype, shape = packed[name], "U8", [len(value), len(packed[name]) // len(value)]
        header[tiny.hf_name(name)] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def main():
    folder = sys.argv[1]
    tiny.D_MODEL, tiny.D_FF = 160, 288
    tokens = tiny.vocabulary()
    for name, w4 in MODELS.items():
        m = tiny.MODELS[w4["like"]] | {"d_head": 32}
        weights = tiny.random_weights(m, len(tokens))
        packed = {}
        for tensor in weights:
            if is_packed(tensor):
                weights[tensor] /= np.float32(3)  # wider than the tiny ones: logits of the same size
                packed[tensor], weights[tensor] = pack(weights[tensor], w4["group"], w4["minimum"])
        interleaved = dict(weights), dict(packed)
        if w4["like"] == "llama_linear":
            for layer in range(tiny.N_LAYERS):
                for role in ("attn_q", "attn_k"):
                    key = f"blk.{layer}.{role}.weight"
                    interleaved[0][key] = tiny.interleave(weights[key], m["d_head"])
                    interleaved[1][key] = pack(interleaved[0][key], w4["group"], w4["minimum"])[0]
        model = reference.Model(tiny.config_of(m, len(tokens), False), weights)
        prompts = tiny.choose_prompts(model, len(tokens), np.random.default_rng(7))
        gaps = logits_file.write(f"{folder}/{name}.hslv", model, prompts, tiny.N_GREEDY, n_top=32)
        if w4["minimum"]:
            tiny.write_folder(f"{folder}/{name}", m, weights, tokens)
            write_safetensors(f"{folder}/{name}/model.safetensors", weights, packed, w4["group"], True)
        else:
            tiny.write_gguf(f"{folder}/{name}.gguf", name, m, interleaved[0], tokens)
            write_gguf(f"{folder}/{name}.gguf", f"{folder}/{name}.gguf", interleaved[0], interleaved[1], w4["group"], False)
        print(f"{name}: smallest gaps {gaps[0]:.3f} {gaps[1]:.3f}")


if __name__ == "__main__":
    main()
