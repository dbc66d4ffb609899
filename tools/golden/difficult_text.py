# SPDX-License-Identifier: Apache-2.0
"""Random texts that are difficult to tokenize: scripts, marks, emoji, digits, white space, contractions, controls,
repeats, token names.

Characters are those that Unicode 3.2 assigned, private ones, never assigned ones, and named ranges: so the tables of the
compared tokenizers agree, whatever their version of Unicode. (Not on U+0EBA, whose class came with Unicode 12: NFC
orders it after marks in old tables, before them in new ones.)
"""
import random
import unicodedata

ASSIGNED = [chr(c) for c in range(0x110000) if not 0xd800 <= c < 0xe000 and
            (unicodedata.ucd_3_2_0.category(chr(c)) != "Cn" or c in range(0x50000, 0x50100) or c in (0xfffe, 0xffff))]
RANGES = [(0xc0, 0x24f), (0x250, 0x2ff), (0x370, 0x3ff), (0x400, 0x52f), (0x531, 0x556), (0x5d0, 0x5ea), (0x620, 0x64a), (0x905, 0x939),
           (0x985, 0x9b9), (0xb85, 0xbb9), (0xe01, 0xe3a), (0xe81, 0xec4), (0xf40, 0xf6a), (0x10a0, 0x10f0), (0x1100, 0x11ff), (0x1200, 0x135a),
           (0x13a0, 0x13f4), (0x1780, 0x17b3), (0x1820, 0x1877), (0x1e00, 0x1eff), (0x1f00, 0x1fff), (0x2100, 0x214f), (0x3041, 0x30ff),
           (0x4e00, 0x9fa5), (0xa000, 0xa48c), (0xac00, 0xd7a3), (0xf900, 0xfa2d), (0xfb00, 0xfb06), (0xff10, 0xff5e), (0x10400, 0x1044f), (0x1d400, 0x1d7ff),
           (0x20000, 0x2a6d6)]
SCRIPTS = [[c for c in map(chr, range(first, last + 1)) if unicodedata.ucd_3_2_0.category(c) != "Cn"] for first, last in RANGES]
MARKS = [c for c in ASSIGNED if unicodedata.category(c)[0] == "M"]
SPACES = [" "] * 12 + ["\t", "\n", "\r", "\r\n"] * 3 + list("\v\f\x1c\x1d\x1e\x1f\x85\xa0\u1680\u180e\u2000\u2003\u2009\u200a\u200b\u2028\u2029\u202f\u205f\u2060\u3000\ufeff")
DIGITS = list("0123456789") * 3 + list("²³¹½¾⅓①⑳Ⅻⅷ〇〡٠٣٩۴४६৪๓໓༢၄០៤᠓０５９") + ["\U0001d7d8", "\U0001d7ff"]
PUNCTUATION = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") * 2 + list("¡¿«»“”‘’‚„‹›…—–‐·•§¶†‰、。〈《「」〜・،؛؟۔।॥፡።᠀€£¥₩¢¬±×÷∀∑√∞≠→⇒■▲★☆♥♪¦¨´¸˜＂！？：；")
CONTRACTIONS = ["s", "t", "re", "ve", "m", "ll", "d", "S", "T", "RE", "Ve", "M", "lL", "D", "ſ", "r", "l", "v", "K", "st", "sx", "dé", "m1", "ﬆ", "ß"]
EMOJI = ["🦙", "😀", "👩\u200d👩\u200d👧", "🏳\ufe0f\u200d🌈", "✋🏽", "❤\ufe0f", "#\ufe0f\u20e3", "1\ufe0f\u20e3", "🇩🇪", "🇫", "🏴\U000e0067\U000e0062\U000e007f",
         "\u200d", "\ufe0f", "🏿", "☎", "©", "™"]
NAMES = ["<|im_start|>", "<|im_end|>", "<|im_", "im_end|>", "<|im_end|", "<|im_end|>>", "<<|im_end|>", "<tool>", "<tool>>", "<too", "<table>", "<table", "<s>", "</s>", "<unk>", "<pad>",
         "<0x41>", "<0x0A>", "<0x0a>", "<0x", "▁", "▁▁", "Ġ", "Ċ", "[INST]", "[/INST]", "<|endoftext|>", "<extra_id_0>", "\n\n", "{{", "\\n", "\\u00e9"]
WORDS = ("the of and to in is that it for was on are as with his they at be this from have or by one had not but what all were when we there can an your which their said if do"
         " will each about how up out them then she many some so these would other into has more her two like him see time could no make than first been its who now people"
         " HTTPServer camelCase XMLHttpRequest snake_case iPhone McDonald ÜBER Straße naïve café ĲSSEL ǅungla ʼn Привет МИР слово Ελλάδα ΟΔΟΣ 日本語 中文 スペース 한국어 हिन्दी क्षि"
         " ภาษาไทย עברית العربية int main(void) https://example.org/path?q=1&b=2 user@mail.com x86_64 /usr/lib return 0; == != -> << >>= ...").split(" ")


def word(r):
    w = r.choice(WORDS)
    return r.choice([w, w, w, w.upper(), w.capitalize(), w.title(), w[:r.randint(1, len(w))], "".join(r.choice((c.upper(), c.lower())) for c in w)])


def letters(r):
    return "".join(r.choices(r.choice(SCRIPTS), k=r.randint(1, 6)))


def marked(r):
    return r.choice([word(r)[-1:], letters(r)[0], "e", "a", " ", "1", ".", ""]) + "".join(r.choice(MARKS) for _ in range(r.choice([1, 1, 2, 3, 20])))


def run(r):
    return r.choice([" ", " ", "\n", "\t", "\r\n", "\u3000", "a", "A", "0", "1", "é", "日", "!", "-", "=", "\u0301", "🦙", "'", "▁", "\x00", r.choice(ASSIGNED)]) * \
        r.choice([2, 2, 3, 3, 4, 5, 7, 8, 9, 16, 17, 33, 100])


def number(r):
    return r.choice(["{}", "{}.{}", "{},{}", "-{}", "${}", "{}%", "v{}", "{}e{}"]).format(r.randint(0, 10 ** r.randint(1, 12)), r.randint(0, 999))


PARTS = [
    (8, word), (8, lambda r: r.choice(SPACES)), (6, lambda r: " "), (3, lambda r: r.choice(PUNCTUATION)), (2, lambda r: "".join(r.choices(PUNCTUATION, k=r.randint(2, 4)))),
    (3, letters), (2, marked), (2, number), (2, lambda r: "".join(r.choices(DIGITS, k=r.randint(1, 7)))), (2, lambda r: r.choice("''''’ʼ`") + r.choice(CONTRACTIONS)),
    (1, lambda r: r.choice(EMOJI)), (1, run), (1, lambda r: r.choice(NAMES)), (1, lambda r: "".join(r.choices(ASSIGNED, k=r.randint(1, 4)))),
    (1, lambda r: chr(r.choice([*range(32), *range(127, 160)]))), (1, lambda r: "".join(r.choices("aAbB1 .,'\n-", k=r.randint(2, 8)))),
]
WEIGHTS = [w for w, _ in PARTS]


def text(r: random.Random):
    n = r.choice([1, 2, 3, 4, 6, 8, 12, 20, 40])
    return "".join(make(r) for _, make in r.choices(PARTS, WEIGHTS, k=n))
