"""The packing algorithms by name."""

from __future__ import annotations

from penstock.autoscaler.packing.problem import Pack
from penstock.autoscaler.registry import Registry

_algorithms: Registry[Pack] = Registry("autoscaling.algorithm")
packs, names, algorithm = _algorithms.add, _algorithms.names, _algorithms.get
