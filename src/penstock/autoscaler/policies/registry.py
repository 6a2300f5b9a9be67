"""The policies by name."""

from __future__ import annotations

from collections.abc import Callable

from penstock.autoscaler.registry import Registry
from penstock.autoscaler.view import Policy
from penstock.domain.autoscaling import Autoscaling

Make = Callable[[Autoscaling], Policy]
_policies: Registry[Make] = Registry("autoscaling.policy")
decides, names = _policies.add, _policies.names


def policy(settings: Autoscaling) -> Policy:
    return _policies.get(settings.policy)(settings)
