"""Events of the autoscaler, as text or as one line of JSON each."""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.autoscaler.core.actions import (
    AutoscalerEvent,
    AutoscalerNotice,
    LanesDecided,
    LanesHandedOver,
)
from penstock.cli import output


def show(event: AutoscalerEvent, note: Callable[[str], None] = output.note) -> None:
    if isinstance(event, LanesDecided):
        note(event.reason)
    elif isinstance(event, AutoscalerNotice):
        (output.warn if event.is_warning else note)(event.text)


def show_json(event: AutoscalerEvent) -> None:
    if isinstance(event, LanesDecided):
        _line(
            "decision",
            trigger=event.trigger.value,
            text=event.reason,
            lanes=event.lanes,
            moves=event.moves,
            moved_bytes_per_s=event.moved_bytes_per_s,
            plan={str(p): lane for p, lane in event.assignment.items()},
        )
    elif isinstance(event, LanesHandedOver):
        _line("handed over", took_s=event.took_s)
    elif isinstance(event, AutoscalerNotice):
        _line("warning" if event.is_warning else "note", text=event.text)


def _line(kind: str, **fields: object) -> None:
    output.emit_json_line({"event": kind, "at_ms": round(time.time() * 1000), **fields})
