"""The benchmark of decoding measures what it says: all contenders make the same ids of the same weights."""

import json

import pytest
import torch

import decode as bench


@pytest.fixture
def tiny(tmp_path):
    """A folder of GPT-2's shape, small."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=97, n_positions=128)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.slow
def test_all_contenders_make_the_same_number_of_ids_and_float32_the_same_ids(tiny, capsys):
    found = bench.measure("tiny", tiny, rounds=2, lookup=4)
    assert found["ids_equal"]["as loaded"]
    assert found["ids_equal"]["float32"]
    assert found["ids_equal"]["float32, 4 guesses"]
    assert {len(values["rounds"]) for values in found["speed_ratios"].values()} == {2}
    assert found["speed_ratios"]["transformers"]["median"] == 1.0
    assert "ids as theirs" in capsys.readouterr().out
    json.dumps(found)


def test_other_ids_in_float32_break_the_claim():
    ratios = {name: {"median": 9.0} for name in ("float32", "float16", "int8")}
    found = {"speed_ratios": ratios, "ids_equal": {"as loaded": True, "float32": True}}
    assert bench.verdicts(found) == {"float32": True, "half": True, "int8": True}
    found["ids_equal"]["float32"] = False
    assert not bench.verdicts(found)["float32"]
    found["speed_ratios"] = {name: {"median": 1.4} for name in ratios}
    found["ids_equal"]["float32"] = True
    assert bench.verdicts(found) == {"float32": False, "half": False, "int8": False}
