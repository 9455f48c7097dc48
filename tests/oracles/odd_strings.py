"""Strings that tokenizers lose: a seeded generator, and what another process checks on saved tokenizers and saved ids.

Run as `python odd_strings.py N SEED FOLDER...`: each folder holds a tokenizer, and the ids that the first process gave to
these strings (`write_ids`). It loads the tokenizer, decodes those ids, encodes anew, and prints what differs.
"""

import random
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

PARTS = (
    # letters, and forms that a normaliser would replace by their equals
    "a", "Hello", "é", "e\u0301", "ñ", "n\u0303", "ß", "İ", "ﬁ", "Ω", "\u2126", "q\u0307\u0323", "ǅ", "ſ", "㎏", "①",
    # spaces and line ends of all kinds
    " ", "  ", "\t", "\n", "\r\n", "\r", "\v", "\f", "\x1c", "\u0085", "\u00a0", "\u1680", "\u2002", "\u2009", "\u200b",
    "\u2028", "\u2029", "\u202f", "\u205f", "\u2060", "\u3000", "\n\r", " \r\n ",
    # what is no letter at all: controls, marks, non-characters, private use, the last code point
    "\x00", "\x7f", "\u0091", "\ufeff", "\ufe30", "\ufe0f", "\ufffd", "\ufffe", "\U0001ffff", "\U0010ffff", "\ue000", "\u00ad",
    # Korean: syllables, the same in conjoining jamo, jamo alone, old and half-width ones
    "각", "깰", "\u1100\u1161\u11a8", "\u1101\u1162\u11af", "\u1100", "\u1161", "\u11a8", "\u1112\u119e\u11ab", "ㄱ", "ﾡ",
    "\u115f", "\u3164", "한국어",
    # other scripts, some from right to left, with the marks that turn the direction
    "日本語", "が", "か\u3099", "ไทย", "हिन्दी", "क\u094d\u200dष", "עברית", "שׁ", "العربية", "لا", "\u200f", "\u202e", "\u2066",
    "\u2069", "𝄞", "𐍈",
    # emoji: joined, coloured, flags (and half of one), keycaps, tags
    "👩\u200d👩\u200d👧", "🏳\ufe0f\u200d🌈", "👍🏽", "🙂", "🇰🇷", "🇪🇸", "🇰", "1\ufe0f\u20e3", "🏴\U000e0067\U000e0062\U000e007f",
    "\u200d", "\u0301", "\u0301\u0327\u0308",
    # repetitions, and text that looks like somebody's token
    "^", "^^^^", "'s", "'", "123", "<", ">", "<|endoftext|>", "<unk>", "<s>", "</s>", "<0xEA>", "<0x0A>", "<end>", "<pad>",
    "[UNK]", "\u2581", "Ġ", "Ċ", "##a", "@@", "\\n", "\\u0000", "%s", "{}", "\"", ",", "0x",
)  # fmt: skip
ALPHABET = "".join(sorted(set("".join(PARTS))))
BATCH = 10_000
STREAMED_EVERY = 20


def odd_strings(n: int, seed: int) -> Iterator[str]:
    """n strings of up to 12 parts; every 50th is a code point of any plane in company. Surrogates are no characters."""
    draw = random.Random(seed)
    for i in range(n):
        text = "".join(draw.choices(PARTS, k=draw.randrange(13)))
        if i % 50 == 0:
            code = draw.randrange(0x110000)
            text += chr(code) if not 0xD800 <= code < 0xE000 else ""
        yield text


def long_strings() -> list[str]:
    """A million carets, and runs of other things that a tokenizer may handle one by one, or in squared time."""
    runs = ("\u0301", "\r\n", " ", "\x00", "깰", "\u1161", "👩\u200d", "ab", "\u202e", "<s>")
    return ["^" * 1_000_000, *(run * 20_000 for run in runs)]


def batches(n: int, seed: int) -> Iterator[list[str]]:
    """The long strings, unless only a few are wanted, then the odd ones, in lists."""
    if n >= BATCH:
        yield long_strings()
    strings = odd_strings(n, seed)
    while batch := list(islice(strings, BATCH)):
        yield batch


def expected(tokenizer, text: str) -> str:
    """What must come back: the text; a vocabulary that writes spaces as `▁` says so, and gives spaces for that sign."""
    return text.replace("\u2581", " ") if tokenizer.loses else text


def failures(tokenizer, texts: Sequence[str]) -> list[str]:
    """The texts that decode(encode(text)) does not give back."""
    encoded = tokenizer.encode_many(texts, [False] * len(texts))
    return [t for t, ids in zip(texts, encoded, strict=True) if tokenizer.decode(ids) != expected(tokenizer, t)]


def why_spans_are_wrong(tokenizer, text: str) -> str:
    """What is wrong with the spans of a text, "" if nothing.

    They never go back, leave no character out, end with the text, and each holds all bytes that its token adds.
    """
    encoding = tokenizer.encode(text)
    covered, begun, previous = 0, 0, None
    for token_id, (start, end) in zip(encoding.ids, encoding.spans, strict=True):
        if not begun <= start <= covered or not start <= end <= len(text):
            return f"span {start}-{end} after {begun}-{covered}"
        if tokenizer.token_bytes(token_id, previous) not in expected(tokenizer, text[start:end]).encode():
            return f"span {start}-{end} does not hold {tokenizer.token_text(token_id)!r}"
        begun, covered, previous = start, max(covered, end), token_id
    return "" if covered == len(text) else f"characters from {covered} on have no token"


def write_ids(tokenizer, n: int, seed: int, folder: Path) -> None:
    """Encodes the strings and leaves the ids in a folder: all in one row, and where each string ends."""
    rows, ends = [], []
    for batch in batches(n, seed):
        encoded = tokenizer.encode_many(batch, [False] * len(batch))
        rows += [ids.astype(np.int32) for ids in encoded]
        ends += [len(ids) for ids in encoded]
    np.save(folder / "ids.npy", np.concatenate(rows))
    np.save(folder / "ends.npy", np.cumsum(ends))


def differences(tokenizer, n: int, seed: int, folder: Path) -> Iterator[str]:
    """What this process finds other than the one that wrote the ids, or than the strings."""
    from unembed.tokenizers.base import StreamDecoder

    ids = np.load(folder / "ids.npy", mmap_mode="r", allow_pickle=False)
    ends = np.load(folder / "ends.npy", allow_pickle=False)
    at = 0
    for batch in batches(n, seed):
        again = tokenizer.encode_many(batch, [False] * len(batch))
        for text, own in zip(batch, again, strict=True):
            row = ids[(ends[at - 1] if at else 0) : ends[at]]
            if not np.array_equal(row, own):
                yield f"{text[:80]!a} has other ids here"
            wanted = expected(tokenizer, text)
            if tokenizer.decode(row) != wanted:
                yield f"{text[:80]!a} does not come back"
            if at % STREAMED_EVERY == 0:
                stream = StreamDecoder(tokenizer)
                if "".join([*map(stream.feed, row), stream.finish()]) != wanted:
                    yield f"{text[:80]!a} does not come back as a stream"
            at += 1
    if at != len(ends):
        yield f"{len(ends)} strings were written, {at} are here"


if __name__ == "__main__":
    from unembed.tokenizers.files import load

    for name in sys.argv[3:]:
        for difference in differences(load(name), int(sys.argv[1]), int(sys.argv[2]), Path(name)):
            print(Path(name).name, difference)
