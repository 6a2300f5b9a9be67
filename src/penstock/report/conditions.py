"""Under what conditions runs were measured: how warm the cluster was, whether the run was steady,
and what observing cost. One table; not a judgement of the figures."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.domain.run import Run
from penstock.domain.steadiness import Steadiness
from penstock.report import numbers
from penstock.report.shown import Shown
from penstock.report.tables import Cell, Table, by_run


def conditions(runs: Sequence[Shown]) -> Table | None:
    """A column per run while they fit; None if no run recorded any of it, as in older runs."""
    facts = [
        {
            **_cluster(shown.run),
            **_steadiness(shown.metrics.steadiness),
            **_observer(shown.run),
        }
        for shown in runs
    ]
    names = list(dict.fromkeys(name for each in facts for name in each))
    if not names:
        return None
    rows: list[list[str | Cell]] = [
        [each.get(name, numbers.NOTHING) for name in names] for each in facts
    ]
    labels = ["this run"] if len(runs) == 1 else [shown.label for shown in runs]
    return by_run("", names, labels, rows)


def _cluster(run: Run) -> dict[str, str]:
    state = run.cluster_state
    if state is None:
        return {}
    warm_up = state.warm_up
    return {
        "age of the cluster, s": _number(state.age_s),
        "requests it had served": _count(state.requests_served),
        "warm-up": "by an earlier run, or not tested" if warm_up is None else warm_up.state,
        "warm-up took, s": _number(warm_up.took_s if warm_up else None),
        "CPU per request when step 1 began, ms": _number(
            warm_up.first_cpu_ms_per_request if warm_up else None
        ),
        "CPU per request when step 1 ended, ms": _number(
            warm_up.cpu_ms_per_request if warm_up else None
        ),
        "CPU per request of the run's own load, ms": _number(
            warm_up.run_cpu_ms_per_request if warm_up else None
        ),
    }


def _steadiness(found: Steadiness | None) -> dict[str, str]:
    if found is None:
        return {}
    return {
        "steadiness": found.state,
        "tested for steadiness, s": _number(found.judged_s),
        "mean latency, first eighth of that time, ms": _number(found.latency_first_ms),
        "mean latency, last eighth of that time, ms": _number(found.latency_last_ms),
        "messages waiting when that time began": _count(found.waiting_first),
        "messages waiting when that time ended": _count(found.waiting_last),
    }


def _observer(run: Run) -> dict[str, str]:
    cost = run.observer
    if cost is None:
        return {}
    return {
        "observer: samples in the measured time": _count(cost.looks),
        "observer: CPU, s": _number(cost.cpu_s),
        "observer: share of all cores": numbers.quantity(cost.share, "share"),
    }


def _number(number: float | None) -> str:
    return numbers.NOTHING if number is None else numbers.significant(number)


def _count(number: int | None) -> str:
    return numbers.NOTHING if number is None else numbers.count(number)
