#!/usr/bin/env python3
"""Makes tiny random models, each as a GGUF file and as a Hugging Face folder with the same weights, and reference logits.

    python3 make_tiny_models.py tiny        writes tiny/NAME.gguf, tiny/NAME/ and tiny/NAME.hslv for every NAME of MODELS

Needs numpy, gguf and tokenizers. The models stand for the families of which no real one is at hand, and for the features
that SmolLM2 and Qwen2.5 lack. Every weight is a small integer times a power of two, exact in F16 and BF16 alike, so both forms
hold the same numbers. GGUF files of architecture "llama" carry q and k with permuted rows for interleaved rotation; the
reference is run on both forms and must agree. The tokenizers know the 256 bytes, a few merges and control tokens.

Checked once against llama.cpp: it chooses the same 16 tokens behind both prompts of every file but mistral's, whose window
it does not read.
"""

import json
import os
import struct
import sys

import gguf
import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

import logits_file
import reference

D_MODEL, D_FF, N_HEADS, N_LAYERS, N_CONTEXT = 32, 64, 2, 2, 256
N_GREEDY = 16
MIN_GAP = 0.05
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["h e", "Ġ t", "Ġt he", "i n", "e r"]
CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
QWEN_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA_SPLIT = QWEN_SPLIT.replace(r"|\p{N}|", r"|\p{N}{1,3}|")

# d_head 16 is d_model / n_heads, what a file means that does not say; 32 is said.
MODELS = {
    "llama3": {"class": "LlamaForCausalLM", "seed": 1, "d_head": 32, "n_kv_heads": 1, "theta": 10000.0, "pre": "llama-bpe",
               "dtype": "BF16", "shards": 2, "scaling": {
                   "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 64}},
    "llama_linear": {"class": "LlamaForCausalLM", "seed": 2, "d_head": 32, "n_kv_heads": 2, "theta": 10000.0, "pre": "smollm",
                     "dtype": "F16", "tied": True, "scaling": {"rope_type": "linear", "factor": 4.0}},
    "mistral": {"class": "MistralForCausalLM", "seed": 3, "d_head": 32, "n_kv_heads": 1, "theta": 10000.0, "pre": "llama-bpe",
                "dtype": "F16", "window": 8},
    "qwen2": {"class": "Qwen2ForCausalLM", "seed": 4, "d_head": 16, "n_kv_heads": 1, "theta": 1000000.0, "pre": "qwen2",
              "dtype": "BF16", "tied": True, "bias": True},
    "qwen2_yarn": {"class": "Qwen2ForCausalLM", "seed": 5, "d_head": 16, "n_kv_heads": 2, "theta": 10000.0, "pre": "qwen2",
                   "dtype": "BF16", "bias": True, "scaling": {
                       "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}},
    "qwen3": {"class": "Qwen3ForCausalLM", "seed": 6, "d_head": 32, "n_kv_heads": 1, "theta": 1000000.0, "pre": "qwen2",
              "dtype": "F16", "qk_norm": True},
}

HF_NAMES = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
            "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
            "attn_k_norm": "self_attn.k_norm", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
            "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
ARCHITECTURES = {"LlamaForCausalLM": "llama", "MistralForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2",
                 "Qwen3ForCausalLM": "qwen3"}  # in GGUF files


def vocabulary():
    bytes_ = sorted(pre_tokenizers.ByteLevel.alphabet())
    return bytes_ + [m.replace(" ", "") for m in MERGES] + SPECIALS


def random_weights(m, n_vocab):
    """In the folder's layout (half split), by GGUF names."""
    rng = np.random.default_rng(m["seed"])
    whole = lambda *shape: rng.integers(-127, 128, shape).astype(np.float32)
    w = {"token_embd.weight": whole(n_vocab, D_MODEL) / 64, "output_norm.weight": 1 + whole(D_MODEL) / 256}
    if not m.get("tied"):
        w["output.weight"] = whole(n_vocab, D_MODEL) / 256
    q, kv = N_HEADS * m["d_head"], m["n_kv_heads"] * m["d_head"]
    shapes = {"attn_q": (q, D_MODEL), "attn_k": (kv, D_MODEL), "attn_v": (kv, D_MODEL), "attn_output": (D_MODEL, q),
              "ffn_gate": (D_FF, D_MODEL), "ffn_up": (D_FF, D_MODEL), "ffn_down": (D_MODEL, D_FF)}
    for layer in range(N_LAYERS):
        p = f"blk.{layer}."
        for name, shape in shapes.items():
            w[p + name + ".weight"] = whole(*shape) / 256
        for name in ("attn_norm", "ffn_norm"):
            w[p + name + ".weight"] = 1 + whole(D_MODEL) / 256
        if m.get("bias"):
            for name in ("attn_q", "attn_k", "attn_v"):
                w[p + name + ".bias"] = whole(shapes[name][0]) / 128
        if m.get("qk_norm"):
            for name in ("attn_q_norm", "attn_k_norm"):
                w[p + name + ".weight"] = 1 + whole(m["d_head"]) / 256
    for name, value in w.items():  # 1 + n/256 needs up to nine bits: give up the last where BF16 would lose it
        w[name] = np.trunc(value * 128) / 128 if value.ndim == 1 and "norm" in name else value
        bits = w[name].astype("<f4").view(np.uint32)
        assert not (bits & 0xFFFF).any() and (w[name].astype(np.float16) == w[name]).all(), name
    return w


def interleave(weight, d_head):
    """Rows of q or k from half split to interleaved pairs, head by head."""
    heads = weight.reshape(-1, 2, d_head // 2, D_MODEL)
    return np.ascontiguousarray(heads.swapaxes(1, 2).reshape(weight.shape))


def config_of(m, n_vocab, interleaved):
    return reference.Config(
        architecture=m["class"], n_layers=N_LAYERS, d_model=D_MODEL, d_ff=D_FF, n_heads=N_HEADS, n_kv_heads=m["n_kv_heads"],
        d_head=m["d_head"], n_vocab=n_vocab, n_context=N_CONTEXT, rms_epsilon=1e-5, rope_theta=m["theta"], interleaved=interleaved,
        sliding_window=m.get("window", 0), rope_scaling=m.get("scaling", {}))


def to_dtype(value, dtype):
    if dtype == "BF16":
        return (value.astype("<f4").view(np.uint32) >> 16).astype("<u2")
    return value.astype({"F16": "<f2", "F32": "<f4"}[dtype])


def write_gguf(path, name, m, weights, tokens):
    writer = gguf.GGUFWriter(path, ARCHITECTURES[m["class"]])
    writer.add_name(f"tiny {name}")
    writer.add_block_count(N_LAYERS)
    writer.add_context_length(N_CONTEXT)
    writer.add_embedding_length(D_MODEL)
    writer.add_feed_forward_length(D_FF)
    writer.add_head_count(N_HEADS)
    writer.add_head_count_kv(m["n_kv_heads"])
    if m["d_head"] != D_MODEL // N_HEADS:
        writer.add_key_length(m["d_head"])
        writer.add_value_length(m["d_head"])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(m["theta"])
    if m.get("window"):
        writer.add_sliding_window(m["window"])
    scaling = m.get("scaling", {})
    kind = scaling.get("rope_type")
    if kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(scaling["factor"])
    if kind == "yarn":
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(m["pre"])
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if t in SPECIALS else gguf.TokenType.NORMAL for t in tokens])
    writer.add_token_merges(MERGES)
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_bos_token_id(tokens.index("<|endoftext|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHATML)
    for tensor, value in weights.items():
        if value.ndim == 1:
            writer.add_tensor(tensor, value.astype(np.float32))
        elif m["dtype"] == "BF16":
            writer.add_tensor(tensor, to_dtype(value, "BF16").view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(tensor, value.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def hf_name(name):
    if name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if name == "output_norm.weight":
        return "model.norm.weight"
    if name == "output.weight":
        return "lm_head.weight"
    _, layer, role, kind = name.split(".")
    return f"model.layers.{layer}.{HF_NAMES[role]}.{kind}"


def write_safetensors(path, tensors, dtype):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, value in tensors.items():
        raw = to_dtype(value, dtype).tobytes()
        header[name] = {"dtype": dtype, "shape": list(value.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def write_json(path, value):
    with open(path, "w") as f:
        json.dump(value, f, indent=1, ensure_ascii=False)
        f.write("\n")


def tokenizer_of(m, tokens):
    t = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, [tuple(x.split(" ")) for x in MERGES]))
    if m["pre"] == "smollm":
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                   pre_tokenizers.ByteLevel(add_prefix_space=False)])
    else:
        split = LLAMA_SPLIT if m["pre"] == "llama-bpe" else QWEN_SPLIT
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(split), "isolated"),
                                                   pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        if m["pre"] == "qwen2":
            t.normalizer = normalizers.NFC()
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(s, normalized=False) for s in SPECIALS])
    return t


def write_folder(folder, m, weights, tokens):
    os.makedirs(folder, exist_ok=True)
    named = {hf_name(name): value for name, value in weights.items()}
    shards = m.get("shards", 1)
    if shards == 1:
        write_safetensors(f"{folder}/model.safetensors", named, m["dtype"])
    else:
        names, weight_map = list(named), {}
        for i in range(shards):
            file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
            part = names[i * len(names) // shards:(i + 1) * len(names) // shards]
            write_safetensors(f"{folder}/{file}", {n: named[n] for n in part}, m["dtype"])
            weight_map |= {n: file for n in part}
        write_json(f"{folder}/model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})
    config = {"architectures": [m["class"]], "model_type": m["class"].removesuffix("ForCausalLM").lower(), "hidden_act": "silu",
              "hidden_size": D_MODEL, "intermediate_size": D_FF, "num_hidden_layers": N_LAYERS, "num_attention_heads": N_HEADS,
              "num_key_value_heads": m["n_kv_heads"], "max_position_embeddings": N_CONTEXT, "rms_norm_eps": 1e-5,
              "rope_theta": m["theta"], "vocab_size": len(tokens), "tie_word_embeddings": m.get("tied", False),
              "bos_token_id": tokens.index("<|endoftext|>"), "eos_token_id": tokens.index("<|im_end|>")}
    if m["d_head"] != D_MODEL // N_HEADS:
        config["head_dim"] = m["d_head"]
    if m["class"] == "MistralForCausalLM":
        config["sliding_window"] = m["window"]
    if m["class"].startswith("Qwen"):
        config |= {"use_sliding_window": False, "sliding_window": N_CONTEXT, "max_window_layers": N_LAYERS}
    if "scaling" in m:
        config["rope_scaling"] = m["scaling"]
    write_json(f"{folder}/config.json", config)
    tokenizer_of(m, tokens).save(f"{folder}/tokenizer.json", pretty=False)
    write_json(f"{folder}/tokenizer_config.json", {
        "add_bos_token": False, "bos_token": "<|endoftext|>", "eos_token": "<|im_end|>", "chat_template": CHATML})


def choose_prompts(model, n_vocab, rng):
    """Two random prompts, longer than any window, whose greedy continuations are decided clearly."""
    prompts = []
    for n in (24, 40):
        while True:
            tokens = rng.integers(0, n_vocab, n).tolist()
            model.reset()
            _, gaps = logits_file.greedy(model, model.forward(tokens), N_GREEDY)
            if min(gaps) >= MIN_GAP:
                break
        prompts.append(tokens)
    return prompts


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    tokens = vocabulary()
    for name, m in MODELS.items():
        weights = random_weights(m, len(tokens))
        model = reference.Model(config_of(m, len(tokens), False), weights)
        prompts = choose_prompts(model, len(tokens), np.random.default_rng(100 + m["seed"]))
        gaps = logits_file.write(f"{folder}/{name}.hslv", model, prompts, N_GREEDY, n_top=32)
        write_folder(f"{folder}/{name}", m, weights, tokens)

        in_file = dict(weights)
        if ARCHITECTURES[m["class"]] == "llama":
            for layer in range(N_LAYERS):
                for role in ("attn_q", "attn_k"):
                    in_file[f"blk.{layer}.{role}.weight"] = interleave(in_file[f"blk.{layer}.{role}.weight"], m["d_head"])
        if m.get("scaling", {}).get("rope_type") == "llama3":
            plain = reference.rope_frequencies(config_of(m | {"scaling": {}}, 1, False))[0].astype(np.float64)
            in_file["rope_freqs.weight"] = (plain / model.inv_freq.astype(np.float64)).astype(np.float32)
        write_gguf(f"{folder}/{name}.gguf", name, m, in_file, tokens)

        again = reference.Model(*reference.load_gguf(f"{folder}/{name}.gguf"))
        model.reset()
        difference = np.abs(again.forward(prompts[1]) - model.forward(prompts[1])).max()
        assert difference < 1e-3, f"{name}: forms differ by {difference}"
        print(f"{name}: smallest gaps {gaps[0]:.3f} {gaps[1]:.3f}, forms differ by {difference:.1e}")


if __name__ == "__main__":
    main()
