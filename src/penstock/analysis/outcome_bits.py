"""The outcome of a message as one small number: packed in SQL, unpacked in numpy.

Messages with the same number are counted together, so that all counts of a run come out of one
aggregation, and each is available per slice of time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.domain.message import Acknowledgement

# By position: the number that stands for it.
OUTCOMES = (Acknowledgement.ACKNOWLEDGED, Acknowledgement.FAILED, Acknowledgement.UNKNOWN)
_TRIES_UNKNOWN, _NO_TRY, _ONE_TRY, _RETRIED = range(4)
# Bits: 2 for what the client reported, 2 for copies (0, 1, more), 2 for tries, 1 for whether it was
# sent, 1 for stale; the rest counts the limits that its latency exceeded.
_COPIES, _TRIES, _SENT, _STALE, _LATE = 2, 4, 6, 7, 8
MOST_LIMITS = 255

outcome_number = f"if(outcome = '{OUTCOMES[0]}', 0, if(outcome = '{OUTCOMES[1]}', 1, 2))"


def packed(limits_ns: Sequence[str]) -> str:
    """The number, from the columns of `latency.with_times`. Limits are columns too, and rise."""
    tried = f"(least(tries, 2) + {_NO_TRY})"
    exceeded = " + ".join(f"if(latency_ns > {limit_ns}, 1, 0)" for limit_ns in limits_ns)
    return (
        f"outcome + int(least(copies, 2L)) * {1 << _COPIES} + {tried} * {1 << _TRIES} "
        f"+ if(sent_ns < 0, 0, {1 << _SENT}) + if(persisted_ns > stale_ns, {1 << _STALE}, 0) "
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

    def has(self, word: Acknowledgement) -> npt.NDArray[np.bool_]:
        return self._has(0, 3, OUTCOMES.index(word))

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
    def never_left(self) -> npt.NDArray[np.bool_]:
        """Lost, and no request carried it."""
        return self.is_lost & self._has(_TRIES, 3, _NO_TRY)

    @property
    def is_sent_once(self) -> npt.NDArray[np.bool_]:
        return self._has(_TRIES, 3, _ONE_TRY)

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
