"""The page as text: nothing from outside, every text escaped, every picture with its table, sound HTML, three languages."""

import json
import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest

import example_results as example
from oracles.hostile_strings import hostile_strings, tallest_pile, unseen
from unembed import catalogue
from unembed.catalogue import LANGUAGES
from unembed.errors import UsageError
from unembed.report import build
from unembed.report import page as page_module
from unembed.report.tables import MOST_TABLE_ROWS
from unembed.results import Picture, Result, Table
from unembed.visible import MOST_MARKS, visible

MOST_BYTES = 2_000_000
VOID = {"meta", "link", "br"}
HOSTILE = hostile_strings()


class Tree(HTMLParser):
    """Elements as (tag, attributes, text), and whether each one opened is closed in order."""

    def __init__(self, page):
        super().__init__()
        self.open, self.elements = [], []
        self.feed(page)
        self.close()
        assert self.open == [], "elements that nothing closes"

    def handle_starttag(self, tag, attrs):
        self.elements.append([tag, dict(attrs), ""])
        assert len(dict(attrs)) == len(attrs), f"an attribute of {tag} stands twice"
        if tag not in VOID:
            self.open.append((tag, self.elements[-1]))

    def handle_endtag(self, tag):
        assert self.open[-1][0] == tag
        self.open.pop()

    def handle_data(self, data):
        for _, element in self.open:
            element[2] += data

    def all(self, tag):
        return [(attributes, text) for name, attributes, text in self.elements if name == tag]


def page(lang="en", sections=None, **changes):
    options = {"title": "A title", "facts": example.FACTS, "command": example.COMMAND} | changes
    return build(sections=example.sections(lang) if sections is None else sections, lang=lang, **options)


def policy(tree):
    return next(a["content"] for a, _ in tree.all("meta") if a.get("http-equiv") == "Content-Security-Policy")


@pytest.fixture(scope="module", autouse=True)
def bundle():
    """The drawing library takes seconds to be put together; one for all pages of this file."""
    script = page_module._bundle()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_module, "_bundle", lambda: script)
        yield script


@pytest.fixture(scope="module", params=LANGUAGES)
def made(request, bundle):
    return request.param, page(request.param)


def test_it_is_sound_small_and_says_its_language(made):
    lang, text = made
    tree = Tree(text)
    assert text.startswith("<!doctype html>\n")
    assert tree.all("html")[0][0] == {"lang": lang}
    assert len(text.encode()) < MOST_BYTES
    assert text.count(page_module._bundle()) == 1


def test_every_link_leads_into_the_page_and_every_id_stands_once(made):
    tree = Tree(made[1])
    ids = [attributes["id"] for _, attributes, _ in tree.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [attributes["href"] for attributes, _ in tree.all("a")]
    assert [link for link in links if link.removeprefix("#") not in ids] == []
    for _, attributes, _ in tree.elements:
        for name in ("aria-labelledby", "aria-describedby"):
            assert set(attributes.get(name, "").split()) <= set(ids)


def test_nothing_is_named_that_could_be_fetched(made):
    tree = Tree(made[1])
    named = [a[k] for _, a, _ in tree.elements for k in ("src", "href", "srcset", "data", "action") if k in a]
    assert [name for name in named if not name.startswith("#") and name != "data:,"] == []
    (style,) = tree.all("style")
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    assert "default-src 'none'" in policy(tree)
    assert "unsafe-inline" not in policy(tree).split("style-src")[0]


def test_headings_go_down_one_step_at_a_time(made):
    levels = [int(tag[1]) for tag, _, _ in Tree(made[1]).elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_landmarks_tables_and_pictures_are_named(made):
    tree = Tree(made[1])
    for tag in ("header", "nav", "main", "footer"):
        assert len(tree.all(tag)) == 1, tag
    assert all(a.get("scope") in ("col", "row") for a, _ in tree.all("th"))
    assert len(tree.all("caption")) == len(tree.all("table"))
    pictures = [a for a, _ in tree.all("div") if a.get("class") == "chart"]
    assert len(pictures) == 6
    assert all(a["role"] == "img" and a["aria-label"] for a in pictures)
    scrolls = [a for a, _ in tree.all("div") if a.get("class") == "scroll"]
    assert all(a["tabindex"] == "0" and a["role"] == "group" and a["aria-label"] for a in scrolls)


def test_every_picture_has_its_table_beside_it(made):
    lang, text = made
    for figure in re.findall(r"<figure.*?</figure>", text, flags=re.DOTALL):
        assert 'class="chart"' in figure
        assert "<details><summary>" in figure
        assert "<table>" in figure
    floors = next(f for f in re.findall(r"<figure.*?</figure>", text, flags=re.DOTALL) if "lines" in f)
    assert catalogue.text("table.floors", lang) in floors


def test_words_come_from_the_catalogue(made):
    lang, text = made
    words = catalogue.load(lang)
    body = " ".join(content for _, content in Tree(text).all("body"))
    for key in ("section.loss.title", "section.lens.text", "note.lens_is_a_clue", "value.tying_saves", "page.footer"):
        assert words.text(key) in body, key
    assert words.text("page.verdict_above", percent=words.percent(1.4948 / 1.482 - 1)) in body
    charts = json.loads(next(content for a, content in Tree(text).all("script") if a.get("id") == "pictures"))["charts"]
    assert charts["chart-1"]["layer"][0]["encoding"]["y"]["title"] == words.name("column", "loss_nats")


def test_numbers_of_a_table_are_those_of_the_result():
    rows = re.findall(r"<tr>(.*?)</tr>", page(sections=[("agreement", example.agreement("en"))]), flags=re.DOTALL)
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows if "<td" in row]
    assert cells[0] == ["person", "500", "497", "99.4%"]


def test_long_tables_are_cut_and_say_so():
    n = MOST_TABLE_ROWS + 34
    table = Table(columns={"step": list(range(n)), "loss_nats": [1.0] * n})
    text = page(sections=[("x", Result(name="x", tables={"loss": table}))])
    assert text.count("<td") == 2 * MOST_TABLE_ROWS
    assert f"the first 200 of {n} rows" in text


def test_pictures_that_leave_rows_out_say_so():
    table = Table(columns={"part": [f"p{i}" for i in range(70)], "parameters": list(range(70))})
    picture = Picture(key="by_part", kind="bars", table="by_part", x="parameters", y="part")
    text = page(sections=[("x", Result(name="x", tables={"by_part": table}, pictures=(picture,)))])
    assert "Drawn: 60 of 70 rows." in text


def test_an_analysis_that_no_catalogue_knows_is_shown_by_its_own_names():
    result = Result(
        name="novel",
        values={"new_value": 3, "nothing": None},
        tables={"t": Table(columns={"c": [1]})},
        notes=("new_note",),
    )
    text = page(sections=[("novel", result), ("novel", result)])
    for name in ("novel", "new_value", ">c<", "new_note", 'id="novel"', 'id="novel-2"'):
        assert name in text, name
    assert Tree(text).all("script") == []
    assert "script-src 'none'" in policy(Tree(text))


def test_empty_results_make_a_page():
    empty = Result(
        name="loss",
        tables={
            "loss": Table(columns={"step": [], "loss_nats": []}),
            "samples": Table(columns={"step": [], "text": []}),
        },
        pictures=(Picture(key="loss", kind="lines", table="loss", x="step", y="loss_nats"),),
    )
    assert "Loss over training: none" in page(sections=[("loss", empty)])
    assert len(Tree(page(sections=[])).all("section")) == 1


def test_a_loss_below_the_floor_is_told_as_such():
    result = Result(name="loss", values={"val_loss_nats": 0.99, "entropy_floor_nats": 1.0})
    assert catalogue.text("page.verdict_below", "es", percent="1,0\u00a0%") in page("es", sections=[("loss", result)])


@pytest.mark.slow
def test_hostile_texts_appear_only_escaped():
    """500 texts made of what breaks pages: in tables, samples, pictures, neighbours, values, facts, title, command."""
    assert len(HOSTILE) >= 500
    sections = [
        ("samples", example.samples("en", extra=HOSTILE)),
        ("lens", example.lens("en", tokens=HOSTILE[:40])),
        ("token_map", example.token_map("en", names=HOSTILE)),
        (HOSTILE[7], Result(name="x", values={HOSTILE[1]: HOSTILE[2]}, notes=(HOSTILE[3],))),
    ]
    text = page(sections=sections, title=HOSTILE[4], command=HOSTILE[5], facts={HOSTILE[6]: HOSTILE[8]})
    text.encode()
    tree = Tree(text)
    usual = {name for name, _, _ in Tree(page()).elements}
    assert {name for name, _, _ in tree.elements} <= usual
    assert len(tree.all("script")) == 3
    assert not any(name.startswith("on") for _, attributes, _ in tree.elements for name in attributes)
    ours = unseen(page_module._bundle())
    assert unseen(text) <= ours
    assert tallest_pile(text) <= MOST_MARKS
    assert visible(HOSTILE[4]) in dict(enumerate(content for _, content in tree.all("h1")))[0]
    said = " ".join(content for _, content in tree.all("td")[:400])
    assert all(visible(token, marks_edges=True) in said for token in HOSTILE[:20])


@pytest.mark.slow
def test_a_large_vocabulary_of_long_texts_still_makes_a_small_page():
    """Four hundred tokens of 20,000 characters on the map, in the lens, in the samples and among the neighbours."""
    long = tuple(f"{i} " + "&lt;한" * 5000 for i in range(400))
    sections = [
        ("samples", example.samples("en", extra=long[:20])),
        ("lens", example.lens("en", tokens=long[:40])),
        ("token_map", example.token_map("en", names=long)),
        ("loss", example.loss()),
    ]
    made = page(sections=sections, facts={"sources": list(long[:3])})
    assert len(made.encode()) < MOST_BYTES
    assert "more characters)" in made


def test_message_for_a_language_that_does_not_exist():
    with pytest.raises(UsageError, match=r"language 'fr' does not exist; expected one of en, es, ko"):
        page("fr", sections=[])


def test_numbers_of_a_column_share_one_style():
    """Whole numbers have no decimals, nor have large ones; small ones have as many as the largest of them needs."""
    columns = {
        "tokens": [65_536.0, 131_072.0],
        "tokens_per_second": [19_298.1923, 870.5],
        "learning_rate": [0.001, 0.000945696],
        "loss_nats": [2.5, 0.12345],
        "grad_norm": [float("nan"), 1.0],
    }
    tree = Tree(page(sections=[("mine", Result(name="mine", tables={"mine": Table(columns=columns)}))]))
    cells = [text for tag, _, text in tree.elements if tag == "td"]
    assert cells[:5] == ["65,536", "19,298", "0.0010000", "2.5000", "NaN"]
    assert cells[5:10] == ["131,072", "870", "0.0009457", "0.1235", "1"]


def test_the_table_of_samples_has_them_whole():
    text = "yesterday the girl near the boys saw herself . " * 6
    result = Result(name="samples", tables={"samples": Table(columns={"step": [1], "text": [text]})})
    assert "more characters" not in page(sections=[("samples", result)])
