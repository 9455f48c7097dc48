"""The colours of pictures and pages, in a light and a dark scheme, and how well text on them can be read.

The report's style sheet takes its colours from here too, so that a picture never sits on a colour it was not made for.
A test computes every contrast that is claimed below. The next file to read is rows.py: what is drawn in these colours.
"""

from collections.abc import Mapping
from typing import Any, Literal

from unembed import catalogue

Scheme = Literal["light", "dark"]
FONT = (
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Apple SD Gothic Neo', 'Malgun Gothic', 'Noto Sans KR', sans-serif"
)

# `ink`, `muted` and `accent` are text: at least 4.5 on page, surface, sunken and soft. `categories` are marks: at least
# 3 on surface. The eight keep apart for readers who see no red or no green; lines and points also differ in form.
PALETTES: Mapping[str, Mapping[str, Any]] = {
    "light": {
        "page": "#f6f6f2",
        "surface": "#ffffff",
        "sunken": "#eef0ec",
        "ink": "#1b2327",
        "muted": "#566167",
        "line": "#dcdfda",
        "accent": "#0c6b64",
        "soft": "#e0efec",
        "ramp": ["#f1f5f4", "#0a5f59"],
        "categories": ["#0f766e", "#c2570c", "#5b4fc7", "#b8336a", "#2672b0", "#6b7a12", "#8a5a2b", "#5d6970"],
    },
    "dark": {
        "page": "#101517",
        "surface": "#181f22",
        "sunken": "#20292d",
        "ink": "#e7ecea",
        "muted": "#a3b0b4",
        "line": "#303b40",
        "accent": "#67d0c3",
        "soft": "#1b3431",
        "ramp": ["#1f2a2e", "#7fe3d4"],
        "categories": ["#4fc3b5", "#f2a65a", "#a79bf5", "#f08bb0", "#78b8f0", "#bccb5f", "#d3a878", "#a9b5ba"],
    },
}
# Pure, because on the middle of a ramp anything less falls below 4.5.
_INKS = ("#000000", "#ffffff")


def theme(scheme: Scheme, lang: str) -> dict[str, Any]:
    """The Vega-Lite `config` of one scheme: everything about a picture that is neither its data nor its form.

    Colours that marks refer to are parameters by name, so that one description of a picture serves both schemes.
    """
    colors, words = PALETTES[scheme], catalogue.load(lang)
    weak, strong = colors["ramp"]
    quiet = {"labelColor": colors["muted"], "titleColor": colors["muted"], "labelFontSize": 12, "titleFontSize": 12}
    parameters = {
        "ink": colors["ink"],
        "muted": colors["muted"],
        "surface": colors["surface"],
        "ink_on_weak": ink_on(weak),
        "ink_on_strong": ink_on(strong),
        "strong_from": strong_from(weak, strong),
    }
    return {
        "background": "transparent",
        "font": FONT,
        "locale": {
            "number": {
                "decimal": words.text("number.decimal"),
                "thousands": words.text("number.group"),
                "grouping": [3],
                "currency": ["", ""],
                "percent": words.text("number.percent_space") + "%",
            }
        },
        "params": [{"name": name, "value": value} for name, value in parameters.items()],
        "axis": {
            **quiet,
            "gridColor": colors["line"],
            "domain": False,
            "ticks": False,
            "labelPadding": 8,
            "titlePadding": 10,
            "titleFontWeight": "normal",
            "labelLimit": 170,
        },
        "legend": {
            **quiet,
            "orient": "top",
            "columns": 4,
            "columnPadding": 16,
            "title": None,
            "titleFontWeight": "normal",
            "offset": 14,
        },
        "title": {"color": colors["ink"], "fontSize": 13, "fontWeight": 600, "anchor": "start", "offset": 12},
        "range": {"category": colors["categories"], "heatmap": colors["ramp"], "ramp": colors["ramp"]},
        "bar": {"color": colors["categories"][0]},
        "line": {"color": colors["categories"][0], "strokeWidth": 2.5, "strokeJoin": "round", "strokeCap": "round"},
        "point": {"color": colors["categories"][0]},
        "view": {"stroke": None},
    }


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, from 1 to 21: (L1 + 0.05) / (L2 + 0.05), L the relative luminance, brighter first.

    Source: WCAG 2.2, "contrast ratio" and "relative luminance".

    >>> round(contrast("#ffffff", "#000000"), 6)
    21.0
    """
    dim, bright = sorted((_luminance(one), _luminance(other)))
    return (bright + 0.05) / (dim + 0.05)


def ink_on(color: str) -> str:
    """Black or white, whichever is the easier to read on a colour."""
    return max(_INKS, key=lambda ink: contrast(ink, color))


def mix(one: str, other: str, share: float) -> str:
    """The colour that Vega's ramps give at a share of the way from one colour to the other (linear in sRGB).

    >>> mix("#000000", "#ffffff", 0.5)
    '#808080'
    """
    pairs = zip(_channels(one), _channels(other), strict=True)
    return "#" + "".join(f"{round(255 * (a + (b - a) * share)):02x}" for a, b in pairs)


def strong_from(weak: str, strong: str) -> float:
    """From which share of the way between two colours on the ink of the strong one is the easier to read."""
    ink = ink_on(strong)
    return next(step / 100 for step in range(101) if ink_on(mix(weak, strong, step / 100)) == ink)


def _channels(color: str) -> list[float]:
    return [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]


def _luminance(color: str) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in _channels(color)]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
