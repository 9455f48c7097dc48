"""Two hundred ways to go wrong: each gets a message of its own, the right exit code, and never a traceback.

The lists stand in wrong/*.toml, by what is wrong; wrong_cases.py says how they are written and makes the files. All run
through `main.run` in this process; a few also as processes of their own, where a hanging read or a broken exit would show.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from commands import Done, run, spawn
from unembed.cli import main
from unembed.visible import visible
from wrong_cases import Case, cases, make

CASES = cases()
NOBODY = 65_534
SPAWNED = ("command_lines-1", "models-1", "places-1", "places-20", "runs-1", "tokenizers-1", "weights-1", "outputs-4")

pytestmark = [
    pytest.mark.skipif(os.name == "nt", reason="pipes, sockets and permissions are those of POSIX"),
    # what a user gives goes through the types of a command line, not through the tests' own checks
    pytest.mark.usefixtures("unchecked"),
]


@contextmanager
def rights_of(case: Case) -> Iterator[None]:
    """The superuser reads everything: a case about permissions is then run as nobody."""
    if not case.unprivileged or os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def faults_of(case: Case, done: Done) -> list[str]:
    """What is wrong with how a wrong command line was answered."""
    lines = done.err.splitlines()
    return [
        *([f"exit code {done.code}, not {case.code}"] if done.code != case.code else []),
        *([f"does not say {case.says!r}"] if case.says not in done.err else []),
        *([f"{len(lines)} lines"] if not 1 <= len(lines) <= main.MOST_LINES else []),
        *(["a line without end"] if any(len(line) > 600 for line in lines) else []),
        *(["a traceback"] if "Traceback" in done.err else []),
        *(["stdout is not empty"] if done.out else []),
        *(["a control character"] if visible(done.err, keeps_lines=True) != done.err else []),
        *(["a fault of ours"] if "fault of unembed's" in done.err and case.code != 1 else []),
    ]


@pytest.fixture
def place(here, trained, monkeypatch):
    """Makes the files of a case in the current folder, with nothing in the environment that could change the answer."""
    for name in ("UNEMBED_TRACEBACK", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    here.chmod(0o777)

    def placed(case: Case) -> None:
        make(case, here, trained)
        if case.hide:
            monkeypatch.setitem(sys.modules, case.hide, None)

    return placed


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.where, marks=[pytest.mark.slow] if case.slow else []) for case in CASES]
)
def test_what_is_said(case, place, here):
    place(case)
    with rights_of(case):
        done = run(*case.arguments)
    assert not list(here.glob("runs/*")), "a run was begun"
    assert faults_of(case, done) == [], f"unembed {' '.join(case.arguments)!r}\n{done.err}"


@pytest.mark.slow
@pytest.mark.parametrize("where", SPAWNED)
def test_what_is_said_by_a_process_of_its_own(where, place, here):
    (case,) = [one for one in CASES if one.where == where]
    place(case)
    done = spawn(*case.arguments, cwd=here)
    assert faults_of(case, done) == [], done


def test_the_list_is_as_long_and_as_varied_as_it_should_be():
    assert len(CASES) >= 200
    assert len({case.kind for case in CASES}) >= 40
    assert {case.code for case in CASES} >= {2, 3, 4, 5}
    twice = [
        what for what, n in Counter((tuple(c.arguments), str(c.files), str(c.damage)) for c in CASES).items() if n > 1
    ]
    assert twice == []


@pytest.mark.parametrize(
    ("done", "fault"),
    [
        (Done(3, "", "error: no\n"), "exit code 3, not 2"),
        (Done(2, "", "error: other\n"), "does not say 'no'"),
        (Done(2, "", "error: no\n" * 7), "7 lines"),
        (Done(2, "", ""), "0 lines"),
        (Done(2, "", "error: no\nTraceback (most recent call last)\n"), "a traceback"),
        (Done(2, "x", "error: no\n"), "stdout is not empty"),
        (Done(2, "", "error: no\x1b[2J\n"), "a control character"),
        (Done(2, "", "error: no " + 600 * "x"), "a line without end"),
        (Done(2, "", "error: no, this is a fault of unembed's: KeyError"), "a fault of ours"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_seeded_fault_is_noticed(done, fault):
    case = Case("x-1", "kind", ["count"], 2, "no", {}, [], None, False, False)
    assert fault in faults_of(case, done)
    assert faults_of(case, Done(2, "", "error: no\n")) == []
