"""What is to be said when a text meets a tokenizer: marks that are only spelt in it, and a tokenizer of another model.

Before it: base.py, with `unknown_note`. The next file to read is ../lenses/prompts.py, which gives a text's ids to a lens.
"""

from collections.abc import Iterable, Sequence

from unembed.errors import InputError
from unembed.tokenizers.base import Tokenizer, split_specials

# Tables are padded to round numbers, by 1 row in 150 at most in published models; twice as many rows are no padding.
_MOST_PADDING = 2


def spelt_specials(tokenizer: Tokenizer, text: str) -> list[str]:
    """The names of specials that a text spells, each once, in their order; those that encoding reads anyway are left out.

    >>> from unembed.tokenizers.words import WordTokenizer
    >>> spelt_specials(WordTokenizer(["the", "dog"]), "the dog <end> the <end>")
    ['<end>']
    """
    names = dict.fromkeys(part for _, part, special in split_specials(text, tokenizer.specials) if special is not None)
    return [name for name in names if list(tokenizer.encode(name).ids) != [tokenizer.specials[name]]]


def specials_note(tokenizer: Tokenizer, texts: Sequence[str], *, what: str, option: str, most: int = 3) -> str:
    """Says which specials the texts spell, so that they are not taken for read, and the option that reads them; "" if none."""
    names = list(dict.fromkeys(name for text in texts for name in spelt_specials(tokenizer, text)))
    if not names:
        return ""
    shown = ", ".join(map(repr, names[:most])) + (f" and {len(names) - most} more" if names[most:] else "")
    one = len(names) == 1
    return (
        f"{what}: {shown} {'is the name of a special token' if one else 'are names of special tokens'}, read as the "
        f"letters that stand there; {option} reads {'it as that token' if one else 'them as those tokens'}"
    )


def size_note(tokenizer: Tokenizer, n_rows: int) -> str:
    """Says that a tokenizer and a table are of very different sizes, so that one is hardly the other's; else ""."""
    if n_rows <= _MOST_PADDING * tokenizer.vocab_size and tokenizer.vocab_size <= _MOST_PADDING * n_rows:
        return ""
    return (
        f"the tokenizer has {tokenizer.vocab_size:,} tokens and the model's table {n_rows:,} rows: is it another model's "
        "tokenizer?"
    )


def refuse_misfit(what: str, tokenizer: Tokenizer, ids: Iterable[int], n_rows: int) -> None:
    """Returns if every id of a text has a row. Raises: InputError saying that the tokenizer does not fit the model."""
    if missing := next((i for i in ids if i >= n_rows), None):
        raise InputError(
            f"{what}: {tokenizer.token_text(missing)!r} is id {missing} of the {tokenizer.kind} tokenizer, which has "
            f"{tokenizer.vocab_size:,} tokens; the model's table has {n_rows:,} rows, so this is another model's tokenizer. "
            "Name the one that belongs to the model with --tokenizer FILE"
        )
