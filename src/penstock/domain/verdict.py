"""Whether a run met its objective: limit by limit, with the measured figure beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated

from penstock.domain.metrics import Estimate, RunMetrics
from penstock.domain.objective import Objective
from penstock.domain.value import Doc, Value


@dataclass(frozen=True, kw_only=True)
class Judgement(Value):
    """One limit: what was wanted, what was measured."""

    name: str
    limit: float
    measured: float | None
    low: float | None = None
    high: float | None = None
    is_met: Annotated[bool, Doc("by the measured figure itself")]
    is_certain: Annotated[bool, Doc("whether its whole 95 % interval lies on that side")] = False


@dataclass(frozen=True, kw_only=True)
class Verdict(Value):
    """All limits of one run. A run without an objective meets it."""

    is_met: bool
    is_judged: Annotated[
        bool, Doc("false: the run was not steady, so its figures are not those of its setting")
    ] = True
    judgements: Annotated[tuple[Judgement, ...], Doc("limit by limit; empty if not judged")] = ()
    sentence: str = ""

    @property
    def has_limits(self) -> bool:
        """Whether the run has limits to judge."""
        return bool(self.judgements) or not self.is_judged


def judge(objective: Objective | None, metrics: RunMetrics, invalid: tuple[str, ...]) -> Verdict:
    """Whether the run meets every limit. An invalid run meets none, and one that was not steady is
    not judged: their figures do not describe the setting."""
    if objective is None:
        return Verdict(is_met=True, sentence="The scenario has no objective.")
    judgements = tuple(_judgements(objective, metrics))
    is_invalid = f"The run is invalid: {invalid[0]}." if invalid else ""
    if judgements and (reason := metrics.unsteadiness):
        sentence = is_invalid or f"The objective is not judged: {reason}."
        return Verdict(is_met=False, is_judged=False, sentence=sentence)
    if not metrics.counts.sent:
        sentence = "Nothing was sent, so nothing can be judged."
        return Verdict(is_met=False, judgements=judgements, sentence=sentence)
    missed = "; ".join(_text(j) for j in judgements if not j.is_met)
    sentence = f"The objective is not met: {missed}." if missed else "The objective is met."
    if not judgements:
        sentence = "The objective has no limits."
    is_met = not missed and not invalid
    return Verdict(is_met=is_met, judgements=judgements, sentence=is_invalid or sentence)


def _judgements(objective: Objective, metrics: RunMetrics) -> Iterator[Judgement]:
    if objective.lost_share is not None:
        yield _at_most("lost_share", objective.lost_share, metrics.lost_share)
    if objective.duplicated_share is not None:
        yield _at_most("duplicated_share", objective.duplicated_share, metrics.duplicated_share)
    if (limit_ms := objective.latency_ms) is not None:
        measured = metrics.violation_share.get(f"{limit_ms:g}")
        yield _at_most(f"share later than {limit_ms:g} ms", objective.late_share_limit, measured)
    if (least := objective.throughput_mb_per_s) is not None:
        yield _at_least("goodput_mb_per_s", least, metrics.goodput_mb_per_s)


def _at_most(name: str, limit: float, estimate: Estimate | None) -> Judgement:
    return _judgement(name, limit, estimate, lambda number: number <= limit)


def _at_least(name: str, limit: float, estimate: Estimate | None) -> Judgement:
    # A schedule of exactly the wanted rate is met by what it sends, which the last millisecond
    # of a run may round down.
    return _judgement(name, limit, estimate, lambda number: number >= limit * 0.999)


def _judgement(
    name: str, limit: float, estimate: Estimate | None, meets: Callable[[float], bool]
) -> Judgement:
    if estimate is None:  # nothing arrived at all
        return Judgement(name=name, limit=limit, measured=None, is_met=False)
    is_met = meets(estimate.value)
    ends = [end for end in (estimate.low, estimate.high) if end is not None]
    is_certain = len(ends) == 2 and all(meets(end) == is_met for end in ends)
    return Judgement(
        name=name,
        limit=limit,
        measured=estimate.value,
        low=estimate.low,
        high=estimate.high,
        is_met=is_met,
        is_certain=is_certain,
    )


def _text(judgement: Judgement) -> str:
    measured = "nothing arrived" if judgement.measured is None else f"{judgement.measured:.4g}"
    return f"{judgement.name} {measured} against {judgement.limit:g}"
