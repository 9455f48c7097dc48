"""Every figure of the source documents that counting can answer, the documents' own slips set right.

The documents teach how a decoder turns ids into vectors and back. Where one of them is wrong, the right value is what
the test holds, and the comment says what was printed. The next file to read is ../model/test_presets.py, the families.
"""

import pytest
from msgspec.structs import replace

from unembed.model.counts import Counts, count, tensors
from unembed.model.presets import preset
from unembed.model.presets.gpt import gpt_spec, micro_spec
from unembed.model.spec import LayerNorm, RmsNorm, TransformerSpec, with_tying


def counted(name: str) -> Counts:
    return count(preset(name).spec)


def block_numbers(spec: TransformerSpec, layer: int = 0) -> dict[str, int]:
    """The parameters of one block: attention and MLP without their biases, biases, norms."""
    parts = {"attention": 0, "mlp": 0, "biases": 0, "norms": 0}
    for tensor in tensors(spec):
        if tensor.name.startswith(f"blocks.{layer}."):
            is_bias = tensor.kind == "bias" and tensor.part != "norms"
            parts["biases" if is_bias else tensor.part] += tensor.n_numbers
    return parts


def test_mini_gpt():
    counts = counted("mini-gpt")
    assert counts.parameters == 103_680
    assert counts.tying_saves == 64 * 64 == 4_096
    assert counts.parameters_untied == 107_776


def test_gpt2_small_saves_a_third():
    counts = counted("gpt2")
    assert counts.parameters == 124_439_808
    # the document rounds to 38.5M
    assert counts.tying_saves == 50_257 * 768 == 38_597_376
    assert counts.parameters_untied == 163_037_184
    assert round(100 * counts.tying_saves / counts.parameters) == 31


def test_llama_2_table_and_that_it_is_untied():
    counts = counted("llama-2-7b")
    assert counts.table_parameters == 32_000 * 4_096 == 131_072_000
    assert not counts.tied
    assert counts.by_part["token_table"] == counts.by_part["head"] == 131_072_000


def test_worked_example_saves_twenty():
    tiny = gpt_spec(vocab_size=5, context_length=4, d_model=4, n_layers=1, n_heads=1)
    assert count(tiny).tying_saves == 20
    assert count(with_tying(tiny, False)).parameters - count(tiny).parameters == 20


def test_andrea_120m_tables_and_shares():
    counts = counted("andrea-120m")
    assert counts.by_part["token_table"] == counts.by_part["head"] == 6_488_832
    assert counts.by_part["positions"] == 1_024 * 768 == 786_432
    together = counts.by_part["token_table"] + counts.by_part["positions"]
    assert together == 7_275_264
    assert counts.parameters == 98_698_752
    # the document's shares are of a nominal 120M; the published model's own are larger
    assert [round(100 * n / 120e6, 1) for n in (counts.table_parameters, together)] == [5.4, 6.1]
    assert [round(100 * n / counts.parameters, 1) for n in (counts.table_parameters, together)] == [6.6, 7.4]


def test_andrea_12m_and_480m():
    assert counted("andrea-12m").parameters == 12_780_288
    assert counted("andrea-480m").parameters == 480_513_024
    # a course page says 4,353 rows, which the published 12.8M rules out
    other = micro_spec(vocab_size=4_353, d_model=384, n_layers=6, n_heads=12, context_length=1024)
    assert count(other).parameters == 14_353_152
    # no norm has a gain, so nothing is counted under norms
    assert counted("andrea-12m").by_part["norms"] == 0


def test_rms_norm_has_half_the_parameters_of_layer_norm():
    spec = preset("gpt2").spec
    rms = RmsNorm(eps=1e-5, gain="plain")
    other = replace(spec, blocks=(replace(spec.blocks[0], norm=rms),) * 12, final_norm=rms)
    assert isinstance(spec.final_norm, LayerNorm)
    assert count(spec).by_part["norms"] == 2 * count(other).by_part["norms"] == 2 * 25 * 768


def test_gpt3_rule_of_twelve_and_what_it_misses():
    spec, counts = preset("gpt3-175b").spec, counted("gpt3-175b")
    assert 12 * 96 * 12_288**2 == 173_946_175_488
    matrices = block_numbers(spec)["attention"] + block_numbers(spec)["mlp"]
    assert 96 * matrices == 173_946_175_488
    assert counts.parameters == 174_604_259_328
    assert f"{counts.parameters / 1e9:.1f}B" == "174.6B"
    # the rest: tables, biases and norms
    tables = counts.by_part["token_table"] + counts.by_part["positions"]
    assert tables == (50_257 + 2_048) * 12_288
    assert counts.parameters - 96 * matrices - tables == 96 * block_numbers(spec)["biases"] + counts.by_part["norms"]


def test_gpt3_block_is_not_fifty_and_two_hundred_million():
    # the document says about 50M and 200M a block; the ratio of 1 : 2 holds
    numbers = block_numbers(preset("gpt3-175b").spec)
    assert numbers["attention"] == 4 * 12_288**2 == 603_979_776
    assert numbers["mlp"] == 8 * 12_288**2 == 1_207_959_552


@pytest.mark.parametrize("name", ["gpt2", "gpt2-xl", "gpt3-13b", "pythia-1b"])
def test_block_is_a_third_attention_two_thirds_mlp(name):
    spec = preset(name).spec
    numbers, d_model = block_numbers(spec), spec.embedding.d_model
    assert numbers["attention"] == 4 * d_model**2
    assert numbers["mlp"] == 8 * d_model**2
    assert numbers["norms"] == 4 * d_model
    assert numbers["norms"] < 0.001 * sum(numbers.values())
    assert numbers["attention"] / sum(numbers.values()) == pytest.approx(1 / 3, rel=2e-3)


def test_who_ties():
    tied = {"gpt2", "gemma-2b", "gemma-2-9b", "gemma-3-1b", "qwen2.5-3b", "qwen3-4b", "llama-3.2-1b"}
    untied = {"llama-3-8b", "llama-2-7b", "mistral-7b-v0.3", "qwen2.5-7b", "qwen3-8b", "pythia-70m"}
    assert all(counted(name).tied for name in tied)
    assert not any(counted(name).tied for name in untied)


def test_table_of_a_hundred_thousand():
    spec = gpt_spec(vocab_size=100_000, context_length=8, d_model=4_096, n_layers=1, n_heads=32)
    assert count(spec).table_parameters == 409_600_000


def test_gpt3_has_learned_positions():
    # the document credits its context to rotary or ALiBi
    assert counted("gpt3-175b").by_part["positions"] == 2_048 * 12_288


def test_twenty_amino_acids_and_k_mers_make_small_tables():
    assert preset("esm2-650m").spec.embedding.vocab_size == 33
    assert preset("nt-v1-500m").spec.embedding.vocab_size == 4 + 4**6 + 5
    assert counted("esm2-650m").table_parameters / counted("esm2-650m").parameters < 0.002
