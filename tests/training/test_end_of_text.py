"""A07b by the public way: a model that over-fitted one sentence writes it and stops by itself."""

import json

import pytest

import unembed

SENTENCE = "la gata duerme."


@pytest.mark.parametrize("kind", ["jsonl", "files"])
def test_an_over_fitted_sentence_stops_by_itself(tmp_path, kind):
    """Documents are rows of a table, or files of a folder; between them stands an end token, and it is learnt."""
    if kind == "jsonl":
        data = tmp_path / "rows.jsonl"
        data.write_text(f"{json.dumps({'text': SENTENCE})}\n" * 60)
        more = {"column": "text"}
    else:
        data = tmp_path / "folder"
        data.mkdir()
        for number in range(40):
            (data / f"{number:02}.txt").write_text(SENTENCE)
        more = {}
    done = unembed.train(
        data,
        recipe="nanogpt-cpu",
        out=tmp_path / "run",
        steps=60,
        batch_size=4,
        context_length=16,
        eval_every=60,
        checkpoint_every=60,
        sample_every=0,
        training__schedule__warmup_steps=5,
        **more,
    )
    model = unembed.load(done.run)
    written = unembed.generate(model, "la", tokens=40, temperature=0)
    assert (written.values["text"], written.values["stopped"]) == (SENTENCE[2:], "end")
    assert unembed.generate(model, tokens=40, temperature=0).values["text"] == SENTENCE
