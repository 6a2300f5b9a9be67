"""Cluster facts as people read them: the sentence, the tables, and one page with charts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from penstock.domain.facts import ClusterFacts, Conditions, FactPoint
from penstock.domain.grid import Kind
from penstock.files import write_file
from penstock.measure.batch_means import scaled
from penstock.report import facts_charts, numbers
from penstock.report.charts import Chart
from penstock.report.document import contents, document, figure
from penstock.report.markup import Markup, folded, join, section, table, tag
from penstock.report.tables import Cell, Table


@dataclass(frozen=True)
class Shown:
    """A figure of a point: what it is called and in what unit it is."""

    name: str
    title: str
    unit: str


SHOWN: Mapping[Kind, tuple[Shown, ...]] = {
    "production": (
        Shown("throughput_mb_per_s", "throughput", "mb_per_s"),
        Shown("throughput_records_per_s", "records", "per_s"),
        Shown("latency_ms", "latency", "ms"),
        Shown("replication_ms", "replication", "ms"),
        Shown("unavailable_longest_ms", "unavailable", "ms"),
        Shown("election_longest_ms", "of that election", "ms"),
    ),
    "consumption": (
        Shown("throughput_mb_per_s", "throughput", "mb_per_s"),
        Shown("throughput_records_per_s", "records", "per_s"),
        Shown("rebalance_form_ms", "group forms", "ms"),
        Shown("rebalance_join_ms", "member joins", "ms"),
        Shown("rebalance_leave_ms", "member leaves", "ms"),
    ),
    "end-to-end": (
        Shown("end_to_end_p50_ms", "p50", "ms"),
        Shown("end_to_end_p90_ms", "p90", "ms"),
        Shown("end_to_end_p99_ms", "p99", "ms"),
        Shown("end_to_end_ms", "mean", "ms"),
    ),
}
USED = (
    Shown("broker_open_handles", "handles of a broker", ""),
    Shown("broker_cpu_cores", "broker cores", ""),
    Shown("broker_disk_written_mb_per_s", "brokers write", "mb_per_s"),
    Shown("client_open_handles", "handles of a client", ""),
    Shown("client_cpu_cores", "client cores", ""),
    Shown("client_disk_written_mb_per_s", "clients write", "mb_per_s"),
)
_OVER = {
    "partitions": "partition",
    "copies_per_broker": "copy on a broker",
    "led_partitions": "partition led",
}


def sentence(facts: ClusterFacts, kind: Kind) -> str:
    """What an engineer can act on."""
    return _SENTENCES[kind](facts)


def _production(facts: ClusterFacts) -> str:
    parts = []
    if facts.producer_mb_per_s is not None:
        given = numbers.estimate(facts.producer_mb_per_s, "mb_per_s")
        parts.append(f"The topic takes {given} at most")
    if facts.producer_latency_ms is not None:
        given = numbers.estimate(facts.producer_latency_ms, "ms")
        parts.append(f"a message is acknowledged after {given} at a moderate load")
    if facts.replication is not None:
        given = numbers.estimate(facts.replication.slope, "ms")
        parts.append(f"every copy on a broker adds {given} to replication")
    if facts.election is not None:
        given = numbers.estimate(facts.election.slope, "ms")
        parts.append(f"every partition that a dead broker led adds {given} until all are back")
    if facts.detection_ms is not None:
        seconds = numbers.estimate(scaled(facts.detection_ms, 1e-3), "s")
        parts.append(f"its death is noticed after {seconds}")
    return _joined(parts)


def _consumption(facts: ClusterFacts) -> str:
    parts = []
    if facts.group_mb_per_s is not None:
        parts.append(
            f"The group reads {numbers.estimate(facts.group_mb_per_s, 'mb_per_s')} at most"
        )
    if facts.consumer_mb_per_s is not None:
        given = numbers.estimate(facts.consumer_mb_per_s, "mb_per_s")
        parts.append(f"a single consumer {given}")
    if facts.rebalance_ms is not None:
        given = numbers.estimate(facts.rebalance_ms, "ms")
        parts.append(f"when a member joins, every partition is read again after {given}")
    return _joined(parts)


def _end_to_end(facts: ClusterFacts) -> str:
    if facts.end_to_end is None:
        return _joined([])
    found = facts.end_to_end.percentiles_ms
    half, most = (numbers.estimate(found[p], "ms") for p in ("50", "99"))
    return f"Half of the messages arrive within {half}, 99 % within {most}."


_SENTENCES: Mapping[Kind, Callable[[ClusterFacts], str]] = {
    "production": _production,
    "consumption": _consumption,
    "end-to-end": _end_to_end,
}


def _joined(parts: Sequence[str]) -> str:
    return "; ".join(parts) + "." if parts else "The base of the grid gave no figure."


def points(facts: ClusterFacts, kind: Kind, shown: Sequence[Shown] | None = None) -> Table:
    """A row per point: what is special to it, then its figures with their intervals."""
    found = [p for p in facts.points if p.experiment == kind]
    present = [s for s in (shown or SHOWN[kind]) if any(s.name in point.figures for point in found)]
    axes = varying([p.conditions for p in found])
    rows: list[list[str | Cell]] = [
        [
            *(_axis(point.conditions, axis) for axis in axes),
            f"{point.repeats}" + (f" ({len(point.failed)} failed)" if point.failed else ""),
            *(numbers.estimate(point.figures.get(s.name), s.unit) for s in present),
        ]
        for point in found
    ]
    return Table([*(a.replace("_", " ") for a in axes), "runs", *(s.title for s in present)], rows)


def lines(facts: ClusterFacts) -> Table:
    """Every fit: intercept, slope, how well it describes, and where it holds."""
    rows: list[list[str | Cell]] = [
        [
            line.figure,
            numbers.estimate(line.intercept, ""),
            numbers.estimate(line.slope, ""),
            _OVER[line.over],
            numbers.significant(line.r_squared, 2),
            f"{line.valid_from:g} to {line.valid_to:g}",
            str(line.observations),
        ]
        for line in facts.lines
    ]
    return Table(["figure", "intercept", "slope", "per", "R²", "measured", "runs"], rows)


def varying(found: Sequence[Conditions]) -> list[str]:
    """The axes that tell the points apart; partitions always."""
    names = [f.name for f in fields(Conditions)]
    return [n for n in names if n == "partitions" or len({getattr(c, n) for c in found}) > 1]


def _axis(where: Conditions, axis: str) -> str:
    value = getattr(where, axis)
    return f"{value:,}" if isinstance(value, int) else str(value)


# --- the page ------------------------------------------------------------------------------------


def write_page(path: Path, facts: ClusterFacts, kind: Kind, title: str) -> None:
    """One file that opens from disk, like the report of a run."""
    write_file(path, render(facts, kind, title))


def render(facts: ClusterFacts, kind: Kind, title: str) -> str:
    found = [p for p in facts.points if p.experiment == kind]
    drawn_figures = [(s.name, s.title, s.unit) for s in SHOWN[kind]]
    charts = facts_charts.over_partitions(facts, kind, drawn_figures)
    others = facts_charts.over_others(facts, kind, drawn_figures)
    cdfs = facts_charts.cumulative(facts, kind, "end_to_end" if kind == "end-to-end" else "latency")
    content: list[Markup] = [_notes(facts, found)]
    figures = table(points(facts, kind), "Means over repeats, with 95 % intervals")
    content.append(section("figures", "Figures", figures))
    if charts:
        intro = tag(
            "p",
            "Each mark is the mean over repeats with its 95 % interval; dashed: the line fitted.",
            class_="caption",
        )
        drawn = tag("div", *(_chart(c) for c in charts), class_="charts")
        content.append(section("partitions", "Over partitions", intro, drawn))
    if cdfs:
        drawn = tag("div", *(_chart(c) for c in cdfs), class_="charts")
        content.append(section("cdf", "Distribution of the latency", drawn))
    if others:
        drawn = tag("div", *(_chart(c) for c in others), class_="charts")
        content.append(section("others", "Over the other axes", drawn))
    if facts.lines:
        fits = table(lines(facts), "Least squares over all repeats, with 95 % intervals")
        content.append(section("lines", "Intercepts and slopes", fits))
    use = table(points(facts, kind, USED), "While the cluster was measured, with 95 % intervals")
    content.append(section("use", "Handles, CPU and disk", use))
    content.append(section("evidence", "Evidence", folded("Machine and versions", _about(facts))))
    body = join(content)
    header = tag(
        "header",
        tag("h1", title),
        tag("p", sentence(facts, kind), class_="outcome"),
        tag("p", f"{kind} experiment of {facts.made_at}, measured by Penstock", class_="about"),
    )
    every = [*charts, *cdfs, *others]
    return document(title, join([header, contents(body), tag("main", body, id="content")]), every)


def _chart(chart: Chart) -> Markup:
    title = chart.description.split(" over ")[0]
    return tag("div", tag("h3", title), figure(chart))


def _notes(facts: ClusterFacts, found: Sequence[FactPoint]) -> Markup:
    failed = [f"{p.conditions.partitions} partitions: {why}" for p in found for why in p.failed]
    warned = [f"{p.conditions.partitions} partitions: {why}" for p in found for why in p.warnings]
    parts = []
    if failed:
        listed = tag("ul", *(tag("li", line) for line in failed))
        parts.append(tag("div", tag("h2", "Failed measurements"), listed, class_="alarm"))
    listed = tag("ul", *(tag("li", line) for line in (*facts.caveats, *warned)))
    parts.append(tag("div", tag("h2", "What these figures hold for"), listed, class_="notice"))
    return join(parts)


def _about(facts: ClusterFacts) -> Markup:
    rows: list[list[str | Cell]] = [
        [name, str(value)] for name, value in (*facts.machine.items(), *facts.versions.items())
    ]
    return table(Table(["what", "value"], rows), "Where it was measured")
