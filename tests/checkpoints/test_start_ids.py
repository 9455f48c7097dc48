"""What a text without a prompt begins with: recorded in run.json, or something that the training ids hold."""

import json
import shutil

import numpy as np
import pytest

import unembed
from unembed.checkpoints.run.folder import RunFolder
from unembed.checkpoints.run.start_ids import start_ids
from unembed.corpora.shards import ShardWriter
from unembed.errors import CheckpointError
from unembed.tokenizers.characters import CharacterTokenizer
from unembed.tokenizers.words import WordTokenizer

WITH_END = CharacterTokenizer.from_text("ab\n .", has_end=True)  # \n 0, space 1, . 2, a 3, b 4, <end> 5


def run_with(tmp_path, train, tokenizer=WITH_END, **description):
    """A run folder with these training ids; the held-out ids end with the end token, as a file in one piece does."""
    with RunFolder.create(tmp_path / "run", description=description) as run:
        with ShardWriter(run.path / "data", vocab_size=tokenizer.vocab_size, tokenizer="f") as writer:
            writer.append("train", np.array(train))
            writer.append("val", np.array([0, tokenizer.end_id or 0]))
        return run


@pytest.mark.parametrize(
    ("train", "expected"),
    [
        ([3, 4, 5, 3, 0], 5),
        ([3, 4, 1, 0, 3], 0),  # the end token stands in the held-out part alone
        ([3, 2, 1, 3], 1),
        ([3, 4, 2, 3], 2),
        ([4, 3, 3], 4),
    ],
)
def test_the_first_beginning_that_training_has_seen(tmp_path, train, expected):
    assert start_ids(run_with(tmp_path, train), WITH_END) == (expected,)


def test_words_begin_after_the_end_of_a_sentence_and_never_after_an_unknown_word(tmp_path):
    with_stop = WordTokenizer(["sun", ".", "rises"])
    assert start_ids(run_with(tmp_path / "a", [0, 2, 1, 0], with_stop), with_stop) == (1,)
    without = WordTokenizer(["sun", "rises"])
    assert start_ids(run_with(tmp_path / "b", [1, 0, without.unknown_id], without), without) == (1,)


def test_what_run_json_records_comes_first(tmp_path):
    assert start_ids(run_with(tmp_path, [3, 5], start_ids=[4, 3]), WITH_END) == (4, 3)


def test_a_run_without_its_data_tells_nothing(tmp_path):
    run = run_with(tmp_path, [3, 4])
    shutil.rmtree(run.path / "data")
    assert start_ids(run, WITH_END) is None


@pytest.mark.parametrize("recorded", ["a", [], [1.0], [True], [6], [-1], {"a": 1}, 3])
def test_messages(tmp_path, recorded):
    run = run_with(tmp_path, [3], start_ids=recorded)
    with pytest.raises(
        CheckpointError, match=r"run.json: start_ids is .*, expected a list of ids from 0 to 5: what a text"
    ):
        start_ids(run, WITH_END)


def test_a_trained_run_is_sampled_from_a_trained_row(tmp_path):
    """A text in one piece: its only end token is held out, so no text may begin there."""
    (tmp_path / "text.txt").write_text("to be or not to be, that is the question\n" * 60)
    small = {"context_length": 8, "batch_size": 2, "eval_every": 2, "steps": 2}
    unembed.train(tmp_path / "text.txt", recipe="nanogpt-cpu", out=tmp_path / "run", **small)
    model = unembed.load(tmp_path / "run")
    described = json.loads((tmp_path / "run" / "run.json").read_text())
    expected = tuple(described["start_ids"]) if "start_ids" in described else model.start_ids
    assert model.start_ids == expected
    train = np.fromfile(tmp_path / "run" / "data" / "train.bin", dtype=np.uint16)
    assert set(model.start_ids) <= set(train.tolist())
    assert unembed.generate(model, tokens=3).values["prompt_ids"] == list(model.start_ids)
