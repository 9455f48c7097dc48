"""`import unembed`: what a notebook gives by mistake is answered with our errors, and leaves nothing on the disk."""

import re

import numpy as np
import pytest
import torch

import unembed
from unembed.errors import ShapeError, TokenizerError, UsageError
from unembed.model.transformer import Transformer
from unembed.tokenizers.characters import CharacterTokenizer
from unembed.tokenizers.words import WordTokenizer


@pytest.fixture(scope="module")
def model() -> Transformer:
    return unembed.load("mini-gpt")


# What a notebook is given by mistake, and the sentence that mends it.
MISUSED = [
    (lambda m: unembed.load(None), "MODEL is None; give a run folder"),
    (lambda m: unembed.load(3), "MODEL is 3"),
    (lambda m: unembed.load("gpt2", step=3), "only a run folder has checkpoints to choose from"),
    (lambda m: unembed.load("mini-gpt", step=1.5), "step is 1.5; it must be a whole number"),
    (lambda m: unembed.load("mini-gpt", step=-1), "step is -1; it must be a whole number"),
    (lambda m: unembed.load("gpt2", ignore_tensors="a"), r"ignore_tensors is the text 'a', .* Write \['a'\]"),
    (lambda m: unembed.load("gpt2", ignore_tensors=[3]), r"ignore_tensors is \[3\], expected a list of tensors' names"),
    (lambda m: unembed.load("gpt2", ignore_tensors=None), "ignore_tensors is None, expected a list of tensors' names"),
    (
        lambda m: unembed.load("mini-gpt", ignore_tensors=["a"]),
        "mini-gpt: is our own, so none of its tensors is surplus",
    ),
    (lambda m: unembed.count(None), "MODEL is None"),
    (lambda m: unembed.count(["gpt2"]), r"MODEL is \['gpt2'\]"),
    (
        lambda m: unembed.lens("runs/x", "to"),
        r"lens: got the name 'runs/x', expected a model. Open it first: unembed.load\('runs/x'",
    ),
    (lambda m: unembed.lens(m, 5), "lens: text is 5, expected a text"),
    (lambda m: unembed.lens(m, "to", top="3"), "lens: top is '3', expected a whole number"),
    (
        lambda m: unembed.lens(m, "to", statistics="top"),
        r"statistics is the text 'top', expected a list of names. Write \['top'\]",
    ),
    (lambda m: unembed.lens(m, ids=[1], tuned=5), "lens: tuned is 5, expected the path of a lens"),
    (lambda m: unembed.lens(m, ids=[1], normalises="no"), "lens: normalises is 'no', expected True or False"),
    (lambda m: unembed.lens(m, ids=[1], after_attention="no"), "lens: after_attention is 'no', expected True or False"),
    (lambda m: unembed.lens(m, vectors="abc"), r"lens: vectors are no \[d_model\] or \[n, d_model\] of numbers"),
    (lambda m: unembed.lens(m, vectors=[["a"]]), r"lens: vectors are no \[d_model\]"),
    (lambda m: unembed.patch(m, [1, 2], [1, 3], by=5), "patch: by is 5, expected a text"),
    (lambda m: unembed.patch(m, [1, 2], [1, 3], metric=["logit"]), "patch: metric is .*, expected a text"),
    (lambda m: unembed.tying.examine(m, "adam"), "examine: optimizer is 'adam'; give a torch.optim.Optimizer"),
    (lambda m: unembed.tying.examine(m, file=5), "examine: file is 5, expected the path of a MODEL"),
    (
        lambda m: unembed.tying.examine(m, embed=5),
        "examine: embed is 5; give a matrix's name, the tensor or the module",
    ),
    (lambda m: unembed.tying.examine(m, means_tied="no"), "examine: means_tied is 'no', expected True or False"),
    (lambda m: unembed.tying.likeness(m, seed="x"), "likeness: seed is 'x', expected a whole number"),
    *(
        (
            lambda m, given=given: unembed.tying.split_gradient(m, **{"ids": [[1, 2]], "targets": [[2, 3]], **given}),
            message,
        )
        for given, message in (
            (
                {"ids": torch.zeros(1, 0, dtype=torch.long)},
                r"split_gradient: ids are \[1, 0\] of .*; give at least one",
            ),
            ({"ids": [[1, 2], [1]]}, r"split_gradient: ids are no \[batch, pos\] of one length each"),
            ({"ids": "ab"}, r"split_gradient: ids are no \[batch, pos\]"),
            ({"ids": [1, 2]}, r"split_gradient: ids are \[2\] of"),
            ({"targets": [[0.5, 1.0]]}, "split_gradient: targets are .* as whole numbers"),
            ({"mask": [[1, 0]]}, "split_gradient: mask are .* as True or False"),
            ({"accumulate": "2"}, "split_gradient: accumulate is '2', expected a whole number"),
            ({"clip_norm": "2"}, "split_gradient: clip_norm is '2', expected a number"),
            ({"dropout": "x"}, "split_gradient: dropout is 'x', expected a number"),
            ({"dropout": 1.5}, "split_gradient: dropout is 1.5; it must be at least 0 and below 1"),
            ({"seed": "x"}, "split_gradient: seed is 'x', expected a whole number"),
            ({"frequencies": 5}, "split_gradient: frequencies is 5, expected a count for each row"),
            ({"frequencies": ["a"] * 64}, "split_gradient: frequencies is .*, expected a count for each row"),
        )
    ),
    (lambda m: unembed.train(b"to be", out="x"), "train: data is a bytes, expected paths of files or folders"),
    (lambda m: unembed.train({"a": 1}, out="x"), "train: data is a dict, expected paths"),
    (lambda m: unembed.train(["a.txt"], out=None), "train: out is None, expected the path of the run's folder"),
    (lambda m: unembed.train("a.txt", out=""), "out is empty; name the folder"),
    (lambda m: unembed.train("a.txt", out="x", recipe=5), "recipe is 5, expected the name of one. There are: small"),
    (lambda m: unembed.train("a.txt", out="x", recipe=None), "recipe is None, expected the name of one"),
    (lambda m: unembed.train("a.txt", out="x", resume="x"), "train: resume is 'x', expected True or False"),
    *(
        (
            lambda m, dtype=dtype: unembed.load("mini-gpt", dtype=dtype),
            f"dtype is {re.escape(repr(dtype))}; it must be float",
        )
        for dtype in ("float99", "complex64", "float8_e4m3fn", "int64", 5, torch.int8, torch.complex64, [], np.zeros(2))
    ),
    (lambda m: unembed.load("mini-gpt", tokenizer=5), "tokenizer is 5, expected the path of a tokenizer's file"),
    (lambda m: unembed.load("mini-gpt", like="nope"), "mini-gpt: says itself what shape it has; --like nope is for"),
    (lambda m: unembed.load("mini-gpt", like=5), "like is 5, expected the name of a preset"),
    *(
        (
            lambda m, place=place: unembed.convert("mini-gpt", place),
            "the destination is .*, expected the path to write at",
        )
        for place in (None, 5, b"x", [], "")
    ),
    (lambda m: unembed.convert("mini-gpt", "a\0b"), "holds a NUL character"),
    (lambda m: unembed.convert("mini-gpt", "a" * 5000), r"is too long for a path \(5,000 characters\)"),
    (lambda m: unembed.convert("mini-gpt", "x", to=[]), r"to is \[\]; it must be one of hf"),
    (lambda m: unembed.convert("mini-gpt", "x", dtype="float99"), "dtype is 'float99'; it must be float32, float16"),
    (lambda m: unembed.verify_model("mini-gpt", claims=5), "verify_model: claims is 5, expected a list of names"),
    (lambda m: unembed.verify_model("mini-gpt", claims=[5]), r"claims is \[5\], expected a list of names"),
    (lambda m: unembed.verify_model("mini-gpt", claims=[]), "claims is empty, so there is nothing to do"),
    (lambda m: unembed.verify_model("mini-gpt", claims="tie"), r"Write \['tie'\]"),
    (lambda m: unembed.write_report(5), "write_report: run is 5, expected the path"),
    (lambda m: unembed.write_report(None), "write_report: run is None, expected the path"),
    (lambda m: unembed.write_report("runs/x", 5), "write_report: out is 5, expected the path of the file"),
    (lambda m: unembed.lens(m, "to", statistics=5), "lens: statistics is 5, expected a list of names"),
    (lambda m: unembed.lens(m, "to", statistics=[]), "lens: statistics is empty"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "message"), MISUSED, ids=lambda value: value if isinstance(value, str) else "")
def test_misuse_is_answered_with_our_errors(model, call, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        call(model)
    assert list(tmp_path.iterdir()) == []


IDS = "ids: are .*, expected a list of whole numbers"


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("tokenizer", [CharacterTokenizer.from_text("abc"), WordTokenizer(["a", "b"])])
def test_tokenizers_refuse_what_is_no_text_and_what_are_no_ids(tokenizer):
    for text in (5, None, b"a"):
        for parses in (False, True):
            with pytest.raises(TokenizerError, match=f"text: is {text!r}, expected a text"):
                tokenizer.encode(text, parse_specials=parses)
    for ids in (None, "a", [1.5], 5, ["a"], np.array([1.0])):
        with pytest.raises(TokenizerError, match=IDS):
            tokenizer.decode(ids)
    assert tokenizer.decode(np.array([0, 1])) == tokenizer.decode([0, 1]) == tokenizer.decode(torch.tensor([0, 1]))


@pytest.mark.usefixtures("unchecked")
def test_the_model_refuses_what_are_no_ids_and_what_is_no_stream(model):
    for ids in (5, None, "a", [[1]], torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool)):
        for call in (model, model.hidden):
            with pytest.raises(ShapeError, match=r"model: ids are .*, expected a tensor of whole numbers"):
                call(ids)
    for resid in ("x", None, torch.ones(1, 2, model.spec.embedding.d_model, dtype=torch.long), torch.tensor(1.0)):
        with pytest.raises(ShapeError, match=r"unembed: the stream is .*, expected a tensor of numbers"):
            model.unembed(resid)


def test_types_may_be_named_as_the_command_names_them(model, tmp_path):
    for name in ("float32", "float16", "bfloat16", "float64"):
        for given in (name, getattr(torch, name)):
            assert unembed.load("mini-gpt", dtype=given).embed.table.dtype is getattr(torch, name)
    assert unembed.load("mini-gpt", dtype="file").embed.table.dtype is torch.float32
    unembed.convert("mini-gpt", tmp_path / "half", to="native", dtype="float16")
    assert unembed.load(tmp_path / "half", dtype="file").embed.table.dtype is torch.float16
