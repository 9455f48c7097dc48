"""The recipe small from files to samples: short runs on real texts write in the language that they read.

Letters and words are counted, not style: a run of some seconds writes words of the text, hardly sentences. Before it:
test_small.py, what the recipe decides.
"""

import re
import statistics
import unicodedata

import pytest

import unembed
from unembed.corpora.reading import Reading
from unembed.corpora.text import TextReader
from unembed.recipes.start import train

pytestmark = pytest.mark.slow


def trained(out, sources, steps, column=None, **settings):
    """A run of so many steps; gives its outcome, its model and what was said."""
    said: list[str] = []
    outcome = train(
        sources,
        recipe_name="small",
        out=out,
        settings={"steps": steps, **settings},
        reading=Reading(column=column),
        say=said.append,
    )
    return outcome, unembed.load(out), said


def written(model, prompt="", tokens=200, seed=1) -> str:
    return unembed.generate(model, prompt, tokens=tokens, temperature=0.7, seed=seed).values["text"]


def hangul_share(text: str) -> float:
    """Of the letters of a text, those of the Korean alphabet."""
    letters = [c for c in text if c.isalpha()]
    return sum("HANGUL" in unicodedata.name(c, "") for c in letters) / len(letters)


def ascii_share(text: str) -> float:
    """Of the letters of a text, those that English is written with."""
    letters = [c for c in text if c.isalpha()]
    return sum(c.isascii() for c in letters) / len(letters)


def words_of(text: str) -> list[str]:
    """The words of a text of four letters or more, lower case: shorter ones are met by chance."""
    return re.findall(r"[^\W\d_]{4,}", text.lower())


def known_share(sample: str, text: str) -> float:
    """Of the longer words of a sample, those that occur in a text."""
    known, words = set(words_of(text)), words_of(sample)
    assert len(words) >= 10, f"too few words to judge: {sample!r}"
    return sum(word in known for word in words) / len(words)


def assert_language(sample: str, own: str, other: str) -> None:
    """A good part of the longer words are words of one text, and few are words of a text in another language.

    Made-up words of a model after some seconds occur in neither.
    """
    assert known_share(sample, own) > 0.25, sample
    assert known_share(sample, own) > 2 * known_share(sample, other), sample


def text_of(*paths) -> str:
    return "".join(TextReader([str(path) for path in paths]).documents())


def test_quijote_writes_spanish_words(data, tmp_path, unchecked):
    path = data / "text" / "quijote.txt"
    english = text_of(data / "text" / "tinyshakespeare.txt")
    outcome, model, said = trained(tmp_path / "run", [path], 300)
    assert any("a byte order mark at the start was dropped" in note for note in said)
    assert any("line ends are CRLF and were kept" in note for note in said)
    assert outcome.val_bits_per_byte < 2.9
    sample = written(model)
    assert_language(sample, text_of(path), english)
    assert "\r\n" in sample, "line ends are those of the file"
    spoken = written(model, "En un lugar de la Mancha,")
    assert_language(spoken, text_of(path), english)


def test_a_column_of_the_korean_chat_writes_korean(data, tmp_path, unchecked):
    path = data / "text" / "korean_chat.csv"
    outcome, model, _ = trained(tmp_path / "run", [path], 200, column="A")
    assert outcome.val_bits_per_byte < 2.2
    # without a prompt a text begins after an end token, as every cell did; and ends by itself, as every cell does
    answers = [unembed.generate(model, tokens=60, temperature=0.7, seed=seed).values for seed in range(12)]
    assert hangul_share("".join(answer["text"] for answer in answers)) > 0.95
    assert sum(answer["stopped"] == "end" for answer in answers) >= 9
    assert all("," not in answer["text"] or "label" not in answer["text"] for answer in answers)


@pytest.mark.parametrize("language", ["en", "es", "ko"])
def test_a_short_declaration_in_each_language(data, tmp_path, language, unchecked):
    path = data / "text" / f"udhr_{language}.txt"
    out = tmp_path / "run"
    said: list[str] = []
    train([path], recipe_name="small", out=out, settings={"minutes": 1}, say=said.append)
    assert any("are little text" in note for note in said)
    sample = written(unembed.load(out), tokens=400)
    if language == "ko":
        assert hangul_share(sample) > 0.9, sample
    else:
        other = {"en": "es", "es": "en"}[language]
        assert_language(sample, text_of(path), text_of(data / "text" / f"udhr_{other}.txt"))


def test_the_whole_folder_goes_on_in_the_language_it_is_spoken_to(data, tmp_path, unchecked):
    folder = data / "text"
    _, model, said = trained(tmp_path / "run", [folder], 300)
    assert "this looks like a CSV with columns Q, A, label" in said[0]
    # a sample of so young a model may wander off into another text; most do not
    korean = [written(model, "오늘은 정말", tokens=120, seed=seed) for seed in range(9)]
    assert statistics.median(map(hangul_share, korean)) > 0.8, korean
    in_spanish = text_of(folder / "quijote.txt", folder / "udhr_es.txt")
    in_english = text_of(folder / "tinyshakespeare.txt", folder / "udhr_en.txt")
    spanish = [written(model, "—Señor —dijo Sancho—,", seed=seed) for seed in range(9)]
    assert_language("\n".join(spanish), in_spanish, in_english)
    # hardly words yet after so few steps, but neither Korean letters nor Spanish ones
    english = [written(model, "ROMEO:\nMy lord,", seed=seed) for seed in range(9)]
    assert statistics.median(sum(c.isalpha() for c in text) for text in english) > 100, english
    assert statistics.median(map(ascii_share, english)) > 0.97, english
