"""The one sentence a report begins with. The terminal and the page say the same."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.domain.metrics import RunMetrics
from penstock.domain.shapes import Finding
from penstock.report import numbers
from penstock.report.comparison import Comparison, compare
from penstock.report.figures import figures
from penstock.report.shown import Shown, Side, sides


def of_run(shown: Shown) -> str:
    """Whether one run met its objective, and what became of its messages."""
    if shown.problems:
        return f"This run must not be used: {shown.problems[0]}."
    judged = f"{shown.verdict.sentence} " if shown.verdict and shown.verdict.judgements else ""
    return judged + messages(shown.metrics)


def messages(metrics: RunMetrics) -> str:
    """Of 1,000 messages 3 were lost (0.3 %) and none duplicated; half arrived within 4 ms, …"""
    counts = metrics.counts
    if not counts.sent:
        return "No message was sent in the measured time."
    lost = _some(counts.lost, counts.sent)
    text = (
        f"Of {numbers.count(counts.sent)} messages {lost} {_were(counts.lost)} lost and "
        f"{_some(counts.duplicated, counts.sent)} duplicated"
    )
    if counts.acknowledged_yet_lost:
        text += f"; {numbers.count(counts.acknowledged_yet_lost)} of the lost had been acknowledged"
    if metrics.latency is None:
        return f"{text}; nothing arrived."
    percents = metrics.latency.percentiles_ms
    within = [
        f"{share} within {numbers.quantity(percents[p].value, 'ms')}"
        for p, share in (("50", "half"), ("99", "99 %"))
        if p in percents
    ]
    return f"{text}; of those that arrived, {numbers.listed(within)}." if within else f"{text}."


def of_shown(
    runs: Sequence[Shown], findings: Sequence[Finding] = (), failed: Sequence[tuple[str, str]] = ()
) -> str:
    """The same of whatever there is to show: one run, repeats of one, or several that differ."""
    found = sides(runs)
    return of_runs(found, compare(runs) if len(found) > 1 else None, findings, failed)


def of_runs(
    found: Sequence[Side],
    comparison: Comparison | None,
    findings: Sequence[Finding],
    failed: Sequence[tuple[str, str]],
) -> str:
    """Expected shapes first, then the differences, then what could not be carried out."""
    sentences = []
    if findings:
        holding = sum(finding.holds for finding in findings)
        sentences.append(
            "The expected shape holds."
            if holding == len(findings) == 1
            else f"{holding} of {len(findings)} expected shapes hold."
        )
    if objective := _objectives(found):
        sentences.append(objective)
    if comparison is not None:
        sentences.append(comparison.sentence)
    elif len(found) == 1 and len(found[0].runs) == 1:
        sentences.append(of_run(found[0].runs[0]))
    elif found:
        sentences.append(_repeats(found[0]))
    elif not failed:
        sentences.append("There is no run to show.")
    if failed:
        cells = "1 cell" if len(failed) == 1 else f"{len(failed)} cells"
        sentences.append(f"{cells} failed: {failed[0][1]}" + (" …" if len(failed) > 1 else ""))
    return " ".join(s if s.endswith((".", "…")) else f"{s}." for s in sentences)


def _objectives(found: Sequence[Side]) -> str:
    """How many of several runs met their objective; of a single one `of_run` tells."""
    runs = [shown for side in found for shown in side.runs]
    judged = [s for s in runs if s.verdict is not None and s.verdict.judgements]
    if len(runs) < 2 or not judged:
        return ""
    met = sum(s.verdict is not None and s.verdict.is_met for s in judged)
    if met == len(judged):
        return f"All {len(judged)} runs meet the objective."
    return f"{met or 'None'} of {len(judged)} runs {'meets' if met < 2 else 'meet'} the objective."


def _repeats(side: Side) -> str:
    if side.problems:
        return f"None of the {len(side.runs)} repeats can be used: {side.problems[0]}."
    keys = [f for f in figures([shown.metrics for shown in side.used]) if f.is_key]
    shown = ", ".join(f"{f.title} {numbers.estimate(side.estimate(f), f.unit)}" for f in keys)
    return f"{side.label}, over {len(side.used)} repeats: {shown or 'nothing was sent'}."


def _some(number: int, whole: int) -> str:
    return f"{numbers.count(number)} ({numbers.share(number, whole)})" if number else "none"


def _were(number: int) -> str:
    return "was" if number == 1 else "were"
