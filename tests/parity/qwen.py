"""Qwen 1.5 to 2.5 and Qwen3: windows from a layer on, or as listed; biases on q, k and v; norms on q and k."""

from parity import llama
from parity.harness import Parity

BASE = {
    **{key: value for key, value in llama.BASE.items() if key not in ("attention_bias", "mlp_bias", "head_dim")},
    "use_sliding_window": True,
    "sliding_window": 6,
    "max_window_layers": 1,
}
CASES = {
    "no window": {"use_sliding_window": False, "tie_word_embeddings": False, "hidden_act": "silu"},
    "a window that is switched off": {"use_sliding_window": False, "sliding_window": 9},
    "listed": {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    "a window on all": {"max_window_layers": 0},
    "yarn": {"rope_parameters": {**llama.YARN, "original_max_position_embeddings": 16}},
}

QWEN2 = Parity(
    family="qwen",
    config="Qwen2Config",
    model="Qwen2ForCausalLM",
    base=BASE,
    cases={**CASES, "heads of their own width": {"head_dim": 10}},
)
QWEN3 = Parity(
    family="qwen3",
    config="Qwen3Config",
    model="Qwen3ForCausalLM",
    base={**BASE, "head_dim": 8, "attention_bias": True},
    cases={**CASES, "no biases": {"attention_bias": False}},
)
