"""Sizes of messages that vary. One file per kind, found by importing every module."""

from importlib import import_module
from pkgutil import iter_modules

from penstock.domain.sizes.lognormal import LognormalSizes
from penstock.domain.sizes.sizes import Sizes
from penstock.domain.sizes.uniform import UniformSizes
from penstock.domain.sizes.weighted import WeightedSizes

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["LognormalSizes", "Sizes", "UniformSizes", "WeightedSizes"]
