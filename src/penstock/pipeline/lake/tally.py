"""Records counted by partition: how many, their bytes, the sum of their offsets. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.domain.lake.partition import Partition

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Tally:
    """Of one partition's records."""

    count: int
    offset_sum: int
    first: int
    last: int
    size_bytes: int
    # Each offset larger than the one before it.
    is_rising: bool


def tally_rows(rows: pa.Table) -> dict[Partition, Tally]:
    """Of a table with Kafka's columns."""
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
    """Of records as they were gathered."""
    names = list(dict.fromkeys(topics))
    if len(names) == 1:
        codes = np.zeros(len(topics), dtype=np.int64)
    else:
        code_of = {name: code for code, name in enumerate(names)}
        codes = np.fromiter((code_of[t] for t in topics), np.int64, len(topics))
    return _tally(
        names,
        codes,
        np.array(partitions, dtype=np.int64),
        np.array(offsets, dtype=np.int64),
        sizes,
    )


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
    return {
        Partition(topics[place // width], place % width): tally
        for place, tally in _pieces(where, offsets, sizes, [0, *cuts.tolist(), len(where)])
    }


def _pieces(
    where: Ints, offsets: Ints, sizes: Ints | None, cuts: list[int]
) -> Iterator[tuple[int, Tally]]:
    for start, end in pairwise(cuts):
        part = offsets[start:end]
        first = int(part[0])
        yield (
            int(where[start]),
            Tally(
                count=len(part),
                # From the first on, so that the sum of a million of them fits.
                offset_sum=int((part - first).sum()) + first * len(part),
                first=first,
                last=int(part[-1]),
                size_bytes=0 if sizes is None else int(sizes[start:end].sum()),
                is_rising=bool((np.diff(part) > 0).all()),
            ),
        )
