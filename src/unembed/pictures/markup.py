"""Builds HTML in which text cannot become markup: whatever is not `Html` already is escaped on its way in.

Token text is hostile by nature: quotes, tags, `</script>`, marks that turn a line around. Here is the one place where
text becomes HTML or JSON inside HTML, for the notebook and the report alike. Before it: visible.py, which spells out what
cannot be seen. The next file to read is notebook.py.
"""

import html
import json
from typing import Any

from unembed.results import to_json_value
from unembed.visible import visible

VOID = frozenset({"meta", "link", "br", "img"})
# U+2028 and U+2029 end a line in older scripts; "<" would let `</script>` or `<!--` end the data.
_IN_SCRIPT = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


class Html(str):
    """Markup that may stand in a page as it is."""

    __slots__ = ()


def element(tag: str, *children: str, **attributes: str | bool | int | None) -> Html:
    """One element; children that are plain text and all attribute values are spelled out and escaped.

    An attribute's trailing underscore falls away and the others become hyphens; True is a bare attribute, None and
    False are none.

    >>> element("p", "a < b", element("b", '"'), class_="x", aria_label='say "hi"')
    '<p class="x" aria-label="say &quot;hi&quot;">a &lt; b<b>&quot;</b></p>'
    """
    shown = "".join(_attribute(name, value) for name, value in attributes.items())
    start = f"<{tag}{shown}>"
    return Html(start if tag in VOID else start + "".join(map(escaped, children)) + f"</{tag}>")


def escaped(text: str, *, keeps_lines: bool = False) -> Html:
    """Text as markup: unseen characters spelled out, then `& < > " '` escaped. Html stays as it is."""
    return text if isinstance(text, Html) else Html(html.escape(visible(text, keeps_lines=keeps_lines)))


def join(parts: list[Html], between: str = "\n") -> Html:
    """Pieces of markup, one after the other."""
    return Html(between.join(parts))


def script_json(value: Any) -> Html:
    r"""JSON that can stand inside a script element: no character in it can end the element or begin a comment.

    >>> script_json({"token": "</script>"})
    '{"token":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(to_json_value(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # A lone half of a surrogate pair has no UTF-8 form; JSON has one for it.
    lone: dict[str, str | int | None] = {chr(point): f"\\u{point:04x}" for point in range(0xD800, 0xE000)}
    return Html(text.translate(str.maketrans({**lone, **_IN_SCRIPT})))


def _attribute(name: str, value: str | bool | int | None) -> str:
    name = name.removesuffix("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{escaped(str(value))}"'
