"""The three languages hold the same keys and placeholders; numbers and the choice of a language follow their rules."""

import json
import math
import string
import unicodedata
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unembed import catalogue
from unembed.catalogue import LANGUAGES, choose, load, text
from unembed.errors import UnembedError, UsageError

SRC = Path(__file__).parents[1] / "src" / "unembed"


def strings(lang: str) -> dict[str, str]:
    return json.loads(resources.files(catalogue).joinpath(f"{lang}.json").read_text(encoding="utf-8"))


def placeholders(template: str) -> list[str]:
    return sorted(name for _, name, _, _ in string.Formatter().parse(template) if name is not None)


@pytest.mark.parametrize("lang", LANGUAGES[1:])
def test_languages_have_the_same_keys_in_the_same_order(lang):
    assert list(strings(lang)) == list(strings("en"))


@pytest.mark.parametrize("lang", LANGUAGES[1:])
def test_languages_have_the_same_placeholders(lang):
    english = strings("en")
    different = {k: v for k, v in strings(lang).items() if placeholders(v) != placeholders(english[k])}
    assert different == {}


@pytest.mark.parametrize("lang", LANGUAGES)
def test_no_key_stands_twice_in_a_file(lang):
    raw = resources.files(catalogue).joinpath(f"{lang}.json").read_text(encoding="utf-8")
    pairs = json.loads(raw, object_pairs_hook=list)
    assert len(pairs) == len({key for key, _ in pairs})


@pytest.mark.parametrize("lang", LANGUAGES)
def test_strings_are_composed_trimmed_and_not_empty(lang):
    for key, value in strings(lang).items():
        assert value or key.startswith("number."), key
        assert value == unicodedata.normalize("NFC", value), key
        assert value == value.strip() or key.startswith("number."), key


def test_korean_is_written_in_korean_and_spanish_is_translated():
    english, spanish, korean = (strings(lang) for lang in LANGUAGES)
    sentences = [key for key, value in english.items() if len(value) > 40]
    assert len(sentences) > 15
    for key in sentences:
        assert any("HANGUL SYLLABLE" in unicodedata.name(c, "") for c in korean[key]), key
        assert spanish[key] != english[key], key


def test_every_sentence_of_the_page_is_used():
    sources = "\n".join(p.read_text(encoding="utf-8") for p in SRC.rglob("*.py"))
    # The verdict's two keys are put together from their halves.
    unused = [k for k in strings("en") if k.startswith("page.") and k not in sources]
    assert [k for k in unused if not k.startswith("page.verdict_")] == []


@pytest.mark.parametrize(
    ("lang", "number", "shown"),
    [
        ("en", 103_680, "103,680"),
        ("es", 2_457_600, "2\u202f457\u202f600"),
        ("ko", -1234.5, "−1,234"),
        ("en", 1.5, "1.5"),
        ("es", 0.02345678, "0,02346"),
        ("en", 0.0, "0"),
        ("en", 3.2e-7, "3.200e−07"),
        ("en", math.nan, "NaN"),
        ("en", -math.inf, "−∞"),
        ("es", False, "no"),
        ("ko", True, "예"),
    ],
)
def test_numbers_are_written_as_the_language_writes_them(lang, number, shown):
    assert load(lang).number(number) == shown


@settings(deadline=None)
@given(st.floats(min_value=1e-4, max_value=1e12), st.integers(1, 8))
def test_property_a_number_reads_back_to_its_digits(value, digits):
    shown = load("es").number(value, digits).replace("\u202f", "").replace(",", ".")
    assert math.isclose(float(shown), value, rel_tol=0.51 * 10 ** (1 - digits))


def test_percentages_and_fixed_decimals():
    assert [load(lang).percent(0.9941) for lang in LANGUAGES] == ["99.4%", "99,4\u00a0%", "99.4%"]
    assert load("es").fixed(1234.5, 2) == "1\u202f234,50"


def test_names_carry_their_units_and_unknown_names_stay():
    words = load("es")
    assert words.name("column", "loss_nats") == "Pérdida (nats)"
    assert words.name("column", "loss_nats", "bits") == "Pérdida (bits)"
    assert words.name("column", "layer") == "Capa"
    assert words.name("column", "something_new") == "something_new"


@pytest.mark.parametrize(
    ("environ", "lang"),
    [
        ({}, "en"),
        ({"LANG": "ko_KR.UTF-8"}, "ko"),
        ({"LANG": "es"}, "es"),
        ({"LANG": "es-MX"}, "es"),
        ({"LANG": "fr_FR.UTF-8"}, "en"),
        ({"LANG": "C.UTF-8"}, "en"),
        ({"LC_ALL": "C", "LANG": "es_ES.UTF-8"}, "es"),
        ({"LC_ALL": "ko_KR", "LANG": "es_ES.UTF-8"}, "ko"),
        ({"LC_ALL": "de_DE", "LANG": "es_ES.UTF-8"}, "en"),
        ({"LC_MESSAGES": "es_AR@euro", "LANG": "ko_KR"}, "es"),
        ({"LANG": ""}, "en"),
        ({"LANG": "../../etc/passwd"}, "en"),
    ],
)
def test_the_language_of_the_environment(environ, lang):
    assert choose(None, environ) == lang
    assert choose("ko", environ) == "ko"


def test_messages():
    with pytest.raises(UsageError, match=r"--lang 'fr' does not exist; expected one of en, es, ko"):
        choose("fr", {"LANG": "es_ES"})
    with pytest.raises(UsageError, match=r"language '../x' does not exist; expected one of en, es, ko"):
        load("../x")
    with pytest.raises(UnembedError, match=r"es.json has no key 'page.nothing'. Add it to the files of all languages"):
        text("page.nothing", "es")
    with pytest.raises(UnembedError, match=r"'page.step' in en.json needs a value for 'step', got none"):
        text("page.step", "en")
