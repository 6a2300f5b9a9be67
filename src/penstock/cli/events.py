"""What the autoscaler has to say, for people or as a line of JSON each."""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.autoscaler.actions import Decided, Event, HandedOver, Tell
from penstock.cli import output


def show(event: Event, note: Callable[[str], None] = output.note) -> None:
    if isinstance(event, Decided):
        note(event.reason)
    elif isinstance(event, Tell):
        (output.warn if event.is_warning else note)(event.text)


def show_json(event: Event) -> None:
    if isinstance(event, Decided):
        _line(
            "decision",
            trigger=event.trigger.value,
            text=event.reason,
            lanes=event.lanes,
            moves=event.moves,
            moved_bytes_per_s=event.moved_bytes_per_s,
            plan={str(p): lane for p, lane in event.assignment.items()},
        )
    elif isinstance(event, HandedOver):
        _line("handed over", took_s=event.took_s)
    elif isinstance(event, Tell):
        _line("warning" if event.is_warning else "note", text=event.text)


def to_all(*listeners: Callable[[Event], None]) -> Callable[[Event], None]:
    def tell(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return tell


def _line(kind: str, **fields: object) -> None:
    output.emit_json_line({"event": kind, "at_ms": round(time.time() * 1000), **fields})
