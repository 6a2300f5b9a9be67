"""Rows for the terminal and the page: one run, several side by side, a comparison, a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from penstock.domain.metrics import Distribution, RunMetrics
from penstock.domain.verdict import Judgement, Verdict
from penstock.report import numbers
from penstock.report.comparison import Comparison, Measured, difference_text
from penstock.report.figures import (
    COUNTS,
    MAIN_COUNTS,
    NO_SHARE,
    Figure,
    count_of,
    figures,
    part_names,
)
from penstock.report.shown import Shown, Side, counted, sides

_NOT_JUDGED = "not judged"
# More columns than this fit on no screen: then every run is a row.
MOST_COLUMNS = 6

Tone = Literal["good", "bad", "unsure", ""]


@dataclass(frozen=True)
class Cell:
    """Text that the page also gives a colour; the words alone say the same."""

    text: str
    tone: Tone = ""
    beside: str = ""  # on the page it stands below, in small letters

    def __str__(self) -> str:
        return f"{self.text} {self.beside}".rstrip()


class Table(NamedTuple):
    """What `cli.output.table` takes: `output.table(*tables.states(runs))`."""

    columns: list[str]
    rows: list[list[str | Cell]]


def states(runs: Sequence[Shown], every: bool = False) -> Table:
    """What became of the messages: a column per run. Rare states only where they occur."""
    all_counts = [shown.metrics.counts for shown in runs]
    names = [
        name
        for name in COUNTS
        if every or name in MAIN_COUNTS or any(count_of(counts, name) for counts in all_counts)
    ]
    if len(runs) == 1:
        [counts] = all_counts
        return Table(
            ["messages", "count", "share of sent"],
            [
                [
                    Cell(COUNTS[name], _state_tone(name, count_of(counts, name))),
                    numbers.count(count_of(counts, name)),
                    "" if name in NO_SHARE else numbers.share(count_of(counts, name), counts.sent),
                ]
                for name in names
            ],
        )
    heads = [COUNTS[name] for name in names]
    rows: list[list[str | Cell]] = [
        [_count_cell(name, count_of(counts, name), counts.sent) for name in names]
        for counts in all_counts
    ]
    return by_run("messages", heads, [shown.label for shown in runs], rows)


def latencies(runs: Sequence[Shown]) -> Table:
    """Latency and its parts in ms: mean and percentiles, with intervals where there is one run."""
    metrics = [shown.metrics for shown in runs]
    if len(runs) == 1:
        [shown] = runs
        named = [(name, d) for name, d in _distributions(shown.metrics) if d is not None]
        percents = sorted({p for _, d in named for p in d.percentiles_ms}, key=float)
        columns = ["time in ms", "messages", "mean", *(f"p{p}" for p in percents), "longest"]
        if shown.unsteadiness:
            withheld = [numbers.NOT_STEADY] * (len(columns) - 2)
            return Table(columns, [[name, numbers.count(d.count), *withheld] for name, d in named])
        return Table(columns, [[name, *_distribution_cells(d, percents)] for name, d in named])
    found = [f for f in figures(metrics) if f.unit == "ms"]
    return _figures("time in ms", found, runs)


def throughputs(runs: Sequence[Shown]) -> Table:
    """What went through per second, and what came late."""
    metrics = [shown.metrics for shown in runs]
    found = [f for f in figures(metrics) if f.unit.endswith("per_s")]
    late = [f for f in figures(metrics) if f.name.startswith("violation_share")]
    return _figures("per second", [*found, *late], runs)


def overview(runs: Sequence[Shown]) -> Table:
    """One row per cell: the figures that are asked for first, over its repeats."""
    runs = counted(runs)
    metrics = [shown.metrics for shown in runs]
    keys = [f for f in figures(metrics) if f.is_key]
    found = sides(runs)
    has_repeats = any(len(side.runs) > 1 for side in found)
    has_objective = any(shown.verdict and shown.verdict.has_limits for shown in runs)
    columns = ["run", *(["repeats"] if has_repeats else []), "sent", *(f.title for f in keys)]
    rows: list[list[str | Cell]] = []
    for side in found:
        row: list[str | Cell] = [side.label]
        if has_repeats:
            row.append(str(len(side.runs)))
        row.append(numbers.count(sum(shown.metrics.counts.sent for shown in side.used)))
        row += [side.text(figure) for figure in keys]
        if has_objective:
            row.append(_met(side))
        rows.append(row)
    return Table([*columns, *(["objective"] if has_objective else [])], rows)


def verdict(given: Verdict) -> Table:
    """Limit by limit: what was wanted, what was measured, whether the interval leaves a doubt."""
    rows = [_judgement_row(judgement) for judgement in given.judgements]
    if not given.is_judged:
        rows = [["all limits", "", numbers.NOT_STEADY, Cell(_NOT_JUDGED, "unsure"), ""]]
    return Table(["limit", "wanted", "measured", "met", "certain"], rows)


def verdicts(runs: Sequence[Shown]) -> Table:
    """The same of several runs, with the run in front."""
    rows = [
        [shown.label, *row]
        for shown in runs
        if shown.verdict is not None
        for row in verdict(shown.verdict).rows
    ]
    return Table(["run", "limit", "wanted", "measured", "met", "certain"], rows)


def compared(comparison: Comparison) -> Table:
    """Few sides: a row per figure, each side's difference beside its value. Many: a row per side."""
    base, *others = comparison.sides
    if len(comparison.sides) <= 3:
        columns = ["figure", base.label]
        for side in others:
            columns += [side.label, "difference", "beyond the noise"]
        return Table(columns, [_compared_row(comparison, i) for i in range(len(comparison.rows))])
    keys = [row for row in comparison.rows if row.is_key]
    columns = ["against " + base.label, *(row.title for row in keys)]
    rows: list[list[str | Cell]] = []
    for i, side in enumerate(comparison.sides):
        cells: list[str | Cell] = [Cell(side.label, "bad" if side.problems else "")]
        for row in keys:
            measured = row.values[i]
            text = measured.withheld or numbers.quantity(
                None if measured.estimate is None else measured.estimate.value, row.unit
            )
            if measured.exceeds_noise:
                beside = "· " + difference_text(row, measured, row.values[0].estimate)
                cells.append(Cell(text, "unsure", beside))
            else:
                cells.append(text)
        rows.append(cells)
    return Table(columns, rows)


def _compared_row(comparison: Comparison, place: int) -> list[str | Cell]:
    row = comparison.rows[place]
    base, *others = row.values
    cells: list[str | Cell] = [row.title, _measured_text(base, row.unit)]
    for measured in others:
        cells.append(_measured_text(measured, row.unit))
        text = difference_text(row, measured, base.estimate)
        between = numbers.interval(measured.low, measured.high, row.unit)
        cells.append(f"{text} {between}".rstrip())
        if measured.difference is None:
            cells.append("")
        elif not measured.is_judged and measured.difference:
            cells.append("cannot tell")
        else:
            cells.append(Cell("yes", "unsure") if measured.exceeds_noise else "no")
    return cells


def _measured_text(measured: Measured, unit: str) -> str:
    return measured.withheld or numbers.estimate(measured.estimate, unit)


# --- cells ---------------------------------------------------------------------------------------


def _figures(corner: str, found: Sequence[Figure], runs: Sequence[Shown]) -> Table:
    if len(runs) == 1:
        [shown] = runs
        return Table(
            [corner, "measured"],
            [[f.title, shown.text(f)] for f in found],
        )
    heads = [f.title if f.unit == "ms" else _with_unit(f) for f in found]
    rows: list[list[str | Cell]] = [[_bare(figure, shown) for figure in found] for shown in runs]
    return by_run(corner, heads, [shown.label for shown in runs], rows)


def _with_unit(figure: Figure) -> str:
    unit = {"share": "%", "per_s": "messages/s", "mb_per_s": "MB/s"}[figure.unit]
    return f"{figure.title}, {unit}"


def _bare(figure: Figure, shown: Shown) -> str:
    if shown.withholds(figure):
        return numbers.NOT_STEADY
    found = shown.estimate(figure)
    return numbers.NOTHING if found is None else numbers.bare(found.value, figure.unit)


def by_run(
    corner: str, heads: Sequence[str], labels: Sequence[str], rows: Sequence[Sequence[str | Cell]]
) -> Table:
    """Runs as columns while they fit, else as rows."""
    if len(labels) > MOST_COLUMNS:
        return Table(
            ["run", *heads], [[label, *row] for label, row in zip(labels, rows, strict=True)]
        )
    turned = [[head, *(row[i] for row in rows)] for i, head in enumerate(heads)]
    return Table([corner, *labels], turned)


def _count_cell(name: str, number: int, sent: int) -> Cell:
    text = numbers.count(number)
    if number and name in ("lost", "duplicated", "acknowledged_yet_lost", "failed_yet_delivered"):
        text += f" ({numbers.share(number, sent)})"
    return Cell(text, _state_tone(name, number))


def _state_tone(name: str, number: int) -> Tone:
    if name == "acknowledged_yet_lost" and number:
        return "bad"
    return ""


def _distributions(metrics: RunMetrics) -> Iterator[tuple[str, Distribution | None]]:
    yield "latency, intended to received", metrics.latency
    for name in part_names([metrics]):
        yield f"· {PART_TITLES.get(name, name)}", metrics.parts[name]
    yield "acknowledgement, intended to told", metrics.acknowledgement
    yield "· corrected for coordinated omission", metrics.corrected


PART_TITLES = {
    "waiting": "waiting, intended to sent",
    "produce": "produce, sent to appended",
    "commit": "commit, appended to visible",
    "fetch": "fetch, visible to received",
    "commit+fetch": "commit and fetch, appended to received",
    "answer": "answer, sent to told",
}


def _distribution_cells(found: Distribution, percents: Sequence[str]) -> list[str | Cell]:
    cells: list[str | Cell] = [numbers.count(found.count)]
    for estimate in (found.mean_ms, *(found.percentiles_ms.get(p) for p in percents)):
        if estimate is None:
            cells.append(numbers.NOTHING)
        else:
            between = numbers.interval(estimate.low, estimate.high, "ms")
            cells.append(f"{numbers.bare(estimate.value, 'ms')} {between}".rstrip())
    cells.append(numbers.bare(found.max_ms, "ms"))
    return cells


def _judgement_row(judgement: Judgement) -> list[str | Cell]:
    # The limits of an objective name their units; a share is the only one that does not.
    unit = "mb_per_s" if judgement.name.endswith("mb_per_s") else "share"
    sign = "≥" if unit == "mb_per_s" else "≤"
    measured = (
        "nothing arrived"
        if judgement.measured is None
        else f"{numbers.quantity(judgement.measured, unit)} "
        f"{numbers.interval(judgement.low, judgement.high, unit)}".rstrip()
    )
    return [
        _JUDGED.get(judgement.name, judgement.name),
        f"{sign} {numbers.quantity(judgement.limit, unit)}",
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
    verdicts = [shown.verdict for shown in side.used if shown.verdict is not None]
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
