"""The outcome: the sentence that a report begins with, the same on terminal and page."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.domain.metrics import RunMetrics
from penstock.domain.shapes import Finding
from penstock.report import formatting
from penstock.report.comparison import Comparison, compare
from penstock.report.disagreement import Disagreement, disagreements
from penstock.report.drift import Drift, drifts
from penstock.report.figures import figures
from penstock.report.reported_run import ReportedRun, Side, sides

# More are counted in the sentence; the notices name them all.
MOST_DISAGREEMENTS = 3


def of_run(reported: ReportedRun) -> str:
    """Whether one run met its objective, and the outcome of its messages. Doubts come first."""
    sentences = [cold([reported])]
    if reported.problems:
        sentences.append(f"Invalid run: {reported.problems[0]}.")
    else:
        sentences.append(unsteady([reported]) or untested(reported.metrics))
        verdict = reported.verdict
        if verdict is not None and verdict.has_limits:
            # Why it is not judged was the sentence before.
            judged = verdict.sentence if verdict.is_judged else "The objective is not judged."
            sentences.append(judged)
        sentences.append(messages(reported.metrics, has_times=not reported.unsteadiness))
    return " ".join(filter(None, sentences))


def messages(metrics: RunMetrics, has_times: bool = True) -> str:
    """Of 1,000 messages 3 were lost (0.3 %) and none duplicated; half arrived within 4 ms, …"""
    counts = metrics.counts
    if not counts.sent:
        return "No message was sent in the measured time."
    lost = _some(counts.lost, counts.sent)
    text = (
        f"Of {formatting.count(counts.sent)} messages {lost} "
        f"{'was' if counts.lost == 1 else 'were'} lost and "
        f"{_some(counts.duplicated, counts.sent)} duplicated"
    )
    if broken := counts.acknowledged_yet_lost:
        text += f"; {formatting.count(broken)} of the lost had been acknowledged"
    if metrics.latency is None:
        return f"{text}; nothing arrived."
    if not has_times:
        return f"{text}."
    percents = metrics.latency.percentiles_ms
    within = [
        f"{share} within {formatting.quantity(percents[p].value, 'ms')}"
        for p, share in (("50", "half"), ("99", "99 %"))
        if p in percents
    ]
    return f"{text}; of those that arrived, {formatting.listed(within)}." if within else f"{text}."


def cold(runs: Sequence[ReportedRun]) -> str:
    """That the cluster was not warm, with the first reason; empty if it was."""
    return _doubt("Cold", [(s.label, s.run.coldness) for s in runs])


def unsteady(runs: Sequence[ReportedRun]) -> str:
    """The same of runs that were not steady."""
    return _doubt("Not steady", [(s.label, s.unsteadiness) for s in runs])


def untested(metrics: RunMetrics) -> str:
    """Says that steadiness was not tested; empty if it was."""
    found = metrics.steadiness
    if found is None or found.state != "not tested":
        return ""
    return f"Steadiness was not tested: {found.sentence}."


def _doubt(word: str, reasons: Sequence[tuple[str, str]]) -> str:
    """Cold: 2 of 3 runs; acks=all: the cluster was still warming up after 90 s."""
    doubtful = [(label, reason) for label, reason in reasons if reason]
    if not doubtful:
        return ""
    label, reason = doubtful[0]
    if len(reasons) == 1:
        return f"{word}: {reason}."
    return f"{word}: {len(doubtful)} of {len(reasons)} runs; {label}: {reason}."


def doubts(
    runs: Sequence[ReportedRun], disagreeing: Sequence[Disagreement], drift: Sequence[Drift]
) -> list[str]:
    """Doubts about several runs, which come before anything else."""
    sentences = [finding.sentence for finding in disagreeing[:MOST_DISAGREEMENTS]]
    if (more := len(disagreeing) - len(sentences)) > 0:
        sentences.append(f"So do the repeats of {more} more {'cell' if more == 1 else 'cells'}.")
    sentences += [finding.sentence for finding in drift if finding.state == "drift"]
    return [*sentences, *filter(None, [cold(runs), unsteady(runs)])]


def of_runs(
    runs: Sequence[ReportedRun],
    findings: Sequence[Finding] = (),
    failed: Sequence[tuple[str, str]] = (),
    drift: Sequence[Drift] | None = None,
) -> str:
    """The outcome of one run, of repeats of one, or of several that differ.

    `drift` is computed from the runs if it is None; pass it if one of the two runs failed.
    """
    compared = sides(runs)
    comparison = compare(runs) if len(compared) > 1 else None
    drift = drifts(runs) if drift is None else drift
    return of_sides(compared, comparison, findings, failed, disagreements(compared), drift)


def of_sides(
    compared: Sequence[Side],
    comparison: Comparison | None,
    findings: Sequence[Finding],
    failed: Sequence[tuple[str, str]],
    disagreeing: Sequence[Disagreement] = (),
    drift: Sequence[Drift] = (),
) -> str:
    """Doubts about all runs first, then expected shapes, differences, and cells that failed."""
    runs = [reported for side in compared for reported in side.runs]
    is_single = len(runs) == 1
    # A single run says itself that it was cold.
    sentences = doubts([] if is_single else runs, disagreeing, drift)
    if findings:
        holding = sum(finding.holds for finding in findings)
        sentences.append(
            "The expected shape holds."
            if holding == len(findings) == 1
            else f"{holding} of {len(findings)} expected shapes hold."
        )
    if objective := _objectives(runs):
        sentences.append(objective)
    if comparison is not None:
        sentences.append(comparison.sentence)
    elif is_single:
        sentences.append(of_run(runs[0]))
    elif compared:
        sentences.append(_repeats(compared[0]))
    elif not failed:
        sentences.append("There are no runs to show.")
    if failed:
        cells = "1 cell" if len(failed) == 1 else f"{len(failed)} cells"
        sentences.append(f"{cells} failed: {failed[0][1]}" + (" …" if len(failed) > 1 else ""))
    return " ".join(s if s.endswith((".", "…")) else f"{s}." for s in sentences)


def _objectives(runs: Sequence[ReportedRun]) -> str:
    """How many of several runs met their objective; of a single one `of_run` says it."""
    verdicts = [s.verdict for s in runs if s.verdict is not None and s.verdict.has_limits]
    if len(runs) < 2 or not verdicts:
        return ""
    met = sum(verdict.is_met for verdict in verdicts)
    unjudged = sum(not verdict.is_judged for verdict in verdicts)
    if met == len(verdicts):
        return f"All {met} runs meet the objective."
    if unjudged == len(verdicts):
        return f"The objective is not judged on any of {unjudged} runs."
    more = f"; {unjudged} {'is' if unjudged == 1 else 'are'} not judged" if unjudged else ""
    meet = "meets" if met < 2 else "meet"
    return f"{met or 'None'} of {len(verdicts)} runs {meet} the objective{more}."


def _repeats(side: Side) -> str:
    if side.problems:
        return f"None of the {len(side.runs)} repeats can be used: {side.problems[0]}."
    keys = [f for f in figures([texts.metrics for texts in side.used]) if f.is_key]
    texts = ", ".join(f"{f.title} {side.text(f)}" for f in keys)
    steady = sum(not one.unsteadiness for one in side.used)
    times = f" (times over {steady})" if 0 < steady < len(side.used) else ""
    over = f"{side.label}, over {len(side.used)} repeats{times}: {texts or 'nothing was sent'}."
    return " ".join(filter(None, [unsteady(side.used), over]))


def _some(number: int, whole: int) -> str:
    return f"{formatting.count(number)} ({formatting.share(number, whole)})" if number else "none"
