"""What brokers and clients used in a time, from what the sampler wrote. Pure but for reading it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.domain.broker_view import RequestClass
from penstock.domain.errors import TestbedError
from penstock.runs.sampling import BROKERS, CLIENTS

Json = Mapping[str, Any]


def usage(directory: Path, from_ns: int, to_ns: int) -> dict[str, float]:
    """Figures of the brokers and of the clients. The time is widened to the looks around it."""
    brokers = _read(directory / BROKERS)
    clients = _read(directory / CLIENTS)
    return {
        **_uses("broker", _by("broker", brokers), "process", from_ns, to_ns),
        **_uses("client", _by("client", clients), "use", from_ns, to_ns),
    }


def replication_ms(directory: Path, from_ns: int, to_ns: int) -> float | None:
    """How long a request with acks=all waited for the other copies, as the leaders measured it.

    The mean over all requests of all brokers. Kafka counts whole milliseconds, rounded, which the
    mean over many evens out. None if there was no such request, or brokers were not observed.
    """
    waited = requests = 0.0
    for looks in _by("broker", _read(directory / BROKERS)).values():
        own = [look for look in looks if look.get("own")]
        first, last = _around(own, from_ns, to_ns)
        if first is None or last is None:
            continue
        then, now = (
            look["own"]["requests"][RequestClass.PRODUCE]["remote"] for look in (first, last)
        )
        requests += now["count"] - then["count"]
        waited += now["mean_ms"] * now["count"] - then["mean_ms"] * then["count"]
    return max(0.0, waited / requests) if requests else None


def _uses(
    who: str, looks: Mapping[object, Sequence[Json]], part: str, from_ns: int, to_ns: int
) -> dict[str, float]:
    """Summed over the processes, but for handles: those of the process that has most."""
    cores = written = read = 0.0
    handles = resident = 0
    for of_one in looks.values():
        known = [look for look in of_one if look.get(part)]
        first, last = _around(known, from_ns, to_ns)
        if first is None or last is None:
            continue
        seconds = (last["at_ns"] - first["at_ns"]) / 1e9
        then, now = first[part], last[part]
        cores += (now["cpu_s"] - then["cpu_s"]) / seconds
        written += (now["disk_written_bytes"] - then["disk_written_bytes"]) / seconds / 1e6
        read += (now["disk_read_bytes"] - then["disk_read_bytes"]) / seconds / 1e6
        # A process that is ending has let go of them already, so not those of the last look.
        seen = [look[part] for look in known if first["at_ns"] <= look["at_ns"] <= last["at_ns"]]
        handles = max(handles, *(look["open_handles"] for look in seen))
        resident += max(look["resident_bytes"] for look in seen)
    return {
        f"{who}_cpu_cores": cores,
        f"{who}_disk_written_mb_per_s": written,
        f"{who}_disk_read_mb_per_s": read,
        f"{who}_open_handles": float(handles),
        f"{who}_resident_mb": resident / 1e6,
    }


def _around(looks: Sequence[Json], from_ns: int, to_ns: int) -> tuple[Json | None, Json | None]:
    """The last look before the time and the first after it, as far as there are such."""
    if len(looks) < 2:
        return None, None
    before = [look for look in looks if look["at_ns"] <= from_ns]
    after = [look for look in looks if look["at_ns"] >= to_ns]
    first, last = (before or looks)[-1 if before else 0], (after or looks)[0 if after else -1]
    return (first, last) if last["at_ns"] > first["at_ns"] else (None, None)


def _by(name: str, looks: Sequence[Json]) -> dict[object, list[Json]]:
    grouped: dict[object, list[Json]] = defaultdict(list)
    for look in looks:
        grouped[look[name]].append(look)
    return grouped


def _read(path: Path) -> list[Json]:
    if not path.exists():
        return []
    try:
        looks: list[Json] = json.loads(path.read_text())
    except ValueError as error:
        raise TestbedError(f"{path}: cannot be read: {error}") from None
    return looks
