"""The results of an experiment's points as cluster facts: means over repeats, and lines. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

from penstock.domain.errors import PenstockError
from penstock.domain.facts import ClusterFacts, Conditions, FactPoint, Line, Over, Range
from penstock.domain.grid import LEAST_PARTITION_COUNTS, LEAST_REPEATS, ExperimentGrid, Kind
from penstock.domain.metrics import Estimate
from penstock.measure.batch_means import of_repeats
from penstock.measure.experiments.fit import fit_line, merged_distribution
from penstock.measure.experiments.points import PointResult, base, conditions, sweep

# What is fitted over the partition counts, and over what. S4's constraints are P·r·l_r ≤ b·L,
# P·u ≤ b·U and P·r ≤ b·H, so the first goes over the copies of a broker, the second over the
# partitions it leads, the third over its copies: each slope is then the coefficient itself.
FITTED: Mapping[Kind, tuple[tuple[str, Over], ...]] = {
    "production": (
        ("replication_ms", "copies_per_broker"),
        ("visible_ms", "copies_per_broker"),
        ("election_longest_ms", "led_partitions"),
        ("unavailable_longest_ms", "led_partitions"),
        ("moderate_broker_open_handles", "copies_per_broker"),
        ("latency_ms", "partitions"),
        ("throughput_mb_per_s", "partitions"),
    ),
    "consumption": (
        ("throughput_mb_per_s", "partitions"),
        ("rebalance_join_ms", "partitions"),
        ("rebalance_leave_ms", "partitions"),
        ("rebalance_form_ms", "partitions"),
        ("broker_open_handles", "copies_per_broker"),
    ),
    "end-to-end": (
        ("end_to_end_ms", "partitions"),
        ("end_to_end_p99_ms", "partitions"),
        ("broker_open_handles", "copies_per_broker"),
    ),
}

# More than a quiet system uses for itself.
BUSY_SHARE = 0.15


@dataclass(frozen=True)
class _Found:
    """The results of one experiment, by what they were measured at."""

    kind: Kind
    grid: ExperimentGrid
    results: Sequence[PointResult]

    def of(self, where: Conditions) -> list[PointResult]:
        return [r for r in self.results if r.conditions == where and r.status == "complete"]

    def figure(self, where: Conditions, name: str) -> Estimate | None:
        found = [r.figures[name] for r in self.of(where) if name in r.figures]
        return of_repeats(found) if found else None


def assemble(
    kind: Kind, grid: ExperimentGrid, results: Sequence[PointResult], made_at: str
) -> ClusterFacts:
    """The facts. Raises if no point gave any figure."""
    found = _Found(kind, grid, results)
    complete = [r for r in results if r.status == "complete"]
    if not complete:
        reasons = dict.fromkeys(r.reason for r in results)
        raise PenstockError(
            "no point of the experiment could be measured"
            + "".join(f"\n  {reason}" for reason in list(reasons)[:3])
        )
    lines = tuple(line for line in (_line(found, *what) for what in FITTED[kind]) if line)
    last = complete[-1]
    return ClusterFacts(
        made_at=made_at,
        machine=last.machine,
        versions=last.versions,
        grids={kind: grid},
        valid=_valid(kind, complete),
        caveats=_caveats(found),
        handles_limit=last.handles_limit,
        lines=lines,
        points=tuple(_point(found, where) for where in conditions(kind, grid)),
        **_SINGLE[kind](found),  # type: ignore[arg-type]
        **_named_lines(lines),  # type: ignore[arg-type]
    )


def _line(found: _Found, figure: str, over: Over) -> Line | None:
    x: list[float] = []
    y: list[float] = []
    for where in sweep(found.kind, found.grid):
        for result in found.of(where):
            at = _x(result, over)
            if figure in result.figures and at is not None:
                x.append(at)
                y.append(result.figures[figure].value)
    return fit_line(x, y, figure=figure, over=over, conditions=base(found.kind, found.grid))


def _x(result: PointResult, over: Over) -> float | None:
    if over == "led_partitions":
        led = result.figures.get("led_partitions")
        return None if led is None else led.value
    if over == "copies_per_broker":
        return result.conditions.copies_per_broker
    return float(result.conditions.partitions)


def _named_lines(lines: Sequence[Line]) -> dict[str, Line]:
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


def _production(found: _Found) -> dict[str, object]:
    middle = base(found.kind, found.grid)
    # It has nothing to do with partitions, so every point of the sweep tells it.
    detected = [
        r.figures["detection_ms"]
        for where in sweep(found.kind, found.grid)
        for r in found.of(where)
        if "detection_ms" in r.figures
    ]
    one = next((c for c in sweep(found.kind, found.grid) if c.partitions == 1), None)
    return {
        "partition_mb_per_s": found.figure(one, "throughput_mb_per_s") if one else None,
        "producer_mb_per_s": found.figure(middle, "throughput_mb_per_s"),
        "producer_records_per_s": found.figure(middle, "throughput_records_per_s"),
        "producer_latency_ms": found.figure(middle, "latency_ms"),
        "detection_ms": of_repeats(detected) if detected else None,
    }


def _consumption(found: _Found) -> dict[str, object]:
    middle = base(found.kind, found.grid)
    lonely = [
        c
        for c in conditions(found.kind, found.grid)
        if c.consumers == 1 and c.message_bytes == middle.message_bytes
    ]
    nearest = min(lonely, key=lambda c: abs(c.partitions - middle.partitions), default=None)
    return {
        "consumer_mb_per_s": found.figure(nearest, "throughput_mb_per_s") if nearest else None,
        "group_mb_per_s": found.figure(middle, "throughput_mb_per_s"),
        "group_records_per_s": found.figure(middle, "throughput_records_per_s"),
        "rebalance_ms": found.figure(middle, "rebalance_join_ms"),
    }


def _end_to_end(found: _Found) -> dict[str, object]:
    of_base = found.of(base(found.kind, found.grid))
    drawn = [r.distributions["end_to_end"] for r in of_base if "end_to_end" in r.distributions]
    return {"end_to_end": merged_distribution(drawn)}


_SINGLE: Mapping[Kind, Callable[[_Found], dict[str, object]]] = {
    "production": _production,
    "consumption": _consumption,
    "end-to-end": _end_to_end,
}


def _point(found: _Found, where: Conditions) -> FactPoint:
    repeats = found.of(where)
    names = dict.fromkeys(name for r in repeats for name in r.figures)
    drawn = dict.fromkeys(name for r in repeats for name in r.distributions)
    merged = {
        name: merged_distribution(
            [r.distributions[name] for r in repeats if name in r.distributions]
        )
        for name in drawn
    }
    return FactPoint(
        experiment=found.kind,
        conditions=where,
        figures={n: e for n in names if (e := found.figure(where, n)) is not None},
        distributions={name: d for name, d in merged.items() if d is not None},
        repeats=len(repeats),
        failed=tuple(
            r.reason for r in found.results if r.conditions == where and r.status == "failed"
        ),
        warnings=tuple(dict.fromkeys(w for r in repeats for w in r.warnings)),
    )


def _valid(kind: Kind, complete: Sequence[PointResult]) -> dict[str, Range]:
    found = {}
    for f in fields(Conditions):
        values = [getattr(r.conditions, f.name) for r in complete]
        numbers = [v for v in values if isinstance(v, int) and v > 0]
        if numbers:
            found[f"{kind}.{f.name}"] = Range(low=min(numbers), high=max(numbers))
    return found


def _caveats(found: _Found) -> tuple[str, ...]:
    kind, grid = found.kind, found.grid
    caveats = ["brokers and clients shared one machine, so each had less of it than it would alone"]
    if grid.is_below_minimum:
        caveats.append(
            f"{kind}: {len(grid.partitions)} partition counts × {grid.repeats} repeats is below the "
            f"minimum of {LEAST_PARTITION_COUNTS} × {LEAST_REPEATS}: intervals are missing or mean "
            "little"
        )
    lost = sum(r.status == "failed" for r in found.results)
    if lost:
        caveats.append(f"{kind}: {lost} of {len(found.results)} measurements failed")
    busy = [b for r in found.results if (b := float(r.machine.get("busy_share", 0))) > BUSY_SHARE]
    if busy:
        caveats.append(
            f"{kind}: the machine did other work too: {len(busy)} of {len(found.results)} "
            f"measurements found up to {max(busy):.0%} of its processors busy when they began"
        )
    if kind == "consumption":
        caveats.append(
            "a group does not wait for its first members "
            "(group.initial.rebalance.delay.ms=0; default 3 s)"
        )
    return tuple(caveats)
