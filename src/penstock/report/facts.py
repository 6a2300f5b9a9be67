"""Reports of cluster facts: the outcome, tables, and one page with charts."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.domain.facts import ClusterFacts, FactPoint, PointConditions
from penstock.report import facts_charts, formatting
from penstock.report.charts import Chart
from penstock.report.document import Section, document, titled_figure
from penstock.report.markup import Markup, folded, join, remark, table, tag
from penstock.report.tables import Cells, Table, estimate_cell
from penstock.runs.experiments.kinds.experiment_kind import FactFigure, experiment

USE_FIGURES = (
    FactFigure("broker_open_handles", "handles of a broker", ""),
    FactFigure("broker_cpu_cores", "broker cores", ""),
    FactFigure("broker_disk_written_mb_per_s", "brokers write", "mb_per_s"),
    FactFigure("client_open_handles", "handles of a client", ""),
    FactFigure("client_cpu_cores", "client cores", ""),
    FactFigure("client_disk_written_mb_per_s", "clients write", "mb_per_s"),
)
_OVER = {
    "partitions": "partition",
    "replicas_per_broker": "replica on a broker",
    "led_partitions": "partition led",
}


def sentence(facts: ClusterFacts, kind: str) -> str:
    """The outcome in one sentence."""
    clauses = experiment(kind).outcome(facts, formatting.estimate)
    return "; ".join(clauses) + "." if clauses else "The base point of the grid has no results."


def points(facts: ClusterFacts, kind: str, figures: Sequence[FactFigure] | None = None) -> Table:
    """A row per point: what is special to it, then its figures with their intervals."""
    measured = [p for p in facts.points if p.experiment == kind]
    present = [
        f
        for f in figures or experiment(kind).reported_figures
        if any(f.name in p.figures for p in measured)
    ]
    axes = varying([p.conditions for p in measured])
    rows: list[Cells] = [
        [
            *(_axis(point.conditions, axis) for axis in axes),
            f"{point.repeats}" + (f" ({len(point.failed)} failed)" if point.failed else ""),
            *(estimate_cell(point.figures.get(f.name), f.unit) for f in present),
        ]
        for point in measured
    ]
    return Table([*(a.replace("_", " ") for a in axes), "runs", *(f.title for f in present)], rows)


def lines(facts: ClusterFacts) -> Table:
    """Every fit: intercept, slope, how well it describes, and where it holds."""
    rows: list[Cells] = [
        [
            line.figure,
            estimate_cell(line.intercept, ""),
            estimate_cell(line.slope, ""),
            _OVER[line.over],
            formatting.significant(line.r_squared, 2),
            f"{line.valid_from:g} to {line.valid_to:g}",
            str(line.observations),
        ]
        for line in facts.lines
    ]
    return Table(["figure", "intercept", "slope", "per", "R²", "measured", "runs"], rows)


def varying(conditions: Sequence[PointConditions]) -> list[str]:
    """The axes that tell the points apart; partitions always."""
    where = [c.coordinates for c in conditions]
    names = where[0] if where else ()
    return [n for n in names if n == "partitions" or len({c[n] for c in where}) > 1]


def _axis(where: PointConditions, axis: str) -> str:
    value = where.coordinates[axis]
    return f"{value:,}" if isinstance(value, int) else str(value)


# --- the page ------------------------------------------------------------------------------------


def render(facts: ClusterFacts, kind: str, title: str) -> str:
    """One file that opens from disk, like the report of a run."""
    measured = [p for p in facts.points if p.experiment == kind]
    header = tag(
        "header",
        tag("h1", title),
        tag("p", sentence(facts, kind), class_="outcome"),
        tag("p", f"{kind} experiment of {facts.made_at}, measured by Penstock", class_="about"),
    )
    fitted = remark(
        "Each mark is the mean over repeats with its 95 % interval; dashed: the line fitted."
    )
    figures = table(points(facts, kind), "Means over repeats, with 95 % intervals")
    fits = table(lines(facts), "Least squares over all repeats, with 95 % intervals")
    use = table(
        points(facts, kind, USE_FIGURES), "While the cluster was measured, with 95 % intervals"
    )
    measures = experiment(kind)
    sweep = facts_charts.over_partitions(facts, kind, measures.reported_figures)
    others = facts_charts.over_others(facts, kind, measures.reported_figures)
    cdfs = facts_charts.cumulative(facts, kind, measures.distribution)
    parts: list[Section | Markup | None] = [
        _notes(facts, measured),
        Section("figures", "Figures", (figures,)),
        _charts("partitions", "Over partitions", sweep, fitted),
        _charts("cdf", "Distribution of the latency", cdfs),
        _charts("others", "Over the other axes", others),
        Section("lines", "Intercepts and slopes", (fits,)) if facts.lines else None,
        Section("use", "Handles, CPU and disk", (use,)),
        Section("evidence", "Evidence", (folded("Machine and versions", _about(facts)),)),
    ]
    return document(title, header, parts)


def _charts(name: str, title: str, charts: tuple[Chart, ...], *intro: Markup) -> Section | None:
    if not charts:
        return None
    grid = tag("div", *(titled_figure(chart) for chart in charts), class_="charts")
    return Section(name, title, (*intro, grid), charts)


def _notes(facts: ClusterFacts, measured: Sequence[FactPoint]) -> Markup:
    def box(heading: str, lines: Sequence[str], class_: str) -> Markup:
        listed = tag("ul", *(tag("li", line) for line in lines))
        return tag("div", tag("h2", heading), listed, class_=class_)

    sizes = [(f"{p.conditions.partitions} partitions", p) for p in measured]
    failed = [f"{size}: {why}" for size, p in sizes for why in p.failed]
    warned = [f"{size}: {why}" for size, p in sizes for why in p.warnings]
    known = box("Scope of these figures", (*facts.caveats, *warned), "notice")
    return join([box("Failed measurements", failed, "alarm"), known]) if failed else known


def _about(facts: ClusterFacts) -> Markup:
    rows = [[name, str(value)] for name, value in (*facts.machine.items(), *facts.versions.items())]
    return table(Table(["what", "value"], rows), "Where it was measured")
