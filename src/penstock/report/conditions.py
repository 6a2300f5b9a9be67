"""The conditions of runs: how warm the cluster was, whether the run was steady, what observing
cost. One table; not a judgement of the figures."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.domain.run import Run
from penstock.domain.steadiness import Steadiness
from penstock.report import formatting
from penstock.report.reported_run import ReportedRun
from penstock.report.tables import Table, by_run


def conditions(runs: Sequence[ReportedRun]) -> Table | None:
    """A column per run while they fit; None if no run recorded any of it, as in older runs."""
    facts = [
        {
            **_cluster(reported.run),
            **_steadiness(reported.metrics.steadiness),
            **_observer(reported.run),
        }
        for reported in runs
    ]
    names = list(dict.fromkeys(name for run_facts in facts for name in run_facts))
    if not names:
        return None
    rows = [[run_facts.get(name, formatting.NOTHING) for name in names] for run_facts in facts]
    labels = ["this run"] if len(runs) == 1 else [reported.label for reported in runs]
    return by_run("", names, labels, rows)


_WARM_UP = {
    "warm-up took, s": "took_s",
    "CPU per request when step 1 began, ms": "first_cpu_ms_per_request",
    "CPU per request when step 1 ended, ms": "cpu_ms_per_request",
    "CPU per request of the run's own load, ms": "run_cpu_ms_per_request",
}


def _cluster(run: Run) -> dict[str, str]:
    state = run.cluster_state
    if state is None:
        return {"warm-up": "not tested"} if run.spec.existing is not None else {}
    warm_up = state.warm_up
    return {
        "age of the cluster, s": _number(state.age_s),
        "requests it had served": _count(state.requests_served),
        "warm-up": "by an earlier run, or not tested" if warm_up is None else warm_up.state,
        **{title: _number(getattr(warm_up, name, None)) for title, name in _WARM_UP.items()},
    }


def _steadiness(steadiness: Steadiness | None) -> dict[str, str]:
    if steadiness is None:
        return {}
    return {
        "steadiness": steadiness.state,
        "tested for steadiness, s": _number(steadiness.judged_s),
        "mean latency, first eighth of that time, ms": _number(steadiness.latency_first_ms),
        "mean latency, last eighth of that time, ms": _number(steadiness.latency_last_ms),
        "messages waiting when that time began": _count(steadiness.waiting_first),
        "messages waiting when that time ended": _count(steadiness.waiting_last),
    }


def _observer(run: Run) -> dict[str, str]:
    cost = run.observer
    if cost is None:
        return {}
    return {
        "observer: samples in the measured time": _count(cost.looks),
        "observer: CPU, s": _number(cost.cpu_s),
        "observer: share of all cores": formatting.quantity(cost.share, "share"),
    }


def _number(number: float | None) -> str:
    return formatting.NOTHING if number is None else formatting.significant(number)


def _count(number: int | None) -> str:
    return formatting.NOTHING if number is None else formatting.count(number)
