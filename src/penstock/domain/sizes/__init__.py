"""Sizes of messages that vary. One file per kind."""

from penstock.domain.sizes.lognormal import LognormalSizes
from penstock.domain.sizes.sizes import Sizes
from penstock.domain.sizes.uniform import UniformSizes
from penstock.domain.sizes.weighted import WeightedSizes

__all__ = ["LognormalSizes", "Sizes", "UniformSizes", "WeightedSizes"]
