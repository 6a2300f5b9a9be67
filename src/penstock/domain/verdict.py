"""Whether a run met its objective: limit by limit, with the measured figure beside it."""

from __future__ import annotations

from collections.abc import Iterator
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
    """All limits of one run. Without an objective there is nothing to judge, and it is met."""

    is_met: bool
    is_judged: Annotated[
        bool, Doc("false: the run was not steady, so its figures are not those of its setting")
    ] = True
    judgements: Annotated[tuple[Judgement, ...], Doc("limit by limit; empty if not judged")] = ()
    sentence: str = ""

    @property
    def has_limits(self) -> bool:
        """Whether there was something to judge the run by."""
        return bool(self.judgements) or not self.is_judged


def judge(objective: Objective | None, metrics: RunMetrics, invalid: tuple[str, ...]) -> Verdict:
    """Whether the run meets every limit. An invalid run meets none, and one that was not steady is
    not judged: their figures do not describe the setting."""
    if objective is None:
        return Verdict(is_met=True, sentence="There is no objective to meet.")
    judgements = tuple(_judgements(objective, metrics))
    if judgements and (reason := metrics.unsteadiness):
        sentence = f"The objective is not judged: {reason}."
        if invalid:
            sentence = f"The run is invalid: {invalid[0]}."
        return Verdict(is_met=False, is_judged=False, sentence=sentence)
    missed = [j for j in judgements if not j.is_met]
    if not metrics.counts.sent:
        return Verdict(
            is_met=False, judgements=judgements, sentence="Nothing was sent to judge by."
        )
    if invalid:
        sentence = f"The run is invalid: {invalid[0]}."
    elif missed:
        sentence = "The objective is not met: " + "; ".join(_shown(j) for j in missed) + "."
    else:
        sentence = "The objective is met."
    return Verdict(is_met=not missed and not invalid, judgements=judgements, sentence=sentence)


def _judgements(objective: Objective, metrics: RunMetrics) -> Iterator[Judgement]:
    if objective.lost_share is not None:
        yield _at_most("lost_share", objective.lost_share, metrics.lost_share)
    if objective.duplicated_share is not None:
        yield _at_most("duplicated_share", objective.duplicated_share, metrics.duplicated_share)
    if (limit_ms := objective.latency_ms) is not None:
        measured = metrics.violation_share.get(f"{limit_ms:g}")
        yield _at_most(f"share later than {limit_ms:g} ms", objective.violation_share, measured)
    if (wanted := objective.throughput_mb_per_s) is not None:
        yield _at_least("goodput_mb_per_s", wanted, metrics.goodput_mb_per_s)


def _at_most(name: str, limit: float, estimate: Estimate | None) -> Judgement:
    if estimate is None:  # nothing arrived at all
        return Judgement(name=name, limit=limit, measured=None, is_met=False)
    is_met = estimate.value <= limit
    side = estimate.high if is_met else estimate.low
    certain = side is not None and (side <= limit) == is_met
    return _judgement(name, limit, estimate, is_met, certain)


def _at_least(name: str, limit: float, estimate: Estimate | None) -> Judgement:
    if estimate is None:
        return Judgement(name=name, limit=limit, measured=None, is_met=False)
    # A schedule of exactly the wanted rate is met by what it sends, which the last millisecond
    # of a run may round down.
    is_met = estimate.value >= limit * 0.999
    side = estimate.low if is_met else estimate.high
    certain = side is not None and (side >= limit * 0.999) == is_met
    return _judgement(name, limit, estimate, is_met, certain)


def _judgement(
    name: str, limit: float, estimate: Estimate, is_met: bool, is_certain: bool
) -> Judgement:
    return Judgement(
        name=name,
        limit=limit,
        measured=estimate.value,
        low=estimate.low,
        high=estimate.high,
        is_met=is_met,
        is_certain=is_certain,
    )


def _shown(judgement: Judgement) -> str:
    measured = "nothing arrived" if judgement.measured is None else f"{judgement.measured:.4g}"
    return f"{judgement.name} {measured} against {judgement.limit:g}"
