"""The collected summary of all runs: its rows as arrays, found by run and by what they count."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.analysis import summary

Ints = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Entries:
    """Some rows of the summary, column by column."""

    at: Ints
    bucket: Ints
    entries: Ints
    total: Ints
    least: Ints
    most: Ints

    def where(self, mask: Truths | slice) -> Entries:
        return Entries(*(getattr(self, column.name)[mask] for column in fields(self)))

    @property
    def sum(self) -> int:
        return int(self.total.sum())


@dataclass(frozen=True)
class Summary:
    """The collected summary of all runs, found by run and what."""

    keys: Ints  # of run and what, rising
    rows: Entries

    @classmethod
    def of(cls, collected: Any) -> Summary:
        """From the Arrow table of `summary.counted`."""
        key, *amounts = (
            collected.column(name).to_numpy().astype(np.int64, copy=False)
            for name in ("key", "entries", "total", "least", "most")
        )
        order = np.argsort(key)
        key, amounts = key[order], [column[order] for column in amounts]
        at = (key >> summary.BUCKET_BITS) & (1 << summary.AT_BITS) - 1
        bucket = key & (1 << summary.BUCKET_BITS) - 1
        what = key >> summary.BUCKET_BITS + summary.AT_BITS
        return cls(what, Entries(at - summary.AT_ZERO, bucket, *amounts))

    def of_run(self, number: int) -> RunSummary:
        return RunSummary(self, number)

    @property
    def is_clear(self) -> bool:
        """Whether the number of copies of every message is known."""
        what = self.keys & (1 << summary.WHAT_BITS) - 1
        return not bool((what == summary.UNCLEAR).any())


@dataclass(frozen=True)
class RunSummary:
    """The rows of one run. Within one `what` they are in order of time, then of bucket."""

    whole: Summary
    number: int

    def entries(self, what: int) -> Entries:
        key = self.number << summary.WHAT_BITS | what
        first, end = np.searchsorted(self.whole.keys, (key, key + 1))
        return self.whole.rows.where(slice(int(first), int(end)))
