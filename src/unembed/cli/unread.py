"""What is said of the texts that a command was given: which words the model never gets to see, which marks are only spelt.

The next file to read is ../tokenizers/notes.py.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from unembed.cli.prompts import PARSE_SPECIALS, parses_specials
from unembed.cli.render import say
from unembed.visible import counted

if TYPE_CHECKING:
    from unembed.tokenizers.base import Tokenizer


def tell_unread(tokenizer: "Tokenizer | None", texts: Sequence[str], *, one: str, many: str, quiet: bool) -> None:
    """Of the first text that has unknown words these, and how many others have; of all texts the specials they spell."""
    from unembed.tokenizers.base import unknown_note
    from unembed.tokenizers.notes import specials_note

    if tokenizer is None:
        return
    parses = parses_specials()
    notes = [
        note for text in texts if (note := unknown_note(tokenizer, text, tokenizer.encode(text, parse_specials=parses)))
    ]
    what = one if len(texts) == 1 else many
    if notes:
        more = f"; {counted(len(notes) - 1, 'more prompt')} with unknown tokens" if notes[1:] else ""
        say(f"{what}: {notes[0]}{more}", quiet=quiet)
    if not parses and (note := specials_note(tokenizer, texts, what=what, option=PARSE_SPECIALS)):
        say(note, quiet=quiet)
