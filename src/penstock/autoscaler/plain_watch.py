"""Warnings for a group of plain consumers: too many rejects, partitions that cannot be read, topics
that are not landed. A pipeline on Spark reports these itself. Pure."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from penstock.autoscaler.core.actions import (
    AutoscalerEvent,
    AutoscalerNotice,
    PartitionsUnread,
    warning,
)
from penstock.domain.autoscaling import HostAnswer
from penstock.domain.errors import TooManyRejects
from penstock.domain.lake.partition import Partition, listed
from penstock.domain.lake.pipeline import Pipeline
from penstock.lake.rejects import RejectWatch


class PlainWatch:
    """Reports each problem when it begins. Clocks are passed in."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._rejects = RejectWatch(pipeline)
        self._stalled: frozenset[Partition] = frozenset()
        self._skipped: frozenset[str] = frozenset()

    def on_answer(self, answer: HostAnswer, now_s: float) -> list[AutoscalerEvent]:
        """Raises `TooManyRejects` above `rejects_stop_share`."""
        events: list[AutoscalerEvent] = []
        for cycle in answer.cycles:
            alarm = self._rejects.add(cycle.records, cycle.rejects, now_s)
            if alarm is not None and alarm.must_stop:
                raise TooManyRejects(alarm.message, f"{alarm.fix}, then start it again")
            if alarm is not None:
                events.append(warning(f"{alarm.message}; {alarm.fix}"))
        return events

    def on_look(
        self, stalled: Mapping[Partition, float], skipped: Collection[str]
    ) -> list[AutoscalerEvent]:
        """`stalled`: partitions that have not answered for a while, each with the time since."""
        events: list[AutoscalerEvent] = [
            PartitionsUnread(stalled=len(stalled), skipped=len(skipped))
        ]
        if new := stalled.keys() - self._stalled:
            since = time.strftime("%H:%M:%S", time.localtime(min(stalled[p] for p in new)))
            text = (
                f"{listed(new)} cannot be read since {since}: check the brokers that have replicas of "
                "it; the other partitions are still read"
            )
            events.append(warning(text))
        if self._stalled and not stalled:
            events.append(AutoscalerNotice("all partitions can be read again"))
        if left_out := sorted(set(skipped) - self._skipped):
            text = (
                f"not landed, though `topics` names or matches it: {', '.join(left_out)} "
                "(Kafka's own topics and the autoscaler's are skipped)"
            )
            events.append(warning(text))
        self._stalled, self._skipped = frozenset(stalled), frozenset(skipped)
        return events
