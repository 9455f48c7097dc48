"""RoBERTa's masked model; positions begin after the padding id."""

from parity import bert
from parity.harness import Parity

PARITY = Parity(
    family="roberta",
    config="RobertaConfig",
    model="RobertaForMaskedLM",
    base=bert.BASE,
    cases={
        "as published": {
            "hidden_act": "gelu",
            "tie_word_embeddings": True,
            "type_vocab_size": 1,
            "pad_token_id": 1,
            "max_position_embeddings": 41,
        },
        "padding id 0": {"pad_token_id": 0},
    },
    excused={"is_decoder": "refused when true; test_refusals.py"},
    equal=(("lm_head.decoder.bias", "lm_head.bias"),),
)
