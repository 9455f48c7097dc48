"""Faults that people really put into transformers, each planted into a model on purpose: the oracle must see all of them.

A mutation is a changed spec under the same weights, or something done to a model, or a tap that changes a step. The
weights keep their names and shapes in every case: none of these faults makes a program fail, they only make it wrong.
The tests that use this list are in tests/model/test_oracle.py.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from oracles.positions import alibi_slopes, rotate
from oracles.specs import ROTARY


class Mutation(NamedTuple):
    """What goes wrong, in which of the variants of specs.py, and how.

    `changes` are values for `specs.changed`; `sabotage` is handed the model and may return a tap for the forward.
    """

    describes: str
    variant: str
    changes: dict[str, Any] | None = None
    sabotage: Callable[[Any], Any] | None = None


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


def _looks_one_ahead(model: Any) -> Steps:
    scale = model.spec.blocks[0].attention.score_scale

    def change(name: str, value: Tensor, before: dict[str, Tensor]) -> Tensor:
        if name != "attn_scores":
            return value
        scores = _scores(before, scale)
        return scores.masked_fill(torch.ones(value.shape[-2:], dtype=torch.bool).triu(2), float("-inf"))

    return Steps(change)


def _misses_itself(model: Any) -> Steps:
    def change(name: str, value: Tensor, before: dict[str, Tensor]) -> Tensor:
        if name != "attn_scores":
            return value
        itself = torch.eye(value.shape[-1], dtype=torch.bool)
        itself[0, 0] = False
        return value.masked_fill(itself, float("-inf"))

    return Steps(change)


def _softmax_over_queries(model: Any) -> Steps:
    return Steps(lambda name, value, before: before["attn_scores"].softmax(-2) if name == "attn_pattern" else value)


def _masked_after_softmax(model: Any) -> Steps:
    scale = model.spec.blocks[0].attention.score_scale

    def change(name: str, value: Tensor, before: dict[str, Tensor]) -> Tensor:
        if name != "attn_pattern":
            return value
        scores = _scores(before, scale)
        return scores.softmax(-1).tril()

    return Steps(change)


# --- heads and positions -----------------------------------------------------------------------------------------------


@torch.no_grad()
def _key_heads_dealt_out(model: Any) -> None:
    """Query head h reads key head h % n instead of h // group: the same as query heads standing in another order."""
    for block in model.blocks:
        attention = block.attn.spec
        n_kv, group = attention.n_kv_heads, attention.n_heads // attention.n_kv_heads
        order = [head for kv_head in range(n_kv) for head in range(kv_head, n_kv * group, n_kv)]
        rows = torch.tensor([head * attention.d_head + j for head in order for j in range(attention.d_head)])
        block.attn.q_proj.weight.copy_(block.attn.q_proj.weight[rows])
        block.attn.o_proj.weight.copy_(block.attn.o_proj.weight[:, rows])


@torch.no_grad()
def _heads_and_entries_mixed(model: Any) -> None:
    """A projection read as [d_head, head] instead of [head, d_head], which a wrong reshape does."""
    for block in model.blocks:
        attention, weight = block.attn.spec, block.attn.q_proj.weight
        weight.copy_(weight.unflatten(0, (attention.d_head, attention.n_heads)).transpose(0, 1).flatten(0, 1))


def _values_turned_too(model: Any) -> Steps:
    def change(name: str, value: Tensor, before: dict[str, Tensor]) -> Tensor:
        if name != "v":
            return value
        turned = value.detach().clone()
        for batch, pos, head in np.ndindex(*turned.shape[:3]):
            turned[batch, pos, head] = torch.from_numpy(rotate(turned[batch, pos, head].numpy(), pos, ROTARY, 0))
        return turned

    return Steps(change)


def _norm_after_turning(model: Any) -> Steps:
    block = model.blocks[0]
    norms = {"q_rot": block.attn.q_norm, "k_rot": block.attn.k_norm}
    for each in model.blocks:
        each.attn.q_norm, each.attn.k_norm = nn.Identity(), nn.Identity()
    return Steps(lambda name, value, before: norms[name](value) if name in norms else value)


def _slopes_from_one(model: Any) -> Steps:
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
def _positions_shifted(model: Any) -> None:
    model.embed.pos_table.copy_(model.embed.pos_table.roll(1, dims=0))


# --- norms and the stream ----------------------------------------------------------------------------------------------


def _post_instead_of_pre(model: Any) -> None:
    for block in model.blocks:
        block.attn_norm, block.attn_post_norm = None, block.attn_norm
        block.mlp_norm, block.mlp_post_norm = None, block.mlp_norm


def _unbiased_variance(model: Any) -> None:
    norm = model.final_norm

    def forward(x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return norm.gain * centred / torch.sqrt(x.var(-1, keepdim=True) + norm.eps) + norm.bias  # type: ignore[no-any-return]

    norm.forward = forward


def _norm_over_positions(model: Any) -> None:
    norm = model.final_norm
    norm.forward = lambda x: norm.gain * nn.functional.layer_norm(x, x.shape[1:], eps=norm.eps) + norm.bias


def _norms_exchanged(model: Any) -> None:
    for block in model.blocks:
        block.attn_norm, block.mlp_norm = block.mlp_norm, block.attn_norm


def _layers_backwards(model: Any) -> None:
    model.blocks = nn.ModuleList(reversed(list(model.blocks)))


# --- MLP and head ------------------------------------------------------------------------------------------------------


def _gate_and_up_exchanged(model: Any) -> None:
    for block in model.blocks:
        block.mlp.gate, block.mlp.up = block.mlp.up, block.mlp.gate


def _bias_dropped(of: str) -> Callable[[Any], None]:
    def drop(model: Any) -> None:
        model.get_submodule(of).bias = None

    return drop


@torch.no_grad()
def _dense_transposed(model: Any) -> None:
    weight = model.head.transform.dense.weight
    weight.copy_(weight.T.clone())


def _head_of_another_table(model: Any) -> None:
    """The head untied by a copy that went its own way, as after one training step."""
    copied = model.embed.table.detach().clone()
    copied[3] += 1e-3
    model.head.table = nn.Parameter(copied)


def _bias_scaled(model: Any) -> None:
    """scale * (x E^T + bias) instead of scale * (x E^T) + bias."""
    model.head.bias = nn.Parameter(model.head.bias.detach() * model.head.spec.scale)


_TRUE_ROTARY = "block__attention__position__"

MUTATIONS: dict[str, Mutation] = {
    "mask_one_ahead": Mutation("the causal mask lets one later key through", "plain", None, _looks_one_ahead),
    "mask_without_self": Mutation("the causal mask hides the query's own key", "plain", None, _misses_itself),
    "window_one_wider": Mutation(
        "the window counts keys before the query",
        "window_3",
        {"block__attention__sees": {"type": "causal", "window": 4}},
    ),
    "softmax_over_queries": Mutation("the softmax runs over the wrong axis", "plain", None, _softmax_over_queries),
    "mask_after_softmax": Mutation("hidden keys take their share of the softmax", "plain", None, _masked_after_softmax),
    "not_causal": Mutation("no mask at all", "plain", {"block__attention__sees": {"type": "bidirectional"}}),
    "score_scale_missing": Mutation("scores are not scaled", "plain", {"block__attention__score_scale": 1.0}),
    "score_cap_missing": Mutation("scores are not capped", "score_softcap", {"block__attention__score_softcap": None}),
    "logit_cap_missing": Mutation("logits are not capped", "tied_head_softcap", {"head__softcap": None}),
    "key_heads_dealt_out": Mutation("key heads serve query heads in turn", "grouped_query", None, _key_heads_dealt_out),
    "heads_mixed": Mutation("heads and their entries are read crosswise", "plain", None, _heads_and_entries_mixed),
    "values_turned": Mutation("values are turned with q and k", "rotary", None, _values_turned_too),
    "pairing_swapped": Mutation("the other pairing", "rotary", {_TRUE_ROTARY + "pairing": "interleaved"}),
    "theta_default": Mutation("theta is the default's", "rotary", {_TRUE_ROTARY + "theta": 10_000.0}),
    "fraction_ignored": Mutation("the whole head turns", "rotary_fraction", {_TRUE_ROTARY + "fraction": 1.0}),
    "scaling_ignored": Mutation("Llama 3's scaling is not read", "rotary_llama3", {_TRUE_ROTARY + "scaling": None}),
    "yarn_once": Mutation(
        "the attention factor multiplies scores once",
        "rotary_yarn",
        {_TRUE_ROTARY + "scaling__attention_factor": 1.2**0.5},
    ),
    "qk_norm_after_turning": Mutation("q and k are turned, then normed", "qk_rms_norm", None, _norm_after_turning),
    "slopes_from_one": Mutation("ALiBi's exponents start at 0", "alibi_4_heads", None, _slopes_from_one),
    "positions_shifted": Mutation("the table of positions is read one row on", "learned", None, _positions_shifted),
    "offset_one_less": Mutation("RoBERTa's offset is one less", "learned_offset", {"embedding__position__offset": 1}),
    "post_for_pre": Mutation("the norm after the sum instead of before", "plain", None, _post_instead_of_pre),
    "norms_exchanged": Mutation("attention's norm at the MLP and back", "plain", None, _norms_exchanged),
    "shortcut_missing": Mutation(
        "nothing is added to the stream", "plain", {"block__residual": {"type": "no_shortcut"}}
    ),
    "eps_of_another": Mutation("eps 1e-6 instead of 1e-5", "plain", {"block__norm__eps": 1e-6}),
    "one_plus_missing": Mutation(
        "Gemma's gain without its 1", "norm_rms_norm_one_plus", {"block__norm__gain": "plain"}
    ),
    "unbiased_variance": Mutation("the variance divides by n - 1", "plain", None, _unbiased_variance),
    "norm_over_positions": Mutation("the norm runs over positions too", "plain", None, _norm_over_positions),
    "layers_backwards": Mutation("the last layer comes first", "plain", None, _layers_backwards),
    "tanh_for_exact": Mutation("GELU's approximation", "plain", {"block__mlp__activation": "gelu_tanh"}),
    "gate_and_up": Mutation("gate and up are exchanged", "mlp_gated_silu_no_bias", None, _gate_and_up_exchanged),
    "query_bias_dropped": Mutation("q's bias is left out", "biases_qkv", None, _bias_dropped("blocks.1.attn.q_proj")),
    "down_bias_dropped": Mutation("the MLP's last bias is left out", "plain", None, _bias_dropped("blocks.0.mlp.down")),
    "head_bias_dropped": Mutation("the head's bias is left out", "tied_head_bias", None, _bias_dropped("head")),
    "dense_transposed": Mutation("a square matrix is transposed", "tied_head_transform", None, _dense_transposed),
    "head_untied": Mutation("the head reads a table of its own", "tied_head", None, _head_of_another_table),
    "embed_scale_missing": Mutation("the table's rows are not scaled", "embed_scale", {"embedding__scale": None}),
    "scale_over_bias": Mutation("the scale takes the bias with it", "tied_head_everything", None, _bias_scaled),
    "dropout_share": Mutation(
        "all masked tokens count as replaced", "token_dropout", {"embedding__token_dropout__trained_share": 0.15}
    ),
}
