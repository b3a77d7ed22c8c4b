#!/usr/bin/env python3
"""A small random model with the default model's tokenizer and chat template, for machines that only emulate a processor.

    small_model.py DEFAULT.gguf OUT.gguf

Two layers of width 64 and the whole vocabulary: its texts are noise, but prompts have their real length, caches their pages, and every
node gives the same answers, which is what the tests of a group compare. Standard library only.
"""
import random
import struct
import sys

WIDTH, FEED_FORWARD, HEADS, KV_HEADS, LAYERS = 64, 192, 2, 1, 2
HEAD = WIDTH // HEADS
SHAPE = {"llama.embedding_length": WIDTH, "llama.feed_forward_length": FEED_FORWARD, "llama.attention.head_count": HEADS,
         "llama.attention.head_count_kv": KV_HEADS, "llama.block_count": LAYERS, "llama.rope.dimension_count": HEAD}

# GGUF (ggml's docs/gguf.md): value types by number, with their lengths; 8 is a string, 9 an array.
LENGTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY, UINT32 = 8, 9, 4
F32, F16 = 0, 1
ALIGNMENT = 32


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, form):
        value, = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def string(self):
        length = self.number("Q")
        self.at += length
        return self.data[self.at - length:self.at]

    def skip(self, kind):
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            inner, count = self.number("I"), self.number("Q")
            if inner in LENGTHS:
                self.at += count * LENGTHS[inner]
            else:
                for _ in range(count):
                    self.skip(inner)
        else:
            self.at += LENGTHS[kind]


def string(text):
    return struct.pack("<Q", len(text)) + text.encode()


def read_metadata(data):
    """Key and value pairs as they stand in the file but for the shape, their number, and the size of the vocabulary."""
    reader = Reader(data)
    if reader.number("I") != 0x46554747 or reader.number("I") != 3:
        sys.exit("not a GGUF file of version 3")
    reader.number("Q")
    count, pairs, n_vocab = reader.number("Q"), [], 0
    for _ in range(count):
        start = reader.at
        key = reader.string().decode()
        kind = reader.number("I")
        value = reader.at
        if key == "tokenizer.ggml.tokens":
            n_vocab, = struct.unpack_from("<Q", data, value + 4)
        reader.skip(kind)
        if key in SHAPE:
            pairs.append(string(key) + struct.pack("<II", UINT32, SHAPE[key]))
        elif key == "general.name":
            pairs.append(string(key) + struct.pack("<I", STRING) + string("small random model"))
        else:
            pairs.append(data[start:reader.at])
    return pairs, n_vocab


def tensors(n_vocab):
    """Name, rows, columns of each; one row: a norm."""
    yield "token_embd", n_vocab, WIDTH
    yield "output_norm", 1, WIDTH
    for i in range(LAYERS):
        for name, rows, columns in (("attn_norm", 1, WIDTH), ("ffn_norm", 1, WIDTH), ("attn_q", HEADS * HEAD, WIDTH),
                                    ("attn_k", KV_HEADS * HEAD, WIDTH), ("attn_v", KV_HEADS * HEAD, WIDTH),
                                    ("attn_output", WIDTH, HEADS * HEAD), ("ffn_gate", FEED_FORWARD, WIDTH), ("ffn_up", FEED_FORWARD, WIDTH),
                                    ("ffn_down", WIDTH, FEED_FORWARD)):
            yield f"blk.{i}.{name}", rows, columns


def weights(rng, rows, columns):
    """Norms of ones; else FP16 numbers of either sign whose size is about 1 / sqrt(columns)."""
    if rows == 1:
        return struct.pack("<f", 1.0) * columns
    exponent = 12 if columns <= 64 else 11  # biased by 15: from 1/8, or from 1/16
    upper = bytes(b & 0x83 | exponent << 2 for b in range(256))
    noise = rng.randbytes(2 * rows * columns)
    out = bytearray(len(noise))
    out[0::2] = noise[0::2]
    out[1::2] = noise[1::2].translate(upper)
    return bytes(out)


def main(source, target):
    with open(source, "rb") as f:
        pairs, n_vocab = read_metadata(f.read())
    rng = random.Random(20260131)
    infos, contents, offset = [], [], 0
    for name, rows, columns in tensors(n_vocab):
        content = weights(rng, rows, columns)
        dims = struct.pack("<IQ", 1, columns) if rows == 1 else struct.pack("<IQQ", 2, columns, rows)
        infos.append(string(name + ".weight") + dims + struct.pack("<IQ", F32 if rows == 1 else F16, offset))
        contents.append(content + bytes(-len(content) % ALIGNMENT))
        offset += len(contents[-1])
    head = struct.pack("<IIQQ", 0x46554747, 3, len(infos), len(pairs)) + b"".join(pairs) + b"".join(infos)
    with open(target, "wb") as f:
        f.write(head + bytes(-len(head) % ALIGNMENT) + b"".join(contents))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
