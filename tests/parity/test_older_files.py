"""Files of older releases, and parts of files: other keys, other tensor names, buffers; they mean the model they meant.

The keys and names are those of published files. What is refused instead is in test_refusals.py.
"""

import pytest
import torch

from parity import BY_NAME
from unembed.checkpoints.foreign.huggingface import open_folder
from unembed.checkpoints.foreign.translate import describe
from unembed.checkpoints.load import load
from unembed.errors import CheckpointError
from unembed.model.spec import LinearScaling


def spec_of(path):
    return describe(open_folder(path)).spec


OLD = {"rope_parameters": ...}
OLDER_SPELLINGS = [
    ("llama", "base", {**OLD, "rope_theta": 700.0}),
    ("llama", "base", {**OLD, "rope_theta": 700.0, "rope_scaling": None}),
    ("llama", "base", {**OLD, "rope_theta": 700.0, "rope_scaling": {"type": "default"}}),
    ("llama", "base", {"rope_theta": 700.0}),
    (
        "llama",
        "base",
        {"is_llama_config": True, "rope_interleaved": False, "transformers.js_config": {}, "torch_dtype": "float32"},
    ),
    ("llama", "linear", {**OLD, "rope_theta": 300.0, "rope_scaling": {"type": "linear", "factor": 3.0}}),
    ("llama", "linear", {**OLD, "rope_theta": 300, "rope_scaling": {"rope_type": "linear", "factor": 3}}),
    (
        "llama",
        "linear",
        {**OLD, "rope_theta": 300, "rope_scaling": {"rope_type": "linear", "type": "linear", "factor": 3}},
    ),
    ("qwen", "base", {"layer_types": ...}),
    ("qwen3", "no window", {"layer_types": ..., "max_window_layers": ..., "sliding_window": 9}),
    ("gemma", "as published", {"hidden_act": "gelu"}),
    ("gemma", "as published", {"hidden_act": "gelu", "hidden_activation": "gelu_pytorch_tanh"}),
    ("gemma", "as published", {"hidden_activation": None, **OLD, "rope_theta": 700.0}),
    (
        "gemma2",
        "as published",
        {"layer_types": ..., "hidden_act": "gelu_pytorch_tanh", "cache_implementation": "hybrid"},
    ),
    ("gemma2", "as published", {"sliding_window_size": 5, **OLD, "rope_theta": 700.0}),
    (
        "gemma3",
        "as published",
        {"layer_types": ..., **OLD, "rope_theta": 700.0, "rope_local_base_freq": 90.0, "rope_scaling": None},
    ),
    ("gemma3", "as published", {"layer_types": ..., "_sliding_window_pattern": ..., "sliding_window_pattern": 6}),
    ("gemma3", "as published", {"layer_types": ..., "_sliding_window_pattern": ...}),
    ("neox", "as published", {**OLD, "rotary_pct": 0.25, "rotary_emb_base": 10000}),
    (
        "neox",
        "as published",
        {**OLD, "rotary_pct": 0.25, "rotary_emb_base": 10000, "rope_theta": 10000.0, "rope_scaling": None},
    ),
    ("neox", "as published", {"attention_bias": ...}),
    (
        "gpt2",
        "as published",
        {"scale_attn_weights": ..., "scale_attn_by_inverse_layer_idx": ..., "n_ctx": 48, "n_inner": ...},
    ),
    (
        "bert",
        "as published",
        {
            "gradient_checkpointing": False,
            "position_embedding_type": "absolute",
            "pooler_type": "first_token_transform",
        },
    ),
    ("stablelm", "as published", {**OLD, "rope_theta": 700, "partial_rotary_factor": 0.7, "qk_layernorm": False}),
]


@pytest.mark.parametrize(("family", "case", "config"), OLDER_SPELLINGS, ids=lambda one: str(one)[:40])
def test_older_spellings_describe_the_same_model(family, case, config, folder, reference):
    assert spec_of(folder(family, case, **config)) == spec_of(reference(BY_NAME[family], case, torch.float32).folder)


def test_gemma3_far_scaling_of_older_files_touches_the_far_layers_alone(folder, reference):
    old = {"rope_theta": 800.0, "rope_local_base_freq": 90.0, "rope_scaling": {"rope_type": "linear", "factor": 3.0}}
    made = spec_of(folder("gemma3", **OLD, **old))
    assert made == spec_of(reference(BY_NAME["gemma3"], "base", torch.float32).folder)
    positions = [block.attention.position for block in made.blocks]
    assert [position.scaling for position in positions] == [LinearScaling(factor=3.0), None, None]


def test_llama_2_files_are_older_than_theta(folder):
    old = {**OLD, "rope_scaling": None, "transformers_version": "4.31.0.dev0"}
    assert spec_of(folder("llama", **old)).blocks[0].attention.position.theta == 10_000.0
    with pytest.raises(CheckpointError, match=r"rope_theta is missing, in the config and in rope_parameters"):
        spec_of(folder("llama", **old | {"transformers_version": "4.40.1"}))
    with pytest.raises(CheckpointError, match=r"rope_theta is missing"):
        spec_of(folder("mistral", **old))


def gamma(name):
    return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")


OLDER_NAMES = [
    ("bert", "as published", gamma),
    ("bert", "base", lambda name: name.removeprefix("bert.")),
    ("roberta", "as published", lambda name: gamma(name).removeprefix("roberta.")),
    ("neox", "base", lambda name: name),
    ("neox", "as published", lambda name: name.replace("embed_out", "lm_head")),
    ("neox", "as published", lambda name: name.removeprefix("gpt_neox.")),
    ("gpt2", "as published", lambda name: name.removeprefix("transformer.")),
    ("llama", "base", lambda name: name.removeprefix("model.")),
    ("gemma3", "as published", lambda name: "_orig_mod.module." + name),
]


@pytest.mark.parametrize(("family", "case", "rename"), OLDER_NAMES, ids=lambda one: str(one)[:20])
def test_older_and_shorter_tensor_names(family, case, rename, folder, reference):
    made, expected = (
        load(folder(family, case, rename=rename)),
        load(reference(BY_NAME[family], case, torch.float32).folder),
    )
    for (name, one), (_, other) in zip(made.named_parameters(), expected.named_parameters(), strict=True):
        assert torch.equal(one, other), name


def test_a_tensor_under_two_names_is_refused(folder):
    two = {"lm_head.weight": torch.zeros(41, 24)}
    with pytest.raises(
        CheckpointError, match=r"'embed_out.weight' and 'lm_head.weight' are two names of 'embed_out.weight'"
    ):
        load(folder("neox", "as published", more=two))
    with pytest.raises(CheckpointError, match=r"two names of 'model.norm.weight'; .*: --ignore-tensor 'norm.weight'\."):
        load(folder("llama", more={"norm.weight": torch.zeros(24)}))


@pytest.mark.parametrize(
    ("family", "case", "surplus", "shape"),
    [("neox", "as published", "lm_head.weight", (41, 24)), ("llama", "base", "norm.weight", (24,))],
)
def test_of_two_names_the_one_that_the_rules_do_not_use_can_be_left_out(family, case, surplus, shape, folder):
    expected = {name: one.clone() for name, one in load(folder(family, case)).named_parameters()}
    made = load(folder(family, case, more={surplus: torch.zeros(shape)}), ignore_tensors=[surplus])
    assert (surplus, "ignored by request") in made.load_report.excused
    assert all(torch.equal(one, expected[name]) for name, one in made.named_parameters())


BUFFERS = {
    "gpt2": ["transformer.h.0.attn.bias", "transformer.h.2.attn.masked_bias", "h.1.attn.bias"],
    "llama": ["model.layers.1.self_attn.rotary_emb.inv_freq", "layers.0.self_attn.rotary_emb.inv_freq"],
    "neox": [
        "gpt_neox.layers.0.attention.bias",
        "gpt_neox.layers.1.attention.masked_bias",
        "gpt_neox.layers.2.attention.rotary_emb.inv_freq",
    ],
    "bert": [
        "bert.embeddings.position_ids",
        "bert.pooler.dense.weight",
        "cls.seq_relationship.bias",
        "embeddings.token_type_ids",
    ],
    "roberta": ["roberta.embeddings.position_ids", "roberta.pooler.dense.bias"],
}


@pytest.mark.parametrize("family", BUFFERS)
def test_buffers_and_other_heads_are_excused_by_name(family, folder):
    made = load(
        folder(
            family, "as published" if family != "llama" else "base", more={n: torch.zeros(2) for n in BUFFERS[family]}
        )
    )
    excused = {one.name: one.reason for one in made.load_report.excused}
    assert set(BUFFERS[family]) <= set(excused)
    assert all(excused.values())
    with pytest.raises(CheckpointError, match=r"1 source tensor has no rule"):
        load(folder(family, more={BUFFERS[family][0] + "_x": torch.zeros(2)}))
