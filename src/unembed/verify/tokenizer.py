"""Claim: the tokenizer's ids are rows of the table, and decoding gives the text back, within what it says it loses."""

from unembed.errors import TokenizerError
from unembed.verify.claim import Claim, Subject, failed, judged, skipped
from unembed.visible import counted

NAME = "tokenizer round trip"

# Scripts, spaces, line ends, joined emoji, a combining accent, and a special token written out as text.
TEXTS = (
    "The capital of France is Paris.",
    "El ñandú comió piñas en Zúñiga; ¿qué más?",
    "나는 학교에 갑니다. 깰!",
    "  two  spaces\tand a tab\r\nand a line\n",
    "def f(x):\n    return x ** 2  # 3.14",
    "👩‍👩‍👧 e\u0301 <|endoftext|> <s> <0xEA>",
)


def claim(subject: Subject) -> Claim:
    """Encodes and decodes texts in several scripts; a tokenizer that declares what it loses is held to that."""
    tokenizer = subject.model.tokenizer
    if tokenizer is None:
        return skipped(NAME, "this model has no tokenizer")
    rows = subject.model.spec.embedding.vocab_size
    if tokenizer.vocab_size > rows:
        return failed(NAME, f"the tokenizer has {tokenizer.vocab_size:,} ids, the table {rows:,} rows")
    lost, n_ids, refused = [], 0, 0
    # its own words too: an alphabet of bases knows none of the texts above
    marks = set(tokenizer.specials.values())
    own = "".join(tokenizer.token_text(i) for i in range(min(500, tokenizer.vocab_size)) if i not in marks)
    for text in (*TEXTS, own):
        try:
            ids = tokenizer.encode(text).ids
        except TokenizerError:
            refused += 1  # an alphabet that says what it does not know loses nothing in silence
            continue
        n_ids += len(ids)
        if not all(0 <= i < rows for i in ids):
            return failed(NAME, f"{text!r} gives an id beyond the table's {rows:,} rows")
        if tokenizer.decode(ids) != text:
            lost.append(text)
    if not n_ids:
        return failed(NAME, "it refuses even a text of its own tokens")
    said = tokenizer.loses
    detail = f"{len(TEXTS)} texts in several scripts and its own words, {n_ids} ids" + (
        f"; {refused} refused with a reason" if refused else ""
    )
    if said:
        changed = f"{counted(len(lost), 'text')} came back changed" if lost else "none came back changed"
        return judged(NAME, 0.0, 0.0, f"{detail}; {changed}; the tokenizer says of itself: {said}")
    return judged(
        NAME, float(len(lost)), 0.0, f"{detail}; changed: {len(lost)}" + (f", first {lost[0]!r}" if lost else "")
    )
