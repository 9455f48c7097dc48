"""Gemma 1 to 3: scaled embeddings, norms of 1 + gain, caps, windows, and two thetas."""

from parity import llama
from parity.harness import Parity

GEMMA1_BASE = {
    **{key: value for key, value in llama.BASE.items() if key != "mlp_bias"},
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
_BIDIRECTIONAL = {"use_bidirectional_attention": "refused when true; test_refusals.py"}

GEMMA1 = Parity(
    family="gemma",
    config="GemmaConfig",
    model="GemmaForCausalLM",
    base=GEMMA1_BASE,
    cases={
        "as published": {"hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True, "attention_bias": False},
        "linear": {"rope_parameters": {"rope_type": "linear", "rope_theta": 300.0, "factor": 3.0}},
    },
    excused=_BIDIRECTIONAL,
    gain=0.0,
)

LATER = {
    **{key: value for key, value in GEMMA1_BASE.items() if key != "hidden_act"},
    "hidden_activation": "silu",
    "query_pre_attn_scalar": 11,
    "sliding_window": 5,
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
    "attn_logit_softcapping": 7.0,
    "final_logit_softcapping": 9.0,
}
PUBLISHED = {
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
    "attention_bias": False,
    "layer_types": ...,
}

GEMMA2 = Parity(
    family="gemma2",
    config="Gemma2Config",
    model="Gemma2ForCausalLM",
    base=LATER,
    cases={
        "as published": PUBLISHED,
        "no caps": {"attn_logit_softcapping": None, "final_logit_softcapping": None},
        "no window": {"layer_types": ["full_attention"] * 3},
    },
    excused=_BIDIRECTIONAL,
    gain=0.0,
    optional={"layer_types": "files before it was a key have a window on every other layer"},
    null=("attn_logit_softcapping", "final_logit_softcapping"),
)
TWO = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 90.0},
    "full_attention": {"rope_type": "linear", "factor": 3.0, "rope_theta": 800.0},
}
GEMMA3 = Parity(
    family="gemma3",
    config="Gemma3TextConfig",
    model="Gemma3ForCausalLM",
    base={**LATER, "rope_parameters": TWO, "attn_logit_softcapping": None},
    cases={
        "as published": {**PUBLISHED, "num_hidden_layers": 7, "rope_parameters": {**TWO, "full_attention": llama.ROPE}},
        "no cap": {"final_logit_softcapping": None},
        "each second layer far": {"layer_types": ..., "sliding_window_pattern": 2},
        "no far layer": {"layer_types": ["sliding_attention"] * 3},
    },
    excused={**_BIDIRECTIONAL, "attn_logit_softcapping": "refused: transformers reads it and caps nothing"},
    gain=0.0,
    optional={"layer_types": "files before it was a key have a window on five layers of six"},
    null=("final_logit_softcapping",),
)
