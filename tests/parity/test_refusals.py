"""Configs that mean another function, or that nobody knows, are refused by name; older spellings mean what they meant.

What is changed here stands in real files or in bug reports. test_accounts.py changes every key of every family.
"""

import pytest
import torch

from unembed.checkpoints.foreign.huggingface import open_folder
from unembed.checkpoints.foreign.translate import describe, translate
from unembed.checkpoints.load import load
from unembed.errors import CheckpointError
from unembed.model.spec import DynamicScaling, LinearScaling, Llama3Scaling

LLAMA3 = {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


REFUSED = [
    ("bert", {"is_decoder": True}, "is_decoder is True, expected False: a causal BERT is another model"),
    ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
    ("roberta", {"is_decoder": True}, "is_decoder is True"),
    ("roberta", {"pad_token_id": None}, "pad_token_id is missing"),
    ("roberta", {"max_position_embeddings": 4}, "4 rows come before the first position"),
    ("gemma", {"use_bidirectional_attention": True}, "use_bidirectional_attention is True"),
    ("gemma", {"hidden_activation": "relu"}, "hidden_act and hidden_activation differ"),
    ("gemma2", {"sliding_window": None}, "sliding_window is missing"),
    ("gemma2", {"layer_types": ["full_attention"]}, "layer_types lists 1 layers, num_hidden_layers says 3"),
    ("gemma2", {"layer_types": ["full_attention", "chunked_attention", "full_attention"]}, "chunked_attention"),
    ("gemma2", {"hidden_act": "relu"}, "hidden_act is 'relu', expected 'silu' or 'swish'"),
    ("gemma2", {"sliding_window_size": 9}, "sliding_window_size is 9, expected 5"),
    ("gemma3", {"attn_logit_softcapping": 30.0}, "attn_logit_softcapping is 30.0, expected that it is absent"),
    (
        "gemma3",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
        "rope_parameters.sliding_attention is missing",
    ),
    ("stablelm", {"qk_layernorm": True}, "qk_layernorm is True, expected False"),
    (
        "llama",
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1.0, "factor": 4.0}},
        "the config describes no model: .*theta is 1.0; yarn scaling divides by its logarithm and needs it above 1",
    ),
    ("llama", {"pretraining_tp": 2}, "pretraining_tp is 2"),
    ("llama", {"rope_interleaved": True}, "rope_interleaved is True"),
    ("llama", {"quantization_config": {"bits": 4}}, "quantization_config is {'bits': 4}, expected that it is absent"),
    ("llama", {"num_attention_heads": 5, "head_dim": None}, "24, which 5 heads"),
    (
        "llama",
        {"num_key_value_heads": 4},
        "the config describes no model: .*n_kv_heads is 4; it must divide n_heads, 6",
    ),
    ("llama", {"num_hidden_layers": 10**12}, "num_hidden_layers is 1000000000000; models of more than 10,000 layers"),
    ("llama", {"num_hidden_layers": 4}, "are missing: 'model.layers.3.input_layernorm.weight'"),
    ("llama", {"num_hidden_layers": 2}, "source tensors have no rule: 'model.layers.2.input_layernorm.weight'"),
    ("gpt2", {"add_cross_attention": True}, "add_cross_attention is True"),
    ("gpt2", {"is_encoder_decoder": True}, "is_encoder_decoder is True"),
    ("mistral", {"sliding_window": ...}, "sliding_window is missing. The config must give a number, or null for none"),
    ("mistral", {"layer_types": ["full_attention"] * 3}, "1 config key has no meaning here: layer_types"),
    (
        "qwen",
        {"use_sliding_window": False},
        "layer_types lists windows, and use_sliding_window says that there are none",
    ),
    ("qwen", {"layer_types": ..., "max_window_layers": ...}, "max_window_layers is missing"),
    ("qwen3", {"head_dim": ...}, "head_dim is missing"),
    ("neox", {"rotary_pct": 0.25}, "rotary_pct = 0.25 and partial_rotary_factor inside the rope object = 0.5"),
]


@pytest.mark.parametrize(("family", "config", "message"), REFUSED, ids=lambda one: str(one)[:50])
def test_a_config_of_another_function_is_refused(family, config, message, folder):
    with pytest.raises(CheckpointError, match=message) as caught:
        load(folder(family, **config))
    assert len(str(caught.value).splitlines()) <= 6


KINDS = [
    ("llama", {"model_type": "lama"}, r"model_type is 'lama'; known are bert, gemma, .* Did you mean llama\?"),
    ("llama", {"model_type": "mamba"}, "model_type is 'mamba'; known are"),
    ("llama", {"model_type": ...}, "model_type is missing; known are"),
    ("llama", {"model_type": 3}, "model_type is 3, expected a word"),
    (
        "gemma3",
        {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}},
        r"model_type is 'gemma3', a model of text and of something else, .* its text part \('gemma3_text'\)",
    ),
    ("gemma3", {"model_type": "llava", "text_config": 3}, "'llava', a model of text and of something else"),
]


@pytest.mark.parametrize(("family", "config", "message"), KINDS, ids=lambda one: str(one)[:50])
def test_an_unknown_family_is_refused_by_name(family, config, message, folder):
    with pytest.raises(CheckpointError, match=message):
        load(folder(family, **config))


def spec_of(path):
    return describe(open_folder(path)).spec


OLD = {"rope_parameters": ...}


@pytest.mark.parametrize("key", ["type", "rope_type"])
def test_a11_both_spellings_of_the_kind_and_no_unknown_one(key, folder):
    """A11c: scaling that is read and not used is right for short prompts and noise for long ones."""
    kinds = {
        "linear": ({"factor": 2.0}, LinearScaling(factor=2.0)),
        "dynamic": ({"factor": 2.0}, DynamicScaling(factor=2.0, original_context=64)),
        "llama3": (
            LLAMA3,
            Llama3Scaling(factor=32.0, low_frequency_factor=1.0, high_frequency_factor=4.0, original_context=8192),
        ),
    }
    for kind, (numbers, expected) in kinds.items():
        old = {**OLD, "rope_theta": 500_000.0, "rope_scaling": {key: kind, **numbers}}
        assert spec_of(folder("llama", **old)).blocks[0].attention.position.scaling == expected
        new = {"rope_parameters": {key: kind, "rope_theta": 500_000.0, **numbers}}
        assert spec_of(folder("llama", **new)).blocks[0].attention.position.scaling == expected
    for unknown in ("longrope", "su", "mrope", "Llama3", None, 3):
        old = {**OLD, "rope_theta": 1e4, "rope_scaling": {key: unknown, "factor": 2.0}}
        with pytest.raises(CheckpointError, match=f"{key} is .*expected one of default|factor is 2.0, expected 1.0"):
            spec_of(folder("llama", **old))
    for kind, numbers in (("llama3", {"factor": 2.0}), ("linear", LLAMA3), ("dynamic", LLAMA3), ("yarn", {})):
        with pytest.raises(CheckpointError, match=r"missing|no meaning here|disagree"):
            spec_of(folder("llama", **OLD, rope_theta=1e4, rope_scaling={key: kind, **numbers}))
    both = {"type": "linear", "rope_type": "dynamic", "factor": 2.0}
    with pytest.raises(CheckpointError, match=r"they must agree"):
        spec_of(folder("llama", **OLD, rope_theta=1e4, rope_scaling=both))
    with pytest.raises(CheckpointError, match=r"gives both rope_parameters and rope_scaling"):
        spec_of(folder("llama", rope_scaling=both))


def test_of_two_that_should_be_equal_either_can_be_left_out(folder):
    source = open_folder(folder("roberta", "as published"))  # tied
    size = source.tensors["lm_head.bias"].numel()
    tensors = dict(source.tensors) | {"lm_head.decoder.bias": torch.full((size,), 7.0)}
    source = source._replace(tensors=tensors)
    choice = (
        r"--ignore-tensor 'lm_head.bias' takes the first, .*--ignore-tensor 'lm_head.decoder.bias' takes the second\."
    )
    with pytest.raises(CheckpointError, match=choice):
        translate(source)
    made = translate(source._replace(ignored=("lm_head.decoder.bias",)))
    assert ("lm_head.decoder.bias", "ignored by request") in made.load_report.excused
    assert 7.0 not in made.head.bias
    other = translate(source._replace(ignored=("lm_head.bias",)))
    assert ("lm_head.bias", "ignored by request") in other.load_report.excused
    assert bool((other.head.bias == 7.0).all())
    with pytest.raises(CheckpointError, match=r"were to be ignored, but the model needs them"):
        translate(source._replace(ignored=("lm_head.*bias",)))


def test_surplus_tensors_are_ignored_by_name_and_missing_ones_never(folder):
    """A31b: going on in spite of a leftover needs an explicit word for that very tensor."""
    source = open_folder(folder("llama", more={"extra.a": torch.zeros(2), "extra.b": torch.zeros(3)}))
    with pytest.raises(CheckpointError, match=r"2 source tensors have no rule: 'extra.a' .*'extra.b'"):
        translate(source)
    with pytest.raises(CheckpointError, match=r"1 source tensor has no rule: 'extra.b'"):
        translate(source._replace(ignored=("extra.a",)))
    made = translate(source._replace(ignored=("extra.a", "extra.b")))
    assert ("extra.a", "ignored by request") in made.load_report.excused
    with pytest.raises(CheckpointError, match=r"'model.norm.weight' was to be ignored, but the model needs it"):
        translate(source._replace(ignored=("model.norm.weight",)))
    with pytest.raises(
        CheckpointError, match=r"'extra.c' was to be ignored, and matches none of the file's 52 tensors"
    ):
        translate(source._replace(ignored=("extra.c",)))
    lacking = open_folder(folder("llama", drop_tensors=["model.norm.weight"]))
    with pytest.raises(CheckpointError, match=r"'model.norm.weight' was to be ignored, and matches none"):
        translate(lacking._replace(ignored=("model.norm.weight",)))
