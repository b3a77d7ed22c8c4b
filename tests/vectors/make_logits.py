#!/usr/bin/env python3
"""Makes the reference logits of a real model: tests/vectors/logits_<name>.hslv (format: logits_file.py).

    python3 make_logits.py --model ~/.cache/hearsay/SmolLM2-135M-Instruct.Q4_1.gguf --out logits_smollm2.hslv
    python3 make_logits.py --model ~/.cache/hearsay/tests/Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf --out logits_qwen.hslv

Needs numpy, gguf and tokenizers. The weights are dequantised to float32 by `gguf` and run by reference.py. The three prompts
are those of CANDIDATES (30 to 80 tokens) whose 64 greedy tokens are decided most clearly; --list shows every smallest gap.
16-bit weights and KV move SmolLM2's logits by up to 0.02, and a gap below that would make the choice of token a matter of
rounding. Qwen2.5's keys reach 160: rounded to F16 as they are, they take position 13 of the third prompt to a cosine of
0.99987, in this reference too.
"""

import argparse
import sys

import logits_file
import reference

N_GREEDY = 64

CANDIDATES = [
    "<|im_start|>system\nYou are a careful assistant who answers in short sentences.<|im_end|>\n<|im_start|>user\n"
    "What is the capital of France, and which river flows through it?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nWrite the numbers from one to thirty in words, separated by commas.<|im_end|>\n"
    "<|im_start|>assistant\none, two, three, four, five, six, seven, eight, nine, ten,",
    "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n    if n < 2:\n        return n\n"
    "    return fibonacci(n - 1) + fibonacci(n - 2)\n\n\ndef factorial(n):\n    \"\"\"Return n factorial.\"\"\"\n",
    "The months of the year are January, February, March, April, May, June, July, August, September, October, November "
    "and December. The days of the week are Monday, Tuesday,",
    "Water boils at 100 degrees Celsius at sea level. It freezes at 0 degrees Celsius. Between these two points it is a "
    "liquid, and",
    "<|im_start|>user\nList five fruits and their colours.<|im_end|>\n<|im_start|>assistant\n1. Apple: red\n2. Banana:",
    "for (int i = 0; i < 10; i++) {\n    printf(\"%d\\n\", i);\n}\n\nfor (int j = 0; j < 20; j++) {\n    printf(",
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,",
    "Mary had a little lamb, its fleece was white as snow; and everywhere that Mary went, the lamb was sure to go. It "
    "followed her to school one day,",
    "<|im_start|>user\nTranslate to French: The cat sleeps on the chair, the dog sleeps under the table.<|im_end|>\n"
    "<|im_start|>assistant\n",
    "SELECT name, price FROM products WHERE price > 10 ORDER BY price DESC;\nSELECT name, city FROM customers WHERE city = 'Paris'",
    "Country: France. Capital: Paris.\nCountry: Italy. Capital: Rome.\nCountry: Spain. Capital: Madrid.\nCountry: Germany. "
    "Capital: Berlin.\nCountry: Japan. Capital: Tokyo.\nCountry:",
    "{\"id\": 1, \"name\": \"Ann\", \"age\": 31}\n{\"id\": 2, \"name\": \"Bob\", \"age\": 32}\n"
    "{\"id\": 3, \"name\": \"Carl\", \"age\":",
    "The alphabet: a is for apple, b is for ball, c is for cat, d is for dog, e is for egg, f is for fish, g is for goat, h is",
    "<|im_start|>user\nSay the word \"hello\" twenty times.<|im_end|>\n<|im_start|>assistant\nhello hello hello hello hello hello",
    "| n | square |\n|---|--------|\n| 1 | 1 |\n| 2 | 4 |\n| 3 | 9 |\n| 4 | 16 |\n| 5 | 25 |\n| 6 |",
    "monday mardi tuesday mercredi wednesday jeudi. Row, row, row your boat, gently down the stream, merrily, merrily, merrily, "
    "merrily, life is but a dream. Row, row, row your boat,",
    "void swap(int *a, int *b)\n{\n    int t = *a;\n    *a = *b;\n    *b = t;\n}\n\nvoid swap_float(float *a, float *b)\n{\n",
    "#include <stdio.h>\n\nint main(void)\n{\n    printf(\"one\\n\");\n    printf(\"two\\n\");\n    printf(\"three\\n\");\n"
    "    printf(",
    "<|im_start|>user\nRepeat after me: The quick brown fox jumps over the lazy dog.<|im_end|>\n<|im_start|>assistant\n"
    "The quick brown fox jumps over the lazy dog. The quick brown fox",
    "Q: What is 2 + 2?\nA: 4\nQ: What is 3 + 3?\nA: 6\nQ: What is 4 + 4?\nA: 8\nQ: What is 5 + 5?\nA:",
]


def tokenizer(path):
    """`tokenizers` over the file's own vocabulary and merges, with the pre-tokenizer that it names."""
    import gguf
    from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

    fields = gguf.GGUFReader(path, "r").fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(m.split(" ", 1)) for m in fields["tokenizer.ggml.merges"].contents()]
    t = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    pre = fields["tokenizer.ggml.pre"].contents()
    if pre == "smollm":
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                   pre_tokenizers.ByteLevel(add_prefix_space=False)])
    elif pre == "qwen2":
        split = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
        t.normalizer = normalizers.NFC()
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(split), "isolated"),
                                                   pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    else:
        sys.exit(f"make_logits.py: pre-tokenizer {pre} is not known here")
    kinds = fields["tokenizer.ggml.token_type"].contents()
    t.add_special_tokens([AddedToken(token, normalized=False) for token, kind in zip(tokens, kinds) if kind == 3])
    return t


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", help="the file to write")
    parser.add_argument("--list", action="store_true", help="only show the smallest gap of every candidate")
    options = parser.parse_args()

    model = reference.Model(*reference.load_gguf(options.model))
    encode = tokenizer(options.model).encode
    found = []
    for text in CANDIDATES:
        tokens = encode(text, add_special_tokens=False).ids
        model.reset()
        _, gaps = logits_file.greedy(model, model.forward(tokens), N_GREEDY)
        found.append((min(gaps), tokens))
        print(f"smallest gap {min(gaps):.4f}, {len(tokens)} tokens, {text[:60]!r}", file=sys.stderr, flush=True)
    if options.list or not options.out:
        return
    usable = [f for f in found if 30 <= len(f[1]) <= 80]
    best = sorted(usable, key=lambda f: -f[0])[:3]
    gaps = logits_file.write(options.out, model, [tokens for _, tokens in best], N_GREEDY, model_path=options.model)
    print(f"{options.out}: smallest gaps {', '.join(f'{g:.3f}' for g in gaps)}")


if __name__ == "__main__":
    main()
