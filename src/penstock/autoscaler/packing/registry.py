"""The packing algorithms by name."""

from __future__ import annotations

from collections.abc import Callable

from penstock.autoscaler.packing.problem import Pack
from penstock.domain.errors import BadInput

_known: dict[str, Pack] = {}


def packs(name: str) -> Callable[[Pack], Pack]:
    """Registers an algorithm under a name."""

    def register(pack: Pack) -> Pack:
        assert name not in _known, f"two algorithms are called {name}"
        _known[name] = pack
        return pack

    return register


def names() -> tuple[str, ...]:
    return tuple(_known)


def algorithm(name: str) -> Pack:
    try:
        return _known[name]
    except KeyError:
        raise BadInput(
            f"there is no packing algorithm {name!r}", f"choose one of {', '.join(_known)}"
        ) from None
