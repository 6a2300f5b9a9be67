"""Hostile records among good ones, through every decoder and routing rule, into real tables.

Generated records (half of them good, in the same micro-batches) go through a lane as they would in a
pipeline: decoded, routed, written to Parquet, committed to Delta tables. Only Kafka is left out.
Then every file is read with delta-rs, pandas, DuckDB and Spark, and every record is looked for: the
judge (`fuzz_judge`), which shares no code with the decoders, knows what must have become of it.
"""

from __future__ import annotations

import gc
import json
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from deltalake import DeltaTable

import fuzz_function
from fuzz_judge import COLUMNS
from fuzz_readers import Unreadable
from fuzz_records import AVRO, BAD_HEADERS, DEADLY, JSON_COLUMNS, USELESS, WRITERS, Made, make
from fuzz_routes import IGNORED_PLACE, REJECTS, ROUTES, Route, canonical, judge, plain
from harness import Row, main
from penstock.domain.errors import PenstockError
from penstock.domain.lake.decoder import Decoder
from penstock.domain.lake.order import LaneTask, Position, Range
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.domain.lake.report import LaneReport
from penstock.lake import lane
from penstock.lake.decoders.avro import AvroDecoder
from penstock.lake.decoders.function import FunctionDecoder
from penstock.lake.decoders.json import JsonDecoder
from penstock.lake.decoders.raw import RawDecoder
from penstock.lake.gathered import Gathered
from penstock.lake.records import Records
from penstock.lake.routing import Router
from penstock.lake.tables import Tables

PARTITIONS = 3
RECORD_S, RECORD_MEMORY_MB = 1.0, 256
# Problems that are shown, with the records that they are about.
_SHOWN = 20
_NOT_UTF8 = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
Say = Callable[[str], None]
Ints = npt.NDArray[np.int64]


def measure(quick: bool, say: Say) -> tuple[dict[str, Any], list[Row]]:
    per_batch = 5500 if quick else 22_000
    batches = 10 if quick else 46
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-fuzz-") as scratch,
        registry() as address,
    ):
        fuzz = Fuzz(Path(scratch), address, batches * per_batch // len(ROUTES), 5 if quick else 20)
        for batch in range(batches):
            say(f"micro-batch {batch + 1} of {batches}: {fuzz.records:,} records landed")
            fuzz.land(per_batch // len(ROUTES))
        fuzz.close()
        say("looking for every record")
        fuzz.look()
        say("starting Spark")
        unreadable = Unreadable(Path(scratch))
        unreadable.look(fuzz.tables, say)
    keys: dict[str, Any] = {
        "records": fuzz.records,
        "good": fuzz.good,
        "stopped": fuzz.stopped,
        "unreadable_files": len(unreadable.files),
        **{name: fuzz.problems[name] for name in PROBLEMS},
        "rejected": fuzz.rejected.total(),
        "rejected_by_kind": dict(fuzz.rejected.most_common()),
        "rows_per_s": fuzz.records / fuzz.took_s,
        "files": unreadable.count,
        "shown": [*fuzz.shown, *unreadable.shown],
    }
    rows = [
        Row("records", f"{fuzz.records:,}", "≥ 50,000" if quick else "≥ 1,000,000",
            fuzz.records >= (50_000 if quick else 1_000_000)),
        Row("good ones", f"{fuzz.good / fuzz.records:.0%}", "≥ 50%", fuzz.good * 2 >= fuzz.records),
        *(Row(name, keys[name], "0", keys[name] == 0)
          for name in ("stopped", "unreadable_files", *PROBLEMS)),
        Row("rejected", f"{fuzz.rejected.total():,}"),
        Row("rows_per_s", f"{keys['rows_per_s']:,.0f}"),
    ]  # fmt: skip
    for text in keys["shown"]:
        say(text)
    return keys, rows


# --- a registry ---------------------------------------------------------------------------------------


class registry:
    """A schema registry on this machine."""

    def __enter__(self) -> str:
        texts = {**{n: json.dumps(schema) for n, schema in WRITERS.items()}, **USELESS}

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                text = texts.get(int(self.path.rpartition("/")[2]))
                self.send_response(404 if text is None else 200)
                self.end_headers()
                answer = {"error_code": 40403} if text is None else {"schema": text}
                self.wfile.write(json.dumps(answer).encode())

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_port}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


# --- landing ------------------------------------------------------------------------------------------


class Message:
    """What a lane needs of confluent-kafka's."""

    __slots__ = ("_made", "_offset", "_partition", "_topic")

    def __init__(self, topic: str, partition: int, offset: int, made: Made) -> None:
        self._topic, self._partition, self._offset, self._made = topic, partition, offset, made

    @property
    def place(self) -> Partition:
        return Partition(self._topic, self._partition)

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._made.key

    def value(self) -> bytes | None:
        return self._made.value

    def timestamp(self) -> tuple[int, int]:
        return self._made.timestamp

    def headers(self) -> Any:
        if self._made.headers == BAD_HEADERS:
            raise _NOT_UTF8
        return self._made.headers


class Consumer:
    """Has all messages already, and gathers those of the ranges that it is asked for."""

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages

    def gather(self, ranges: Any, most_bytes: int, until_s: float) -> Gathered:
        records = Records()
        starts = {partition: ordered.start for partition, ordered in ranges.items()}
        rest = [m for m in self._messages if m.offset() >= starts.get(m.place, m.offset() + 1)]
        records.add(rest)  # type: ignore[arg-type]
        return Gathered(records=records, ends={p: Position(r.end) for p, r in ranges.items()})


@dataclass
class Expected:
    """Of a topic's records by their numbers: the table (as a number) and a hash of the row."""

    places: Ints
    hashes: Ints
    seen: Ints


PROBLEMS = ("lost", "misrouted", "wrongly_rejected", "wrong_values")


class Fuzz:
    """Lands micro-batches and remembers what must be in the tables."""

    def __init__(self, lake: Path, registry_address: str, per_topic: int, deadly: int) -> None:
        self._pipeline = _pipeline(lake, registry_address)
        self._router = Router(self._pipeline)
        schemas = self._router.schemas()
        self.tables = sorted(schemas)
        self._places = {name: i for i, name in enumerate([IGNORED_PLACE, *self.tables])}
        self._landing = Tables(lake, "fuzz")
        self._landing.prepare(self._pipeline, schemas)
        self._lake, self._per_topic = lake, per_topic
        self._expected = {
            route.topic: Expected(*(np.zeros(per_topic, dtype=np.int64) for _ in range(3)))
            for route in ROUTES
        }
        # Numbers of the records that end a decoder process.
        self._deadly = {
            (i + 1) * per_topic // (deadly + 1): DEADLY[i % len(DEADLY)] for i in range(deadly)
        }
        self._landed = self._cycles = 0
        self.records = self.good = self.stopped = 0
        self.took_s = 0.0
        self.rejected: Counter[str] = Counter()
        self.problems: Counter[str] = Counter()
        self.shown: list[str] = []

    def close(self) -> None:
        self._router.close()

    def make(self, route: Route, number: int) -> Made:
        deadly = self._deadly.get(number) if route.topic == "function" else None
        return make(route.topic, route.kind, number, deadly)

    def land(self, per_topic: int) -> None:
        first = self._landed
        numbers = range(first, min(first + per_topic, self._per_topic))
        messages = [self._message(route, number) for number in numbers for route in ROUTES]
        self._landed = numbers.stop
        ranges = {
            Partition(route.topic, p): Range(*_offsets(numbers, p), _offsets(numbers, p)[0])
            for route in ROUTES
            for p in range(PARTITIONS)
        }
        gc.collect()
        started = time.monotonic()
        try:
            # A part ends early after records that hang; the next order continues where it ended.
            while ranges:
                ranges = self._carry_out(LaneTask(0, self._cycles, ranges, 0), Consumer(messages))
                self._cycles += 1
        except Exception:
            self.stopped += 1
            self._show("stopped", traceback.format_exc())
        self.took_s += time.monotonic() - started
        self.records += len(messages)

    def _carry_out(self, task: LaneTask, consumer: Consumer) -> dict[Partition, Range]:
        """Land one cycle; the ranges that it did not complete."""
        report: LaneReport = lane.work(task, self._pipeline, consumer, self._router)  # type: ignore[arg-type]
        for file in report.files:
            table = self._landing[file.table]
            table.refresh()
            table.add([file], {"fuzz": task.batch})
        self.rejected.update(report.rejects)
        rest = {r.name: r for r in report.ranges if r.end < task.ranges[r.name].end}
        if len(rest) == len(task.ranges) and all(r.end == r.start for r in rest.values()):
            raise PenstockError("a cycle landed nothing")
        return {name: Range(r.end, task.ranges[name].end, r.end) for name, r in rest.items()}

    def _message(self, route: Route, number: int) -> Message:
        made = self.make(route, number)
        expected = self._expected[route.topic]
        place, row = judge(route, made)
        expected.places[number] = self._places[place]
        expected.hashes[number] = hash(row)
        self.good += place != REJECTS
        return Message(route.topic, number % PARTITIONS, number // PARTITIONS, made)

    # --- looking ----------------------------------------------------------------------------------

    def look(self) -> None:
        """At every row of every table, with delta-rs."""
        for table in self.tables:
            dataset = DeltaTable(str(self._lake / table)).to_pyarrow_dataset()
            for batch in dataset.to_batches(batch_size=5000):
                for row in plain(batch):
                    self._check(table, row)
        names = [IGNORED_PLACE, *self.tables]
        for route in ROUTES:
            expected = self._expected[route.topic]
            wanted = (expected.places[: self._landed] != 0).astype(np.int64)
            for number in np.flatnonzero(expected.seen[: self._landed] != wanted).tolist():
                self._problem(
                    "lost", route, number, f"is {expected.seen[number]} times in the tables, "
                    f"and belongs to {names[expected.places[number]]}"
                )  # fmt: skip

    def _check(self, table: str, row: dict[str, Any]) -> None:
        route = next(r for r in ROUTES if r.topic == row["kafka_topic"])
        number = row["kafka_offset"] * PARTITIONS + row["kafka_partition"]
        expected = self._expected[route.topic]
        expected.seen[number] += 1
        place = self._places[table]
        if expected.places[number] != place:
            kind = "misrouted"
            if table == REJECTS:
                kind = "wrongly_rejected"
            elif expected.places[number] == self._places[REJECTS]:
                kind = "wrong_values"  # of what must not have been read at all
            self._problem(kind, route, number, f"is in {table}: {row}")
        elif table == REJECTS and not 0 < len(row["reason"]) <= 500:
            self._problem("wrong_values", route, number, f"has the reason {row['reason']}")
        else:
            columns = ["value"] if table == REJECTS else COLUMNS[route.kind]
            if hash(canonical(row, columns)) != expected.hashes[number]:
                self._problem("wrong_values", route, number, f"became {row}")

    def _problem(self, kind: str, route: Route, number: int, text: str) -> None:
        self.problems[kind] += 1
        made = self.make(route, number)
        self._show(kind, f"{route.topic} {number} {text[:600]}; it is {made}, {judge(route, made)}")

    def _show(self, kind: str, text: str) -> None:
        if len(self.shown) < _SHOWN:
            self.shown.append(f"{kind}: {text[-3000:]}")


def _pipeline(lake: Path, registry_address: str) -> Pipeline:
    decoders: dict[str, Decoder] = {
        "raw": RawDecoder(),
        "json": JsonDecoder(columns=JSON_COLUMNS),
        "avro": AvroDecoder(schema=json.dumps(AVRO)),
        "registry": AvroDecoder(registry=registry_address, subject="r", schema=json.dumps(AVRO)),
        "function": FunctionDecoder(function="fuzz_function:decode", columns=fuzz_function.COLUMNS),
    }
    return Pipeline(
        name="fuzz",
        bootstrap_servers="none:1",
        streams=tuple(
            Stream(
                topics=(r.topic,),
                decoder=decoders[r.kind],
                table=r.table,
                table_by=r.by,
                ignore=r.ignore,
            )
            for r in ROUTES
        ),
        lake=str(lake),
        record_seconds=RECORD_S,
        record_memory_mb=RECORD_MEMORY_MB,
    )


def _offsets(numbers: range, partition: int) -> tuple[int, int]:
    """Where a partition's part of these numbers begins and ends."""
    begin, end = (-((partition - n) // PARTITIONS) for n in (numbers.start, numbers.stop))
    return begin, end


if __name__ == "__main__":
    main("decoder_fuzz", measure)
