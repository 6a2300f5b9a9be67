"""The trace of a producer: a row per message, a row per request, and the generator's own lag.

Everything here runs on the writer's thread, away from the messages that are due.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.domain.message import Acknowledgement
from penstock.domain.trace import message_id
from penstock.load.in_flight import NOT_YET, UNPLACED, Rows, joined
from penstock.load.journal import JOURNAL, Journal, explained, to_parquet
from penstock.load.payload_buffer import PayloadBuffer
from penstock.load.produce_log import FACILITIES, Request, RequestLog
from penstock.load.rdkafka import LogLine, error_name
from penstock.stats.histogram import Histogram, Recorder

# Rows are gathered until there are so many or they are so old; a kill loses what was gathered.
_ENOUGH_ROWS = 1 << 15
_OLD_S = 0.5
_MOST_LOG_BYTES = 16_000_000
_OUTCOMES = [str(outcome) for outcome in Acknowledgement]
_ACKNOWLEDGED, _FAILED, _UNKNOWN = range(3)
_DEBUG_LEVEL = 7


@dataclass
class OutcomeCounts:
    """Number of messages by outcome."""

    acknowledged: int = 0
    failed: int = 0
    unknown: int = 0


@dataclass
class SentTrace:
    """The trace of one producer. `due_ns` counts from `begins_ns`, which is set before any row."""

    directory: Path
    name: str
    producer: int
    messages: PayloadBuffer
    due_ns: npt.NDArray[np.int64]
    is_closed_loop: bool
    measured_from_ns: int  # counted from `begins_ns` too
    retries: int
    keep_debug_lines: bool
    begins_ns: int = 0
    outcomes: OutcomeCounts = field(default_factory=OutcomeCounts)

    def __post_init__(self) -> None:
        self._sent = Journal(self.directory / "sent" / (self.name + JOURNAL), "sent")
        self._requests = Journal(self.directory / "requests" / (self.name + JOURNAL), "requests")
        self._log: TextIO | None = None
        self._log_bytes = 0
        self._request_log = RequestLog(self.retries)
        self._lag = Recorder()
        # Where each message was put, for its tries; known in the end for all that were taken.
        self._partitions = np.full(len(self.due_ns), UNPLACED, dtype=np.int32)
        self._is_unknown = np.full(len(self.due_ns), False)
        self._rows: list[Rows] = []
        self._row_count = 0
        self._request_rows: list[Request] = []
        # The first time takes 50 ms, in which nothing is due yet.
        self._sent.append(self._columns(joined([])))
        self._requests.append(_request_columns([], self.producer))
        self._written_s = time.monotonic()

    # --- while the load runs -------------------------------------------------------------------

    def add(self, rows: Rows) -> None:
        self._rows.append(rows)
        self._row_count += len(rows)
        if self._row_count >= _ENOUGH_ROWS:
            self._write()
        self.write_if_old()

    def write_if_old(self) -> None:
        if time.monotonic() - self._written_s > _OLD_S:
            self._write()

    def add_lines(self, lines: list[LogLine]) -> None:
        self._request_rows += self._request_log.read(lines)
        for line in lines:
            if line.level < _DEBUG_LEVEL or (
                self.keep_debug_lines and line.facility not in FACILITIES
            ):
                self._write_log(line)

    def _write(self) -> None:
        if self._rows:
            rows = joined(self._rows)
            self._rows, self._row_count = [], 0
            self._sent.append(self._columns(rows))
        if self._request_rows:
            self._requests.append(_request_columns(self._request_rows, self.producer))
            self._request_rows = []
        self._written_s = time.monotonic()

    def _columns(self, rows: Rows) -> dict[str, Any]:
        sequence = rows.sequence
        due = self.due_ns[sequence] + self.begins_ns
        is_sent = rows.sent_ns != NOT_YET
        intended = np.where(is_sent, rows.sent_ns, due) if self.is_closed_loop else due
        is_reported = rows.reported_ns != NOT_YET
        outcome = np.where(rows.errors == 0, _ACKNOWLEDGED, _FAILED).astype(np.int8)
        outcome[~is_reported] = _UNKNOWN
        counts = np.bincount(outcome, minlength=3).tolist()
        self.outcomes.acknowledged += counts[_ACKNOWLEDGED]
        self.outcomes.failed += counts[_FAILED]
        self.outcomes.unknown += counts[_UNKNOWN]
        self._partitions[sequence] = rows.partitions
        self._is_unknown[sequence] = ~is_reported
        measured = is_sent & (intended >= self.begins_ns + self.measured_from_ns)
        free = np.maximum(intended, rows.since_ns)
        self._lag.record((rows.sent_ns - free)[measured])
        return {
            "id": pa.array(message_id(self.producer, 0) | sequence),
            "size_bytes": pa.array(self.messages.sizes_of(sequence)),
            "intended_ns": pa.array(intended),
            "sent_ns": _nullable(rows.sent_ns, is_sent),
            "reported_ns": _nullable(rows.reported_ns, is_reported),
            "outcome": pa.DictionaryArray.from_arrays(pa.array(outcome), _OUTCOMES),
            "error": _error_names(rows.errors, is_reported),
            "partition": _nullable(rows.partitions, rows.partitions >= 0),
            "offset": _nullable(
                rows.offsets, is_reported & (rows.errors == 0) & (rows.offsets >= 0)
            ),
        }

    def _write_log(self, line: LogLine) -> None:
        if self._log_bytes > _MOST_LOG_BYTES:
            return
        path = self.directory / "logs" / f"{self.name}.log"
        text = f"{line.at_ns} {line.level} {line.facility.decode()} {line.text.decode()}\n"
        self._log_bytes += len(text)
        with explained(path):
            if self._log is None:
                path.parent.mkdir(exist_ok=True)
                self._log = path.open("a")
            self._log.write(text)
            self._log.flush()

    # --- at its end ----------------------------------------------------------------------------

    def close(self) -> None:
        """All rows are there: close the journals and make them into Parquet files."""
        self._write()
        self._sent.close()
        self._requests.close()
        if self._log is not None:
            self._log.close()
        self._tries = self._request_log.tries(self._partitions, self._is_unknown)
        to_parquet(self.directory / "sent" / (self.name + JOURNAL), "sent", self._with_tries)
        to_parquet(self.directory / "requests" / (self.name + JOURNAL), "requests")

    @property
    def lag(self) -> Histogram:
        return self._lag.histogram()

    @property
    def sent_again(self) -> int:
        return self._request_log.sent_again

    def _with_tries(self, batch: Any) -> Any:
        sequence = batch.column("id").to_numpy() & (message_id(1, 0) - 1)
        tries = self._tries[sequence]
        place = batch.schema.get_field_index("tries")
        return batch.set_column(place, batch.schema.field(place), _nullable(tries, tries >= 0))


def _nullable(values: npt.NDArray[Any], is_there: npt.NDArray[np.bool_]) -> Any:
    return pa.array(values) if is_there.all() else pa.array(values, mask=~is_there)


def _error_names(errors: npt.NDArray[np.int32], is_reported: npt.NDArray[np.bool_]) -> Any:
    failed = is_reported & (errors != 0)
    if not failed.any():
        return pa.nulls(len(errors), pa.dictionary(pa.int8(), pa.string()))
    codes, places = np.unique(errors, return_inverse=True)
    names = pa.array([error_name(code) for code in codes.tolist()])
    return pa.DictionaryArray.from_arrays(pa.array(places.astype(np.int8), mask=~failed), names)


def _request_columns(requests: list[Request], producer: int) -> dict[str, Any]:
    return {
        "partition": pa.array([r.partition for r in requests], pa.int32()),
        "first": pa.array([r.first for r in requests], pa.int64()),
        "messages": pa.array([r.messages for r in requests], pa.int32()),
        "size_bytes": pa.array([r.size_bytes for r in requests], pa.int32()),
        "at_ns": pa.array([r.at_ns for r in requests], pa.int64()),
        "producer": pa.array([producer] * len(requests), pa.int16()),
    }
