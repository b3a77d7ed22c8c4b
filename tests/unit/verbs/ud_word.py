#!/usr/bin/env python3
"""Makes the TELL that test_ud.c expects, from docs/protocol-verbs.md and without libsodium: BLAKE2b by hashlib, ChaCha20-Poly1305 by the
cryptography package (OpenSSL), HChaCha20 (draft-irtf-cfrg-xchacha, 2.2) written out. Run by hand: python3 tests/unit/verbs/ud_word.py"""
import hashlib
import struct

from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305


def hchacha20(key, nonce):
    x = list(struct.unpack("<4I", b"expand 32-byte k") + struct.unpack("<8I", key) + struct.unpack("<4I", nonce))

    def quarter(a, b, c, d):
        for p, q, r, n in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[p] = (x[p] + x[q]) & 0xffffffff
            x[r] ^= x[p]
            x[r] = (x[r] << n | x[r] >> 32 - n) & 0xffffffff

    for _ in range(10):
        for i in range(4):
            quarter(i, 4 + i, 8 + i, 12 + i)
        for i in range(4):
            quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return struct.pack("<8I", *x[:4], *x[12:])


def seal(key, nonce, content, clear):
    return ChaCha20Poly1305(hchacha20(key, nonce[:16])).encrypt(bytes(4) + nonce[16:], content, clear)


# The draft's own example (2.2.1), so that the above is right.
assert hchacha20(bytes(range(32)), bytes.fromhex("000000090000004a0000000031415927")).hex() == \
    "82413b4227b27bfed30e42508a877d73a0f9e4d58a74a853c12ec41326d3ecdc"

key = hashlib.blake2b(b"hearsay verbs datagrams 2", key=bytes(range(32)), digest_size=32).digest()
clear = b"HU" + bytes([2, 2, 0, 0, 0, 0])
nonce = struct.pack("<3Q", 1, 2, 3)
port = bytes([0xfe, 0x80]) + bytes(13) + bytes([7]) + struct.pack("<IIHHB3x", 0xabcdef, 0x1234, 9, 4096, 1)
content = bytes([0x5a]) * 16 + bytes([1]) + bytes(7) + port + bytes(3 * 32)
word = clear + nonce + seal(key, nonce, content, clear)
assert len(word) == 200
for i in range(0, len(word), 20):
    print("        " + ", ".join(f"0x{b:02x}" for b in word[i:i + 20]) + ",")
