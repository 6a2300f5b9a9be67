"""The policies by name."""

from __future__ import annotations

from collections.abc import Callable

from penstock.autoscaler.view import Policy
from penstock.domain.autoscaling import Autoscaling
from penstock.domain.errors import BadInput

Make = Callable[[Autoscaling], Policy]
_known: dict[str, Make] = {}


def decides(name: str) -> Callable[[Make], Make]:
    """Registers a policy under a name."""

    def register(make: Make) -> Make:
        assert name not in _known, f"two policies are called {name}"
        _known[name] = make
        return make

    return register


def names() -> tuple[str, ...]:
    return tuple(_known)


def policy(settings: Autoscaling) -> Policy:
    try:
        return _known[settings.policy](settings)
    except KeyError:
        raise BadInput(
            f"autoscaling.policy: there is none called {settings.policy!r}",
            f"choose one of {', '.join(_known)}",
        ) from None
