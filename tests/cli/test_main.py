"""Exit codes, error messages, gone readers, interruption, and what an import costs: the frame around every command."""

import errno
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from commands import Done, command, environment, run, screens, spawn
from unembed import errors
from unembed.cli import main

TINY = ("--recipe", "nanogpt-cpu", "--set", "context_length=16", "--set", "batch_size=4", "--set", "eval_every=1000")

# One line for each branch of the tree in errors.py, and for what comes from outside it: see contract.md.
RAISED = [
    (errors.UnembedError("our own"), 1, "error: our own"),
    (errors.UsageError("no setting of that name"), 2, "error: no setting of that name"),
    (click.UsageError("no such option"), 2, "error: no such option"),
    (errors.InputError("cannot be used"), 3, "error: cannot be used"),
    (errors.SpecError("contradicts itself"), 3, "error: contradicts"),
    (errors.ShapeError("wrong width"), 3, "error: wrong width"),
    (errors.TokenizerError("unknown character"), 3, "error: unknown"),
    (errors.CorpusError("empty file"), 3, "error: empty"),
    (errors.CheckpointError("no tensor"), 3, "error: no tensor"),
    (errors.TapError("no such step"), 3, "error: no such"),
    (errors.RunError("in the way"), 3, "error: in the way"),
    (FileNotFoundError(errno.ENOENT, "No such file or directory", "x.txt"), 3, "error: x.txt: No such file"),
    (PermissionError(errno.EACCES, "Permission denied", "x.txt"), 3, "error: x.txt: Permission denied"),
    (errors.ResourceError("too big"), 4, "error: too big"),
    (MemoryError(), 4, "error: out of memory. Try a smaller batch_size"),
    (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 9 bytes"), 4, "error: out of memory"),
    (OSError(errno.ENOSPC, "No space left on device", "runs/x"), 4, "error: runs/x: No space left"),
    (errors.PeerLostError("process 1 of 2 has lost another one"), 4, "error: process 1 of 2"),
    (errors.UnsafeError("would run code"), 5, "error: would run code"),
    (errors.NotFiniteError("step 3: loss nan"), 6, "error: step 3: loss nan"),
    (errors.Interrupted("saved at step 3"), 130, "error: saved at step 3"),
    (KeyboardInterrupt(), 130, "error: interrupted"),
    (RuntimeError("a fault\nof ours"), 1, "error: this is a fault of unembed's: RuntimeError: a fault\n"),
]


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException, *, is_terminal: bool = False) -> Done:
    """Runs a command whose work raises the error."""

    def fail(model, **options):
        raise error

    monkeypatch.setattr("unembed.counting.spec_of_model", fail)
    monkeypatch.delenv("UNEMBED_TRACEBACK", raising=False)
    return run("count", "gpt2", is_terminal=is_terminal)


@pytest.mark.parametrize(("error", "code", "message"), RAISED, ids=lambda value: type(value).__name__)
def test_exit_code_and_message_of_each_branch(monkeypatch, error, code, message):
    done = raising(monkeypatch, error)
    assert done.code == code
    assert done.out == ""
    assert done.err.startswith(message)
    assert "Traceback" not in done.err


def test_every_branch_of_the_tree_has_a_line():
    named = {type(error) for error, _, _ in RAISED}
    tree = {
        value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.UnembedError)
    }
    assert tree <= named


def test_every_exit_code_is_documented():
    assert {code for _, code, _ in RAISED} | {0} == set(main.EXIT_CODES)


def test_a_full_accelerator_is_out_of_resources(monkeypatch):
    full = type("OutOfMemoryError", (RuntimeError,), {})
    assert raising(monkeypatch, full("CUDA out of memory")).code == 4


def test_message_is_six_lines_at_most(monkeypatch):
    done = raising(monkeypatch, errors.InputError("\n".join(f"line {i}" for i in range(20))))
    lines = done.err.splitlines()
    assert len(lines) == main.MOST_LINES
    assert lines[0] == "error: line 0"
    assert lines[-1] == "..."


def test_a_fault_of_ours_says_how_to_see_it_and_shows_it_when_asked(monkeypatch):
    done = raising(monkeypatch, ZeroDivisionError("division by zero"))
    assert "Set UNEMBED_TRACEBACK=1 to see where" in done.err
    monkeypatch.setattr("unembed.counting.spec_of_model", lambda model, **options: 1 // 0)
    monkeypatch.setenv("UNEMBED_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        run("count", "gpt2")


def test_hostile_names_in_messages_are_spelled_out(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    done = raising(monkeypatch, errors.InputError("bad\x1b[31mname\u202e.txt\r\nnext"), is_terminal=True)
    shown = done.err.removeprefix("\r\x1b[2K")
    assert shown == "error: bad\\x1b[31mname\\u202e.txt\nnext\n"


def test_usage_errors_name_the_help_page_to_read():
    assert run("count").err.endswith("Try 'unembed count --help'.\n")
    assert run("zzz").err.endswith("Try 'unembed --help'.\n")


def test_no_arguments_show_the_help_and_count_as_wrong_usage():
    done = run()
    assert done.code == 2
    assert done.out == ""
    assert "Train Mini-GPT on a small grammar" in done.err


@pytest.mark.parametrize("name", ["--help", "-h"])
def test_help_goes_to_stdout(name):
    done = run(name)
    assert (done.code, done.err) == (0, "")
    assert all(f"\n  {command} " in done.out for command in main.COMMANDS)


@pytest.mark.parametrize("name", main.COMMANDS)
def test_help_of_each_command_has_examples_that_parse(name):
    done = run(name, "--help")
    assert done.code == 0
    examples = [line.strip() for line in done.out.splitlines() if line.strip().startswith("unembed ")]
    assert examples, done.out
    import shlex

    for line in examples:
        words = shlex.split(re.split(" [<>|] ", line)[0])[1:]  # as a shell would take it
        parsed = main.cli.get_command(click.Context(main.cli), words[0])
        parsed.make_context(words[0], words[1:])  # raises for an option that does not exist


def test_summary_of_each_command_is_one_line_and_the_module_exists():
    for name, (module, summary) in main.COMMANDS.items():
        assert module == f"unembed.cli.{name.replace('-', '_')}"
        assert summary.endswith(".")
        assert len(summary) < 72


def test_version():
    done = run("--version")
    assert done.code == 0
    assert done.out.startswith("unembed, version ")


def test_the_code_that_a_command_exits_with_is_kept(monkeypatch):
    monkeypatch.setattr("unembed.counting.spec_of_model", lambda model, **options: click.get_current_context().exit(3))
    assert run("count", "gpt2").code == 3


def test_main_leaves_with_the_code(monkeypatch):
    with screens(), pytest.raises(SystemExit) as leaving:
        main.main(["zzz"])
    assert leaving.value.code == 2


# --- as a process of its own -----------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [("--help",), ("count", "gpt2"), ("count", "gpt2", "--format", "json")])
def test_a_reader_that_has_gone_is_no_error(arguments):
    process = subprocess.Popen(command(*arguments), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()  # what `| head -0` does
    assert process.stderr.read() == b""
    assert process.wait(60) == 0


@pytest.mark.parametrize("closing", [">&-", "2>&-", ">&- 2>&-", "<&-"])
def test_streams_that_whoever_started_us_has_closed(closing):
    line = f"{' '.join(command('count', 'gpt2'))} {closing}"
    done = subprocess.run(["sh", "-c", line], env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("124,439,808" in done.stdout) == (closing in ("2>&-", "<&-"))


def test_a_full_disk_behind_stdout_is_out_of_resources():
    done = subprocess.run(
        ["sh", "-c", f"{' '.join(command('count', 'gpt2', '--format', 'json'))} > /dev/full"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4
    assert "No space left on device" in done.stderr
    assert len(done.stderr.splitlines()) == 1


MODULES = "import sys; from unembed.cli import main; code = main.run({}); print(*sorted(sys.modules), file=sys.stderr)"


def modules_after(*arguments: str) -> set[str]:
    """The modules in memory when a command has ended."""
    script = MODULES.format(list(arguments))
    done = subprocess.run([sys.executable, "-c", script], env=environment(), capture_output=True, check=True)
    return set(done.stderr.decode().splitlines()[-1].split())


@pytest.mark.parametrize("arguments", [("--help",), *((name, "--help") for name in main.COMMANDS)], ids=" ".join)
def test_help_imports_neither_torch_nor_numpy(arguments):
    found = modules_after(*arguments)
    assert "click" in found
    assert not found & {"torch", "numpy", "msgspec", "altair", "rich", "tokenizers", "unembed.results"}


WRONG = [
    ("zzz",),
    ("--zzz",),
    *((name, "--zzz") for name in main.COMMANDS),
    *((name,) for name in ("sample", "count", "report", "completion", "inspect", "verify", "convert")),
    ("count", "gtp2"),
    ("count", "gpt2", "--format", "xml"),
    ("sample", "x", "--seed", "-1"),
    ("train", "x.txt", "--newlines", "crlf"),
    ("completion", "bash"),
]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_a_wrong_command_line_imports_no_torch(arguments):
    """Who mistypes an option must not wait seconds for a library to be told so."""
    assert not modules_after(*arguments) & {"torch", "numpy", "altair"} - (
        {"numpy"} if arguments[0] == "count" else set()
    )


def test_count_imports_no_torch():
    assert "torch" not in modules_after("count", "gpt2")


def test_import_of_the_package_is_lazy():
    code = "import sys, unembed; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, check=True)
    assert not set(done.stdout.decode().split()) & {"torch", "numpy", "click"}


def test_completion_offers_commands_and_options():
    words = {"_UNEMBED_COMPLETE": "bash_complete", "COMP_CWORD": "1"}
    assert "plain,count" in spawn(env={**words, "COMP_WORDS": "unembed co"}).out
    assert "plain,--untied" in spawn(env={**words, "COMP_WORDS": "unembed count --un", "COMP_CWORD": "2"}).out


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_run_that_is_stopped_has_saved_and_says_how_to_go_on(tmp_path, text_file, number):
    out = tmp_path / "run"
    process = subprocess.Popen(
        command("train", text_file, "--out", out, *TINY, "--set", "training.log_every=1", "--steps", "100000"),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    wait_for_lines(out / "metrics.jsonl", 3, process)
    process.send_signal(number)
    err = process.stderr.read().decode()
    assert process.wait(120) == 130
    assert "is saved" in err
    assert "--resume" in err
    assert "Traceback" not in err
    step = int(err.rpartition("after step ")[2].split(",")[0])
    assert (out / "checkpoints" / f"step-{step:06d}").is_dir()


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_interruption_before_training_has_begun(tmp_path):
    code = "import sys; from unembed.cli import main; import unembed.counting as c\n"
    code += "def stop(model, **options): raise KeyboardInterrupt\nc.spec_of_model = stop\nsys.exit(main.run(['count', 'gpt2']))"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, check=False)
    assert done.returncode == 130
    assert done.stderr.decode().strip() == "error: interrupted"


def wait_for_lines(path: Path, n: int, process: subprocess.Popen) -> None:
    """Waits until a file has n lines: the run has begun its steps."""
    deadline = time.monotonic() + 300
    while not path.is_file() or path.read_bytes().count(b"\n") < n:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline, "no steps in 300 s"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("--help",), *((name, "--help") for name in main.COMMANDS)], ids=" ".join)
def test_help_takes_at_most_eight_times_an_empty_python(arguments):
    """A ratio of medians measured in turns, so that a busy machine slows both sides alike."""
    empty, helped = [sys.executable, "-c", "pass"], command(*arguments)
    times: dict[str, list[float]] = {"empty": [], "help": []}
    for _ in range(9):
        for name, line in (("empty", empty), ("help", helped)):
            started = time.perf_counter()
            subprocess.run(line, env=environment(), stdout=subprocess.DEVNULL, check=True)
            times[name].append(time.perf_counter() - started)
    ratio = statistics.median(times["help"]) / statistics.median(times["empty"])
    assert ratio <= 8, f"{ratio:.1f}"
