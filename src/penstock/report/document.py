"""The frame of every page: its style, its charts, its sections. One file that loads nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources

from plotly.offline import get_plotlyjs

from penstock.report.charts import DASHES, MOST_LINES, PALETTE, Chart
from penstock.report.markup import Markup, data_script, tag, text

# The page may load nothing at all, whatever a name or a script in it says.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)


def figure(chart: Chart) -> Markup:
    """The place of a chart, with its description for those who do not see it."""
    drawing = tag(
        "div", class_="chart", id=f"chart-{chart.id}", role="img", aria_label=chart.description
    )
    return tag("figure", drawing)


def contents(body: Markup) -> Markup:
    """Links to the sections that there are."""
    found = re.findall(r'<section id="([a-z]+)"[^>]*><h2[^>]*>([^<]*)</h2>', body)
    links = [tag("li", tag("a", Markup(title), href=f"#{anchor}")) for anchor, title in found]
    return tag("nav", tag("ul", *links), aria_label="Sections")


def document(title: str, body: Markup, charts: Sequence[Chart]) -> str:
    """The whole page. `charts` are those that `body` has places for."""
    package = resources.files("penstock.report")
    style = package.joinpath("page.css").read_text(encoding="utf-8")
    scripts: list[str] = []
    if charts:  # without any there is nothing to draw with five megabytes
        data = {
            "charts": [{"id": c.id, "figure": c.figure, "is_choice": c.is_choice} for c in charts],
            "palette": PALETTE,
            "dashes": DASHES,
            "most": MOST_LINES,
        }
        scripts = [
            data_script("charts", data),
            f"<script>{get_plotlyjs()}</script>",
            f"<script>{package.joinpath('page.js').read_text(encoding='utf-8')}</script>",
        ]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="generator" content="Penstock">',
            f"<title>{text(title)}</title>",
            f"<style>{style}</style>",
            "</head>",
            "<body>",
            body,
            "<noscript><p>The charts need JavaScript; every figure is in the tables too.</p></noscript>",
            *scripts,
            "</body>",
            "</html>",
            "",
        ]
    )
