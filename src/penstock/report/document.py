"""The frame of every page: its style, its charts, its sections. One file that loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from penstock.extras import require
from penstock.report.charts import DASHES, MOST_LINES, PALETTE, Chart
from penstock.report.markup import Markup, data_script, join, tag, text

# The page may load nothing at all, whatever a name or a script in it says.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)


def figure(chart: Chart) -> Markup:
    """The place of a chart, with its text alternative."""
    drawing = tag(
        "div", class_="chart", id=f"chart-{chart.id}", role="img", aria_label=chart.description
    )
    return tag("figure", drawing)


def titled_figure(chart: Chart) -> Markup:
    """A chart in a grid of charts, below its title."""
    return tag("div", tag("h3", chart.title), figure(chart))


@dataclass(frozen=True)
class Section:
    """A part of a page that the contents link to, with the charts that it has places for."""

    id: str
    title: str
    content: tuple[Markup, ...]
    charts: tuple[Chart, ...] = ()

    @property
    def html(self) -> Markup:
        heading = tag("h2", self.title, id=f"{self.id}-title")
        label = f"{self.id}-title"
        return tag("section", heading, *self.content, id=self.id, aria_labelledby=label)


def document(title: str, header: Markup, parts: Sequence[Section | Markup | None]) -> str:
    """The whole page: header, contents, and the parts that there are."""
    sections = [part for part in parts if isinstance(part, Section)]
    charts = [chart for section in sections for chart in section.charts]
    links = [tag("li", tag("a", section.title, href=f"#{section.id}")) for section in sections]
    contents = tag("nav", tag("ul", *links), aria_label="Sections")
    body = join(part.html if isinstance(part, Section) else part for part in parts if part)
    package = resources.files("penstock.report")
    style = package.joinpath("page.css").read_text(encoding="utf-8")
    scripts: list[str] = []
    if charts:  # without any there is nothing to draw with five megabytes
        require("analysis", "plotly")
        from plotly.offline import get_plotlyjs  # takes half a second to import

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
            join([header, contents, tag("main", body, id="content")]),
            "<noscript><p>The charts need JavaScript; every figure is in the tables too.</p></noscript>",
            *scripts,
            "</body>",
            "</html>",
            "",
        ]
    )
