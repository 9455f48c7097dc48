"""Pictures of results: one Vega-Lite description for the notebook, the report, SVG and PNG.

results.py says what is to be drawn without a word of any drawing library; this folder is the only one that knows one
(altair, imported when something is drawn). Read theme.py for colours, rows.py for what is drawn, then draw.py.
"""

from unembed.pictures.draw import draw, to_svg
from unembed.pictures.rows import MOST_ROWS, caption, choice, label, panels, rows_drawn
from unembed.pictures.theme import PALETTES, theme
from unembed.pictures.windows import Window, shades, windows

__all__ = [
    "MOST_ROWS",
    "PALETTES",
    "Window",
    "caption",
    "choice",
    "draw",
    "label",
    "panels",
    "rows_drawn",
    "shades",
    "theme",
    "to_svg",
    "windows",
]
