"""Writes histograms as a standard HdrHistogram log.

The format is version 1.3 of HdrHistogram's log: comments, start and base time, a legend, then one
line per interval with its start, its length, its largest value and its histogram (encoding V2:
zigzag LEB128, deflated, base64). HdrHistogram's own log processors and plotters read it. Values
are nanoseconds; the largest value of a line is in milliseconds, as those tools expect.
"""

from __future__ import annotations

import base64
import re
import struct
import zlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from penstock.specs.files import write_file
from penstock.stats.histogram import Histogram, Ints

# The second 1 says "zigzag LEB128 words", which is the only kind that V2 has.
_PLAIN, _DEFLATED = 0x1C849303 | 0x10, 0x1C849304 | 0x10
# Cookie, length of the counts, shift of the counts, digits, lowest and highest value, ratio.
_HEADER = struct.Struct(">iiiiqqd")
_ENVELOPE = struct.Struct(">ii")
_DIGITS = 3
# Every interval of a log says that it can hold an hour, so that tools may add them up; one that
# holds more says so.
_HIGHEST_NS = 3_600_000_000_000
# LEB128 takes 7 bits into a byte, but the ninth takes 8: 64 bits are 9 bytes, not 10.
_WORD_BYTES = 9
_NS_PER_MS = 1_000_000

_LEGEND = '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"'


@dataclass(frozen=True)
class Interval:
    """One line of a log."""

    at_s: float  # from the start of the log
    length_s: float
    histogram: Histogram
    tag: str | None = None


@dataclass(frozen=True)
class HdrLog:
    """A log: when it started (seconds of the wall clock since 1970), and its intervals."""

    started_at_s: float
    intervals: tuple[Interval, ...]
    comments: tuple[str, ...] = field(default=())


def write(path: Path, log: HdrLog) -> None:
    write_file(path, to_text(log))


def to_text(log: HdrLog) -> str:
    """The log as a file has it."""
    started = datetime.fromtimestamp(log.started_at_s, UTC).isoformat(timespec="milliseconds")
    head = [
        *(f"#{comment}" for text in log.comments for comment in text.splitlines()),
        "#[Histogram log format version 1.3]",
        f"#[StartTime: {log.started_at_s:.3f} (seconds since epoch), {started}]",
        f"#[BaseTime: {log.started_at_s:.3f} (seconds since epoch)]",
        _LEGEND,
    ]
    return "\n".join([*head, *map(_line, log.intervals)]) + "\n"


def _line(interval: Interval) -> str:
    if interval.at_s < 0 or interval.length_s < 0:
        raise ValueError("an interval of a log cannot begin before the log or have no length")
    if interval.tag is not None and re.search(r"[\s,]", interval.tag):
        raise ValueError(f"a tag has no commas and no spaces: {interval.tag!r}")
    tag = "" if interval.tag is None else f"Tag={interval.tag},"
    # Six digits of a millisecond are whole nanoseconds: the exact largest value survives.
    largest_ms = interval.histogram.max_ns / _NS_PER_MS
    code = encode(interval.histogram).decode("ascii")
    return f"{tag}{interval.at_s:.3f},{interval.length_s:.3f},{largest_ms:.6f},{code}"


def encode(histogram: Histogram) -> bytes:
    """Encoding V2, deflated, in base64: what begins with HISTFAAA."""
    words = _leb128(_words(histogram))
    highest = max(_HIGHEST_NS, histogram.max_ns)
    header = _HEADER.pack(_PLAIN, len(words), 0, _DIGITS, 1, highest, 1.0)
    body = zlib.compress(header + words)
    return base64.b64encode(_ENVELOPE.pack(_DEFLATED, len(body)) + body)


def _words(histogram: Histogram) -> Ints:
    """The counts from bucket 0 to the last one in use; -n stands for n > 1 times 0."""
    if not histogram.count:
        return np.zeros(0, dtype=np.int64)
    empty_before = np.diff(histogram.index, prepend=-1) - 1
    runs = np.where(empty_before > 1, -empty_before, 0)
    # Each count follows the run before it, if there is one.
    pairs = np.stack([runs, histogram.counts], axis=1).reshape(-1)
    is_there = np.stack([empty_before > 0, np.ones(len(runs), bool)], axis=1).reshape(-1)
    return np.asarray(pairs[is_there], dtype=np.int64)


def _leb128(words: Ints) -> bytes:
    # Zigzag: 0, -1, 1, -2, … become 0, 1, 2, 3, …, so that small ones of either sign are short.
    zigzag = ((words << 1) ^ (words >> 63)).view(np.uint64)
    lengths = np.ones(len(words), dtype=np.int64)
    for byte in range(1, _WORD_BYTES):
        lengths += zigzag >= np.uint64(1 << 7 * byte)
    starts = np.cumsum(lengths) - lengths
    result: npt.NDArray[np.uint8] = np.zeros(int(lengths.sum()), dtype=np.uint8)
    for byte in range(_WORD_BYTES):
        has = lengths > byte
        bits = zigzag[has] >> np.uint64(7 * byte)
        if byte < _WORD_BYTES - 1:
            follows = (lengths[has] > byte + 1).astype(np.uint64) << np.uint64(7)
            bits = bits & np.uint64(0x7F) | follows
        result[starts[has] + byte] = bits.astype(np.uint8)
    return result.tobytes()
