"""What became of a message, as one small number: packed in SQL, taken apart again in numpy.

Messages with the same number are counted together, so that all counts of a run come out of one
aggregation, and any of them can be had per slice of time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.domain.message import Acknowledgement

# By position: the number that stands for it.
TOLD = (Acknowledgement.ACKNOWLEDGED, Acknowledgement.FAILED, Acknowledgement.UNKNOWN)
_NO_TRIES, _ONE_TRY, _RETRIED = range(3)
# Bits: 2 for what the client said, 2 for copies (0, 1, more), 2 for tries, 1 for whether it was
# sent, 1 for stale; the rest counts the limits that its latency exceeded.
_COPIES, _TRIES, _SENT, _STALE, _LATE = 2, 4, 6, 7, 8
MOST_LIMITS = 255

told_number = f"if(told = '{TOLD[0]}', 0, if(told = '{TOLD[1]}', 1, 2))"


def packed(limits_ns: Sequence[str]) -> str:
    """The number, from the columns of `latency.with_times`. Limits are columns too, and rise."""
    tried = f"if(tries < 0, {_NO_TRIES}, if(tries > 1, {_RETRIED}, {_ONE_TRY}))"
    exceeded = " + ".join(f"if(latency_ns > {limit_ns}, 1, 0)" for limit_ns in limits_ns)
    return (
        f"told + int(least(copies, 2L)) * {1 << _COPIES} + {tried} * {1 << _TRIES} "
        f"+ if(sent_ns < 0, 0, {1 << _SENT}) + if(latency_ns > stale_ns, {1 << _STALE}, 0) "
        f"+ ({exceeded}) * {1 << _LATE}"
    )


def late(packed_number: str) -> str:
    """How many of the limits the latency exceeded, from the number."""
    return f"shiftright({packed_number}, {_LATE})"


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
