"""Writes the saved inputs that are text or files: python3 tests/fuzz/make_corpus.py, from the top of the source tree.

Together with make_corpus.c (messages and orders, written with the real encoders) this makes every input of tests/fuzz/corpus but those
that a fuzzer found; these have names that say what they broke.
"""
import json
import os
import struct

CORPUS = "tests/fuzz/corpus"
TINY = "tests/vectors"


def put(target, name, data):
    folder = f"{CORPUS}/{target}"
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/{name}", "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


def read(path):
    with open(path, "rb") as f:
        return f.read()


def models():
    for name in ("qwen2", "mistral"):
        put("gguf", name, read(f"{TINY}/tiny/{name}.gguf"))
    w4 = read(f"{TINY}/tiny/w4.gguf")
    put("gguf", "w4", w4)
    put("gguf", "w4_minimum", w4.replace(struct.pack("<I", 0x57340080), struct.pack("<I", 0x57341020)))
    put("gguf", "cut_in_metadata", read(f"{TINY}/tiny/qwen3.gguf")[:3000])
    for name in ("llama3", "llama_linear", "mistral", "qwen2", "qwen2_yarn", "qwen3"):
        put("config", name, read(f"{TINY}/tiny/{name}/config.json"))
    for name in ("gemma", "llama2", "llama3", "metaspace", "mistral"):
        put("tokenizer", name, read(f"{TINY}/tokenizer_tiny_{name}/tokenizer.json"))
    folder = f"{TINY}/tiny/qwen2"
    settings = f"{folder}/tokenizer_config.json"
    put("tokenizer", "with_settings", read(f"{folder}/tokenizer.json") + b"\0" +
        (read(settings) if os.path.exists(settings) else b'{"add_bos_token":true,"eos_token":{"content":"<|im_end|>"}}') +
        b'\0{"eos_token_id":[1,2,99999],"bos_token_id":0}\0text <|im_end|>')


def folders():
    jinja = "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
    put("folder", "own", b"")
    put("folder", "template_in_config", json.dumps({"chat_template": jinja, "eos_token": "<|im_end|>"}))
    put("folder", "named_templates", json.dumps({"chat_template": [{"name": "tool_use", "template": "x"}, {"name": "default", "template": jinja}, 3]}))
    put("folder", "template_file", "\0" + jinja)
    put("folder", "unknown_template", "\0{{ messages }}")
    put("folder", "other_shape", b"\0\0" + read(f"{TINY}/tiny/mistral/config.json"))
    put("folder", "fewer_tokens", b"\0\0\0" + read(f"{TINY}/tokenizer_tiny_mistral/tokenizer.json"))


def safetensors():
    header = {"a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
              "b": {"dtype": "BF16", "shape": [3], "data_offsets": [16, 22]},
              "c": {"dtype": "I64", "shape": [], "data_offsets": [22, 30]},
              "none": {"dtype": "F16", "shape": [0, 4], "data_offsets": [30, 30]},
              "__metadata__": {"format": "pt"}}
    text = json.dumps(header).encode()
    put("safetensors", "file", struct.pack("<Q", len(text)) + text + bytes(30))
    packed = json.dumps({"t": {"dtype": "U8", "shape": [2, 18], "data_offsets": [0, 36]}, "__metadata__": {"hearsay.packing": "W4_G32"}}).encode()
    put("safetensors", "packed", struct.pack("<Q", len(packed)) + packed + bytes(36))
    put("safetensors", "overlap", struct.pack("<Q", len(text)) + text.replace(b"[16, 22]", b"[15, 21]") + bytes(30))
    put("safetensors", "index", json.dumps({"metadata": {"total_size": 8},
                                            "weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}))
    put("safetensors", "index_leaves_folder", json.dumps({"weight_map": {"a": "../one.safetensors", "b": "/two.safetensors"}}))


def chats():
    jinja = {"chatml": "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n'}}{% endfor %}",
             "llama3": "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}",
             "gemma": "{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}",
             "llama2": "{{ bos_token + '[INST] <<SYS>>' + content.strip() + ' [/INST]' }}",
             "zephyr": "{{ '<|user|>\\n' + message['content'] + eos_token }}"}
    talk = b"\2You are kind.\0\0Hello <|im_end|>\0\1Hi!\0\0Bye \xc3\xb6\0"
    for name, text in jinja.items():
        put("chat", f"detect_{name}", b"\0" + text.encode() + b"\0\1" + talk)
    for number in range(1, 20):
        put("chat", f"family_{number:02}", bytes([number, (number * 2 + 1) & 0xFF]) + talk)
        put("chat", f"family_{number:02}_odd", bytes([number, number * 2]) + b"\1first\0\0 [/INST] </think> a\0\0b\0\3tool says\0")
    put("chat", "empty", b"\1\1")


def texts():
    samples = {"english": "Hello, world! It's 12345 o'clock.\n\n  Indented\tline  ", "mixed": "für 東京 😀 e\u0301 \u2581x <|im_end|> <s> नमस्ते",
               "control": "<|begin_of_text|><|eot_id|><s></s><unk><0x0A>\r\n\r\n", "spaces": " " * 70 + "\u00a0\u3000 x"}
    for number in range(6):
        for name, text in samples.items():
            put("text", f"{name}_{number}", bytes([number, number & 3, 5, 23]) + text.encode())
    put("text", "broken", bytes([0, 2, 3, 4]) + b"a\xff\xc3\xe2\x82 \xf0\x9f\x98 \xed\xa0\x80\xc0\xaf b")


def requests():
    chat = {"model": "tiny", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}],
            "max_tokens": 8, "temperature": 0.7, "top_p": 0.9, "stop": ["a", "\n\nab"], "stream": True,
            "stream_options": {"include_usage": True}, "logprobs": True, "top_logprobs": 3, "seed": 1, "n": 2, "logit_bias": {"5": -100},
            "presence_penalty": 0.1, "cache_salt": "x"}
    put("api", "completion", b"\0" + json.dumps({"prompt": "once upon", "echo": True, "logprobs": 2, "max_tokens": 0, "n": 1,
                                                  "min_tokens": 2, "stop": "upo"}).encode())
    put("api", "completion_ids", b"\0" + json.dumps({"prompt": [[1, 2, 3], [4]], "ignore_eos": True, "repetition_penalty": 1.1}).encode())
    put("api", "chat", b"\1" + json.dumps(chat).encode())
    put("api", "tokenize", b"\2" + json.dumps({"prompt": "a b", "add_special_tokens": False}).encode())
    put("api", "tokenize_messages", b"\2" + json.dumps({"messages": chat["messages"], "add_generation_prompt": False}).encode())
    put("api", "detokenize", b"\3" + json.dumps({"tokens": [1, 200, 3]}).encode())
    put("api", "deep", b"\1" + b'{"messages":' + b"[" * 100 + b"]" * 100 + b"}")
    put("api", "broken_utf8", b'\1{"messages":[{"role":"user","content":"\xff\xfe"}]}')
    put("api", "huge_numbers", b'\0{"prompt":"a","max_tokens":1e999,"seed":99999999999999999999}')
    put("api", "nul_in_text", b'\1{"messages":[{"role":"user","content":"a\\u0000b"}],"stop":["\\u0000"]}')


def words():
    lines = {"plain": ["--model", "m.gguf"], "many": ["--model=m", "--http", "0.0.0.0:80", "--join", "node[01-04]:7070", "--cpus", "0-3,8",
             "--pin", "loop=2,http=3,compute=4-7", "--kv-memory", "2GiB", "--gossip-interval", "10ms", "--same-bits", "--check"],
             "unknown": ["--nothing"], "contradiction": ["--model", "m", "--kv-pages", "4", "--kv-memory", "1G"],
             "missing_value": ["--model"], "cut_name": ["--ht", "x", "--", "y"], "flag_value": ["--check=3"]}
    for name, line in lines.items():
        put("options", name, "\0".join(line))
    values = {0: ["18446744073709551614", "-1", " 5", "0x10"], 1: ["1e300", "nan", "-.5e-3", "inf"], 2: ["1.5G", "10MB", "2GiB", "99999999T"],
              3: ["200us", "1.5h", "0", "1e30s"], 4: ["0,2-5,8", "5-2", "0-4294967295", "1,,2"],
              5: ["node[01-04,7]:7070,gpu3,[::1]:7070", "a[0-99999999]", "x[1-2][3-4]", "[::1", "a[08-11]b"],
              6: ["00" * 32, "zz", "x" * 32], 7: ["yes", "0"], 8: ["warn"], 9: ["\x7f\x80\x01"], 10: ["a\"\\\n\x01\x7f\u2028", "\ud7ff"]}
    for kind, texts_ in values.items():
        for i, text in enumerate(texts_):
            put("values", f"kind{kind:02}_{i}", bytes([kind]) + text.encode())
    put("values", "kind05_port", bytes([16]) + b"node[01-04],b:1,[::1]")
    put("values", "kind09_overlong", bytes([9]) + b"\x80" * 9 + b"\x01" + b"\xff" * 9 + b"\x02")
    put("values", "kind10_broken", bytes([10]) + b"\xff\xc3\xe2\x82\xf0\x9f\x98")


def answers():
    status = {"name": "node1", "cluster": {"peers": [{"name": "b", "state": "alive", "routable": True, "x": {}}, {"name": "c", "rtt": 0.5}],
              "load": {"waiting": 3, "rate": 1.25e9, "none": None}}, "list": [1, 2]}
    put("show", "status", json.dumps(status))
    put("show", "table", json.dumps(status["cluster"]["peers"]))
    put("show", "terminal", '{"name\\u001b[2J":"\\u001b]0;x\\u0007","rows":[{"\\u009b":"\\u007f\\n\\t"}]}')
    put("show", "ragged", '[{"a":1},2,null,{"b":[]},{"a":{"c":1}}]')
    chunk = 'data: {"choices":[{"index":0,"text":"a"}],"usage":null}\r\n\r\n'
    end = 'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":2}}}\n\ndata: [DONE]\n\n'
    put("stream", "good", b"\x11\x22" + (chunk + end).encode())
    put("stream", "error", b"\x03\x04" + b'{"error":{"message":"no"}}')
    put("stream", "midway", b"\x10\x60" + (chunk + 'event: error\ndata: {"error":{"message":"gone"}}\n\n').encode())
    put("stream", "odd", b"\x01\x01" + b": comment\ndata:\ndata: 5\ndata: [1]\ndata: {\"choices\":3,\"usage\":{\"prompt_tokens\":-1}}\n")


def frames():
    """Ethernet by hand: a datagram of "hello" (checksums by RFC 768 and 791), ARP's question and answer; then command lines."""
    ethernet = bytes.fromhex("020000000002 020000000001".replace(" ", ""))
    ip = bytes.fromhex("45000021 00004000 401126ca 0a000001 0a000002".replace(" ", ""))
    udp = bytes.fromhex("1b9e1b9f000d70c2") + b"hello"
    arp = bytes.fromhex("0001080006040001 020000000001 0a000001 000000000000 0a000002".replace(" ", ""))
    put("frame", "datagram", b"\0" + ethernet + b"\x08\0" + ip + udp)
    put("frame", "padded", b"\0" + ethernet + b"\x08\0" + ip + udp + bytes(13))
    put("frame", "no_checksum", b"\3" + ethernet + b"\x08\0" + ip + udp[:6] + b"\0\0hello")
    put("frame", "ip_options", b"\3" + ethernet + b"\x08\0" + b"\x46" + ip[1:3] + b"\x25" + ip[4:] + b"\1\1\1\0" + udp)
    put("frame", "fragment", b"\3" + ethernet + b"\x08\0" + ip[:6] + b"\x20\0" + ip[8:] + udp)
    put("frame", "lengths", b"\3" + ethernet + b"\x08\0" + ip[:2] + b"\xff\xff" + ip[4:] + udp)
    put("frame", "ask", b"\0" + b"\xff" * 6 + ethernet[6:] + b"\x08\x06" + arp)
    put("frame", "tell", b"\0" + ethernet + b"\x08\x06" + arp[:7] + b"\2" + arp[8:])
    put("frame", "device", b"\1net_memif0,0000:01:00.0,mtu=9000,queues=4,prefix=24,gateway=10.0.0.254")
    put("frame", "eal", b"\2--no-huge -l 1 --vdev='net_af_packet0,iface=eth0' --vdev net_memif0,socket=\"a b\" -m 64")
    put("frame", "eal_contradiction", b"\2--no-huge --in-memory --vdev=x")


if not os.path.isdir(TINY):
    raise SystemExit("run me from the top of the source tree")
for make in (models, folders, safetensors, chats, texts, requests, words, answers, frames):
    make()
