"""Reads from a run directory what brokers and clients did in the measured time."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from penstock.domain.broker_view import (
    BrokerRates,
    BrokerView,
    OwnCounters,
    ProcessUse,
    RequestClass,
    RequestTimes,
    Times,
    rates,
)
from penstock.domain.errors import TestbedError
from penstock.runs.sampling import BROKERS, CLIENTS, ClientView
from penstock.specs.files import read_text

V = TypeVar("V", BrokerView, ClientView)
Json = Mapping[str, Any]


def broker_rates(directory: Path, from_ns: int, to_ns: int) -> dict[int, BrokerRates]:
    """Broker → its rates in the time, widened to the views around it; none without such views."""
    found: dict[int, BrokerRates] = {}
    for number, views in _grouped(_views(directory / BROKERS, _broker_view), "broker").items():
        own = [view for view in views if view.own is not None]
        if (around := _around(own, from_ns, to_ns)) and (one := rates(*around)) is not None:
            found[int(number)] = one
    return found


def young_bytes(directory: Path) -> int:
    """The largest young generation of a broker; 0 if it is not known."""
    views = _views(directory / BROKERS, _broker_view)
    return max((view.own.young_bytes for view in views if view.own), default=0)


def client_cores(directory: Path, from_ns: int, to_ns: int) -> dict[str, float]:
    """Client (producer-1, consumer-1, …) → cores that it used."""
    cores: dict[str, float] = {}
    for name, views in _grouped(_views(directory / CLIENTS, _client_view), "client").items():
        if around := _around(views, from_ns, to_ns):
            first, last = around
            cores[name] = (last.use.cpu_s - first.use.cpu_s) / ((last.at_ns - first.at_ns) / 1e9)
    return cores


def _views(path: Path, read: Callable[[Json], V]) -> list[V]:
    if not path.exists():
        return []
    try:
        return [read(view) for view in json.loads(read_text(path))]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TestbedError(f"{path}: cannot be read: {error}", "run it again") from None


def _broker_view(data: Json) -> BrokerView:
    own, process = data.get("own"), data.get("process")
    return BrokerView(
        broker=data["broker"],
        at_ns=data["at_ns"],
        state=data["state"],
        process=ProcessUse(**process) if process else None,
        own=_own(own) if own else None,
    )


def _own(data: Json) -> OwnCounters:
    requests = {
        RequestClass(kind): RequestTimes(**{phase: Times(**t) for phase, t in phases.items()})
        for kind, phases in data["requests"].items()
    }
    return OwnCounters(**{**data, "requests": requests})


def _client_view(data: Json) -> ClientView:
    return ClientView(**{**data, "use": ProcessUse(**data["use"])})


def _grouped(views: Iterable[V], name: str) -> dict[str, list[V]]:
    grouped: dict[str, list[V]] = defaultdict(list)
    for view in views:
        grouped[str(getattr(view, name))].append(view)
    return grouped


def _around(views: Sequence[V], from_ns: int, to_ns: int) -> tuple[V, V] | None:
    """The last view before the time and the first after it, as far as there are such."""
    before = [view for view in views if view.at_ns <= from_ns]
    after = [view for view in views if view.at_ns >= to_ns]
    if not views:
        return None
    first, last = before[-1] if before else views[0], after[0] if after else views[-1]
    return (first, last) if last.at_ns > first.at_ns else None
