"""The demo's lanes: a load rises and falls, and the number of lanes of a pipeline follows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock import specs
from penstock.cli.demo_lake import last_lines, penstock, start_on_client
from penstock.cli.demo_load import SIZE_BYTES
from penstock.domain.autoscaling import Autoscaling
from penstock.domain.cluster import TopicSpec
from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.domain.progress import Progress
from penstock.kafka.waiting import wait_until
from penstock.testbed.cluster import Cluster

_TOPIC, _PARTITIONS, _MOST_LANES = "demo-lanes", 8, 8
# What a lane's sink takes, so that a few hundred messages/s are enough to fill it. It is also the
# capacity that is assumed at first. The limit is in bytes of keys and values, the capacity in bytes
# as stored; the load is random values without compression, so these differ only by the headers of
# batches and records, 70 bytes for a message of 1,000.
_LANE_BYTES_PER_S = 150_000
_LOW_PER_S, _HIGH_PER_S = 80, 480
_LOW_S, _HIGH_S, _AGAIN_S = 8, 15, 60
_WAIT_S, _END_S = 120, 60


@dataclass(frozen=True)
class Change:
    """A decision of the autoscaler."""

    lanes: int
    reason: str


class DemoLanes:
    """Pipeline, autoscaler and their logs, all in one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.changes: list[Change] = []

    def play(self, cluster: Cluster, say: Progress) -> None:
        """Run until the number of lanes has risen and fallen again."""
        self._directory.mkdir()
        cluster.create_topic(TopicSpec(name=_TOPIC, partitions=_PARTITIONS, replication=1))
        file = self._directory / "pipeline.yaml"
        file.write_text(specs.dump_yaml(_pipeline(cluster)))
        say("starting a pipeline whose lanes follow the load")
        run = penstock("pipeline", "run", str(file), "--autoscale", "outside")
        phases = [f"{_LOW_S}:{_LOW_PER_S}", f"{_HIGH_S}:{_HIGH_PER_S}", f"{_AGAIN_S}:{_LOW_PER_S}"]
        servers, partitions = cluster.bootstrap_servers, str(_PARTITIONS)
        load = [sys.executable, "-m", "penstock.cli.demo_load", servers, _TOPIC, partitions]
        with ExitStack() as started:

            def start(name: str, command: list[str]) -> subprocess.Popen[bytes]:
                return started.enter_context(self._running(cluster, name, command))

            start("pipeline", [*run, "--master", f"local[{_MOST_LANES}]"])
            start("autoscaler", penstock("autoscaler", "run", str(file), "--json"))
            self._await("its first plan", self._has_begun)
            say(f"the load: {_mb(_LOW_PER_S)}, then {_mb(_HIGH_PER_S)}, then {_mb(_LOW_PER_S)}")
            start("load", [*load, *phases])
            self._await("more lanes, and fewer again", lambda: self._has_followed(say))

    @property
    def sentence(self) -> str:
        lanes = [change.lanes for change in self.changes]
        steps = [n for i, n in enumerate(lanes) if i == 0 or lanes[i - 1] != n]
        return (
            f"Lanes went {' → '.join(map(str, steps))} while the load went "
            f"{_mb(_LOW_PER_S)} → {_mb(_HIGH_PER_S)} → {_mb(_LOW_PER_S)}."
        )

    def _has_begun(self) -> bool:
        self.changes = self._decisions()
        return bool(self.changes)

    def _has_followed(self, say: Progress) -> bool:
        """More lanes than at first, and then fewer."""
        for change in self._decisions()[len(self.changes) :]:
            say(change.reason)
            self.changes.append(change)
        lanes = [change.lanes for change in self.changes]
        return lanes[0] < max(lanes) > lanes[-1]

    def _decisions(self) -> list[Change]:
        changes = []
        for line in (self._directory / "autoscaler.out").read_text().splitlines():
            event: dict[str, Any] = json.loads(line)
            if event.get("event") == "decision":
                changes.append(Change(event["lanes"], event["text"]))
        return changes

    def _await(self, what: str, is_so: Callable[[], bool]) -> None:
        def explain() -> str:
            logs = [self._directory / f"{name}.log" for name in ("pipeline", "autoscaler")]
            return "".join(f"\n{last_lines(log)}" for log in logs)

        wait_until(is_so, timeout_s=_WAIT_S, what=what, explain=explain)

    @contextmanager
    def _running(
        self, cluster: Cluster, name: str, command: list[str]
    ) -> Iterator[subprocess.Popen[bytes]]:
        with (
            (self._directory / f"{name}.out").open("w") as out,
            (self._directory / f"{name}.log").open("w") as log,
        ):
            process = start_on_client(cluster, command, out, log)
            try:
                yield process
            finally:
                process.terminate()
                try:
                    process.wait(_END_S)
                finally:
                    process.kill()
                    process.wait()


def _pipeline(cluster: Cluster) -> Pipeline:
    return Pipeline(
        name="demo_lanes",
        bootstrap_servers=cluster.bootstrap_servers,
        streams=(Stream(topics=(_TOPIC,), table="messages"),),
        lake="lake",
        lanes=1,
        lane_bytes=_LANE_BYTES_PER_S,
        lane_limit_bytes_per_s=_LANE_BYTES_PER_S,
        every_s=0.0,
        autoscaling=Autoscaling(
            most_lanes=_MOST_LANES,
            lane_capacity_bytes_per_s=_LANE_BYTES_PER_S,
            scale_in_s=8.0,
            drain_s=10.0,
        ),
    )


def _mb(per_s: int) -> str:
    return f"{per_s * SIZE_BYTES / 1e6:.2f} MB/s"
