"""The time in which all clients work, and what they did in it. Pure.

Clients start and end one after the other; the ramps at both ends (S4's warm-up and cool-down) say
nothing about what a cluster can do with all of them, so they are cut off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.domain.errors import TestbedError
from penstock.domain.metrics import Estimate
from penstock.stats.batch_means import of_ratio

# Long against a request, short against a measurement: some dozens of slices make an interval.
SLICE_NS = 100_000_000


@dataclass(frozen=True)
class Tally:
    """What one client had done up to some moments: both numbers only grow."""

    at_ns: tuple[int, ...]
    records: tuple[int, ...]
    size_bytes: tuple[int, ...]

    @classmethod
    def of(cls, report: Mapping[str, Sequence[int]]) -> Tally:
        """From the final report of a client process."""
        return cls(tuple(report["at_ns"]), tuple(report["records"]), tuple(report["size_bytes"]))

    @property
    def works_from_ns(self) -> int | None:
        """The last moment at which it had done nothing yet."""
        busy = [i for i, n in enumerate(self.records) if n > 0]
        return self.at_ns[max(0, busy[0] - 1)] if busy else None

    @property
    def works_to_ns(self) -> int | None:
        """When it had done all it ever did."""
        for at_ns, n in zip(self.at_ns, self.records, strict=True):
            if n and n == self.records[-1]:
                return at_ns
        return None


@dataclass(frozen=True)
class Throughput:
    """What all clients did together in the time in which all of them worked."""

    from_ns: int
    to_ns: int
    mb_per_s: Estimate
    records_per_s: Estimate


def common_window(tallies: Sequence[Tally], from_ns: int, to_ns: int) -> tuple[int, int]:
    """The part of the given time in which every client worked; raises if there is none."""
    idle = [i for i, tally in enumerate(tallies, 1) if tally.works_from_ns is None]
    if idle or not tallies:
        raise TestbedError(
            f"{len(idle)} of {len(tallies)} clients did no work"
            + (f" (number {', '.join(map(str, idle))})" if idle else "")
        )
    begins = max(from_ns, *(tally.works_from_ns or 0 for tally in tallies))
    ends = min(to_ns, *(tally.works_to_ns or 0 for tally in tallies))
    if ends - begins < 4 * SLICE_NS:
        raise TestbedError(
            f"all clients worked at the same time for {max(0, ends - begins) / 1e9:.1f} s only",
            "give the experiment more `seconds`",
        )
    return begins, ends


def throughput(tallies: Sequence[Tally], from_ns: int, to_ns: int) -> Throughput:
    """Over `common_window`, with an interval from the slices of it (batch means)."""
    begins, ends = common_window(tallies, from_ns, to_ns)
    count = max(1, (ends - begins) // SLICE_NS)
    edges = np.linspace(begins, ends, count + 1)
    # Between two moments that a client wrote down, it worked evenly.
    sizes = sum(np.diff(np.interp(edges, t.at_ns, t.size_bytes)) for t in tallies)
    records = sum(np.diff(np.interp(edges, t.at_ns, t.records)) for t in tallies)
    seconds = np.diff(edges) / 1e9
    return Throughput(
        from_ns=begins,
        to_ns=ends,
        mb_per_s=of_ratio(list(np.asarray(sizes) / 1e6), list(seconds)),
        records_per_s=of_ratio(list(np.asarray(records)), list(seconds)),
    )
