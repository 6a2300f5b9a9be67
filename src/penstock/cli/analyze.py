"""`penstock analyze`: recomputes metrics of runs from their traces, in one Spark job."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.api import runs as api
from penstock.cli import options, output
from penstock.cli.evidence import show


@click.command()
@click.argument("runs", nargs=-1, required=True, type=options.PATH)
@options.latency_limits
@options.master
@options.details
@options.as_json
def analyze(
    runs: tuple[Path, ...],
    limits_ms: tuple[float, ...],
    master: str,
    details: bool,
    as_json: bool,
) -> None:
    """Recompute metrics and reports of runs.

    RUNS are directories of runs or campaigns.
    The traces of a killed run are recovered first. Writes metrics.json, verdict.json,
    histograms and report.html into the directories.
    """
    with output.progress() as say:
        evidence = api.analyze(runs, latency_limits_ms=limits_ms, master=master, on_progress=say)
    if as_json:
        output.emit_json(evidence.to_data())
        return
    output.outcome(evidence.outcome)
    show(evidence, details)
