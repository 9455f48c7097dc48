"""Llama: its four ways to scale rotary positions, both biases, heads that are wider or narrower together than the stream."""

from parity.harness import WITHOUT_EFFECT, Parity

ROPE = {"rope_theta": 700.0, "rope_type": "default"}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "rope_theta": 600.0, "factor": 4.0, "original_max_position_embeddings": 16}

BASE = {
    **WITHOUT_EFFECT,
    "vocab_size": 41,
    "hidden_size": 24,
    "intermediate_size": 29,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "hidden_act": "gelu",
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-3,
    "pad_token_id": 3,
    "tie_word_embeddings": True,
    "rope_parameters": ROPE,
    "attention_bias": True,
    "attention_dropout": 0.25,
    "mlp_bias": True,
}

PARITY = Parity(
    family="llama",
    config="LlamaConfig",
    model="LlamaForCausalLM",
    base=BASE,
    cases={
        "untied, no biases": {
            "tie_word_embeddings": False,
            "attention_bias": False,
            "mlp_bias": False,
            "hidden_act": "silu",
            "head_dim": 4,
            "num_key_value_heads": 6,
        },
        "linear": {"rope_parameters": {"rope_type": "linear", "rope_theta": 300.0, "factor": 3.0}},
        "dynamic": {
            "rope_parameters": {"rope_type": "dynamic", "rope_theta": 300.0, "factor": 3.0},
            "max_position_embeddings": 22,
        },
        "llama3": {"rope_parameters": LLAMA3, "head_dim": 16},
        "yarn": {"rope_parameters": YARN, "head_dim": 16},
        "yarn by its numbers": {
            "rope_parameters": {**YARN, "beta_fast": 8.0, "beta_slow": 0.5, "truncate": False, "attention_factor": 1.3},
            "head_dim": 16,
        },
        "yarn of two scales": {"rope_parameters": {**YARN, "mscale": 0.7, "mscale_all_dim": 1.4}, "head_dim": 16},
        "relu": {"hidden_act": "relu"},
        "relu squared": {"hidden_act": "relu2"},
        "tanh gelu": {"hidden_act": "gelu_pytorch_tanh"},
        "old tanh gelu": {"hidden_act": "gelu_new"},
        "swish": {"hidden_act": "swish"},
    },
    excused={"pretraining_tp": "slices the same products; only 1 is taken"},
)
