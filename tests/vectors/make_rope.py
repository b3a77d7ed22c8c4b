#!/usr/bin/env python3
"""Makes rope.json: rotation speeds as Hugging Face transformers computes them, for several config.json variants.

    pip download --no-deps transformers==4.57.1
    python3 make_rope.py transformers-4.57.1-py3-none-any.whl rope.json

Runs transformers/modeling_rope_utils.py itself, taken from the wheel, with numpy in double precision standing in for the few torch
functions that it calls; so torch is not needed, and the values are the published formulas' without float32 rounding on
the way. Output: a list of {"config": ..., "inv_freq": [...], "magnitude": x}.
"""

import json
import sys
import types
import zipfile

import numpy as np

LLAMA = {"architectures": ["LlamaForCausalLM"], "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 1,
         "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5}

VARIANTS = [
    {"rope_theta": 10000.0},
    {"rope_theta": 10000.0, "rope_scaling": {"type": "linear", "factor": 4.0}},
    {"rope_theta": 500000.0, "head_dim": 128, "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192}},
    {"rope_theta": 500000.0, "rope_scaling": {
        "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192}},
    {"rope_theta": 1000000.0, "max_position_embeddings": 32768, "rope_scaling": {
        "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}},
    {"rope_theta": 1000000.0, "head_dim": 128, "rope_scaling": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768, "attention_factor": 1.25,
        "beta_fast": 24.0, "beta_slow": 2.0}},
    {"rope_theta": 10000.0, "rope_scaling": {
        "rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096, "mscale": 1.0, "mscale_all_dim": 0.5}},
    {"rope_theta": 150000.0, "rope_scaling": {
        "rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False}},
    {"rope_theta": 10.0, "rope_scaling": {  # the slow end of the ramp lies beyond the last pair
        "rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 846}},
]


class Array(np.ndarray):
    def to(self, device=None, dtype=None):
        return self

    def float(self):
        return self


def stand_in():
    torch = types.ModuleType("torch")
    torch.float = torch.float32 = torch.int64 = None
    torch.arange = lambda *range_, **_: np.arange(*range_, dtype=np.float64).view(Array)
    torch.clamp = lambda x, low, high: np.clip(x, low, high)
    torch.where = np.where
    return torch


def load(wheel):
    with zipfile.ZipFile(wheel) as archive:
        source = archive.read("transformers/modeling_rope_utils.py").decode()
    logger = types.SimpleNamespace(get_logger=lambda name: types.SimpleNamespace(warning=print, warning_once=print))
    for name, members in {"transformers": {}, "transformers.configuration_utils": {"PretrainedConfig": object},
                          "transformers.utils": {"is_torch_available": lambda: True, "logging": logger}}.items():
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__dict__.update(members)
    sys.modules["torch"] = stand_in()
    module = types.ModuleType("transformers.modeling_rope_utils")
    module.__package__ = "transformers"
    exec(compile(source, "modeling_rope_utils.py", "exec"), module.__dict__)
    return module.ROPE_INIT_FUNCTIONS


def main():
    functions = load(sys.argv[1])
    out = []
    for variant in VARIANTS:
        config = LLAMA | variant
        scaling = config.get("rope_scaling") or {}
        kind = scaling.get("rope_type", scaling.get("type", "default"))
        speeds, magnitude = functions[kind](types.SimpleNamespace(**config), None)
        out.append({"config": config, "inv_freq": [float(s) for s in speeds], "magnitude": float(magnitude)})
    with open(sys.argv[2], "w") as f:
        json.dump(out, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
