"""Every preset is a model, has the published total to the last digit, and carries the numbers that change the function."""

import subprocess
import sys

import pytest
from msgspec.structs import replace

from unembed.errors import UsageError
from unembed.model.check import check, from_json, to_json
from unembed.model.counts import count
from unembed.model.presets import PRESETS, preset
from unembed.model.spec import (
    Bidirectional,
    Causal,
    GatedMlp,
    LayerNorm,
    Learned,
    LinearScaling,
    Llama3Scaling,
    Parallel,
    PlainMlp,
    RmsNorm,
    Rotary,
    Serial,
    TransformerSpec,
)

# name: total of unique parameters, tied, one V x d table as a share of it in per cent (None where no figure was given)
TOTALS: dict[str, tuple[int, bool, float | None]] = {
    "mini-gpt": (103_680, True, None),
    "nanogpt-124m": (124_373_760, True, 31),
    "nanogpt-124m-bias": (124_475_904, True, 31),
    "andrea-12m": (12_780_288, False, None),
    "andrea-120m": (98_698_752, False, 6.6),
    "andrea-480m": (480_513_024, False, None),
    "gpt2": (124_439_808, True, 31),
    "gpt2-medium": (354_823_168, True, 14.5),
    "gpt2-large": (774_030_080, True, 8.3),
    "gpt2-xl": (1_557_611_200, True, 5.2),
    "gpt3-small": (125_226_240, True, None),
    "gpt3-medium": (355_871_744, True, None),
    "gpt3-large": (760_300_032, True, None),
    "gpt3-xl": (1_315_723_264, True, None),
    "gpt3-2.7b": (2_651_553_280, True, None),
    "gpt3-6.7b": (6_658_404_352, True, None),
    "gpt3-13b": (12_853_386_240, True, None),
    "gpt3-175b": (174_604_259_328, True, None),
    "llama-2-7b": (6_738_415_616, False, 1.9),
    "llama-3-8b": (8_030_261_248, False, 6.5),
    "llama-3.2-1b": (1_235_814_400, True, 21.3),
    "llama-3.2-3b": (3_212_749_824, True, 12.3),
    "mistral-7b-v0.1": (7_241_732_096, False, 1.8),
    "mistral-7b-v0.3": (7_248_023_552, False, 1.9),
    "gemma-2b": (2_506_172_416, True, 20.9),
    "gemma-7b": (8_537_680_896, True, 9.2),
    "gemma-2-2b": (2_614_341_888, True, 22.6),
    "gemma-2-9b": (9_241_705_984, True, 9.9),
    "gemma-2-27b": (27_227_128_320, True, 4.3),
    "gemma-3-270m": (268_098_176, True, 62.6),
    "gemma-3-1b": (999_885_952, True, 30.2),
    "gemma-3-4b": (3_880_263_168, True, 17.3),
    "gemma-3-12b": (11_766_034_176, True, 8.6),
    "gemma-3-27b": (27_009_346_304, True, 5.2),
    "qwen1.5-0.5b": (463_987_712, True, 33.5),
    "qwen1.5-1.8b": (1_836_828_672, False, 16.9),
    "qwen1.5-4b": (3_950_369_280, False, 9.8),
    "qwen1.5-7b": (7_721_324_544, False, 8.1),
    "qwen2-0.5b": (494_032_768, True, 27.6),
    "qwen2-1.5b": (1_543_714_304, True, 15.1),
    "qwen2-7b": (7_615_616_512, False, 7.2),
    "qwen2-72b": (72_706_203_648, False, 1.7),
    "qwen2.5-0.5b": (494_032_768, True, 27.6),
    "qwen2.5-1.5b": (1_543_714_304, True, 15.1),
    "qwen2.5-3b": (3_085_938_688, True, 10.1),
    "qwen2.5-7b": (7_615_616_512, False, 7.2),
    "qwen2.5-14b": (14_770_033_664, False, 5.3),
    "qwen2.5-32b": (32_763_876_352, False, 2.4),
    "qwen2.5-72b": (72_706_203_648, False, 1.7),
    "qwen3-0.6b": (596_049_920, True, 26.1),
    "qwen3-1.7b": (1_720_574_976, True, 18.1),
    "qwen3-4b": (4_022_468_096, True, 9.7),
    "qwen3-8b": (8_190_735_360, False, 7.6),
    "qwen3-14b": (14_768_307_200, False, 5.3),
    "qwen3-32b": (32_762_123_264, False, 2.4),
    "pythia-70m": (70_426_624, False, 36.6),
    "pythia-160m": (162_322_944, False, 23.8),
    "pythia-410m": (405_334_016, False, 12.7),
    "pythia-1b": (1_011_781_632, False, 10.2),
    "pythia-1.4b": (1_414_647_808, False, 7.3),
    "pythia-2.8b": (2_775_208_960, False, 4.6),
    "pythia-6.9b": (6_857_302_016, False, 3.0),
    "pythia-12b": (11_846_072_320, False, 2.2),
    "gpt-neox-20b": (20_554_567_680, False, 1.5),
    "palm-8b": (8_632_012_800, True, 12.1),
    "palm-62b": (62_495_662_080, True, 3.4),
    "palm-540b": (540_356_474_880, True, 0.9),
    "esm2-8m": (7_512_353, True, None),
    "esm2-35m": (33_501_153, True, None),
    "esm2-150m": (148_139_553, True, None),
    "esm2-650m": (651_042_593, True, None),
    "esm2-3b": (2_839_004_193, True, None),
    "esm2-15b": (15_129_098_273, True, None),
    "nt-v1-500m": (485_698_825, False, 1.1),
    "nt-v1-2.5b": (2_547_800_585, False, 0.4),
    "nt-v2-50m": (54_855_179, False, 3.8),
    "nt-v2-100m": (96_839_179, False, 2.2),
    "nt-v2-250m": (233_545_995, False, 1.4),
    "nt-v2-500m": (496_245_771, False, 0.8),
    "chemberta-zinc-base": (44_106_239, True, None),
    "chemberta-77m": (3_428_808, True, None),
    # not of the table of families: microGPT's and nanoGPT's own printouts, and the oracle below
    "microgpt": (4_192, False, None),
    "nanogpt-cpu": (804_096, True, None),
    "bert-base-uncased": (109_514_298, True, None),
    "roberta-base": (124_697_433, True, None),
}


def spec_of(name: str) -> TransformerSpec:
    return preset(name).spec


def test_every_preset_has_its_total_here():
    assert set(TOTALS) == set(PRESETS)


@pytest.mark.parametrize("name", TOTALS)
def test_total_tying_and_table_share(name):
    total, tied, share = TOTALS[name]
    counts = count(spec_of(name))
    assert (counts.parameters, counts.tied) == (total, tied)
    assert counts.parameters == sum(counts.by_part.values())
    assert counts.parameters_untied == total + (counts.table_parameters if tied else 0)
    if share is not None:
        half_a_unit = 0.5 if isinstance(share, int) else 0.051
        assert 100 * counts.table_parameters / total == pytest.approx(share, abs=half_a_unit)


@pytest.mark.parametrize("name", PRESETS)
def test_preset_is_a_model_with_a_source_and_survives_json(name):
    found = preset(name)
    assert check(found.spec) is found.spec
    assert from_json(to_json(found.spec)) == found.spec
    assert found.name == name
    assert found.source


def test_sum_of_other_codes_rows_and_double_counts():
    """Totals of other programs that differ from ours by what the notes say."""
    for name, total in [
        ("gemma-3-4b", 3_880_099_328),
        ("gemma-3-12b", 11_765_788_416),
        ("gemma-3-27b", 27_009_002_240),
    ]:
        spec = spec_of(name)
        deepmind = replace(spec, embedding=replace(spec.embedding, vocab_size=262_144))
        assert count(deepmind).parameters == total
    assert count(spec_of("llama-3.2-1b")).parameters_untied == 1_498_482_688
    assert count(spec_of("llama-3.2-3b")).parameters_untied == 3_606_752_256
    assert count(spec_of("qwen1.5-0.5b")).parameters_untied == 619_570_176
    # nanoGPT prints its total without the position table
    for name, printed in [("nanogpt-124m", "123.59M"), ("nanogpt-124m-bias", "123.69M"), ("gpt2", "123.65M")]:
        counts = count(spec_of(name))
        assert f"{(counts.parameters - counts.by_part['positions']) / 1e6:.2f}M" == printed
    # Qwen2's announcement leaves one table out of 7B's total, and two out of the rest
    qwen = count(spec_of("qwen2-7b"))
    assert qwen.parameters - 2 * qwen.table_parameters == 6_525_621_760
    assert f"{(qwen.parameters - qwen.table_parameters) / 1e9:.2f}B" == "7.07B"
    # PaLM's scales are one per block and one at the end
    assert count(spec_of("palm-540b")).by_part["norms"] == 540_356_474_880 - 540_354_281_472
    # Hugging Face's files of NT v2 carry a table of 2,050 positions that is never read
    for name, total in [("nt-v2-50m", 55.9), ("nt-v2-100m", 97.9), ("nt-v2-250m", 235.1), ("nt-v2-500m", 498.3)]:
        spec = spec_of(name)
        assert round((count(spec).parameters + 2050 * spec.embedding.d_model) / 1e6, 1) == total


# name: eps, context, theta of the widest-seeing layer (None: no rotation), activation
NUMBERS = {
    "gpt2": (1e-5, 1024, None, "gelu_tanh"),
    "nanogpt-124m": (1e-5, 1024, None, "gelu"),
    "microgpt": (1e-5, 16, None, "relu_squared"),
    "llama-2-7b": (1e-5, 4096, 1e4, "silu"),
    "llama-3-8b": (1e-5, 8192, 5e5, "silu"),
    "llama-3.2-1b": (1e-5, 131_072, 5e5, "silu"),
    "mistral-7b-v0.1": (1e-5, 32_768, 1e4, "silu"),
    "mistral-7b-v0.3": (1e-5, 32_768, 1e6, "silu"),
    "gemma-2b": (1e-6, 8192, 1e4, "gelu_tanh"),
    "gemma-2-9b": (1e-6, 8192, 1e4, "gelu_tanh"),
    "gemma-3-1b": (1e-6, 32_768, 1e6, "gelu_tanh"),
    "gemma-3-27b": (1e-6, 131_072, 1e6, "gelu_tanh"),
    "qwen1.5-0.5b": (1e-6, 32_768, 1e6, "silu"),
    "qwen2-0.5b": (1e-6, 131_072, 1e6, "silu"),
    "qwen2.5-0.5b": (1e-6, 32_768, 1e6, "silu"),
    "qwen2.5-14b": (1e-5, 131_072, 1e6, "silu"),
    "qwen3-32b": (1e-6, 40_960, 1e6, "silu"),
    "pythia-12b": (1e-5, 2048, 1e4, "gelu"),
    "gpt-neox-20b": (1e-5, 2048, 1e4, "gelu_tanh"),
    "esm2-15b": (1e-5, 1026, 1e4, "gelu"),
    "nt-v1-500m": (1e-12, 1000, None, "gelu"),
    "nt-v2-500m": (1e-12, 2048, 1e4, "silu"),
    "chemberta-zinc-base": (1e-5, 512, None, "gelu"),
    "chemberta-77m": (1e-12, 512, None, "gelu"),
    "bert-base-uncased": (1e-12, 512, None, "gelu"),
    "roberta-base": (1e-5, 512, None, "gelu"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_change_the_function(name):
    eps, context, theta, activation = NUMBERS[name]
    spec = spec_of(name)
    positions = [block.attention.position for block in spec.blocks]
    thetas = [position.theta for position in positions if isinstance(position, Rotary)]
    assert {block.norm.eps for block in spec.blocks} == {eps}
    assert spec.context_length == context
    assert (max(thetas) if thetas else None) == theta
    assert {block.mlp.activation for block in spec.blocks} == {activation}
    # Hugging Face's files store q and k for half-split pairs; Mini-GPT alone follows the paper's drawing
    assert {position.pairing for position in positions if isinstance(position, Rotary)} <= {"half"}


def test_gemma_scales_caps_norms_and_windows():
    for name in ("gemma-2b", "gemma-2-9b", "gemma-3-4b"):
        spec = spec_of(name)
        assert spec.embedding.scale == spec.embedding.d_model**0.5
        assert spec.head.scale is None
        assert spec.blocks[0].norm == RmsNorm(eps=1e-6, gain="one_plus")
        assert isinstance(spec.blocks[0].mlp, GatedMlp)
    one, two, three = spec_of("gemma-2b"), spec_of("gemma-2-27b"), spec_of("gemma-3-27b")
    assert one.blocks[0].residual == Serial(norm_at="pre")
    assert two.blocks[0].residual == three.blocks[0].residual == Serial(norm_at="both")
    assert {block.attention.score_softcap for block in two.blocks} == {50.0}
    assert (one.head.softcap, two.head.softcap, three.head.softcap) == (None, 30.0, None)
    assert one.blocks[0].attention.score_scale == 256**-0.5
    assert spec_of("gemma-2-9b").blocks[0].attention.score_scale == 256**-0.5
    assert two.blocks[0].attention.score_scale == 144**-0.5
    assert three.blocks[0].attention.score_scale == 168**-0.5
    assert three.blocks[0].attention.qk_norm == RmsNorm(eps=1e-6, gain="one_plus")
    assert [block.attention.sees.window for block in two.blocks[:4]] == [4096, None, 4096, None]
    windows = [block.attention.sees.window for block in three.blocks]
    assert [layer for layer, window in enumerate(windows) if window is None] == list(range(5, 62, 6))
    assert set(windows) == {1024, None}
    assert three.blocks[0].attention.position == Rotary(theta=1e4, pairing="half", fraction=1.0, scaling=None)
    assert three.blocks[5].attention.position.scaling == LinearScaling(factor=8.0)
    small = spec_of("gemma-3-270m").blocks
    assert small[5].attention.position == Rotary(theta=1e6, pairing="half", fraction=1.0, scaling=None)
    assert small[0].attention.sees == Causal(window=512)


def test_llama_and_mistral_scaling_and_window():
    scaling = Llama3Scaling(factor=32.0, low_frequency_factor=1.0, high_frequency_factor=4.0, original_context=8192)
    assert spec_of("llama-3.2-3b").blocks[0].attention.position.scaling == scaling
    assert spec_of("llama-3-8b").blocks[0].attention.position.scaling is None
    assert spec_of("mistral-7b-v0.1").blocks[31].attention.sees == Causal(window=4096)
    assert spec_of("mistral-7b-v0.3").blocks[31].attention.sees == Causal(window=None)


def test_qwen_biases_and_head_norms():
    for name in ("qwen1.5-7b", "qwen2-72b", "qwen2.5-3b"):
        attention = spec_of(name).blocks[0].attention
        assert attention.biases == ("q", "k", "v")
        assert attention.qk_norm is None
    for name in ("qwen3-0.6b", "qwen3-32b"):
        attention = spec_of(name).blocks[0].attention
        assert attention.biases == ()
        assert attention.qk_norm == RmsNorm(eps=1e-6, gain="plain")
        assert attention.n_heads * attention.d_head != spec_of(name).embedding.d_model


def test_parallel_families():
    pythia, palm = spec_of("pythia-70m"), spec_of("palm-540b")
    assert pythia.blocks[0].residual == Parallel(shares_norm=False)
    assert pythia.blocks[0].attention.position.n_rotated(64) == 16
    assert spec_of("gpt-neox-20b").blocks[0].attention.position.n_rotated(96) == 24
    assert palm.blocks[0].residual == Parallel(shares_norm=True)
    assert palm.blocks[0].norm == LayerNorm(eps=1e-6, has_bias=False)
    assert palm.blocks[0].attention.n_heads * palm.blocks[0].attention.d_head == 12_288
    assert palm.head.scale == 18_432**-0.5


def test_masked_models():
    for name in ("esm2-8m", "nt-v1-500m", "nt-v2-50m", "chemberta-77m", "bert-base-uncased"):
        spec = spec_of(name)
        assert {block.attention.sees for block in spec.blocks} == {Bidirectional()}
        assert spec.head.transform is not None
        assert spec.head.has_bias
    assert spec_of("esm2-8m").embedding.token_dropout.mask_id == 32
    assert spec_of("nt-v1-500m").embedding.token_dropout.mask_id == 2
    assert spec_of("nt-v2-50m").embedding.token_dropout is None
    assert spec_of("nt-v2-50m").blocks[0].mlp == GatedMlp(d_mlp=2048, activation="silu", has_bias=False)
    assert spec_of("nt-v1-500m").embedding.position == Learned(n_rows=1002, offset=2)
    assert spec_of("chemberta-zinc-base").embedding.position == Learned(n_rows=514, offset=2)
    assert spec_of("chemberta-77m").embedding.position == Learned(n_rows=515, offset=2)
    assert spec_of("bert-base-uncased").embedding.n_token_types == 2
    assert spec_of("roberta-base").final_norm is None
    assert spec_of("roberta-base").blocks[0].residual == Serial(norm_at="post")


def test_microgpt_norms_the_embedding_and_not_the_end():
    spec = spec_of("andrea-120m")
    bare = RmsNorm(eps=1e-5, gain="none")
    assert spec.embedding.norm == spec.blocks[0].norm == bare
    assert spec.final_norm is None
    assert spec.blocks[0].mlp == PlainMlp(d_mlp=3072, activation="relu_squared", has_bias=False)


def test_inconsistent_rows_are_noted():
    assert "24 heads of 128" in preset("gpt3-xl").note
    assert "5,140" in preset("gpt3-13b").note
    assert {name for name in PRESETS if name.startswith("gpt3") and "The paper prints" in preset(name).note} == {
        "gpt3-xl",
        "gpt3-13b",
    }


def test_unknown_name_suggests_known_ones():
    with pytest.raises(UsageError, match=r"no preset is named 'lama-3-8b'. Did you mean llama-3-8b"):
        preset("lama-3-8b")


def test_presets_and_counting_load_no_torch():
    script = (
        "import sys\n"
        "from unembed.model.counts import count\n"
        "from unembed.model.presets import PRESETS, preset\n"
        "for name in PRESETS: count(preset(name).spec)\n"
        "print('torch' in sys.modules, 'numpy' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.slow
def test_oracle_transformers_builds_as_many_parameters():
    """transformers' own models of eight shapes, built without memory, have as many parameters as we count."""
    import torch
    import transformers as hf

    cases = [
        ("bert-base-uncased", hf.BertForMaskedLM, hf.BertConfig()),
        (
            "roberta-base",
            hf.RobertaForMaskedLM,
            hf.RobertaConfig(max_position_embeddings=514, type_vocab_size=1, vocab_size=50_265),
        ),
        ("gpt2", hf.GPT2LMHeadModel, hf.GPT2Config()),
        ("gemma-7b", hf.GemmaForCausalLM, hf.GemmaConfig()),
        ("gemma-2-2b", hf.Gemma2ForCausalLM, hf.Gemma2Config()),
        (
            "qwen3-0.6b",
            hf.Qwen3ForCausalLM,
            hf.Qwen3Config(
                hidden_size=1024,
                num_hidden_layers=28,
                num_attention_heads=16,
                num_key_value_heads=8,
                intermediate_size=3072,
                tie_word_embeddings=True,
            ),
        ),
        ("gpt-neox-20b", hf.GPTNeoXForCausalLM, hf.GPTNeoXConfig()),
        (
            "esm2-8m",
            hf.EsmForMaskedLM,
            hf.EsmConfig(
                vocab_size=33,
                pad_token_id=1,
                mask_token_id=32,
                hidden_size=320,
                num_hidden_layers=6,
                num_attention_heads=20,
                intermediate_size=1280,
                position_embedding_type="rotary",
                emb_layer_norm_before=False,
            ),
        ),
    ]
    for name, build, config in cases:
        with torch.device("meta"):
            model = build(config)
        seen = {id(parameter): parameter for parameter in model.parameters()}
        unused = [p for n, p in model.named_parameters() if "contact_head" in n or "esm.embeddings.position" in n]
        total = sum(p.numel() for p in seen.values()) - sum(p.numel() for p in unused)
        assert total == count(spec_of(name)).parameters, name
