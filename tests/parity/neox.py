"""NeoX: side by side and one after the other, with and without biases, part of a head turned."""

from parity import llama
from parity.harness import WITHOUT_EFFECT, Parity

BASE = {
    **WITHOUT_EFFECT,
    "vocab_size": 41,
    "hidden_size": 24,
    "intermediate_size": 29,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "hidden_act": "gelu_new",
    "max_position_embeddings": 64,
    "layer_norm_eps": 1e-3,
    "pad_token_id": 3,
    "tie_word_embeddings": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 700.0, "partial_rotary_factor": 0.5},
    "attention_bias": False,
    "use_parallel_residual": False,
    "is_decoder": True,
    "attention_dropout": 0.25,
    "hidden_dropout": 0.25,
    "classifier_dropout": 0.25,
}

PARITY = Parity(
    family="neox",
    config="GPTNeoXConfig",
    model="GPTNeoXForCausalLM",
    base=BASE,
    cases={
        "as published": {
            "hidden_act": "gelu",
            "tie_word_embeddings": False,
            "attention_bias": True,
            "use_parallel_residual": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25},
        },
        "gelu_fast": {"hidden_act": "gelu_fast", "use_parallel_residual": True},
        "whole heads": {"rope_parameters": {**llama.ROPE, "partial_rotary_factor": 1.0}},
        "linear": {
            "rope_parameters": {"rope_type": "linear", "rope_theta": 300.0, "factor": 3.0, "partial_rotary_factor": 0.5}
        },
    },
)
