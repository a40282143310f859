"""Strings on which backends are compared, and whose ids are part of a tokenizer's fingerprint.

They cover what encoders get wrong: text that spells control tokens, combining marks, emoji sequences, line
ends, long runs, scripts without spaces, right-to-left text, digits, NUL, nothing at all. The list is fixed:
a change of it changes every fingerprint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prep.tokenizers.protocol import Encoder

RUN = 300

WORDS = (
    "", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\r", "\t", "\t\t x", "a", " a", "A", "the", " the", "The quick brown fox",
    "Hello, world!", "hello world", " leading", "trailing ", "trailing  \n", "two  spaces", "three   spaces   here",
    "line one\nline two\n", "line one\r\nline two\r\n", "para\n\n\npara", " \n \n", "tab\tseparated\tvalues\n",
    "don't", "DON'T", "we'll've", "I'm you're he's they'd", "it\u2019s", "rock 'n' roll", "'s", "'S", " 'tis",
    "snake_case_name", "camelCaseName", "PascalCase", "SCREAMING_CASE", "kebab-case", "dotted.name.here", ".data",
    "def f(x):\n    return x ** 2\n", "if (a<=b && c!=d) { e+=1; }", "a->b::c<d>()", "#include <stdio.h>", "/* comment */",
    "https://example.org/path?q=1&r=%20#frag", "user@example.org", "C:\\Users\\name\\file.txt", "../../etc/passwd",
    '<html><body class="x">text</body></html>', '{"key": [1, 2.5, null, true]}', "$x^2 + y_1 = \\frac{1}{2}$",
)  # fmt: skip
DIGITS = (
    "0", "7", "12", "123", "1234", "12345", "123456", "1234567890", "3.14159", "1,000,000", "-42", "+1", "1e-10", "0x1F",
    "2024-02-29T12:34:56Z", "192.168.0.1", "١٢٣٤٥", "१२३४", "²³¹", "½ ⅔", "ⅷ", "１２３", "1st 2nd 3rd", "v1.2.3-rc4", "٣٫١٤",
)  # fmt: skip
SCRIPTS = (
    "naïve café résumé", "e\u0301 cafe\u0301", "a\u0300\u0301\u0302\u0303", "\u0301 alone", "ﬁ ﬂ ligatures", "ß ẞ STRASSE straße", "İstanbul ıi",
    "Ångström \u212b", "\ufe30", "ﷺ", "Ελληνικά κείμενα", "Привет, мир!", "Українська мова", "Հայերեն", "ქართული ენა", "עברית בלי ניקוד",
    "שָׁלוֹם", "مرحبا بالعالم", "اَلْعَرَبِيَّةُ", "فارسی می‌خواهم", "اردو زبان", "हिन्दी भाषा", "क्षत्रिय", "বাংলা ভাষা", "தமிழ் மொழி", "తెలుగు", "മലയാളം",
    "සිංහල", "ภาษาไทยไม่มีช่องว่าง", "ກຳລັງ", "မြန်မာဘာသာ", "ភាសាខ្មែរ", "བོད་ཡིག", "中文没有空格的句子。", "繁體中文，標點「引號」！", "日本語のテキスト、カタカナとひらがな。", "ｶﾞﾊﾟ",
    "한국어 문장입니다.", "\u1112\u1161\u11ab\u1100\u1173\u11af", "Tiếng Việt có dấu", "አማርኛ", "ᏣᎳᎩ", "ᚠᛇᚻ", "𐍈𐌰", "𝓯𝓪𝓷𝓬𝔂 𝕥𝕖𝕩𝕥", "𠮷野家", "㍿㌔", "①②③",
    "mixed 中文 and English テスト 123", "Latin\u00a0nbsp\u2003em", "zero\u200bwidth\u200djoiner\u2060x", "soft\u00adhyphen", "\u202eright-to-left\u202c", "\ufeffbom", "line\u2028sep\u2029para\u0085nel",
)  # fmt: skip
SYMBOLS = (
    "😀", "😀😀😀", " 😀 x", "👍🏽", "👨\u200d👩\u200d👧\u200d👦", "🏳\ufe0f\u200d🌈", "🇩🇪🇫🇷", "❤\ufe0f ❤", "1\ufe0f\u20e3", "☃☂★", "←↑→↓ ⇒", "∑∏∫√∞≠≤", "€£¥₹₿", "©®™",
    "…—–‐", "“quoted” ‘single’ «guillemets»", "!!!???...", "-----", "=====", "***bold*** _it_", "~`@#$%^&*()_+", "[](){}<>", "||", "\\n\\t\\x00", "\x00", "a\x00b",
    "\x01\x02\x1b[0m", "\x7f", "\ufffd", "\ufffe\uffff", "\U0010ffff", "\ue000", "\u0378",
)  # fmt: skip
RUNS = (
    "a",
    " ",
    "\n",
    "\t",
    "0",
    "7",
    "-",
    "=",
    "ab",
    "é",
    "漢",
    "ก",
    "😀",
    "e\u0301",
    "\x00",
    "\u0301",
    "!",
    " a",
    "\r\n",
    "A",
    "_",
    "ت",
    "中a",
)


def probe_strings(control_tokens: Sequence[str]) -> list[str]:
    """The probes for a tokenizer with these control tokens."""
    runs = [run * RUN for run in RUNS] + [f"x{run * RUN}y" for run in RUNS[:6]]
    controls = []
    for token in control_tokens[:8]:
        controls += [token, f"foo {token} bar", f"{token}{token}", token[:-1], f" {token}\n", token.lower()]
    return [*WORDS, *DIGITS, *SCRIPTS, *SYMBOLS, *runs, *controls]


def probe_ids(encoder: Encoder, probes: Sequence[str]) -> list[list[int]]:
    """The ids that a backend gives to each probe."""
    encoded = encoder.encode(list(probes))
    return [
        encoded.ids[start:stop].tolist()
        for start, stop in zip(encoded.offsets[:-1].tolist(), encoded.offsets[1:].tolist(), strict=True)
    ]


def first_difference(
    probes: Sequence[str], expected: Sequence[Sequence[int]], found: Sequence[Sequence[int]]
) -> str | None:
    """A description of the first probe on which two backends or versions differ, or None."""
    for text, left, right in zip(probes, expected, found, strict=True):
        if list(left) != list(right):
            return describe_difference(text, left, right)
    return None


def describe_difference(text: str, expected: Sequence[int], found: Sequence[int]) -> str:
    """Where two id lists part, with a little of both."""
    same = 0
    while same < min(len(expected), len(found)) and expected[same] == found[same]:
        same += 1
    around = slice(max(0, same - 3), same + 5)
    return (
        f"{text[:60]!r}: from token {same} on expected {list(expected[around])} "
        f"({len(expected)} in all), found {list(found[around])} ({len(found)} in all)"
    )
