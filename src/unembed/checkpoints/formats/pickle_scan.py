"""Looks through a PyTorch pickle as data, without running it: which names it asks for, and which storages it claims.

A pickle is a program for a small stack machine. This one follows the program on symbols: text and whole numbers stay what
they are, everything else is opaque, nothing is imported or called. What PyTorch writes for tensors, numbers, texts, lists
and dictionaries needs 35 instructions and a handful of names; anything else is refused with its name. Before it:
torch_files.py, which reads a file that passed.

Source: instructions as in Lib/pickletools.py of Python; the form of a storage's id in torch/serialization.py.
"""

import math
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_ORDERED, _TENSOR, _PARAMETER = (
    "collections OrderedDict",
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_parameter",
)
# Bytes of one number in a storage of each class.
_WIDTHS = {8: "Double Long", 4: "Float Int", 2: "Half BFloat16 Short", 1: "Char Byte Bool"}
STORAGES = {f"torch {name}Storage": width for width, names in _WIDTHS.items() for name in names.split()}


class NotPlain(Exception):
    """The pickle asks for more than tensors and plain values; says for what."""


class Broken(Exception):
    """The bytes are no program that PyTorch writes, or one that contradicts itself; says where."""


@dataclass(frozen=True, slots=True)
class Storage:
    """A claim: the record `data/<key>` of the archive holds this many numbers, of so many bytes each."""

    key: str
    count: int
    width: int


@dataclass(frozen=True, slots=True)
class _Name:
    full: str


@dataclass(frozen=True, slots=True)
class _Made:
    """Something that the program has made: a list, a dictionary, an ordered one, a tensor."""

    kind: str


_LIST, _DICT, _MARK = _Made("list"), _Made("dict"), _Made("mark")


def storages_in(data: bytes) -> list[Storage]:
    """Gives every storage that a pickle claims, each tensor having been found to lie inside its storage.

    Raises: NotPlain with the name of what else the pickle asks for; Broken.
    """
    machine = _Machine()
    try:
        for instruction, argument, at in pickletools.genops(data):
            step = _STEPS.get(instruction.name)
            if step is None:
                raise NotPlain(f"the instruction {instruction.name} at byte {at}, which PyTorch does not write")
            step(machine, argument)
    except (ValueError, IndexError, KeyError, TypeError, RecursionError) as error:
        raise Broken(f"the pickle in it cannot be followed ({str(error)[:80]})") from error
    return machine.storages


class _Machine:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.storages: list[Storage] = []

    def to_mark(self) -> list[Any]:
        items: list[Any] = []
        while (item := self.stack.pop()) is not _MARK:
            items.append(item)
        return items[::-1]

    def name(self, argument: str) -> None:
        if argument not in (_ORDERED, _TENSOR, _PARAMETER) and argument not in STORAGES:
            raise NotPlain(argument.replace(" ", ".")[:120])
        self.stack.append(_Name(argument))

    def call(self, _: Any) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        match function, arguments:
            case _Name(full="collections OrderedDict"), ():
                self.stack.append(_Made("ordered"))
            case (
                _Name(full="torch._utils _rebuild_tensor_v2"),
                (Storage() as storage, int(offset), tuple(size), tuple(stride), bool(), _Made(kind="ordered")),
            ):
                self.stack.append(_tensor(storage, offset, size, stride))
            case _Name(full="torch._utils _rebuild_parameter"), (_Made(kind="tensor"), bool(), _Made(kind="ordered")):
                self.stack.append(_Made("tensor"))
            case _:
                raise NotPlain("a call that PyTorch does not write for tensors")

    def storage(self, _: Any) -> None:
        match self.stack.pop():
            case ("storage", _Name(full), str(key), str(), int(count)) if full in STORAGES and count >= 0:
                storage = Storage(key, count, STORAGES[full])
                self.storages.append(storage)
                self.stack.append(storage)
            case _:
                raise NotPlain("a stored object that is no storage of numbers")

    def fill(self, items: list[Any], *kinds: str) -> None:
        """Puts items into what stands below them, if it is of one of the kinds."""
        target = self.stack[-1]
        if not isinstance(target, _Made) or target.kind not in kinds:
            raise NotPlain("a change of something that is no list or dictionary")
        if any(isinstance(item, _Name | Storage) for item in items):
            raise NotPlain("a bare name or storage among the values")


def _tensor(storage: Storage, offset: int, size: tuple[Any, ...], stride: tuple[Any, ...]) -> _Made:
    numbers = (offset, *size, *stride)
    if (
        len(size) != len(stride)
        or len(size) > 64
        or any(type(one) is not int or not 0 <= one < 2**63 for one in numbers)
    ):
        raise Broken("a tensor in it has an impossible shape")
    reach = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) + 1 if math.prod(size) else 0
    # more numbers than the storage holds would be one number seen many times: small in the file, huge once it is copied
    if reach > storage.count or math.prod(size) > storage.count or math.prod(max(n, 1) for n in size) >= 2**63:
        raise Broken(f"a tensor in it of shape {'x'.join(map(str, size))[:80]} has more numbers than are stored for it")
    return _Made("tensor")


def _push(machine: _Machine, argument: Any) -> None:
    machine.stack.append(argument)


def _constant(value: Any) -> Callable[[_Machine, Any], None]:
    return lambda machine, _: machine.stack.append(value)


def _take(machine: _Machine, count: int) -> list[Any]:
    return [machine.stack.pop() for _ in range(count)][::-1]


def _remember(machine: _Machine, argument: Any) -> None:
    machine.memo[argument] = machine.stack[-1]


def _protocol(machine: _Machine, argument: Any) -> None:
    if argument != 2:
        raise NotPlain(f"the instruction PROTO {argument}, where PyTorch writes protocol 2")


_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": _protocol,
    "STOP": lambda machine, _: None,
    "BINUNICODE": _push,
    "BININT": _push,
    "BININT1": _push,
    "BININT2": _push,
    "LONG1": _push,
    "BINFLOAT": _push,
    "NONE": _constant(None),
    "NEWTRUE": _constant(True),
    "NEWFALSE": _constant(False),
    "EMPTY_LIST": _constant(_LIST),
    "EMPTY_DICT": _constant(_DICT),
    "EMPTY_TUPLE": _constant(()),
    "MARK": _constant(_MARK),
    "TUPLE": lambda machine, _: _push(machine, tuple(machine.to_mark())),
    "TUPLE1": lambda machine, _: _push(machine, tuple(_take(machine, 1))),
    "TUPLE2": lambda machine, _: _push(machine, tuple(_take(machine, 2))),
    "TUPLE3": lambda machine, _: _push(machine, tuple(_take(machine, 3))),
    "APPEND": lambda machine, _: machine.fill(_take(machine, 1), "list"),
    "APPENDS": lambda machine, _: machine.fill(machine.to_mark(), "list"),
    "SETITEM": lambda machine, _: machine.fill(_take(machine, 2), "dict", "ordered"),
    "SETITEMS": lambda machine, _: machine.fill(machine.to_mark(), "dict", "ordered"),
    # an ordered dictionary carries attributes of its own (a state_dict's `_metadata`)
    "BUILD": lambda machine, _: machine.fill(_take(machine, 1), "ordered"),
    "BINPUT": _remember,
    "LONG_BINPUT": _remember,
    "BINGET": lambda machine, argument: _push(machine, machine.memo[argument]),
    "LONG_BINGET": lambda machine, argument: _push(machine, machine.memo[argument]),
    "GLOBAL": _Machine.name,
    "REDUCE": _Machine.call,
    "BINPERSID": _Machine.storage,
}
