"""`penstock compare`: runs against the first of them, and which differences exceed the noise."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli import evidence, options, output
from penstock.measure.run_directory import find_runs
from penstock.report import outcome, tables
from penstock.report.comparison import compare as compare_runs
from penstock.report.page import write_report

_BECAME = {"failed": "failed", "interrupted": "was interrupted"}


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--report", type=click.Path(path_type=Path), help="Write the comparison as one HTML page there."
)
@options.master
@options.as_json
def compare(runs: tuple[Path, ...], report: Path | None, master: str, as_json: bool) -> None:
    """Compare RUNS (directories of runs or campaigns) with the first of them."""
    directories = []
    every = find_runs(runs)
    for directory in every:
        status = directory.run().status
        if status == "complete":
            directories.append(directory)
        else:
            output.warn(f"{directory.path}: is left out: the run {_BECAME[status]}")
    new = [directory for directory in directories if not directory.has_metrics]
    if new:
        with output.progress() as say, evidence.spark_session(master, say) as spark:
            evidence.analyse(spark, new, (), say)
    shown = evidence.read_back(directories)
    comparison = compare_runs(shown)
    drift = evidence.drift_of(shown, every)
    sentence = outcome.of_shown(shown, drift=drift)
    if report is not None:
        write_report(report, shown, "Comparison", drift=drift)
    if as_json:
        doubts = evidence.doubts_as_data(shown, drift)
        output.emit_json({"outcome": sentence, **doubts, "comparison": comparison})
        return
    output.outcome(sentence)
    evidence.warn_of(shown, drift)
    output.table(*tables.compared(comparison))
    for note in comparison.notes:
        output.note(note)
    if report is not None:
        output.note(f"Evidence: {report}")
