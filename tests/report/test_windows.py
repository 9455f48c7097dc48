"""Large grids in windows: each cell in exactly one, colours alike in all, packed within the page's budget, safe."""

import base64
import gzip
import json
import re
from functools import partialmethod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import example_results as example
from oracles.hostile_strings import hostile_strings, unseen
from unembed import catalogue
from unembed.pictures import MOST_ROWS, shades, windows
from unembed.report import drawings
from unembed.report import page as page_module
from unembed.report.one import one_page
from unembed.results import Picture, Result, Table
from unembed.visible import visible

GRID = Picture(
    key="lens", kind="grid", table="lens", x="position", y="layer", color="entropy_nats", text="entropy_nats"
)


@pytest.fixture(scope="module", autouse=True)
def stub():
    """The drawing library takes seconds to be put together, and nothing is drawn here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_module, "_bundle", lambda: "window.vegaEmbed = null;")
        yield


@pytest.fixture
def small(monkeypatch):
    """Windows begin at 300 cells: each drawing takes a tenth of a second."""
    monkeypatch.setitem(MOST_ROWS, "grid", 300)


def grid(n_columns, n_lines, *, facets=1, entropy=1.5):
    n = n_columns * n_lines * facets
    columns = {
        "position": [i % n_columns for i in range(n)],
        "layer": [i // n_columns % n_lines for i in range(n)],
        "batch": [i // (n_columns * n_lines) for i in range(n)],
        "entropy_nats": [entropy * (i + 1) / n for i in range(n)],
    }
    return Table(columns=columns)


def pictures_of(page):
    return json.loads(re.search(r'<script type="application/json" id="pictures">(.*?)</script>', page)[1])


def unpacked(packed):
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def cells(spec):
    return [(row["position"], row["layer"]) for row in rows_of(spec)]


def rows_of(spec):
    (values,) = spec["datasets"].values() if "datasets" in spec else [spec["data"]["values"]]
    return values


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 300), st.integers(1, 70))
def test_property_each_cell_lies_in_exactly_one_window(n_columns, n_lines):
    table = grid(n_columns, n_lines)
    found = windows(GRID, {"lens": table})
    seen = [cell for w in found for cell in zip(w.table["position"].tolist(), w.table["layer"].tolist(), strict=True)]
    assert sorted(seen) == sorted((x, y) for x in range(n_columns) for y in range(n_lines))
    assert max(w.table.n_rows for w in found) <= MOST_ROWS["grid"]
    assert (len(found) == 1) == (n_columns * n_lines <= MOST_ROWS["grid"])
    for w in found:
        assert w.columns == (w.table["position"].min(), w.table["position"].max())
        assert w.lines == (w.table["layer"].min(), w.table["layer"].max())


def test_one_colour_means_the_same_in_every_window_and_in_each_panel_its_own(small):
    table = grid(70, 10, facets=2)
    faceted = Picture(
        key="lens", kind="grid", table="lens", x="position", y="layer", color="entropy_nats", facet="batch"
    )
    assert shades(faceted, {"lens": table}, 1) == (0.0, 1.5)
    assert shades(faceted, {"lens": table}, 0) == (0.0, 0.75)
    page = one_page(Result(name="lens", tables={"lens": grid(70, 10)}, pictures=(GRID,)), lang="en", command="x")
    scales = [
        unpacked(one["packed"])["layer"][0]["encoding"]["color"]["scale"]["domain"]
        for one in pictures_of(page)["windows"]["chart-1"]
    ]
    assert scales == [[0.0, 1.5]] * 3


def test_a_long_text_is_in_the_page_whole_window_by_window(small):
    tokens = tuple(f"t{i}" for i in range(70))
    page = one_page(example.lens("en", tokens=tokens), lang="en", command="x")
    found = pictures_of(page)
    assert found["charts"] == {}
    kept = found["windows"]["chart-1"]
    seen = [cell for one in kept for cell in cells(unpacked(one["packed"]))]
    assert sorted(seen) == [(x, y) for x in range(70) for y in range(5)]
    assert kept[1]["label"] == "Position 32–63; Layer 0–4 (part 2 of 3)"
    assert "Drawn:" not in page, "nothing is left out"
    assert 'aria-label="The next part"' in page
    assert len(page.encode()) < 200_000


def test_what_the_budget_leaves_out_is_said(small, monkeypatch):
    monkeypatch.setattr(drawings.Drawings, "__init__", partialmethod(drawings.Drawings.__init__, bytes_left=25_000))
    page = one_page(example.lens("en", tokens=tuple(f"t{i}" for i in range(150))), lang="en", command="x")
    kept = pictures_of(page)["windows"]["chart-1"]
    assert sum(len(one["packed"]) for one in kept) <= 25_000
    shown = sum(len(cells(unpacked(one["packed"]))) for one in kept)
    assert 0 < shown < 750
    assert f"Drawn: {shown} of 750 rows." in page
    assert kept[-1]["label"].endswith(f"(part {len(kept)} of {len(kept)})")


@pytest.mark.slow
def test_panels_share_the_budget_and_one_without_room_says_so(small, monkeypatch):
    picture = Picture(
        key="attention", kind="grid", table="weights", x="position", y="layer", color="entropy_nats", facet="batch"
    )
    result = Result(name="attention", tables={"weights": grid(40, 10, facets=3)}, pictures=(picture,))
    kept = pictures_of(one_page(result, lang="es", command="x", model="m"))["windows"]
    assert {len(windows_of) for windows_of in kept.values()} == {2}
    sizes = [len(one["packed"]) for windows_of in kept.values() for one in windows_of]
    room = max(sizes) * 3 + 100
    monkeypatch.setattr(drawings.Drawings, "__init__", partialmethod(drawings.Drawings.__init__, bytes_left=room))
    page = one_page(result, lang="en", command="x")
    assert [len(windows_of) for windows_of in pictures_of(page)["windows"].values()] == [1, 1, 1]
    assert "Drawn: 960 of 1,200 rows." in page
    monkeypatch.setattr(drawings.Drawings, "__init__", partialmethod(drawings.Drawings.__init__, bytes_left=300))
    page = one_page(result, lang="en", command="x")
    assert "Drawn: 0 of 1,200 rows." in page
    assert 'class="chart"' not in page
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("lang", catalogue.LANGUAGES[2:])
def test_hostile_texts_in_windows_are_packed_and_spelled_out(lang, small):
    """Tags, right-to-left overrides, piles of marks: none stands in the page, and what is unpacked holds nothing unseen."""
    hostile = hostile_strings()
    tokens = tuple(hostile[i % len(hostile)] for i in range(70))
    page = one_page(example.lens(lang, tokens=tokens), lang=lang, command=hostile[0], model=hostile[1])
    assert unseen(page) == unseen(one_page(example.lens(lang), lang=lang, command="x"))
    found = pictures_of(page)
    assert "<" not in json.dumps(found["windows"], ensure_ascii=False)
    for one in found["windows"]["chart-1"]:
        rows = rows_of(unpacked(one["packed"]))
        texts = [value for row in rows for value in row.values() if isinstance(value, str)]
        assert all(visible(text) == text for text in texts)


@pytest.mark.parametrize(
    ("token", "shown"),
    [("\u202eabc", "\\u202e"), ("שלום", "שלום"), ("e" + "\u0301" * 40, "é"), (" \t", "␣"), ("</script>", "</script>")],
)
def test_scripts_from_right_to_left_and_marks_are_legible(token, shown):
    page = one_page(example.lens("en", tokens=(token, "b")), lang="en", command="x")
    rows = rows_of(pictures_of(page)["charts"]["chart-1"])
    assert shown in {row["token"] for row in rows if row["position"] == 0}.pop() or shown == "é"
    data = re.search(r'id="pictures">(.*?)</script>', page)[1]
    assert "<" not in data
    assert "\u202e" not in page
