"""`penstock analyze`: runs counted again from their traces, in one Spark job."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli import evidence, options, output
from penstock.domain.shapes import Finding
from penstock.measure.campaign import reopen
from penstock.measure.run_directory import CAMPAIGN, REPORT, find_runs
from penstock.report import outcome
from penstock.report.page import write_report


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@options.latency_limits
@options.master
@options.as_json
def analyze(
    runs: tuple[Path, ...], limits_ms: tuple[float, ...], master: str, as_json: bool
) -> None:
    """Count what became of the messages of RUNS (directories of runs or of campaigns).

    What a killed run left behind is recovered first. Writes metrics.json, verdict.json,
    histograms and report.html into the directories.
    """
    directories = find_runs(runs)
    campaigns = {path: reopen(path) for path in runs if (path / CAMPAIGN).exists()}
    expected = (limit for campaign in campaigns.values() for limit in campaign.scenario.limits_ms)
    limits = (*limits_ms, *expected)
    with output.progress() as say, evidence.spark_session(master, say) as spark:
        shown = evidence.analyse(spark, directories, limits, say)
    evidence.require_some(shown, directories)
    failed = evidence.failures(directories)
    found: tuple[Finding, ...] = ()
    reports = []
    for path in runs:
        within = [d for d in directories if d.path == path or path in d.path.parents]
        ids = {directory.run().id for directory in within}
        mine = [one for one in shown if one.run.id in ids]
        its = evidence.findings_of(campaigns[path], mine) if path in campaigns else ()
        if mine:
            lost, drift = evidence.failures(within), evidence.drift_of(mine, within)
            write_report(path / REPORT, mine, path.resolve().name, its, lost, drift)
            reports.append(path / REPORT)
        found += its
    drift = evidence.drift_of(shown, directories)
    sentence = outcome.of_shown(shown, found, failed, drift)
    if as_json:
        output.emit_json(
            {
                "outcome": sentence,
                **evidence.doubts_as_data(shown, drift),
                "reports": reports,
                "runs": evidence.as_data(shown, directories),
                "failed": [{"cell": cell, "reason": reason} for cell, reason in failed],
                "findings": found,
            }
        )
        return
    output.outcome(sentence)
    evidence.show(shown, found, failed, drift)
    for report in reports:
        output.note(f"Evidence: {report}")
