"""Byte-level BPE in plain Python, restated from the papers: training by recounting, encoding by the earliest merge.

Slow on purpose, and it imports nothing from unembed. Sources: Sennrich et al. 2016, arXiv:1508.07909, algorithm 1;
GPT-2's encoder.py for the pattern and the characters that stand for bytes.
"""

from collections import Counter
from itertools import pairwise

import regex

PATTERN = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")


def byte_characters() -> list[str]:
    """The character for each byte 0 .. 255."""
    printable = set(range(33, 127)) | set(range(161, 173)) | set(range(174, 256))
    out, extra = [], 0
    for byte in range(256):
        out.append(chr(byte if byte in printable else 256 + extra))
        extra += byte not in printable
    return out


def words_of(text: str) -> list[list[str]]:
    """The pre-tokens of a text, each as the characters of its bytes."""
    characters = byte_characters()
    return [[characters[byte] for byte in word.encode()] for word in PATTERN.findall(text)]


def train(lines: list[str], n_merges: int, min_count: int) -> list[tuple[str, str]]:
    """Merges in order: most frequent pair, counted at every place; among equals the smallest ids, the left one first."""
    id_of = {c: i for i, c in enumerate(sorted(byte_characters()))}
    words = Counter(tuple(word) for line in lines for word in words_of(line))
    merges: list[tuple[str, str]] = []
    while len(merges) < n_merges:
        counts: Counter[tuple[str, str]] = Counter()
        for word, times in words.items():
            for pair in pairwise(word):
                counts[pair] += times
        allowed = [pair for pair, times in counts.items() if times >= min_count]
        if not allowed:
            break
        best = min(allowed, key=lambda pair: (-counts[pair], id_of[pair[0]], id_of[pair[1]]))
        merges.append(best)
        id_of.setdefault("".join(best), len(id_of))
        merged: Counter[tuple[str, ...]] = Counter()
        for word, times in words.items():
            merged[tuple(apply(list(word), best))] += times
        words = merged
    return merges


def apply(word: list[str], pair: tuple[str, str]) -> list[str]:
    """The word with every occurrence of the pair joined, from left to right."""
    out: list[str] = []
    i = 0
    while i < len(word):
        if i + 1 < len(word) and (word[i], word[i + 1]) == pair:
            out.append(word[i] + word[i + 1])
            i += 2
        else:
            out.append(word[i])
            i += 1
    return out


def encode(text: str, merges: list[tuple[str, str]]) -> list[str]:
    """The tokens of a text: in each word the pair that was learnt first is merged, until none is left."""
    rank = {pair: i for i, pair in enumerate(merges)}
    out: list[str] = []
    for word in words_of(text):
        while pairs := [pair for pair in pairwise(word) if pair in rank]:
            word = apply(word, min(pairs, key=rank.__getitem__))
        out += word
    return out
