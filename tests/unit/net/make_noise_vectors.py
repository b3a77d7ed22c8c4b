#!/usr/bin/env python3
"""Makes noise_vectors.h from the PyPI package noiseprotocol 0.3.1, an independent implementation of the Noise framework.

    pip install noiseprotocol==0.3.1
    python3 tests/unit/net/make_noise_vectors.py > tests/unit/net/noise_vectors.h
"""
from noise.connection import Keypair, NoiseConnection

NAME = b"Noise_NNpsk0_25519_ChaChaPoly_SHA256"
CASES = [
    (b"", bytes(range(32)), bytes(range(1, 33)), bytes(range(32, 64)), b"", b""),
    (b"hearsay fabric 1", b"\xa5" * 32, b"\x11" * 32, b"\x22" * 32, b"hello from the initiator", b"and one from the responder"),
    (b"prologue", bytes(reversed(range(32))), b"\x77" * 32, b"\x88" * 32, bytes(range(100)), b"\0"),
]


def c_bytes(name, data):
    body = ", ".join("0x%02x" % b for b in data) if data else "0"
    return "    .%s = (const uint8_t[]){%s}, .%s_len = %d,\n" % (name, body, name, len(data))


print("/* Made by make_noise_vectors.py with noiseprotocol 0.3.1; see there. */")
print("#ifndef HEARSAY_TEST_NET_NOISE_VECTORS_H\n#define HEARSAY_TEST_NET_NOISE_VECTORS_H\n")
print("static const struct noise_vector noise_vectors[] = {")
for prologue, psk, e_i, e_r, p1, p2 in CASES:
    sides = []
    for initiator, secret in ((True, e_i), (False, e_r)):
        c = NoiseConnection.from_name(NAME)
        c.set_psks(psk)
        c.set_prologue(prologue)
        c.set_as_initiator() if initiator else c.set_as_responder()
        c.set_keypair_from_private_bytes(Keypair.EPHEMERAL, secret)
        c.start_handshake()
        sides.append(c)
    i, r = sides
    m1 = bytes(i.write_message(p1))
    assert bytes(r.read_message(m1)) == p1
    m2 = bytes(r.write_message(p2))
    assert bytes(i.read_message(m2)) == p2
    # The split keys are the transport keys of the two directions.
    k1 = bytes(i.noise_protocol.cipher_state_encrypt.k)
    k2 = bytes(i.noise_protocol.cipher_state_decrypt.k)
    print("{")
    for name, data in (("prologue", prologue), ("psk", psk), ("initiator", e_i), ("responder", e_r), ("payload1", p1),
                       ("payload2", p2), ("message1", m1), ("message2", m2), ("key1", k1), ("key2", k2)):
        print(c_bytes(name, data), end="")
    print("},")
print("};")
print("\n#endif")
