"""Judges every expected shape of a campaign on the figures of its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from penstock.domain.axis import number_or_text, text_of
from penstock.domain.metric_path import figure, is_time_like
from penstock.domain.metrics import RunMetrics
from penstock.domain.shapes.shape import CurvePoint, Finding, Shape

# What is special to a run in its campaign (axis → value, as text), and what it showed.
Result = tuple[Mapping[str, str], RunMetrics]


def findings(
    shapes: Sequence[Shape], axes: Mapping[str, Sequence[str]], results: Sequence[Result]
) -> tuple[Finding, ...]:
    """One finding for each shape and each combination of the axes that it leaves open.

    `axes` has the values of every axis in the scenario's order, as text. Times of runs that were not
    steady are left out.
    """
    every: list[Finding] = []
    for shape in shapes:
        where = {path: text_of(value) for path, value in shape.where.items()}
        open_axes = [path for path in axes if path != shape.over and path not in where]
        for values in product(*(axes[path] for path in open_axes)):
            fixed = {**where, **dict(zip(open_axes, values, strict=True))}
            every.append(_finding(shape, axes[shape.over], fixed, results))
    return tuple(every)


def _finding(
    shape: Shape, values: Sequence[str], fixed: Mapping[str, str], results: Sequence[Result]
) -> Finding:
    where = ", ".join(f"{path}={value}" for path, value in fixed.items())
    needs_steady = is_time_like(shape.figure)
    points = []
    unsteady = 0
    for value in values:
        cell_values = {**fixed, shape.over: value}
        runs = [
            metrics
            for cell, metrics in results
            if all(cell.get(path) == text for path, text in cell_values.items())
        ]
        usable = [run for run in runs if not (needs_steady and run.unsteadiness)]
        unsteady += len(runs) - len(usable)
        figures = [
            estimate.value for run in usable if (estimate := figure(run, shape.figure)) is not None
        ]
        if figures:
            points.append(CurvePoint(number_or_text(value), tuple(figures)))
    if len(points) < len(values):
        missing = len(values) - len(points)
        sentence = f"{shape.figure} over {shape.over}: {missing} of {len(values)} cells have no valid run with it"
        if unsteady:
            runs_were = "1 run was" if unsteady == 1 else f"{unsteady} runs were"
            sentence += f"; {runs_were} not steady"
        return Finding(holds=False, sentence=_at(sentence, where))
    judged = shape.check(points)
    return Finding(holds=judged.holds, sentence=_at(judged.sentence, where, shape.source))


def _at(sentence: str, where: str, source: str = "") -> str:
    return sentence + (f" (at {where})" if where else "") + (f" [{source}]" if source else "")
