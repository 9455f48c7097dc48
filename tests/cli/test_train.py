"""`unembed train`: its JSON, its two streams, where a run goes, how it goes on, and what it refuses."""

import json

import pytest

from commands import command, environment, run
from unembed.model.counts import count
from unembed.model.presets import preset

KEYS = [
    "run",
    "step",
    "tokens",
    "seconds",
    "tokens_per_second",
    "val_loss_nats",
    "val_bits_per_byte",
    "parameters",
    "context_length",
]
# The contract lets keys be added: when the validation loss was measured, where the best lies, and why the run ended.
ADDED = ["val_step", "best_step", "best_val_loss_nats", "stopped"]
SMALL = ("--recipe", "nanogpt-cpu", "--set", "context_length=8", "--set", "batch_size=2", "--set", "eval_every=2")


def train(*arguments, steps=2):
    return run("train", *arguments, *SMALL, "--steps", steps)


def description(path):
    return json.loads((path / "run.json").read_text(encoding="utf-8"))


def metrics(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def test_json_alone_on_stdout_with_the_keys_of_the_contract(here, text_file):
    done = train(text_file, "--out", "run", "--format", "json")
    assert done.code == 0, done
    found = done.json
    assert list(found) == KEYS + ADDED
    assert found["run"] == str(here / "run")
    assert (found["step"], found["tokens"], found["context_length"]) == (2, 2 * 2 * 8, 8)
    assert found["val_loss_nats"] == metrics(here / "run")[-1]["loss_nats"]
    assert found["tokens_per_second"] == found["tokens"] / found["seconds"]
    vocab_size = len(set(text_file.read_text()))
    assert found["parameters"] == count(preset("nanogpt-cpu").spec).parameters - 128 * (
        preset("nanogpt-cpu").spec.embedding.vocab_size - vocab_size + 64 - 8
    )
    assert "step 2/2" in done.err
    assert "next: unembed sample" in done.err
    words = " ".join(SMALL)
    given = f"unembed train {text_file} --out run --format json {words} --steps 2"
    assert description(here / "run")["command"] == given


def test_profile_says_where_the_time_went(here, text_file):
    done = train(text_file, "--out", "run", "--profile", "--format", "json")
    assert done.code == 0, done
    found = done.json
    assert list(found) == [*KEYS, *ADDED, "profile"]
    profile = found["profile"]
    assert {"forward", "loss", "loss_backward", "backward", "optimizer", "data", "evaluation", "saving"} <= set(
        profile["part"]
    )
    assert sum(profile["share"]) == pytest.approx(1.0)
    assert sum(profile["seconds"]) >= found["seconds"]
    assert "profile: a step takes " in done.err
    assert "advice: " in done.err


def test_a_profile_for_people_is_in_milliseconds_and_muon_is_named(here, text_file):
    done = train(text_file, "--out", "run", "--profile", "--set", "optimizer=muon")
    assert done.code == 0, done
    lines = done.out.split("profile\n")[1].splitlines()
    assert lines[0].split() == ["part", "milliseconds", "[ms]", "share"]
    assert lines[1:]
    assert not [line for line in lines[1:] if "e-" in line]
    assert "optimizer: Muon for the blocks' matrices, learning rate " in done.err
    assert done.err.index("optimizer: Muon") < done.err.index("training: ")
    assert "optimizer: " not in train(text_file, "--out", "plain").err


@pytest.mark.slow
def test_quiet_says_nothing_but_the_result(here, text_file):
    done = train(text_file, "--out", "run", "--quiet", "--format", "json")
    assert (done.code, done.err) == (0, "")
    assert list(done.json) == KEYS + ADDED


@pytest.mark.slow
def test_runs_without_a_place_get_the_next_free_number(here, text_file):
    for name in ("nanogpt-cpu", "nanogpt-cpu-2"):
        done = train(text_file, "--quiet", "--format", "json", steps=1)
        assert done.json["run"] == str(here / "runs" / name)


def test_an_existing_run_is_refused_and_left_alone(trained, text_file):
    before = (trained / "run.json").read_bytes(), (trained / "metrics.jsonl").read_bytes()
    done = train(text_file, "--out", trained)
    assert done.code == 3
    assert "holds a run already. Go on with it by --resume, or choose another folder with --out" in done.err
    assert before == ((trained / "run.json").read_bytes(), (trained / "metrics.jsonl").read_bytes())


def test_resume_begins_reports_and_goes_on(here, text_file):
    begun = train(text_file, "--out", "run", "--resume", "--quiet", "--format", "json")
    assert (begun.code, begun.json["step"]) == (0, 2)
    again = train("--out", "run", "--resume", "--format", "json")
    assert again.code == 0, again
    assert "the run is finished at step 2" in again.err
    assert again.json["step"] == 2
    assert again.json["val_loss_nats"] == begun.json["val_loss_nats"]
    on = train("--out", "run", "--resume", "--format", "json", steps=3)
    assert (on.code, on.json["step"]) == (0, 3), on
    assert "going on after step 2" in on.err
    assert [m["step"] for m in metrics(here / "run") if m["split"] == "val"] == [0, 2, 3]


def test_a_resumed_run_cannot_become_another(trained):
    done = run("train", "--out", trained, "--resume", "--set", "tied=false")
    assert done.code == 3
    assert "a run cannot change its model, its seed or its init" in done.err


@pytest.mark.slow
def test_settings_reach_the_run(here, text_file):
    chosen = {"seed": 7, "learning_rate": 0.002, "weight_decay": 0.2, "dropout": 0.1, "accumulate": 2, "tied": False}
    words = [part for name, value in chosen.items() for part in ("--set", f"{name}={json.dumps(value)}")]
    done = train(text_file, "--out", "run", "--format", "json", *words, steps=1)
    assert done.code == 0, done
    config = description(here / "run")["config"]
    training = config["training"]
    assert config["seed"] == 7
    assert (training["dropout"], training["accumulate"]) == (0.1, 2)
    assert training["schedule"]["peak"] == 0.002
    assert training["schedule"]["floor"] == pytest.approx(0.0002)
    assert training["optimizer"]["weight_decay"] == 0.2
    assert config["model"]["head"]["type"] == "untied"
    assert done.json["tokens"] == 1 * 2 * 2 * 8
    tied = train(text_file, "--out", "tied", "--quiet", "--format", "json", steps=1).json["parameters"]
    assert done.json["parameters"] == tied + config["model"]["embedding"]["vocab_size"] * 128


@pytest.mark.slow
def test_one_column_of_a_table_and_line_ends(here):
    (here / "rows.csv").write_text("id,text\n" + "".join(f"{i},to be or not to be\n" for i in range(60)))
    (here / "lines.txt").write_bytes(b"to be or not to be\r\n" * 60)
    asked = {
        "column": ("rows.csv", "--column", "text"),
        "keep": ("lines.txt", "--newlines", "keep"),
        "lf": ("lines.txt", "--newlines", "lf"),
    }
    for name, arguments in asked.items():
        done = train(*arguments, "--out", name, "--quiet", steps=1)
        assert done.code == 0, done
    found = {name: description(here / name)["data"] for name in asked}
    assert [data["characters"] for data in found.values()] == [60 * 18, 60 * 20, 60 * 19]
    assert found["column"]["documents"] == 60


def test_a_loss_that_is_not_finite_stops_with_its_own_code(here, text_file):
    words = (
        "--set",
        "learning_rate=1e38",
        "--set",
        "training.schedule.warmup_steps=0",
        "--set",
        "training.clip_norm=null",
    )
    done = train(text_file, "--out", "run", "--format", "json", *words, steps=20)
    assert done.code == 6, done
    assert "not finite" in done.err
    assert "Try a lower learning_rate" in done.err
    assert done.out == ""
    assert (here / "run" / "checkpoints" / "step-000000").is_dir()


def test_a_text_shorter_than_a_window_is_refused(here):
    (here / "short.txt").write_text("to be")
    done = train("short.txt", "--out", "run")
    assert done.code == 3, done
    assert "Traceback" not in done.err


@pytest.mark.slow
def test_paths_with_spaces_are_quoted_in_what_comes_next(here, text_file):
    done = train(text_file, "--out", "my run", steps=1)
    assert f"unembed sample '{here}/my run'" in done.err
    assert "--out 'my run'" in description(here / "my run")["command"]


def test_a_terminal_gets_one_live_line(here, text_file):
    done = run("train", text_file, "--out", "run", *SMALL, "--steps", "2", is_terminal=True)
    live = [part for part in done.err.split("\r") if part.startswith("\x1b[2Kstep ")]
    assert live[-1].startswith("\x1b[2Kstep 2/2")
    assert all(len(part) < 100 for part in live)


@pytest.mark.slow
def test_a_gone_reader_of_the_progress_does_not_end_the_training(tmp_path, text_file):
    import subprocess

    process = subprocess.Popen(
        command("train", text_file, "--out", tmp_path / "run", *SMALL, "--steps", "2", "--format", "json"),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stderr.close()
    out = process.stdout.read()
    assert process.wait(300) == 0
    assert json.loads(out)["step"] == 2


def test_other_data_on_the_way_is_said_even_when_quiet(here, text_file):
    assert train(text_file, "--out", "run").code == 0
    other = here / "other.txt"
    other.write_text("something else entirely\n")
    done = train(other, "--out", "run", "--resume", "--quiet", steps=3)
    assert done.code == 0, done
    assert f"warning: run goes on with its own data ({text_file.name}) and recipe (nanogpt-cpu)" in done.err
    assert "other.txt is not read" in done.err
    assert train(text_file, "--out", "run", "--resume", "--quiet", steps=3).err == ""


def test_what_contradicts_the_run_that_goes_on_is_refused(here, trained):
    done = run("train", "no-such.txt", "--out", trained, "--resume")
    assert done.code == 2
    assert "there is no such file or folder" in done.err
    assert "goes on with its own data" in done.err
    done = run("train", "--out", trained, "--resume", "--recipe", "small")
    assert done.code == 2
    assert "its recipe is 'nanogpt-cpu', not 'small'" in done.err


def test_more_threads_than_the_machine_can_give_are_refused(here, text_file):
    done = train(text_file, "--out", "run", "--threads", "99999")
    assert done.code == 2
    assert "threads is 99999; it must be at most" in done.err
    assert not (here / "run").exists()
