"""Every key of a foreign config is used once, or excused with a reason; whatever is left stops the load by name.

A loader that skips what it does not know gives a model that is nearly the one in the file: fluent, and wrong. So a
family reads its config through `ConfigReader`, which keeps the account. The next file to read is tensors.py, which
does the same for tensors.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from unembed.errors import CheckpointError

# How many names a message lists before it says how many more there are.
N_LISTED = 6
MOST_LAYERS = 10_000


class Excused(NamedTuple):
    """A key or tensor that the model does not use, and why that is right."""

    name: str
    reason: str


class _Required:
    pass


REQUIRED = _Required()


class ConfigReader:
    """One object of a config, read key by key. Every reading method counts its key as used; `finish` settles the account.

    A value that is absent or null gives the default; a wrong type stops the load. `held` lists the keys that only one value
    is accepted for: key, values, reason. `n_tensors` is how many tensors there are, where that is known: no model has more
    layers.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        family: str,
        where: str,
        prefix: str = "",
        file: str | None = None,
        n_tensors: int | None = None,
    ) -> None:
        self.family = family
        self.file = file or f"{family}.py"
        self.where = where
        self._config = config
        self._n_tensors = n_tensors
        self._prefix = prefix
        self._used: set[str] = set()
        self._excused: list[Excused] = []
        self.held: list[tuple[str, str, str]] = []
        self._groups: list[ConfigReader] = []

    def __contains__(self, key: str) -> bool:
        return self._config.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._config)

    def integer(self, key: str, default: Any = REQUIRED, *, least: int = 1) -> Any:
        """A whole number of at least `least` (JSON's 8.0 is none), or the default. Raises: CheckpointError."""
        value = self._take(key, default)
        if value is default:
            return value
        if type(value) is not int or not least <= value < 2**63:
            raise self.error(f"{self._prefix}{key} is {_short(value)}, expected a whole number above {least - 1}")
        return value

    def layers(self, key: str) -> int:
        """A number of layers; a hostile one would fill the memory before any tensor is missed. Raises: CheckpointError."""
        n: int = self.integer(key)
        if n > MOST_LAYERS:
            raise self.error(
                f"{self._prefix}{key} is {_short(n)}; models of more than {MOST_LAYERS:,} layers are not read"
            )
        if self._n_tensors is not None and n > self._n_tensors:
            raise self.error(
                f"{self._prefix}{key} is {n}, but there are {self._n_tensors} tensors, and each layer has some. Copy or "
                "download the model again."
            )
        return n

    def integer_or_null(self, key: str) -> int | None:
        """A whole number above 0, or null; the key must be there, since programs disagree about what its absence means.

        Raises: CheckpointError.
        """
        self._must_be_there(key)
        value: int | None = self.integer(key, None)
        return value

    def number(self, key: str, default: Any = REQUIRED) -> Any:
        """A finite number above 0, as float, or the default. Raises: CheckpointError."""
        value = self._take(key, default)
        if value is default:
            return value
        # the size first: an integer of 400 digits is no float at all
        if type(value) not in (int, float) or abs(value) >= 2**63 or not math.isfinite(value) or value <= 0:
            raise self.error(f"{self._prefix}{key} is {_short(value)}, expected a number above 0")
        return float(value)

    def numbers(self, key: str) -> list[float] | None:
        """A list of finite numbers above 0, or None. Raises: CheckpointError."""
        value = self._take(key, None)
        if value is None:
            return None
        if not isinstance(value, list) or not all(type(one) is float and 0 < one < math.inf for one in value):
            raise self.error(f"{self._prefix}{key} is {_short(value)}, expected a list of numbers above 0")
        return value

    def number_or_null(self, key: str) -> float | None:
        """A number above 0, or null for none; the key must be there. Raises: CheckpointError."""
        self._must_be_there(key)
        value: float | None = self.number(key, None)
        return value

    def flag(self, key: str, default: Any = REQUIRED) -> Any:
        """True or false, or the default. Raises: CheckpointError."""
        value = self._take(key, default)
        if value is not default and type(value) is not bool:
            raise self.error(f"{self._prefix}{key} is {_short(value)}, expected true or false")
        return value

    def one_of(self, key: str, table: Mapping[str, Any], default: Any = REQUIRED) -> Any:
        """What `table` gives for the word under `key`; `default` is a word of the table. Raises: CheckpointError."""
        word = self._take(key, default)
        if not isinstance(word, str) or word not in table:
            raise self.error(f"{self._prefix}{key} is {_short(word)}, expected one of {', '.join(sorted(table))}")
        return table[word]

    def words(self, key: str, allowed: Sequence[str], default: Any = None) -> Any:
        """A list of words, each one of `allowed`, or the default. Raises: CheckpointError."""
        value = self._take(key, default)
        if value is default:
            return value
        if not isinstance(value, list) or any(word not in allowed for word in value):
            raise self.error(f"{self._prefix}{key} is {_short(value)}, expected a list of {' and '.join(allowed)}")
        return list(value)

    def group(self, key: str) -> "ConfigReader | None":
        """The object under `key` as a reader with an account of its own, or None. Raises: CheckpointError."""
        value = self._take(key, None)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(f"{self._prefix}{key} is {_short(value)}, expected an object")
        inner = ConfigReader(
            value, family=self.family, where=self.where, prefix=f"{self._prefix}{key}.", file=self.file
        )
        self._groups.append(inner)
        return inner

    def only(self, key: str, *allowed: Any, reason: str) -> None:
        """Lets `key` be absent, null or one of `allowed`; any other value would mean another function.

        Raises: CheckpointError.
        """
        value = self._take(key, None)
        self.held.append((self._prefix + key, " or ".join(map(_short, allowed)) or "absent", reason))
        if value is not None and not any(type(value) is type(one) and value == one for one in allowed):
            expected = " or ".join(map(_short, allowed)) or "that it is absent"
            raise self.error(f"{self._prefix}{key} is {_short(value)}, expected {expected}: {reason}")
        if key in self._config:
            self._excused.append(Excused(self._prefix + key, reason))

    def excuse(self, reasons: Mapping[str, str]) -> None:
        """Passes over the keys of `reasons` that are there and not used, whatever they hold."""
        for key, reason in reasons.items():
            if key in self._config and key not in self._used:
                self._used.add(key)
                self._excused.append(Excused(self._prefix + key, reason))

    def written_before(self, *version: int) -> bool:
        """True when the config says that a release of transformers before `version` wrote it. Counts no key as used."""
        found = re.match(r"(\d+)\.(\d+)", str(self._config.get("transformers_version")))
        return found is not None and tuple(map(int, found.groups())) < version

    def finish(self) -> list[Excused]:
        """Settles the account of this object and those inside it. Raises: CheckpointError naming every key that is left."""
        if left := self._left():
            raise self.error(
                f"{len(left)} config {'key has' if len(left) == 1 else 'keys have'} no meaning here: {listed(left)}. Each may "
                f"change the model. Map it in families/{self.file}, or excuse it there with a reason."
            )
        return [*self._excused, *(excused for group in self._groups for excused in group.finish())]

    def error(self, problem: str) -> CheckpointError:
        """A complaint about this config, to be raised by whoever found it."""
        return CheckpointError(f"{self.where}: {self.family}: {problem}")

    def _left(self) -> list[str]:
        mine = [
            f"{self._prefix}{key} = {_short(value)}" for key, value in self._config.items() if key not in self._used
        ]
        return [*mine, *(name for group in self._groups for name in group._left())]

    def _must_be_there(self, key: str) -> None:
        if key not in self._config:
            raise self.error(f"{self._prefix}{key} is missing. The config must give a number, or null for none.")

    def _take(self, key: str, default: Any) -> Any:
        assert key not in self._used, f"families/{self.family}.py reads {key} twice"
        self._used.add(key)
        value = self._config.get(key)
        if value is not None:
            return value
        if default is REQUIRED:
            raise self.error(f"{self._prefix}{key} is missing. The config must give it; a default would be a guess.")
        return default


def listed(names: Sequence[str]) -> str:
    """The first few names of a list, and how many more there are.

    >>> listed(["a", "b"]), listed([str(n) for n in range(9)])
    ('a, b', '0, 1, 2, 3, 4, 5 and 3 more')
    """
    more = len(names) - N_LISTED
    return ", ".join(names[:N_LISTED]) + (f" and {more} more" if more > 0 else "")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:50]}...{text[-5:]}"
