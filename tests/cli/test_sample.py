"""`unembed sample`: keys, seeds, the same text by every way of asking, streaming, and what a terminal is spared."""

import json
import math

import pytest
import torch

import unembed
from commands import run

KEYS = ["prompt_ids", "ids", "text", "logprobs", "stopped"]


def sampled(model, *arguments):
    done = run("sample", model, *arguments, "--format", "json")
    assert done.code == 0, done
    return done.json


def test_keys_of_the_contract_and_what_they_hold(trained):
    found = sampled(trained, "--prompt", "to be", "--tokens", "7", "--seed", "3")
    assert [key for key in found if key in KEYS] == KEYS
    assert set(found) - set(KEYS) == {"n_slides"}
    model = unembed.load(trained)
    assert found["prompt_ids"] == list(model.tokenizer.encode("to be").ids)
    assert len(found["ids"]) == len(found["logprobs"]) == 7
    assert found["text"] == model.tokenizer.decode(found["ids"])
    assert found["stopped"] == "length"


def test_logprobs_are_natural_and_of_the_unfiltered_distribution(trained):
    found = sampled(trained, "--prompt", "to be", "--tokens", "3", "--temperature", "0.5", "--top-k", "3")
    model = unembed.load(trained)
    ids = torch.tensor([found["prompt_ids"] + found["ids"]])
    with torch.no_grad():
        scores = model(ids)[0].double().log_softmax(-1)
    n = len(found["prompt_ids"])
    expected = [float(scores[n - 1 + i, chosen]) for i, chosen in enumerate(found["ids"])]
    assert found["logprobs"] == pytest.approx(expected, abs=1e-4)


def test_same_seed_same_text_and_another_seed_another(trained):
    one, again, other = (sampled(trained, "--tokens", "6", "--seed", seed)["ids"] for seed in ("5", "5", "6"))
    assert one == again
    assert one != other


def test_greedy_is_temperature_zero_and_top_k_one(trained):
    ways = [("--greedy",), ("--temperature", "0"), ("--top-k", "1")]
    texts = [sampled(trained, "--prompt", "to", "--tokens", "3", *way)["ids"] for way in ways]
    assert all(ids == texts[0] for ids in texts)


def test_a_stream_to_a_pipe_is_prompt_and_continuation(trained):
    text = sampled(trained, "--prompt", "to be", "--tokens", "4", "--seed", "1")["text"]
    done = run("sample", trained, "--prompt", "to be", "--tokens", "4", "--seed", "1")
    assert (done.code, done.out) == (0, f"to be{text}")


def test_past_the_context_slides_and_says_so_or_stops(trained):
    ask = ("--prompt", "to be or not to", "--tokens", "4")
    found = sampled(trained, *ask, "--greedy")
    assert (len(found["ids"]), found["stopped"], found["n_slides"]) == (4, "length", 1)
    stopped = sampled(trained, *ask, "--past-context", "stop")
    assert stopped["stopped"] == "context"
    assert len(stopped["prompt_ids"]) + len(stopped["ids"]) == 16 + 1
    live = run("sample", trained, *ask)
    assert "the context of 16 tokens was full" in live.err
    assert "stopped: the context of 16 tokens is full" in run("sample", trained, *ask, "--past-context", "stop").err
    assert run("sample", trained, *ask, "--quiet").err == ""


def test_a_terminal_keeps_line_breaks_and_is_spared_the_rest(trained, monkeypatch):
    monkeypatch.setattr("unembed.tokenizers.base.StreamDecoder.feed", lambda self, new: "a\n\x1b[2J\u202e")
    monkeypatch.setattr("unembed.tokenizers.base.StreamDecoder.finish", lambda self: "")
    done = run("sample", trained, "--prompt", "to", "--tokens", "2", is_terminal=True)
    assert done.out == "to" + "a\n\\x1b[2J\\u202e" * 2 + "\n"


def test_no_tokens_are_no_text(trained):
    found = sampled(trained, "--prompt", "to", "--tokens", "0")
    assert (found["ids"], found["text"], found["logprobs"], found["stopped"]) == ([], "", [], "length")


def test_without_a_prompt_something_is_read_that_is_not_the_users(trained):
    found = sampled(trained, "--tokens", "4")
    assert len(found["prompt_ids"]) == 1
    assert all(math.isfinite(p) and p <= 0 for p in found["logprobs"])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--prompt", "안녕"), 3, "안"),
        (("--top-p", "nan"), 2, "top-p is nan"),
        (("--repetition-penalty", "0"), 2, "repetition-penalty is 0"),
        (("--min-p", "2"), 2, "min-p is 2"),
    ],
)
def test_what_cannot_be_sampled(trained, arguments, code, message):
    done = run("sample", trained, *arguments)
    assert (done.code, done.out) == (code, "")
    assert message in done.err


def test_a_checkpoint_folder_is_a_model(trained):
    first, *_, last = sorted((trained / "checkpoints").iterdir())
    ask = ("--prompt", "to", "--tokens", "2", "--greedy")
    assert sampled(last, *ask) == sampled(trained, *ask)
    assert sampled(first, *ask)["logprobs"] != sampled(last, *ask)["logprobs"]


def test_jsonl_and_csv_hold_the_same(trained):
    wanted = sampled(trained, "--prompt", "to", "--tokens", "4")
    line = run("sample", trained, "--prompt", "to", "--tokens", "4", "--format", "jsonl").out
    assert json.loads(line) == wanted
