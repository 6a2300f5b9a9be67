"""The one sentence a report begins with. The terminal and the page say the same."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.domain.metrics import RunMetrics
from penstock.domain.shapes import Finding
from penstock.report import numbers
from penstock.report.comparison import Comparison, compare
from penstock.report.disagreement import Disagreement, disagreements
from penstock.report.drift import Drift, drifts
from penstock.report.figures import figures
from penstock.report.shown import Shown, Side, sides

# More are counted in the sentence; the notices name them all.
MOST_DISAGREEMENTS = 3


def of_run(shown: Shown) -> str:
    """Whether one run met its objective, and what became of its messages. What makes its figures
    doubtful comes first."""
    sentences = [cold([shown])]
    if shown.problems:
        sentences.append(f"This run must not be used: {shown.problems[0]}.")
    else:
        sentences.append(unsteady([shown]))
        verdict = shown.verdict
        if verdict is not None and verdict.has_limits:
            # Why it is not judged was the sentence before.
            judged = verdict.sentence if verdict.is_judged else "The objective is not judged."
            sentences.append(judged)
        sentences.append(messages(shown.metrics, has_times=not shown.unsteadiness))
    return " ".join(filter(None, sentences))


def messages(metrics: RunMetrics, has_times: bool = True) -> str:
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
    if not has_times:
        return f"{text}."
    percents = metrics.latency.percentiles_ms
    within = [
        f"{share} within {numbers.quantity(percents[p].value, 'ms')}"
        for p, share in (("50", "half"), ("99", "99 %"))
        if p in percents
    ]
    return f"{text}; of those that arrived, {numbers.listed(within)}." if within else f"{text}."


def cold(runs: Sequence[Shown]) -> str:
    """That the cluster was not warm, with the first reason; empty if it was."""
    return _doubt("Cold", [(s.label, s.run.coldness) for s in runs])


def unsteady(runs: Sequence[Shown]) -> str:
    """The same of runs that were not steady."""
    return _doubt("Not steady", [(s.label, s.unsteadiness) for s in runs])


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
    runs: Sequence[Shown], disagreeing: Sequence[Disagreement], drift: Sequence[Drift]
) -> list[str]:
    """What a reader must know of several runs before anything else."""
    sentences = [each.sentence for each in disagreeing[:MOST_DISAGREEMENTS]]
    if (more := len(disagreeing) - len(sentences)) > 0:
        sentences.append(f"So do the repeats of {more} more {'cell' if more == 1 else 'cells'}.")
    sentences += [each.sentence for each in drift if each.state == "drift"]
    return [*sentences, *filter(None, [cold(runs)])]


def of_shown(
    runs: Sequence[Shown],
    findings: Sequence[Finding] = (),
    failed: Sequence[tuple[str, str]] = (),
    drift: Sequence[Drift] | None = None,
) -> str:
    """The same of whatever there is to show: one run, repeats of one, or several that differ.

    `drift` is found from the runs if it is not given; it must be if a run of the two failed.
    """
    found = sides(runs)
    comparison = compare(runs) if len(found) > 1 else None
    drift = drifts(runs) if drift is None else drift
    return of_runs(found, comparison, findings, failed, disagreements(found), drift)


def of_runs(
    found: Sequence[Side],
    comparison: Comparison | None,
    findings: Sequence[Finding],
    failed: Sequence[tuple[str, str]],
    disagreeing: Sequence[Disagreement] = (),
    drift: Sequence[Drift] = (),
) -> str:
    """What makes all of it doubtful, then expected shapes, then the differences, then what could not
    be carried out."""
    runs = [shown for side in found for shown in side.runs]
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
    elif found:
        sentences.append(_repeats(found[0]))
    elif not failed:
        sentences.append("There is no run to show.")
    if failed:
        cells = "1 cell" if len(failed) == 1 else f"{len(failed)} cells"
        sentences.append(f"{cells} failed: {failed[0][1]}" + (" …" if len(failed) > 1 else ""))
    return " ".join(s if s.endswith((".", "…")) else f"{s}." for s in sentences)


def _objectives(runs: Sequence[Shown]) -> str:
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
    keys = [f for f in figures([shown.metrics for shown in side.used]) if f.is_key]
    shown = ", ".join(f"{f.title} {side.text(f)}" for f in keys)
    over = f"{side.label}, over {len(side.used)} repeats: {shown or 'nothing was sent'}."
    return " ".join(filter(None, [unsteady(side.used), over]))


def _some(number: int, whole: int) -> str:
    return f"{numbers.count(number)} ({numbers.share(number, whole)})" if number else "none"


def _were(number: int) -> str:
    return "was" if number == 1 else "were"
