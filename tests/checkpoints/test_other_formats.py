"""Files of other programs as models: each format's function against its own rule, its accounts, and its errors.

The files are written here byte by byte, from the formats' published descriptions; what a family would write is not used
to test what it reads.
"""

import struct

import numpy as np
import pytest
import torch

from oracles.specs import base, changed
from small import small_model
from unembed.checkpoints.foreign import gguf_export
from unembed.checkpoints.formats.gguf.read import read_gguf
from unembed.checkpoints.formats.gguf.write import write_gguf
from unembed.checkpoints.formats.microgpt import MicroGptShape
from unembed.checkpoints.load import load
from unembed.errors import CheckpointError, SpecError, UnsafeError, UsageError
from unembed.model.positions.rotary import frequencies
from unembed.model.presets import preset
from unembed.model.spec import Llama3Scaling, Rotary
from unembed.tokenizers import files
from unembed.tokenizers.characters import CharacterTokenizer

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
ROTARY = {"type": "rotary", "theta": 10_000.0, "pairing": "half", "fraction": 1.0, "scaling": None}
RMS = {"type": "rms_norm", "eps": 1e-5, "gain": "plain"}
LLAMA = changed(
    base(),
    block__attention__position=ROTARY,
    block__attention__score_scale=6**-0.5,
    block__attention__n_heads=4,
    block__attention__n_kv_heads=2,
    block__norm=RMS,
    block__mlp={"type": "gated", "d_mlp": 20, "activation": "silu", "has_bias": False},
    final_norm=RMS,
)
GPT2 = changed(
    base(),
    embedding__position={"type": "learned", "n_rows": 12, "offset": 0},
    block__attention__n_heads=2,
    block__attention__n_kv_heads=2,
    block__attention__biases=["q", "k", "v", "o"],
    block__attention__score_scale=6**-0.5,
    block__mlp__activation="gelu_tanh",
)


def small(plain):
    return small_model(plain, dtype=torch.float32)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("plain", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_gguf_gives_the_same_model_to_the_last_bit(tmp_path, plain, tied):
    """A01b: a table alone is a tied head, and the two are one storage; with output.weight the head is its own."""
    model = small(plain if tied else changed(plain, head__type="untied"))
    n_tensors, _, notes = gguf_export.write(model, tmp_path / "m.gguf", name="m")
    assert ("output.weight" in read_gguf(tmp_path / "m.gguf").tensors) == (not tied)
    assert n_tensors == len(read_gguf(tmp_path / "m.gguf").tensors)
    assert "no tokenizer is known" in notes[0]
    back = load(tmp_path / "m.gguf")
    whole = read_gguf(tmp_path / "m.gguf")
    tensors = {name: whole.tensor(name) for name in whole.tensors} | {"blk.0.scale": torch.ones(8)}
    write_gguf(tmp_path / "more.gguf", whole.metadata, tensors)
    with pytest.raises(CheckpointError, match=r"no rule: 'blk.0.scale' .* --ignore-tensor NAME"):
        load(tmp_path / "more.gguf")
    more = load(tmp_path / "more.gguf", ignore_tensors=["blk.0.scale"])
    assert all(torch.equal(a, b) for a, b in zip(back.parameters(), more.parameters(), strict=True))
    assert back.spec == model.spec
    assert back.tokenizer is None
    for (name, one), (_, other) in zip(model.named_parameters(), back.named_parameters(), strict=True):
        assert torch.equal(one, other), name
    assert (back.unembed_table().data_ptr() == back.embed.table.data_ptr()) == tied


def test_gguf_rows_of_q_and_k_stand_as_llama_cpp_wants_them(tmp_path):
    """Its converter: reshape(heads, 2, d_head/2, d).swapaxes(1, 2): row 2i + j of a head is our row i + j * d_head/2."""
    model = small(LLAMA)
    gguf_export.write(model, tmp_path / "m.gguf", name="m")
    stored = read_gguf(tmp_path / "m.gguf").tensor("blk.1.attn_q.weight").numpy()
    ours = model.blocks[1].attn.q_proj.weight.detach().numpy()
    assert np.array_equal(stored, ours.reshape(4, 2, 3, 12).swapaxes(1, 2).reshape(24, 12))
    assert not np.array_equal(stored, ours)


def test_gguf_keeps_llama_3_scaling_as_a_tensor_of_divisors(tmp_path):
    scaling = {"type": "llama3", "factor": 8.0, "low_frequency_factor": 1.0, "high_frequency_factor": 4.0}
    scaled = ROTARY | {"theta": 500_000.0, "scaling": scaling | {"original_context": 8192}}
    model = small(changed(LLAMA, block__attention__position=scaled))
    gguf_export.write(model, tmp_path / "m.gguf", name="m")
    assert load(tmp_path / "m.gguf").spec == model.spec
    rotary = Rotary(
        theta=500_000.0,
        pairing="half",
        fraction=1.0,
        scaling=Llama3Scaling(factor=8.0, low_frequency_factor=1.0, high_frequency_factor=4.0, original_context=8192),
    )
    plain = 500_000.0 ** -(np.arange(0, 6, 2) / 6)
    divisors = read_gguf(tmp_path / "m.gguf").tensor("rope_freqs.weight").numpy()
    np.testing.assert_allclose(plain / divisors, frequencies(rotary, 6).numpy(), rtol=1e-6)
    file = read_gguf(tmp_path / "m.gguf")
    tensors = {name: file.tensor(name) for name in file.tensors} | {"rope_freqs.weight": torch.tensor([1.0, 2.0, 3.0])}
    theirs = {key: value for key, value in file.metadata.items() if not key.startswith("unembed.")}
    write_gguf(tmp_path / "odd.gguf", theirs, tensors)
    with pytest.raises(CheckpointError, match="belong to no published scaling"):
        load(tmp_path / "odd.gguf")


def test_gguf_keys_and_tensors_are_accounted_for(tmp_path):
    gguf_export.write(small(LLAMA), tmp_path / "m.gguf", name="m")
    file = read_gguf(tmp_path / "m.gguf")
    tensors = {name: file.tensor(name) for name in file.tensors}
    write_gguf(tmp_path / "key.gguf", dict(file.metadata) | {"llama.magic": 3}, tensors)
    with pytest.raises(CheckpointError, match="1 config key has no meaning here: magic = 3"):
        load(tmp_path / "key.gguf")
    write_gguf(tmp_path / "more.gguf", dict(file.metadata), tensors | {"blk.0.extra": torch.ones(2)})
    with pytest.raises(CheckpointError, match=r"1 source tensor has no rule: 'blk\.0\.extra'"):
        load(tmp_path / "more.gguf")
    del tensors["blk.0.ffn_up.weight"]
    write_gguf(tmp_path / "less.gguf", dict(file.metadata), tensors)
    with pytest.raises(CheckpointError, match=r"1 tensor is missing: 'blk\.0\.ffn_up\.weight'"):
        load(tmp_path / "less.gguf")
    write_gguf(tmp_path / "arch.gguf", dict(file.metadata) | {"general.architecture": "mamba"}, {})
    with pytest.raises(CheckpointError, match=r"general\.architecture is 'mamba'; known are gpt2, llama"):
        load(tmp_path / "arch.gguf")


def test_model_that_gguf_cannot_say_is_refused_with_what_differs(tmp_path):
    with pytest.raises(SpecError, match="no GGUF architecture that is written here describes this model exactly"):
        gguf_export.write(small(changed(LLAMA, head__softcap=30.0)), tmp_path / "m.gguf", name="m")
    assert not (tmp_path / "m.gguf").exists()


@pytest.mark.parametrize("is_untied", [False, True])
def test_llama2c_file_gives_the_model_it_was_made_from(tmp_path, is_untied):
    plain = changed(LLAMA, embedding__d_model=12, block__attention__n_heads=2, block__attention__n_kv_heads=1)
    if is_untied:
        plain = changed(plain, head__type="untied")
    model = small(plain)
    file = tmp_path / "model.bin"

    spec, w = model.spec, {name: p.detach().numpy() for name, p in model.named_parameters()}
    attn = spec.blocks[0].attention

    def stack(name):
        return [w[f"blocks.{layer}.{name}"] for layer in range(2)]

    def paired(name, heads):
        return [one.reshape(heads, 2, -1, 12).swapaxes(1, 2).reshape(-1, 12) for one in stack(name)]

    parts = [w["embed.table"], *stack("attn_norm.gain"), *paired("attn.q_proj.weight", 2)]
    parts += [*paired("attn.k_proj.weight", 1), *stack("attn.v_proj.weight"), *stack("attn.o_proj.weight")]
    parts += [*stack("mlp_norm.gain"), *stack("mlp.gate.weight"), *stack("mlp.down.weight"), *stack("mlp.up.weight")]
    parts += [w["final_norm.gain"], *[np.ones((spec.context_length, attn.d_head // 2))] * 2]
    parts += [w["head.table"]] if is_untied else []
    head = struct.pack("<7i", 12, 20, 2, 2, 1, -13 if is_untied else 13, spec.context_length)
    file.write_bytes(head + b"".join(np.ascontiguousarray(part, dtype="<f4").tobytes() for part in parts))
    back = load(file)
    assert torch.equal(back(IDS), model(IDS))
    assert back.load_report.tied == (not is_untied)
    assert {excused.name for excused in back.load_report.excused} == {"freq_cis_real", "freq_cis_imag"}
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(CheckpointError, match=r"imply .* bytes, but it has"):
        load(file)


def micro_file(path, spec, *, seed=0, n_weights=None):
    shape = MicroGptShape(
        vocab_size=spec.embedding.vocab_size,
        d_model=spec.embedding.d_model,
        context_length=spec.context_length,
        n_layers=spec.n_layers,
        d_mlp=spec.blocks[0].mlp.d_mlp,
    )
    count = sum(int(np.prod(one)) for one in shape.shapes().values()) if n_weights is None else n_weights
    weights = np.random.default_rng(seed).normal(size=count).astype("<f4")
    path.write_bytes(struct.pack("<2i", 77, count) + weights.tobytes() + np.zeros(2 * count, "<f4").tobytes())
    return weights


def test_microgpt_file_needs_a_shape_and_keeps_the_order_of_its_tensors(tmp_path):
    spec = preset("microgpt").spec
    file = tmp_path / "ckpt.bin"
    weights = micro_file(file, spec)
    with pytest.raises(UsageError, match=r"does not say of what shape\. Give --like PRESET \(microgpt has as many\)"):
        load(file)
    model = load(file, like="microgpt")
    assert model.spec == spec
    assert model.load_report.warnings == (
        "the order of its tensors is assumed to be microGPT's: the file itself does not name them",
    )
    assert np.array_equal(model.embed.table.detach().numpy().ravel(), weights[: 27 * 16])
    assert np.array_equal(model.blocks[0].mlp.down.weight.detach().numpy().ravel(), weights[-16 * 64 :])
    with pytest.raises(CheckpointError, match="Name another preset"):
        load(file, like="andrea-12m")
    with pytest.raises(UsageError, match=r"no preset of that name\. Did you mean microgpt"):
        load(file, like="microgtp")
    micro_file(file, spec, n_weights=1000)
    with pytest.raises(UsageError, match="no preset has as many"):
        load(file)


@pytest.mark.parametrize("has_bias", [True, False])
def test_nanogpt_checkpoint_is_gpt2_with_plain_matrices_and_the_exact_gelu(tmp_path, has_bias):
    plain = changed(GPT2, block__mlp__activation="gelu")
    if not has_bias:
        norm = {"type": "layer_norm", "eps": 1e-5, "has_bias": False}
        plain = changed(plain, block__norm=norm, final_norm=norm, block__mlp__has_bias=False)
        plain = changed(plain, block__attention__biases=[])
    plain = changed(plain, block__mlp__d_mlp=48)
    model = small(plain)
    w = dict(model.named_parameters())
    state = {"transformer.wte.weight": w["embed.table"], "transformer.wpe.weight": w["embed.pos_table"]}
    for layer in range(2):
        theirs, ours = f"transformer.h.{layer}.", f"blocks.{layer}."
        for part in ("weight", "bias") if has_bias else ("weight",):
            gain = "gain" if part == "weight" else "bias"
            state[f"{theirs}ln_1.{part}"] = w[f"{ours}attn_norm.{gain}"]
            state[f"{theirs}ln_2.{part}"] = w[f"{ours}mlp_norm.{gain}"]
            fused = [w[f"{ours}attn.{name}_proj.{part}"] for name in "qkv"]
            state[f"{theirs}attn.c_attn.{part}"] = torch.cat(fused)
            state[f"{theirs}attn.c_proj.{part}"] = w[f"{ours}attn.o_proj.{part}"]
            state[f"{theirs}mlp.c_fc.{part}"] = w[f"{ours}mlp.up.{part}"]
            state[f"{theirs}mlp.c_proj.{part}"] = w[f"{ours}mlp.down.{part}"]
        state[f"{theirs}attn.bias"] = torch.ones(1, 1, 12, 12).tril()
    state["transformer.ln_f.weight"] = w["final_norm.gain"]
    if has_bias:
        state["transformer.ln_f.bias"] = w["final_norm.bias"]
    state["lm_head.weight"] = state["transformer.wte.weight"]
    state = {f"_orig_mod.{name}": tensor.detach() for name, tensor in state.items()}
    args = {
        "n_layer": 2,
        "n_head": 2,
        "n_embd": 12,
        "block_size": 12,
        "bias": has_bias,
        "vocab_size": 13,
        "dropout": 0.2,
    }
    file = tmp_path / "ckpt.pt"
    torch.save({"model": state, "model_args": args, "iter_num": 7, "best_val_loss": torch.tensor(1.5)}, file)
    back = load(file)
    torch.testing.assert_close(back(IDS), model(IDS), rtol=0, atol=1e-6)
    assert back.load_report.tied
    assert "holds the table twice, equal" in back.load_report.tie_reason
    more = state | {"_orig_mod.seen": torch.ones(3)}  # named as the file spells it, or without the wrapper's word
    torch.save({"model": more, "model_args": args}, file)
    for name in ("_orig_mod.seen", "seen", "_orig_mod.s*"):
        assert ("seen", "ignored by request") in load(file, ignore_tensors=[name]).load_report.excused
    torch.save({"model": state, "model_args": args | {"n_experts": 4}}, file)
    with pytest.raises(CheckpointError, match="n_experts = 4"):
        load(file)
    torch.save({"model": state}, file)
    with pytest.raises(CheckpointError, match="expected nanoGPT's `model_args`"):
        load(file)


def test_a_pickle_that_would_run_code_is_refused_and_leaves_no_marker(tmp_path):
    marker = tmp_path / "marker"

    class Evil:
        def __reduce__(self):
            return (open, (str(marker), "w"))

    torch.save({"model": {}, "x": Evil()}, tmp_path / "ckpt.pt")
    with pytest.raises(UnsafeError, match="safetensors"):
        load(tmp_path / "ckpt.pt")
    assert not marker.exists()


def test_half_precision_files_are_widened_exactly_unless_their_own_type_is_asked_for(tmp_path):
    model = small(LLAMA).to(torch.bfloat16)
    gguf_export.write(model, tmp_path / "m.gguf", name="m")
    assert {tensor.type for tensor in read_gguf(tmp_path / "m.gguf").tensors.values()} == {"BF16", "F32"}
    back = load(tmp_path / "m.gguf")
    assert torch.equal(back.embed.table, model.embed.table.float())


def test_tokenizer_option_gives_a_model_the_one_that_was_named(tmp_path):
    gguf_export.write(small(LLAMA), tmp_path / "m.gguf", name="m")
    files.save(CharacterTokenizer.from_text("abcdefghijklm"), tmp_path / "own.json")
    assert load(tmp_path / "m.gguf", tokenizer=tmp_path / "own.json").tokenizer.encode("cab").ids == (2, 0, 1)
