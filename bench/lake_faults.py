"""The lake under kill −9: driver, its Java, and workers at random moments, under load.

A pipeline runs as a user runs it. Again and again, at a moment drawn at random, one of its processes
is killed; if that ended the pipeline, it is started again. In the end every record of the topic is
looked for in the table, with a reader that is not the pipeline's, and the audit has its say.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
from confluent_kafka import Consumer, KafkaError, TopicPartition
from deltalake import DeltaTable

from harness import Figure, Row, main
from penstock import specs
from penstock.domain.cluster import ClusterSpec, TopicSpec
from penstock.domain.errors import PenstockError
from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.testbed.cluster import Cluster
from penstock.testbed.parts import find_parts
from steady_load import steady_load

PARTITIONS, MESSAGES_PER_S, SIZE_BYTES = 12, 2000, 1000
TOPIC, TABLE = "faults", "events"
TARGETS = ("driver", "java", "worker")
# From a kill, or the first batch of a new life, to the next kill.
BETWEEN_S = (0.2, 4.0)
RECOVER_S = 120.0
Say = Callable[[str], None]


def measure(quick: bool, say: Say) -> tuple[dict[str, Any], list[Row]]:
    kills = 9 if quick else 60
    rng = random.Random(5)
    recoveries: dict[str, list[float]] = {target: [] for target in TARGETS}
    with (
        Cluster(ClusterSpec(brokers=3), parts=find_parts(os.environ), on_progress=say) as cluster,
        tempfile.TemporaryDirectory(prefix="penstock-bench-faults-") as scratch,
    ):
        cluster.create_topic(TopicSpec(name=TOPIC, partitions=PARTITIONS, replication=3))
        wanted = Pipeline(
            name="faults",
            bootstrap_servers=cluster.bootstrap_servers,
            streams=(Stream(topics=(TOPIC,), table=TABLE),),
            lake=f"{scratch}/lake",
            lanes=2,
            every_s=0.0,
        )
        file = Path(scratch) / "pipeline.yaml"
        file.write_text(specs.dump_yaml(wanted))
        load = steady_load(cluster.client_config, TOPIC, PARTITIONS, MESSAGES_PER_S, SIZE_BYTES)
        life = Life(file, Path(scratch))
        try:
            with load:
                life.await_batch(0)
                for number in range(kills):
                    target = TARGETS[number % len(TARGETS)]
                    say(f"kill {number + 1} of {kills}: {target}")
                    time.sleep(rng.uniform(*BETWEEN_S))
                    recoveries[target].append(life.strike(target))
        finally:
            life.end()
        say("landing what is left, and counting")
        _penstock("run", str(file), "--once")
        audit = json.loads(_penstock("audit", str(file), "--json"))
        sent = _in_topic(cluster)
        landed = _in_table(wanted)
    lost, doubled = len(np.setdiff1d(sent, landed)), len(landed) - len(np.unique(landed))
    invented = len(np.setdiff1d(landed, sent))
    every = [seconds for found in recoveries.values() for seconds in found]
    keys = {
        "kills": len(every),
        "kills_by_target": {target: len(found) for target, found in recoveries.items()},
        "records": len(sent),
        "lost": lost,
        "doubled": doubled,
        "invented": invented,
        "audit": audit["outcome"],
        "audit_is_clean": audit["is_clean"],
        "recovery_s": {"p50": float(np.median(every)), "max": max(every)},
        "recovery_s_by_target": {t: Figure.of(found) for t, found in recoveries.items()},
        "lives": life.count,
    }
    return keys, [
        Row("kills", len(every), "≥ 8" if quick else "≥ 50", len(every) >= (8 if quick else 50)),
        Row("records sent", f"{len(sent):,}"),
        Row("lost", lost, "0", lost == 0),
        Row("doubled", doubled, "0", doubled == 0),
        Row("in the table and not in the topic", invented, "0", invented == 0),
        Row("audit", audit["outcome"], "clean", bool(audit["is_clean"])),
        *(Row(f"recovery_s, {t} killed", Figure.of(found)) for t, found in recoveries.items()),
        Row("recovery_s p50, max", f"{np.median(every):.2f}, {max(every):.2f}"),
    ]


class Life:
    """The pipeline's process, and the next, and the next."""

    def __init__(self, file: Path, scratch: Path) -> None:
        self._file = file
        self._log = scratch / "log"
        self._ledger = scratch / "lake" / "faults_ledger" / "_delta_log"
        self.count = 0
        self._start()

    def _start(self) -> None:
        self.count += 1
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                _command("run", str(self._file)), stdout=log, stderr=log
            )

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(60)

    @property
    def batches(self) -> int:
        if not self._ledger.is_dir():
            return 0
        numbers = [int(f.stem) for f in self._ledger.glob("*.json") if f.stem.isdigit()]
        return max(numbers, default=0)

    def await_batch(self, after: int) -> None:
        """Until another micro-batch is landed; begins a new life if the old one is over."""
        deadline = time.monotonic() + RECOVER_S
        while self.batches <= after:
            if time.monotonic() > deadline:
                raise PenstockError(f"it did not recover:\n{self._log.read_text()[-3000:]}")
            if self._process.poll() is not None:
                self._start()
            time.sleep(0.02)

    def strike(self, target: str) -> float:
        """Kill it; seconds until the next micro-batch is landed."""
        for process in self._find(target):
            process.kill()
            break
        else:
            raise PenstockError(f"there is no {target} to kill:\n{self._log.read_text()[-3000:]}")
        killed_s = time.monotonic()
        if target != "worker":
            # Without its Java, the driver may still finish a landing that it has begun.
            self._process.wait(60)
        self.await_batch(self.batches)
        return time.monotonic() - killed_s

    def _find(self, target: str) -> list[psutil.Process]:
        driver = psutil.Process(self._process.pid)
        if target == "driver":
            return [driver]
        found = []
        for child in driver.children(recursive=True):
            try:
                parent = child.parent()
                is_worker = parent is not None and "penstock.pipeline.lake.daemon" in " ".join(
                    parent.cmdline()
                )
                if is_worker if target == "worker" else child.name() == "java":
                    found.append(child)
            except psutil.NoSuchProcess:
                continue
        random.shuffle(found)
        return found


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "penstock.cli.main", "pipeline", *arguments]


def _penstock(*arguments: str) -> str:
    done = subprocess.run(_command(*arguments), capture_output=True, text=True, timeout=600)
    if done.returncode not in (0, 10):  # 10: the audit is not clean, which is a result
        raise PenstockError(f"penstock pipeline {arguments[0]} failed: {done.stderr[-2000:]}")
    return done.stdout


def _places(partitions: Any, offsets: Any) -> npt.NDArray[np.int64]:
    return np.asarray(partitions, dtype=np.int64) << 40 | np.asarray(offsets, dtype=np.int64)


def _in_table(wanted: Pipeline) -> npt.NDArray[np.int64]:
    rows = DeltaTable(f"{wanted.lake}/{TABLE}").to_pyarrow_table(
        columns=["kafka_partition", "kafka_offset"]
    )
    return _places(rows.column(0).to_numpy(), rows.column(1).to_numpy())


def _in_topic(cluster: Cluster) -> npt.NDArray[np.int64]:
    consumer = Consumer(
        {
            **cluster.client_config,
            "group.id": "independent",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(TOPIC, p, 0) for p in range(PARTITIONS)])
    partitions: list[int] = []
    offsets: list[int] = []
    at_end = 0
    while at_end < PARTITIONS:
        messages = consumer.consume(10_000, 1.0)
        good = [m for m in messages if m.error() is None]
        at_end += sum(m.error().code() == KafkaError._PARTITION_EOF for m in messages if m.error())
        partitions += [m.partition() for m in good]
        offsets += [m.offset() for m in good]
    consumer.close()
    return _places(partitions, offsets)


if __name__ == "__main__":
    main("lake_faults", measure)
