"""Histogram logs: what others read of ours, what we read of theirs, and what is broken."""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader, HistogramLogWriter
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.domain.errors import BadInput
from penstock.measure import hdr_log
from penstock.measure.hdr_log import HdrLog, Interval
from penstock.measure.histogram import EMPTY, Histogram, bucket_index, upper_edge_ns

HOUR_NS = 3_600_000_000_000
BUCKETS = st.dictionaries(
    st.one_of(st.integers(0, 5000), st.integers(0, 2**62)), st.integers(1, 2**56), max_size=30
)


def lognormal(seed: int, count: int = 5000) -> Histogram:
    return Histogram.of(np.random.default_rng(seed).lognormal(15, 1, count).astype(np.int64))


def a_log() -> HdrLog:
    histograms = [lognormal(1), EMPTY, lognormal(2), Histogram.of([0, 1, 2047, 2048, 2049])]
    intervals = [Interval(i * 1.5, 1.5, h) for i, h in enumerate(histograms)]
    tagged = [Interval(i * 1.5, 1.5, lognormal(9 + i), "acks=all") for i in range(2)]
    return HdrLog(1_700_000_000.125, (*intervals, *tagged), ("made by a test",))


def with_buckets_only(histogram: Histogram) -> list[tuple[int, int]]:
    return list(histogram.to_buckets())


def test_another_tool_reads_what_we_write(tmp_path: Path) -> None:
    log, path = a_log(), tmp_path / "latency.hlog"
    hdr_log.write(path, log)
    reader = HistogramLogReader(str(path), HdrHistogram(1, HOUR_NS, 3))
    for interval in log.intervals:
        theirs, ours = reader.get_next_interval_histogram(), interval.histogram
        assert theirs.get_total_count() == ours.count
        for value, count in ours.to_buckets():
            assert theirs.get_count_at_value(value) == count
        if ours.count:
            assert theirs.get_max_value() == upper_edge_ns(bucket_index([ours.max_ns]))[0]
            assert theirs.get_value_at_percentile(50) == ours.percentile(50)
        start_ms = (log.started_at_s + interval.at_s) * 1000
        assert theirs.get_start_time_stamp() == pytest.approx(start_ms, abs=1)
        assert theirs.get_end_time_stamp() == pytest.approx(start_ms + 1500, abs=1)
        assert theirs.get_tag() == interval.tag
    assert reader.get_next_interval_histogram() is None
    assert reader.get_start_time_sec() == log.started_at_s


def test_we_read_what_another_tool_writes(tmp_path: Path) -> None:
    path = tmp_path / "theirs.hlog"
    with path.open("w") as file:
        writer = HistogramLogWriter(file)
        writer.output_comment("[Logged with another tool]")
        writer.output_log_format_version()
        writer.output_legend()
        for second in range(3):
            histogram = HdrHistogram(1, HOUR_NS, 3)
            for value in (5, 70_000, 70_001, 10**9 * (second + 1)):
                histogram.record_value(value)
            histogram.set_start_time_stamp(1_700_000_000_000 + second * 1000)
            histogram.set_end_time_stamp(1_700_000_001_000 + second * 1000)
            writer.output_interval_histogram(histogram)
    log = hdr_log.read(path)
    assert log.comments == ("[Logged with another tool]",)
    assert log.started_at_s == 1_700_000_000
    assert [(i.at_s, i.length_s, i.tag) for i in log.intervals] == [
        (0.0, 1.0, None),
        (1.0, 1.0, None),
        (2.0, 1.0, None),
    ]
    for second, interval in enumerate(log.intervals):
        values = [5, 70_000, 70_001, 10**9 * (second + 1)]
        assert with_buckets_only(interval.histogram) == list(Histogram.of(values).to_buckets())
    assert log.merged().count == 12


def test_a_log_comes_back_as_it_was(tmp_path: Path) -> None:
    log, path = a_log(), tmp_path / "latency.hlog"
    hdr_log.write(path, log)
    again = hdr_log.read(path)
    assert (again.started_at_s, again.comments) == (log.started_at_s, log.comments)
    for was, became in zip(log.intervals, again.intervals, strict=True):
        assert (became.at_s, became.length_s, became.tag) == (was.at_s, was.length_s, was.tag)
        assert with_buckets_only(became.histogram) == with_buckets_only(was.histogram)
        assert became.histogram.max_ns == was.histogram.max_ns  # exact: the line has it
    assert again.merged("acks=all").count == log.merged("acks=all").count == 10_000
    assert again.merged().count == 10_005


@settings(deadline=None)
@given(BUCKETS)
def test_every_count_survives_the_encoding(buckets: dict[int, int]) -> None:
    histogram = Histogram.from_buckets(buckets.items())
    again = hdr_log.decode(hdr_log.encode(histogram))
    assert with_buckets_only(again) == with_buckets_only(histogram)


@settings(deadline=None, max_examples=30)
@given(st.dictionaries(st.integers(0, HOUR_NS), st.integers(1, 2**40), max_size=30))
def test_another_tool_takes_our_code_for_its_own(buckets: dict[int, int]) -> None:
    theirs = HdrHistogram(1, HOUR_NS, 3)
    for value, count in buckets.items():
        theirs.record_value(value, count)
    ours = hdr_log.encode(Histogram.from_buckets(buckets.items(), max_ns=max(buckets, default=0)))
    assert HdrHistogram.decode(ours).encode() == theirs.encode()
    # Alike but for the length of the counts: one empty bucket is 0 to the Java original and to us,
    # "once 0" to the Python port.
    head, their_head = inflated(ours)[:40], inflated(theirs.encode())[:40]
    assert head[:4] + head[8:] == their_head[:4] + their_head[8:]


def inflated(code: bytes) -> bytes:
    return zlib.decompress(base64.b64decode(code)[8:])


def test_a_count_of_64_bits_takes_nine_bytes() -> None:
    histogram = Histogram.from_buckets([(0, 2**63 - 1)])
    body = inflated(hdr_log.encode(histogram))
    assert struct.unpack_from(">i", body, 4) == (9,)
    assert hdr_log.decode(hdr_log.encode(histogram)).to_buckets() == ((0, 2**63 - 1),)


@pytest.mark.parametrize("digits", [1, 2, 3, 4, 5])
def test_histograms_of_other_precision_are_read_too(digits: int) -> None:
    theirs = HdrHistogram(1000, HOUR_NS, digits)
    for value in (1_000_000, 2_000_000, 3_000_000):
        theirs.record_value(value)
    ours = hdr_log.decode(theirs.encode())
    assert ours.count == 3
    # As exact as they were, or as a bucket of ours is.
    digits_kept = min(digits, 3)
    assert ours.percentile(50) == pytest.approx(2_000_000, rel=2 * 10.0**-digits_kept)


def test_times_that_count_from_the_epoch_or_from_the_start() -> None:
    code = hdr_log.encode(lognormal(1)).decode()
    start = "#[StartTime: 1700000000.000 (seconds since epoch), a day]\n"
    relative = hdr_log.parse(f"{start}2.000,1.000,1.0,{code}\n")
    absolute = hdr_log.parse(f"{start}1700000002.000,1.000,1.0,{code}\n")
    based = hdr_log.parse(
        f"{start}#[BaseTime: 1600000000.000 (seconds since epoch)]\n"
        f"100000002.000,1.000,1.0,{code}\n"
    )
    assert [log.intervals[0].at_s for log in (relative, absolute, based)] == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("1.0,1.0", "is no line of a histogram log"),
        ("1.0,1.0,x,{code}", "could not convert string to float"),
        ("inf,1.0,1.0,{code}", "is no time"),
        ("1.0,1.0,1.0,{code:.40}", "cut off"),
        ("1.0,1.0,1.0,%%%", "no histogram in base64"),
        ("1.0,1.0,1.0,AAAAAAAAAAA=", "no histogram in encoding V2"),
    ],
)
def test_a_broken_line_is_named(line: str, problem: str) -> None:
    code = hdr_log.encode(lognormal(1)).decode()
    text = hdr_log.to_text(a_log()) + line.format(code=code)
    with pytest.raises(BadInput, match=problem) as caught:
        hdr_log.parse(text, "some.hlog")
    assert str(caught.value).startswith("some.hlog:12: ")
    assert "fix:" in str(caught.value)


def test_a_code_that_lies_about_itself_is_refused() -> None:
    body = inflated(hdr_log.encode(lognormal(1)))

    def sealed(body: bytes) -> bytes:
        deflated = zlib.compress(body)
        return base64.b64encode(struct.pack(">ii", 0x1C849314, len(deflated)) + deflated)

    assert hdr_log.decode(sealed(body)).count == 5000
    run_of_many = b"\xff" * 8 + b"\x01"  # a negative word: more empty buckets than there can be
    for lie, problem in (
        (body[:20], "header"),
        (body[:4] + struct.pack(">i", len(body)) + body[8:], "within its counts"),
        (b"\0\0\0\0" + body[4:], "not supported"),
        (body[:4] + struct.pack(">i", 1) + body[8:40] + b"\x80", "within a count"),
        (body[:4] + struct.pack(">i", 9) + body[8:40] + run_of_many, "more buckets"),
    ):
        with pytest.raises(ValueError, match=problem):
            hdr_log.decode(sealed(lie))


def test_what_a_log_cannot_say_is_refused() -> None:
    with pytest.raises(ValueError, match="tag"):
        hdr_log.to_text(HdrLog(0.0, (Interval(0.0, 1.0, EMPTY, "a,b"),)))
    with pytest.raises(ValueError, match="before the log"):
        hdr_log.to_text(HdrLog(0.0, (Interval(-1.0, 1.0, EMPTY),)))
    with pytest.raises(BadInput, match="no such file"):
        hdr_log.read(Path("/nowhere/x.hlog"))
