"""Thousands of broken files of every format: only our own errors, each within a second and little memory (A32, A33)."""

import pytest

from checkpoints import fuzz
from checkpoints.fuzz_formats import FORMATS


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_property_broken_files_give_our_errors_alone(tmp_path, name):
    found = fuzz.run(name, 5_000, tmp_path)
    assert sum(found.values()) == 5_000
    assert found["refused"] > 1_000  # the mutations reach what is checked
    assert found["read"] > 50  # and not all of them the first bytes


@pytest.mark.long
@pytest.mark.parametrize("name", FORMATS)
def test_property_two_hundred_thousand_broken_files(tmp_path, name):
    assert sum(fuzz.run(name, 200_000, tmp_path).values()) == 200_000


def test_a_reader_that_fails_or_grows_is_found(tmp_path, monkeypatch):
    """The net itself: a foreign error, a slow and a greedy reader are each reported with the mutation's number."""

    def foreign(path):
        raise KeyError("x")

    kept = []

    def greedy(path):
        kept.append(b"x" * 2**28)  # touched, unlike zeros

    seeds = [b"abcdef"]
    for read, said in ((foreign, "3: KeyError: 'x'"), (greedy, "MiB more than before")):
        calls = iter(range(99))
        form = fuzz.Format("m", lambda _: seeds, lambda path, read=read, calls=calls: next(calls) and read(path))
        assert any(said in fault for fault in fuzz._faults(form, "net", 3, 1, tmp_path))
    monkeypatch.setattr(fuzz, "SECONDS", -1.0)
    assert any(
        fault.endswith(" s") for fault in fuzz._faults(fuzz.Format("m", lambda _: seeds, str), "net", 0, 1, tmp_path)
    )


def test_mutations_are_a_function_of_name_and_number():
    seeds = [b"abc" * 99, b"xyz" * 50]
    made = [fuzz.mutations(seeds, "x", index, is_text=False) for index in range(50)]
    assert made == [fuzz.mutations(seeds, "x", index, is_text=False) for index in range(50)]
    assert len(set(made)) > 45
