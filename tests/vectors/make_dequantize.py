#!/usr/bin/env python3
"""Makes dequantize.bin: blocks of random bytes in every tensor format and the floats that the `gguf` package makes of them.

    python3 make_dequantize.py dequantize.bin

Little-endian: u32 n_cases, then per case: char name[8], u32 rows, u32 cols, u32 n_bytes, u8 bytes[n_bytes],
f32 values[rows * cols]. The 16-bit scales inside the blocks are drawn finite (subnormal and negative ones among them), all else is
any bits.
"""

import struct
import sys

import gguf
import numpy as np

ROWS = 3
# Format: blocks per row, and where in a block its 16-bit scales stand.
CASES = {
    "F32": (40, []), "F16": (700, [0]), "BF16": (200, []), "Q8_0": (3, [0]), "Q4_0": (3, [0]), "Q4_1": (3, [0, 2]),
    "Q5_0": (3, [0]), "Q5_1": (3, [0, 2]), "Q4_K": (2, [0, 2]), "Q5_K": (2, [0, 2]), "Q6_K": (2, [208]),
}


def main():
    rng = np.random.default_rng(20240607)
    out = [struct.pack("<I", len(CASES))]
    for name, (blocks, scales) in CASES.items():
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        raw = rng.integers(0, 256, (ROWS, blocks, size), dtype=np.uint8)
        if name in ("F32", "BF16"):  # keep the exponent finite
            raw[..., -1] = rng.choice([0x00, 0x3F, 0x80, 0xBE, 0x41], raw.shape[:-1])
        for at in scales:  # exponents 0 to 30 of 31
            raw[..., at + 1] = (raw[..., at + 1] & 0x83) | (rng.integers(0, 31, raw.shape[:-1]) << 2).astype(np.uint8)
        raw = raw.reshape(ROWS, blocks * size)
        if name == "BF16":
            source = raw.view(np.uint8)
        elif name in ("F32", "F16"):
            source = raw.view({"F32": np.float32, "F16": np.float16}[name])
        else:
            source = raw
        values = gguf.dequantize(source, kind).astype("<f4").reshape(ROWS, blocks * elements)
        assert np.isfinite(values).all()
        out.append(struct.pack("<8s3I", name.encode(), ROWS, blocks * elements, raw.nbytes))
        out += [raw.tobytes(), values.tobytes()]
    with open(sys.argv[1], "wb") as f:
        f.write(b"".join(out))


if __name__ == "__main__":
    main()
