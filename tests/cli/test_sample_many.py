"""`unembed sample` in a pipe: prompts from standard input and files, stop strings, the table of candidates."""

import csv
import io
import json

import pytest

import unembed
from commands import run
from unembed.cli.prompts import read_prompts
from unembed.errors import InputError

KEYS = ["prompt", "seed", "prompt_ids", "ids", "text", "logprobs", "stopped", "n_slides"]


class Stdin:
    """Standard input that holds these bytes."""

    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)


def piped(monkeypatch, data, *arguments):
    monkeypatch.setattr("sys.stdin", Stdin(data))
    return run("sample", *arguments)


# --- one prompt from a pipe -------------------------------------------------------------------------------


def test_a_prompt_from_a_pipe_loses_the_line_break_of_echo_and_nothing_else(trained, monkeypatch):
    ask = (trained, "--tokens", "3", "--format", "json")
    wanted = run("sample", *ask, "--prompt", "to be").json
    assert piped(monkeypatch, b"to be\n", *ask, "--prompt", "-").json == wanted
    assert piped(monkeypatch, b"to be", *ask, "--prompt", "-").json == wanted
    two = piped(monkeypatch, b" to be\n\n", *ask, "--prompt", "-").json
    assert two["prompt_ids"] == list(unembed.load(trained).tokenizer.encode(" to be\n").ids)


@pytest.mark.slow
def test_a_shell_pipe_is_that(trained):
    import subprocess

    from commands import command, environment

    done = subprocess.run(
        command("sample", trained, "--prompt", "-", "--tokens", "3"),
        input=b"to be\n",
        env=environment(),
        capture_output=True,
        timeout=600,
        check=True,
    )
    assert done.stdout.decode() == run("sample", trained, "--prompt", "to be", "--tokens", "3").out


# --- many prompts -----------------------------------------------------------------------------------------


def test_many_prompts_give_a_line_each_equal_to_each_alone(trained, tmp_path):
    (tmp_path / "lines.txt").write_text("to be\n\nquestion\n")
    done = run(
        "sample", trained, "--prompts", tmp_path / "lines.txt", "--tokens", "5", "--seed", "7", "--format", "jsonl"
    )
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [list(row) for row in rows] == [KEYS] * 3
    assert [(row["prompt"], row["seed"]) for row in rows] == [("to be", 7), ("", 8), ("question", 9)]
    for row in rows:
        options = ("--prompt", row["prompt"], "--seed", str(row["seed"]), "--tokens", "5", "--format", "json")
        alone = run("sample", trained, *options).json
        assert [row[key] for key in ("prompt_ids", "ids", "text")] == [alone[k] for k in ("prompt_ids", "ids", "text")]
        assert row["logprobs"] == pytest.approx(alone["logprobs"], abs=1e-5)


def test_json_lines_in_json_lines_out(trained, monkeypatch):
    lines = b'{"prompt": "to\\nbe", "seed": 3}\n{"prompt": "or"}\n'
    done = piped(monkeypatch, lines, trained, "--prompts", "-", "--tokens", "2", "--format", "jsonl")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [(row["prompt"], row["seed"]) for row in rows] == [("to\nbe", 3), ("or", 1)]
    alone = run("sample", trained, "--prompt", "to\nbe", "--seed", "3", "--tokens", "2", "--format", "json").json
    assert rows[0]["ids"] == alone["ids"]


def test_every_format_of_many(trained, tmp_path):
    (tmp_path / "p.txt").write_text("to be\nor")
    ask = ("sample", trained, "--prompts", tmp_path / "p.txt", "--tokens", "3")
    columns = run(*ask, "--format", "json").json["samples"]
    assert list(columns) == KEYS
    rows = list(csv.DictReader(io.StringIO(run(*ask, "--format", "csv").out)))
    assert [row["text"] for row in rows] == columns["text"]
    shown = run(*ask).out
    assert shown.split()[:5] == ["samples", "seed", "stopped", "prompt", "text"]
    assert "length" in shown


@pytest.mark.parametrize(
    ("data", "name", "expected"),
    [
        ("a\nb", "x.txt", [("a", 5), ("b", 6)]),
        ("a\r\nb\r\n", "x.txt", [("a", 5), ("b", 6)]),
        ("\na\n", "x.txt", [("", 5), ("a", 6)]),
        ('{"prompt": "a"}\n', "x.txt", [('{"prompt": "a"}', 5)]),
        ('{"prompt": "a"}\n{"seed": 0, "prompt": ""}', "x.jsonl", [("a", 5), ("", 0)]),
        ('{"prompt": "a", "seed": null}', "x.jsonl", [("a", 5)]),
    ],
)
def test_what_a_file_of_prompts_means(tmp_path, data, name, expected):
    (tmp_path / name).write_bytes(data.encode())
    assert read_prompts(str(tmp_path / name), 5) == expected


@pytest.mark.parametrize(
    ("data", "name", "message"),
    [
        (b"", "x.txt", r"x\.txt: holds no prompts; give one a line"),
        (b"\n\n", "x.txt", r"x\.txt: holds no prompts"),
        (b"a\nb\xff", "x.txt", r"x\.txt: byte 3 is not UTF-8"),
        (b'{"prompt": "a"}\n{', "x.jsonl", r'line 2: not JSON \(.*\); expected {"prompt": "To be", "seed": 3}'),
        (b'{"text": "a"}', "x.jsonl", r'line 1: has no text under "prompt"'),
        (b'{"prompt": 3}', "x.jsonl", r'line 1: has no text under "prompt"'),
        (b'["a"]', "x.jsonl", r'line 1: has no text under "prompt"'),
        (b'{"prompt": "a", "sed": 3}', "x.jsonl", r"line 1: has the key 'sed', which is not known"),
        (b'{"prompt": "a", "seed": 1.5}', "x.jsonl", r"line 1: seed is 1\.5"),
        (b'{"prompt": "a", "seed": -1}', "x.jsonl", r"line 1: seed is -1; it must be 0 or more"),
        (None, "x.txt", r"x\.txt: No such file or directory; --prompts takes a file, or - for standard input"),
    ],
)
def test_messages_of_prompts(tmp_path, data, name, message):
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=message):
        read_prompts(str(tmp_path / name), 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--prompts", "x", "--prompt", "a"), "--prompts cannot go with --prompt; give one of them"),
        (
            ("--prompts", "x", "--candidates", "3"),
            "--prompts cannot go with --candidates, which looks into a single text",
        ),
        (("--stop", ""), "stop is ''; a stop string is a text of at least one character"),
        (("--candidates", "0"), "0 is not in the range x>=1"),
    ],
)
def test_what_cannot_go_together(trained, arguments, message):
    done = run("sample", trained, *arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


# --- stop strings and the context -------------------------------------------------------------------------


def test_stop_ends_the_text_and_a_stream_never_shows_it(trained):
    ask = ("--prompt", "to be", "--tokens", "8", "--temperature", "1.5", "--seed", "2")
    free = run("sample", trained, *ask, "--format", "json").json
    stop = free["text"][3:5]
    found = run("sample", trained, *ask, "--stop", stop, "--stop", "~", "--format", "json").json
    assert found["text"] == free["text"][: free["text"].index(stop)]
    assert (found["stopped"], found["ids"]) == ("stop", free["ids"][: len(found["ids"])])
    assert run("sample", trained, *ask, "--stop", stop).out == "to be" + found["text"]


@pytest.mark.parametrize("output_format", ["table", "json", "csv"])
def test_the_end_of_the_context_is_told_once_on_stderr_in_every_format(trained, output_format):
    ask = ("--prompt", "to be or not to", "--format", output_format)
    slid = run("sample", trained, *ask, "--tokens", "30")  # read: 15, 16, then six times from 12 up to 16
    assert slid.err.count("\n") == 1
    assert "the context of 16 tokens was full 6 times; each time its last three quarters were read again" in slid.err
    once = run("sample", trained, *ask, "--tokens", "4")
    assert "was full 1 time; each" in once.err
    stopped = run("sample", trained, *ask, "--tokens", "30", "--past-context", "stop")
    assert stopped.err == "stopped: the context of 16 tokens is full\n"
    assert run("sample", trained, *ask, "--tokens", "30", "--quiet").err == ""


# --- candidates -------------------------------------------------------------------------------------------


def test_candidates_in_every_format(trained):
    ask = ("sample", trained, "--prompt", "to", "--tokens", "3", "--top-k", "2", "--candidates", "4", "--seed", "1")
    found = run(*ask, "--format", "json").json
    plain = run(
        "sample", trained, "--prompt", "to", "--tokens", "3", "--top-k", "2", "--seed", "1", "--format", "json"
    ).json
    assert {key: found[key] for key in plain} == plain
    table = found["candidates"]
    assert table["rule"] == ["kept", "kept", "top_k", "top_k"] * 3
    assert [i for i, drawn in zip(table["id"], table["drawn"], strict=True) if drawn] == found["ids"]
    assert found["steps"]["kept"] == [2, 2, 2]
    lines = [json.loads(line) for line in run(*ask, "--format", "jsonl").out.splitlines()]
    assert [line["id"] for line in lines] == table["id"]
    rows = list(csv.DictReader(io.StringIO(run(*ask, "--format", "csv").out)))
    assert [row["rule"] for row in rows] == table["rule"]
    assert run(*ask).out.count("top_k") == 6
    assert unembed.candidates(unembed.load(trained), "to", tokens=3, top_k=2, top=4, seed=1).to_dict() == found
