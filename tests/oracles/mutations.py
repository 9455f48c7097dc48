"""Faults that people really put into transformers, each planted into a model on purpose: the oracle must see all of them.

A mutation is a changed spec under the same weights, or something done to a model, or a tap that changes a step. The
weights keep their names and shapes in every case: none of these faults makes a program fail, they only make it wrong.
The next file to read is sabotage.py; the tests that use this list are in tests/model/test_oracle.py.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from oracles import sabotage as by


class Mutation(NamedTuple):
    """What goes wrong, in which of the variants of specs.py, and how.

    `changes` are values for `specs.changed`; `sabotage` is handed the model and may return a tap for the forward.
    """

    describes: str
    variant: str
    changes: dict[str, Any] | None = None
    sabotage: Callable[[Any], Any] | None = None


_ROTARY = "block__attention__position__"

MUTATIONS: dict[str, Mutation] = {
    "mask_one_ahead": Mutation("the causal mask lets one later key through", "plain", None, by.looks_one_ahead),
    "mask_without_self": Mutation("the causal mask hides the query's own key", "plain", None, by.misses_itself),
    "window_one_wider": Mutation(
        "the window counts keys before the query",
        "window_3",
        {"block__attention__sees": {"type": "causal", "window": 4}},
    ),
    "softmax_over_queries": Mutation("the softmax runs over the wrong axis", "plain", None, by.softmax_over_queries),
    "mask_after_softmax": Mutation(
        "hidden keys take their share of the softmax", "plain", None, by.masked_after_softmax
    ),
    "not_causal": Mutation("no mask at all", "plain", {"block__attention__sees": {"type": "bidirectional"}}),
    "score_scale_missing": Mutation("scores are not scaled", "plain", {"block__attention__score_scale": 1.0}),
    "score_cap_missing": Mutation("scores are not capped", "score_softcap", {"block__attention__score_softcap": None}),
    "logit_cap_missing": Mutation("logits are not capped", "tied_head_softcap", {"head__softcap": None}),
    "key_heads_dealt_out": Mutation(
        "key heads serve query heads in turn", "grouped_query", None, by.key_heads_dealt_out
    ),
    "heads_mixed": Mutation("heads and their entries are read crosswise", "plain", None, by.heads_and_entries_mixed),
    "values_turned": Mutation("values are turned with q and k", "rotary", None, by.values_turned_too),
    "pairing_swapped": Mutation("the other pairing", "rotary", {_ROTARY + "pairing": "interleaved"}),
    "theta_default": Mutation("theta is the default's", "rotary", {_ROTARY + "theta": 10_000.0}),
    "fraction_ignored": Mutation("the whole head turns", "rotary_fraction", {_ROTARY + "fraction": 1.0}),
    "scaling_ignored": Mutation("Llama 3's scaling is not read", "rotary_llama3", {_ROTARY + "scaling": None}),
    "yarn_once": Mutation(
        "the attention factor multiplies scores once",
        "rotary_yarn",
        {_ROTARY + "scaling__attention_factor": 1.2**0.5},
    ),
    "qk_norm_after_turning": Mutation("q and k are turned, then normed", "qk_rms_norm", None, by.norm_after_turning),
    "slopes_from_one": Mutation("ALiBi's exponents start at 0", "alibi_4_heads", None, by.slopes_from_one),
    "positions_shifted": Mutation("the table of positions is read one row on", "learned", None, by.positions_shifted),
    "offset_one_less": Mutation("RoBERTa's offset is one less", "learned_offset", {"embedding__position__offset": 1}),
    "post_for_pre": Mutation("the norm after the sum instead of before", "plain", None, by.post_instead_of_pre),
    "norms_exchanged": Mutation("attention's norm at the MLP and back", "plain", None, by.norms_exchanged),
    "shortcut_missing": Mutation(
        "nothing is added to the stream", "plain", {"block__residual": {"type": "no_shortcut"}}
    ),
    "eps_of_another": Mutation("eps 1e-6 instead of 1e-5", "plain", {"block__norm__eps": 1e-6}),
    "one_plus_missing": Mutation(
        "Gemma's gain without its 1", "norm_rms_norm_one_plus", {"block__norm__gain": "plain"}
    ),
    "unbiased_variance": Mutation("the variance divides by n - 1", "plain", None, by.unbiased_variance),
    "norm_over_positions": Mutation("the norm runs over positions too", "plain", None, by.norm_over_positions),
    "layers_backwards": Mutation("the last layer comes first", "plain", None, by.layers_backwards),
    "tanh_for_exact": Mutation("GELU's approximation", "plain", {"block__mlp__activation": "gelu_tanh"}),
    "gate_and_up": Mutation("gate and up are exchanged", "mlp_gated_silu_no_bias", None, by.gate_and_up_exchanged),
    "query_bias_dropped": Mutation("q's bias is left out", "biases_qkv", None, by.bias_dropped("blocks.1.attn.q_proj")),
    "down_bias_dropped": Mutation(
        "the MLP's last bias is left out", "plain", None, by.bias_dropped("blocks.0.mlp.down")
    ),
    "head_bias_dropped": Mutation("the head's bias is left out", "tied_head_bias", None, by.bias_dropped("head")),
    "dense_transposed": Mutation("a square matrix is transposed", "tied_head_transform", None, by.dense_transposed),
    "head_untied": Mutation("the head reads a table of its own", "tied_head", None, by.head_of_another_table),
    "map_transposed": Mutation("the map between head and table is transposed", "mapped_head", None, by.map_transposed),
    "map_left_out": Mutation("the map between head and table is left out", "mapped_head", None, by.map_left_out),
    "embeds_without_inverse": Mutation(
        "rows of the shared table enter the stream as they are", "pseudo_inverse_head", None, by.embeds_without_inverse
    ),
    "embeds_by_the_matrix": Mutation(
        "rows are multiplied by T where T's inverse belongs", "pseudo_inverse_head", None, by.embeds_by_the_matrix
    ),
    "half_solved": Mutation("one of the two triangular systems is solved", "pseudo_inverse_head", None, by.half_solved),
    "factor_exchanged": Mutation("x L^T L instead of x L L^T", "pseudo_inverse_head", None, by.factor_exchanged),
    "diagonal_not_positive": Mutation(
        "the diagonal itself instead of its exponential", "pseudo_inverse_head", None, by.diagonal_as_it_is
    ),
    "below_by_columns": Mutation(
        "the numbers below the diagonal are read column by column", "pseudo_inverse_head", None, by.below_by_columns
    ),
    "embed_scale_missing": Mutation("the table's rows are not scaled", "embed_scale", {"embedding__scale": None}),
    "scale_over_bias": Mutation("the scale takes the bias with it", "tied_head_everything", None, by.bias_scaled),
    "dropout_share": Mutation(
        "all masked tokens count as replaced", "token_dropout", {"embedding__token_dropout__trained_share": 0.15}
    ),
}
