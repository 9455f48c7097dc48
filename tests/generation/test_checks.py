"""What Python lets through, generation does not: every wrong type or number is named before any work, in our own words."""

import numpy as np
import pytest
import torch

import unembed
from oracles.specs import base, changed
from small import small_model
from unembed.errors import InputError, UsageError
from unembed.generation.decode import Continuation, generate_ids, stream_ids
from unembed.generation.sampling import GREEDY, Sampling, check_sampling
from unembed.tokenizers.characters import CharacterTokenizer

# The run-time checks of the tests would name the type first; users have none of them.
pytestmark = pytest.mark.usefixtures("unchecked")


@pytest.fixture(scope="module")
def model():
    found = small_model(changed(base(), embedding__vocab_size=4))
    found.tokenizer = CharacterTokenizer.from_text("abc\n")
    return found


@pytest.mark.parametrize(
    ("prompts", "error", "message"),
    [
        ([[1.0]], UsageError, r"prompt id 0 is 1\.0 \(float\); ids are whole numbers"),
        ([[1, 2.5]], UsageError, r"prompt id 1 is 2\.5 \(float\)"),
        ([[1, True]], UsageError, r"prompt id 1 is True \(bool\)"),
        ([[1, None]], UsageError, r"prompt id 1 is None"),
        ([["a"]], UsageError, r"prompt id 0 is 'a'"),
        ([[[1, 2]]], UsageError, r"prompt id 0 is \[1, 2\] \(list\)"),
        ([[1], 2], UsageError, r"the ids of a prompt are 2; give a list of whole numbers such as \[1, 2\]"),
        ([[1], "ab"], UsageError, r"the ids of a prompt are 'ab'; give a list"),
        ([[1], None], UsageError, r"the ids of a prompt are None"),
        ([torch.tensor([[1, 2]])], UsageError, r"have the shape \[1, 2\]; one prompt is one list"),
        ([torch.tensor(1)], UsageError, r"have the shape \[\]; one prompt is one list"),
        ([torch.tensor([1.0])], UsageError, r"prompt id 0 is tensor\(1\.\) \(Tensor\)"),
        ([np.array([0.5])], UsageError, r"prompt id 0 is .*0\.5"),
        ([[1], []], InputError, "a prompt has no tokens; give some text, or a start token"),
        ([[1], [4]], InputError, "prompt id 4 has no row in the table of 4; ids go from 0 to 3"),
        ([[-1]], InputError, "prompt id -1 has no row"),
        ([[2**70]], InputError, "prompt id 1180591620717411303424 has no row"),
    ],
)
def test_ids_of_a_prompt(model, prompts, error, message):
    with pytest.raises(error, match=message):
        generate_ids(model, prompts, n_tokens=2, sampling=GREEDY, seeds=range(len(prompts)))
    texts = [Continuation(prompt_ids=prompt) for prompt in prompts]
    with pytest.raises(error, match=message):
        list(stream_ids(model, texts, n_tokens=2, sampling=GREEDY, seeds=range(len(prompts))))


@pytest.mark.parametrize(
    "ids", [[1, 2], (1, 2), np.array([1, 2]), np.uint16([1, 2]), torch.tensor([1, 2]), range(1, 3)]
)
def test_whole_numbers_of_any_kind_are_ids(model, ids):
    (text,) = generate_ids(model, [ids], n_tokens=3, sampling=GREEDY, seeds=[np.int64(0)])
    (plain,) = generate_ids(model, [[1, 2]], n_tokens=np.int32(3), sampling=GREEDY, seeds=[0])
    assert (text.prompt_ids, text.ids) == ([1, 2], plain.ids)
    assert {type(i) for i in text.prompt_ids} == {int}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"prompt": None},
            r"the prompt is None; it must be a text. Token ids are ids=\[\.\.\.\], several texts generate_many",
        ),
        ({"prompt": ["a", "b"]}, r"the prompt is \['a', 'b'\] \(list\); it must be a text"),
        ({"prompt": b"a"}, r"the prompt is b'a' \(bytes\)"),
        ({"prompt": 3}, r"the prompt is 3; it must be a text"),
        ({"prompt": "a", "ids": [1]}, r"generate: give either a prompt or ids, not both"),
        ({"tokens": -1}, r"tokens is -1; it must be 0 or more, a whole number"),
        ({"tokens": 2.5}, r"tokens is 2\.5 \(float\)"),
        ({"tokens": "5"}, r"tokens is '5'"),
        ({"tokens": True}, r"tokens is True \(bool\)"),
        ({"tokens": None}, r"tokens is None"),
        ({"seed": -1}, r"seed is -1; it must be 0 or more, and below 2\*\*63"),
        ({"seed": 1.0}, r"seed is 1\.0 \(float\)"),
        ({"seed": None}, r"seed is None"),
        ({"seed": 2**63}, r"seed is 9223372036854775808"),
        ({"past_context": "wrap"}, r"past_context is 'wrap'; it must be 'slide' or 'stop'"),
        ({"past_context": ["stop"]}, r"past_context is \['stop'\] \(list\)"),
        ({"temperature": "hot"}, r"temperature is 'hot'; it must be 0 \(greedy\) or above"),
        ({"temperature": None}, r"temperature is None"),
        ({"temperature": True}, r"temperature is True"),
        ({"top_k": 2.0}, r"top-k is 2\.0; it must be at least 1, a whole number"),
        ({"top_k": "2"}, r"top-k is '2'"),
        ({"top_k": True}, r"top-k is True"),
        ({"top_p": "all"}, r"top-p is 'all'; it must lie between 0 and 1"),
        ({"min_p": [0.1]}, r"min-p is \[0\.1\]"),
        ({"repetition_penalty": "2"}, r"repetition-penalty is '2'; it must be above 0"),
    ],
)
def test_options_of_generate(model, options, message):
    given = {"prompt": "a", "tokens": 2} | options
    if "ids" in given and "prompt" not in options:
        given.pop("prompt")
    with pytest.raises(UsageError, match=message):
        unembed.generate(model, **given)


def test_numbers_of_numpy_are_options():
    sampling = Sampling(temperature=np.float32(0.5), top_k=np.int64(3), top_p=np.float64(0.9), min_p=0)
    assert check_sampling(sampling) is sampling


def test_what_is_no_model():
    for wrong in ("runs/tour", None, torch.nn.Linear(2, 2)):
        with pytest.raises(UsageError, match=r"the model is .*; give what unembed.load\(...\) returns"):
            unembed.generate(wrong, "a")
        with pytest.raises(UsageError, match=r"the model is .*; give what unembed.load\(...\) returns"):
            generate_ids(wrong, [[1]], n_tokens=1, sampling=GREEDY, seeds=[0])


@pytest.mark.parametrize(
    ("prompts", "options", "message"),
    [
        ("abc", {}, r"generate_many: prompts is 'abc'; give a list of texts"),
        (None, {}, r"generate_many: prompts is None"),
        (["a", 1], {}, r"the prompt is 1; it must be a text"),
        (["a", [1]], {}, r"the prompt is \[1\] \(list\)"),
        (["a", "b"], {"seeds": [1]}, r"2 prompts but 1 seeds; give one seed for each prompt"),
        (["a"], {"seeds": 1}, r"seeds is 1; give a list with one whole number for each prompt"),
        (["a"], {"seeds": ["1"]}, r"seed is '1'"),
    ],
)
def test_many_prompts(model, prompts, options, message):
    with pytest.raises(UsageError, match=message):
        unembed.generate_many(model, prompts, tokens=1, **options)


def test_many_prompts_give_what_each_gives_alone(model):
    prompts = ["a", "", "abcabc", "c"] * 10  # more than grow together
    found = unembed.generate_many(model, prompts, tokens=4, temperature=2.0, seed=5, stop=["ab"]).tables["samples"]
    assert found["prompt"].tolist() == prompts
    assert found["seed"].tolist() == list(range(5, 45))
    for row in found.rows()[::9]:
        alone = unembed.generate(model, row["prompt"], tokens=4, temperature=2.0, seed=row["seed"], stop=["ab"]).values
        assert {name: row[name] for name in ("prompt_ids", "ids", "text", "stopped")} == {
            name: alone[name] for name in ("prompt_ids", "ids", "text", "stopped")
        }
    assert unembed.generate_many(model, [], tokens=1).tables["samples"].n_rows == 0
    last = unembed.generate_many(model, ["a", "b"], tokens=1, seed=2**63 - 1).tables["samples"]
    assert last["seed"].tolist() == [2**63 - 1, 0]


def test_ids_need_no_tokenizer_and_a_prompt_longer_than_the_context_is_none_of_our_errors():
    bare = small_model()
    found = unembed.generate(bare, ids=torch.tensor([1, 2] * 20), tokens=3).values
    assert (len(found["ids"]), found["text"], found["n_slides"]) == (3, None, 1)
    stopped = unembed.generate(bare, ids=[1, 2] * 20, tokens=3, past_context="stop").values
    assert (stopped["ids"], stopped["stopped"]) == ([], "context")


def test_ids_that_no_token_has_may_be_read_but_are_never_written():
    bare = small_model()
    bare.tokenizer = CharacterTokenizer.from_text("abc")
    found = unembed.generate(bare, ids=[12, 1, 11], tokens=20, temperature=5.0).values
    assert max(found["ids"]) < 3
    assert found["text"] == bare.tokenizer.decode(found["ids"])
