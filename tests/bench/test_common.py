"""Turns are fair, ratios are paired, and what is written names no machine."""

import json
import socket

import pytest

from common import Timing, make_parser, summary, take_turns, write_json


def test_each_contender_comes_first_equally_often_and_warm_ups_are_not_counted():
    calls = []
    time = iter(range(1000))
    contenders = {name: (lambda name=name: calls.append(name)) for name in "abc"}
    timing = take_turns(contenders, n_rounds=6, calls_per_round=2, n_warmup=1, clock=lambda: next(time))
    assert "".join(calls[:3]) == "abc"
    rounds = ["".join(calls[i : i + 6]) for i in range(3, len(calls), 6)]
    assert rounds == ["aabbcc", "bbccaa", "ccaabb"] * 2
    # the clock ticks once between start and end of a turn of two calls
    assert timing.seconds == {name: [0.5] * 6 for name in "abc"}


def test_ratios_are_formed_within_a_round():
    timing = Timing(seconds={"ours": [1.0, 10.0], "theirs": [2.0, 20.0], "others": [0.5, 10.0]})
    assert timing.speed_ratios("ours") == {"theirs": [2.0, 2.0], "others": [0.5, 1.0]}
    assert timing.rates(5.0)["ours"] == [5.0, 0.5]
    assert summary([2.0, 4.0, 9.0]) == {"median": 4.0, "min": 2.0, "max": 9.0}


def test_json_holds_facts_of_the_machine_but_not_its_name(tmp_path):
    path = tmp_path / "results" / "x.json"
    write_json(path, {"ratio": 1.5})
    written = json.loads(path.read_text(encoding="utf-8"))
    assert written["ratio"] == 1.5
    assert written["machine"].keys() == {"cpu", "cpu_cores", "threads", "system", "python", "torch"}
    assert socket.gethostname() not in json.dumps(written["machine"])
    write_json(None, {"ratio": 1.5})
    assert [p.name for p in tmp_path.rglob("*.json")] == ["x.json"]


def test_options_are_those_of_the_help(capsys):
    options = make_parser("x").parse_args(["--rounds", "3", "--json", "a/b.json"])
    assert (options.rounds, options.threads, str(options.json)) == (3, 2, "a/b.json")
    with pytest.raises(SystemExit):
        make_parser("x").parse_args(["--help"])
    assert "the same for all" in capsys.readouterr().out
