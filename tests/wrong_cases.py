"""Reads the lists of wrong command lines (cli/wrong/*.toml) and makes the files that each of them meets.

A case says: `kind`; `run`, the words after `unembed` (a line for a shell, or a list); the exit `code`; `says`, a part of the
message that no other fault gives. It may say `files` to make (a text, or a table: `bytes` in hex, `text` with `times`,
`folder`, `fifo`, `socket`, `link`, `run` for a copy of a small run, `mode`), `damage` to do to them, `hide` a library, and
`unprivileged`, for what the superuser may do and nobody else, and `slow`. `<FF>` in a name stands for a byte that is no
UTF-8, `<a*300>` for three hundred letters.
Knows nothing of pytest. The next file to read is cli/test_wrong.py.
"""

import hashlib
import json
import os
import re
import shlex
import shutil
import socket
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent / "cli" / "wrong"
_LINKED_BYTES = 100_000  # larger files of the small run are linked: weights are replaced, never written into


class Case(NamedTuple):
    """One wrong command line and what is expected of it."""

    where: str
    kind: str
    arguments: list[str]
    code: int
    says: str
    files: Mapping[str, Any]
    damage: Sequence[Mapping[str, Any]]
    hide: str | None
    unprivileged: bool
    slow: bool


def cases() -> list[Case]:
    """All cases, in the order of the files and of the lists in them."""
    found = []
    for path in sorted(FOLDER.glob("*.toml")):
        for number, one in enumerate(tomllib.loads(path.read_text(encoding="utf-8"))["case"], start=1):
            words = shlex.split(one["run"]) if isinstance(one["run"], str) else one["run"]
            found.append(
                Case(
                    where=f"{path.stem}-{number}",
                    kind=one["kind"],
                    arguments=[_spelled(word) for word in words],
                    code=one["code"],
                    says=one["says"],
                    files=one.get("files", {}),
                    damage=one.get("damage", []),
                    hide=one.get("hide"),
                    unprivileged=one.get("unprivileged", False),
                    slow=one.get("slow", False),
                )
            )
    return found


def make(case: Case, folder: Path, small_run: Path) -> None:
    """Makes the files of a case in a folder that holds nothing but the text that every case has."""
    (folder / "text.txt").write_text("to be or not to be\n" * 30, encoding="utf-8")
    for name, what in case.files.items():
        path = folder / _spelled(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        _make(path, {"text": what} if isinstance(what, str) else what, small_run)
    for damage in case.damage:
        every = sorted(folder.glob(damage["file"])) if "*" in damage.get("file", "") else []
        for one in [damage | {"file": path.relative_to(folder)} for path in every] or [damage]:
            _damage(folder, one)


def _make(path: Path, what: Mapping[str, Any], small_run: Path) -> None:
    if "text" in what:
        path.write_text(what["text"] * what.get("times", 1), encoding="utf-8")
    elif "bytes" in what:
        path.write_bytes(bytes.fromhex(what["bytes"]) * what.get("times", 1))
    elif "folder" in what:
        path.mkdir()
    elif "fifo" in what:
        os.mkfifo(path)
    elif "socket" in what:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)  # a whole path may be too long for a socket; the case's folder is the current one
    elif "link" in what:
        path.symlink_to(what["link"])
    elif "run" in what:
        shutil.copytree(small_run, path, copy_function=_copy)
    else:
        raise ValueError(f"{path.name}: nothing can be made of {dict(what)}")
    if "mode" in what:
        path.chmod(what["mode"])


def _copy(source: str, target: str) -> None:
    if Path(source).stat().st_size > _LINKED_BYTES:
        os.link(source, target)
    else:
        shutil.copy(source, target)


def _damage(folder: Path, damage: Mapping[str, Any]) -> None:
    if "resign" in damage:
        _sign(folder / damage["resign"])
        return
    path = folder / damage["file"]
    before = path.read_bytes() if path.is_file() else b""
    if "remove" in damage or "emptied" in damage:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        if "emptied" in damage:
            path.mkdir()
        return
    path.unlink(missing_ok=True)  # never into a linked file
    path.write_bytes(_changed(before, damage))


def _changed(before: bytes, damage: Mapping[str, Any]) -> bytes:
    if "cut" in damage:
        return before[: int(len(before) * damage["cut"])]
    if "flip" in damage:
        at = damage["flip"]
        return before[:at] + bytes([before[at] ^ 0x15]) + before[at + 1 :]
    if "text" in damage:
        return (damage["text"] * damage.get("times", 1)).encode()
    if "bytes" in damage:
        return bytes.fromhex(damage["bytes"])
    if "header" in damage:
        header = damage["header"].encode()
        return len(header).to_bytes(8, "little") + header + bytes(damage["data"])
    if "replace" in damage:
        old, new = damage["replace"]
        assert old in before.decode(), damage
        return before.decode().replace(old, new, 1).encode()
    plain = json.loads(before)
    if "drop" in damage:
        place, key = _place(plain, damage["drop"])
        del place[key]
        return json.dumps(plain).encode()
    marks = {}
    for number, (path, value) in enumerate(damage["put"].items()):
        place, key = _place(plain, path)
        place[key] = f"<{number}>"
        marks[f'"<{number}>"'] = value
    text = json.dumps(plain)
    for mark, value in marks.items():  # as it stands: NaN and numbers without end included
        text = text.replace(mark, _spelled(value))
    return text.encode()


def _place(plain: Any, path: str) -> tuple[Any, Any]:
    *way, last = [int(key) if key.isdecimal() else key for key in path.split(".")]
    for key in way:
        plain = plain[key]
    return plain, last


def _sign(checkpoint: Path) -> None:
    """Writes a manifest that vouches for the files as they are now: what a careful forger does."""
    path = checkpoint / "MANIFEST.json"
    manifest = json.loads(path.read_bytes())
    for name in manifest["files"]:
        data = (checkpoint / name).read_bytes()
        manifest["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    path.unlink()
    path.write_text(json.dumps(manifest), encoding="utf-8")


def _spelled(text: str) -> str:
    """`<FF>` as a byte that is no UTF-8, `<a*300>` as three hundred letters."""
    text = text.replace("<FF>", "\udcff")
    return re.sub(r"<(\w)\*(\d+)>", lambda match: match[1] * int(match[2]), text)
