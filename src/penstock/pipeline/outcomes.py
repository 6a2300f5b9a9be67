"""What became of a message, as one small number: packed in Spark, taken apart again in numpy.

Messages with the same number are counted together, so that all counts of a run come out of one
aggregation, and any of them can be had per slice of time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock.domain.message import Acknowledgement

# By position: the number that stands for it.
TOLD = tuple(Acknowledgement)
_NO_TRIES, _ONE_TRY, _RETRIED = range(3)
# Bits: 2 for what the client said, 2 for copies (0, 1, more), 2 for tries, 1 for whether it was
# sent, 1 for stale; the rest counts the limits that its latency exceeded.
_COPIES, _TRIES, _SENT, _STALE, _LATE = 2, 4, 6, 7, 8


def told_number(told: Column) -> Column:
    """The word of the trace as its place in `TOLD`."""
    number = F.when(told == str(TOLD[0]), 0)
    for place, word in enumerate(TOLD[1:], 1):
        number = number.when(told == str(word), place)
    return number.cast("int")


def packed(
    *,
    told: Column,
    copies: Column,
    tries: Column,
    is_sent: Column,
    latency_ns: Column,
    stale_ns: Column,
    limits_ns: Sequence[Column],
) -> Column:
    """The number. `limits_ns` rise; a latency exceeds a limit if it is more."""
    tried = F.when(tries.isNull(), _NO_TRIES).when(tries > 1, _RETRIED).otherwise(_ONE_TRY)
    late = F.lit(0)
    for limit_ns in limits_ns:
        late = late + _bit(latency_ns > limit_ns)
    return (
        told
        + F.least(copies, F.lit(2)).cast("int") * (1 << _COPIES)
        + tried * (1 << _TRIES)
        + _bit(is_sent) * (1 << _SENT)
        + _bit(latency_ns > stale_ns) * (1 << _STALE)
        + late * (1 << _LATE)
    )


def _bit(condition: Column) -> Column:
    """Not true is 0, and so is unknown."""
    return F.when(condition, 1).otherwise(0)


@dataclass(frozen=True)
class Outcomes:
    """Many such numbers, taken apart: one array of truth values for each question."""

    numbers: npt.NDArray[np.int64]

    @property
    def is_sent(self) -> npt.NDArray[np.bool_]:
        return self._has(_SENT, 1, 1)

    def was_told(self, word: Acknowledgement) -> npt.NDArray[np.bool_]:
        return self._has(0, 3, TOLD.index(word))

    @property
    def is_lost(self) -> npt.NDArray[np.bool_]:
        return self._has(_COPIES, 3, 0)

    @property
    def is_delivered(self) -> npt.NDArray[np.bool_]:
        """Once."""
        return self._has(_COPIES, 3, 1)

    @property
    def is_duplicated(self) -> npt.NDArray[np.bool_]:
        return self._has(_COPIES, 3, 2)

    @property
    def has_tries(self) -> npt.NDArray[np.bool_]:
        return ~self._has(_TRIES, 3, _NO_TRIES)

    @property
    def is_retried(self) -> npt.NDArray[np.bool_]:
        return self._has(_TRIES, 3, _RETRIED)

    @property
    def is_stale(self) -> npt.NDArray[np.bool_]:
        return self._has(_STALE, 1, 1)

    def exceeds(self, limit: int) -> npt.NDArray[np.bool_]:
        """Whether the latency is above the limit of this place in the rising row of limits."""
        return np.asarray((self.numbers >> _LATE) > limit)

    def _has(self, shift: int, mask: int, value: int) -> npt.NDArray[np.bool_]:
        return np.asarray((self.numbers >> shift) & mask == value)
