"""Watches the share of records rejected in the last minute, and raises alarms. Pure."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.domain.lake.pipeline import Pipeline

_WINDOW_S = 60.0
# A single record must not stop a pipeline, even if it is the only one of a minute.
_LEAST_TO_STOP = 20
_MOST_KINDS = 3


@dataclass(frozen=True)
class RejectAlarm:
    """A warning. `must_stop`: the pipeline must not begin another micro-batch."""

    message: str
    fix: str
    must_stop: bool


@dataclass(frozen=True)
class _Part:
    at_s: float
    records: int
    rejects: Mapping[str, int]


@dataclass
class RejectWatch:
    """Sums up landed records; raises an alarm once, and again only after the share was low."""

    pipeline: Pipeline
    _recent: deque[_Part] = field(default_factory=deque)
    _is_high: bool = False

    def add(self, records: int, rejects: Mapping[str, int], now_s: float) -> RejectAlarm | None:
        """Add a micro-batch: the number of records read, and of rejects by kind."""
        self._recent.append(_Part(now_s, records, rejects))
        while now_s - self._recent[0].at_s > _WINDOW_S:
            self._recent.popleft()
        return self._judge()

    def _judge(self) -> RejectAlarm | None:
        kinds: Counter[str] = Counter()
        for part in self._recent:
            kinds.update(part.rejects)
        records, rejected = sum(part.records for part in self._recent), kinds.total()
        share = rejected / records if records else 0.0
        pipeline = self.pipeline
        message = (
            f"{rejected:,} of the {records:,} records of the last minute were rejected "
            f"({share:.2%}): {top(kinds)}"
        )
        fix = f"see the column `reason` of {pipeline.rejects_table}; correct the decoder or the producer"
        stop = pipeline.rejects_stop_share
        if stop is not None and share > stop and rejected >= _LEAST_TO_STOP:
            return RejectAlarm(
                f"{message}; `rejects_stop_share` is {stop:.2%}", fix, must_stop=True
            )
        was_high = self._is_high
        if share > pipeline.rejects_warn_share:
            self._is_high = True
        elif share <= pipeline.rejects_warn_share / 2:  # otherwise it would warn again and again
            self._is_high = False
        return (
            RejectAlarm(message, fix, must_stop=False) if self._is_high and not was_high else None
        )


def top(kinds: Mapping[str, int]) -> str:
    """The most frequent kinds, for messages."""
    texts = [f"{count:,} {kind}" for kind, count in Counter(kinds).most_common(_MOST_KINDS)]
    return ", ".join([*texts, "…"] if len(kinds) > _MOST_KINDS else texts)
