"""Histogram logs: what other tools read of ours."""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.runs import hdr_log
from penstock.runs.hdr_log import HdrLog, Interval
from penstock.stats.histogram import EMPTY, Histogram, bucket_index, upper_edge_ns

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


def decoded(code: bytes) -> dict[int, int]:
    """Index and count of every bucket in use, as the format describes them."""
    at, counts, word, shift = 0, {}, 0, 0
    for byte in inflated(code)[40:]:
        is_last = shift == 56 or byte < 0x80
        word |= (byte if shift == 56 else byte & 0x7F) << shift
        shift += 7
        if not is_last:
            continue
        value = word >> 1 ^ -(word & 1)
        if value > 0:
            counts[at] = value
        at += -value if value < 0 else 1
        word, shift = 0, 0
    return counts


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


@given(BUCKETS)
def test_every_count_survives_the_encoding(buckets: dict[int, int]) -> None:
    histogram = Histogram.from_buckets(buckets.items())
    expected = dict(zip(histogram.index.tolist(), histogram.counts.tolist(), strict=True))
    assert decoded(hdr_log.encode(histogram)) == expected


@settings(max_examples=30)
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
    assert decoded(hdr_log.encode(histogram)) == {0: 2**63 - 1}


def test_what_a_log_cannot_say_is_refused() -> None:
    with pytest.raises(ValueError, match="tag"):
        hdr_log.to_text(HdrLog(0.0, (Interval(0.0, 1.0, EMPTY, "a,b"),)))
    with pytest.raises(ValueError, match="before the log"):
        hdr_log.to_text(HdrLog(0.0, (Interval(-1.0, 1.0, EMPTY),)))
