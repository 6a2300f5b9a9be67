"""One process of the load: `python -m penstock.load.client_main`. Started by `load.load`.

It gets its orders on standard input, a JSON object per line: first its job, with secrets, which
therefore are in no command line; then orders. It tells what it does on standard output, a JSON
object per line with an `event`. When standard input ends, its parent has died, and it ends too.

    → {"role": "producer", …}        the job
    ← {"event": "ready"}             connected, schedule and messages made
    ← {"event": "holds", …}          of a consumer: the partitions it was given
    → {"order": "start", "at_ns": …}
    → {"order": "measure", "from_ns": …, "to_ns": …}   to producers, once the cluster is warm
    ← {"event": "progress", …}       four times a second; more often after {"order": "hurry"}
    → {"order": "stop"}              to readers: all is read
    ← {"event": "sent"}              of a producer: nothing more will be sent or heard
    ← {"event": "report", …}         the trace is written
    ← {"event": "error", …}          it cannot continue
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock import specs
from penstock.domain.client_kind import ProducerKind, ReaderKind
from penstock.domain.errors import PenstockError
from penstock.domain.workload import Workload
from penstock.load.producer_job import ProducerJob
from penstock.load.producers import LoadProducer
from penstock.load.realtime import make_realtime
from penstock.load.trace_reader import ReaderJob, TraceReader

_PROGRESS_S, _HURRIED_S = 0.25, 0.05


class Parent:
    """The process that started this one, at the other end of two pipes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._orders: dict[str, dict[str, Any]] = {}
        self._ordered = threading.Condition()
        self.is_gone = threading.Event()
        self.on_order: Callable[[dict[str, Any]], object] = lambda _: None
        self._lines = _lines(sys.stdin.fileno())
        self.job: dict[str, Any] = json.loads(next(self._lines))
        threading.Thread(target=self._listen, name="orders", daemon=True).start()

    def tell(self, event: str, **said: Any) -> None:
        line = json.dumps({"event": event, **said})
        with self._lock:
            try:
                print(line, flush=True)
            except BrokenPipeError:
                self.is_gone.set()

    def has_ordered(self, name: str) -> bool:
        return name in self._orders

    def wait_for(self, name: str) -> dict[str, Any] | None:
        """The order, or None if the parent is gone."""
        with self._ordered:
            self._ordered.wait_for(lambda: name in self._orders or self.is_gone.is_set())
        return self._orders.get(name)

    def _listen(self) -> None:
        for line in self._lines:
            order = json.loads(line)
            with self._ordered:
                self._orders[order["order"]] = order
                self._ordered.notify_all()
            self.on_order(order)
        with self._ordered:
            self.is_gone.set()
            self._ordered.notify_all()


def _lines(descriptor: int) -> Iterator[bytes]:
    """Not by Python's own reader: its lock, held by a thread that waits, would stop the exit."""
    pending = b""
    while read := os.read(descriptor, 1 << 16):
        *complete, pending = (pending + read).split(b"\n")
        yield from complete


class _Ticker:
    """Sends progress events from its own thread while the work is done."""

    def __init__(self, parent: Parent, progress: Callable[[], dict[str, Any]]) -> None:
        self._parent, self._progress = parent, progress
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._parent.tell("progress", **self._progress())

    def _run(self) -> None:
        make_realtime()  # or who waits for the interpreter meanwhile is not
        last: dict[str, Any] = {}
        while not self._ended.wait(
            _HURRIED_S if self._parent.has_ordered("hurry") else _PROGRESS_S
        ):
            now = self._progress()
            if now != last:
                self._parent.tell("progress", **now)
                last = now


def _produce(parent: Parent, job: dict[str, Any]) -> None:
    kind = specs.parse(job["kind"], ProducerKind)  # type: ignore[type-abstract]
    producer: LoadProducer = kind.producer(
        ProducerJob(
            producer=job["number"],
            topic=job["topic"],
            config=job["config"],
            workload=specs.parse(job["workload"], Workload),
            warm_up_s=job["warm_up_s"],
            seed=job["seed"],
            directory=Path(job["directory"]),
            longest_warm_up_s=job["longest_warm_up_s"],
        )
    )

    def heed(order: dict[str, Any]) -> None:
        if order["order"] == "measure":
            producer.measure(order["from_ns"], order["to_ns"])

    parent.on_order = heed
    parent.tell("ready")
    start = parent.wait_for("start")
    if start is None:
        producer.finish()
        return
    with _Ticker(parent, producer.progress):
        producer.run(start["at_ns"], parent.is_gone)
    parent.tell("sent")
    parent.tell("report", report=specs.to_data(producer.finish()))


def _consume(parent: Parent, job: dict[str, Any]) -> None:
    reader = TraceReader(
        ReaderJob(
            reader=job["number"],
            topic=job["topic"],
            config=job["config"],
            group=job["group"],
            partitions=job["partitions"],
            directory=Path(job["directory"]),
            kind=specs.parse(job["kind"], ReaderKind),  # type: ignore[type-abstract]
        ),
        parent.tell,
    )
    parent.tell("ready")
    with _Ticker(parent, reader.progress):
        reader.run(lambda: parent.has_ordered("stop") or parent.is_gone.is_set())
    parent.tell("report", report=specs.to_data(reader.finish()))
    reader.close()


class _NoPandas(MetaPathFinder):
    """pyarrow imports pandas when it makes its first array: a second, for nothing used here."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not used by a process of the load", name=name)


ROLES = {"producer": _produce, "consumer": _consume, "watcher": _consume}


def main() -> None:
    sys.meta_path.insert(0, _NoPandas())
    # Columns are converted one after the other: a pool of threads would take the brokers' time.
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    parent = Parent()
    try:
        ROLES[parent.job["role"]](parent, parent.job)
    except PenstockError as error:
        kind = type(error).__name__
        parent.tell("error", kind=kind, message=error.message, fix=error.fix)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
