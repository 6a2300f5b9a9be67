"""The page: one file that opens from disk without a network and shows any number of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.domain.shapes import Finding
from penstock.files import write_file
from penstock.report import notices, origin, outcome, sections
from penstock.report.charts import Chart
from penstock.report.comparison import compare
from penstock.report.disagreement import disagreements
from penstock.report.document import contents, document
from penstock.report.drift import Drift, drifts
from penstock.report.markup import Markup, join, tag
from penstock.report.shown import Shown, counted, sides

__all__ = ["Shown", "render", "write_report"]


def write_report(
    path: Path,
    runs: Sequence[Shown],
    title: str,
    findings: Sequence[Finding] = (),
    failed: Sequence[tuple[str, str]] = (),
    drift: Sequence[Drift] | None = None,
) -> None:
    """Write the page of these runs. `failed` are cells without metrics: their name and reason.

    `drift` is found from the runs if it is not given; it must be if a run of the two failed.
    """
    write_file(path, render(runs, title, findings, failed, drift))


def render(
    runs: Sequence[Shown],
    title: str,
    findings: Sequence[Finding] = (),
    failed: Sequence[tuple[str, str]] = (),
    drift: Sequence[Drift] | None = None,
) -> str:
    """The same as text. Outcome first, then what must be known before using it, then figures."""
    drift = drifts(runs) if drift is None else drift
    runs = counted(runs)
    found = sides(runs)
    disagreeing = disagreements(found)
    comparison = compare(runs) if len(found) > 1 else None
    top: list[Markup] = []
    drawn: list[Chart] = []
    if len(runs) == 1:
        top.append(sections.tiles(runs[0]))
    elif runs:
        top.append(sections.overview(runs))
    if findings:
        top.append(sections.expectations(findings))
    if failed:
        top.append(sections.failures(failed))
    top.append(sections.verdict(runs))
    if comparison is not None:
        top.append(sections.compared(comparison))
    if runs:
        for part, charts in (
            sections.matrix(found),
            sections.states(found, runs),
            (sections.choice(found), []),
            sections.latency(found, runs),
            sections.seconds(found),
        ):
            top.append(part)
            drawn += charts
        top += [origin.settings(found), origin.evidence(runs)]
    body = join(part for part in top if part)
    header = tag(
        "header",
        tag("h1", title),
        sections.headline(outcome.of_runs(found, comparison, findings, failed, disagreeing, drift)),
        tag("p", _about(runs), class_="about"),
    )
    known = notices.notices(runs, disagreeing, drift)
    main = tag("main", notices.boxes(known, len(runs)), body, id="content")
    return document(title, join([header, contents(body), main]), drawn)


def _about(runs: Sequence[Shown]) -> str:
    if not runs:
        return ""
    starts = sorted(shown.run.started_at for shown in runs)
    when = starts[0] if starts[0] == starts[-1] else f"{starts[0]} to {starts[-1]}"
    what = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    kafka = {shown.run.versions.get("kafka") for shown in runs} - {None}
    versions = f", Kafka {', '.join(sorted(str(v) for v in kafka))}" if kafka else ""
    return f"{what} of {when}{versions}, measured by Penstock"
