"""Histograms as a standard HdrHistogram log, and such logs read back. Knows no run.

The format is version 1.3 of HdrHistogram's log: comments, start and base time, a legend, then one
line per interval with its start, its length, its largest value and its histogram (encoding V2:
zigzag LEB128, deflated, base64). HdrHistogram's own log processors and plotters read it. Values
are nanoseconds; the largest value of a line is in milliseconds, as those tools expect.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from penstock.domain.errors import BadInput
from penstock.files import write_file
from penstock.measure.histogram import EMPTY, Histogram, Ints, bucket_index, upper_edge_ns
from penstock.spec_text import read_text

# The second 1 says "zigzag LEB128 words", which is the only kind that V2 has.
_PLAIN, _DEFLATED = 0x1C849303 | 0x10, 0x1C849304 | 0x10
# Cookie, length of the counts, shift of the counts, digits, lowest and highest value, ratio.
_HEADER = struct.Struct(">iiiiqqd")
_ENVELOPE = struct.Struct(">ii")
_DIGITS = 3
# Every interval of a log says that it can hold an hour, so that tools may add them up; one that
# holds more says so.
_HIGHEST_NS = 3_600_000_000_000
# A line that claims more than this cannot be a histogram: 5 digits and 64 bits need 60 MB.
_MOST_BYTES = 100_000_000
_MOST_BUCKETS = 1 << 24
# LEB128 takes 7 bits into a byte, but the ninth takes 8: 64 bits are 9 bytes, not 10.
_WORD_BYTES = 9
_NS_PER_MS = 1_000_000

_LEGEND = '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"'
_START_TIME = re.compile(r"#\[StartTime: *([\d.]+) ")
_BASE_TIME = re.compile(r"#\[BaseTime: *([\d.]+) ")
_YEAR_S = 365 * 24 * 3600.0


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

    def merged(self, tag: str | None = None) -> Histogram:
        """All intervals with this tag, or without one."""
        return Histogram.merged(i.histogram for i in self.intervals if i.tag == tag)


def write(path: Path, log: HdrLog) -> None:
    write_file(path, to_text(log))


def read(path: Path) -> HdrLog:
    """Read a log that we or somebody else wrote."""
    return parse(read_text(path), str(path))


# --- writing -------------------------------------------------------------------------------------


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


# --- reading -------------------------------------------------------------------------------------


def parse(text: str, source: str = "log") -> HdrLog:
    """The text of a log. A line that cannot be read is an error that names it."""
    comments: list[str] = []
    rows: list[Interval] = []
    start_s: float | None = None
    base_s: float | None = None
    for number, line in enumerate(text.splitlines(), 1):
        try:
            if found := _START_TIME.match(line):
                start_s = float(found[1])
            elif found := _BASE_TIME.match(line):
                base_s = float(found[1])
            elif line.startswith("#"):
                if not line.startswith("#[Histogram log format"):
                    comments.append(line[1:])
            elif line.strip() and not line.startswith('"'):
                rows.append(_interval(line))
        except ValueError as error:
            raise BadInput(
                f"{source}:{number}: {error}",
                "it may have been cut off: take this line and what follows out to read the rest",
            ) from None
    return _on_one_clock(rows, start_s, base_s, tuple(comments))


def _interval(line: str) -> Interval:
    tag = None
    if line.startswith("Tag="):
        tag, _, line = line.removeprefix("Tag=").partition(",")
    fields = line.strip().split(",")
    if len(fields) != 4:
        raise ValueError("is no line of a histogram log: it should have start, length, max, code")
    at_s, length_s, largest_ms = (_number(text) for text in fields[:3])
    return Interval(at_s, length_s, _with_exact_max(decode(fields[3]), largest_ms), tag)


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no time")
    return number


def _with_exact_max(histogram: Histogram, largest_ms: float) -> Histogram:
    """The line's own maximum, unless it is rounded or in another unit than ours."""
    exact = round(largest_ms * _NS_PER_MS)
    if not histogram.count or not 0 <= exact < 2**63:
        return histogram
    same_bucket = bucket_index([exact])[0] == histogram.index[-1]
    return replace(histogram, max_ns=exact) if same_bucket else histogram


def _on_one_clock(
    rows: list[Interval], start_s: float | None, base_s: float | None, comments: tuple[str, ...]
) -> HdrLog:
    """Times from the start of the log, by the rules of HdrHistogram's reader."""
    first = rows[0].at_s if rows else 0.0
    started = first if start_s is None else start_s
    if base_s is None:
        # More than a year before the start: then they count from it and not from 1970.
        base_s = started if first < started - _YEAR_S else 0.0
    # To the millisecond, since a difference of seconds since 1970 has no more digits.
    moved = tuple(replace(row, at_s=round(base_s + row.at_s - started, 3)) for row in rows)
    return HdrLog(started, moved, comments)


def decode(code: str | bytes) -> Histogram:
    """A histogram in encoding V2, of any number of digits. ValueError if it is none.

    One with 3 digits and a unit of 1 has our buckets; any other is put into the buckets that the
    middles of its own fall into.
    """
    try:
        envelope = base64.b64decode(code, validate=True)
        cookie, length = _ENVELOPE.unpack_from(envelope)
    except (binascii.Error, struct.error):
        raise ValueError("the code is no histogram in base64, or is cut off") from None
    if cookie != _DEFLATED:
        raise ValueError(f"the code is no histogram in encoding V2, deflated (cookie {cookie:#x})")
    body = _inflate(envelope[_ENVELOPE.size :][:length], length)
    if len(body) < _HEADER.size:
        raise ValueError("the code is cut off within its header")
    cookie, length, offset, digits, lowest, _, ratio = _HEADER.unpack_from(body)
    if cookie != _PLAIN or offset != 0 or not 0 <= digits <= 5 or lowest < 1 or ratio != 1.0:
        raise ValueError("the code is a histogram of a kind that is not supported here")
    words = body[_HEADER.size :][:length]
    if len(words) < length:
        raise ValueError("the code is cut off within its counts")
    index, counts = _from_words(words)
    return _histogram(index, counts, digits, lowest)


def _inflate(body: bytes, length: int) -> bytes:
    if len(body) < length:
        raise ValueError("the code is cut off")
    inflater = zlib.decompressobj()
    try:
        result = inflater.decompress(body, _MOST_BYTES)
    except zlib.error as error:
        raise ValueError(f"the code cannot be inflated: {error}") from None
    if inflater.unconsumed_tail or not inflater.eof:
        raise ValueError("the code is cut off, or far too long for a histogram")
    return result


def _from_words(data: bytes) -> tuple[Ints, Ints]:
    index, counts = [], []
    at = 0
    for word in _unleb128(data):
        if word < 0:
            at -= word
            if at > _MOST_BUCKETS:
                raise ValueError("the code has more buckets than a histogram can have")
            continue
        if word:
            index.append(at)
            counts.append(word)
        at += 1
    return np.array(index, dtype=np.int64), np.array(counts, dtype=np.int64)


def _unleb128(data: bytes) -> Iterator[int]:
    word, byte = 0, 0
    for value in data:
        is_last = byte == _WORD_BYTES - 1
        word |= (value if is_last else value & 0x7F) << 7 * byte
        byte += 1
        if is_last or not value & 0x80:
            yield word >> 1 ^ -(word & 1)
            word, byte = 0, 0
    if byte:
        raise ValueError("the code is cut off within a count")


def _histogram(index: Ints, counts: Ints, digits: int, lowest: int) -> Histogram:
    if not len(index):
        return EMPTY
    steps_bits = max(1, (2 * 10**digits - 1).bit_length()) - 1  # half the sub-buckets
    unit_bits = lowest.bit_length() - 1
    shift = np.maximum((index >> steps_bits) - 1, 0)
    width_bits = shift + unit_bits
    if int(width_bits.max()) + steps_bits + 1 > 63:
        raise ValueError("the code has a value that is too large for 64 bits")
    lower = (index - (shift << steps_bits)) << width_bits
    if (digits, unit_bits) == (_DIGITS, 0):
        return Histogram(index, counts, int(lower[0]), int(upper_edge_ns(index[-1])))
    middle = lower + ((1 << width_bits) >> 1)
    return Histogram.from_buckets(zip(middle.tolist(), counts.tolist(), strict=True))
