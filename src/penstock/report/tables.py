"""Rows for the terminal and the page: one run, several side by side, a comparison, a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Literal, NamedTuple

from penstock.domain.metrics import Distribution, Estimate, RunMetrics
from penstock.domain.verdict import Judgement, Verdict
from penstock.report import formatting
from penstock.report.comparison import ComparedValue, Comparison, ComparisonRow, difference_text
from penstock.report.figures import (
    COUNTS,
    MAIN_COUNTS,
    NO_SHARE,
    P50_LATENCY,
    P99_LATENCY,
    Figure,
    count_of,
    figures,
    part_names,
)
from penstock.report.reported_run import ReportedRun, Side, counted, sides

_NOT_JUDGED = "not judged"
# More columns than this fit on no screen: then every run is a row.
MOST_COLUMNS = 6
# More verdicts are a matter for the page.
MOST_VERDICTS = 10

Tone = Literal["good", "bad", "unsure", ""]


@dataclass(frozen=True)
class Cell:
    """Text that the page also gives a colour; the words alone say the same."""

    text: str
    tone: Tone = ""
    beside: str = ""  # on the page it stands below, in small letters
    separator: str = " "  # between the two, where they are on one line

    def __str__(self) -> str:
        return f"{self.text}{self.separator}{self.beside}" if self.beside else self.text


def estimate_cell(figure: Estimate | None, unit: str) -> Cell:
    """41 ms [37, 46]."""
    if figure is None:
        return Cell(formatting.NOTHING)
    interval = formatting.interval(figure.low, figure.high, unit)
    return Cell(formatting.quantity(figure.value, unit), beside=interval)


Cells = Sequence[str | Cell]


class Table(NamedTuple):
    """What `cli.output.table` takes: `output.table(*tables.states(runs))`."""

    columns: Sequence[str]
    rows: Sequence[Cells]


# What is asked first; the other tables have the rest.
_SUMMARY_COUNTS = ("sent", "delivered", "duplicated", "lost", "acknowledged_yet_lost")
_SUMMARY_FIGURES = (
    P50_LATENCY,
    P99_LATENCY,
    Figure("acknowledgement.p50_ms", "p50 acknowledgement", "ms"),
    Figure("acknowledgement.p99_ms", "p99 acknowledgement", "ms"),
    Figure("goodput_mb_per_s", "goodput", "mb_per_s"),
)


def summary(runs: Sequence[ReportedRun]) -> Table:
    """The few figures that are asked first: a column per run."""
    heads = [
        *(COUNTS[name] for name in _SUMMARY_COUNTS),
        *(formatting.column(f.title, f.unit) for f in _SUMMARY_FIGURES),
    ]
    rows: list[Cells] = []
    for run in runs:
        counts = run.metrics.counts
        messages = [_count_cell(n, count_of(counts, n), counts.sent) for n in _SUMMARY_COUNTS]
        rows.append([*messages, *(_bare(figure, run) for figure in _SUMMARY_FIGURES)])
    return by_run("messages", heads, [run.label for run in runs], rows)


def states(runs: Sequence[ReportedRun], every: bool = False) -> Table:
    """Outcomes of messages: a column per run. Rare states only where they occur."""
    all_counts = [reported.metrics.counts for reported in runs]
    names = [
        name
        for name in COUNTS
        if every or name in MAIN_COUNTS or any(count_of(counts, name) for counts in all_counts)
    ]
    if len(runs) == 1:
        [counts] = all_counts
        numbers = {name: count_of(counts, name) for name in names}
        return Table(
            ["messages", "count", "share of sent"],
            [
                [
                    Cell(COUNTS[name], _state_tone(name, number)),
                    formatting.count(number),
                    "" if name in NO_SHARE else formatting.share(number, counts.sent),
                ]
                for name, number in numbers.items()
            ],
        )
    heads = [COUNTS[name] for name in names]
    rows = [
        [_count_cell(name, count_of(counts, name), counts.sent) for name in names]
        for counts in all_counts
    ]
    return by_run("messages", heads, [reported.label for reported in runs], rows)


def latencies(runs: Sequence[ReportedRun]) -> Table:
    """Latency and its parts in ms: mean and percentiles, with intervals where there is one run."""
    metrics = [reported.metrics for reported in runs]
    if len(runs) == 1:
        [reported] = runs
        named = [(name, d) for name, d in _distributions(reported.metrics) if d is not None]
        percents = sorted({p for _, d in named for p in d.percentiles_ms}, key=float)
        times = ["mean", "std. dev.", *(f"p{p}" for p in percents), "longest"]
        withheld = [formatting.NOT_STEADY] * len(times) if reported.unsteadiness else None
        rows = [
            [name, formatting.count(d.count), *(withheld or _times_cells(d, percents))]
            for name, d in named
        ]
        return Table(["time in ms", "messages", *times], rows)
    return _figures("time in ms", [f for f in figures(metrics) if f.unit == "ms"], runs)


def throughputs(runs: Sequence[ReportedRun]) -> Table:
    """Throughput per second, and the share that was late."""
    metrics = [reported.metrics for reported in runs]
    rates = [f for f in figures(metrics) if f.unit.endswith("per_s")]
    late = [f for f in figures(metrics) if f.name.startswith("violation_share")]
    return _figures("per second", [*rates, *late], runs)


def kpis(runs: Sequence[ReportedRun]) -> Table:
    """γ of every run that has one, with the terms and weights that it is made of."""
    known = [(run.label, kpi) for run in runs if (kpi := run.metrics.kpi) is not None]
    heads = [
        "weighted KPI γ",
        "φ, used share of the bandwidth",
        "μ, acknowledged share of the best rate",
        "weights of φ, μ, 1 − P_l, 1 − P_d",
    ]
    rows = [
        [
            formatting.significant(kpi.gamma),
            "bandwidth unknown"
            if kpi.bandwidth_share is None
            else formatting.quantity(kpi.bandwidth_share, "share"),
            formatting.quantity(kpi.rate_share, "share"),
            ", ".join(f"{weight:g}" for weight in astuple(kpi.weights)),
        ]
        for _, kpi in known
    ]
    if not known:
        return Table(["KPI"], [])
    return by_run("KPI", heads, [label for label, _ in known], rows)


def overview(runs: Sequence[ReportedRun]) -> Table:
    """One row per cell: the figures that are asked for first, over its repeats."""
    runs = counted(runs)
    metrics = [reported.metrics for reported in runs]
    keys = [f for f in figures(metrics) if f.is_key]
    compared = sides(runs)
    has_repeats = any(len(side.runs) > 1 for side in compared)
    has_objective = any(reported.verdict and reported.verdict.has_limits for reported in runs)
    columns = [
        "run",
        *(["repeats"] if has_repeats else []),
        "sent",
        *(f.title for f in keys),
        *(["objective"] if has_objective else []),
    ]
    rows: list[Cells] = [
        [
            side.label,
            *([str(len(side.runs))] if has_repeats else []),
            formatting.count(sum(reported.metrics.counts.sent for reported in side.used)),
            *(figure_cell(side, figure) for figure in keys),
            *([_met(side)] if has_objective else []),
        ]
        for side in compared
    ]
    return Table(columns, rows)


def verdict(judged: Verdict) -> Table:
    """Limit by limit: what was wanted, what was measured, whether the interval leaves a doubt."""
    rows: list[Cells] = [_judgement_row(judgement) for judgement in judged.judgements]
    if not judged.is_judged:
        rows = [["all limits", "", formatting.NOT_STEADY, Cell(_NOT_JUDGED, "unsure"), ""]]
    return Table(["limit", "wanted", "measured", "met", "certain"], rows)


def verdicts(runs: Sequence[ReportedRun]) -> Table:
    """The same of several runs, with the run in front."""
    rows = [
        [reported.label, *row]
        for reported in runs
        if reported.verdict is not None
        for row in verdict(reported.verdict).rows
    ]
    return Table(["run", "limit", "wanted", "measured", "met", "certain"], rows)


def compared(comparison: Comparison) -> Table:
    """Few sides: a row per figure, each side's difference beside its value. Many: a row per side."""
    base, *others = comparison.sides
    if len(comparison.sides) <= 3:
        columns = ["figure", base.label]
        for side in others:
            columns += [side.label, "difference", "beyond the noise"]
        return Table(columns, [_compared_row(row) for row in comparison.rows])
    keys = [row for row in comparison.rows if row.is_key]
    columns = ["against " + base.label, *(row.title for row in keys)]
    rows = [
        [Cell(side.label, "bad" if side.problems else ""), *(_beside_base(row, i) for row in keys)]
        for i, side in enumerate(comparison.sides)
    ]
    return Table(columns, rows)


def _beside_base(row: ComparisonRow, place: int) -> Cell:
    """A side's value, with its difference from the base if that exceeds the noise."""
    measured = row.values[place]
    value = None if measured.estimate is None else measured.estimate.value
    text = measured.withheld or formatting.quantity(value, row.unit)
    if not measured.exceeds_noise:
        return Cell(text)
    return Cell(text, "unsure", difference_text(row, measured, row.values[0].estimate), " · ")


def _compared_row(row: ComparisonRow) -> Cells:
    base, *others = row.values
    cells: list[str | Cell] = [row.title, _measured_cell(base, row.unit)]
    for measured in others:
        cells.append(_measured_cell(measured, row.unit))
        text = difference_text(row, measured, base.estimate)
        interval = formatting.interval(measured.low, measured.high, row.unit)
        cells.append(Cell(text, beside=interval))
        if measured.difference is None:
            cells.append("")
        elif not measured.is_judged and measured.difference:
            cells.append("cannot tell")
        else:
            cells.append(Cell("yes", "unsure") if measured.exceeds_noise else "no")
    return cells


def _measured_cell(measured: ComparedValue, unit: str) -> str | Cell:
    return measured.withheld or estimate_cell(measured.estimate, unit)


# --- cells ---------------------------------------------------------------------------------------


def figure_cell(measured: ReportedRun | Side, figure: Figure) -> Cell:
    if measured.withholds(figure):
        return Cell(formatting.NOT_STEADY)
    return estimate_cell(measured.estimate(figure), figure.unit)


def _figures(corner: str, chosen: Sequence[Figure], runs: Sequence[ReportedRun]) -> Table:
    if len(runs) == 1:
        return Table([corner, "measured"], [[f.title, figure_cell(runs[0], f)] for f in chosen])
    heads = [f.title if f.unit == "ms" else formatting.column(f.title, f.unit) for f in chosen]
    rows = [[_bare(figure, run) for figure in chosen] for run in runs]
    return by_run(corner, heads, [run.label for run in runs], rows)


def _bare(figure: Figure, run: ReportedRun) -> str:
    if run.withholds(figure):
        return formatting.NOT_STEADY
    estimate = run.estimate(figure)
    return formatting.bare(None if estimate is None else estimate.value, figure.unit)


def by_run(
    corner: str, heads: Sequence[str], labels: Sequence[str], rows: Sequence[Cells]
) -> Table:
    """Runs as columns while they fit, else as rows."""
    if len(labels) > MOST_COLUMNS:
        named = zip(labels, rows, strict=True)
        return Table(["run", *heads], [[label, *row] for label, row in named])
    turned = [[head, *column] for head, *column in zip(heads, *rows, strict=True)]
    return Table([corner, *labels], turned)


def _count_cell(name: str, number: int, sent: int) -> Cell:
    text = formatting.count(number)
    if number and name in ("lost", "duplicated", "acknowledged_yet_lost", "failed_yet_delivered"):
        text += f" ({formatting.share(number, sent)})"
    return Cell(text, _state_tone(name, number))


def _state_tone(name: str, number: int) -> Tone:
    return "bad" if name == "acknowledged_yet_lost" and number else ""


def _distributions(metrics: RunMetrics) -> Iterator[tuple[str, Distribution | None]]:
    yield "latency, intended to received", metrics.latency
    for name in part_names([metrics]):
        yield f"· {PART_TITLES.get(name, name)}", metrics.parts[name]
    yield "acknowledgement, intended to reported", metrics.acknowledgement
    yield "· corrected for coordinated omission", metrics.corrected


PART_TITLES = {
    "waiting": "waiting, intended to sent",
    "produce": "produce, sent to appended",
    "commit": "commit, appended to visible",
    "fetch": "fetch, visible to received",
    "commit+fetch": "commit and fetch, appended to received",
    "answer": "answer, sent to reported",
}


def _times_cells(times: Distribution, percents: Sequence[str]) -> Cells:
    deviation = Estimate(value=times.deviation_ms)
    estimates = (times.mean_ms, deviation, *(times.percentiles_ms.get(p) for p in percents))
    # Without a unit, which is in the corner of the table.
    cells = [estimate_cell(estimate, "") for estimate in estimates]
    return [*cells, formatting.bare(times.max_ms, "ms")]


def _judgement_row(judgement: Judgement) -> Cells:
    # The limits of an objective name their units; a share is the only one that does not.
    unit = "mb_per_s" if judgement.name.endswith("mb_per_s") else "share"
    sign = "≥" if unit == "mb_per_s" else "≤"
    measured = Cell("nothing arrived")
    if judgement.measured is not None:
        interval = formatting.interval(judgement.low, judgement.high, unit)
        measured = Cell(formatting.quantity(judgement.measured, unit), beside=interval)
    return [
        _JUDGED.get(judgement.name, judgement.name),
        f"{sign} {formatting.quantity(judgement.limit, unit)}",
        measured,
        Cell("met", "good") if judgement.is_met else Cell("not met", "bad"),
        _certainty(judgement),
    ]


def _certainty(judgement: Judgement) -> str | Cell:
    if judgement.is_certain:
        return "certain"
    if judgement.low is None or judgement.high is None:
        return "cannot tell"
    return Cell("within the noise", "unsure")


_JUDGED = {
    "lost_share": "lost share",
    "duplicated_share": "duplicated share",
    "goodput_mb_per_s": "goodput",
}


def _met(side: Side) -> Cell:
    """Of all its repeats: one run in three that misses it matters."""
    if side.problems:
        return Cell("cannot be used", "bad")
    verdicts = [one.verdict for one in side.used if one.verdict and one.verdict.has_limits]
    if not verdicts:
        return Cell(formatting.NOTHING)
    met = sum(verdict.is_met for verdict in verdicts)
    unjudged = sum(not verdict.is_judged for verdict in verdicts)
    if met == len(verdicts):
        return Cell("met", "good")
    if unjudged == len(verdicts):
        return Cell(_NOT_JUDGED, "unsure")
    if len(verdicts) == 1:
        return Cell("not met", "bad")
    more = f", {unjudged} {_NOT_JUDGED}" if unjudged else ""
    return Cell(f"met by {met} of {len(verdicts)}{more}", "bad")
