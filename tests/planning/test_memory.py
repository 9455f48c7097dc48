"""The memory estimate against what torch really keeps, to the byte, and against how far a process really grows.

Two measurements. Saved-tensor hooks list what autograd keeps of one forward pass: the sum must be exact. And a child
process trains a few steps and reads its own peak from /proc, with an allocator that gives every freed piece back, where the
peak is that of the tensors; test_process_memory.py looks at what a user sees.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import torch
from msgspec.structs import replace

from unembed.errors import SpecError
from unembed.model.init import Gpt2Init, build
from unembed.model.presets import preset
from unembed.model.presets.gemma import Size as GemmaSize
from unembed.model.presets.gemma import gemma2_spec, gemma3_spec
from unembed.model.presets.gpt import gpt_spec
from unembed.model.presets.llama import Size, llama_spec
from unembed.model.spec import (
    Alibi,
    Bidirectional,
    Causal,
    GatedMlp,
    HeadTransform,
    LayerNorm,
    Learned,
    NoShortcut,
    Parallel,
    PlainMlp,
    RmsNorm,
    Rotary,
    Serial,
    Sinusoidal,
    TransformerSpec,
    with_head,
)
from unembed.objectives import next_token_loss
from unembed.planning.kept import Batch, kept_by_block, kept_by_embedding, kept_by_head
from unembed.planning.memory import TrainingShape, training_memory, weight_bytes

LLAMA = llama_spec(Size(100, 32, 2, 4, 2, 8, 64, 64, True), eps=1e-5, theta=1e4)
LAYER_NORM = LayerNorm(eps=1e-5, has_bias=True)


def with_block(**fields: object) -> TransformerSpec:
    return replace(LLAMA, blocks=tuple(replace(block, **fields) for block in LLAMA.blocks))


def with_attention(**fields: object) -> TransformerSpec:
    return with_block(attention=replace(LLAMA.blocks[0].attention, **fields))


def first_blocks(name: str) -> TransformerSpec:
    spec = preset(name).spec
    return replace(spec, blocks=spec.blocks[:2])


def rms(gain: str) -> RmsNorm:
    return RmsNorm(eps=1e-6, gain=gain)


VARIANTS = {
    "gqa": LLAMA,
    "mha": with_attention(n_kv_heads=4),
    "no_position": with_attention(position=None),
    "interleaved": with_attention(position=Rotary(theta=1e4, pairing="interleaved", fraction=1.0, scaling=None)),
    "a_quarter_turns": with_attention(position=Rotary(theta=1e4, pairing="half", fraction=0.25, scaling=None)),
    "qk_rms": with_attention(qk_norm=rms("plain")),
    "qk_one_plus": with_attention(qk_norm=rms("one_plus")),
    "qk_layer_norm": with_attention(qk_norm=LAYER_NORM),
    "qk_bare_unturned": with_attention(qk_norm=rms("none"), position=None),
    "window": with_attention(sees=Causal(window=4)),
    "window_that_never_bites": with_attention(sees=Causal(window=16)),
    "both_ways": with_attention(sees=Bidirectional()),
    "alibi": with_attention(position=Alibi()),
    "alibi_window": with_attention(position=Alibi(), sees=Causal(window=3)),
    "alibi_both_ways": with_attention(position=Alibi(), sees=Bidirectional()),
    "capped_scores": with_attention(score_softcap=5.0),
    "capped_scores_window": with_attention(score_softcap=5.0, sees=Causal(window=3)),
    "capped_scores_both_ways": with_attention(score_softcap=5.0, sees=Bidirectional()),
    **{
        f"{at}_{name}": with_block(residual=Serial(norm_at=at), norm=norm)
        for at in ("pre", "post", "both")
        for name, norm in [
            ("layer_norm", LAYER_NORM),
            ("rms", rms("plain")),
            ("bare", rms("none")),
            ("one_plus", rms("one_plus")),
        ]
    },
    "parallel_one_norm": with_block(residual=Parallel(shares_norm=True)),
    "parallel_two_norms": with_block(residual=Parallel(shares_norm=False)),
    "parallel_two_layer_norms": with_block(residual=Parallel(shares_norm=False), norm=LAYER_NORM),
    "no_shortcut": with_block(residual=NoShortcut()),
    **{
        f"{kind.__name__}_{activation}": with_block(mlp=kind(d_mlp=48, activation=activation, has_bias=True))
        for kind in (PlainMlp, GatedMlp)
        for activation in ("gelu", "gelu_tanh", "relu", "relu_squared", "silu")
    },
    "head_transform": replace(
        LLAMA, head=replace(LLAMA.head, transform=HeadTransform(activation="gelu", norm=LAYER_NORM))
    ),
    "head_cap_scale_bias": replace(LLAMA, head=replace(LLAMA.head, softcap=30.0, scale=0.5, has_bias=True)),
    "no_final_norm": replace(LLAMA, final_norm=None),
    "no_final_norm_scale": replace(LLAMA, final_norm=None, head=replace(LLAMA.head, scale=0.5)),
    "embedding_norm": replace(
        LLAMA,
        embedding=replace(LLAMA.embedding, norm=LAYER_NORM, position=Sinusoidal(theta=1e4), scale=3.0, n_token_types=2),
    ),
    "mapped": with_head(LLAMA, "mapped"),
    "pseudo_inverse": with_head(LLAMA, "pseudo_inverse"),
    "pseudo_inverse_learned": with_head(
        replace(LLAMA, embedding=replace(LLAMA.embedding, position=Learned(n_rows=64, offset=0))), "pseudo_inverse"
    ),
    "mini-gpt": preset("mini-gpt").spec,
    "microgpt": preset("microgpt").spec,
    "esm2": first_blocks("esm2-8m"),
    "nt-v1": first_blocks("nt-v1-500m"),
    "chemberta": preset("chemberta-77m").spec,
    "pythia": first_blocks("pythia-70m"),
    "gemma-2": gemma2_spec(GemmaSize(99, 24, 2, 4, 2, 8, 40, 64, 64)),
    "gemma-3": gemma3_spec(GemmaSize(99, 24, 7, 4, 2, 8, 40, 64, 64), 5, 8.0),
}
VARIANTS |= {
    f"{kind}_{name}": with_head(VARIANTS[name], kind)
    for kind in ("mapped", "pseudo_inverse")
    for name in (
        "head_transform",
        "head_cap_scale_bias",
        "no_final_norm_scale",
        "embedding_norm",
        "chemberta",
        "post_bare",
    )
}


def kept_by_torch(spec: TransformerSpec, batch: Batch, dtype: torch.dtype) -> int:
    """Bytes of every storage, parameters aside, that autograd saves between the ids and the loss; each once."""
    model = build(spec, Gpt2Init(std=0.02), seed=0, dtype=dtype)
    parameters = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    storages = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        # the tensor itself is held too: its address must not be given to another one
        storages[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    generator = torch.Generator().manual_seed(0)
    shape = (batch.batch_size, batch.context_length)
    ids = torch.randint(0, spec.embedding.vocab_size, shape, generator=generator)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = next_token_loss(model(ids), ids)
    assert loss.total.requires_grad
    return sum(size for address, (size, _) in storages.items() if address not in parameters)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", VARIANTS)
def test_oracle_kept_is_what_torch_keeps_to_the_byte(name, dtype):
    spec = VARIANTS[name]
    batch = Batch(3, 16, torch.finfo(dtype).bits // 8)
    ours = kept_by_embedding(spec, batch) + kept_by_head(spec, batch)
    ours += sum(sum(kept_by_block(block, spec.embedding.d_model, batch).values()) for block in spec.blocks)
    log_probabilities = batch.n_tokens * spec.embedding.vocab_size * 4
    capped = 0 if spec.head.softcap is None else batch.n_tokens * spec.embedding.vocab_size * batch.number_bytes
    # the loss also keeps the sum of its weights, one number; its targets are the ids, which count once
    assert kept_by_torch(spec, batch, dtype) == ours + log_probabilities + capped + 4


def test_parts_in_bytes():
    spec = preset("gpt2").spec
    memory = training_memory(spec, TrainingShape(batch_size=8, context_length=1024))
    assert memory.weights == memory.gradients == 4 * 124_439_808
    assert memory.optimizer_states == 8 * 124_439_808
    assert memory.loss == 3 * 8 * 1024 * 50_257 * 4 + 8 * 8 * 1024
    assert memory.activations["mlp"] == 12 * 8 * 1024 * 2 * 3072 * 4
    assert memory.peak_at == "loss"
    assert memory.peak == memory.weights + memory.optimizer_states + sum(memory.activations.values()) + memory.loss
    assert memory.process_peak > memory.peak
    half = training_memory(spec, TrainingShape(batch_size=8, context_length=1024, dtype="bfloat16"))
    assert half.weights * 2 == memory.weights
    assert half.loss == memory.loss
    assert weight_bytes(spec) == {
        "float32": 497_759_232,
        "bfloat16": 248_879_616,
        "float16": 248_879_616,
        "int8": 124_439_808,
    }


def test_property_adamw_training_takes_at_least_four_times_the_weights():
    for name in ("mini-gpt", "gpt2", "llama-3.2-1b", "pythia-70m"):
        memory = training_memory(preset(name).spec, TrainingShape(batch_size=1, context_length=8))
        assert memory.peak >= 4 * memory.weights
        assert memory.peak_at == "end"
        plain = training_memory(preset(name).spec, TrainingShape(batch_size=1, context_length=8, optimizer="sgd"))
        assert plain.peak == memory.peak - memory.optimizer_states


def test_property_switches_save_what_they_promise():
    spec = preset("gpt2").spec
    shape = TrainingShape(batch_size=8, context_length=1024)
    plain = training_memory(spec, shape)
    chunked = training_memory(spec, replace(shape, scores_at_once=1 << 23))
    # the gradients of table and stream, made beside the buffer and scaled in place
    assert chunked.loss == ((1 << 23) // 50_257 * 50_257 + (50_257 + 8192) * 768) * 4 + 8192 * 8
    assert chunked.activations["head"] == plain.activations["head"] - 8192 * 768 * 4
    whole = training_memory(spec, replace(shape, scores_at_once=10**12))
    assert whole.loss == (8192 * 50_257 + (50_257 + 8192) * 768) * 4 + 8192 * 8
    both = training_memory(spec, replace(shape, scores_at_once=1 << 23, checkpoints_blocks=True))
    assert both.activations["stream"] == 12 * 8192 * 768 * 4
    assert both.activations["mlp"] == both.activations["attention"] == 0
    assert both.peak < chunked.peak < plain.peak
    piled = training_memory(spec, replace(shape, accumulates=True))
    assert piled.peak == plain.peak + plain.gradients


def test_estimating_the_largest_allocates_nothing():
    memory = training_memory(preset("gpt3-175b").spec, TrainingShape(batch_size=32, context_length=2048))
    assert memory.peak > 16 * 174_604_259_328


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"batch_size": 0}, "training shape: batch_size is 0; it must be at least 1"),
        ({"context_length": -1}, "training shape: context_length is -1"),
        ({"scores_at_once": 0}, "training shape: scores_at_once is 0"),
        ({"dtype": "int4"}, r"training shape: Invalid enum value 'int4' - at `\$.dtype`"),
        ({"optimizer": "lion"}, "training shape: Invalid enum value 'lion'"),
    ],
)
def test_message_names_the_field(fields, message):
    shape = TrainingShape(**{"batch_size": 1, "context_length": 8, **fields})
    with pytest.raises(SpecError, match=message):
        training_memory(LLAMA, shape)


# --- how far a process grows --------------------------------------------------------------------------------

CHILD = """
import json, sys
import torch
from torch.utils.checkpoint import checkpoint
from unembed.model.check import from_plain
from unembed.model.init import Gpt2Init, build
from unembed.objectives import chunked_next_token_loss, next_token_loss
from unembed.optim.adamw import AdamWConfig, make_adamw

class Again(torch.nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block
    def forward(self, *inputs):
        return checkpoint(self.block, *inputs, use_reentrant=False)

def status(key):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))

torch.set_num_threads(1)
task = json.load(sys.stdin)
before = status("VmRSS:")
model = build(from_plain(task["spec"]), Gpt2Init(std=0.02), seed=0)
optimizer, _ = make_adamw(model, AdamWConfig(beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.1))
if task["checkpoints_blocks"]:
    for layer, block in enumerate(model.blocks):
        model.blocks[layer] = Again(block)
ids = torch.randint(0, model.spec.embedding.vocab_size, (task["batch_size"], task["context_length"]))
for step in range(task["steps"]):
    if not task["accumulates"]:
        optimizer.zero_grad(set_to_none=True)
    if task["scores_at_once"] is None:
        loss = next_token_loss(model(ids), ids)
    else:
        loss = chunked_next_token_loss(model, model.hidden(ids), ids, scores_at_once=task["scores_at_once"])
    loss.mean().backward()
    del loss
    optimizer.step()
print(status("VmHWM:") - before)
"""

SHAPES = {
    "vocabulary": (gpt_spec(vocab_size=50_257, context_length=256, d_model=192, n_layers=2, n_heads=4), 3, 256),
    "activations": (gpt_spec(vocab_size=512, context_length=256, d_model=256, n_layers=8, n_heads=4), 12, 256),
    "weights": (gpt_spec(vocab_size=4_000, context_length=64, d_model=768, n_layers=4, n_heads=12), 1, 64),
    "llama": (llama_spec(Size(8_000, 384, 6, 6, 2, 64, 1_024, 256, True), eps=1e-5, theta=1e4), 6, 256),
}


def growth(spec: TransformerSpec, shape: TrainingShape, *, steps: int, **environment: str) -> int:
    """By how many bytes a fresh process grows from before the model is built to the peak of some training steps."""
    if not Path("/proc/self/status").exists():
        pytest.skip("needs /proc, which tells a process its own peak")
    task = {
        "spec": msgspec.to_builtins(spec),
        "batch_size": shape.batch_size,
        "context_length": shape.context_length,
        "checkpoints_blocks": shape.checkpoints_blocks,
        "accumulates": shape.accumulates,
        "scores_at_once": shape.scores_at_once,
        "steps": steps,
    }
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=json.dumps(task),
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def own(*, checkpoints_blocks: bool) -> int:
    """What torch's own code and buffers take with the first step: a model far too small to matter."""
    small = gpt_spec(vocab_size=64, context_length=64, d_model=64, n_layers=1, n_heads=4)
    shape = TrainingShape(batch_size=2, context_length=64, checkpoints_blocks=checkpoints_blocks)
    return growth(small, shape, steps=2, MALLOC_MMAP_THRESHOLD_="65536")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "switches"),
    [
        *((name, {}) for name in SHAPES),
        ("activations", {"checkpoints_blocks": True}),
        ("weights", {"accumulates": True}),
        ("vocabulary", {"scores_at_once": 1 << 22}),
    ],
)
def test_tensors_take_what_is_estimated(name, switches):
    """With freed pieces given back at once, and less torch's own memory, the peak is that of the tensors."""
    spec, batch_size, context_length = SHAPES[name]
    shape = TrainingShape(batch_size=batch_size, context_length=context_length, **switches)
    measured = growth(spec, shape, steps=3, MALLOC_MMAP_THRESHOLD_="65536")
    measured -= own(checkpoints_blocks=shape.checkpoints_blocks)
    assert training_memory(spec, shape).peak == pytest.approx(measured, rel=0.08)
