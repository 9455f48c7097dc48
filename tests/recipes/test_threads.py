"""A run has as many threads as its products deserve, notes the number, and goes on with it."""

import json

import pytest
import torch

from unembed.checkpoints.load import THREADS_KEY
from unembed.corpora.reading import Reading
from unembed.recipes.nanogpt_cpu import prepare as prepare_nanogpt
from unembed.recipes.start import train
from unembed.recipes.threads import LEAST_FLOPS, asked_threads, choose_threads, largest_product
from unembed.recipes.tour import prepare as prepare_tour

SETTINGS = {"steps": 1, "context_length": 8, "batch_size": 2, "sample_every": 0}


@pytest.fixture
def two_threads(monkeypatch):
    """torch with two threads, whatever this machine has; put back afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("to be or not to be, that is the question\n" * 20)
    return path


def go(text, out, said, *, threads="auto", **settings):
    chosen = {**SETTINGS, **settings}
    train([text], recipe_name="nanogpt-cpu", out=out, settings=chosen, resume=True, threads=threads, say=said.append)
    return json.loads((out / "run.json").read_text())[THREADS_KEY]


def test_worked_example_of_the_largest_product(text):
    """nanoGPT's run: 12 windows of 64 tokens, 128 wide, 512 in the middle; it keeps its threads, and the tour has one."""
    nanogpt = prepare_nanogpt([str(text)], Reading(), {}).config
    assert largest_product(nanogpt) == 2 * 12 * 64 * 128 * 512 >= LEAST_FLOPS
    assert largest_product(prepare_tour([], Reading(), {}).config) < LEAST_FLOPS


def test_products_too_small_for_two_threads_get_one_and_it_is_said(text, tmp_path, two_threads):
    said = []
    assert go(text, tmp_path / "run", said) == torch.get_num_threads() == 1
    assert [line for line in said if line.startswith("threads:")] == [
        "threads: 1, because the products of this model are too small to gain from a second; --threads N sets others"
    ]


def test_large_products_keep_what_torch_has(text, two_threads):
    said = []
    assert choose_threads("auto", prepare_nanogpt([str(text)], Reading(), {}).config, None, "cpu", said.append) == 2
    assert said == []


def test_a_number_that_was_asked_for_holds(text, tmp_path, two_threads):
    said = []
    assert go(text, tmp_path / "asked", said, threads=2) == torch.get_num_threads() == 2
    assert go(text, tmp_path / "left", said, threads=None) == 2
    assert not [line for line in said if line.startswith("threads:")]


def test_a_run_goes_on_with_the_threads_it_began_with(text, tmp_path, two_threads):
    said = []
    go(text, tmp_path / "run", said, threads=2)
    torch.set_num_threads(1)
    assert go(text, tmp_path / "run", said, steps=2) == torch.get_num_threads() == 2
    assert "threads: 2, as when the run began, because another number rounds differently" in said


@pytest.mark.parametrize(
    ("option", "environment", "asked"),
    [
        (None, {}, "auto"),
        (3, {"OMP_NUM_THREADS": "1"}, 3),
        (None, {"OMP_NUM_THREADS": "1"}, None),
        (None, {"MKL_NUM_THREADS": "2"}, None),
        (None, {"OMP_NUM_THREADS": ""}, "auto"),
    ],
)
def test_an_option_goes_before_the_environment_and_that_before_the_run(option, environment, asked):
    assert asked_threads(option, environment) == asked
