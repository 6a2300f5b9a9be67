"""Messages at recorded times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, pairwise
from random import Random
from typing import Annotated

from penstock.domain.arrivals.arrivals import Arrivals
from penstock.domain.value import Bound, Doc, FieldError


@dataclass(frozen=True, kw_only=True)
class RecordedArrivals(Arrivals):
    """Recorded times, played back in a loop.

    The run reads the file (`with_times`); this only names it.
    """

    kind = "recorded"
    file: Annotated[str | None, Doc("a text file with one time in seconds per line")] = None
    at_s: Annotated[tuple[float, ...], Doc("or the times themselves")] = ()
    speed: Annotated[float, Bound(gt=0), Doc("2 plays it back in half the time")] = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(bool(self.file or self.at_s), "file", "must be given, or `at_s`")
        for before, after in pairwise(self.at_s):
            if after < before:
                fix = f"must not be earlier than the time before it ({before:g})"
                raise FieldError("at_s", after, fix)

    def with_times(self, times: Sequence[float]) -> RecordedArrivals:
        """A copy with the times of its file."""
        if not times:
            raise FieldError("file", self.file, "has no times in it")
        return replace(self, at_s=tuple(times))

    def times_s(self, rng: Random) -> Iterator[float]:
        first, period = self._times()[0], self._period_s
        return chain.from_iterable(
            ((t - first + lap * period) / self.speed for t in self.at_s) for lap in count()
        )

    @property
    def mean_per_s(self) -> float:
        return len(self._times()) / self._period_s * self.speed

    @property
    def _period_s(self) -> float:
        """The mean gap of the recording separates its end from its next start."""
        times = self._times()
        length = times[-1] - times[0]
        return length + length / (len(times) - 1) if length > 0 else 1.0

    def _times(self) -> tuple[float, ...]:
        if not self.at_s:
            raise FieldError("file", self.file, "has not been read yet")
        return self.at_s
