#!/usr/bin/env python3
"""Writes the ids that Hugging Face's `tokenizers` gives for the texts of tokenizer_texts.py.

    pip install gguf tokenizers
    make_tokenizer_vectors.py smollm FILE.gguf      writes tokenizer_texts.txt and tokenizer_smollm.ids
    make_tokenizer_vectors.py qwen2 FILE.gguf       writes tokenizer_qwen2.ids
    make_tokenizer_vectors.py gemma FILE.gguf       writes tokenizer_gemma.ids

The reference is built from the GGUF file's tokens, merges and scores, with the normalizer and pre-tokenizer of the model's
published tokenizer.json. Broken UTF-8 is replaced by U+FFFD (maximal subparts, as Python does) before the reference sees it.

A line of ids belongs to the line of the same number in tokenizer_texts.txt: the ids with control tokens recognised, and,
where it differs, after a "|" those with control tokens taken for letters. No BOS.
"""
import argparse
import os
import struct

from gguf import GGUFReader
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from tokenizer_texts import escape, make_texts

HERE = os.path.dirname(os.path.abspath(__file__))
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def read(path):
    fields = GGUFReader(path).fields
    get = lambda key: fields["tokenizer.ggml." + key].contents() if "tokenizer.ggml." + key in fields else None
    return get("tokens"), get("token_type"), get("merges"), get("scores")


def byte_level_model(tokens, merges):
    vocab = {}
    for i, token in enumerate(tokens):
        vocab.setdefault(token, i)
    return models.BPE(vocab, [tuple(merge.split(" ")) for merge in merges])


def smollm(tokens, types, merges, scores):
    tokenizer = Tokenizer(byte_level_model(tokens, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return tokenizer


def qwen2(tokens, types, merges, scores):
    tokenizer = Tokenizer(byte_level_model(tokens, merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return tokenizer


def float32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def gemma(tokens, types, merges, scores):
    """SentencePiece's BPE as merges: every split of a token into two tokens, best score first (as transformers converts them)."""
    vocab = {token: i for i, token in enumerate(tokens)}
    joinable = {token for token, type in zip(tokens, types) if type == NORMAL}
    ranked = []
    for token in joinable:
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in joinable and right in joinable:
                ranked.append((-float32(scores[vocab[token]]), vocab[left], vocab[right], left, right))
    ranked.sort()
    tokenizer = Tokenizer(models.BPE(vocab, [(left, right) for _, _, _, left, right in ranked], byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    return tokenizer


def reference(family, vocabulary, with_control):
    tokens, types = vocabulary[0], vocabulary[1]
    tokenizer = family(*vocabulary)
    # Plain padding of the embedding matrix ("[PAD151646]") is user-defined in some files: added like the rest.
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t, type in zip(tokens, types) if type == USER_DEFINED])
    if with_control:
        tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t, type in zip(tokens, types) if type in (CONTROL, UNKNOWN)])
    assert tokenizer.get_vocab_size(with_added_tokens=True) == len(set(tokens)), "an added token got a new id"
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=["smollm", "qwen2", "gemma"])
    parser.add_argument("gguf")
    arguments = parser.parse_args()

    texts = make_texts()
    vocabulary = read(arguments.gguf)
    family = globals()[arguments.family]
    parsed, literal = reference(family, vocabulary, True), reference(family, vocabulary, False)
    lines = []
    for text in texts:
        valid = text.decode("utf-8", "replace")
        a, b = parsed.encode(valid, add_special_tokens=False).ids, literal.encode(valid, add_special_tokens=False).ids
        lines.append(" ".join(map(str, a)) + ("|" + " ".join(map(str, b)) if a != b else ""))
    if arguments.family == "smollm":
        with open(os.path.join(HERE, "tokenizer_texts.txt"), "w", encoding="utf-8", newline="\n") as file:
            file.write("".join(escape(text) + "\n" for text in texts))
    with open(os.path.join(HERE, f"tokenizer_{arguments.family}.ids"), "w", newline="\n") as file:
        file.write("".join(line + "\n" for line in lines))
    print(f"{len(texts)} texts, {sum('|' in line for line in lines)} of them other ids without control tokens")


if __name__ == "__main__":
    main()
