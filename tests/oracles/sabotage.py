"""The means by which mutations.py does harm: hands on a model's modules, and taps that falsify a step.

Each function is handed a model and spoils it in place, or returns a tap under which a forward is wrong. Nothing is put
right again: a model is built for each mutation.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from oracles.positions import alibi_slopes, rotate
from oracles.specs import ROTARY


class Steps:
    """A tap that may change each step, knowing those that came before it in the same block."""

    def __init__(self, change: Callable[[str, Tensor, dict[str, Tensor]], Tensor]) -> None:
        self.change = change
        self.before: dict[str, Tensor] = {}

    def __call__(self, name: str, value: Tensor, /) -> Tensor:
        self.before[name] = self.change(name, value, self.before)
        return self.before[name]

    def inside(self, layer: int, /) -> "Steps":
        return Steps(self.change)


# --- masks and softmax -------------------------------------------------------------------------------------------------


def _scores(before: dict[str, Tensor], scale: float) -> Tensor:
    """Every query against every key, nothing hidden (as many key heads as query heads)."""
    scores: Tensor = before["q"].transpose(1, 2) @ before["k"].permute(0, 2, 3, 1) * scale
    return scores


def looks_one_ahead(model: Any) -> Steps:
    scale = model.spec.blocks[0].attention.score_scale

    def change(name: str, value: Tensor, before: dict[str, Tensor]) -> Tensor:
        if name != "attn_scores":
            return value
        scores = _scores(before, scale)
        return scores.masked_fill(torch.ones(value.shape[-2:], dtype=torch.bool).triu(2), float("-inf"))

    return Steps(change)


def misses_itself(model: Any) -> Steps:
    def change(name: str, value: Tensor, before: dict[str, Tensor]) -> Tensor:
        if name != "attn_scores":
            return value
        itself = torch.eye(value.shape[-1], dtype=torch.bool)
        itself[0, 0] = False
        return value.masked_fill(itself, float("-inf"))

    return Steps(change)


def softmax_over_queries(model: Any) -> Steps:
    return Steps(lambda name, value, before: before["attn_scores"].softmax(-2) if name == "attn_pattern" else value)


def masked_after_softmax(model: Any) -> Steps:
    scale = model.spec.blocks[0].attention.score_scale

    def change(name: str, value: Tensor, before: dict[str, Tensor]) -> Tensor:
        if name != "attn_pattern":
            return value
        scores = _scores(before, scale)
        return scores.softmax(-1).tril()

    return Steps(change)


# --- heads and positions -----------------------------------------------------------------------------------------------


@torch.no_grad()
def key_heads_dealt_out(model: Any) -> None:
    """Query head h reads key head h % n instead of h // group: the same as query heads standing in another order."""
    for block in model.blocks:
        attention = block.attn.spec
        n_kv, group = attention.n_kv_heads, attention.n_heads // attention.n_kv_heads
        order = [head for kv_head in range(n_kv) for head in range(kv_head, n_kv * group, n_kv)]
        rows = torch.tensor([head * attention.d_head + j for head in order for j in range(attention.d_head)])
        block.attn.q_proj.weight.copy_(block.attn.q_proj.weight[rows])
        block.attn.o_proj.weight.copy_(block.attn.o_proj.weight[:, rows])


@torch.no_grad()
def heads_and_entries_mixed(model: Any) -> None:
    """A projection read as [d_head, head] instead of [head, d_head], which a wrong reshape does."""
    for block in model.blocks:
        attention, weight = block.attn.spec, block.attn.q_proj.weight
        weight.copy_(weight.unflatten(0, (attention.d_head, attention.n_heads)).transpose(0, 1).flatten(0, 1))


def values_turned_too(model: Any) -> Steps:
    def change(name: str, value: Tensor, before: dict[str, Tensor]) -> Tensor:
        if name != "v":
            return value
        turned = value.detach().clone()
        for batch, pos, head in np.ndindex(*turned.shape[:3]):
            turned[batch, pos, head] = torch.from_numpy(rotate(turned[batch, pos, head].numpy(), pos, ROTARY, 0))
        return turned

    return Steps(change)


def norm_after_turning(model: Any) -> Steps:
    block = model.blocks[0]
    norms = {"q_rot": block.attn.q_norm, "k_rot": block.attn.k_norm}
    for each in model.blocks:
        each.attn.q_norm, each.attn.k_norm = nn.Identity(), nn.Identity()
    return Steps(lambda name, value, before: norms[name](value) if name in norms else value)


def slopes_from_one(model: Any) -> Steps:
    """ALiBi's first slope 1 instead of 2^(-8/h): the exponent starts at 0."""

    def change(name: str, value: Tensor, before: dict[str, Tensor]) -> Tensor:
        if name != "attn_scores":
            return value
        right = torch.tensor(alibi_slopes(value.shape[1]), dtype=value.dtype)
        wrong = right / right[0]
        places = torch.arange(value.shape[-1])
        return value - (wrong - right)[:, None, None] * (places[:, None] - places).abs()

    return Steps(change)


@torch.no_grad()
def positions_shifted(model: Any) -> None:
    model.embed.pos_table.copy_(model.embed.pos_table.roll(1, dims=0))


# --- norms and the stream ----------------------------------------------------------------------------------------------


def post_instead_of_pre(model: Any) -> None:
    for block in model.blocks:
        block.attn_norm, block.attn_post_norm = None, block.attn_norm
        block.mlp_norm, block.mlp_post_norm = None, block.mlp_norm


def unbiased_variance(model: Any) -> None:
    norm = model.final_norm

    def forward(x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return norm.gain * centred / torch.sqrt(x.var(-1, keepdim=True) + norm.eps) + norm.bias  # type: ignore[no-any-return]

    norm.forward = forward


def norm_over_positions(model: Any) -> None:
    norm = model.final_norm
    norm.forward = lambda x: norm.gain * nn.functional.layer_norm(x, x.shape[1:], eps=norm.eps) + norm.bias


def norms_exchanged(model: Any) -> None:
    for block in model.blocks:
        block.attn_norm, block.mlp_norm = block.mlp_norm, block.attn_norm


def layers_backwards(model: Any) -> None:
    model.blocks = nn.ModuleList(reversed(list(model.blocks)))


# --- MLP and head ------------------------------------------------------------------------------------------------------


def gate_and_up_exchanged(model: Any) -> None:
    for block in model.blocks:
        block.mlp.gate, block.mlp.up = block.mlp.up, block.mlp.gate


def bias_dropped(of: str) -> Callable[[Any], None]:
    def drop(model: Any) -> None:
        model.get_submodule(of).bias = None

    return drop


@torch.no_grad()
def dense_transposed(model: Any) -> None:
    weight = model.head.transform.dense.weight
    weight.copy_(weight.T.clone())


def head_of_another_table(model: Any) -> None:
    """The head untied by a copy that went its own way, as after one training step."""
    copied = model.embed.table.detach().clone()
    copied[3] += 1e-3
    model.head.table = nn.Parameter(copied)


def bias_scaled(model: Any) -> None:
    """scale * (x E^T + bias) instead of scale * (x E^T) + bias."""
    model.head.bias = nn.Parameter(model.head.bias.detach() * model.head.spec.scale)


@torch.no_grad()
def map_transposed(model: Any) -> None:
    model.head.map.weight.copy_(model.head.map.weight.T.clone())


def map_left_out(model: Any) -> None:
    model.head.map = None


def embeds_without_inverse(model: Any) -> None:
    model.head.factor.inverse = lambda rows: rows


def embeds_by_the_matrix(model: Any) -> None:
    model.head.factor.inverse = model.head.factor.forward


def half_solved(model: Any) -> None:
    factor = model.head.factor
    factor.inverse = lambda rows: torch.linalg.solve(factor.lower(), rows.mT).mT


def factor_exchanged(model: Any) -> None:
    """A Cholesky factor taken for its transpose, in both places: still symmetric, still inverse to each other."""
    lower = model.head.factor.lower
    model.head.factor.lower = lambda: torch.linalg.cholesky(lower().T @ lower())


@torch.no_grad()
def diagonal_as_it_is(model: Any) -> None:
    diagonal = model.head.factor.log_diagonal
    diagonal.copy_(diagonal.abs().log())  # exp gives it back


@torch.no_grad()
def below_by_columns(model: Any) -> None:
    factor = model.head.factor
    width = len(factor.log_diagonal)
    square = torch.zeros(width, width, dtype=factor.below.dtype)
    square[*torch.triu_indices(width, width, 1)] = factor.below
    factor.below.copy_(square.T[*torch.tril_indices(width, width, -1)])
