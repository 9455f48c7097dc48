"""The layers of each kind of picture: lines, grid, points, bars.

Each kind is one method from chosen rows to layers. Before it: rows.py, which chose the rows and their words. The next
file to read is draw.py, which puts panels together and makes them stand alone.
"""

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from unembed.catalogue import Words
from unembed.pictures.names import GAP, MARK, sides
from unembed.pictures.rows import Tables, choice, drawable, in_order, is_number, is_share, label, number, select, unique
from unembed.results import Picture, Table

if TYPE_CHECKING:
    import altair as alt

    Layers = alt.LayerChart | alt.FacetChart

MOST_NAMES = 400
MOST_GROUPS = 8  # as many as there are colours
WIDTHS = {"lines": 640, "points": 420, "bars": 560}
CELL_WIDTH, CELL_HEIGHT, BAR_HEIGHT = 76, 30, 34
DIGIT = 8  # pixels of a digit of 12 px in the widest of the fonts
_SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left"]
_DASHES = [[1, 0], [7, 4], [2, 3], [9, 3, 2, 3]]


class Panel:
    """One panel on its way to a chart: the chosen rows, and the words for them."""

    def __init__(
        self,
        picture: Picture,
        tables: Tables,
        words: Words,
        panel: object,
        shades: tuple[float, float] | None = None,
    ) -> None:
        self.picture, self.tables, self.words, self.shades = picture, tables, words, shades
        self.table: Table = select(picture, tables, panel)
        used = [picture.x, picture.y, picture.color, picture.text, picture.x_text, *picture.tooltip]
        self.columns = list(dict.fromkeys(column for column in used if column))
        self.rows = drawable(self.table, self.columns, words)

    def chart(self) -> "Layers":
        """The layers of this kind of picture. Raises: ValueError if two rows of a grid fall into one cell."""
        kinds = {"lines": self._lines, "grid": self._grid, "points": self._points, "bars": self._bars}
        return kinds[self.picture.kind]()

    def _lines(self) -> "Layers":
        import altair as alt

        p = self.picture
        rules = drawable(self.tables[p.rules_table], ["name", "y"], self.words) if p.rules_table else []
        heights = [h for h in [row[p.y] for row in self.rows] + [rule["y"] for rule in rules] if h is not None]
        y_scale = alt.Scale(zero=False)
        if rules and heights:
            # Room below the lowest rule for its name, which would otherwise be written over the axis.
            room = 0.1 * (max(heights) - min(heights) or 1.0)
            y_scale = alt.Scale(domain=[min(heights) - room, max(heights) + room / 2], nice=False)
        x_axis = alt.Axis(
            grid=False,
            tickCount=7,
            tickMinStep=1 if self.table[p.x].dtype.kind in "iu" else alt.Undefined,
            labelOverlap="greedy",
            labelSeparation=10,
        )
        if self._largest(p.x) >= 1e5:
            x_axis.format = "~s"
        x = self._scaled("x", p.x, axis=x_axis, scale=alt.Scale(zero=False, nice=False))
        y = self._scaled("y", p.y, axis=alt.Axis(tickCount=6), scale=y_scale)
        rows = self.rows
        if p.color:
            # the legend's names are words, so a number that tells lines apart has to be one too, or nothing is drawn
            told = [choice(p.color, value, self.words) for value in self.table[p.color]]
            rows = [{**row, p.color: word} for row, word in zip(rows, told, strict=True)]
        base = alt.Chart(alt.InlineData(values=rows)).encode(x=x, y=y)
        lines = base.mark_line()
        if p.color and (domain := self._domain(p.color)):
            dashes = [_DASHES[i % len(_DASHES)] for i in range(len(domain))]
            legend = alt.Legend(symbolType="stroke", symbolSize=500)
            lines = lines.encode(
                color=self._named(alt.Color, p.color, scale=alt.Scale(domain=domain), legend=legend),
                strokeDash=self._named(alt.StrokeDash, p.color, scale=alt.Scale(domain=domain, range=dashes)),
            )
        # A line has one tooltip for all of it, so each of its points gets one on a disc that cannot be seen.
        layers = [lines, base.mark_point(size=120, filled=True, opacity=0).encode(tooltip=self._tooltip())]
        if rules:
            across = alt.Chart(alt.InlineData(values=rules)).encode(y=alt.Y(field="y", type="quantitative"))
            layers.append(across.mark_rule(strokeDash=[3, 4], strokeWidth=1.5, color=_color("ink")))
            names = across.encode(x=alt.value("width"), text=alt.Text(field="name", type="nominal"))
            layers.append(names.mark_text(align="right", baseline="top", dy=6, dx=-4, fontSize=12, color=_color("ink")))
        return alt.layer(*layers).properties(width=WIDTHS["lines"], height=300)

    def _grid(self) -> "Layers":
        import altair as alt

        p = self.picture
        for cell, n_rows in Counter((row[p.x], row[p.y]) for row in self.rows).items():
            if n_rows > 1:
                raise ValueError(f"picture {p.key}: {n_rows} rows of table {p.table} fall into one cell, x, y = {cell}")
        # The token is written over its column, but columns are told apart by position: a text repeats its tokens.
        over = {
            row[p.x]: f"{row[p.x]} {row[p.x_text]}" if p.x_text else choice(p.x, row[p.x], self.words)
            for row in self.rows
        }
        columns = [over[value] for value in in_order(over)]
        shown = "slice(datum.label, indexof(datum.label, ' ') + 1)" if p.x_text else "datum.label"
        x_axis = alt.Axis(
            orient="top",
            labelAngle=0,
            labelLimit=CELL_WIDTH - 8,
            labelExpr=shown,
            labelColor=_color("ink"),
            grid=False,
        )
        x = alt.X(field="over", type="ordinal", sort=columns, axis=x_axis, title=self._title("x", p.x_text or p.x))
        upwards = in_order(row[p.y] for row in self.rows)[::-1]
        # Upright: a word of one syllable, as Korean has for a layer, cannot be read lying on its side.
        y_axis = alt.Axis(grid=False, labelColor=_color("ink"), titleAngle=0, titleAlign="right", titlePadding=14)
        y = alt.Y(field=_field(p.y), type="ordinal", sort=upwards, axis=y_axis, title=self._title("y", p.y))
        rows = [{**row, "over": over[row[p.x]]} for row in self.rows]
        base = alt.Chart(alt.InlineData(values=rows)).encode(x=x, y=y, tooltip=self._tooltip())
        cells = base.mark_rect(cornerRadius=4, stroke=_color("surface"), strokeWidth=2)
        ink: Any = alt.value(_color("ink_on_weak"))
        if p.color:
            found = [row[p.color] for row in rows if row[p.color] is not None]
            own = (0.0, 1.0) if is_share(p.color) else (min([0.0, *found]), max([*found, 1e-9]))
            low, high = self.shades or own
            cells = cells.encode(color=self._shade(p.color, low, high))
            is_strong = f"(datum[{_quoted(p.color)}] - {low}) / {high - low} >= strong_from"
            ink = alt.condition(is_strong, alt.value(_color("ink_on_strong")), ink)
        marks = [cells]
        if p.text:
            # Numbers are written as the language writes them, short enough for a cell.
            for row in rows:
                told = row[p.text]
                row["written"] = self.words.number(told, 3) if isinstance(told, int | float) else told
            texts = base.encode(text=alt.Text(field="written", type="nominal"), color=ink)
            marks.append(texts.mark_text(fontSize=12, limit=CELL_WIDTH - 10))
        return alt.layer(*marks).properties(width=alt.Step(CELL_WIDTH), height=alt.Step(CELL_HEIGHT))

    def _points(self) -> "Layers":
        import altair as alt

        p = self.picture
        quiet = alt.Axis(labels=False, tickCount=5)
        x = self._scaled("x", p.x, axis=quiet, scale=alt.Scale(zero=False, padding=20))
        y = self._scaled("y", p.y, axis=quiet, scale=alt.Scale(zero=False, padding=20))
        there = [row for row in self.rows if row[p.x] is not None and row[p.y] is not None]
        groups = self._groups(p.color) if p.color else []
        if p.color and groups:
            there = [{**row, "of group": row[p.color] if row[p.color] in groups else groups[-1]} for row in there]
        base = alt.Chart(alt.InlineData(values=there)).encode(x=x, y=y, tooltip=self._tooltip())
        points = base.mark_point(filled=True, size=64, opacity=0.9)
        if groups:
            points = points.encode(
                color=self._named(alt.Color, "of group", scale=alt.Scale(domain=groups)),
                shape=self._named(alt.Shape, "of group", scale=alt.Scale(domain=groups, range=_SHAPES[: len(groups)])),
            )
        marks = [points]
        # Names without a free place are left out; each point still says its own when pointed at.
        if p.text and len(there) <= MOST_NAMES:
            marks.append(self._names(p.text, there).encode(x=x, y=y))
        return alt.layer(*marks).properties(width=WIDTHS["points"], height=400)

    def _names(self, column: str, there: list[dict[str, Any]]) -> "alt.Chart":
        import altair as alt

        p = self.picture
        chosen = sides([(row[p.x], row[p.y]) for row in there], [row[column] for row in there])
        rows = [{**row, "side": side} for row, side in zip(there, chosen, strict=True) if side]
        reach = MARK + GAP
        align = "datum.side === 'right' ? 'left' : datum.side === 'left' ? 'right' : 'center'"
        baseline = "datum.side === 'above' ? 'bottom' : datum.side === 'below' ? 'top' : 'middle'"
        chart: alt.Chart = (
            alt.Chart(alt.InlineData(values=rows))
            .mark_text(
                fontSize=11,
                color=_color("ink"),
                align=alt.ExprRef(expr=align),
                baseline=alt.ExprRef(expr=baseline),
                dx=alt.ExprRef(expr=f"datum.side === 'right' ? {reach} : datum.side === 'left' ? -{reach} : 0"),
                dy=alt.ExprRef(expr=f"datum.side === 'above' ? -{MARK} : datum.side === 'below' ? {reach} : 0"),
            )
            .encode(text=alt.Text(field=_field(column), type="nominal"), tooltip=self._tooltip())
        )
        return chart

    def _bars(self) -> "Layers":
        import altair as alt

        p = self.picture
        totals: dict[str, float] = {}
        for row in self.rows:
            totals[row[p.y]] = totals.get(row[p.y], 0) + (row[p.x] or 0)
        written = {name: number(p.x, n, self.words) for name, n in totals.items()}
        # at the end of a bar to the left its number would lie on the bar, so it stands on the other side of 0
        told = [{p.y: name, p.x: max(0, n), "number": written[name]} for name, n in totals.items()]
        # Its number is written at each bar's end, so the scale needs no labels, but room for the longest.
        ends = [min([0, *totals.values()]), max([*totals.values(), 1e-9])]
        room = 8 + DIGIT * max(map(len, written.values()), default=0)
        to_room: Any = alt.ExprRef(expr=f"max(20, width - {room})")
        x_axis = alt.Axis(labels=False, grid=False)
        x = self._scaled("x", p.x, axis=x_axis, scale=alt.Scale(domain=ends, nice=False, range=[0, to_room]))
        y_axis = alt.Axis(grid=False, labelColor=_color("ink"))
        y = alt.Y(field=_field(p.y), type="nominal", sort=list(totals), title=None, axis=y_axis)
        bars = alt.Chart(alt.InlineData(values=self.rows)).mark_bar(height=16).encode(x=x, y=y, tooltip=self._tooltip())
        if p.color and (domain := self._domain(p.color)):
            bars = bars.encode(color=self._named(alt.Color, p.color, scale=alt.Scale(domain=domain)))
        numbers = alt.Chart(alt.InlineData(values=told)).encode(x=x, y=y, text=alt.Text(field="number", type="nominal"))
        at_end = numbers.mark_text(align="left", dx=8, fontSize=12, color=_color("ink"))
        return alt.layer(bars, at_end).properties(width=WIDTHS["bars"], height=BAR_HEIGHT * max(1, len(totals)))

    def _scaled(self, side: str, column: str, **options: Any) -> Any:
        import altair as alt

        channel = alt.X if side == "x" else alt.Y
        return channel(field=_field(column), type="quantitative", title=self._title(side, column), **options)

    def _named(self, channel: Any, column: str, **options: Any) -> Any:
        return channel(field=_field(column), type="nominal", title=None, **options)

    def _shade(self, column: str, low: float, high: float) -> "alt.Color":
        import altair as alt

        form, title = ".0%" if is_share(column) else "~g", self._title("color", column)
        legend = alt.Legend(format=form, gradientLength=180, gradientThickness=10, tickCount=3)
        # Straight lines in sRGB, as theme.py reckons with; Vega would take a way around through hue.
        scale = alt.Scale(domain=[low, high], range="ramp", interpolate="rgb")
        return alt.Color(field=_field(column), type="quantitative", scale=scale, legend=legend, title=title)

    def _title(self, channel: str, column: str) -> str:
        own = self.words.find(f"picture.{self.picture.key}.{channel}")
        return own or label(column, self.picture.table, self.table, self.words)

    def _domain(self, column: str) -> list[str]:
        # Over all panels, so that a colour means the same in each of them. Two names may have one word.
        return unique(choice(column, value, self.words) for value in self.tables[self.picture.table][column])

    def _groups(self, column: str) -> list[str]:
        """The groups that have a colour: all, or the largest and one for the rest."""
        groups = self._domain(column)
        if len(groups) <= MOST_GROUPS:
            return groups
        sizes = Counter(choice(column, value, self.words) for value in self.tables[self.picture.table][column])
        largest = {name for name, _ in sizes.most_common(MOST_GROUPS - 1)}
        return [name for name in groups if name in largest] + [self.words.text("choice.group.other")]

    def _largest(self, column: str) -> float:
        return max((row[column] for row in self.rows if isinstance(row[column], int | float)), default=0)

    def _tooltip(self) -> "list[alt.Tooltip]":
        import altair as alt

        tips = []
        for column in self.picture.tooltip or self.columns:
            title = label(column, self.picture.table, self.table, self.words)
            if is_number(self.table, column):
                form = ".1%" if is_share(column) else (",d" if self.table[column].dtype.kind in "iu" else ",.4~r")
                tips.append(alt.Tooltip(field=_field(column), type="quantitative", format=form, title=title))
            else:
                tips.append(alt.Tooltip(field=_field(column), type="nominal", title=title))
        return tips


def _color(name: str) -> Any:
    """A colour of the scheme, by the name that theme.py gives it."""
    import altair as alt

    return alt.ExprRef(expr=name)


def _field(column: str) -> str:
    # Vega reads a dot or a bracket in a field's name as a way into an object.
    return re.sub(r"([.\[\]\\])", r"\\\1", column)


def _quoted(column: str) -> str:
    return "'" + column.replace("\\", "\\\\").replace("'", "\\'") + "'"
