"""The demo's lake: a pipeline that is killed once lands a run's messages in a Delta table."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from penstock import specs
from penstock.domain.errors import PenstockError
from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.domain.progress import Progress
from penstock.kafka.waiting import wait_until
from penstock.testbed.cluster import Cluster

_START_S, _LAND_S, _AUDIT_S = 120, 300, 300
# So that there is a middle to kill it in: some twenty micro-batches.
_LANE_BYTES = 200_000
_KILLED_AFTER = 3


@dataclass(frozen=True)
class DemoLake:
    """A pipeline file, its lake and its log, all in one directory."""

    directory: Path

    @property
    def file(self) -> Path:
        return self.directory / "pipeline.yaml"

    @property
    def lake(self) -> Path:
        return self.directory / "lake"

    def land(self, cluster: Cluster, topic: str, say: Progress) -> None:
        """Land all that the topic holds: kill −9 in the middle, then run again to the end."""
        self.directory.mkdir()
        pipeline = Pipeline(
            name="demo",
            bootstrap_servers=cluster.bootstrap_servers,
            streams=(Stream(topics=(topic,), table="messages"),),
            lake="lake",
            lane_bytes=_LANE_BYTES,
            every_s=0.0,
        )
        self.file.write_text(specs.dump_yaml(pipeline))
        say(f"landing the messages of {topic} in a Delta table")
        with (self.directory / "log").open("w") as log:
            first = self._start(cluster, log)
            try:
                self._await(first, _KILLED_AFTER)
            finally:
                first.kill()  # the driver, and with it all of its Spark
                first.wait()
            say(f"killed the pipeline (−9) after {self._batches} micro-batches; starting it again")
            second = self._start(cluster, log)
            try:
                code = second.wait(_LAND_S)
            finally:
                second.kill()
                second.wait()
        if code:
            raise PenstockError(f"the pipeline ended with {code}:\n{self._log_tail()}")

    def audit(self) -> dict[str, Any]:
        """The output of `penstock pipeline audit --json`."""
        command = penstock("pipeline", "audit", str(self.file), "--json")
        done = subprocess.run(command, capture_output=True, text=True, timeout=_AUDIT_S)
        if not done.stdout:
            raise PenstockError(f"the audit failed:\n{done.stderr.strip()}")
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    @property
    def _batches(self) -> int:
        return len(list(self.lake.glob("demo_ledger/_delta_log/*.json"))) - 1

    def _start(self, cluster: Cluster, log: IO[str]) -> subprocess.Popen[bytes]:
        command = penstock("pipeline", "run", str(self.file), "--once")
        return start_on_client(cluster, command, log, log)

    def _await(self, process: subprocess.Popen[bytes], batches: int) -> None:
        def landed() -> bool:
            if process.poll() is not None:
                raise PenstockError(f"the pipeline ended before it was killed:\n{self._log_tail()}")
            return self._batches >= batches

        wait_until(landed, timeout_s=_START_S, what="the pipeline to land its first micro-batches")

    def _log_tail(self) -> str:
        return last_lines(self.directory / "log")


def penstock(*words: str) -> list[str]:
    return [sys.executable, "-m", "penstock.cli.main", *words]


def start_on_client(
    cluster: Cluster, command: list[str], out: IO[str], log: IO[str]
) -> subprocess.Popen[bytes]:
    """Start a command on the network of the cluster's clients."""
    command = cluster.command_on("consumer-1", command)
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=log)


def last_lines(log: Path) -> str:
    return "\n".join(log.read_text().splitlines()[-5:])
