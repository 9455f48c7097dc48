"""Every error that a user can meet, and the exit code that the command line gives for each branch.

    UnembedError                      1  our own fault, should not happen
    ├── UsageError                    2  the command was written wrongly (unknown option, setting or name)
    ├── InputError                    3  what was given cannot be used
    │   ├── SpecError                    a model's description contradicts itself
    │   ├── ShapeError                   a tensor does not have the shape that the model needs
    │   ├── TokenizerError               text and ids cannot be turned into each other
    │   ├── CorpusError                  a data file cannot be read as sequences
    │   ├── CheckpointError              a file of weights is broken, incomplete or not understood
    │   ├── TapError                     a tap asked for a place that this model does not have
    │   └── RunError                     a run folder cannot be started, resumed or read
    ├── ResourceError                 4  memory, disk or time ran out
    │   └── PeerLostError                another process of the run has ended, so this one cannot go on
    ├── UnsafeError                   5  refused, because going on could run foreign code
    ├── NotFiniteError                6  training stopped because a number was not finite
    └── Interrupted                 130  stopped from outside; what was reached is saved

Each message says where, what came, what was expected, and what to do next, in at most six lines. The next file to
read is results.py, the shape of everything that is not an error.
"""

import difflib
from collections.abc import Iterable, Sequence


class UnembedError(Exception):
    """The root of the tree: catching it catches everything that this package raises on purpose."""

    exit_code = 1


class DamageWarning(UserWarning):
    """Something of a run is damaged and another part was taken in its place: the result is not of what was meant."""


class UsageError(UnembedError):
    """The command line, a setting or a name given to a function is not one that exists."""

    exit_code = 2


class InputError(UnembedError):
    """Something that the user gave cannot be used as it is."""

    exit_code = 3


class SpecError(InputError):
    """A model's description contradicts itself or asks for what does not exist."""


class ShapeError(InputError):
    """A tensor's shape or range does not fit the model that was asked to take it."""


class TokenizerError(InputError):
    """Text cannot be encoded, ids cannot be decoded, or a tokenizer's file is not understood."""


class CorpusError(InputError):
    """A data file is missing, unreadable, empty or not in the form that its reader expects."""


class CheckpointError(InputError):
    """A checkpoint is broken, incomplete, or holds what no rule accounts for."""


class TapError(InputError):
    """A tap was asked for at a place that this model, or this attention path, does not have."""


class RunError(InputError):
    """A run folder is in the way, absent, or does not hold what was asked of it."""


class ResourceError(UnembedError):
    """Memory, disk or another resource ran out."""

    exit_code = 4


class PeerLostError(ResourceError):
    """One of the processes that train together was killed, or its machine is gone; the others stop."""


class UnsafeError(UnembedError):
    """Refused for safety: going on could run code that came with the data."""

    exit_code = 5


class NotFiniteError(UnembedError):
    """A loss, gradient or weight became infinite or not a number, and training stopped."""

    exit_code = 6


class Interrupted(UnembedError):
    """A signal stopped the work; everything up to the last finished step is saved."""

    exit_code = 130


def closest(name: str, known: Iterable[str], *, n: int = 3, cutoff: float = 0.5) -> list[str]:
    """Up to n known names that are like one that does not exist, the likest first; capitals do not matter.

    >>> closest("GTP2", ["gpt2", "llama-3-8b"])
    ['gpt2']
    """
    by_lower = {one.lower(): one for one in known}
    # comparing takes time that grows with the square of the length; nobody mistypes a name of hundreds of characters
    found = difflib.get_close_matches(name.lower()[:200], list(by_lower), n=n, cutoff=cutoff)
    return [by_lower[one] for one in found]


def did_you_mean(name: str, known: Iterable[str], otherwise: str, *, n: int = 3, cutoff: float = 0.5) -> str:
    """The next step for a name that does not exist: up to n known names that are like it, else what `otherwise` says.

    >>> did_you_mean("gtp2", ["gpt2", "llama-3-8b"], "There are others.")
    'Did you mean gpt2?'
    """
    return suggest(closest(name, known, n=n, cutoff=cutoff), otherwise)


def suggest(found: Sequence[str], otherwise: str) -> str:
    """The next step as a sentence: the names that may have been meant, or what `otherwise` says."""
    return f"Did you mean {' or '.join(found)}?" if found else otherwise
