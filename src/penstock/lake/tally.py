"""Counts records by partition: number, bytes, sum of offsets. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.domain.lake.partition import Partition

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Tally:
    """Counts of one partition's records."""

    count: int
    offset_sum: int
    first: int
    last: int
    size_bytes: int
    # Each offset larger than the one before it.
    is_rising: bool


def tally_rows(rows: pa.Table) -> dict[Partition, Tally]:
    """Count the rows of a table with Kafka's columns."""
    topics = rows.column("kafka_topic").combine_chunks().dictionary_encode()
    return _tally(
        topics.dictionary.to_pylist(),
        topics.indices.to_numpy().astype(np.int64),
        rows.column("kafka_partition").to_numpy().astype(np.int64),
        rows.column("kafka_offset").to_numpy(),
        None,
    )


def tally_lists(
    topics: Sequence[str], partitions: Sequence[int], offsets: Sequence[int], sizes: Ints
) -> dict[Partition, Tally]:
    """Count gathered records."""
    code_of = {name: code for code, name in enumerate(dict.fromkeys(topics))}
    # Most lanes read one topic, whose code is 0.
    codes = np.zeros(len(topics), dtype=np.int64)
    if len(code_of) > 1:
        codes = np.fromiter(map(code_of.__getitem__, topics), np.int64, len(topics))
    numbers, places = (np.array(values, dtype=np.int64) for values in (partitions, offsets))
    return _tally(list(code_of), codes, numbers, places, sizes)


def _tally(
    topics: list[str], codes: Ints, partitions: Ints, offsets: Ints, sizes: Ints | None
) -> dict[Partition, Tally]:
    if not len(offsets):
        return {}
    width = int(partitions.max()) + 1
    where = codes * width + partitions
    # Stable, so each partition's records stay in the order in which they came.
    order = np.argsort(where, kind="stable")
    where, offsets = where[order], offsets[order]
    sizes = None if sizes is None else sizes[order]
    cuts = np.flatnonzero(np.diff(where)) + 1
    tallies = {}
    for start, end in pairwise([0, *cuts.tolist(), len(where)]):
        part, place = offsets[start:end], int(where[start])
        first = int(part[0])
        tallies[Partition(topics[place // width], place % width)] = Tally(
            count=len(part),
            # Relative to the first, so that the sum of a million of them fits.
            offset_sum=int((part - first).sum()) + first * len(part),
            first=first,
            last=int(part[-1]),
            size_bytes=0 if sizes is None else int(sizes[start:end].sum()),
            is_rising=bool((np.diff(part) > 0).all()),
        )
    return tallies
