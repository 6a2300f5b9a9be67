"""What a group of plain consumers does not land is reported, each thing when it begins."""

from __future__ import annotations

from penstock.autoscaler.core.actions import AutoscalerEvent, AutoscalerNotice, PartitionsUnread
from penstock.autoscaler.plain_watch import PlainWatch
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.pipeline import Pipeline, Stream

A, B = Partition("t", 0), Partition("t", 1)


def watch() -> PlainWatch:
    streams = (Stream(topics=("t",), table="t"),)
    return PlainWatch(Pipeline(name="p", bootstrap_servers="x:1", streams=streams, lake="lake"))


def texts(events: list[AutoscalerEvent]) -> list[str]:
    return [event.text for event in events if isinstance(event, AutoscalerNotice)]


def test_stalls_are_reported_when_they_begin_and_when_all_are_over() -> None:
    it = watch()
    assert it.on_look({}, ()) == [PartitionsUnread(stalled=0, skipped=0)]
    first = it.on_look({A: 1000.0}, ())
    assert first[0] == PartitionsUnread(stalled=1, skipped=0)
    (text,) = texts(first)
    assert text.startswith("t-0 cannot be read since ")
    assert texts(it.on_look({A: 1000.0}, ())) == []
    (text,) = texts(it.on_look({A: 1000.0, B: 1005.0}, ()))
    assert text.startswith("t-1 cannot be read since ")
    assert texts(it.on_look({B: 1005.0}, ())) == []
    assert texts(it.on_look({}, ())) == ["all partitions can be read again"]
    assert texts(it.on_look({}, ())) == []


def test_topics_that_are_left_out_are_reported_once() -> None:
    it = watch()
    events = it.on_look({}, ("__consumer_offsets",))
    assert events[0] == PartitionsUnread(stalled=0, skipped=1)
    assert "__consumer_offsets" in texts(events)[0]
    assert texts(it.on_look({}, ("__consumer_offsets",))) == []
