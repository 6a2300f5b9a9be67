"""Verdicts: limit by limit."""

from __future__ import annotations

import pytest

from penstock.domain.metrics import Estimate, MessageCounts, RunMetrics
from penstock.domain.objective import Objective
from penstock.domain.steadiness import Steadiness
from penstock.domain.value import FieldError
from penstock.domain.verdict import judge


def metrics(**more: object) -> RunMetrics:
    fields: dict[str, object] = {
        "run": "a",
        "seconds_measured": 10.0,
        "counts": MessageCounts(sent=100),
        "lost_share": Estimate(value=0.01, low=0.002, high=0.02),
        "duplicated_share": Estimate(value=0.0, low=0.0, high=0.03),
        "violation_share": {"50": Estimate(value=0.2, low=0.15, high=0.25)},
        "goodput_mb_per_s": Estimate(value=9.9, low=9.5, high=10.3),
        **more,
    }
    return RunMetrics(**fields)  # type: ignore[arg-type]


def test_without_an_objective_there_is_nothing_to_miss() -> None:
    assert judge(None, metrics(), ()).is_met


def test_every_limit_is_judged_with_its_certainty() -> None:
    objective = Objective(
        latency_ms=50,
        violation_share=0.1,
        lost_share=0.015,
        duplicated_share=0.05,
        throughput_mb_per_s=10,
    )
    verdict = judge(objective, metrics(), ())
    judgements = {j.name: (j.is_met, j.is_certain) for j in verdict.judgements}
    assert judgements == {
        "lost_share": (True, False),  # the interval reaches beyond the limit
        "duplicated_share": (True, True),
        "share later than 50 ms": (False, True),
        "goodput_mb_per_s": (False, False),
    }
    assert not verdict.is_met
    assert "share later than 50 ms 0.2 against 0.1" in verdict.sentence


def test_nothing_that_arrived_meets_no_limit_on_latency() -> None:
    verdict = judge(Objective(latency_ms=50), metrics(violation_share={}), ())
    assert not verdict.is_met
    assert "nothing arrived" in verdict.sentence


def test_a_run_that_sent_nothing_meets_nothing() -> None:
    nothing = metrics(counts=MessageCounts(), lost_share=Estimate(value=0.0, low=0.0, high=1.0))
    assert not judge(Objective(lost_share=0.5), nothing, ()).is_met


def test_an_invalid_run_meets_nothing() -> None:
    verdict = judge(Objective(lost_share=0.5), metrics(), ("the generator was late",))
    assert not verdict.is_met
    assert "invalid: the generator was late" in verdict.sentence


UNSTEADY = Steadiness(state="unsteady", sentence="latency grew from 14 to 19 s")


def test_an_objective_is_not_judged_on_a_run_that_was_not_steady() -> None:
    lenient = Objective(lost_share=0.5, latency_ms=50, violation_share=1.0)
    assert judge(lenient, metrics(), ()).is_met
    verdict = judge(lenient, metrics(steadiness=UNSTEADY), ())
    assert not verdict.is_met and not verdict.is_judged
    assert verdict.judgements == () and verdict.has_limits
    assert verdict.sentence == "The objective is not judged: latency grew from 14 to 19 s."


def test_that_a_run_is_invalid_is_worse_than_that_it_was_not_steady() -> None:
    verdict = judge(Objective(lost_share=0.5), metrics(steadiness=UNSTEADY), ("late",))
    assert not verdict.is_judged
    assert verdict.sentence == "The run is invalid: late."


def test_a_run_that_was_not_steady_has_nothing_to_judge_without_a_limit() -> None:
    for objective in (None, Objective()):
        verdict = judge(objective, metrics(steadiness=UNSTEADY), ())
        assert verdict.is_met and verdict.is_judged and not verdict.has_limits


def test_only_unsteady_runs_are_not_judged() -> None:
    for state in ("steady", "not tested", "changed on purpose"):
        verdict = judge(
            Objective(lost_share=0.5),
            metrics(steadiness=Steadiness(state=state, sentence="x")),
            (),
        )
        assert verdict.is_met and verdict.is_judged


def test_a_share_of_late_messages_needs_the_latency() -> None:
    with pytest.raises(FieldError, match=r"violation_share: .* add latency_ms"):
        Objective(violation_share=0.0).check()
    assert Objective(latency_ms=5).late_share_limit == 0.01
    assert Objective(latency_ms=5, violation_share=0.0).late_share_limit == 0.0


def test_an_objective_without_limits_is_not_called_met() -> None:
    verdict = judge(Objective(best_per_s=1_000), metrics(), ())
    assert verdict.sentence == "The objective has no limits."
    assert not verdict.has_limits
