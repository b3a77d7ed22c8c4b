#!/usr/bin/env python3
"""Prints the expected values of tests/unit/cache/test_block_hash.c and test_block_set.c.

SipHash-2-4 is written from the paper (Aumasson and Bernstein, 2012) and checked against the paper's own test vector (appendix A); keyed
BLAKE2b is Python's. Needs nothing beyond the standard library.
"""
import hashlib
import struct

MASK = (1 << 64) - 1


def rotl(x, n):
    return ((x << n) | (x >> (64 - n))) & MASK


def siphash24(key, message):
    k0, k1 = struct.unpack("<QQ", key)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def sip_round():
        v[0] = (v[0] + v[1]) & MASK
        v[1] = rotl(v[1], 13) ^ v[0]
        v[0] = rotl(v[0], 32)
        v[2] = (v[2] + v[3]) & MASK
        v[3] = rotl(v[3], 16) ^ v[2]
        v[0] = (v[0] + v[3]) & MASK
        v[3] = rotl(v[3], 21) ^ v[0]
        v[2] = (v[2] + v[1]) & MASK
        v[1] = rotl(v[1], 17) ^ v[2]
        v[2] = rotl(v[2], 32)

    padded = message + bytes(7 - len(message) % 8) + bytes([len(message) & 0xFF])
    for (word,) in struct.iter_unpack("<Q", padded):
        v[3] ^= word
        sip_round()
        sip_round()
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(4):
        sip_round()
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def block_set_mix(x):
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014), as Java's SplittableRandom applies it after adding its gamma."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def main():
    assert siphash24(bytes(range(16)), bytes(range(15))) == 0xA129CA6149BE45E5
    key = hashlib.blake2b(b"hearsay block names 1", key=bytes(range(100, 132)), digest_size=16).digest()
    print("key  ", key.hex())
    name = siphash24(key, bytes(range(32)))
    print("root ", hex(name))
    tokens = [7 * i * i + 49151 for i in range(40)]
    for block in range(2):
        chunk = tokens[block * 16 : block * 16 + 16]
        name = siphash24(key, struct.pack("<Q16I", name, *chunk))
        print("block", hex(name))
    print("sum  ", hex((block_set_mix(0x0123456789ABCDEF) + block_set_mix(0x01000000000000FF)) & MASK))


if __name__ == "__main__":
    main()
