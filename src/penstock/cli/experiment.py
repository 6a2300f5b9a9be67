"""`penstock experiment`: what a cluster can do, over partitions and more, as facts for planning."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import click

from penstock import specs
from penstock.cli import options, output
from penstock.domain.errors import BadInput, TestbedError
from penstock.domain.facts import ClusterFacts
from penstock.domain.grid import (
    LEAST_PARTITION_COUNTS,
    LEAST_REPEATS,
    ExperimentGrid,
    Kind,
    complete,
    quick,
)
from penstock.domain.value import FieldError
from penstock.files import write_file
from penstock.measure.experiments import series as experiments
from penstock.measure.experiments.assemble import assemble
from penstock.measure.experiments.points import PointResult
from penstock.measure.experiments.series import FACTS, Series, Step
from penstock.measure.run_directory import REPORT
from penstock.report import facts as shown
from penstock.spec_text import read_text

_options: list[Callable[[Callable[..., None]], Callable[..., None]]] = [
    click.argument("spec", type=click.Path(path_type=Path), required=False),
    click.option(
        "--quick",
        "is_quick",
        is_flag=True,
        help="Few partition counts, once, short: to see that it works.",
    ),
    click.option(
        "--out", type=click.Path(path_type=Path), default=Path("runs"), help="Where it goes."
    ),
    click.option(
        "--resume",
        type=click.Path(path_type=Path),
        help="Go on with the experiment in this directory.",
    ),
    click.option("--retry-failed", is_flag=True, help="With --resume: the failed points too."),
    options.as_json,
]


def _shared(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_options):
        command = option(command)
    return command


@click.group()
def experiment() -> None:
    """Measure what a cluster can do; the result is a file of cluster facts.

    SPEC is a grid (`penstock schema experiment`); without one, the default grid is measured: every
    point on a cluster of its own, three times. That takes from half an hour to an hour.
    """


@experiment.command()
@_shared
def production(**given: object) -> None:
    """Throughput and latency of producers, replication, and what the death of a broker costs."""
    _carry_out("production", **given)  # type: ignore[arg-type]


@experiment.command()
@_shared
def consumption(**given: object) -> None:
    """Throughput of a consumer group, and how long it takes to rebalance."""
    _carry_out("consumption", **given)  # type: ignore[arg-type]


@experiment.command("end-to-end")
@_shared
def end_to_end(**given: object) -> None:
    """Latency of streams from producers to consumers, as a distribution."""
    _carry_out("end-to-end", **given)  # type: ignore[arg-type]


def _carry_out(
    kind: Kind,
    spec: Path | None,
    is_quick: bool,
    out: Path,
    resume: Path | None,
    retry_failed: bool,
    as_json: bool,
) -> None:
    series = _series(kind, spec, is_quick, out, resume)
    if series.grid.is_below_minimum:
        output.warn(
            f"{len(series.grid.partitions)} partition counts × {series.grid.repeats} repeats is below "
            f"the minimum of {LEAST_PARTITION_COUNTS} × {LEAST_REPEATS}: do not plan with the result"
        )
    with output.bar() as bar:

        def step(now: Step) -> None:
            bar.step(now.done, now.total, now.point.label, now.seconds_left)

        try:
            results = experiments.carry_on(
                series, retry_failed=retry_failed, on_progress=bar.say, on_step=step
            )
        except KeyboardInterrupt:
            output.warn(f"go on with it: penstock experiment {kind} --resume {series.path}")
            raise
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    facts = assemble(kind, series.grid, results, made_at)
    write_file(series.path / FACTS, specs.dump_json(facts))
    shown.write_page(series.path / REPORT, facts, kind, series.path.name)
    _show(series, facts, results, as_json)
    if any(result.status == "failed" for result in results):
        sys.exit(TestbedError.exit_code)


def _series(
    kind: Kind, spec: Path | None, is_quick: bool, out: Path, resume: Path | None
) -> Series:
    if resume is not None:
        if spec is not None or is_quick:
            raise BadInput("--resume goes on with the grid of its directory", "leave the rest out")
        series = experiments.reopen(resume)
        if series.kind != kind:
            raise BadInput(
                f"{resume}: is a {series.kind} experiment",
                f"penstock experiment {series.kind} --resume {resume}",
            )
        return series
    given = specs.load(spec, ExperimentGrid) if spec is not None else ExperimentGrid()
    try:
        grid = complete(kind, given)
        text = read_text(spec) if spec is not None else None
        return experiments.create(kind, quick(grid) if is_quick else grid, out, text)
    except FieldError as error:
        # Two values that do not fit, one of them the experiment's own.
        raise BadInput(f"{spec}: {error}") from None


def _show(series: Series, facts: ClusterFacts, results: list[PointResult], as_json: bool) -> None:
    sentence = shown.sentence(facts, series.kind)
    failed = experiments.failures(series, results)
    if as_json:
        output.emit_json(
            {
                "outcome": sentence,
                "directory": series.path,
                "facts_file": series.path / FACTS,
                "report": series.path / REPORT,
                "facts": facts,
                "failed": [{"point": point, "reason": reason} for point, reason in failed],
            }
        )
        return
    output.outcome(sentence)
    output.table(*shown.points(facts, series.kind))
    if facts.lines:
        output.table(*shown.lines(facts))
    output.table(*shown.points(facts, series.kind, shown.USED))
    for point, reason in failed:
        output.warn(f"failed: {point}: {reason}")
    for caveat in facts.caveats:
        output.note(f"Note: {caveat}.")
    output.note(f"Facts: {series.path / FACTS}")
    output.note(f"Evidence: {series.path / REPORT}")
