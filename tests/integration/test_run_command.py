"""`penstock run` as users type it, on a cluster that was there before: verdicts, resuming."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import specs
from penstock.api.observations import observed
from penstock.domain.cluster import ROUTER
from penstock.kafka.waiting import wait_until
from penstock.runs.run_directory import RunDirectory
from penstock.testbed.cluster import Cluster
from penstock.testbed.network import namespaces

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]


@pytest.fixture
def penstock(cluster: Cluster, tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Start the command where the shared cluster can be reached."""

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "penstock.cli.main", *arguments]
        if cluster.network is not None:
            command = namespaces.command(cluster.lease.namespace(ROUTER), command)
        return subprocess.Popen(
            command,
            cwd=tmp_path,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    return start


def scenario(cluster: Cluster, topic: str, **more: Any) -> dict[str, Any]:
    return {
        "name": "orders",
        "existing": {"bootstrap_servers": cluster.bootstrap_servers},
        "topic": {"name": topic, "partitions": 2, "replication": 2},
        "workload": {"arrivals": {"kind": "constant", "rate_per_s": 200}, "duration_s": 3},
        "warm_up_s": 1,
        "cluster_warm_up": {"limit_s": 8},  # enough for the test of warmth; not what this is about
        "schedule_lag_ms": 10_000,  # on a machine that does other things meanwhile
        **more,
    }


def test_a_campaign_on_an_existing_cluster_is_resumed_and_judged(
    cluster: Cluster,
    penstock: Callable[..., subprocess.Popen[str]],
    tmp_path: Path,
    unique: Callable[[str], str],
) -> None:
    topic = unique("run")
    fields = scenario(
        cluster,
        topic,
        matrix={"settings.acks": ["1", "all"]},
        objective={"lost_share": 0, "latency_ms": 0.001, "violation_share": 0},
    )
    (tmp_path / "scenario.yaml").write_text(specs.dump_yaml(fields))

    first = penstock("run", "scenario.yaml", "--json")
    campaign = tmp_path / "runs" / "orders"
    one, two = (campaign / "cells" / name for name in ("001-r1", "002-r1"))
    try:
        wait_until(
            lambda: (two / "run.json").exists() or first.poll() is not None,
            timeout_s=180,
            what="the second cell to begin",
        )
        assert first.poll() is None, first.communicate()[1]
        first.send_signal(signal.SIGINT)
        _, stderr = first.communicate(timeout=60)
    finally:
        first.kill()
    assert first.returncode == 130, stderr
    assert "--resume runs/orders" in stderr
    assert RunDirectory(one).run().status == "complete"
    assert RunDirectory(two).run().status == "interrupted"
    done_before = RunDirectory(one).run().id

    second = penstock("run", "--resume", "runs/orders", "--json")
    text, stderr = second.communicate(timeout=300)
    assert second.returncode == 10, stderr  # a microsecond is not to be had
    summary = json.loads(text)
    assert RunDirectory(one).run().id == done_before, "a cell that was done was done again"
    assert [run["cell"] for run in summary["runs"]] == [
        {"settings.acks": "1"},
        {"settings.acks": "all"},
    ]
    for run in summary["runs"]:
        counts = run["metrics"]["counts"]
        assert counts["sent"] == counts["delivered"] > 500, counts
        assert not run["verdict"]["is_met"]
        assert run["invalid"] == []
    # What was half done is set aside and not lost.
    assert (campaign / "cells" / ".002-r1-unfinished-1").is_dir()
    assert (campaign / "report.html").stat().st_size > 1_000_000
    assert (one / "histograms" / "latency.hlog").exists()
    # On somebody else's cluster nothing is left behind.
    wait_until(
        lambda: topic not in cluster.admin.topics(), timeout_s=10, what="the topic to be gone"
    )

    # What a model would learn of it.
    directory = RunDirectory(two)
    seen = observed(directory, directory.run(), directory.metrics())
    assert not seen.is_local and seen.spec.existing is None and seen.brokers is None
    assert seen.spec.cluster.brokers == 3
    assert seen.latencies["end_to_end"].mean_ms > 0
    assert seen.produce_requests_per_s is not None and 10 < seen.produce_requests_per_s < 300
    assert seen.producer_cores is not None and seen.producer_cores > 0

    compared = penstock("compare", "runs/orders", "--json")
    text, stderr = compared.communicate(timeout=120)
    assert compared.returncode == 0, stderr
    assert len(json.loads(text)["comparison"]["sides"]) == 2
