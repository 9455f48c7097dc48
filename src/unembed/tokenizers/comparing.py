"""Words, characters, bytes or subwords? One text, every kind of vocabulary, measured on a part that none has seen.

The courses' first lesson in numbers: words are few tokens but meet the unknown, characters are never lost but long,
subwords are the compromise. Behind `unembed tokenize --compare`. Before it: training.py.
"""

from collections.abc import Iterable, Sequence

from unembed.errors import TokenizerError
from unembed.results import Result, Table
from unembed.tokenizers import base
from unembed.tokenizers.base import Tokenizer
from unembed.tokenizers.characters import CharacterTokenizer
from unembed.tokenizers.stretches import stretches
from unembed.tokenizers.training import train_bpe, train_bytes, train_unigram
from unembed.tokenizers.words import WordTokenizer

STRETCH = 1 << 15
SUBWORDS = ("bpe", "unigram")


def compare(text: str, *, vocab_size: int = 2_000, train_fraction: float = 0.9, n_new_words: int = 5) -> Result:
    """Learns a vocabulary of each kind from the first part of a text, and measures all of them on the rest.

    Table `tokenizers`, a row per kind: `vocabulary` (ids, specials included); on the rest `tokens`, `tokens_per_word`,
    `bytes_per_token` (UTF-8 bytes of the text over tokens), `unknown_share` (of tokens); `is_lossless`, and `loses` in
    words. Table `new_words`: words of the rest that the first part does not hold, and how each kind writes them.
    `vocab_size` is for the subwords, and the most that they get; the others take what the text holds. `words` and `bytes`
    are those of the rest, `held_out_share` is its share of the characters. Raises: TokenizerError for a text without
    white space after its first part, or a vocab_size below 257.
    """
    learnt, rest = _parts(text, train_fraction)
    kinds: dict[str, Tokenizer] = {
        "words": WordTokenizer.from_text(learnt),
        "characters": CharacterTokenizer.from_text(learnt, has_unknown=True, has_end=True),
        "bytes": train_bytes(),
        "bpe": train_bpe(learnt, vocab_size=vocab_size),
        "unigram": train_unigram(learnt, vocab_size=vocab_size),
    }
    new = new_words(learnt, rest, n_new_words)
    return Result(
        name="compare",
        values={
            "held_out_share": len(rest) / len(text),
            "words": len(rest.split()),
            "bytes": len(base.check_text(rest)),
            "new_word_share": _new_share(learnt, rest),
        },
        tables={
            "tokenizers": measure(kinds.items(), rest),
            "new_words": Table(
                columns={
                    "word": [word for word in new for _ in kinds],
                    "tokenizer": [name for _ in new for name in kinds],
                    "tokens": [_written(tokenizer, word) for word in new for tokenizer in kinds.values()],
                }
            ),
        },
    )


def remarks(compared: Result, vocab_size: int) -> list[str]:
    """What a reader of the numbers should know: what was measured, and why a vocabulary is smaller than was asked."""
    found = compared.values
    said = [
        f"measured on the last {found['held_out_share']:.0%} of the text ({found['words']:,} words, {found['bytes']:,} bytes), "
        "which no vocabulary has seen; all were learnt from what stands before it"
    ]
    small = [
        f"{row['tokenizer']} {row['vocabulary']:,}"
        for row in compared.tables["tokenizers"].rows()
        if row["tokenizer"] in SUBWORDS and int(str(row["vocabulary"])) < vocab_size
    ]
    if small:
        said.append(
            f"{' and '.join(small)} entries, not the {vocab_size:,} asked for: no other piece occurs often enough in the "
            "text that was learnt from to be worth an entry"
        )
    return said


def measure(named: Iterable[tuple[str, Tokenizer]], text: str) -> Table:
    """Gives the table `tokenizers` of `compare` for any tokenizers and a text that is not empty."""
    n_words, n_bytes = len(text.split()), len(base.check_text(text))
    rows = []
    for name, tokenizer in named:
        # Cut where no tokenizer notices, so that a long text is encoded on all threads.
        cut = list(stretches(text, STRETCH))
        encoded = tokenizer.encode_many(cut, [i > 0 for i in range(len(cut))])
        n_tokens = sum(map(len, encoded))
        n_unknown = (
            sum(int((ids == tokenizer.unknown_id).sum()) for ids in encoded) if tokenizer.unknown_id is not None else 0
        )
        rows.append(
            {
                "tokenizer": name,
                "vocabulary": tokenizer.vocab_size,
                "tokens": n_tokens,
                "tokens_per_word": n_tokens / n_words if n_words else None,
                "bytes_per_token": n_bytes / n_tokens if n_tokens else None,
                "unknown_share": n_unknown / n_tokens if n_tokens else None,
                "is_lossless": tokenizer.is_lossless,
                "loses": tokenizer.loses,
            }
        )
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    return Table(columns=columns, units={"bytes_per_token": "bytes/token"})


def new_words(learnt: str, rest: str, n: int) -> list[str]:
    """Gives the first n different words of the rest that are all letters and do not occur in what was learnt."""
    known = set(learnt.split())
    found = dict.fromkeys(word for word in rest.split() if word not in known and word.isalpha())
    return list(found)[:n]


def _parts(text: str, train_fraction: float) -> tuple[str, str]:
    at = int(train_fraction * len(text))
    while at < len(text) and not text[at].isspace():
        at += 1
    if not text[:at].split() or not text[at:].split():
        raise TokenizerError(
            f"compare: a text of {len(text)} characters leaves no words after its first {train_fraction:.0%}; give a longer "
            "one, with white space between its words"
        )
    return text[:at], text[at:]


def _new_share(learnt: str, rest: str) -> float:
    known, words = set(learnt.split()), rest.split()
    return sum(word not in known for word in words) / len(words)


def _written(tokenizer: Tokenizer, word: str) -> Sequence[str]:
    return [tokenizer.token_text(token_id) for token_id in tokenizer.encode(word).ids]
