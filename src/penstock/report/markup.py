"""HTML from values. Everything that is given as text is escaped; only `Markup` passes as it is."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable
from typing import Any

from penstock.report.numbers import NOT_STEADY
from penstock.report.tables import Cell, Table

# Rows beyond this scroll within the table, so that the page does not become endless.
_TALL = 40


class Markup(str):
    """Text that is HTML already."""


def text(given: object) -> Markup:
    return given if isinstance(given, Markup) else Markup(html.escape(str(given)))


def join(parts: Iterable[object]) -> Markup:
    return Markup("\n".join(text(part) for part in parts))


def tag(name: str, *content: object, **attributes: str) -> Markup:
    """An element. `class_` and `aria_label` are written class and aria-label."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"'
        for key, value in attributes.items()
    )
    return Markup(f"<{name}{written}>{''.join(text(part) for part in content)}</{name}>")


def section(anchor: str, title: str, *content: object) -> Markup:
    heading = tag("h2", title, id=f"{anchor}-title")
    return tag("section", heading, *content, id=anchor, aria_labelledby=f"{anchor}-title")


def folded(title: str, *content: object) -> Markup:
    return tag("details", tag("summary", title), *content)


def table(given: Table, caption: str) -> Markup:
    """A table that scrolls by itself where it is wider than the page."""
    head = tag("tr", *(tag("th", column, scope="col") for column in given.columns))
    numeric = [_is_numeric(given, i) for i in range(len(given.columns))]
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
        for row in given.rows
    ]
    drawn = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *rows))
    size = "scroll tall" if len(rows) > _TALL else "scroll"
    return tag("div", drawn, class_=size, tabindex="0", role="region", aria_label=caption)


def _cell(cell: str | Cell) -> Markup:
    if isinstance(cell, Cell):
        inner = tag("span", cell.text, class_=cell.tone) if cell.tone else text(cell.text)
        return join([inner, tag("small", cell.beside.lstrip("· "))]) if cell.beside else inner
    value, bracket, interval = str(cell).partition(" [")
    if not _INTERVAL.fullmatch(bracket + interval):
        return text(cell)
    # On a line of its own, or a table of seven percentiles is wider than a screen.
    return join([text(value), tag("small", bracket.strip() + interval)])


_INTERVAL = re.compile(r" \[[−\d.,]+, [−\d.,]+\]")


def _is_numeric(given: Table, column: int) -> bool:
    cells = [str(row[column]) for row in given.rows]
    return bool(cells) and all(
        cell.lstrip("+−-≤≥– ")[:1].isdigit() or len(cell) < 2 or cell == NOT_STEADY
        for cell in cells
    )


def data_script(name: str, data: Any) -> Markup:
    """Data for the page's own script. No text in it can end the element."""
    written = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    safe = written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Markup(f'<script type="application/json" id="{html.escape(name)}">{safe}</script>')
