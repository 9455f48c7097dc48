"""Operations counted from the spec against torch's own counter, and against a plain loop over positions."""

import pytest
import torch
from msgspec.structs import replace
from torch.utils.flop_counter import FlopCounterMode

from unembed.errors import SpecError
from unembed.model.counts import count
from unembed.model.init import Gpt2Init, build
from unembed.model.presets import preset
from unembed.model.presets.gpt import gpt_spec
from unembed.model.presets.llama import Size, llama_spec
from unembed.model.spec import Bidirectional, Causal, TransformerSpec
from unembed.planning.flops import flops, keys_seen, rules

GPT = gpt_spec(vocab_size=101, context_length=12, d_model=24, n_layers=2, n_heads=3)
LLAMA = llama_spec(Size(77, 24, 2, 4, 2, 8, 40, 12, False), eps=1e-5, theta=1e4)
MASKED = replace(preset("esm2-8m").spec, blocks=preset("esm2-8m").spec.blocks[:2], context_length=12)


def seeing_all(spec: TransformerSpec) -> TransformerSpec:
    """The same model looking both ways: torch's counter counts the whole square of scores, seen or not."""
    blocks = tuple(replace(b, attention=replace(b.attention, sees=Bidirectional())) for b in spec.blocks)
    return replace(spec, blocks=blocks)


@pytest.mark.parametrize("spec", [GPT, LLAMA, MASKED], ids=["gpt", "llama", "masked"])
def test_oracle_torch_counts_the_same(spec):
    model = build(seeing_all(spec), Gpt2Init(std=0.02), seed=0)
    ids = torch.zeros(3, 12, dtype=torch.long)
    counter = FlopCounterMode(display=False)
    with counter:
        logits = model(ids, attention="explicit")
    ours = flops(seeing_all(spec))
    assert counter.get_total_flops() == 3 * 12 * ours.forward
    with counter:
        logits.sum().backward()
    assert counter.get_total_flops() == 3 * 12 * ours.backward


@pytest.mark.parametrize("window", [None, 1, 3, 7, 8, 100])
@pytest.mark.parametrize("n", [1, 2, 7, 8])
def test_oracle_keys_seen_by_loop(n, window):
    seen = [min(position + 1, window or n) for position in range(n)]
    assert keys_seen(Causal(window=window), n) == sum(seen) / n
    assert keys_seen(Bidirectional(), n) == n


def test_worked_example_gpt2():
    cost = flops(preset("gpt2").spec)
    assert cost.by_part["attention_projections"] == 2 * 12 * 4 * 768**2
    assert cost.by_part["mlp"] == 2 * 12 * 8 * 768**2
    assert cost.by_part["attention_scores"] == cost.by_part["attention_mixing"] == 12 * 2 * 768 * 1025 / 2
    assert cost.training == 3 * cost.forward


def test_property_only_attention_feels_the_context():
    short, long = flops(GPT, 10), flops(GPT, 20)
    same = ("attention_projections", "mlp", "head")
    assert all(short.by_part[part] == long.by_part[part] for part in same)
    assert long.by_part["attention_scores"] / short.by_part["attention_scores"] == 21 / 11


def test_window_and_grouped_heads():
    mistral = preset("mistral-7b-v0.1").spec
    near, far = flops(mistral, 4096), flops(mistral, 32_768)
    assert near.by_part["attention_scores"] == 32 * 2 * 4096 * 4097 / 2
    assert far.by_part["attention_scores"] < 2 * near.by_part["attention_scores"]
    # fewer key heads make k and v cheaper, not the scores: each query head still meets every key
    assert flops(LLAMA).by_part["attention_scores"] == 2 * 2 * 32 * 6.5


def test_what_the_rules_miss():
    spec = preset("gpt2").spec
    found = rules(spec)
    counts, cost = count(spec), flops(spec)
    assert found.twelve_l_d2 == 12 * 12 * 768**2 == 84_934_656
    assert found.twelve_l_d2_misses == counts.parameters - 84_934_656
    # tied: the table is counted once and multiplies once, so the rule misses scores, minus what multiplies nothing
    idle = counts.parameters - 84_934_656 - counts.table_parameters
    assert found.six_n_misses == 3 * (cost.by_part["attention_scores"] + cost.by_part["attention_mixing"]) - 6 * idle
    untied = rules(preset("llama-3-8b").spec, 1)
    assert untied.six_n_misses < -6 * 128_256 * 4096 * 0.99


def test_message_on_empty_context():
    with pytest.raises(SpecError, match="flops: context_length is 0; it must be at least 1"):
        flops(GPT, 0)
