"""BERT's masked model."""

from parity.harness import WITHOUT_EFFECT, Parity

BASE = {
    **WITHOUT_EFFECT,
    "vocab_size": 41,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 29,
    "hidden_act": "silu",
    "hidden_dropout_prob": 0.25,
    "attention_probs_dropout_prob": 0.25,
    "max_position_embeddings": 48,
    "type_vocab_size": 3,
    "layer_norm_eps": 1e-3,
    "pad_token_id": 3,
    "classifier_dropout": 0.25,
    "tie_word_embeddings": False,
}

PARITY = Parity(
    family="bert",
    config="BertConfig",
    model="BertForMaskedLM",
    base=BASE,
    cases={"as published": {"hidden_act": "gelu", "tie_word_embeddings": True, "type_vocab_size": 2}},
    excused={"is_decoder": "refused when true; test_refusals.py"},
    equal=(("cls.predictions.decoder.bias", "cls.predictions.bias"),),
)
