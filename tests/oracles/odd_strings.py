"""Strings that tokenizers lose: a seeded generator, and a check that another process can run on saved tokenizers.

Run as `python odd_strings.py N FOLDER...`: loads each tokenizer, and prints the strings that do not come back.
"""

import random
import sys
from collections.abc import Iterator

PARTS = (
    "a", "Hello", " ", "  ", "\t", "\n", "\r\n", "\r", "\x00", "\x7f", "\u0085", "\u2028", "\ufeff", "\ufe30", "\u2581",
    "\ufffd", "é", "e\u0301", "ñ", "n\u0303", "ß", "İ", "ﬁ", "Ω", "\u2126", "각", "깰", "\u1100\u1161\u11a8", "ㄱ",
    "한국어", "日本語", "ไทย", "हिन्दी", "עברית", "👩\u200d👩\u200d👧", "🏳\ufe0f\u200d🌈", "👍🏽", "🙂", "\u200d", "\u0301",
    "\U0010ffff", "\ue000", "^", "^^^^", "'s", "'", "123", "<", ">", "<|endoftext|>", "<unk>", "<s>", "</s>", "<0xEA>",
    "<0x0A>", "<end>", "Ġ", "Ċ", "##a", "\\n", "%s", "{}",
)  # fmt: skip
ALPHABET = "".join(sorted(set("".join(PARTS))))


def odd_strings(n: int, seed: int) -> Iterator[str]:
    """n strings of up to 12 parts; every 50th is a code point of any plane in company."""
    draw = random.Random(seed)
    for i in range(n):
        text = "".join(draw.choices(PARTS, k=draw.randrange(13)))
        if i % 50 == 0:
            code = draw.randrange(0x110000)
            text += chr(code) if not 0xD800 <= code < 0xE000 else ""
        yield text


def failures(tokenizer, n: int, seed: int) -> list[str]:
    """The strings of this seed that decode(encode(text)) does not give back; those of the alphabet, for characters."""
    texts = [t for t in odd_strings(n, seed) if tokenizer.kind != "characters" or set(t) <= set(ALPHABET)]
    bad = []
    for start in range(0, len(texts), 10_000):
        batch = texts[start : start + 10_000]
        encoded = tokenizer.encode_many(batch, [False] * len(batch))
        bad += [text for text, ids in zip(batch, encoded, strict=True) if tokenizer.decode(ids) != text]
    return bad


if __name__ == "__main__":
    from unembed.tokenizers.files import load

    carets = "^" * 1_000_000
    for folder in sys.argv[2:]:
        loaded = load(folder)
        for lost in failures(loaded, int(sys.argv[1]), seed=7):
            print(folder, ascii(lost))
        if loaded.decode(loaded.encode_ids(carets)) != carets:
            print(folder, "a million carets")
