"""New subword vocabularies from text, by the trainers of the `tokenizers` library, over bytes: nothing is ever lost.

The alphabet is all 256 bytes, so any text can be written. Every line is looked at alone, so the order of lines does not
matter; a text that is too much for memory is thinned by a hash of each line, so that does not matter either. Before it:
subword.py, which these functions make. Next: files.py.

The library's counting, pinned by tests: in a run such as "aaaaa" a pair is counted at every place, overlapping (four
times (a, a), though two can be replaced); equally frequent pairs are merged in the order of their ids, first by the left
one. Word counts are 64-bit there, pair counts too.
"""

import json
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from unembed.errors import TokenizerError
from unembed.tokenizers import base
from unembed.tokenizers.engine import byte_of_character
from unembed.tokenizers.subword import SubwordTokenizer

END = "<|endoftext|>"
_ALPHABET_SIZE = 256
# What is kept in memory, in characters of ordinary text; letters in long unbroken runs cost the trainer far more.
_BUDGET = 1 << 26
_LONG_RUN, _LONG_RUN_COST = re.compile(r"\w{65}|[^\w\s]{65}"), 16
_LONG_LINE = 1 << 12
# What a line costs in memory beside its characters, so that many short ones (names, cells) are counted as well.
_LINE_COST = 100


def train_bpe(
    texts: str | Iterable[str],
    *,
    vocab_size: int,
    lowercases: bool = False,
    strips_accents: bool = False,
    budget: int = _BUDGET,
) -> SubwordTokenizer:
    """Trains byte-level BPE: from 256 bytes, the most frequent pair inside a word is merged until `vocab_size` is reached.

    `vocab_size` counts everything: bytes, merges, and the end token, which is last. A small text may yield fewer. Texts
    are pieces none of which ends inside a line. The same texts give the same merges, in any order of lines, with any
    number of threads and any hash seed.
    Source: Sennrich et al. 2016, arXiv:1508.07909, section 3.2; over bytes as GPT-2. Raises: TokenizerError for a size
    below 257, or texts that are empty.
    """
    # Below two occurrences a merge would only remember one place of this text.
    trainer = trainers.BpeTrainer(
        vocab_size=_checked(vocab_size, "bpe") - 1,
        min_frequency=2,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    return _train(Tokenizer(models.BPE()), trainer, texts, lowercases, strips_accents, budget)


def train_unigram(
    texts: str | Iterable[str],
    *,
    vocab_size: int,
    lowercases: bool = False,
    strips_accents: bool = False,
    budget: int = _BUDGET,
) -> SubwordTokenizer:
    """Trains a unigram vocabulary over bytes: the pieces under which the text is most likely, each with its log-probability.

    The estimate sums in floating point, in an order that the library does not fix: two trainings may differ in pieces that
    matter equally. Save the tokenizer and keep it. Otherwise as `train_bpe`.
    Source: Kudo 2018, arXiv:1804.10959, section 3.2. Raises: TokenizerError as `train_bpe` does.
    """
    trainer = trainers.UnigramTrainer(
        vocab_size=_checked(vocab_size, "unigram") - 1,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        unk_token=None,
    )
    return _train(Tokenizer(models.Unigram()), trainer, texts, lowercases, strips_accents, budget)


def train_bytes() -> SubwordTokenizer:
    """Gives the vocabulary of the 256 bytes and the end token: no training, nothing merged, nothing lost.

    >>> train_bytes().encode("ñ").ids, train_bytes().vocab_size
    ((127, 109), 257)
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    return _finish(made, False, False)


def train_characters(characters: Iterable[str]) -> SubwordTokenizer:
    """Gives a vocabulary of the 256 bytes, whole characters and the end token: other characters are written in bytes.

    As BPE whose merges join the bytes of each character and nothing else: a merge's second part is always a byte inside a
    character, so none reaches across two. The beginnings that characters share have ids too, which no text of theirs uses.
    Raises: TokenizerError for a lone surrogate.

    >>> tokenizer = train_characters("깰")
    >>> [len(tokenizer.encode(text).ids) for text in ("깰", "깰깰", "가", "a")]
    [1, 2, 3, 1]
    """
    spelt = {byte: character for character, byte in byte_of_character().items()}
    vocabulary = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges: list[tuple[str, str]] = []
    for character in sorted(set(characters)):
        whole, *others = (spelt[byte] for byte in base.check_text(character))
        for inner in others:
            if whole + inner not in vocabulary:
                vocabulary[whole + inner] = len(vocabulary)
                merges.append((whole, inner))
            whole += inner
    return _finish(Tokenizer(models.BPE(vocab=vocabulary, merges=merges)), False, False)


def sample_lines(texts: str | Iterable[str], budget: int) -> list[str]:
    """Gives the lines of the texts, or the largest share 1/2^k of them, chosen by hash, whose cost is within the budget.

    A line costs a hundred and its characters, these sixteen times where it has a run of more than 64 letters (or signs): a
    trainer holds every place of every pair of each distinct word. Lines over 4,096 characters are cut, at a space if there
    is one.
    Raises: TokenizerError for a lone surrogate.
    """
    kept: list[tuple[int, int, str]] = []
    cost_kept, halvings = 0, 0
    for line in _lines(texts):
        hashed = zlib.crc32(base.check_text(line))
        if hashed >> (32 - halvings):
            continue
        cost = _LINE_COST + len(line) * (_LONG_RUN_COST if _LONG_RUN.search(line) else 1)
        kept.append((hashed, cost, line))
        cost_kept += cost
        while cost_kept > budget and halvings < 32:
            halvings += 1
            kept = [entry for entry in kept if not entry[0] >> (32 - halvings)]
            cost_kept = sum(entry[1] for entry in kept)
    return [line for _, _, line in kept]


def _lines(texts: str | Iterable[str]) -> Iterator[str]:
    for text in [texts] if isinstance(texts, str) else texts:
        for line in text.splitlines(keepends=True):
            start = 0
            while len(line) - start > _LONG_LINE:
                space = line.rfind(" ", start + 1, start + _LONG_LINE)
                end = space if space > start else start + _LONG_LINE
                yield line[start:end]
                start = end
            yield line[start:]


def _checked(vocab_size: int, kind: str) -> int:
    if vocab_size < _ALPHABET_SIZE + 1:
        raise TokenizerError(
            f"{kind} tokenizer: vocab_size is {vocab_size}, but the 256 bytes and {END} take 257 ids; give at least 257"
        )
    return vocab_size


def _train(
    made: Tokenizer, trainer: Any, texts: str | Iterable[str], lowercases: bool, strips_accents: bool, budget: int
) -> SubwordTokenizer:
    lines = sample_lines(texts, budget)
    if not any(lines):
        raise TokenizerError("subword tokenizer: the text is empty, so there is nothing to learn from; give a text")
    _set_pipeline(made, lowercases, strips_accents)
    made.train_from_iterator(lines, trainer)
    return _finish(made, lowercases, strips_accents)


def _set_pipeline(made: Tokenizer, lowercases: bool, strips_accents: bool) -> None:
    # Two switches, since lower case alone must keep "hacia" and "hacía" apart; NFC last, so that Korean stays whole.
    steps: list[Any] = [normalizers.Lowercase()] if lowercases else []
    if strips_accents:
        steps += [normalizers.NFD(), normalizers.StripAccents(), normalizers.NFC()]
    if steps:
        made.normalizer = normalizers.Sequence(steps)
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=True)
    made.decoder = decoders.ByteLevel()


def _finish(made: Tokenizer, lowercases: bool, strips_accents: bool) -> SubwordTokenizer:
    _set_pipeline(made, lowercases, strips_accents)
    made.add_special_tokens([END])
    return SubwordTokenizer(json.loads(made.to_str()), end=END)
