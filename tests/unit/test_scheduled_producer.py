"""The generator with a client that does as it is told: blocks, refuses, answers late or never."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import monotonic_ns
from typing import Any, Literal

import numpy as np
import pyarrow.parquet as pq
import pytest

from penstock.domain.arrivals import Arrivals, ConstantArrivals, RecordedArrivals
from penstock.domain.run import ProducerReport
from penstock.domain.workload import Payload, Workload
from penstock.load import scheduled_producer
from penstock.load.in_flight import NOT_YET, Rows
from penstock.load.payload_buffer import PayloadBuffer
from penstock.load.producer_job import ProducerJob
from penstock.load.rdkafka import MESSAGE, PURGED, QUEUE_FULL, LogLine, Reports
from penstock.load.scheduled_producer import ScheduledProducer
from penstock.load.sent_trace import SentTrace

MSG_TOO_LARGE = 10


class FakeClient:
    """Stands for librdkafka: takes what `judge` lets it take, and answers after `answer_s`."""

    def __init__(
        self, judge: Callable[[int], int] = lambda _: 0, answer_s: float | None = 0.0
    ) -> None:
        self._judge = judge
        self._answer_ns = None if answer_s is None else round(answer_s * 1e9)
        self._waiting: list[tuple[int, int]] = []  # (when it is answered, tag)
        self.taken: list[int] = []
        self.most_under_way = 0
        self.statistics: bytes | None = None
        self.lines: list[LogLine] = []
        self.is_closed = False

    def partitions(self, _timeout_s: float) -> int:
        return 1

    def hand_over(self, address: int, count: int) -> int:
        buffer = np.ctypeslib.as_array(
            (ctypes.c_uint8 * (count * MESSAGE.itemsize)).from_address(address)
        )
        messages = buffer.view(MESSAGE)
        full = False
        taken = 0
        for message in messages:
            error = QUEUE_FULL if full else self._judge(int(message["tag"]))
            message["err"] = error
            full = error == QUEUE_FULL
            if not error:
                taken += 1
                self.taken.append(int(message["tag"]))
                due = monotonic_ns() + self._answer_ns if self._answer_ns is not None else 2**62
                self._waiting.append((due, int(message["tag"])))
        self.most_under_way = max(self.most_under_way, len(self._waiting))
        return taken

    def serve(self, force: bool = False) -> list[Reports]:
        now = monotonic_ns()
        ready = [tag for due, tag in self._waiting if due <= now]
        self._waiting = [(due, tag) for due, tag in self._waiting if due > now]
        return [self._reports(ready, 0)] if ready else []

    def wait(self, until_ns: int, rest_ns: int = 0) -> None:
        threading.Event().wait(max(0, min(until_ns - monotonic_ns(), 2_000_000)) / 1e9)

    def purge(self) -> None:
        tags = [tag for _, tag in self._waiting]
        self._waiting = []
        given_up = self._reports(tags, PURGED[0])
        self.serve = lambda force=False: [given_up]  # type: ignore[method-assign]

    def close(self) -> None:
        self.is_closed = True

    def _reports(self, tags: list[int], error: int) -> Reports:
        count = len(tags)
        return Reports(
            tags=np.array(tags, dtype=np.int64),
            at_ns=np.full(count, monotonic_ns()),
            errors=np.full(count, error, dtype=np.int32),
            partitions=np.zeros(count, dtype=np.int32),
            offsets=np.array(tags, dtype=np.int64),
        )


def _job(
    directory: Path,
    arrivals: Arrivals,
    loop: Literal["open", "closed"] = "open",
    duration_s: float = 0.2,
    **config: Any,
) -> ProducerJob:
    workload = Workload(
        arrivals=arrivals,
        payload=Payload(size_bytes=20),
        loop=loop,
        duration_s=duration_s,
    )
    return ProducerJob(0, "topic", config, workload, 0.0, 1, directory)


def timeout(ms: int) -> dict[str, Any]:
    return {"message.timeout.ms": ms}


def _run(job: ProducerJob, client: FakeClient) -> tuple[ProducerReport, Any]:
    generator = ScheduledProducer(job, client)  # type: ignore[arg-type]
    generator.run(monotonic_ns() + 10_000_000, threading.Event())
    report = generator.finish()
    assert client.is_closed
    table = pq.read_table(job.directory / "sent" / "producer-1.parquet")
    return report, table.to_pandas().set_index("id").sort_index()


@pytest.fixture(autouse=True)
def unchanged_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests share a process: no frozen garbage, no other priority."""
    monkeypatch.setattr(scheduled_producer, "make_realtime", lambda: None)
    monkeypatch.setattr(scheduled_producer, "keep_python_out_of_the_way", lambda: None)


def test_every_message_is_sent_when_it_is_due(tmp_path: Path) -> None:
    client = FakeClient()
    report, sent = _run(_job(tmp_path, ConstantArrivals(rate_per_s=2000)), client)
    assert report.scheduled == report.sent == report.acknowledged == 400
    assert report.failed == report.unknown == 0
    assert client.taken == list(range(400))
    assert sent.index.tolist() == list(range(400))
    assert (sent.intended_ns <= sent.sent_ns).all()
    assert (sent.sent_ns <= sent.reported_ns).all()
    assert np.diff(sent.intended_ns) == pytest.approx(500_000, abs=1)
    assert report.lag_max_us == pytest.approx((sent.sent_ns - sent.intended_ns).max() / 1000)
    assert (sent.offset == sent.index).all()
    assert sent.error.isna().all()


def test_a_full_queue_is_waited_for_and_is_not_the_generators_fault(tmp_path: Path) -> None:
    opens_ns = 0

    def judge(tag: int) -> int:
        nonlocal opens_ns
        if tag < 100:
            return 0
        opens_ns = opens_ns or monotonic_ns() + 150_000_000
        return QUEUE_FULL if monotonic_ns() < opens_ns else 0

    report, sent = _run(_job(tmp_path, ConstantArrivals(rate_per_s=2000)), FakeClient(judge))
    assert report.sent == report.acknowledged == 400
    # The block counts as such, within the 10 ms after which the client is asked again at least.
    assert report.queue_full_s >= 0.149
    late_ns = sent.sent_ns - sent.intended_ns
    assert late_ns[100] >= 149_000_000
    # The hundreds that had come due meanwhile are late by the block; the generator is not.
    assert np.count_nonzero(late_ns > 10_000_000) > 200
    assert report.lag_p50_us < 75_000


def test_a_refused_message_fails_and_others_continue(tmp_path: Path) -> None:
    client = FakeClient(lambda tag: MSG_TOO_LARGE if tag % 10 == 3 else 0)
    report, sent = _run(_job(tmp_path, RecordedArrivals(at_s=(0.0,) * 100)), client)
    assert (report.sent, report.acknowledged, report.failed) == (100, 90, 10)
    assert sent.outcome.value_counts().to_dict() == {"acknowledged": 90, "failed": 10}
    refused = sent[sent.outcome == "failed"]
    assert refused.index.tolist() == list(range(3, 100, 10))
    assert set(refused.error) == {"MSG_SIZE_TOO_LARGE"}
    assert refused.partition.isna().all()
    assert refused.sent_ns.equals(refused.reported_ns)


def test_what_nobody_answers_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduled_producer, "_MARGIN_S", 0.05)
    job = _job(tmp_path, RecordedArrivals(at_s=(0.0,) * 50), **timeout(50))
    report, sent = _run(job, FakeClient(answer_s=None))
    assert (report.sent, report.acknowledged, report.unknown) == (50, 0, 50)
    assert (sent.outcome == "unknown").all()
    assert sent.reported_ns.isna().all()
    assert sent.sent_ns.notna().all()
    assert (sent.partition == 0).all()  # what was given up says where it was to go


def test_what_could_not_be_handed_over_is_written_down_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduled_producer, "GRACE_S", 0.05)
    client = FakeClient(lambda tag: 0 if tag < 30 else QUEUE_FULL)
    job = _job(tmp_path, ConstantArrivals(rate_per_s=1000), **timeout(50))
    report, sent = _run(job, client)
    assert report.scheduled == 200
    assert report.sent == 30
    assert len(sent) == 200
    never = sent[sent.sent_ns.isna()]
    assert never.index.tolist() == list(range(30, 200))
    assert (never.outcome == "unknown").all()
    assert never.intended_ns.notna().all()


def test_a_closed_loop_has_one_message_under_way(tmp_path: Path) -> None:
    client = FakeClient(answer_s=0.02)
    job = _job(tmp_path, ConstantArrivals(rate_per_s=1000), "closed", duration_s=0.4)
    report, sent = _run(job, client)
    assert client.most_under_way == 1
    # At most one each 20 ms, however much the schedule asks for.
    assert 1 <= report.sent <= 21
    assert report.scheduled == report.sent == len(sent) == report.acknowledged
    assert sent.intended_ns.equals(sent.sent_ns)
    assert (sent.sent_ns.iloc[1:].to_numpy() >= sent.reported_ns.iloc[:-1].to_numpy()).all()
    assert report.lag_max_us == 0


def test_a_closed_loop_is_not_ahead_of_its_schedule(tmp_path: Path) -> None:
    job = _job(tmp_path, RecordedArrivals(at_s=(0.0, 0.1, 0.25)), "closed", duration_s=0.3)
    _, sent = _run(job, FakeClient())
    gaps = np.diff(sent.sent_ns)
    assert len(gaps) == 2
    first = sent.sent_ns.iloc[0]
    assert sent.sent_ns.iloc[2] - first >= 0.15e9


def test_an_abandoned_generator_ends_and_keeps_its_trace(tmp_path: Path) -> None:
    generator = ScheduledProducer(
        _job(tmp_path, ConstantArrivals(rate_per_s=100), duration_s=60),
        FakeClient(),  # type: ignore[arg-type]
    )
    abandoned = threading.Event()
    threading.Timer(0.2, abandoned.set).start()
    began = time.monotonic()
    generator.run(monotonic_ns(), abandoned)
    report = generator.finish()
    assert time.monotonic() - began < 30
    assert 0 < report.sent < 6000
    # What was still to come is nobody's fault: it is not written down as never sent.
    assert pq.read_table(tmp_path / "sent" / "producer-1.parquet").num_rows == report.sent


@pytest.mark.parametrize("loop", ["open", "closed"])
def test_the_measured_time_begins_when_the_cluster_is_warm(
    tmp_path: Path, loop: Literal["open", "closed"]
) -> None:
    job = _job(tmp_path, ConstantArrivals(rate_per_s=500), loop, duration_s=0.2)
    job = replace(job, longest_warm_up_s=60)
    generator = ScheduledProducer(job, FakeClient())  # type: ignore[arg-type]
    begins_ns = monotonic_ns() + 10_000_000
    from_ns, to_ns = begins_ns + 300_000_000, begins_ns + 500_000_000
    threading.Timer(0.1, lambda: generator.measure(from_ns, to_ns)).start()
    generator.run(begins_ns, threading.Event())
    report = generator.finish()
    assert monotonic_ns() < begins_ns + 20_000_000_000, "the schedule of a minute was cut"
    sent = pq.read_table(tmp_path / "sent" / "producer-1.parquet").to_pandas()
    assert sent.intended_ns.max() < to_ns
    assert report.scheduled == report.sent == len(sent)
    if loop == "open":
        assert report.sent == 250
        # Its own lag is that of the measured time only.
        assert generator._trace.lag.count == 100


def test_a_generator_that_never_ran_leaves_an_empty_trace(tmp_path: Path) -> None:
    generator = ScheduledProducer(_job(tmp_path, ConstantArrivals(rate_per_s=100)), FakeClient())  # type: ignore[arg-type]
    assert generator.finish().sent == 0
    assert len(pq.read_table(tmp_path / "sent" / "producer-1.parquet")) == 0
    assert list(tmp_path.rglob("*.journal")) == []


def test_lag_counts_from_when_the_message_could_have_been_sent(tmp_path: Path) -> None:
    from random import Random

    due = np.array([0, 100, 200, 300], dtype=np.int64)
    trace = SentTrace(
        directory=tmp_path,
        name="producer-1",
        producer=0,
        messages=PayloadBuffer(Payload(size_bytes=8), None, 0, Random(1)),
        due_ns=due,
        is_closed_loop=False,
        measured_from_ns=100,
        retries=0,
        keep_debug_lines=False,
        begins_ns=1000,
    )
    trace.add(
        Rows(
            sequence=np.arange(4),
            # The first is of the warm-up; the third waited for a client that was full until 1500.
            sent_ns=np.array([1900, 1107, 1503, NOT_YET]),
            since_ns=np.array([NOT_YET, NOT_YET, 1500, NOT_YET]),
            reported_ns=np.array([2000, 2000, 2000, NOT_YET]),
            errors=np.zeros(4, dtype=np.int32),
            partitions=np.zeros(4, dtype=np.int32),
            offsets=np.arange(4),
        )
    )
    trace.close()
    assert trace.lag.count == 2
    assert (trace.lag.min_ns, trace.lag.max_ns) == (3, 7)


@pytest.mark.parametrize(
    ("debug", "merged"),
    [(None, "msg"), ("broker,topic", "broker,topic,msg"), ("msg,eos", "msg,eos")],
)
def test_the_users_own_debugging_is_kept(tmp_path: Path, debug: str | None, merged: str) -> None:
    config: dict[str, Any] = {} if debug is None else {"debug": debug}
    assert _job(tmp_path, ConstantArrivals(rate_per_s=1), **config).client_config["debug"] == merged


@pytest.mark.parametrize(
    ("rate_per_s", "config", "recorded"),
    [
        (1_000, {"batch.num.messages": 1}, True),
        (20_000, {"batch.num.messages": 1}, False),
        (20_000, {"batch.num.messages": 10}, True),
        (20_000, {}, True),
        (1e9, {}, True),
    ],
)
def test_requests_are_recorded_unless_there_were_too_many(
    tmp_path: Path, rate_per_s: float, config: dict[str, Any], recorded: bool
) -> None:
    job = _job(tmp_path, ConstantArrivals(rate_per_s=rate_per_s), **config)
    assert job.records_requests == recorded
    assert ("debug" in job.client_config) == recorded


def test_timeouts_and_retries_follow_the_settings(tmp_path: Path) -> None:
    arrivals = ConstantArrivals(rate_per_s=1)
    assert _job(tmp_path, arrivals).timeout_s == 300
    assert _job(tmp_path, arrivals, **timeout(1500)).timeout_s == 1.5
    assert _job(tmp_path, arrivals, **timeout(0)).timeout_s == 300
    assert _job(tmp_path, arrivals, retries=3).retries == 3
    assert _job(tmp_path, arrivals).retries == 2**31 - 1
