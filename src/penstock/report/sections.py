"""The sections of the page, each from the sides that are shown. HTML out; nothing is written."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.domain.shapes import Finding
from penstock.report import numbers, outcome, tables, timeline
from penstock.report.charts import (
    MOST_LINES,
    Chart,
    latency_parts,
    message_states,
)
from penstock.report.comparison import Comparison
from penstock.report.document import figure
from penstock.report.markup import Markup, folded, section, table, tag
from penstock.report.over_matrix import flat_figures, over_matrix
from penstock.report.percentiles import latency_by_percentile
from penstock.report.shown import Shown, Side
from penstock.report.tables import Cell, Table

# A longer table is folded: its summary is what most people want.
_LONG = 24

Drawn = tuple[Markup, list[Chart]]


def tiles(shown: Shown) -> Markup:
    """The figures of one run that everybody asks for."""
    metrics, counts = shown.metrics, shown.metrics.counts
    found: list[tuple[str, str, str, str]] = [
        (
            "lost",
            numbers.quantity(metrics.lost_share.value if counts.sent else None, "share"),
            f"{numbers.count(counts.lost)} of {numbers.count(counts.sent)} messages",
            "bad" if counts.acknowledged_yet_lost else "",
        ),
        (
            "duplicated",
            numbers.quantity(metrics.duplicated_share.value if counts.sent else None, "share"),
            f"{numbers.count(counts.duplicated)} messages",
            "",
        ),
    ]
    for percent in ("50", "99"):
        percentiles = {} if metrics.latency is None else metrics.latency.percentiles_ms
        estimate = percentiles.get(percent)
        value = None if estimate is None else estimate.value
        between = "" if estimate is None else numbers.interval(estimate.low, estimate.high, "ms")
        text = numbers.quantity(value, "ms")
        if shown.unsteadiness and estimate is not None:
            text, between = numbers.NOT_STEADY, ""
        found.append((f"p{percent} latency", text, between, ""))
    if (goodput := metrics.goodput_mb_per_s) is not None:
        between = numbers.interval(goodput.low, goodput.high, "mb_per_s")
        found.append(("goodput", numbers.quantity(goodput.value, "mb_per_s"), between, ""))
    return tag(
        "dl",
        *(
            tag(
                "div",
                tag("dt", title),
                tag("dd", figure, class_=f"figure {tone}".rstrip()),
                tag("dd", beside, class_="beside"),
                class_="tile",
            )
            for title, figure, beside, tone in found
        ),
        class_="tiles",
    )


def verdict(runs: Sequence[Shown]) -> Markup:
    judged = [s for s in runs if s.verdict is not None and s.verdict.has_limits]
    if not judged:
        return Markup("")
    if len(judged) == len(runs) == 1:
        assert judged[0].verdict is not None
        drawn = table(tables.verdict(judged[0].verdict), "Limit by limit, with 95 % intervals")
        sentence = f"{outcome.cold(judged)} {judged[0].verdict.sentence}".strip()
        return section("objective", "Objective", tag("p", sentence), drawn)
    met = sum(s.verdict.is_met for s in judged if s.verdict is not None)
    unjudged = sum(not s.verdict.is_judged for s in judged if s.verdict is not None)
    rows = tables.verdicts(judged)
    drawn = table(rows, "Limit by limit, with 95 % intervals")
    if len(rows.rows) > _LONG:
        drawn = folded(f"All {len(rows.rows)} limits, run by run", drawn)
    more = f"; {unjudged} could not be judged, since they were not steady" if unjudged else ""
    sentence = f"{met} of {len(judged)} runs with an objective met it{more}."
    return section("objective", "Objective", tag("p", sentence), drawn)


def compared(comparison: Comparison) -> Markup:
    notes = [tag("p", note, class_="caption") for note in comparison.notes]
    found = tables.compared(comparison)
    caption = f"Figures against {comparison.base}, with 95 % intervals"
    problems = [
        tag("p", f"{side.label} is not compared: {side.problems[0]}.", class_="bad")
        for side in comparison.sides
        if side.problems
    ]
    problems += [
        tag("p", f"Times of {side.label} are not compared: {side.unsteadiness}.", class_="bad")
        for side in comparison.sides
        if side.unsteadiness and not side.problems
    ]
    return section("comparison", "Comparison", *problems, table(found, caption), *notes)


def expectations(findings: Sequence[Finding]) -> Markup:
    """Expected shapes, with a word beside the colour."""
    items = [
        tag(
            "li",
            tag("span", "✓ holds", class_="mark good")
            if finding.holds
            else tag("span", "✗ does not hold", class_="mark bad"),
            finding.sentence,
        )
        for finding in findings
    ]
    return section("findings", "Expected shapes", tag("ul", *items, class_="findings"))


def failures(failed: Sequence[tuple[str, str]]) -> Markup:
    rows: list[list[str | Cell]] = [[Cell(name, "bad"), reason] for name, reason in failed]
    title = "1 cell failed" if len(failed) == 1 else f"{len(failed)} cells failed"
    return section(
        "failed",
        "Failed cells",
        table(Table(["cell", "reason"], rows), f"{title}; kept, not shown"),
    )


def overview(runs: Sequence[Shown]) -> Markup:
    found = tables.overview(runs)
    return section(
        "overview",
        "Overview",
        table(found, "With 95 % intervals, over repeats where there are some"),
    )


def matrix(sides: Sequence[Side]) -> Drawn:
    charts = over_matrix(sides)
    if not charts:
        return Markup(""), []
    flat = flat_figures(sides)
    notes = (
        [tag("p", f"{numbers.listed(flat)}: 0 in every cell.", class_="caption")] if flat else []
    )
    if unsteady := [side.label for side in sides if side.unsteadiness]:
        left_out = f"Without times, since they were not steady: {'; '.join(unsteady)}."
        notes.append(tag("p", left_out, class_="caption"))
    if cold := [side.label for side in sides if any(s.run.coldness for s in side.runs)]:
        notes.append(tag("p", f"On a cold cluster: {'; '.join(cold)}.", class_="caption"))
    wide = any("xaxis2" in chart.figure["layout"] for chart in charts)
    drawn = [
        tag("div", tag("h3", chart.description.split(" over ")[0]), figure(chart))
        for chart in charts
    ]
    grid = tag("div", *drawn, class_="charts wide" if wide else "charts")
    intro = tag(
        "p", "Error bars are 95 % intervals, over repeats where there are some.", class_="caption"
    )
    return section("matrix", "Over the matrix", intro, grid, *notes), list(charts)


def states(sides: Sequence[Side], runs: Sequence[Shown]) -> Drawn:
    chart = message_states(sides)
    drawn = figure(chart) if chart else tag("p", "No message was sent in the measured time.")
    caption = "Every state, counted; shares are of messages sent in the measured time"
    found = tables.states(runs, every=True)
    if len(runs) > tables.MOST_COLUMNS:
        rows = folded(f"Every state of all {len(runs)} runs", table(found, caption))
    else:
        rows = _in_two(found, caption)
    return section("states", "Message states", drawn, rows), [chart] if chart else []


def _in_two(given: Table, caption: str) -> Markup:
    """A long narrow table as two beside each other."""
    half = -(-len(given.rows) // 2)
    first, second = Table(given.columns, given.rows[:half]), Table(given.columns, given.rows[half:])
    drawn = [table(first, caption), table(second, "and how they came there")]
    return tag("div", *drawn, class_="beside-each-other")


def latency(sides: Sequence[Side], runs: Sequence[Shown]) -> Drawn:
    by_percentile, parts = latency_by_percentile(sides), latency_parts(sides)
    content: list[Markup] = []
    if by_percentile is None:
        content.append(tag("p", "No message arrived, so there is no latency."))
    else:
        content.append(
            tag(
                "p",
                "From the intended send time to receipt of the first copy. Each further nine has "
                "the same room; marks are the percentiles of the table with their 95 % intervals.",
                class_="caption",
            )
        )
        if any(shown.unsteadiness for side in sides for shown in side.used):
            content.append(
                tag(
                    "p",
                    f"Lines marked ({numbers.NOT_STEADY}) show what the run saw; another length of "
                    "the run would give others.",
                    class_="caption",
                )
            )
        content.append(figure(by_percentile))
    if parts is not None:
        content += [tag("h3", "Where the time goes, on average"), figure(parts)]
    if by_percentile is not None:
        rows = table(tables.latencies(runs), "Times in ms")
        if len(runs) > 1:  # the comparison has most of them
            rows = folded(f"Times of all {len(runs)} runs", rows)
        content.append(rows)
    throughputs = tables.throughputs(runs)
    if throughputs.rows and any(str(cell) for row in throughputs.rows for cell in row[1:]):
        rows = table(throughputs, "Throughput: what went through, and what of it was late")
        if len(runs) > 1:
            rows = folded(f"Throughput of all {len(runs)} runs", rows)
        content.append(rows)
    return section("latency", "Latency and throughput", *content), [
        chart for chart in (by_percentile, parts) if chart is not None
    ]


def seconds(sides: Sequence[Side]) -> Drawn:
    chart = timeline.timeline(sides)
    if chart is None:
        return Markup(""), []
    content = [figure(chart)]
    if quiet := timeline.quiet(sides):
        content.append(tag("p", quiet, class_="caption"))
    marks = timeline.marked(sides)
    if marks:
        rows: list[list[str | Cell]] = [
            [
                str(mark.number),
                mark.label,
                f"{numbers.significant(mark.event.at_s)} s",
                f"{numbers.significant(mark.event.took_s)} s",
                mark.event.sentence,
            ]
            for mark in marks
        ]
        columns = ["mark", "run", "at", "took", "what happened"]
        if sum(len(side.runs) for side in sides) == 1:
            columns.pop(1)
            rows = [[row[0], *row[2:]] for row in rows]
        drawn = table(Table(columns, rows), "What was done to the cluster")
        content.append(drawn if len(rows) <= _LONG else folded(f"All {len(rows)} events", drawn))
    return section("timeline", "Second by second", *content), [chart]


def choice(sides: Sequence[Side]) -> Markup:
    """Which of many sides the line charts show; they have no more colours than that."""
    if len(sides) <= MOST_LINES:
        return Markup("")
    options = []
    for place, side in enumerate(sides):
        checked = Markup(" checked") if place < MOST_LINES - 2 else Markup("")
        box = Markup(f'<input type="checkbox" value="{place}"{checked}> ')
        options.append(tag("label", box, side.label))
    legend = tag("legend", f"Runs in the line charts below (at most {MOST_LINES})")
    return tag("fieldset", legend, tag("div", *options, class_="options"), id="choice")


def headline(sentence: str) -> Markup:
    return tag("p", sentence, class_="outcome long" if len(sentence) > 260 else "outcome")
