"""The profile of a run: parts that add up to all of its time, a training that is bit-equal, and words for what was found."""

import re
import time

import pytest
import torch

from small import run_config, small_model, trainer_of
from unembed.checkpoints.run.folder import RunFolder
from unembed.planning.flops import flops
from unembed.recipes.advice import in_words, profile_table
from unembed.recipes.start import train
from unembed.training.profile import OF_STEPS, PARTS, Profile
from unembed.tying.watch import TableWatch

TEXT = "La gata que duerme no tiene hambre. El perro corre por la calle.\n" * 40
SETTINGS = {"steps": 4, "batch_size": 2, "context_length": 8, "eval_every": 2, "checkpoint_every": 2, "sample_every": 2}


def test_parts_are_their_own_and_add_up():
    profile = Profile()
    with profile.part("saving"):
        time.sleep(0.02)
        with profile.part("data"):
            time.sleep(0.03)
        time.sleep(0.02)
    time.sleep(0.01)
    with profile.part("data"):
        pass
    assert 0.04 <= profile.seconds["saving"] < 0.2
    assert 0.03 <= profile.seconds["data"] < 0.2
    assert 0.01 <= profile.between < 0.2
    assert sum(profile.seconds.values()) + profile.between == pytest.approx(profile.total, rel=1e-9)


def test_a_part_that_fails_ends_all_the_same():
    profile = Profile()
    with pytest.raises(ZeroDivisionError), profile.part("evaluation"):
        _ = 1 / 0
    before = profile.seconds["evaluation"]
    with profile.part("data"):
        pass
    assert profile.seconds["evaluation"] == before > 0


def test_the_backward_pass_is_split_where_the_blocks_begin():
    """The gradient of the stream comes when that of loss and head is done; what is slow before it is the loss's."""
    profile, model = Profile(), small_model()

    class Slow(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, seconds):
            ctx.seconds = seconds
            return x.view_as(x)

        @staticmethod
        def backward(ctx, above):
            time.sleep(ctx.seconds)
            return above, None

    stream = Slow.apply(model.hidden(torch.tensor([[1, 2, 3]])), 0.06)
    scores = model.unembed(Slow.apply(profile.turns_at(stream), 0.03))
    with profile.part("backward"):
        scores.sum().backward()
    assert 0.03 <= profile.seconds["loss_backward"] < 0.06
    assert profile.seconds["backward"] >= 0.06


@pytest.mark.parametrize("chunked", [False, True])
def test_a_profiled_run_is_bit_equal_and_every_part_is_there(chunked):
    ends = []
    for profile in (None, Profile()):
        config = run_config(steps=4, eval_every=2, chunked_loss=chunked, dropout=0.1, accumulate=2)
        trainer = trainer_of(config, **({} if profile is None else {"profile": profile}))
        trainer.watch = TableWatch(trainer.model, gradient_every=1)
        trainer.run()
        ends.append((trainer.last_loss, {n: p.detach() for n, p in trainer.model.named_parameters()}))
    assert ends[0][0] == ends[1][0]
    assert all(torch.equal(ends[0][1][name], ends[1][1][name]) for name in ends[0][1])
    assert all(profile.seconds[name] > 0 for name in PARTS if name not in ("sampling", "saving"))
    steps = sum(profile.seconds[name] for name in OF_STEPS)
    assert 0.5 * trainer.seconds < steps < 1.5 * trainer.seconds
    assert profile.seconds["evaluation"] < profile.total - steps + 1e-9


def test_a_run_says_where_its_time_went(tmp_path):
    text, said, profile = tmp_path / "text.txt", [], Profile()
    text.write_text(TEXT, encoding="utf-8")
    train([text], recipe_name="nanogpt-cpu", out=tmp_path / "run", settings=SETTINGS, say=said.append, profile=profile)
    plain = tmp_path / "plain"
    train([text], recipe_name="nanogpt-cpu", out=plain, settings=SETTINGS)
    kept = [RunFolder.open(out).latest()[0].weights() for out in (tmp_path / "run", plain)]
    assert all(torch.equal(kept[0][name], kept[1][name]) for name in kept[1])
    table = profile_table(profile)
    assert set(table["part"]) == {*PARTS, "between"}
    assert sum(table["share"]) == pytest.approx(1.0)
    assert list(table["seconds"]) == sorted(table["seconds"], reverse=True)
    told = [sentence for sentence in said if sentence.startswith(("profile: ", "advice: "))]
    assert "s for 4 steps and all around them: " in told[0]
    assert "GFLOP/s" in told[1]
    assert any("saving takes" in sentence and "(now 2)" in sentence for sentence in told[2:])
    again = []
    train(
        [text], recipe_name="nanogpt-cpu", out=tmp_path / "run", settings=SETTINGS, resume=True, say=again.append,
        profile=Profile(),
    )  # fmt: skip
    assert "profile: no step was done, so there is nothing to tell" in again


# --- the words, for times that are given ------------------------------------------------------------------------------


def words(seconds, *, peak_flops=1e9, **settings):
    trainer, profile = trainer_of(run_config(**settings)), Profile()
    trainer.step_number, trainer.tokens = 10, 1000
    profile.seconds.update(seconds)
    return list(in_words(trainer, profile, peak_flops=peak_flops))


STEADY = {"forward": 3.0, "backward": 6.0, "loss": 0.5, "loss_backward": 0.5}


@pytest.mark.parametrize(
    ("seconds", "settings", "sentence"),
    [
        ({"loss": 4, "loss_backward": 6}, {}, r"the loss and the scores take 53% .* 13 entries; .*chunked_loss=true"),
        ({"loss": 9}, {"chunked_loss": True}, r"the loss and the scores take 51%.*made in pieces already"),
        ({"optimizer": 5}, {}, r"the optimizer takes 33% .*\(now 36\); a larger batch_size \(now 3\)"),
        ({"data": 1}, {}, r"reading windows takes 9% of the steps"),
        ({"table": 1}, {}, r"two gradients takes 9% of the steps; a larger tying.gradient_every \(now 0\)"),
        ({"compiling": 10}, {}, r"compiling takes 50% of all the time"),
        ({"evaluation": 5}, {}, r"evaluation takes 33% of all the time; a larger eval_every \(now 5\)"),
        ({"sampling": 5}, {}, r"writing samples takes 33% of all the time"),
        ({"saving": 5}, {}, r"saving takes 33% of all the time; a larger checkpoint_every \(now 5\)"),
        ({}, {"checkpoint_activations": True}, r"run a second time in the backward pass, about 30% of the steps"),
        ({}, {}, r"advice: nothing stands out"),
    ],
)  # fmt: skip
def test_advice_names_what_stands_out_and_the_setting(seconds, settings, sentence):
    told = words({**STEADY, **seconds}, peak_flops=1.0, **settings)
    assert len(told) == 3
    assert re.search(sentence, told[2])


def test_low_use_of_the_machine_is_told_with_the_remedy():
    (*_, last) = words(STEADY, peak_flops=1e15)
    assert last.endswith(
        "the steps reach 0% of the peak, because their products are small; a larger batch_size (now 3) makes them larger, "
        "and --set compile=true joins the small operations between the products"
    )
    (*_, compiled) = words(STEADY, peak_flops=1e15, compile=True)
    assert "compile=true" not in compiled


def test_reached_flops_are_those_of_the_tokens_of_this_process():
    """Of a run that went on after 4 steps of 400 tokens: 600 tokens in 10 s."""
    trainer, profile = trainer_of(run_config()), Profile()
    trainer.step_number, trainer.tokens = 10, 1000
    profile.begins(4, 400)
    profile.seconds.update(STEADY)
    reached = flops(trainer.config.model).training * 600 / 10.0
    (_, second, *_) = in_words(trainer, profile, peak_flops=2 * reached)
    assert second.startswith("profile: a step takes 1,666.7 ms; ")
    assert f"{reached / 1e9:,.1f} GFLOP/s, 50% of the {2 * reached / 1e9:,.1f}" in second


def test_at_most_three_pieces_of_advice_the_greatest_first():
    told = words({**STEADY, "saving": 20.0, "evaluation": 30.0, "sampling": 40.0, "data": 5.0}, peak_flops=1e15)
    assert [sentence.split()[1] for sentence in told[2:]] == ["writing", "reading", "evaluation"]
