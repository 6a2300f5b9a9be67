"""What brokers and clients did and used in a time, from what the sampler wrote (`sampling`)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from penstock.domain.broker_view import (
    BrokerCounters,
    BrokerRates,
    BrokerView,
    KafkaHistogram,
    ProcessUse,
    RequestClass,
    RequestTimes,
    rates,
)
from penstock.domain.errors import TestbedError
from penstock.runs.sampling import BROKERS, CLIENTS, ClientView
from penstock.specs.files import read_text

V = TypeVar("V", BrokerView, ClientView)
Json = Mapping[str, Any]


def broker_rates(directory: Path, from_ns: int, to_ns: int) -> dict[int, BrokerRates]:
    """Broker → its rates in the time, widened to the views around it; none without such views."""
    rates_by_broker: dict[int, BrokerRates] = {}
    for number, views in _grouped(_views(directory / BROKERS, _broker_view), "broker").items():
        during = _during([view for view in views if view.own is not None], from_ns, to_ns)
        if during and (one := rates(during[0], during[-1])) is not None:
            rates_by_broker[int(number)] = one
    return rates_by_broker


def young_bytes(directory: Path) -> int:
    """The largest young generation of a broker; 0 if it is not known."""
    views = _views(directory / BROKERS, _broker_view)
    return max((view.own.young_bytes for view in views if view.own), default=0)


def client_cores(directory: Path, from_ns: int, to_ns: int) -> dict[str, float]:
    """Client (producer-1, consumer-1, …) → cores that it used."""
    clients = _grouped(_views(directory / CLIENTS, _client_view), "client")
    return {
        name: _used([during])["cpu_cores"]
        for name, views in clients.items()
        if (during := [(v.at_ns, v.use) for v in _during(views, from_ns, to_ns)])
    }


def usage(directory: Path, from_ns: int, to_ns: int) -> dict[str, float]:
    """What all brokers and all clients used: CPU, disk, handles and memory."""
    brokers = _grouped(_views(directory / BROKERS, _broker_view), "broker").values()
    clients = _grouped(_views(directory / CLIENTS, _client_view), "client").values()
    with_use = [[view for view in views if view.process is not None] for views in brokers]
    uses = {
        "broker": [
            [(view.at_ns, view.process) for view in _during(views, from_ns, to_ns) if view.process]
            for views in with_use
        ],
        "client": [
            [(view.at_ns, view.use) for view in _during(views, from_ns, to_ns)] for views in clients
        ],
    }
    return {
        f"{who}_{name}": value
        for who, every in uses.items()
        for name, value in _used(every).items()
    }


def replication_ms(directory: Path, from_ns: int, to_ns: int) -> float | None:
    """How long a request with acks=all waited for the other replicas, as the leaders measured it.

    The mean over all requests of all brokers. Kafka counts whole milliseconds, rounded, which the
    mean over many evens out. None if there was no such request, or brokers were not observed.
    """
    produce = [
        one.requests[RequestClass.PRODUCE]
        for one in broker_rates(directory, from_ns, to_ns).values()
    ]
    waited = [(one.per_s, one.remote_ms) for one in produce if one.remote_ms is not None]
    per_s = sum(rate for rate, _ in waited)
    return sum(rate * ms for rate, ms in waited) / per_s if per_s else None


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


def _own(data: Json) -> BrokerCounters:
    requests = {
        RequestClass(kind): RequestTimes(
            **{phase: KafkaHistogram(**t) for phase, t in phases.items()}
        )
        for kind, phases in data["requests"].items()
    }
    return BrokerCounters(**{**data, "requests": requests})


def _client_view(data: Json) -> ClientView:
    return ClientView(**{**data, "use": ProcessUse(**data["use"])})


def _grouped(views: Iterable[V], name: str) -> dict[str, list[V]]:
    grouped: dict[str, list[V]] = defaultdict(list)
    for view in views:
        grouped[str(getattr(view, name))].append(view)
    return grouped


def _during(views: Sequence[V], from_ns: int, to_ns: int) -> list[V]:
    """From the last view before the time to the first after it, as far as there are such; none if
    there is no time between them."""
    begin = max((view.at_ns for view in views if view.at_ns <= from_ns), default=from_ns)
    end = min((view.at_ns for view in views if view.at_ns >= to_ns), default=to_ns)
    during = [view for view in views if begin <= view.at_ns <= end]
    return during if during and during[-1].at_ns > during[0].at_ns else []


def _used(processes: Sequence[Sequence[tuple[int, ProcessUse]]]) -> dict[str, float]:
    """Summed over the processes, but for handles: those of the process that has most."""
    cores = written = read = 0.0
    handles = resident = 0
    for looks in processes:
        if not looks:
            continue
        (begin_ns, then), (end_ns, now) = looks[0], looks[-1]
        seconds = (end_ns - begin_ns) / 1e9
        cores += (now.cpu_s - then.cpu_s) / seconds
        written += (now.disk_written_bytes - then.disk_written_bytes) / seconds / 1e6
        read += (now.disk_read_bytes - then.disk_read_bytes) / seconds / 1e6
        # A process that is ending has let go of them already, so not those of the last look.
        handles = max(handles, *(use.open_handles for _, use in looks))
        resident += max(use.resident_bytes for _, use in looks)
    return {
        "cpu_cores": cores,
        "disk_written_mb_per_s": written,
        "disk_read_mb_per_s": read,
        "open_handles": float(handles),
        "resident_mb": resident / 1e6,
    }
