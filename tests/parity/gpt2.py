"""GPT-2."""

from parity.harness import WITHOUT_EFFECT, Parity

BASE = {
    **WITHOUT_EFFECT,
    "vocab_size": 41,
    "n_positions": 48,
    "n_embd": 24,
    "n_layer": 3,
    "n_head": 4,
    "n_inner": 29,
    "activation_function": "silu",
    "layer_norm_epsilon": 1e-3,
    "pad_token_id": 3,
    "tie_word_embeddings": False,
    "scale_attn_weights": False,
    "scale_attn_by_inverse_layer_idx": True,
    "resid_pdrop": 0.25,
    "embd_pdrop": 0.25,
    "attn_pdrop": 0.25,
    "summary_type": "first",
    "summary_use_proj": False,
    "summary_activation": "tanh",
    "summary_proj_to_labels": False,
    "summary_first_dropout": 0.25,
}

PARITY = Parity(
    family="gpt2",
    config="GPT2Config",
    model="GPT2LMHeadModel",
    base=BASE,
    cases={
        "as published": {
            "n_inner": None,
            "activation_function": "gelu_new",
            "tie_word_embeddings": True,
            "scale_attn_weights": True,
            "scale_attn_by_inverse_layer_idx": False,
        },
        "scaled": {"scale_attn_weights": True},
    },
    excused={"reorder_and_upcast_attn": "stops transformers in float64; it rounds half precision another way"},
    optional={
        "scale_attn_weights": "GPT-2's own files are older than the key",
        "scale_attn_by_inverse_layer_idx": "GPT-2's own files are older than the key",
    },
)
