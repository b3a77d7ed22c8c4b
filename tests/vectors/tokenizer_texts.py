"""The texts on which tokenizers are compared: bytes, made from one seed, so that every run gives the same list.

Code points are drawn from those that Unicode 14 assigns: PCRE2 10.42 and the reference differ on younger letters by the
age of their tables, which is not what the comparison is about.
"""
import random
import unicodedata

WORDS = """the quick brown fox jumps over a lazy dog I'm you're we've she'd they'll it's DON'T CAN'T rock'n'roll
Straße naïve façade coöperate Москва привет мир Ελλάδα καλημέρα שלום עולם مرحبا بالعالم नमस्ते दुनिया สวัสดีชาวโลก
你好世界 今天天气很好 日本語のテキスト こんにちは カタカナ 한국어 안녕하세요 세계 Việt Nam tiếng xin chào Łódź żółć
გამარჯობა Բարեւ ሰላም ລາວ ខ្មែរ မြန်မာ বাংলা தமிழ் తెలుగు ಕನ್ನಡ മലയാളം ਪੰਜਾਬੀ ગુજરાતી සිංහල བོད ᓄᓇᕗᑦ ᏣᎳᎩ
ﬁ ﬂ ½ ² ① Ⅷ ㎏ № ™ … — “quoted” ‘single’ «guillemets» 50% $9.99 €20 3.14159 1,000,000 0x7fff 2026-01-31T12:00:00Z
user@example.com https://example.com/a?b=c&d=%20#e /usr/lib/x86_64-linux-gnu C:\\Windows\\System32 snake_case camelCase""".split()

CODE = ["int main(void)\n{\n\treturn 0;\n}\n", "for (size_t i = 0; i < n; i++)\n    sum += a[i];\n", "def f(x):\n    return x ** 2\n\n\n",
        "#include <stdio.h>\r\n", "\tif err != nil {\n\t\treturn err\n\t}\n", "SELECT * FROM t WHERE a='b' AND c>=1;--\n", "<div class=\"x\">&nbsp;</div>",
        "{\"key\": [1, 2.5e-3, null, true]}", "$ ls -la | grep '^d' && echo \"ok\"", "x = y if z else {**a, 'b': [*c]}  # comment\n",
        "std::vector<std::pair<int, std::string>> v{{1, \"a\"}};", "let f = |x: &str| -> Result<(), Box<dyn Error>> { Ok(()) };",
        "λx.x → ∀α. α ⇒ β ≠ γ ∧ ¬δ", "git commit -m \"fix: it's\" --no-verify", "while True:\n\tpass\n        print('mixed')\n"]

EMOJI = ["😀", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "❤️", "☕", "🤷🏿‍♂️", "1️⃣", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "🧑‍🚀", "✅", "🫠", "\u200d", "\ufe0f"]

SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\v", "\f", "\n\n", " \n", "\t\t", "\u00a0", "\u2003", "\u3000", "\u2028", "\u202f", "\u1680", "\u0085",
          "\u180e", "\u200b", "\ufeff"]

COMPOSED = ["é", "e\u0301", "Å", "\u212b", "A\u030a", "한글", "\u1112\u1161\u11ab\u1100\u1173\u11af", "\u1100\u1161", "\uac00\u11a8", "ṩ", "s\u0323\u0307",
            "s\u0307\u0323", "q\u0307\u0323", "ﬁ", "Ω", "\u2126", "\u0958", "\u0344", "가\u0301", "\u1e9b\u0323", "a\u0315\u0300\u05ae\u0300\u0062", "がぎ",
            "か\u3099き\u3099", "ö\u0301", "\u0f73", "\U0001d15e", "\u2adc"]

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im_start|>user\nhi<|im_end|>\n", "<repo_name>", "<|fim_prefix|>", "<tool_call>", "</s>", "<s>", "<bos>",
           "<eos>", "<pad>", "<unk>", "<start_of_turn>", "<end_of_turn>", "<start_of_turn>model\n", "<|im_end", "|im_end|>", "<|im_end|>>", "<<|im_end|>", "<0x0A>",
           "<table>", "</h1>", "<unused0>", "[multimodal]", "<|box_start|>", "<file_sep>", "<jupyter_code>", "<empty_output>", "<|eot_id|>", "▁", "▁▁", "Ġ", "Ċ"]

BLOCKS = [(0x21, 0x7E), (0xA1, 0x17F), (0x180, 0x24F), (0x250, 0x2AF), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x531, 0x58F), (0x5D0, 0x5EA),
          (0x600, 0x6FF), (0x900, 0x97F), (0x980, 0x9FF), (0xB80, 0xBFF), (0xE01, 0xE5B), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x137F), (0x13A0, 0x13F5),
          (0x1780, 0x17DD), (0x1E00, 0x1EFF), (0x1F00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x209C), (0x20A0, 0x20BF), (0x2100, 0x214F), (0x2150, 0x218B),
          (0x2190, 0x21FF), (0x2200, 0x22FF), (0x2460, 0x24FF), (0x2500, 0x257F), (0x2600, 0x26FF), (0x3041, 0x309F), (0x30A0, 0x30FF), (0x3130, 0x318E),
          (0x3400, 0x34FF), (0x4E00, 0x9FFF), (0xA000, 0xA48C), (0xA720, 0xA7CA), (0xAC00, 0xD7A3), (0xE000, 0xE0FF), (0xF900, 0xFAD9), (0xFB00, 0xFB4F),
          (0xFE70, 0xFEFC), (0xFF01, 0xFFEE), (0x10330, 0x1034A), (0x10400, 0x1044F), (0x12000, 0x1206E), (0x16A40, 0x16A69), (0x1D400, 0x1D7FF),
          (0x1F300, 0x1F5FF), (0x1F900, 0x1F9FF), (0x20000, 0x200FF), (0x2F800, 0x2FA1D), (0xE0001, 0xE007F), (0x100000, 0x1000FF)]

DIGITS = "0123456789٠١٢٣۴५৬๗༨᠙０１９²³½⅓ⅷⅫ〇㈠𝟘𝟡𐄇"


def assigned(rng, low, high):
    while True:
        c = chr(rng.randint(low, high))
        if unicodedata.category(c) not in ("Cn", "Cs"):
            return c


def word(rng):
    low, high = rng.choice(BLOCKS)
    return "".join(assigned(rng, low, high) for _ in range(rng.randint(1, 8)))


def sentence(rng):
    return "".join(rng.choice(WORDS) + rng.choice([" "] * 8 + [", ", ". ", "\n", "  ", "-", "!? "]) for _ in range(rng.randint(1, 12)))


def spaces(rng):
    return "".join(rng.choice(SPACES) * rng.choice([1, 1, 1, 2, 3, 7]) if rng.random() < 0.7 else rng.choice(WORDS) for _ in range(rng.randint(1, 8)))


def run(rng):
    unit = rng.choice(["a", " ", "\n", "\t", "-", "=", "0", "9", "ab", "é", "語", "😀", "ſ", "A", "!", "aA", "\u0301", "\r\n", ".", "/", "한", "a "])
    return rng.choice(["", "x", " "]) + unit * rng.choice([2, 3, 5, 8, 16, 31, 33, 64, 100, 200]) + rng.choice(["", "x", " ", "\n"])


def digits(rng):
    return rng.choice(["", " ", "a"]) + "".join(rng.choice(DIGITS) for _ in range(rng.randint(1, 12))) + rng.choice(["", "th", " km", ".5"])


def special(rng):
    return rng.choice(["", "a", " ", "\n"]) + rng.choice(SPECIAL) + rng.choice(["", " ", "b", "\n", "  c", rng.choice(SPECIAL)])


def composed(rng):
    return "".join(rng.choice(COMPOSED) + rng.choice(["", "", " "]) for _ in range(rng.randint(1, 6)))


def marks(rng):
    return "".join(rng.choice("aeqßω한") + "".join(assigned(rng, 0x300, 0x36F) for _ in range(rng.randint(0, 5))) for _ in range(rng.randint(1, 5)))


def jamo(rng):
    return "".join(assigned(rng, 0x1100, 0x1112) + assigned(rng, 0x1161, 0x1175) + (assigned(rng, 0x11A8, 0x11C2) if rng.random() < 0.5 else "")
                   for _ in range(rng.randint(1, 5)))


def control(rng):
    return "".join(chr(rng.choice(list(range(0, 32)) + list(range(127, 160)))) if rng.random() < 0.5 else rng.choice("ab 1.") for _ in range(rng.randint(1, 10)))


def contraction(rng):
    suffix = rng.choice(["s", "t", "re", "ve", "m", "ll", "d", "S", "RE", "Ll", "ſ", "x", "d've"])
    return rng.choice(WORDS) + rng.choice(["'", "’", " '", "''"]) + suffix + rng.choice(["", " ", "abc"])


def broken(rng):
    data = bytearray(rng.choice([sentence, word, composed, code])(rng).encode("utf-8"))
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        choice = rng.randrange(4)
        if choice == 0:
            data[at:at] = bytes([rng.randint(0x80, 0xFF)])
        elif choice == 1 and at < len(data):
            del data[at]
        elif choice == 2:
            data[at:at] = rng.choice([b"\xc0\xaf", b"\xe0\x80\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf0\x9f\x98", b"\xe2\x82", b"\xff\xfe", b"\xf8\x88\x80\x80\x80"])
        else:
            data = data[:at]
    return bytes(data)


def code(rng):
    return "".join(rng.choice(CODE) for _ in range(rng.randint(1, 2)))


def emoji(rng):
    return "".join(rng.choice(EMOJI) + rng.choice(["", "", " ", "x"]) for _ in range(rng.randint(1, 5)))


def mixture(rng):
    makers = [sentence, word, spaces, digits, composed, control, emoji, code, special, contraction]
    return "".join(rng.choice(makers)(rng) for _ in range(rng.randint(2, 4)))


def make_texts():
    """The list, as bytes: 2,400 or so, no two alike, the empty text among them."""
    rng = random.Random(20260131)
    plan = [(sentence, 260), (word, 320), (spaces, 220), (run, 160), (digits, 150), (special, 190), (composed, 130), (marks, 90), (jamo, 60), (control, 120),
            (contraction, 110), (broken, 260), (code, 60), (emoji, 110), (mixture, 300)]
    texts = [b""] + [t.encode("utf-8") for t in WORDS + CODE + EMOJI + SPACES + COMPOSED + SPECIAL]
    for maker, count in plan:
        for _ in range(count):
            text = maker(rng)
            texts.append(text if isinstance(text, bytes) else text.encode("utf-8"))
    return list(dict.fromkeys(texts))


def escape(text):
    """One line: printable characters as they are, every other byte and the backslash as \\xNN."""
    out = []
    decoded = text.decode("utf-8", "surrogateescape")
    for c in decoded:
        if c == "\\" or unicodedata.category(c)[0] not in "LNPS" and c != " ":
            out.extend("\\x%02x" % b for b in c.encode("utf-8", "surrogateescape"))
        else:
            out.append(c)
    return "".join(out)
