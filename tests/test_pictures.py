"""Pictures: what is drawn is what the table says, in words and colours that can be read, and safe for any token."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unembed import catalogue
from unembed.catalogue import LANGUAGES
from unembed.pictures import MOST_ROWS, PALETTES, caption, draw, panels, rows_drawn, theme, to_svg
from unembed.pictures.names import LINE, PLOT, _box, _pixels, _width, sides
from unembed.pictures.rows import drawable, select
from unembed.pictures.theme import contrast, ink_on, mix, strong_from
from unembed.results import Picture, Table

SVG = "{http://www.w3.org/2000/svg}"
LINES = Picture(key="loss", kind="lines", table="loss", x="step", y="loss_nats", color="split", rules_table="floors")
GRID = Picture(
    key="lens", kind="grid", table="lens", x="position", x_text="token", y="layer", color="probability", text="text"
)
POINTS = Picture(key="token_map", kind="points", table="points", x="x", y="y", color="group", text="text", facet="when")
BARS = Picture(key="by_part", kind="bars", table="by_part", x="parameters", y="part")


def tables(token: str = "the") -> dict[str, Table]:
    return {
        "loss": Table(
            columns={"step": [0, 10] * 2, "split": ["train"] * 2 + ["val"] * 2, "loss_nats": [4.0, 2, 4.1, 2.2]}
        ),
        "floors": Table(columns={"name": ["entropy_floor"], "y": [1.25]}),
        "lens": Table(
            columns={
                "position": [0, 0, 1, 1],
                "token": [token] * 4,
                "layer": [0, 1, 0, 1],
                "text": ["a", token, "b", "c"],
                "probability": [0.1, 0.9, 0.5, float("nan")],
            }
        ),
        "points": Table(
            columns={
                "when": ["before", "before", "after", "after"],
                "text": [token, "dog", token, "dog"],
                "x": [0.0, 1.0, 0.0, 3.0],
                "y": [0.0, 1.0, 2.0, 0.0],
                "group": ["noun", "verb", "noun", "verb"],
            }
        ),
        "by_part": Table(columns={"part": ["token_table", "mlp"], "parameters": [4096, 65536]}),
    }


def texts(svg: str) -> list[str]:
    return ["".join(node.itertext()) for node in ET.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("picture", [LINES, GRID, POINTS, BARS], ids=lambda p: p.kind)
def test_every_kind_is_drawn_in_every_language_with_its_words(picture, lang):
    words, data = catalogue.load(lang), tables()
    svg = to_svg(draw(picture, data, lang=lang), lang=lang, scheme="dark")
    shown = texts(svg)
    expected = {
        "lines": [words.text("choice.split.val"), words.text("choice.name.entropy_floor"), words.text("column.step")],
        "grid": ["the", "a", words.text("column.layer"), words.text("column.probability")],
        "points": [words.text("choice.when.before"), "dog", words.text("choice.group.noun")],
        "bars": [words.text("choice.part.token_table"), words.number(65536)],
    }[picture.kind]
    assert [text for text in expected if text not in shown] == []
    assert caption(picture, words) in svg
    assert "http" not in svg.replace("http://www.w3.org/", "")


def test_marks_stand_where_the_numbers_say():
    """The pixel places of two bars have the ratio of their numbers."""
    svg = to_svg(draw(BARS, tables(), lang="en"))
    widths = [float(m) for m in re.findall(r'aria-roledescription="bar" d="M0,[\d.]+h([\d.]+)', svg)]
    assert len(widths) == 2
    assert widths[1] / widths[0] == pytest.approx(65536 / 4096, rel=1e-3)


def test_the_number_of_a_bar_to_the_left_does_not_lie_on_the_bar():
    data = {"by_part": Table(columns={"part": ["token_table", "mlp"], "parameters": [-3.0, 5.0]})}
    spec = draw(BARS, data, lang="en")
    bars, numbers = (spec["datasets"][layer["data"]["name"]] for layer in spec["layer"])
    assert [row["parameters"] for row in bars] == [-3.0, 5.0]
    assert [(row["parameters"], row["number"]) for row in numbers] == [(0, "−3"), (5.0, "5")]


def test_grids_that_are_too_wide_for_one_row_are_stacked():
    picture = Picture(key="x", kind="grid", table="x", x="head", y="layer", color="share", facet="score")

    def drawn(n_heads):
        rows = [(score, 0, head, 0.5) for score in "abc" for head in range(n_heads)]
        columns = dict(zip(("score", "layer", "head", "share"), zip(*rows, strict=True), strict=True))
        return draw(picture, {"x": Table(columns={k: list(v) for k, v in columns.items()})}, lang="en")

    assert len(drawn(4)["hconcat"]) == 3
    stacked = drawn(9)
    assert (len(stacked["concat"]), stacked["columns"]) == (3, 2)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_oracle_grid_colours_are_those_of_the_ramp(scheme):
    """Vega's fill of a cell equals our own mix of the two colours, on which the choice of ink rests."""
    svg = to_svg(draw(GRID, tables(), lang="en"), scheme=scheme)
    weak, strong = PALETTES[scheme]["ramp"]
    drawn = re.findall(r'aria-roledescription="rect mark"[^>]*?fill="([^"]+)"', svg)
    for fill, share in zip(drawn, (0.1, 0.9, 0.5), strict=False):
        ours = [int(mix(weak, strong, share)[i : i + 2], 16) for i in (1, 3, 5)]
        # Halves are rounded up there and to even here.
        assert list(map(int, re.findall(r"\d+", fill))) == pytest.approx(ours, abs=1)
    assert len(drawn) >= 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrasts_that_the_palette_promises(scheme):
    colors = PALETTES[scheme]
    grounds = [colors[name] for name in ("page", "surface", "sunken", "soft")]
    worst = min(contrast(colors[ink], ground) for ink in ("ink", "muted", "accent") for ground in grounds)
    assert worst >= 4.5
    assert min(contrast(color, colors["surface"]) for color in colors["categories"]) >= 3.0
    weak, strong = colors["ramp"]
    turns = strong_from(weak, strong)
    shades = [(t, mix(weak, strong, t)) for t in np.linspace(0, 1, 501).tolist()]
    assert min(contrast(ink_on(strong) if t >= turns else ink_on(weak), shade) for t, shade in shades) >= 4.5


def test_contrast_equals_published_pairs():
    """#767676 on white is WCAG's well-known lightest grey at 4.54; pure red on white has 4.00."""
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.005)
    assert contrast("#ffffff", "#ff0000") == pytest.approx(3.998, abs=0.005)


@pytest.mark.parametrize(
    "token", ["</script><b>x</b>", "\u202eabc", "a\nb", 'it\'s "q" &amp;', " the", "a.b[0]", "\x00"]
)
@pytest.mark.parametrize("picture", [GRID, POINTS], ids=lambda p: p.kind)
def test_hostile_tokens_are_text_and_nothing_else(picture, token):
    from unembed.visible import visible

    svg = to_svg(draw(picture, tables(token), lang="en"))
    root = ET.fromstring(svg)
    allowed = {
        "svg",
        "defs",
        "style",
        "g",
        "path",
        "text",
        "rect",
        "line",
        "linearGradient",
        "stop",
        "clipPath",
        "title",
    }
    assert {node.tag.removeprefix(SVG) for node in root.iter()} <= allowed
    shown = visible(token, marks_edges=True)
    assert any(shown == text or (text.endswith("…") and shown.startswith(text[:-1])) for text in texts(svg))


def test_columns_with_hostile_names_are_fields_and_nothing_else():
    data = {"t": Table(columns={"a.b": [1.0, 2.0], "c['x']": [1.0, 4.0], "k[0]": ["u", "v"]})}
    picture = Picture(key="t", kind="points", table="t", x="a.b", y="c['x']", color="k[0]")
    assert to_svg(draw(picture, data, lang="en")).count('aria-roledescription="point"') == 2


def test_a_grid_with_two_rows_in_a_cell_is_refused():
    data = {"lens": Table(columns={name: list(values) * 2 for name, values in tables()["lens"].columns.items()})}
    with pytest.raises(ValueError, match=r"picture lens: 2 rows of table lens fall into one cell, x, y = \(0, 0\)"):
        draw(GRID, data, lang="en")


def test_the_same_token_at_two_positions_has_two_columns():
    shown = texts(to_svg(draw(GRID, tables(), lang="en")))
    assert shown.count("the") == 3  # twice over a column, once as a guess


def test_panels_share_their_colours():
    data = tables()
    assert panels(POINTS, data) == ["before", "after"]
    first = data["points"].columns["group"].copy()
    first[:2] = "verb"  # one panel lacks the noun
    data["points"] = Table(columns={**data["points"].columns, "group": first})
    domains = [
        draw(POINTS, data, lang="en", panel=panel)["layer"][0]["encoding"]["color"]["scale"]["domain"]
        for panel in ("before", "after")
    ]
    assert domains[0] == domains[1] == ["verb", "noun"]


@pytest.mark.parametrize("picture", [LINES, GRID, POINTS, BARS], ids=lambda p: p.kind)
def test_numbers_that_are_not_finite_leave_gaps(picture):
    data = tables()
    name = picture.color if picture.kind == "grid" else picture.y if picture.kind == "lines" else picture.x
    column = data[picture.table][name].astype(float)
    column[[0, -1]] = [np.nan, np.inf]
    data[picture.table] = Table(columns={**data[picture.table].columns, name: column})
    assert "NaN" not in to_svg(draw(picture, data, lang="en"))


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(1, 4), st.integers(1, 40))
def test_property_thinned_lines_keep_both_ends_of_each(n_steps, n_lines, most):
    columns = {
        "step": np.tile(np.arange(n_steps), n_lines),
        "split": np.repeat([f"s{i}" for i in range(n_lines)], n_steps).astype(object),
        "loss_nats": np.arange(n_steps * n_lines, dtype=float),
    }
    picture = Picture(key="loss", kind="lines", table="loss", x="step", y="loss_nats", color="split")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MOST_ROWS, "lines", most)
        chosen = select(picture, {"loss": Table(columns=columns)})
    assert chosen.n_rows <= max(most, 2 * n_lines)
    for line in set(chosen["split"]):
        steps = chosen["step"][chosen["split"] == line]
        assert (np.diff(steps) > 0).all()
        assert (steps[0], steps[-1]) == (0, n_steps - 1)
    assert len(set(chosen["split"])) == n_lines


def test_rows_beyond_the_limit_are_counted():
    n = MOST_ROWS["bars"] + 5
    data = {"by_part": Table(columns={"part": [f"p{i}" for i in range(n)], "parameters": list(range(n))})}
    assert rows_drawn(BARS, data) == MOST_ROWS["bars"]
    assert rows_drawn(POINTS, tables()) == 4


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5), st.text("ab가", min_size=1, max_size=6)), max_size=25))
def test_property_names_never_meet_names_or_other_marks(points):
    places, names = [(x, y) for x, y, _ in points], [name for *_, name in points]
    chosen = sides(places, names)
    pixels = _pixels(places)
    boxes = [
        _box(x, y, _width(name), side) if side else None
        for (x, y), name, side in zip(pixels, names, chosen, strict=True)
    ]
    there = [(i, box) for i, box in enumerate(boxes) if box]
    assert not any(a.meets(b) for i, a in there for j, b in there if i < j)
    for i, box in there:
        assert box.bottom - box.top == pytest.approx(LINE)
        assert not any(
            box.left < x < box.right and box.top < y < box.bottom for j, (x, y) in enumerate(pixels) if j != i
        )


def test_groups_beyond_the_colours_share_one():
    n = 12
    groups = ["g0"] * 3 + ["g1"] * 2 + [f"g{i}" for i in range(2, n)]
    columns = {"x": np.arange(len(groups)), "y": np.arange(len(groups)), "group": groups}
    picture = Picture(key="p", kind="points", table="t", x="x", y="y", color="group")
    spec = draw(picture, {"t": Table(columns=columns)}, lang="es")
    domain = spec["layer"][0]["encoding"]["color"]["scale"]["domain"]
    assert domain == [*(f"g{i}" for i in range(7)), "otro"]
    (rows,) = spec["datasets"].values()
    assert [row["of group"] for row in rows][-5:] == ["otro"] * 5
    assert rows[-1]["group"] == "g11", "pointed at, a mark tells its own group"


def test_a_lone_name_stands_above_and_one_at_the_edge_turns_inwards():
    assert sides([(0, 0)], ["x"]) == ["above"]
    long = "a" * 20
    assert sides([(0, 0), (1, 1)], [long, "b"])[0] == "right"
    assert _width(long) < PLOT[0]


def test_themes_differ_in_colours_only():
    def shape(value):
        if isinstance(value, dict):
            return {k: shape(v) for k, v in value.items()}
        return [shape(v) for v in value] if isinstance(value, list) else type(value)

    assert shape(theme("light", "en")) == shape(theme("dark", "en"))
    assert theme("light", "en")["background"] == "transparent"


def test_absent_values_among_numbers_are_no_words_on_a_scale():
    table = Table(columns={"share": [0.25, None, 0.5], "name": ["a", None, "b"]})
    rows = drawable(table, ["share", "name"], catalogue.load("en"))
    assert [row["share"] for row in rows] == [0.25, None, 0.5]
    assert isinstance(rows[1]["name"], str)
    nothing = Table(columns={"share": [None, None], "name": ["a", "b"]})
    assert [row["share"] for row in drawable(nothing, ["share"], catalogue.load("en"))] == [None, None]
    picture = Picture(key="share_by_frequency", kind="bars", table="t", x="share", y="name")
    assert draw(picture, {"t": nothing}, lang="en")
    assert draw(picture, {"t": table}, lang="en")


def test_lines_that_numbers_tell_apart_are_drawn_by_the_names_in_the_legend():
    """A number in the data is no word in the scale: such lines were left out of the picture."""
    columns = {"x": [0, 1, 0, 1, 0, 1], "y": [0.0, 1.0, 1.0, 2.0, 0.0, 0.5], "layer": [0, 0, 12, 12, "ideal", "ideal"]}
    picture = Picture(key="curves", kind="lines", table="curves", x="x", y="y", color="layer")
    spec = draw(picture, {"curves": Table(columns=columns)}, lang="en")
    lines = spec["layer"][0]
    values = spec["datasets"][spec["data"]["name"]]
    scale = lines["encoding"]["color"]["scale"]["domain"]
    assert scale == ["0", "12", catalogue.load("en").text("choice.layer.ideal")]
    assert [row["layer"] for row in values] == [word for word in scale for _ in range(2)]
