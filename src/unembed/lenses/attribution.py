"""Attribution: which part of a model wrote how much of one score, so that the parts add up to it exactly.

The stream that the head reads is a sum: the token's vector, the position's, what each head and each MLP wrote, and biases.
Every step from there to a score is linear once the norms on the way are held at the vector that they met (frozen.py), so a
score is a sum with one term a part. Residual topologies differ in what lies on the way: after `post` norms, and in a
sandwich, a part passes through norms of its block and of all later ones; without a shortcut only the last MLP is read.

A part's term is its *direct* effect: what it did by changing what later layers read is theirs. Source: Elhage et al. 2021, "A
mathematical framework for transformer circuits". The next file to read is parts.py, where terms become tables.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from unembed.lenses.asking import best_id, is_too_long, position_of, refuse_broken, text_of
from unembed.lenses.frozen import Direction, FrozenNorm, Norm, freeze, ratio
from unembed.lenses.parts import Part, parts_tables, pictures
from unembed.model.block import BlockModule
from unembed.model.mlp import activate
from unembed.model.spec import NoShortcut, Serial
from unembed.model.taps import Tap
from unembed.model.transformer import Transformer
from unembed.results import Result

# Of the sum of the parts' absolute values: how far their sum may lie from the score that the model computed.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}


class Seen:
    """A tap that keeps what attribution needs: one position of every step, and the values of all positions.

    Everything is kept in float64, so that dividing a score adds no error to that of the model's own sums.
    """

    def __init__(self, position: int, prefix: str = "", into: dict[str, Tensor] | None = None) -> None:
        self.position, self.prefix = position, prefix
        self.kept: dict[str, Tensor] = {} if into is None else into

    def __call__(self, name: str, value: Tensor, /) -> Tensor:
        """Keeps the position's share of a step, if the step is one of those that are read later."""
        if name == "attn_pattern":
            self.kept[self.prefix + name] = value[0, :, self.position].double()
        elif name == "v":
            self.kept[self.prefix + name] = value[0].double()
        elif name in ("embed", "pos_embed", "resid_pre", "z", "attn_out", "resid_mid", "mlp_act", "mlp_out"):
            self.kept[self.prefix + name] = value[0, self.position].double()
        return value

    def inside(self, layer: int, /) -> Tap:
        """The same for one block, under its full names."""
        return Seen(self.position, f"blocks.{layer}.", self.kept)


@torch.no_grad()
def attribute(
    model: Transformer,
    ids: Sequence[int],
    *,
    position: int | None = None,
    target: int | None = None,
    against: int | None = None,
) -> Result:
    """Divides the score of `target` at a position among the parts of the model, or its lead over the score of `against`.

    The position is the last one unless given, the target the best-scored id there. Table `parts`: a row a part, with its
    `contribution`; `heads`, the same for heads alone; `sources`, what all heads of a layer brought from each position;
    `by_token`, those of all layers; `strongest`, the largest parts by name and the rest as one. Values: `logit` as the model
    gives it; `explained`, what the parts sum to: the same number, before the soft cap where the head has one; `sum`,
    `sum_of_absolute_parts`, and `check_error`, how far sum and explained lie apart, with its `tolerance`; `final_norm_mean`
    and `final_norm_inverse_deviation`, at which the final norm was held. In nats before normalisation.
    Raises: UsageError, ShapeError; InputError for a model that scores no number.
    """
    place = position_of("attribute", ids, position)
    seen = Seen(place)
    batch = torch.tensor([list(ids)], device=model.embed.table.device)
    stream = model.hidden(batch, tap=seen, attention="explicit")[:, place : place + 1]
    logits = model.unembed(stream)[0, 0]
    refuse_broken("attribute", logits)
    chosen = best_id(model, logits) if target is None else target
    rows = [chosen] if against is None else [chosen, against]
    direction, parts, final = _to_the_stream(model, stream, rows)
    sources = torch.zeros(model.spec.n_layers, len(ids), dtype=torch.float64, device=direction.device)
    parts = [*_walk(model, seen.kept, direction, sources), *parts]
    explained = _difference(_before_cap(model, stream, rows))
    total = sum(part.contribution for part in parts)
    size = sum(abs(part.contribution) for part in parts)
    tolerance = TOLERANCE.get(logits.dtype, 1e-5) * size
    values: dict[str, Any] = {
        "position": place,
        "token": text_of(model, ids[place]),
        "target": text_of(model, chosen),
        "target_id": chosen,
        "against": None if against is None else text_of(model, against),
        "against_id": against,
        "logit": _difference(logits[rows]),
        "explained": explained,
        "sum": total,
        "sum_of_absolute_parts": size,
        "check_error": abs(total - explained),
        "tolerance": tolerance,
        "softcap": model.spec.head.softcap,
        "final_norm_mean": None if final is None else final.mean,
        "final_norm_inverse_deviation": None if final is None else final.inverse_deviation,
    }
    notes = ["attribution_is_direct", *is_too_long(model, ids)]
    notes += ["attribution_before_cap"] if model.spec.head.softcap is not None else []
    notes += ["attribution_through_the_masked_head"] if model.head.transform is not None else []
    notes += ["attribution_does_not_add_up"] if abs(total - explained) > tolerance else []
    texts = [text_of(model, one) for one in ids]
    tables = parts_tables(parts, sources.cpu().numpy(), texts)
    return Result(name="attribution", tables=tables, values=values, notes=tuple(notes), pictures=pictures(tables))


def _difference(scores: Tensor) -> float:
    """One score, or the first less the second."""
    wide = scores.double()
    return float(wide[0] if len(wide) == 1 else wide[0] - wide[1])


def _before_cap(model: Transformer, stream: Tensor, rows: list[int]) -> Tensor:
    """The scores of some rows as the model computes them, before its soft cap."""
    features = model.head.features(model.normed(stream))[0, 0]
    bias = None if model.head.bias is None else model.head.bias[rows]
    return torch.nn.functional.linear(features, model.unembed_table()[rows], bias)


def _to_the_stream(
    model: Transformer, stream: Tensor, rows: list[int]
) -> tuple[Direction, list[Part], FrozenNorm | None]:
    """The direction of the stream that makes a score, what biases after the stream add, and the final norm as it was held."""
    head, last = model.head, stream[0, 0]
    table = model.unembed_table()[rows].double()
    direction = table[0] if len(rows) == 1 else table[0] - table[1]
    direction = direction if head.spec.scale is None else direction * head.spec.scale
    if head.map is not None:
        direction = head.map.weight.double().T @ direction
    if head.factor is not None:
        lower = head.factor.lower().double()
        direction = lower @ (lower.T @ direction)
    parts = []
    if head.bias is not None:
        parts.append(Part("head_bias", None, None, _difference(head.bias[rows])))
    normed = model.normed(stream)
    if head.transform is not None:
        dense = head.transform.dense
        inputs = dense(normed)
        outputs = activate(head.transform.activation, inputs)[0, 0].double()
        norm = freeze(head.transform.norm, outputs)
        constant = norm.constant(direction)
        parts += [] if constant is None else [Part("head_norm_bias", None, None, constant)]
        direction = norm.back(direction) * ratio(outputs, inputs[0, 0].double())
        assert dense.bias is not None
        parts.append(Part("head_dense_bias", None, None, float(dense.bias.double() @ direction)))
        direction = dense.weight.double().T @ direction
    if model.final_norm is None:
        return direction, parts, None
    final = freeze(model.final_norm, last.double())
    constant = final.constant(direction)
    parts += [] if constant is None else [Part("final_norm_bias", None, None, constant)]
    return final.back(direction), parts, final


def _walk(model: Transformer, kept: dict[str, Tensor], direction: Direction, sources: Tensor) -> list[Part]:
    """The parts of the stream in the order in which they were added, found from the last block to the embedding."""
    found: list[Part] = []
    for layer in reversed(range(model.spec.n_layers)):
        block = model.blocks[layer]
        assert isinstance(block, BlockModule)
        at = {name.rpartition(".")[2]: value for name, value in kept.items() if name.startswith(f"blocks.{layer}.")}
        residual = block.spec.residual
        is_post = isinstance(residual, Serial) and residual.norm_at == "post"
        if is_post:
            met = _met(block.mlp_post_norm, at["resid_mid"] + at["mlp_out"])
            found += _bias("mlp_norm_bias", layer, met.constant(direction))
            direction = met.back(direction)
        found += reversed(list(_mlp(block, layer, at, direction)))
        if isinstance(residual, NoShortcut):
            direction = torch.zeros_like(direction)  # the MLP's output took the place of all that came before it
        if is_post:
            met = _met(block.attn_post_norm, at["resid_pre"] + at["attn_out"])
            found += _bias("attention_norm_bias", layer, met.constant(direction))
            direction = met.back(direction)
        found += reversed(list(_attention(block, layer, at, direction, sources[layer])))
    embed = model.embed
    met_first = None
    if embed.norm is not None:
        total = kept["embed"] + kept.get("pos_embed", torch.zeros_like(kept["embed"]))
        total = total if embed.type_table is None else total + embed.type_table[0].double()
        met_first = freeze(embed.norm, total)
        found += _bias("embedding_norm_bias", None, met_first.constant(direction))
        direction = met_first.back(direction)
    if embed.type_table is not None:
        found.append(Part("token_type", None, None, float(embed.type_table[0].double() @ direction)))
    if "pos_embed" in kept:
        found.append(Part("positions", None, None, float(kept["pos_embed"] @ direction)))
    found.append(Part("embedding", None, None, float(kept["embed"] @ direction)))
    return found[::-1]


def _attention(
    block: BlockModule, layer: int, at: dict[str, Tensor], direction: Direction, sources: Tensor
) -> Iterator[Part]:
    """Each head's term, then the biases of the output map and of a sandwich's norm; `sources` takes up who was read."""
    attn, inner = block.attn, direction
    met = None
    if _is_sandwich(block):
        raw = attn.o_proj(at["z"].flatten().to(attn.o_proj.weight.dtype)).double()
        met = _met(block.attn_post_norm, raw)
        inner = met.back(direction)
    # the direction as each head's output sees it
    heads = (inner @ attn.o_proj.weight.double()).view(attn.spec.n_heads, attn.spec.d_head)
    group = attn.spec.n_heads // attn.spec.n_kv_heads
    values = at["v"].repeat_interleave(group, dim=1)  # [key_pos, head, d_head]
    sources += torch.einsum("hk,khd,hd->k", at["attn_pattern"], values, heads)
    for head, term in enumerate((at["z"] * heads).sum(-1).tolist()):
        yield Part("attention_head", layer, head, term)
    if attn.o_proj.bias is not None:
        yield Part("attention_bias", layer, None, float(attn.o_proj.bias.double() @ inner))
    if met is not None:
        yield from _bias("attention_norm_bias", layer, met.constant(direction))


def _mlp(block: BlockModule, layer: int, at: dict[str, Tensor], direction: Direction) -> Iterator[Part]:
    """The MLP's term without its last bias, that bias, and the bias of a sandwich's norm."""
    down, inner, raw, met = block.mlp.down, direction, at["mlp_out"], None
    if _is_sandwich(block):
        raw = down(at["mlp_act"].to(down.weight.dtype)).double()
        met = _met(block.mlp_post_norm, raw)
        inner = met.back(direction)
    bias = 0.0 if down.bias is None else float(down.bias.double() @ inner)
    yield Part("mlp", layer, None, float(raw @ inner) - bias)
    if down.bias is not None:
        yield Part("mlp_bias", layer, None, bias)
    if met is not None:
        yield from _bias("mlp_norm_bias", layer, met.constant(direction))


def _met(norm: Norm | None, x: Direction) -> FrozenNorm:
    assert norm is not None, "a block whose topology has this norm owns it"
    return freeze(norm, x)


def _bias(kind: str, layer: int | None, constant: float | None) -> list[Part]:
    return [] if constant is None else [Part(kind, layer, None, constant)]


def _is_sandwich(block: BlockModule) -> bool:
    return isinstance(block.spec.residual, Serial) and block.spec.residual.norm_at == "both"
