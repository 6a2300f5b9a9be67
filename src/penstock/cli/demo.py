"""`penstock demo`: a broker dies under load; what acks=1 and acks=all made of the messages."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import click

from penstock import specs
from penstock.cli import evidence, options, output
from penstock.cli.run import carry_out
from penstock.domain.cluster import ClusterSpec
from penstock.domain.errors import TestbedError
from penstock.domain.scenario import Scenario
from penstock.measure import campaign as campaigns
from penstock.measure.run_directory import REPORT
from penstock.report import outcome
from penstock.report.shown import Shown


@click.command()
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("runs"), help="Where the runs go."
)
@options.as_json
def demo(out: Path, as_json: bool) -> None:
    """Three brokers 20 ms apart, one killed in the middle: acks=1 against acks=all."""
    text = (files("penstock.cli") / "demo.yaml").read_text()
    scenario = specs.parse(text, Scenario, source="demo.yaml")
    has_network = os.geteuid() == 0
    if not has_network:
        output.warn("without root there is no network between the brokers: on loopback instead")
        plain = ClusterSpec(brokers=3, properties=scenario.cluster.properties)
        scenario = replace(scenario, cluster=plain)
    campaign = campaigns.create(scenario, "demo.yaml", out, text=text if has_network else None)
    shown, _, directories = carry_out(campaign, "local[*]")
    failed = evidence.failures(directories)
    evidence.require_some(shown, directories)
    is_sound = not failed and not any(one.problems for one in shown)
    sentence = _sentence(shown) if is_sound else outcome.of_shown(shown, failed=failed)
    report = campaign.path / REPORT
    if as_json:
        runs = evidence.as_data(shown, directories)
        output.emit_json({"outcome": sentence, "report": report, "runs": runs})
    else:
        output.outcome(sentence)
        evidence.show(shown, failed=failed)
        output.note(f"Evidence: {report}")
    if failed:
        sys.exit(TestbedError.exit_code)


def _sentence(shown: list[Shown]) -> str:
    told = []
    for one in shown:
        counts, latency = one.metrics.counts, one.metrics.acknowledgement
        wait = f" and took {latency.percentiles_ms['50'].value:.0f} ms (median)" if latency else ""
        told.append(f"{one.label} broke {counts.acknowledged_yet_lost} promises{wait}")
    return f"When a broker died, {', '.join(told)}: acknowledged messages that were lost."
