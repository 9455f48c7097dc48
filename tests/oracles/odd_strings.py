"""Strings that tokenizers lose: a seeded generator, and what another process checks on saved tokenizers and saved ids.

Run as `python odd_strings.py N SEED FOLDER NAME...`: the folder holds a tokenizer in a folder of each name, and the ids
that the first process gave to these strings (`write_ids`). It decodes those ids, encodes anew, and prints what differs.
"""

import random
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

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
TYPES = {".ids": np.dtype("<i4"), ".ends": np.dtype("<i8")}


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


def write_ids(tokenizers: dict[str, Any], n: int, seed: int, folder: Path) -> None:
    """Encodes the strings by each tokenizer and leaves `<name>.ids` (int32, one row) and `<name>.ends` (int64) there."""
    for batch in batches(n, seed):
        for name, tokenizer in tokenizers.items():
            encoded = tokenizer.encode_many(batch, [False] * len(batch))
            for ending, row in ((".ids", np.concatenate(encoded)), (".ends", np.array([len(ids) for ids in encoded]))):
                with (folder / f"{name}{ending}").open("ab") as file:
                    row.astype(TYPES[ending]).tofile(file)


def differences(tokenizers: dict[str, Any], n: int, seed: int, folder: Path) -> Iterator[str]:
    """What this process finds other than the one that wrote the ids, or than the strings."""
    rows = {name: np.fromfile(folder / f"{name}.ids", TYPES[".ids"]) for name in tokenizers}
    ends = {name: np.cumsum(np.fromfile(folder / f"{name}.ends", TYPES[".ends"])) for name in tokenizers}
    at = 0
    for batch in batches(n, seed):
        for name, tokenizer in tokenizers.items():
            here = ends[name][at : at + len(batch)]
            if len(here) < len(batch):
                yield f"{name}: {len(ends[name])} strings were written, there are more"
                return
            given = np.split(rows[name][: here[-1]], [ends[name][at - 1] if at else 0, *here[:-1]])[1:]
            again = tokenizer.encode_many(batch, [False] * len(batch))
            for text, row, own in zip(batch, given, again, strict=True):
                if row.tobytes() != own.astype(TYPES[".ids"]).tobytes():
                    yield f"{name}: {text[:80]!a} has other ids here"
            yield from lost(name, tokenizer, batch, given)
        at += len(batch)


def lost(name: str, tokenizer, batch: Sequence[str], given: Sequence[np.ndarray]) -> Iterator[str]:
    """The strings of a batch that decoding does not give back, all at once or (some of them) as a stream."""
    from unembed.tokenizers.base import StreamDecoder

    for number, (text, row) in enumerate(zip(batch, given, strict=True)):
        wanted = expected(tokenizer, text)
        if tokenizer.decode(row) != wanted:
            yield f"{name}: {text[:80]!a} does not come back"
        if number % STREAMED_EVERY == 0:
            stream = StreamDecoder(tokenizer)
            if "".join([*map(stream.feed, row), stream.finish()]) != wanted:
                yield f"{name}: {text[:80]!a} does not come back as a stream"


if __name__ == "__main__":
    from unembed.tokenizers.files import load

    n_strings, first_seed, place, *names = sys.argv[1:]
    loaded = {name: load(Path(place) / name) for name in names}
    for difference in differences(loaded, int(n_strings), int(first_seed), Path(place)):
        print(difference)
