"""StableLM: the family that docs/add/family.md adds."""

from parity import llama
from parity.harness import WITHOUT_EFFECT, Parity

BASE = {
    **WITHOUT_EFFECT,
    "vocab_size": 41,
    "hidden_size": 24,
    "intermediate_size": 29,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_act": "gelu",
    "max_position_embeddings": 64,
    "layer_norm_eps": 1e-3,
    "pad_token_id": 3,
    "tie_word_embeddings": True,
    "rope_parameters": {**llama.ROPE, "partial_rotary_factor": 0.7},
    "use_qkv_bias": True,
    "use_parallel_residual": True,
    "hidden_dropout": 0.25,
    "attention_dropout": 0.25,
}

PARITY = Parity(
    family="stablelm",
    config="StableLmConfig",
    model="StableLmForCausalLM",
    base=BASE,
    cases={
        "as published": {
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            "use_qkv_bias": False,
            "use_parallel_residual": False,
        },
    },
    excused={"qk_layernorm": "refused when true; test_refusals.py"},
)
