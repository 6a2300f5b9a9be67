"""`penstock demo`: kills a broker under load with acks=1 and acks=all, lands the messages in a
lake, and lets lanes follow a load."""

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
from penstock.cli import options, output
from penstock.cli.demo_lake import DemoLake
from penstock.cli.demo_lanes import DemoLanes
from penstock.cli.evidence import VERDICT_EXIT, show
from penstock.cli.run import finish
from penstock.domain.cluster import ClusterSpec
from penstock.domain.errors import TestbedError
from penstock.domain.progress import Progress
from penstock.domain.run import Run
from penstock.domain.scenario import Scenario
from penstock.kafka.connection import KafkaCluster
from penstock.report import outcome
from penstock.report.drift import Drift
from penstock.report.reported_run import ReportedRun
from penstock.runs import campaign as campaigns
from penstock.testbed.cluster import Cluster


@click.command()
@options.out
@options.as_json
def demo(out: Path, as_json: bool) -> None:
    """Show how acks=1 and acks=all behave when a broker is killed.

    There are three brokers, 20 ms apart. A pipeline lands the messages of the last run in a Delta table;
    it is killed while landing, and the audit checks that each is there exactly once. Then the load on
    another topic rises and falls, and the number of lanes follows.
    """
    text = (files("penstock.cli") / "demo.yaml").read_text()
    scenario = specs.parse(text, Scenario, source="demo.yaml")
    has_network = os.geteuid() == 0
    if not has_network:
        output.warn("without root there is no emulated network: the brokers run on loopback")
        plain = ClusterSpec(brokers=3, properties=scenario.cluster.properties)
        scenario = replace(scenario, cluster=plain)
    campaign = campaigns.create(scenario, "demo.yaml", out, text=text if has_network else None)
    lake, lanes = DemoLake(campaign.path / "landed"), DemoLanes(campaign.path / "scaled")

    def land(cluster: KafkaCluster, run: Run, say: Progress) -> None:
        if run.spec.settings.acks == "all":
            assert isinstance(cluster, Cluster)
            lake.land(cluster, run.spec.topic.name, say)
            lanes.play(cluster, say)

    evidence = finish(campaign, after_load=land)
    is_sound = not evidence.failed and not any(run.problems for run in evidence.counted)
    sentence = _sentence(evidence.counted, evidence.drift) if is_sound else evidence.outcome
    audit = None if evidence.failed else _audit(lake)
    if as_json:
        [report] = evidence.reports
        output.emit_json(
            {
                **evidence.to_data(),
                "outcome": sentence,
                "report": report,
                "audit": audit,
                "lanes": lanes.changes,
            }
        )
    else:
        output.outcome(sentence)
        show(evidence)
        if audit is not None:
            output.note(f"Lake (pipeline killed once while landing): {lake.lake}")
            output.outcome(audit["outcome"])
            output.table(
                ("lanes", "decision of the autoscaler"),
                [(change.lanes, change.reason) for change in lanes.changes],
            )
            output.outcome(lanes.sentence)
    if evidence.failed:
        sys.exit(TestbedError.exit_code)
    if audit is not None and not audit["is_clean"]:
        sys.exit(VERDICT_EXIT)


def _audit(lake: DemoLake) -> dict[str, Any]:
    with output.progress() as say:
        say("auditing the lake")
        return lake.audit()


def _sentence(runs: Sequence[ReportedRun], drift: Sequence[Drift]) -> str:
    clauses = []
    for run in runs:
        counts, latency = run.metrics.counts, run.metrics.acknowledgement
        lost = f"{counts.acknowledged_yet_lost:,}" if counts.acknowledged_yet_lost else "no"
        messages = "message" if counts.acknowledged_yet_lost == 1 else "messages"
        wait = ""
        if latency and not run.unsteadiness:
            wait = f" (median ack {latency.percentiles_ms['50'].value:.0f} ms)"
        clauses.append(f"{run.label} lost {lost} acknowledged {messages}{wait}")
    sentences = [
        *outcome.doubts(runs, (), drift),
        f"When a broker died, {'; '.join(clauses)}.",
    ]
    return " ".join(filter(None, sentences))
