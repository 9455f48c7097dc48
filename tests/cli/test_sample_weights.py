"""`unembed sample --weights` and `--lookup`: the same text, or what the rounding did; what is said of it and told in JSON."""

import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from commands import command, environment, run, screens
from unembed import runtime
from unembed.cli import main
from unembed.cli import weights as cli_weights
from unembed.errors import InputError
from unembed.generation.weights import copies
from unembed.generation.weights.copies import derived_bytes, packed_bytes
from unembed.generation.weights.packing import Columns, Rows, gains_float32, has_bags, unavailable
from unembed.model.init import Gpt2Init, build
from unembed.model.presets import preset

GREEDY = ("--prompt", "to be or not to be", "--tokens", "24", "--greedy")
HERE = [kind for kind in ("bfloat16", "float16", "int8") if unavailable(kind, torch.device("cpu")) is None]


def sampled(model, *arguments):
    done = run("sample", model, *arguments, "--format", "json")
    assert done.code == 0, done
    return done


def test_float32_and_guesses_give_the_same_text(trained):
    plain = sampled(trained, *GREEDY).json
    assert not {"weights", "lookup"} & set(plain)
    laid = sampled(trained, *GREEDY, "--weights", "float32").json
    told = laid.pop("weights")
    assert told["kind"] == "float32"
    assert (told["derived_bytes"] > 0) is gains_float32(torch.device("cpu"))
    assert laid["ids"] == plain["ids"]
    assert laid["text"] == plain["text"]
    done = sampled(trained, *GREEDY, "--lookup", "4")
    told = done.json["lookup"]
    assert done.json["ids"] == plain["ids"]
    assert told["n_forwards"] + told["n_guessed_right"] >= 24
    said = f"24 tokens in {told['n_forwards']} forwards: {told['n_guessed_right']} of {told['n_guessed']} guesses were right"
    assert said in done.err
    assert re.search(r"24 tokens in [0-9.]+ s \([0-9,]+ tokens/s\)", done.err)
    assert "tokens/s" not in run("sample", trained, *GREEDY).err


@pytest.mark.parametrize(("n_forwards", "n_right", "is_advised"), [(23, 1, True), (17, 7, True), (12, 12, False)])
def test_guesses_that_are_seldom_right_are_advised_against(n_forwards, n_right, is_advised):
    """Beside eight guesses a forward of a processor costs about one and a half."""
    made = SimpleNamespace(ids=[1] * 24, n_forwards=n_forwards, n_guessed=8 * n_forwards, n_guessed_right=n_right)
    with screens() as (_, err):
        cli_weights.guessed(SimpleNamespace(continuation=made), 8, quiet=False)
    assert ("leave --lookup out" in err.text) is is_advised


@pytest.mark.parametrize("kind", HERE)
def test_rounded_weights_tell_their_error(trained, kind):
    done = sampled(trained, *GREEDY, "--weights", kind)
    told = done.json["weights"]
    assert told["kind"] == kind
    assert 0 < told["worst_logit_difference"] < 2
    assert 0 <= told["kl_nats"] <= told["worst_kl_nats"] < 0.5
    assert 0 <= told["greedy_agreement"] <= 1
    assert told["derived_bytes"] > 0
    assert f"{kind} weights: " in done.err
    assert f"On the last {told['n_positions']} tokens of the prompt, read by themselves, the scores" in done.err
    assert kind not in run("sample", trained, *GREEDY, "--weights", kind, "--quiet").err


def test_candidates_are_those_of_the_chosen_weights(trained):
    found = sampled(trained, *GREEDY, "--tokens", "3", "--candidates", "2", "--weights", HERE[0]).json
    assert found["weights"]["kind"] == HERE[0]
    assert len(found["candidates"]["step"]) >= 6


def test_only_a_large_model_and_a_long_text_are_packed_and_only_where_there_is_room(monkeypatch):
    monkeypatch.setattr(copies, "gains_float32", has_bags)
    model = build(preset("mini-gpt").spec, Gpt2Init(std=0.1), seed=0)
    for large, n_tokens, dtype, free, is_packed in (
        (2**24, 100, torch.float32, 2**40, False),
        (1, 10, torch.float32, 2**40, False),
        (1, 100, torch.bfloat16, 2**40, False),
        (1, 100, torch.float32, packed_bytes(model), False),
        (1, 100, torch.float32, 2**40, True),
        (1, 100, torch.float32, None, True),
    ):
        monkeypatch.setattr(cli_weights, "_LARGE", large)
        monkeypatch.setattr(runtime, "available_memory", lambda free=free: free)
        model.to(dtype)
        made, told = cli_weights.writing_model(model, None, [1], n_tokens, quiet=True)
        assert (made is not model) is is_packed
        assert (derived_bytes(made) > 0) is is_packed
        assert told == {}


def test_a_note_begins_below_the_text(trained):
    """On a terminal the note clears its line first, so the text must have ended its own."""
    line = [str(one) for one in ("sample", trained, *GREEDY, "--lookup", "4")]
    text = run("sample", trained, *GREEDY, "--format", "json").json
    with screens(is_terminal=True) as (screen, _):
        sys.stderr = screen  # as a terminal has both
        assert main.run(line) == 0
    assert f"{GREEDY[1]}{text['text']}\n\r\x1b[2K24 tokens in " in screen.text
    done = subprocess.run(
        command(*line), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=True
    )
    assert f"{text['text']}\n24 tokens in " in done.stdout.decode()
    # a pipe of its own gets the text and nothing else
    assert run(*line).out == GREEDY[1] + text["text"]


@pytest.mark.skipif("float16" not in HERE, reason="no float16 kernel on this processor")
def test_sums_that_leave_float16_are_told_before_a_word_is_written(monkeypatch):
    for kind in (Columns, Rows):
        plain = kind.product
        monkeypatch.setattr(kind, "product", lambda self, x, plain=plain: plain(self, x) * float("inf"))
    monkeypatch.setattr(copies, "unavailable", lambda *_: None)
    model = build(preset("mini-gpt").spec, Gpt2Init(std=0.1), seed=0)
    with pytest.raises(InputError, match=r"no finite numbers\. float16's sums end at 65,504; take bfloat16"):
        cli_weights.writing_model(model, "float16", [1, 2], 5, quiet=True)
