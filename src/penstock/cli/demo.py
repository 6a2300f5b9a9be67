"""`penstock demo`: a broker dies under load; what acks=1 and acks=all made of the messages; then they
are landed in a lake; then lanes follow the load."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

from penstock import specs
from penstock.cli import evidence, options, output
from penstock.cli.demo_lake import DemoLake
from penstock.cli.demo_lanes import DemoLanes
from penstock.cli.run import carry_out
from penstock.domain.cluster import ClusterSpec
from penstock.domain.errors import TestbedError
from penstock.domain.run import Run
from penstock.domain.scenario import Scenario
from penstock.measure import campaign as campaigns
from penstock.measure.run_directory import REPORT
from penstock.progress import Progress
from penstock.report import outcome
from penstock.report.drift import Drift
from penstock.report.shown import Shown, counted
from penstock.testbed.cluster import Cluster
from penstock.testbed.connection import KafkaCluster


@click.command()
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("runs"), help="Where the runs go."
)
@options.as_json
def demo(out: Path, as_json: bool) -> None:
    """Three brokers 20 ms apart, one killed in the middle: acks=1 against acks=all.

    The messages of the last run are landed in a Delta table by a pipeline that is killed on the way,
    and the audit says whether each is there exactly once. Then the load rises and falls, and the lanes
    of another pipeline follow.
    """
    text = (files("penstock.cli") / "demo.yaml").read_text()
    scenario = specs.parse(text, Scenario, source="demo.yaml")
    has_network = os.geteuid() == 0
    if not has_network:
        output.warn("without root there is no network between the brokers: on loopback instead")
        plain = ClusterSpec(brokers=3, properties=scenario.cluster.properties)
        scenario = replace(scenario, cluster=plain)
    campaign = campaigns.create(scenario, "demo.yaml", out, text=text if has_network else None)
    lake, lanes = DemoLake(campaign.path / "landed"), DemoLanes(campaign.path / "scaled")

    def land(cluster: KafkaCluster, run: Run, say: Progress) -> None:
        if run.experiment.settings.acks == "all":
            assert isinstance(cluster, Cluster)
            lake.land(cluster, run.experiment.topic.name, say)
            lanes.play(cluster, say)

    shown, _, directories = carry_out(campaign, "local[*]", after_load=land)
    failed = evidence.failures(directories)
    evidence.require_some(shown, directories)
    drift = evidence.drift_of(shown, directories)
    is_sound = not failed and not any(one.problems for one in counted(shown))
    if is_sound:
        sentence = _sentence(counted(shown), drift)
    else:
        sentence = outcome.of_shown(shown, failed=failed, drift=drift)
    audit = None if failed else _audit(lake)
    report = campaign.path / REPORT
    if as_json:
        runs = evidence.as_data(shown, directories)
        output.emit_json(
            {
                "outcome": sentence,
                **evidence.doubts_as_data(shown, drift),
                "report": report,
                "runs": runs,
                "audit": audit,
                "lanes": lanes.changes,
            }
        )
    else:
        output.outcome(sentence)
        evidence.show(shown, failed=failed, drift=drift)
        output.note(f"Evidence: {report}")
        if audit is not None:
            output.note(f"The lake, its pipeline killed once on the way: {lake.lake}")
            output.outcome(audit["outcome"])
            output.table(
                ("lanes", "decision of the autoscaler"),
                [(change.lanes, change.reason) for change in lanes.changes],
            )
            output.outcome(lanes.sentence)
    if failed:
        sys.exit(TestbedError.exit_code)
    if audit is not None and not audit["is_clean"]:
        sys.exit(evidence.VERDICT_EXIT)


def _audit(lake: DemoLake) -> dict[str, Any]:
    with output.progress() as say:
        say("auditing the lake")
        return lake.audit()


def _sentence(shown: Sequence[Shown], drift: Sequence[Drift]) -> str:
    clauses = []
    for one in shown:
        counts, latency = one.metrics.counts, one.metrics.acknowledgement
        wait = f" and took {latency.percentiles_ms['50'].value:.0f} ms (median)" if latency else ""
        if one.unsteadiness:
            wait = ""
        clauses.append(f"{one.label} broke {counts.acknowledged_yet_lost} promises{wait}")
    sentences = [
        *outcome.doubts(shown, (), drift),
        outcome.unsteady(shown),
        f"When a broker died, {', '.join(clauses)}: acknowledged messages that were lost.",
    ]
    return " ".join(filter(None, sentences))
