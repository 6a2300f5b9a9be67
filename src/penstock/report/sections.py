"""The sections of the page, each from the sides that are shown. HTML out; nothing is written."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.domain.shapes import Finding
from penstock.report import formatting, outcome, tables, timeline
from penstock.report.charts import MOST_LINES, latency_parts, message_states
from penstock.report.comparison import Comparison
from penstock.report.document import Section, figure, titled_figure
from penstock.report.figures import P50_LATENCY, P99_LATENCY
from penstock.report.markup import Markup, checkbox, folded, folded_if, remark, table, tag
from penstock.report.matrix_charts import flat_figures, over_matrix
from penstock.report.percentiles import latency_by_percentile
from penstock.report.reported_run import ReportedRun, Side
from penstock.report.tables import Cell, Cells, Table, Tone

# A longer table is folded: its summary is what most people want.
_LONG = 24


def tiles(run: ReportedRun) -> Markup:
    """The main figures of one run."""
    metrics, counts = run.metrics, run.metrics.counts
    lost = f"{formatting.count(counts.lost)} of {formatting.count(counts.sent)} messages"
    lost_tone: Tone = "bad" if counts.acknowledged_yet_lost else ""
    duplicated = f"{formatting.count(counts.duplicated)} messages"
    lost_share, duplicated_share = (
        formatting.quantity(share.value if counts.sent else None, "share")
        for share in (metrics.lost_share, metrics.duplicated_share)
    )
    tiles = [
        _tile("lost", Cell(lost_share, lost_tone, lost)),
        _tile("duplicated", Cell(duplicated_share, beside=duplicated)),
        _tile("p50 latency", tables.figure_cell(run, P50_LATENCY)),
        _tile("p99 latency", tables.figure_cell(run, P99_LATENCY)),
    ]
    if (goodput := metrics.goodput_mb_per_s) is not None:
        tiles.append(_tile("goodput", tables.estimate_cell(goodput, "mb_per_s")))
    return tag("dl", *tiles, class_="tiles")


def _tile(title: str, cell: Cell) -> Markup:
    value = tag("dd", cell.text, class_=f"figure {cell.tone}".rstrip())
    beside = tag("dd", cell.beside, class_="beside")
    return tag("div", tag("dt", title), value, beside, class_="tile")


def verdict(runs: Sequence[ReportedRun]) -> Section | None:
    judged = [s for s in runs if s.verdict is not None and s.verdict.has_limits]
    if not judged:
        return None
    verdicts = [s.verdict for s in judged if s.verdict is not None]
    is_single = len(judged) == len(runs) == 1
    rows = tables.verdict(verdicts[0]) if is_single else tables.verdicts(judged)
    drawn = table(rows, "Limit by limit, with 95 % intervals")
    if is_single:
        sentence = f"{outcome.cold(judged)} {verdicts[0].sentence}".strip()
    else:
        met = sum(verdict.is_met for verdict in verdicts)
        unjudged = sum(not verdict.is_judged for verdict in verdicts)
        more = f"; {unjudged} could not be judged, since they were not steady" if unjudged else ""
        sentence = f"{met} of {len(judged)} runs with an objective met it{more}."
        limits = len(rows.rows)
        drawn = folded_if(limits > _LONG, f"All {limits} limits, run by run", drawn)
    return Section("objective", "Objective", (tag("p", sentence), drawn))


def compared(comparison: Comparison) -> Section:
    problems = [
        f"{side.label} is not compared: {side.problems[0]}."
        for side in comparison.sides
        if side.problems
    ]
    problems += [
        f"Times of {side.label} are not compared: {side.unsteadiness}."
        for side in comparison.sides
        if side.unsteadiness and not side.problems
    ]
    warned = [tag("p", problem, class_="bad") for problem in problems]
    against = f"Figures against {comparison.base}, with 95 % intervals"
    drawn = table(tables.compared(comparison), against)
    return Section("comparison", "Comparison", (*warned, drawn, *map(remark, comparison.notes)))


def expectations(findings: Sequence[Finding]) -> Section:
    """Expected shapes, with a word beside the colour."""
    marks = {
        True: tag("span", "✓ holds", class_="mark good"),
        False: tag("span", "✗ does not hold", class_="mark bad"),
    }
    items = [tag("li", marks[finding.holds], finding.sentence) for finding in findings]
    return Section("findings", "Expected shapes", (tag("ul", *items, class_="findings"),))


def failures(failed: Sequence[tuple[str, str]]) -> Section:
    rows: list[Cells] = [[Cell(name, "bad"), reason] for name, reason in failed]
    title = "1 cell failed" if len(failed) == 1 else f"{len(failed)} cells failed"
    drawn = table(Table(["cell", "reason"], rows), f"{title}; kept, not shown")
    return Section("failed", "Failed cells", (drawn,))


def overview(runs: Sequence[ReportedRun]) -> Section:
    caption = "With 95 % intervals, over repeats where there are some"
    return Section("overview", "Overview", (table(tables.overview(runs), caption),))


def matrix(sides: Sequence[Side]) -> Section | None:
    charts = over_matrix(sides)
    if not charts:
        return None
    notes = []
    if flat := flat_figures(sides):
        notes.append(f"{formatting.listed(flat)}: 0 in every cell.")
    if unsteady := [side.label for side in sides if side.unsteadiness]:
        notes.append(f"Without times, since they were not steady: {'; '.join(unsteady)}.")
    if cold := [side.label for side in sides if any(s.run.coldness for s in side.runs)]:
        notes.append(f"On a cold cluster: {'; '.join(cold)}.")
    wide = any("xaxis2" in chart.figure["layout"] for chart in charts)
    grid = tag("div", *map(titled_figure, charts), class_="charts wide" if wide else "charts")
    intro = remark("Error bars are 95 % intervals, over repeats where there are some.")
    return Section("matrix", "Over the matrix", (intro, grid, *map(remark, notes)), charts)


def states(sides: Sequence[Side], runs: Sequence[ReportedRun]) -> Section:
    chart = message_states(sides)
    drawn = figure(chart) if chart else tag("p", "No message was sent in the measured time.")
    caption = "Every state, counted; shares are of messages sent in the measured time"
    counts = tables.states(runs, every=True)
    if len(runs) > tables.MOST_COLUMNS:
        rows = folded(f"Every state of all {len(runs)} runs", table(counts, caption))
    else:
        rows = _in_two(counts, caption)
    return Section("states", "Message states", (drawn, rows), (chart,) if chart else ())


def _in_two(content: Table, caption: str) -> Markup:
    """A long narrow table as two beside each other."""
    half = -(-len(content.rows) // 2)
    first = table(Table(content.columns, content.rows[:half]), caption)
    second = table(Table(content.columns, content.rows[half:]), "and how they came there")
    return tag("div", first, second, class_="beside-each-other")


def latency(sides: Sequence[Side], runs: Sequence[ReportedRun]) -> Section:
    by_percentile, parts = latency_by_percentile(sides), latency_parts(sides)
    content: list[Markup] = []

    def add(rows: Table, caption: str, title: str) -> None:
        # Of several runs: the comparison has most of the figures.
        drawn = table(rows, caption)
        content.append(folded_if(len(runs) > 1, f"{title} of all {len(runs)} runs", drawn))

    if by_percentile is None:
        content.append(tag("p", "No message arrived, so there is no latency."))
    else:
        lines = (
            "From the intended send time to receipt of the first copy. Each further nine takes "
            "the same space; marks are the percentiles of the table with their 95 % intervals."
        )
        content.append(remark(lines))
        if any(reported.unsteadiness for side in sides for reported in side.used):
            marked = (
                f"Lines marked ({formatting.NOT_STEADY}) show what the run saw; another length of "
                "the run would give others."
            )
            content.append(remark(marked))
        content.append(figure(by_percentile))
    if parts is not None:
        content += [tag("h3", "Mean time per part of the latency"), figure(parts)]
    if by_percentile is not None:
        add(tables.latencies(runs), "Times in ms", "Times")
    throughputs = tables.throughputs(runs)
    if any(str(cell) for row in throughputs.rows for cell in row[1:]):
        what = "Throughput, and how much of it was late"
        add(throughputs, what, "Throughput")
    if (kpis := tables.kpis(runs)).rows:
        add(kpis, "Weighted KPI (S0, eq. 5.2)", "KPI")
    charts = tuple(chart for chart in (by_percentile, parts) if chart is not None)
    return Section("latency", "Latency and throughput", tuple(content), charts)


def seconds(sides: Sequence[Side]) -> Section | None:
    chart = timeline.timeline(sides)
    if chart is None:
        return None
    content = [figure(chart)]
    if quiet := timeline.quiet(sides):
        content.append(remark(quiet))
    if marks := timeline.marked(sides):
        has_many = sum(len(side.runs) for side in sides) > 1
        rows = [
            [
                str(mark.number),
                *([mark.label] if has_many else []),
                f"{formatting.significant(mark.event.at_s)} s",
                f"{formatting.significant(mark.event.took_s)} s",
                mark.event.sentence,
            ]
            for mark in marks
        ]
        columns = ["mark", *(["run"] if has_many else []), "at", "took", "what happened"]
        drawn = table(Table(columns, rows), "Faults and changes of the cluster")
        content.append(folded_if(len(rows) > _LONG, f"All {len(rows)} events", drawn))
    return Section("timeline", "Second by second", tuple(content), (chart,))


def choice(sides: Sequence[Side]) -> Markup | None:
    """Which of many sides the line charts show; they have no more colours than that."""
    if len(sides) <= MOST_LINES:
        return None
    options = [
        tag("label", checkbox(str(place), is_checked=place < MOST_LINES - 2), " ", side.label)
        for place, side in enumerate(sides)
    ]
    legend = tag("legend", f"Runs in the line charts below (at most {MOST_LINES})")
    return tag("fieldset", legend, tag("div", *options, class_="options"), id="choice")


def headline(sentence: str) -> Markup:
    return tag("p", sentence, class_="outcome long" if len(sentence) > 260 else "outcome")
