"""Mistral: a window on every layer, or none."""

from parity import llama
from parity.harness import Parity

BASE = {key: value for key, value in llama.BASE.items() if key not in ("attention_bias", "mlp_bias")}

PARITY = Parity(
    family="mistral",
    config="MistralConfig",
    model="MistralForCausalLM",
    base={**BASE, "sliding_window": 7},
    cases={
        "no window": {"sliding_window": None, "tie_word_embeddings": False, "hidden_act": "silu"},
        "a window of one": {"sliding_window": 1},
        "yarn": {"rope_parameters": llama.YARN, "head_dim": 16},
    },
    null=("sliding_window",),
)
