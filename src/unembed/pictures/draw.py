"""From a Picture and its tables to a Vega-Lite description that stands alone, and from that to SVG.

Before it: kinds.py, which draws one panel. What a page shows beside its pictures is the business of report/, the next
folder to read.
"""

from typing import Any

from unembed import catalogue
from unembed.pictures.kinds import CELL_WIDTH, Panel
from unembed.pictures.markup import escaped
from unembed.pictures.rows import Tables, caption, choice, panels, unique
from unembed.pictures.theme import Scheme, theme
from unembed.results import Picture

WIDE_PAGE, BESIDE_A_GRID = 1600, 80  # pixels; the names of a grid's rows stand beside it

Spec = dict[str, Any]


def draw(
    picture: Picture,
    tables: Tables,
    *,
    lang: str,
    panel: object = None,
    fills_its_box: bool = False,
    shades: tuple[float, float] | None = None,
) -> Spec:
    """Describes a picture in Vega-Lite, with its data inside and nothing to be fetched.

    A picture with a `facet` has its panels side by side, or is one of them where `panel` names a value of that column.
    `fills_its_box` leaves the width to the page (grids keep the size of their cells). `shades` are the ends of a grid's
    colours where its own rows are not to set them (windows.py). Colours are those of the light
    scheme; `theme` gives others, to be put in the place of `config`. Rows beyond MOST_ROWS are left out.
    Raises: ValueError if two rows of a grid fall into one cell.

    >>> from unembed.results import Table
    >>> loss = Table(columns={"step": [0, 10], "split": ["val", "val"], "loss_nats": [4.1, 2.0]})
    >>> lines = Picture(key="loss", kind="lines", table="loss", x="step", y="loss_nats", color="split")
    >>> draw(lines, {"loss": loss}, lang="es")["layer"][0]["encoding"]["y"]["title"]
    'Pérdida (nats)'
    """
    import altair as alt

    chart: Any
    words = catalogue.load(lang)
    if picture.facet and panel is None:
        values = panels(picture, tables)
        titled = [
            Panel(picture, tables, words, v).chart().properties(title=choice(picture.facet, v, words)) for v in values
        ]
        per_row = panels_in_a_row(picture, tables)
        chart = alt.hconcat(*titled) if len(titled) <= per_row else alt.concat(*titled, columns=per_row)
    else:
        chart = Panel(picture, tables, words, panel, shades).chart()
        if fills_its_box and picture.kind != "grid":
            chart = chart.properties(width="container", autosize=alt.AutoSizeParams(type="fit-x", contains="padding"))
    spec: Spec = chart.properties(description=caption(picture, words)).to_dict()
    spec["config"] = theme("light", lang)
    return spec


def panels_in_a_row(picture: Picture, tables: Tables) -> int:
    """How many panels stand side by side: all, but for grids, whose cells have a size, as many as a wide page holds."""
    if picture.kind != "grid":
        return len(panels(picture, tables))
    width = CELL_WIDTH * len(unique(tables[picture.table][picture.x]))
    return max(1, WIDE_PAGE // (width + BESIDE_A_GRID))


def to_svg(spec: Spec, *, scheme: Scheme = "light", lang: str = "en") -> str:
    """The picture as SVG text, drawn without a browser and without a request to any server."""
    import vl_convert

    svg: str = vl_convert.vegalite_to_svg({**spec, "config": theme(scheme, lang)}, allowed_base_urls=[])
    name = escaped(str(spec.get("description", "")))
    return svg.replace("<svg ", f'<svg role="img" aria-label="{name}" ', 1)
