"""A report of a real run is written in one language: every name has its word, and no English is left in the others."""

import json
import re
from html.parser import HTMLParser
from importlib import resources

import pytest

from unembed import catalogue
from unembed.corpora.grammar import LANGUAGES as GRAMMARS
from unembed.corpora.grammar import SIZES, grammar
from unembed.report import page as page_module
from unembed.report.write import analyse, write_report
from unembed.tokenizers.files import KINDS

# Words that a column's values come from a list of ours; the texts of a stranger's vocabulary stand in no catalogue.
WORDED = ("split", "when", "part", "held", "head_table", "where", "feature", "group", "tokenizer", "name")
# What is written alike in every language: names, units, standards.
ALIKE = {
    "unembed",
    "PyTorch",
    "NumPy",
    "Python",
    "MLP",
    "SHA",
    "UTF",
    "LF",
    "BPE",
    "cpu",
    "kB",
    "MB",
    "GB",
    "end",
    "unk",
}


class Seen(HTMLParser):
    """What a person sees or hears of a page: text, and the labels of what has none; not commands, sums and samples."""

    SKIPPED = ("script", "style", "code", "blockquote")

    def __init__(self, page):
        super().__init__()
        self.found, self.skipping = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.found += [attributes[name] for name in ("aria-label", "alt", "title") if name in attributes]
        if tag in self.SKIPPED or attributes.get("class") in ("sum", "way"):
            self.skipping.append(tag)

    def handle_endtag(self, tag):
        if self.skipping and self.skipping[-1] == tag:
            self.skipping.pop()

    def handle_data(self, data):
        if not self.skipping and data.strip():
            self.found.append(data.strip())


def strings(lang):
    return json.loads(resources.files(catalogue).joinpath(f"{lang}.json").read_text(encoding="utf-8"))


def nameless(name, result, words):
    """Every name of a result that the catalogue has no word for."""
    wanted = {f"section.{name}.title", f"section.{name}.text"} | {f"note.{key}" for key in result.notes}
    wanted |= {f"value.{key}" for key in result.values} | {f"table.{key}" for key in result.tables}
    wanted |= {f"picture.{picture.key}" for picture in result.pictures}
    for key, table in result.tables.items():
        wanted |= {f"column.{c}" for c in table.columns if words.find(f"column.{key}.{c}") is None}
        for column in WORDED:
            values = {v for v in table.columns.get(column, []) if isinstance(v, str) and not v.isdigit() and v}
            wanted |= {f"choice.{column}.{value}" for value in values}
    return sorted(key for key in wanted if words.find(key) is None)


@pytest.mark.slow
def test_every_name_of_every_analysis_stands_in_the_catalogue(grammar_view, text_view, brief_exam):
    words = catalogue.load("en")
    results = [*analyse(grammar_view).items(), *analyse(text_view).items()]
    assert {name for name, _ in results} >= {"loss", "rates", "gradients", "tying", "data", "agreement", "lens"}
    assert {f"{name}: {key}" for name, result in results for key in nameless(name, result, words)} == set()


@pytest.mark.slow
@pytest.mark.parametrize("lang", ["es", "ko"])
def test_no_english_is_left(grammar_run, brief_exam, lang, tmp_path):
    """The run is in Korean, so that whatever is Latin on its page was written by us."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_module, "_bundle", lambda: "1")
        page = write_report(grammar_run, tmp_path / "x.html", lang=lang).read_text(encoding="utf-8")
    english, own = set(strings("en").values()), set(strings(lang).values())
    charts = json.loads(re.search(r'<script type="application/json" id="pictures">(.*?)</script>', page)[1])
    seen = [*Seen(page).found, *texts(charts["charts"])]
    assert len(seen) > 300
    english = {text for text in english - own if any(letter.isalpha() for letter in text)}
    assert [text for text in seen if text in english] == []
    assert [text for text in seen if re.fullmatch(r"[a-z]+(_[a-z0-9]+)+", text)] == [], "a name of the code"
    if lang == "ko":
        latin = {word for text in seen for word in re.findall(r"[A-Za-z]{2,}", text)}
        assert latin - ALIKE - set(re.findall(r"[A-Za-z]+", " ".join(own))) - {"tour"} == set()


def texts(value):
    """The titles and written values of Vega-Lite descriptions."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key in ("title", "description") and isinstance(item, str):
                yield item
            elif key == "values" and isinstance(item, list):
                yield from (
                    v for row in item for k, v in row.items() if isinstance(v, str) and k not in ("token", "text")
                )
            else:
                yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


@pytest.mark.parametrize("language", GRAMMARS)
@pytest.mark.parametrize("size", SIZES)
def test_every_part_of_speech_and_feature_of_the_grammars_has_its_word(language, size):
    words, rules = catalogue.load("es"), grammar(language, size)
    features = {question.feature for question in rules.long_agreements(2, 200)}
    wanted = {f"choice.group.{part}" for part in rules.state_labels("part")} | {f"choice.feature.{f}" for f in features}
    wanted |= {f"choice.grammar.language.{language}", f"choice.grammar.size.{size}"}
    assert sorted(key for key in wanted if words.find(key) is None) == []


def test_every_kind_of_tokenizer_has_its_word():
    words = catalogue.load("es")
    kinds = ["characters", "words", "bpe", "unigram", "wordpiece", "wordlevel", "pieces"]
    assert len(KINDS) <= len(kinds)
    assert [kind for kind in kinds if words.find(f"choice.tokenizer.{kind}") is None] == []
