#!/usr/bin/env python3
"""Writes the ids that Hugging Face's `tokenizers` gives for the texts of tokenizer_texts.py.

    pip install gguf tokenizers
    make_tokenizer_vectors.py smollm FILE.gguf      writes tokenizer_texts.txt, tokenizer_smollm.ids and tokenizer_smollm_chat.ids
    make_tokenizer_vectors.py qwen2 FILE.gguf       writes tokenizer_qwen2.ids
    make_tokenizer_vectors.py gemma FILE.gguf       writes tokenizer_gemma.ids
    make_tokenizer_vectors.py tiny                  writes the folders tokenizer_tiny_*/ and tokenizer_tiny_*.ids

The tiny ones are trained here, on the words and lines of code in tokenizer_texts.py, and stand for the shapes of tokenizer.json
that no file at hand has: Llama 3's split with ignored merges, and SentencePiece-like ones as Llama 2, Mistral and Gemma ship
them. Their ids are those of every fifth text.

The reference is built from the GGUF file's tokens, merges and scores, with the normalizer and pre-tokenizer of the model's
published tokenizer.json. Broken UTF-8 is replaced by U+FFFD (maximal subparts, as Python does) before the reference sees it.

A line of ids belongs to the line of the same number in tokenizer_texts.txt: the ids with control tokens recognised, and,
where it differs, after a "|" those with control tokens taken for letters. No BOS.

A line of tokenizer_smollm_chat.ids belongs to a conversation of chat.json (run make_chat_vectors.py first) and has the ids of
SmolLM2's rendering with generation prompt; it is empty where a message itself holds a control token's text, which hearsay
takes for letters and the reference does not.
"""
import argparse
import json
import os
import struct

from gguf import GGUFReader
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from tokenizer_texts import CODE, WORDS, escape, make_texts

HERE = os.path.dirname(os.path.abspath(__file__))
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")


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


def train(tokenizer, n, **options):
    tokenizer.train_from_iterator([" ".join(WORDS), "\n".join(CODE), " ".join(WORDS[::2])], trainers.BpeTrainer(vocab_size=n, show_progress=False, **options))
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def tiny_llama3():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    vocab, merges = train(tokenizer, 500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    # Whole words without merges, which only ignore_merges can find.
    for word in ["ĠÐ¼Ð¸ÑĢ", "Ġfox", "rock", "ĊĊĊ"]:
        vocab.setdefault(word, len(vocab))
    tokenizer.model = models.BPE(vocab, merges, ignore_merges=True)
    return tokenizer


def sentencepiece_like(normalizer, pre_tokenizer, byte_fallback):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    trained, merges = train(tokenizer, 450)
    vocab = {"<unk>": 0}
    if byte_fallback:
        vocab.update(("<0x%02X>" % byte, 1 + byte) for byte in range(256))
    for token in sorted(trained, key=trained.get):
        vocab.setdefault(token, len(vocab))
    tokenizer.model = models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=byte_fallback)
    return tokenizer


def tiny_llama2():
    return sentencepiece_like(normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None, True)


def tiny_gemma():
    tokenizer = sentencepiece_like(normalizers.Replace(" ", "▁"), None, True)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    return tokenizer


def tiny_mistral():
    return sentencepiece_like(None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False), False)


def tiny_metaspace():
    return sentencepiece_like(normalizers.NFC(), pre_tokenizers.Metaspace(prepend_scheme="always", split=True), True)


def make_tiny(name):
    parsed, literal = globals()[name](), globals()[name]()
    # Not control tokens; "lazy" only as a word of its own.
    plain = [AddedToken("<tool_call>", normalized=False), AddedToken("lazy", single_word=True, normalized=False), AddedToken("▁▁", normalized=False)]
    control = [AddedToken("<|im_end|>", rstrip=True, normalized=False, special=True), AddedToken("</s>", lstrip=True, normalized=False, special=True),
               AddedToken("<s>", normalized=False, special=True)]
    for tokenizer in (parsed, literal):
        tokenizer.add_tokens(plain)
    parsed.add_special_tokens(control)
    begin = parsed.token_to_id("<s>")
    parsed.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", begin)])
    folder = os.path.join(HERE, "tokenizer_" + name)
    os.makedirs(folder, exist_ok=True)
    parsed.save(os.path.join(folder, "tokenizer.json"), pretty=False)
    write_ids(name, make_texts()[::5], parsed, literal)


def write_ids(name, texts, parsed, literal):
    lines = []
    for text in texts:
        valid = text.decode("utf-8", "replace")
        a, b = parsed.encode(valid, add_special_tokens=False).ids, literal.encode(valid, add_special_tokens=False).ids
        lines.append(" ".join(map(str, a)) + ("|" + " ".join(map(str, b)) if a != b else ""))
    with open(os.path.join(HERE, f"tokenizer_{name}.ids"), "w", newline="\n") as file:
        file.write("".join(line + "\n" for line in lines))
    print(f"{name}: {len(texts)} texts, {sum('|' in line for line in lines)} of them other ids without control tokens")


def write_chat_ids(parsed):
    with open(os.path.join(HERE, "chat.json"), encoding="utf-8") as file:
        chat = json.load(file)
    outputs = next(family["outputs"] for family in chat["families"] if family["name"] == "smollm2")
    with open(os.path.join(HERE, "tokenizer_smollm_chat.ids"), "w", newline="\n") as file:
        for conversation, output in zip(chat["conversations"], outputs):
            control = any("<|" in message["content"] for message in conversation)
            file.write("" if control else " ".join(map(str, parsed.encode(output[1], add_special_tokens=False).ids)))
            file.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=["smollm", "qwen2", "gemma", "tiny"])
    parser.add_argument("gguf", nargs="?")
    arguments = parser.parse_args()
    if arguments.family == "tiny":
        for name in ("tiny_llama3", "tiny_llama2", "tiny_gemma", "tiny_mistral", "tiny_metaspace"):
            make_tiny(name)
        return
    if not arguments.gguf:
        parser.error("which GGUF file?")

    texts = make_texts()
    vocabulary = read(arguments.gguf)
    family = globals()[arguments.family]
    parsed, literal = reference(family, vocabulary, True), reference(family, vocabulary, False)
    if arguments.family == "smollm":
        write_chat_ids(parsed)
        with open(os.path.join(HERE, "tokenizer_texts.txt"), "w", encoding="utf-8", newline="\n") as file:
            file.write("".join(escape(text) + "\n" for text in texts))
    write_ids(arguments.family, texts, parsed, literal)


if __name__ == "__main__":
    main()
