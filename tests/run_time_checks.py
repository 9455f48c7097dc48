"""What the import hook of conftest.py wraps around every function of `unembed`: beartype, on what it can read.

Shapes are what matters here. Beartype also reads the other annotations, and refuses a whole function for one that it
cannot check in a running program: a Protocol that is not marked for isinstance, `Self` outside its class. Such a hint
is left to mypy, and the rest of the function is still checked.
"""

from collections.abc import Callable
from typing import Any

from beartype import BeartypeConf, beartype
from beartype.door import is_bearable
from beartype.roar import BeartypeException

# The numeric tower lets an int pass for a float, as Python, mypy and every caller do.
CONF = BeartypeConf(is_pep484_tower=True)


def is_checkable(hint: Any) -> bool:
    """Whether beartype can say of a value that it fits this hint or not."""
    try:
        is_bearable(None, hint, conf=CONF)
    except (BeartypeException, TypeError):
        return False
    return True


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a call raise when an argument, or the result, does not fit its annotation."""
    function.__annotations__ = {
        name: hint if is_checkable(hint) else object for name, hint in function.__annotations__.items()
    }
    return beartype(conf=CONF)(function)
