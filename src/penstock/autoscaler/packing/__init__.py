"""Which partition on which lane, as bins that are packed again while sizes change. Pure.

The algorithms are found by importing every module of this package, so a new one is one new file
that registers its name.
"""

from importlib import import_module
from pkgutil import iter_modules

from penstock.autoscaler.packing.problem import Assignment, Pack, Problem
from penstock.autoscaler.packing.registry import algorithm, names

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["Assignment", "Pack", "Problem", "algorithm", "names"]
