"""`penstock run`: a scenario, or with a matrix a campaign, carried out, counted and judged."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click

from penstock import specs
from penstock.cli import evidence, options, output
from penstock.domain.errors import BadInput, PenstockError, TestbedError
from penstock.domain.run import Run
from penstock.domain.scenario import Scenario
from penstock.domain.shapes import Finding
from penstock.measure import campaign as campaigns
from penstock.measure import openmessaging, schedule
from penstock.measure.campaign import Campaign, Step
from penstock.measure.run_directory import REPORT, RunDirectory
from penstock.progress import Progress
from penstock.report import outcome
from penstock.report.page import write_report
from penstock.report.shown import Shown, counted
from penstock.spec_text import read_text
from penstock.testbed.connection import KafkaCluster


@click.command()
@click.argument("scenario", type=click.Path(path_type=Path), required=False)
@click.option("--out", type=click.Path(path_type=Path), default=Path("runs"), help="Where runs go.")
@click.option(
    "--resume", type=click.Path(path_type=Path), help="Go on with the campaign in this directory."
)
@click.option("--retry-failed", is_flag=True, help="With --resume: the failed cells too.")
@click.option(
    "--driver",
    type=click.Path(path_type=Path),
    help="A driver file, if SCENARIO is a workload of the OpenMessaging Benchmark.",
)
@click.option(
    "--testbed",
    help="Use this testbed, started by `penstock testbed up`, instead of a new cluster. It keeps "
    "running.",
)
@options.latency_limits
@options.master
@options.as_json
def run(
    scenario: Path | None,
    out: Path,
    resume: Path | None,
    retry_failed: bool,
    driver: Path | None,
    testbed: str | None,
    limits_ms: tuple[float, ...],
    master: str,
    as_json: bool,
) -> None:
    """Carry SCENARIO out: load, faults, network; then say what became of the messages.

    Exits with 10 if an objective is not met or not judged, a run is invalid or an expected shape is
    not there, with 4 if a run failed.
    """
    campaign = _campaign(scenario, resume, out, driver)
    shown, found, directories = carry_out(campaign, master, limits_ms, retry_failed, testbed)
    failed = evidence.failures(directories)
    evidence.require_some(shown, directories)
    report = campaign.path / REPORT
    drift = evidence.drift_of(shown, directories)
    sentence = outcome.of_shown(shown, found, failed, drift)
    if as_json:
        output.emit_json(
            {
                "outcome": sentence,
                **evidence.doubts_as_data(shown, drift),
                "directory": campaign.path,
                "report": report,
                "runs": evidence.as_data(shown, directories),
                "failed": [{"cell": cell, "reason": reason} for cell, reason in failed],
                "findings": found,
            }
        )
    else:
        output.outcome(sentence)
        evidence.show(shown, found, failed, drift)
        output.note(f"Evidence: {report}")
    sys.exit(_exit_code(shown, found, failed))


def carry_out(
    campaign: Campaign,
    master: str,
    limits_ms: tuple[float, ...] = (),
    retry_failed: bool = False,
    testbed: str | None = None,
    after_load: Callable[[KafkaCluster, Run, Progress], object] = lambda *_: None,
) -> tuple[list[Shown], tuple[Finding, ...], list[RunDirectory]]:
    """Load first, then one analysis of all runs, then the report."""
    with output.bar() as bar:

        def step(now: Step) -> None:
            label = now.cell.label or campaign.path.name
            bar.step(now.done, now.total, label, now.seconds_left)

        # It takes ten seconds to start, which it may do while the cluster does; never under load.
        spark = evidence.BackgroundSpark(master)
        try:
            campaigns.carry_on(
                campaign,
                retry_failed=retry_failed,
                testbed=testbed,
                before_load=spark.get,
                after_load=lambda cluster, run: after_load(cluster, run, bar.say),
                on_progress=bar.say,
                on_step=step,
            )
            directories = campaign.directories
            limits = (*limits_ms, *campaign.scenario.limits_ms)
            shown = evidence.analyse(spark.get(), directories, limits, bar.say)
        except (KeyboardInterrupt, SystemExit, PenstockError):
            if not campaign.is_single:
                output.warn(f"go on with: penstock run --resume {campaign.path}")
            raise
        finally:
            spark.stop()
        found = evidence.findings_of(campaign, shown)
        if shown:
            bar.say("writing the report")
            failed = evidence.failures(directories)
            drift = evidence.drift_of(shown, directories)
            write_report(campaign.path / REPORT, shown, campaign.path.name, found, failed, drift)
    return shown, found, directories


def _campaign(
    scenario: Path | None, resume: Path | None, out: Path, driver: Path | None
) -> Campaign:
    if (scenario is None) == (resume is None):
        raise BadInput("give a scenario file, or --resume with the directory of a campaign")
    if resume is not None:
        return campaigns.reopen(resume)
    assert scenario is not None
    if openmessaging.is_workload(scenario):
        translated = openmessaging.load(scenario, driver)
        for note in translated.notes:
            output.warn(f"{scenario}: {note}")
        return campaigns.create(translated.scenario, str(scenario), out)
    if driver is not None:
        raise BadInput(
            f"{scenario} is not a workload of the OpenMessaging Benchmark", "leave --driver out"
        )
    loaded = schedule.resolve_scenario(specs.load(scenario, Scenario), scenario.parent)
    return campaigns.create(loaded, str(scenario), out, text=read_text(scenario))


def _exit_code(
    shown: list[Shown], found: tuple[Finding, ...], failed: list[tuple[str, str]]
) -> int:
    if failed:
        return TestbedError.exit_code
    runs = counted(shown)
    is_met = all(one.verdict is None or one.verdict.is_met for one in runs)
    # An invalid run answers nothing, objective or not.
    is_valid = not any(one.run.invalid for one in runs)
    holds = all(finding.holds for finding in found)
    return 0 if is_met and is_valid and holds else evidence.VERDICT_EXIT
