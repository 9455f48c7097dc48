"""Attention maps: who looks at whom in one text, and what kind of head each head is.

The patterns are those of the explicit attention path, the formula step by step; the fused path, which the model takes unless
it is told otherwise, computes the same without ever holding them. Looking is done by a tap that keeps what it sees and hands
it on, so the scores of the model stay those of the same path to the last bit. Summaries are made layer by layer, so that a
long text needs the patterns of one layer at a time. Numbers per head are in head_scores.py; the next file is patching.py.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from unembed.errors import TapError, UsageError
from unembed.lenses.asking import is_too_long, one_of, refuse_broken, text_of
from unembed.lenses.head_scores import SCORES, head_scores
from unembed.model.spec import TransformerSpec
from unembed.model.taps import Tap
from unembed.model.transformer import Transformer
from unembed.results import Picture, Result, Table
from unembed.tokenizers.base import gaps

N_KEYS = 3  # as many keys of a query as are named in a table
MOST_DRAWN = 24  # positions: a larger map cannot be read
MOST_PANELS = 8
N_RANDOM, N_SEQUENCES = 24, 4
_Found = dict[str, Tensor | None]


class Watch:
    """A tap that scores each layer's pattern as it passes, and keeps the pattern of one layer if that is asked for."""

    def __init__(self, rows: Sequence[Sequence[int]], keep: int | None = None) -> None:
        self.rows, self.keep = rows, keep
        self.scores: dict[int, list[_Found]] = {}
        self.pattern: Tensor | None = None

    def __call__(self, name: str, value: Tensor, /) -> Tensor:
        """Passes on what is in no block."""
        return value

    def inside(self, layer: int, /) -> Tap:
        """What one block is handed."""
        return _Layer(self, layer)


class _Layer:
    def __init__(self, watch: Watch, layer: int) -> None:
        self.watch, self.layer = watch, layer

    def __call__(self, name: str, value: Tensor, /) -> Tensor:
        if name == "attn_pattern":
            rows = zip(value, self.watch.rows, strict=True)
            self.watch.scores[self.layer] = [head_scores(pattern, ids) for pattern, ids in rows]
            if self.layer == self.watch.keep:
                self.watch.pattern = value[0].clone()
        return value

    def inside(self, layer: int, /) -> Tap:
        raise TapError(f"tap blocks.{self.layer}.: a block holds no blocks, so it has no layer {layer}")


@torch.no_grad()
def attention_maps(
    model: Transformer, ids: Sequence[int], *, layer: int | None = None, head: int | None = None, seed: int = 0
) -> Result:
    """The scores of every head on one text, and with a layer its patterns. Layers and heads are counted from 0.

    Table `heads`, a row a head: the scores of head_scores.py on this text, and `induction_repeated`, the induction score on
    random tokens that stand there twice (seeded), which this text's words cannot sway; null where the context is too
    short for that. With `layer`, the value `patterns`, an array [head, pos, key_pos] of that layer's heads, or of the one
    `head`; the table `weights`, its cells other than 0 one by one; and `attended`, the keys that each position looks at most.
    Raises: UsageError for a layer or a head that is not there; InputError for a model whose states are no numbers.
    """
    chosen = one_of("attention", "layer", layer, model.spec.n_layers)
    if head is not None and chosen is None:
        raise UsageError("attention: a head is one of a layer; name the layer too")
    if chosen is not None:
        one_of("attention", "head", head, model.spec.blocks[chosen].attention.n_heads)
    watch = Watch([ids], chosen)
    _run(model, [ids], watch)
    random = random_repeats(model, seed)
    repeated = Watch(random)
    if random:
        _run(model, random, repeated)
    texts = [text_of(model, one) for one in ids]
    tables: dict[str, Table] = {}
    values: dict[str, Any] = {"tokens": texts}
    drawn: list[Picture] = []
    if chosen is not None:
        assert watch.pattern is not None
        numbers = [head] if head is not None else list(range(watch.pattern.shape[0]))
        patterns = watch.pattern[numbers].float() if watch.pattern.dtype != torch.float64 else watch.pattern[numbers]
        values |= {"layer": chosen, "patterns": patterns.cpu().numpy()}
        tables["attended"] = _attended(patterns, chosen, numbers, texts)
        tables["weights"] = _weights(values["patterns"], chosen, numbers, texts)
        drawn += _maps(len(ids), len(numbers))
    tables["heads"] = _heads(model.spec, watch, repeated, chosen, head)
    tables["scores"] = _long(tables["heads"])
    drawn += [] if chosen is not None or not tables["scores"].n_rows else [_overview()]
    notes = ("attention_is_not_importance", *is_too_long(model, ids))
    return Result(name="attention", tables=tables, values=values, notes=notes, pictures=tuple(drawn))


def random_repeats(model: Transformer, seed: int = 0) -> list[list[int]]:
    """A few sequences of random tokens, none of them twice, that stand there two times: what induction heads are made for.

    As long as the context lets them be; none at all for a context or a vocabulary that holds no two pairs.
    """
    tokenizer, spec = model.tokenizer, model.spec
    n_known = spec.embedding.vocab_size if tokenizer is None else min(tokenizer.vocab_size, spec.embedding.vocab_size)
    special = set() if tokenizer is None else {*tokenizer.specials.values(), *gaps(tokenizer)}
    ordinary = torch.tensor([i for i in range(n_known) if i not in special])
    n = min(N_RANDOM, spec.context_length // 2, len(ordinary))
    if n < 2:
        return []
    generator = torch.Generator().manual_seed(seed)
    halves = [ordinary[torch.randperm(len(ordinary), generator=generator)[:n]].tolist() for _ in range(N_SEQUENCES)]
    return [half * 2 for half in halves]


def _run(model: Transformer, rows: Sequence[Sequence[int]], watch: Watch) -> None:
    ids = torch.tensor([list(row) for row in rows], device=model.embed.table.device)
    refuse_broken("attention", model.hidden(ids, tap=watch, attention="explicit").abs(), "final states")


def _heads(spec: TransformerSpec, watch: Watch, repeated: Watch, layer: int | None, head: int | None) -> Table:
    """A row a head, of all layers or of the one that is asked for."""
    columns: dict[str, list[Any]] = {
        name: [] for name in ("layer", "head", *SCORES, "entropy_nats", "induction_repeated")
    }
    for at, (found,) in watch.scores.items():
        random = [one["induction"] for one in repeated.scores.get(at, [])]
        mean = torch.stack([one for one in random if one is not None]).mean(0).tolist() if random else None
        for number in range(spec.blocks[at].attention.n_heads):
            if layer not in (None, at) or head not in (None, number):
                continue
            columns["layer"].append(at)
            columns["head"].append(number)
            for name, value in found.items():
                columns[name].append(None if value is None else float(value[number]))
            columns["induction_repeated"].append(None if mean is None else mean[number])
    return Table(columns=columns)


def _long(heads: Table) -> Table:
    """The same scores, a row a score, for a picture with a panel for each; a score that no head has is left out."""
    rows = [
        (name, row["layer"], row["head"], row[name])
        for name in (*SCORES, "induction_repeated")
        for row in heads.rows()
        if row[name] is not None
    ]
    names = ("score", "layer", "head", "share")
    return Table(columns={name: [row[i] for row in rows] for i, name in enumerate(names)})


def _attended(
    patterns: Float[Tensor, "head pos key_pos"], layer: int, numbers: Sequence[int], texts: Sequence[str]
) -> Table:
    """For each head and position the keys with the most weight, the heaviest first."""
    weights, keys = patterns.topk(min(N_KEYS, patterns.shape[-1]), dim=-1)
    rows = [
        (layer, number, p, texts[p], *_named(ks, ws, texts))
        for number, per_head, head_weights in zip(numbers, keys.tolist(), weights.tolist(), strict=True)
        for p, (ks, ws) in enumerate(zip(per_head, head_weights, strict=True))
    ]
    names = ("layer", "head", "position", "token", "looks_at", "looks_at_positions")
    return Table(columns={name: [row[i] for row in rows] for i, name in enumerate(names)})


def _named(keys: Sequence[int], weights: Sequence[float], texts: Sequence[str]) -> tuple[list[list[Any]], list[int]]:
    """The keys that got any weight, as [token, weight], and their positions: one word may stand at several."""
    seen = [(k, w) for k, w in zip(keys, weights, strict=True) if w > 0]
    return [[texts[k], w] for k, w in seen], [k for k, _ in seen]


def _weights(
    patterns: Float[np.ndarray, "head pos key_pos"], layer: int, numbers: Sequence[int], texts: Sequence[str]
) -> Table:
    """Every weight but those of 0: keys that a query may not see."""
    heads, positions, keys = patterns.nonzero()
    return Table(
        columns={
            "layer": np.full(len(heads), layer),
            "head": np.asarray(numbers)[heads],
            "position": positions,
            "token": [texts[p] for p in positions.tolist()],
            "key_position": keys,
            "key_token": [texts[k] for k in keys.tolist()],
            "share": patterns[heads, positions, keys],
        }
    )


def _maps(n_pos: int, n_heads: int) -> list[Picture]:
    """The patterns, a panel a head: columns are the keys, rows the queries."""
    if n_pos > MOST_DRAWN or n_heads > MOST_PANELS:
        return []
    return [
        Picture(
            key="attention",
            kind="grid",
            table="weights",
            x="key_position",
            x_text="key_token",
            y="position",
            color="share",
            text="share",
            facet="head" if n_heads > 1 else None,
            tooltip=("token", "key_token", "share"),
        )
    ]


def _overview() -> Picture:
    """All heads by their scores, a panel a score."""
    return Picture(
        key="head_scores",
        kind="grid",
        table="scores",
        x="head",
        y="layer",
        color="share",
        text="share",
        facet="score",
        tooltip=("layer", "head", "share"),
    )
