"""Predictions on settings never measured before, written down before they are measured.

One cluster in network namespaces. First the runs of the calibration's design, and the fit. Then the
settings of model_cells.py are predicted and written to a file, whose hash is in the result; only then
they are measured, each twice (quick: three of eight twice), in an order that mixes them.

An error is exp|ln(predicted / measured)| − 1, against the mean of the repeats (of their logarithms);
the noise of a setting is the same between its repeats. Load levels are by the CPU that a run really
used: light below 40 %, medium below 65 %, heavy up to 85 %. A setting whose repeats differ by more
than 20 % is measured once more for three times as long; if that differs from both together by as
much, the setting is not judged.

The document's rule (three stages) gets the calibration runs, too. Runs, model, predictions and
measurements stay in bench/out/models.
"""

from __future__ import annotations

import hashlib
import random
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import model_data
from harness import Row, kafka_tool, main
from model_cells import CLUSTER, SECONDS, Cell, cells, full_cells, reading_cells
from model_data import Measured, Measurements
from model_verdicts import NOISY, noise, predicted, results
from penstock import specs
from penstock.analysis.background import BackgroundSpark
from penstock.api.calibration import calibrate, read_behind
from penstock.api.evidence import count_outcomes
from penstock.api.observations import observation, sending
from penstock.api.testbeds import remove_testbed, start_testbed
from penstock.domain.cluster import TopicSpec
from penstock.domain.errors import BadInput, TestbedError
from penstock.domain.lake.partition import Partition
from penstock.domain.run import Run
from penstock.kafka.connection import KafkaCluster
from penstock.kafka.log_sizes import LogSizes
from penstock.models.costs import used_cores
from penstock.models.design import capacity_per_s
from penstock.models.forecast import Forecast
from penstock.models.observation import MeasuredLatency, MeasuredReading, MeasuredSending
from penstock.runs import campaign as campaigns
from penstock.runs.clusters import Clusters, set_network
from penstock.runs.run_directory import RunDirectory
from penstock.testbed.cluster import Cluster

QUICK_RUNS = 5
# In full, what differs from run to run averages out of the calibration.
REPEATS = 2
# The runs, the model and the predictions of the last time stay here.
OUT = Path("bench") / "out" / "models"
_TESTBED = "bench-models"
_JAVA = re.compile(
    r"([\d.]+) ms avg latency.*?([\d.]+) ms 50th, ([\d.]+) ms 95th, ([\d.]+) ms 99th", re.S
)


def measure(quick: bool, say: Callable[[str], None]) -> tuple[dict[str, Any], list[Row]]:
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    start_testbed(CLUSTER, name=_TESTBED, on_progress=say)
    try:
        calibrated = calibrate(
            testbed=_TESTBED,
            model=OUT / "model.json",
            most_runs=QUICK_RUNS if quick else None,
            repeats=1 if quick else REPEATS,
            throughput=not quick,
            out=OUT / "calibration",
            on_progress=say,
        )
        model = calibrated.fit.model
        first = model.observations[0]
        full = capacity_per_s(float(first.machine["cores"]), used_cores(first))
        chosen = cells(full, quick)
        say("predicting")
        forecasts = predicted(model, chosen)
        written = OUT / "predictions.json"
        digest = _write(written, forecasts)
        say(f"predictions written: {written}, SHA-256 {digest}")
        plan = [cell for cell in chosen if cell.is_repeated or not quick] + chosen
        random.Random(1).shuffle(plan)
        measured = _all(plan, OUT / "runs", say)
        if not quick:
            again = [cell for cell in chosen if noise(measured[cell.name], "mean") > NOISY]
            longer = [_longer(cell) for cell in again]
            for name, more in _all(longer, OUT / "again", say).items():
                measured[name] += more
        measurements = Measurements(
            quick=quick,
            full_per_s=full,
            observations=model.observations,
            sendings=model.sendings,
            readings=model.readings,
            cells={name: tuple(repeats) for name, repeats in measured.items()},
            full=() if quick else tuple(_full(OUT / "full", say)),
            read=() if quick else tuple(_reading(OUT / "read", say)),
        )
    finally:
        remove_testbed(_TESTBED)
    model_data.write(OUT / "measured.json.gz", measurements)
    return results(model, forecasts, measurements, digest)


def _longer(cell: Cell) -> Cell:
    workload = replace(cell.scenario.workload, duration_s=3 * SECONDS)
    return replace(cell, scenario=replace(cell.scenario, workload=workload))


def _write(file: Path, forecasts: Mapping[str, Forecast]) -> str:
    """Write the predictions; the hash of the file."""
    text = specs.dump_json({name: one.answer for name, one in forecasts.items()})
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return hashlib.sha256(text.encode()).hexdigest()


# --- measuring -------------------------------------------------------------------------------------------


def _all(plan: Sequence[Cell], out: Path, say: Callable[[str], None]) -> dict[str, list[Measured]]:
    """Measure in this order; analysed together at the end."""
    measured: dict[str, list[Measured]] = {cell.name: [] for cell in plan}
    directories: list[tuple[Cell, RunDirectory]] = []
    stored: dict[str, float | None] = {}
    spark = BackgroundSpark("local[*]")
    try:
        with Clusters(None, "when-needed", _TESTBED, lambda _: None) as clusters:
            for number, cell in enumerate(plan, 1):
                say(f"measuring {number} of {len(plan)}: {cell.name}")
                if cell.client == "java":
                    with clusters.of(cell.scenario) as cluster:
                        assert isinstance(cluster, Cluster)
                        measured[cell.name].append(_java(cluster, cell, number))
                    continue
                campaign = campaigns.create(cell.scenario, cell.name, out)
                campaigns.carry_on(
                    campaign,
                    clusters=clusters,
                    before_load=spark.get,
                    after_load=lambda cluster, run: stored.update(
                        {run.id: _log_bytes(cluster, run)}
                    ),
                )
                directories += [(cell, one) for one in campaign.directories]
        count_outcomes(spark.get(), [one for _, one in directories], (), lambda _: None)
    finally:
        spark.stop()
    for cell, directory in directories:
        measured[cell.name].append(_measured(directory, stored.get(directory.run().id)))
    return measured


def _full(out: Path, say: Callable[[str], None]) -> list[MeasuredSending]:
    """The most that a producer can send."""
    directories: list[RunDirectory] = []
    spark = BackgroundSpark("local[*]")
    try:
        with Clusters(None, "when-needed", _TESTBED, lambda _: None) as clusters:
            for run in full_cells():
                say(f"measuring {run.name}")
                campaign = campaigns.create(run, run.name, out)
                campaigns.carry_on(campaign, clusters=clusters, before_load=spark.get)
                directories += campaign.directories
        count_outcomes(spark.get(), directories, (), lambda _: None)
    finally:
        spark.stop()
    return [sending(directory) for directory in directories]


def _reading(out: Path, say: Callable[[str], None]) -> list[MeasuredReading]:
    """The most that a consumer can read; twice each."""
    with Clusters(None, "when-needed", _TESTBED, lambda _: None) as clusters:
        measured = []
        for number in range(2):
            for what, scenario in reading_cells():
                with clusters.of(scenario) as cluster:
                    measured.append(read_behind(cluster, what, out / str(number), say))
    return measured


def _log_bytes(cluster: KafkaCluster, run: Run) -> float | None:
    """Bytes of all replicas, per record."""
    topic = run.spec.topic
    with cluster.inside():
        sizes = LogSizes(cluster.client_config)
        found = sizes.of([Partition(topic.name, number) for number in range(topic.partitions)])
        sizes.close()
    records = sum(cluster.admin.end_offsets(topic.name).values())
    return topic.replication * sum(found.values()) / records if found and records else None


def _measured(directory: RunDirectory, stored: float | None) -> Measured:
    try:
        seen = observation(directory)
    except BadInput as error:
        return Measured(problem=error.message)
    return Measured(
        latencies=seen.latencies,
        cpu_share=used_cores(seen) / float(seen.machine["cores"]),
        seen=seen,
        end_to_end=directory.metrics().latency,
        stored_bytes_per_message=stored,
    )


def _java(cluster: Cluster, cell: Cell, number: int) -> Measured:
    """Kafka's own client and its own figures."""
    spec = cell.scenario
    set_network(cluster, spec.cluster, seed=f"bench.{number}")
    topic = f"{spec.topic.name}-{number}"
    cluster.create_topic(
        TopicSpec(name=topic, partitions=spec.topic.partitions, replication=spec.topic.replication)
    )
    rate = spec.workload.messages_per_s
    command = [
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(int(rate * (SECONDS + 3)))),
        *("--record-size", str(spec.workload.payload.size_bytes), "--throughput", str(int(rate))),
        *("--warmup-records", str(int(3 * rate)), "--command-property"),
        f"bootstrap.servers={cluster.bootstrap_servers}",
        *(f"acks={spec.settings.acks}", f"linger.ms={spec.settings.linger_ms:g}"),
        "enable.idempotence=false",
    ]
    text = kafka_tool(cluster, command)
    lines = list(_JAVA.finditer(text))
    if not lines:
        raise TestbedError(f"ProducerPerformance printed no figures:\n{text[-2000:]}")
    mean, p50, _p95, p99 = (float(value) for value in lines[-1].groups())
    latency = MeasuredLatency(count=1, mean_ms=mean, percentiles_ms={"50": p50, "99": p99})
    return Measured(latencies={"produce": latency})


if __name__ == "__main__":
    main("models", measure)
