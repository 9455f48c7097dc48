"""`unembed count`: the numbers of the documents, every way of asking for them, and a run counted like a preset."""

import csv
import json

import msgspec
import pytest

from commands import run
from unembed.model.counts import BYTES_PER_NUMBER, count
from unembed.model.presets import preset

KEYS = ["parameters", "parameters_untied", "table_parameters", "tied", "by_part", "bytes", "flops_per_token"]


def counted(*arguments):
    done = run("count", *arguments, "--format", "json")
    assert (done.code, done.err) == (0, ""), done
    return done.json


def test_worked_example_gpt2():
    found = counted("gpt2")
    assert list(found) == KEYS
    assert found["parameters"] == 124_439_808
    assert found["parameters_untied"] == 163_037_184
    assert found["tied"] is True
    assert found["table_parameters"] == 50_257 * 768
    assert sum(found["by_part"].values()) == found["parameters"]
    assert found["bytes"] == {name: size * 124_439_808 for name, size in BYTES_PER_NUMBER.items()}


def test_worked_example_mini_gpt():
    assert counted("mini-gpt")["parameters"] == 103_680


def test_untied_counts_the_same_model_with_two_tables():
    found = counted("gpt2", "--untied")
    assert found["parameters"] == 163_037_184
    assert found["tied"] is False
    plain, tied = counted("gpt2"), counted("gpt2", "--tied")
    assert {key: tied[key] for key in plain} == plain
    assert set(tied) - set(plain) == {"side_by_side"}


@pytest.mark.parametrize("name", ["mini-gpt", "llama-3.2-1b", "gemma-2-2b", "esm2-8m"])
def test_numbers_are_those_of_the_library(name):
    assert counted(name)["parameters"] == count(preset(name).spec).parameters


def test_a_run_is_counted_by_its_own_description(trained):
    found = counted(trained)
    config = json.loads((trained / "run.json").read_text())["config"]["model"]
    assert found["by_part"]["token_table"] == config["embedding"]["vocab_size"] * config["embedding"]["d_model"]
    checkpoint = next(iter((trained / "checkpoints").iterdir()))
    assert counted(checkpoint) == found


def test_table_has_a_line_for_each_part():
    done = run("count", "gpt2")
    assert "parameters               124,439,808\n" in done.out
    assert "\nby_part\n  token_table            38,597,376\n" in done.out
    assert "tied                     yes\n" in done.out


def test_csv_has_one_row_and_a_column_for_each_part():
    done = run("count", "gpt2", "--format", "csv")
    (row,) = csv.DictReader(done.out.splitlines())
    found = counted("gpt2")
    assert row["parameters"] == "124439808"
    assert row["by_part.mlp"] == "56669184"
    assert row["tied"] == "true"
    assert not any(sign in done.out for sign in '{["')
    flat = {
        f"{name}.{key}" if key else name
        for name, value in found.items()
        for key in (value if isinstance(value, dict) else [""])
    }
    assert set(row) == flat


def test_flops_are_a_whole_number():
    assert type(counted("gpt2")["flops_per_token"]) is int


def test_a_folder_wins_over_a_preset_of_the_same_name(here, trained):
    (here / "gpt2").symlink_to(trained)
    assert counted("gpt2") == counted(trained)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "holds no model under config.model"),
        ("not json", "run.json: is not the JSON that was written there"),
        ('{"config": {"model": {"type": "x"}}}', "run.json|model"),
    ],
)
def test_a_broken_description_is_bad_input(here, content, message):
    (here / "run").mkdir()
    (here / "run" / "run.json").write_text(content)
    done = run("count", "run")
    assert done.code == 3
    assert any(part in done.err for part in message.split("|"))


def test_a_file_is_no_model(here):
    (here / "model.bin").write_bytes(b"\0" * 16)
    done = run("count", "model.bin")
    assert done.code == 3
    assert "model.bin: has 16 bytes; a llama2.c file begins with 28 bytes of numbers." in done.err
    (here / "notes.txt").write_text("no model")
    done = run("count", "notes.txt")
    assert done.code == 3
    assert "notes.txt: this kind of file is no model. A MODEL is a run folder" in done.err


def test_neighbouring_runs_are_proposed(here, trained):
    (here / "tour-2").symlink_to(trained)
    assert "Did you mean tour-2?" in run("count", "toru-2").err


def test_spec_of_a_run_is_the_one_that_trained(trained):
    from unembed.counting import spec_of_model

    plain = json.loads((trained / "run.json").read_text())["config"]["model"]
    assert json.loads(msgspec.json.encode(spec_of_model(trained))) == plain
