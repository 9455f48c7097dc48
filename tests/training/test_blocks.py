"""Blocks that are run again in the backward pass, or compiled: the same bits, the same run after a stop, no second graph."""

import copy
import os
import signal
from contextlib import nullcontext

import pytest
import torch

from oracles.specs import base, changed
from small import run_config, small_model, tokens, trainer_of
from unembed.checkpoints.run.folder import RunFolder
from unembed.errors import Interrupted
from unembed.generation.decode import generate_ids
from unembed.generation.sampling import GREEDY
from unembed.model.taps import Recorder
from unembed.recipes.start import train
from unembed.training.blocks import compile_blocks, recompute_blocks
from unembed.training.loop import Trainer
from unembed.tying.watch import TableWatch

ROTARY = {"type": "rotary", "theta": 100.0, "pairing": "half", "fraction": 1.0, "scaling": None}
PLAIN = {
    "learned": changed(base(n_layers=3)),
    "rotary": changed(base(n_layers=2), block__attention__position=ROTARY, block__attention__n_kv_heads=2),
    "parallel": changed(base(n_layers=2), block__residual={"type": "parallel", "shares_norm": True}),
}
TEXT = "La gata que duerme no tiene hambre. El perro corre por la calle.\n" * 40


def after(trainer: Trainer, n_steps: int = 3):
    """Losses, norms, the last gradients and the weights after some steps."""
    told = [trainer.step() for _ in range(n_steps)]
    parameters = dict(trainer.model.named_parameters())
    return told, {n: p.grad for n, p in parameters.items()}, {n: p.detach() for n, p in parameters.items()}


def same(one, two) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


class Counted(torch.nn.Module):
    """Counts the runs of each MLP, which is a block's last part."""

    def __init__(self, mlp):
        super().__init__()
        self.mlp, self.n_runs = mlp, 0

    def forward(self, *inputs):
        self.n_runs += 1
        return self.mlp(*inputs)


# --- run again in the backward pass -----------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", PLAIN)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("chunked", [False, True])
def test_loss_gradients_and_weights_are_bit_equal(spec, dropout, chunked):
    """With accumulation, clipping and the two gradients of the table noted at each step."""
    ends, notes = [], []
    for checkpoints in (False, True):
        fields = {"checkpoint_activations": checkpoints, "chunked_loss": chunked, "dropout": dropout, "accumulate": 2}
        trainer = trainer_of(run_config(PLAIN[spec], **fields))
        watch = trainer.watch = TableWatch(trainer.model, gradient_every=1)
        noted = []
        update = watch.after_update
        watch.after_update = lambda *of, noted=noted, update=update: noted.append(update(*of))
        ends.append(after(trainer))
        notes.append(noted)
    assert ends[0][0] == ends[1][0]
    assert same(ends[0][1], ends[1][1])
    assert same(ends[0][2], ends[1][2])
    assert notes[0] == notes[1]
    assert len(notes[0]) == 3


def test_chunked_loss_trains_as_the_plain_one():
    """Up to rounding: its sums are taken in another order."""
    plain, chunked = (after(trainer_of(run_config(chunked_loss=is_chunked))) for is_chunked in (False, True))
    assert [loss for loss, _ in chunked[0]] == pytest.approx([loss for loss, _ in plain[0]], rel=1e-5)
    for name, gradient in chunked[1].items():
        torch.testing.assert_close(gradient, plain[1][name], rtol=1e-3, atol=1e-5)


def test_each_block_is_run_twice_in_training_and_once_otherwise():
    """Twice is the point of it; an evaluation, a cached text and a forward with taps have no backward pass to save for."""
    trainer = trainer_of(run_config(PLAIN["learned"], checkpoint_activations=True, accumulate=2))
    model, ids = trainer.model, torch.tensor([[1, 2, 3]])
    for block in model.blocks:
        block.mlp = Counted(block.mlp)

    def runs(of) -> list[int]:
        before = [block.mlp.n_runs for block in model.blocks]
        of()
        return [block.mlp.n_runs - n for block, n in zip(model.blocks, before, strict=True)]

    assert runs(trainer.step) == [4, 4, 4]  # two micro-batches
    assert runs(trainer.evaluate) == [2, 2, 2]  # whole windows, and the rest
    assert runs(lambda: model(ids, tap=Recorder()).sum().backward()) == [1, 1, 1]
    assert runs(lambda: generate_ids(model, [[1, 2]], n_tokens=2, sampling=GREEDY, seeds=[0])) == [2, 2, 2]


def test_much_less_is_kept_for_the_backward_pass():
    """What enters each block, and of its insides nothing."""

    def kept(checkpoints: bool) -> int:
        model = small_model(PLAIN["learned"])
        if checkpoints:
            recompute_blocks(model)
        found = {}

        def keep(tensor):
            found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            resid = model.hidden(torch.zeros(4, 12, dtype=torch.long))
        assert resid.requires_grad
        return sum(found.values())

    assert kept(True) < kept(False) / 4


def test_a_recorder_holds_what_the_loss_saw():
    """A second run of the block would put other tensors in its place, and their gradients would be missing."""
    model = small_model(PLAIN["learned"])
    recompute_blocks(model)
    recorder = Recorder(["blocks.1.mlp_out"])
    loss = model(torch.tensor([[1, 2, 3, 4]]), tap=recorder).square().sum()
    value = recorder.values["blocks.1.mlp_out"]
    (gradient,) = torch.autograd.grad(loss, value)
    assert gradient.abs().sum() > 0
    assert recorder.values["blocks.1.mlp_out"] is value


def test_names_of_parameters_stay_and_a_copy_has_its_own():
    model = small_model(PLAIN["learned"])
    names = [name for name, _ in model.named_parameters()]
    recompute_blocks(model)
    recompute_blocks(model)  # a second trainer of the same model
    twin = copy.deepcopy(model)
    assert [name for name, _ in twin.named_parameters()] == names == list(model.state_dict())
    ids = torch.tensor([[1, 2, 3, 4]])
    before = model(ids)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert torch.equal(model(ids), before)
    assert not torch.equal(twin(ids), before)


def test_a_stopped_run_goes_on_to_the_last_bit(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(TEXT, encoding="utf-8")
    plain = {"steps": 6, "batch_size": 2, "accumulate": 2, "dropout": 0.2, "context_length": 8, "eval_every": 3}
    settings = {**plain, "checkpoint_every": 3, "checkpoint_activations": True, "chunked_loss": True}

    def weights(out):
        return RunFolder.open(out).latest()[0].weights()

    def terminate(trainer, record):
        if (record["step"], record["split"]) == (3, "val"):
            os.kill(os.getpid(), signal.SIGTERM)

    sources = {"recipe_name": "nanogpt-cpu", "resume": True}
    train([text], out=tmp_path / "straight", settings=settings, **sources)
    with pytest.raises(Interrupted):
        train([text], out=tmp_path / "stopped", settings=settings, observers=[terminate], **sources)
    train([text], out=tmp_path / "stopped", settings=settings, **sources)
    train([text], out=tmp_path / "kept", settings={**settings, "checkpoint_activations": False}, **sources)
    assert same(weights(tmp_path / "stopped"), weights(tmp_path / "straight"))
    assert same(weights(tmp_path / "kept"), weights(tmp_path / "straight"))


# --- compiled ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def fresh_compiler():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield torch._dynamo.utils.counters
    torch._dynamo.reset()


@pytest.mark.slow  # a compiler runs
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("checkpoints", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_a_compiled_run_has_one_graph_whatever_comes_by(fresh_compiler, checkpoints, dropout):
    """Steps, evaluations with a short last batch, samples with a cache, the table's gradients noted: one graph for all
    blocks, and nothing is compiled again after the first step. A guard that fails counts as a recompilation."""
    config = run_config(
        PLAIN["learned"], steps=6, eval_every=2, compile=True, checkpoint_activations=checkpoints, dropout=dropout
    )
    trainer = trainer_of(config, val=tokens(67, seed=1))
    trainer.watch = TableWatch(trainer.model, gradient_every=2)
    trainer.sampler = Samples()
    with torch._dynamo.config.patch(error_on_recompile=True):
        trainer.run()
    assert trainer.why_not_compiled is None
    assert trainer.sampler.n == 4
    assert fresh_compiler["stats"]["unique_graphs"] == 1
    assert sum(fresh_compiler["graph_break"].values()) == 0


class Samples:
    """Writes ids with a growing cache; there is no tokenizer here that could read them."""

    def __init__(self):
        self.n = 0

    def __call__(self, model, step):
        self.n += 1
        generate_ids(model, [[1, 2]], n_tokens=6, sampling=GREEDY, seeds=[0])
        return {"step": step, "split": "sample", "text": ""}


@pytest.mark.slow  # a compiler runs
@pytest.mark.usefixtures("unchecked", "fresh_compiler")
def test_compiled_blocks_learn_the_same_and_are_run_again_bit_by_bit():
    ends = {
        (compiles, again): after(
            trainer_of(run_config(PLAIN["rotary"], compile=compiles, checkpoint_activations=again, dropout=0.1 * again))
        )
        for compiles, again in ((False, False), (True, False))
    }
    eager, compiled = ends[False, False], ends[True, False]
    assert [loss for loss, _ in compiled[0]] == pytest.approx([loss for loss, _ in eager[0]], rel=1e-4)
    twice = after(trainer_of(run_config(PLAIN["rotary"], compile=True, checkpoint_activations=True)))
    assert twice[0] == compiled[0]
    assert same(twice[1], compiled[1])
    assert same(twice[2], compiled[2])


@pytest.mark.usefixtures("unchecked", "fresh_compiler")
def test_without_a_compiler_the_run_is_the_eager_one_and_says_why(tmp_path):
    text, said = tmp_path / "text.txt", []
    text.write_text(TEXT, encoding="utf-8")
    settings = {"steps": 2, "batch_size": 2, "context_length": 8, "checkpoint_every": 2, "checkpoint_activations": True}
    ends = []
    for compiles in (False, True):
        out = tmp_path / str(compiles)
        with no_compiler() if compiles else nullcontext():
            train(
                [text], recipe_name="nanogpt-cpu", out=out, settings={**settings, "compile": compiles}, say=said.append
            )
        ends.append(RunFolder.open(out).latest()[0].weights())
    assert same(*ends)
    (why,) = [sentence for sentence in said if "compile" in sentence]
    assert why.startswith("warning: compile=true, but the blocks cannot be compiled here")
    assert "no-such-compiler" in why
    assert why.endswith("The run goes on without, at the usual speed")


def no_compiler():
    """Inductor is told a compiler that does not exist, and its caches are switched off: they would need none."""
    import torch._inductor.config as inductor

    return inductor.patch({"cpp.cxx": ("no-such-compiler",), "fx_graph_cache": False, "force_disable_caches": True})


@pytest.mark.usefixtures("unchecked", "fresh_compiler")
def test_blocks_that_cannot_be_compiled_are_left_as_they_were():
    model = small_model(PLAIN["learned"], dtype=torch.float32)
    ids = torch.zeros(2, 8, dtype=torch.long)
    state = torch.get_rng_state()
    with no_compiler():
        why = compile_blocks(model, ids, dropout=0.1)
    assert why is not None
    assert "no-such-compiler" in why
    assert len(why) <= 160
    assert "\n" not in why
    assert all("forward" not in block.__dict__ for block in model.blocks)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)
