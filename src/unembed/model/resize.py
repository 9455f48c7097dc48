"""A model for another vocabulary size: every row that stays keeps its bits, tied stays tied, untied stays untied.

Tools that resize the embedding alone leave the head behind, or untie it without a word. Here a new model is made from the
old one's tensors, so there is nothing that could be forgotten. The next file to read is ../tying/doctor.py, which tells
whether a model is tied.
"""

import torch
from jaxtyping import Float
from msgspec.structs import replace
from torch import Tensor

from unembed.errors import UsageError
from unembed.model.check import check
from unembed.model.spec import PseudoInverseHead
from unembed.model.transformer import Transformer

LARGEST = 2**31 - 1


def resize_vocabulary(model: Transformer, vocab_size: int, *, seed: int = 0) -> Transformer:
    """A new model whose tables have `vocab_size` rows: the first ones are the old rows, to the last bit.

    New rows are drawn around the mean of the old rows with the old rows' spread in each column, so that a new token starts as
    an average one: its score is near the mean of all scores, neither chosen always nor never. A bias gets its mean. Fewer rows
    cut the last ones off. A pseudo-inverse head's table keeps its orthonormal columns by new rows of zeros, and none of its
    rows can be cut off. All other parameters are those of the old model, shared and not copied; the tables are new. The
    tokenizer is not taken along, because its ids may mean other rows now. The old model is left as it is.

    Raises: UsageError for a size that is no whole number, or below 1, or that cuts rows off orthonormal columns.
    Source: Hewitt 2021, "Initializing new word embeddings for pretrained language models".

    >>> from unembed.model.init import Gpt2Init, build
    >>> from unembed.model.presets import preset
    >>> small = build(preset("mini-gpt").spec, Gpt2Init(std=0.02), seed=1)
    >>> larger = resize_vocabulary(small, 70)
    >>> larger.embed.table.shape[0], torch.equal(larger.embed.table[:64], small.embed.table)
    (70, True)
    """
    if type(vocab_size) is not int or not 1 <= vocab_size <= LARGEST:
        raise UsageError(f"vocab_size is {vocab_size!r}; it must be a whole number, at least 1 and at most {LARGEST:,}")
    is_orthonormal = isinstance(model.spec.head, PseudoInverseHead)
    if is_orthonormal and vocab_size < len(model.embed.table):
        raise UsageError(
            f"vocab_size is {vocab_size}, and the table has {len(model.embed.table)} rows whose columns are orthonormal for "
            "its pseudo-inverse head; cutting rows off would end that. Untie it first: "
            "unembed tie MODEL --repair untie --out DIR"
        )
    spec = check(replace(model.spec, embedding=replace(model.spec.embedding, vocab_size=vocab_size)))
    generator = torch.Generator().manual_seed(seed)
    weights: dict[str, Tensor] = {name: parameter.detach() for name, parameter in model.named_parameters()}
    for name in ("embed.table", "head.table", "head.bias"):
        if name in weights:
            weights[name] = _resized(weights[name], vocab_size, generator, with_zeros=is_orthonormal)
    with torch.device("meta"):
        resized = Transformer(spec)
    resized.load_state_dict(weights, assign=True)
    return resized


def _resized(
    rows: Float[Tensor, "rows *axes"], n_rows: int, generator: torch.Generator, *, with_zeros: bool
) -> Float[Tensor, "n_rows *axes"]:
    """The first rows, and new ones drawn like them or zeros; a bias's new entries are its mean. Local axes: rows, n_rows."""
    n_new = n_rows - len(rows)
    if n_new <= 0:
        return rows[:n_rows].clone()
    mean = rows.double().mean(0)
    new = mean.expand(n_new, *rows.shape[1:])
    if rows.ndim == 2 and with_zeros:
        new = torch.zeros_like(new)
    elif rows.ndim == 2 and len(rows) > 1:
        drawn = torch.randn(n_new, rows.shape[1], generator=generator, dtype=torch.float64)
        new = mean + drawn.to(rows.device) * rows.double().std(0)
    return torch.cat([rows, new.to(rows.dtype)])
