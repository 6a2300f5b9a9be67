"""The page: one file that opens from disk without a network and shows any number of runs."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.domain.shapes import Finding
from penstock.report import notices, outcome, provenance, sections
from penstock.report.comparison import compare
from penstock.report.disagreement import disagreements
from penstock.report.document import Section, document
from penstock.report.drift import Drift, drifts
from penstock.report.markup import Markup, tag
from penstock.report.reported_run import ReportedRun, counted, sides


def render(
    runs: Sequence[ReportedRun],
    title: str,
    findings: Sequence[Finding] = (),
    failed: Sequence[tuple[str, str]] = (),
    drift: Sequence[Drift] | None = None,
) -> str:
    """The page of these runs. Outcome first, then what must be known before using it, then figures.

    `failed` are cells without metrics: their name and reason. `drift` is found from the runs if it
    is not given; it must be if a run of the two failed.
    """
    drift = drifts(runs) if drift is None else drift
    runs = counted(runs)
    compared = sides(runs)
    disagreeing = disagreements(compared)
    comparison = compare(runs) if len(compared) > 1 else None
    sentence = outcome.of_sides(compared, comparison, findings, failed, disagreeing, drift)
    header = tag(
        "header",
        tag("h1", title),
        sections.headline(sentence),
        tag("p", _about(runs), class_="about"),
    )
    known = notices.notices(runs, disagreeing, drift)
    parts: list[Section | Markup | None] = [
        notices.boxes(known, len(runs)),
        sections.tiles(runs[0]) if len(runs) == 1 else None,
        sections.overview(runs) if len(runs) > 1 else None,
        sections.expectations(findings) if findings else None,
        sections.failures(failed) if failed else None,
        sections.verdict(runs),
        sections.compared(comparison) if comparison is not None else None,
    ]
    if runs:
        parts += [
            sections.matrix(compared),
            sections.states(compared, runs),
            sections.choice(compared),
            sections.latency(compared, runs),
            sections.seconds(compared),
            provenance.settings(compared),
            provenance.evidence(runs),
        ]
    return document(title, header, parts)


def _about(runs: Sequence[ReportedRun]) -> str:
    if not runs:
        return ""
    starts = sorted(reported.run.started_at for reported in runs)
    when = starts[0] if starts[0] == starts[-1] else f"{starts[0]} to {starts[-1]}"
    what = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    kafka = {reported.run.versions.get("kafka") for reported in runs} - {None}
    versions = f", Kafka {', '.join(sorted(str(v) for v in kafka))}" if kafka else ""
    return f"{what} of {when}{versions}, measured by Penstock"
