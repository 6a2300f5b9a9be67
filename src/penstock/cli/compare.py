"""`penstock compare`: compares runs with the first, and shows which differences exceed the noise."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.api import runs as api
from penstock.cli import options, output
from penstock.cli.evidence import warn_of
from penstock.report import outcome, tables


@click.command()
@click.argument("runs", nargs=-1, required=True, type=options.PATH)
@click.option("--report", type=options.PATH, help="Also write the comparison to this HTML file.")
@options.master
@options.as_json
def compare(runs: tuple[Path, ...], report: Path | None, master: str, as_json: bool) -> None:
    """Compare runs with the first of them.

    RUNS are directories of runs or campaigns.
    """
    with output.progress() as say:
        compared = api.compare(runs, report=report, master=master, on_progress=say)
    evidence, comparison = compared.evidence, compared.comparison
    for sentence in compared.left_out:
        output.warn(sentence)
    # Without failures: what is compared is what there is.
    sentence = outcome.of_runs(evidence.runs, drift=evidence.drift)
    doubts = {"disagreements": evidence.disagreements, "drift": evidence.drift}
    if not output.conclude(sentence, {**doubts, "comparison": comparison}, as_json):
        return
    warn_of(evidence)
    output.table(*tables.compared(comparison))
    for note in comparison.notes:
        output.note(note)
    if report is not None:
        output.note(f"Evidence: {report}")
