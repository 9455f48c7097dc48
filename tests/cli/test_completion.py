"""`unembed completion`: what bash really offers after a tab, and what the other shells are told.

bash runs the very lines that a user would put into ~/.bashrc. zsh and fish are asked through click's own protocol, since
they are not installed everywhere. A shell waits for the answer at every tab: torch is never imported for it.
"""

import os
import shutil
import subprocess
import sys

import click
import pytest

from commands import environment, run, spawn
from unembed.cli import main, paths
from unembed.cli.completion import WHERE, source

BASH = shutil.which("bash")
ASK = """
eval "$(unembed completion bash)"
COMP_WORDS=({words}) COMP_CWORD={at}
_unembed_completion unembed
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def offered(folder, *words):
    """What bash offers for the last of the words."""
    bin_folder = folder / ".bin"
    bin_folder.mkdir(exist_ok=True)
    program = bin_folder / "unembed"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m unembed "$@"\n')
    program.chmod(0o755)
    script = ASK.format(words=" ".join(f"'{word}'" for word in words), at=len(words) - 1)
    env = environment(PATH=f"{bin_folder}:{os.environ['PATH']}")
    # compopt speaks only inside a real completion; here it may complain
    done = subprocess.run(
        [BASH, "--norc", "-c", script], cwd=folder, env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.split("\n")[:-1]


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
def test_bash_completes_commands_options_presets_choices_and_runs(here, trained):
    (here / "runs").mkdir()
    (here / "runs" / "mine").symlink_to(trained)
    (here / "runs" / "with space").symlink_to(trained)
    (here / "rubbish").mkdir()
    assert offered(here, "unembed", "tok") == ["tokenize"]
    assert offered(here, "unembed", "count", "--un") == ["--untied"]
    assert offered(here, "unembed", "count", "gpt2-x") == ["gpt2-xl"]
    assert offered(here, "unembed", "report", "ru") == ["rubbish/", "runs/"]
    assert offered(here, "unembed", "sample", "runs/") == ["runs/mine", "runs/with space"]
    assert offered(here, "unembed", "count", "gpt2", "--format", "j") == ["json", "jsonl"]


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
def test_lines_for_bash_are_bash(here):
    done = subprocess.run(
        [BASH, "-n"], input=run("completion", "bash").out, text=True, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("shell", "words"),
    [
        ("zsh", ("#compdef unembed", "_UNEMBED_COMPLETE=zsh_complete", "compdef _unembed_completion unembed")),
        ("fish", ("complete --no-files --command unembed", "_UNEMBED_COMPLETE=fish_complete")),
    ],
)
def test_lines_for_the_other_shells(shell, words):
    text = run("completion", shell).out
    assert all(word in text for word in words)
    if program := shutil.which(shell):
        done = subprocess.run([program, "-n"], input=text, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_answered(shell):
    asked = {"_UNEMBED_COMPLETE": f"{shell}_complete", "COMP_WORDS": "unembed count gpt2-x", "COMP_CWORD": "2"}
    if shell == "fish":
        asked["COMP_CWORD"] = "gpt2-x"
    assert "gpt2-xl" in spawn(env=asked).out


def test_on_a_terminal_it_says_where_the_lines_go():
    assert WHERE["fish"] in run("completion", "fish", is_terminal=True).err
    assert run("completion", "fish").err == ""
    assert run("completion", "fish", "--quiet", is_terminal=True).err == ""
    assert source("bash").startswith("_unembed_completion()")


def test_names_that_are_repeated_here_are_those_of_the_library():
    from unembed.recipes import RECIPES
    from unembed.training.config import KINDS, MODEL_SETTINGS, SHORT_NAMES

    assert set(paths.RECIPES) == {one.name for one in RECIPES}
    assert set(paths.SETTINGS) == {*SHORT_NAMES, *MODEL_SETTINGS, *KINDS}


def test_names_that_a_shell_would_obey_are_not_offered(here):
    for name in ("good", "bad\nname", "worse\x1b[31m", ".hidden"):
        (here / name).mkdir()
    command = main.cli.get_command(click.Context(main.cli), "train")
    asked = (click.Context(command), command.params[0])

    def offers(complete, incomplete):
        return [item.value for item in complete(*asked, incomplete)]

    assert offers(paths.complete_run, "") == ["good/"]
    assert offers(paths.complete_run, ".h") == [".hidden/"]
    assert offers(paths.complete_run, "no/such/") == []
    assert offers(paths.complete_setting, "learn") == ["learning_rate="]
    assert offers(paths.complete_recipe, "nano") == ["nanogpt-cpu"]


COMPLETE = "import os, sys; from unembed.cli import main; code = main.run([]); print(*sys.modules, file=sys.stderr)"


@pytest.mark.parametrize(
    "words", ["unembed t", "unembed count gp", "unembed train --recipe n", "unembed train --set l"]
)
def test_answering_a_shell_imports_no_torch(words):
    asked = {"_UNEMBED_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(
        [sys.executable, "-c", COMPLETE], env=environment(**asked), capture_output=True, text=True, check=True
    )
    assert done.stdout.count("plain,") >= 1
    assert not {"torch", "numpy"} & set(done.stderr.split())
