"""HTML from values. Everything that is given as text is escaped; only `Markup` passes as it is."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from typing import Any

from penstock.report.formatting import NOT_STEADY
from penstock.report.tables import Cell, Table

# Rows beyond this scroll within the table, so that the page does not become endless.
_TALL = 40


class Markup(str):
    """Text that is HTML already."""


def text(value: object) -> Markup:
    return value if isinstance(value, Markup) else Markup(html.escape(str(value)))


def join(parts: Iterable[object]) -> Markup:
    return Markup("\n".join(text(part) for part in parts))


def tag(name: str, *content: object, **attributes: str) -> Markup:
    """An element. `class_` and `aria_label` are written class and aria-label."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"'
        for key, value in attributes.items()
    )
    return Markup(f"<{name}{written}>{''.join(text(part) for part in content)}</{name}>")


def checkbox(value: str, is_checked: bool) -> Markup:
    checked = " checked" if is_checked else ""
    return Markup(f'<input type="checkbox" value="{html.escape(value)}"{checked}>')


def remark(sentence: str) -> Markup:
    return tag("p", sentence, class_="caption")


def folded(title: str, *content: object) -> Markup:
    return tag("details", tag("summary", title), *content)


def folded_if(is_long: bool, title: str, content: Markup) -> Markup:
    return folded(title, content) if is_long else content


def table(content: Table, caption: str) -> Markup:
    """A table that scrolls by itself where it is wider than the page."""
    head = tag("tr", *(tag("th", column, scope="col") for column in content.columns))
    numeric = [_is_numeric(content, i) for i in range(len(content.columns))]
    rows = [
        tag(
            "tr",
            *(
                tag("th", _cell(cell), scope="row")
                if i == 0
                else tag("td", _cell(cell), **({"class_": "number"} if numeric[i] else {}))
                for i, cell in enumerate(row)
            ),
        )
        for row in content.rows
    ]
    drawn = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *rows))
    size = "scroll tall" if len(rows) > _TALL else "scroll"
    return tag("div", drawn, class_=size, tabindex="0", role="region", aria_label=caption)


def _cell(cell: str | Cell) -> Markup:
    if isinstance(cell, str):
        return text(cell)
    inner = tag("span", cell.text, class_=cell.tone) if cell.tone else text(cell.text)
    # On a line of its own, or a table of seven percentiles is wider than a screen.
    return join([inner, tag("small", cell.beside)]) if cell.beside else inner


def _is_numeric(content: Table, column: int) -> bool:
    cells = [str(row[column]) for row in content.rows]
    return bool(cells) and all(
        cell.lstrip("+−-≤≥– ")[:1].isdigit() or len(cell) < 2 or cell == NOT_STEADY
        for cell in cells
    )


def data_script(name: str, data: Any) -> Markup:
    """Data for the page's own script. No text in it can end the element."""
    written = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    safe = written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Markup(f'<script type="application/json" id="{html.escape(name)}">{safe}</script>')
