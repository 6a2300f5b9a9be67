"""`penstock run`: runs a scenario or a campaign, counts message outcomes, judges the objective."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from penstock.api import runs
from penstock.api.evidence import Evidence
from penstock.cli import options, output
from penstock.cli.evidence import exit_code, show
from penstock.domain.errors import BadInput, PenstockError
from penstock.domain.progress import Progress
from penstock.domain.run import Run
from penstock.kafka.connection import KafkaCluster
from penstock.runs import campaign as campaigns
from penstock.runs.campaign import Campaign
from penstock.runs.resuming import Step


@click.command()
@click.argument("scenario", type=options.PATH, required=False)
@options.out
@click.option("--resume", type=options.PATH, help="Resume the campaign in this directory.")
@click.option("--retry-failed", is_flag=True, help="With --resume, also retry failed cells.")
@click.option(
    "--driver",
    type=options.PATH,
    help="A driver file, if SCENARIO is a workload of the OpenMessaging Benchmark.",
)
@click.option(
    "--testbed",
    help="Use this testbed, started by `penstock testbed up`, instead of a new cluster. It keeps "
    "running, and stays warm unless a broker is restarted.",
)
@options.latency_limits
@options.master
@options.details
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
    details: bool,
    as_json: bool,
) -> None:
    """Run a scenario and report what happened to the messages.

    Exits with 10 if an objective is not met or not judged, a run is invalid or an expected shape is
    missing, with 4 if a run failed.
    """
    if (scenario is None) == (resume is None):
        raise BadInput("give a scenario file, or --resume with the directory of a campaign")
    runs.check(testbed, limits_ms)
    if resume is not None:
        campaign = campaigns.reopen(resume)
    else:
        assert scenario is not None
        campaign = runs.begin(scenario, out=out, driver=driver, on_warning=output.warn)
    evidence = finish(
        campaign,
        retry_failed=retry_failed,
        testbed=testbed,
        latency_limits_ms=limits_ms,
        master=master,
    )
    if as_json:
        [report] = evidence.reports
        output.emit_json({**evidence.to_data(), "directory": campaign.path, "report": report})
    else:
        output.outcome(evidence.outcome)
        show(evidence, details)
    sys.exit(exit_code(evidence))


def finish(
    campaign: Campaign,
    after_load: Callable[[KafkaCluster, Run, Progress], object] = lambda *_: None,
    **options: Any,
) -> Evidence:
    """`runs.carry_on` with a progress bar; if it is cut short, says how to resume."""
    with output.bar() as bar:

        def step(now: Step) -> None:
            label = now.label or campaign.path.name
            bar.step(now.done, now.total, label, now.seconds_left)

        try:
            return runs.carry_on(
                campaign,
                after_load=lambda cluster, run: after_load(cluster, run, bar.say),
                on_progress=bar.say,
                on_step=step,
                **options,
            )
        except (KeyboardInterrupt, SystemExit, PenstockError):
            if not campaign.is_single:
                output.warn(f"resume with: penstock run --resume {campaign.path}")
            raise
