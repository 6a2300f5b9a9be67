"""The results of an experiment's points as cluster facts: means over repeats, and lines. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.domain.errors import PenstockError
from penstock.domain.facts import (
    ClusterFacts,
    FactPoint,
    FittedLine,
    MeasuredRange,
    Over,
    PointConditions,
)
from penstock.domain.grid import LEAST_PARTITION_COUNTS, LEAST_REPEATS, ExperimentGrid
from penstock.runs.experiments.kinds.experiment_kind import PointResults, experiment
from penstock.runs.experiments.points import PointResult, base, conditions, sweep
from penstock.stats.fit import fit_line, merged_distribution

# More than a quiet system uses for itself.
BUSY_SHARE = 0.15


def assemble(
    kind: str, grid: ExperimentGrid, results: Sequence[PointResult], made_at: str
) -> ClusterFacts:
    """The facts. Raises if no point gave any figure."""
    measured = experiment(kind)
    results_by_point = PointResults(kind, grid, results)
    complete = [r for r in results if r.status == "complete"]
    if not complete:
        reasons = dict.fromkeys(r.reason for r in results)
        raise PenstockError(
            "no point of the experiment could be measured"
            + "".join(f"\n  {reason}" for reason in list(reasons)[:3])
        )
    lines = tuple(
        line for line in (_line(results_by_point, *what) for what in measured.fitted) if line
    )
    last = complete[-1]
    return ClusterFacts(
        made_at=made_at,
        machine=last.machine,
        versions=last.versions,
        grids={kind: grid},
        valid=_valid(kind, complete),
        caveats=_caveats(results_by_point),
        handles_limit=last.handles_limit,
        lines=lines,
        points=tuple(_point(results_by_point, where) for where in conditions(kind, grid)),
        **measured.facts(results_by_point),  # type: ignore[arg-type]
        **_named_lines(lines),  # type: ignore[arg-type]
    )


def _line(results: PointResults, figure: str, over: Over) -> FittedLine | None:
    x: list[float] = []
    y: list[float] = []
    for where in sweep(results.kind, results.grid):
        for result in results.of(where):
            at = _x(result, over)
            if figure in result.figures and at is not None:
                x.append(at)
                y.append(result.figures[figure].value)
    return fit_line(x, y, figure=figure, over=over, conditions=base(results.kind, results.grid))


def _x(result: PointResult, over: Over) -> float | None:
    if over == "led_partitions":
        led = result.figures.get("led_partitions")
        return None if led is None else led.value
    if over == "replicas_per_broker":
        return result.conditions.replicas_per_broker
    return float(result.conditions.partitions)


def _named_lines(lines: Sequence[FittedLine]) -> dict[str, FittedLine]:
    """Those that a planner asks for by name."""
    by_figure = {line.figure: line for line in lines}
    names = {
        "replication": ("replication_ms",),
        "election": ("election_longest_ms",),
        "handles": ("moderate_broker_open_handles", "broker_open_handles"),
    }
    return {
        name: by_figure[figure]
        for name, figures in names.items()
        for figure in figures
        if figure in by_figure
    }


def _point(results: PointResults, where: PointConditions) -> FactPoint:
    repeats = results.of(where)
    names = dict.fromkeys(name for r in repeats for name in r.figures)
    drawn = dict.fromkeys(name for r in repeats for name in r.distributions)
    merged = {
        name: merged_distribution(
            [r.distributions[name] for r in repeats if name in r.distributions]
        )
        for name in drawn
    }
    return FactPoint(
        experiment=results.kind,
        conditions=where,
        figures={n: e for n in names if (e := results.figure(where, n)) is not None},
        distributions={name: d for name, d in merged.items() if d is not None},
        repeats=len(repeats),
        failed=tuple(
            r.reason for r in results.points if r.conditions == where and r.status == "failed"
        ),
        warnings=tuple(dict.fromkeys(w for r in repeats for w in r.warnings)),
    )


def _valid(kind: str, complete: Sequence[PointResult]) -> dict[str, MeasuredRange]:
    ranges = {}
    where = [r.conditions.coordinates for r in complete]
    for axis in where[0]:
        numbers = [v for c in where if isinstance(v := c[axis], int | float)]
        if any(numbers):  # 0 at all points: the experiment does not have that axis
            ranges[f"{kind}.{axis}"] = MeasuredRange(low=min(numbers), high=max(numbers))
    return ranges


def _caveats(results: PointResults) -> tuple[str, ...]:
    kind, grid = results.kind, results.grid
    caveats = ["brokers and clients shared one machine and competed for its resources"]
    if grid.is_below_minimum:
        caveats.append(
            f"{kind}: {len(grid.partitions)} partition counts × {grid.repeats} repeats is below the "
            f"minimum of {LEAST_PARTITION_COUNTS} × {LEAST_REPEATS}: intervals are missing or "
            "unreliable"
        )
    lost = sum(r.status == "failed" for r in results.points)
    if lost:
        caveats.append(f"{kind}: {lost} of {len(results.points)} measurements failed")
    busy = [b for r in results.points if (b := float(r.machine.get("busy_share", 0))) > BUSY_SHARE]
    if busy:
        caveats.append(
            f"{kind}: the machine did other work too: {len(busy)} of {len(results.points)} "
            f"measurements found up to {max(busy):.0%} of its processors busy when they began"
        )
    return (*caveats, *experiment(kind).caveats)
