"""Every string that a person reads in a picture or a report, in English, Spanish and Korean.

The three JSON files beside this one hold the same keys and, key by key, the same placeholders; a test keeps them so.
Keys are grouped by their first part: `page` (the report's own sentences), `section`, `picture`, `note`, and the names of
things: `column`, `value`, `choice` (values of a column), `unit`, `fact`. An analysis whose names stand in no file is
still shown, under the names that it has in the code. The next file to read is results.py, which has those names.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from unembed.errors import UnembedError, UsageError

LANGUAGES = ("en", "es", "ko")
PREFIXES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
UNITS = ("nats", "bits", "seconds", "bytes")


@dataclass(frozen=True)
class Words:
    """One language: its strings by key, and how it writes numbers."""

    lang: str
    strings: Mapping[str, str]

    def text(self, key: str, **values: object) -> str:
        """The string of a key with its placeholders filled in; numbers are written as the language writes them.

        Raises: UnembedError if the key or a placeholder's value does not exist, which is a fault of ours.
        """
        if key not in self.strings:
            raise UnembedError(
                f"catalogue: {self.lang}.json has no key {key!r}. Add it to the files of all languages: "
                f"{', '.join(f'{lang}.json' for lang in LANGUAGES)}"
            )
        shown = {name: self.number(v) if isinstance(v, int | float) else str(v) for name, v in values.items()}
        try:
            return self.strings[key].format_map(shown)
        except KeyError as missing:
            raise UnembedError(
                f"catalogue: {key!r} in {self.lang}.json needs a value for {missing}, got {sorted(values) or 'none'}"
            ) from None

    def find(self, key: str) -> str | None:
        """The string of a key as it stands, or None where there is none."""
        return self.strings.get(key)

    def name(self, kind: str, name: str, unit: str | None = None) -> str:
        """What a person reads for a name of the code, with its unit in brackets if it has one.

        A unit is the one given, or the last part of the name where that is a unit: `loss_nats`. Names that stand in no
        catalogue are shown as they are, so that an analysis can be read before anybody has translated it.
        """
        found = self.find(f"{kind}.{name}")
        unit = unit or (unit_of(name) if found else None)
        return f"{found or name} ({self.unit(unit)})" if unit else found or name

    def unit(self, unit: str) -> str:
        """The word for a unit, or the unit itself."""
        return self.find(f"unit.{unit}") or unit

    def number(self, value: float, digits: int = 4) -> str:
        """A number as this language writes it: whole ones in groups of three, others to so many significant digits.

        >>> load("en").number(103680), load("es").number(1.23456), load("en").number(True)
        ('103,680', '1,235', 'yes')
        """
        if isinstance(value, bool):
            return self.text("page.yes" if value else "page.no")
        if isinstance(value, int):
            return self._local(f"{value:,d}")
        if not math.isfinite(value):
            return "NaN" if math.isnan(value) else ("∞" if value > 0 else "−∞")
        # From a hundred thousandth down a fixed point shows nothing; up to the digits asked for, nothing is rounded away.
        if value and abs(value) < 1e-4:
            return self._local(f"{value:.{digits - 1}e}")
        n_whole = math.floor(math.log10(abs(value))) + 1 if value else 1
        decimals = max(0, digits - n_whole)
        shown = f"{value:,.{decimals}f}"
        return self._local(shown.rstrip("0").rstrip(".") if "." in shown else shown)

    def fixed(self, value: float, decimals: int) -> str:
        """A number with so many decimals, for columns of numbers that are compared with each other.

        >>> load("es").fixed(0.3, 2)
        '0,30'
        """
        return self._local(f"{value:,.{decimals}f}") if math.isfinite(value) else self.number(value)

    def percent(self, share: float, decimals: int = 1) -> str:
        """A share of one as a percentage.

        >>> load("es").percent(0.9941)
        '99,4\\xa0%'
        """
        space = self.text("number.percent_space")
        return self._local(f"{100 * share:,.{decimals}f}") + space + "%" if math.isfinite(share) else self.number(share)

    def size(self, n_bytes: float) -> str:
        """Bytes by the thousand, to four digits.

        >>> load("es").size(476_928), load("en").size(999)
        ('476,9\\xa0kB', '999\\xa0bytes')
        """
        for size, prefix in PREFIXES:
            if abs(n_bytes) >= size:
                return f"{self.number(n_bytes / size)}\N{NO-BREAK SPACE}{prefix}"
        return self.number(n_bytes) + self.text("number.unit_space") + self.unit("bytes")

    def _local(self, number: str) -> str:
        swap = {",": self.text("number.group"), ".": self.text("number.decimal"), "-": "−"}
        return "".join(swap.get(character, character) for character in number)


def load(lang: str) -> Words:
    """Reads one language's file.

    Raises: UsageError if there is no such language.
    """
    if lang not in LANGUAGES:
        raise UsageError(f"language {lang!r} does not exist; expected one of {', '.join(LANGUAGES)}")
    return Words(lang, json.loads(resources.files(__name__).joinpath(f"{lang}.json").read_text(encoding="utf-8")))


def text(key: str, lang: str, **values: object) -> str:
    """One string of one language; whoever needs many calls `load` once.

    >>> text("page.step", "ko", step=1200)
    '1,200 스텝'
    """
    return load(lang).text(key, **values)


def choose(lang: str | None, environ: Mapping[str, str]) -> str:
    """The language to write in: the one asked for, else the one of the environment, else English.

    Of LC_ALL, LC_MESSAGES and LANG the first that names a language decides, as POSIX orders them; "C" names none.

    Raises: UsageError if the one asked for does not exist. One from the environment that we lack is no error.

    >>> choose(None, {"LC_ALL": "C.UTF-8", "LANG": "es_MX.UTF-8"})
    'es'
    """
    if lang is not None:
        if lang not in LANGUAGES:
            raise UsageError(f"--lang {lang!r} does not exist; expected one of {', '.join(LANGUAGES)}")
        return lang
    for variable in ("LC_ALL", "LC_MESSAGES", "LANG"):
        code = environ.get(variable, "").replace("-", "_").partition("_")[0].partition(".")[0].lower()
        if code and code not in ("c", "posix"):
            return code if code in LANGUAGES else "en"
    return "en"


def unit_of(name: str) -> str | None:
    """The unit that a name ends in, if it ends in one.

    >>> unit_of("val_loss_nats"), unit_of("seconds"), unit_of("layer")
    ('nats', 'seconds', None)
    """
    last = name.rpartition("_")[2]
    return last if last in UNITS else None
