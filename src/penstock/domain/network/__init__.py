"""Network conditions: what a link does to packets. One file per kind of delay and of loss.

The kinds are found by importing every module of this package, so a new one is one new file.
"""

from importlib import import_module
from pkgutil import iter_modules

from penstock.domain.network.condition import (
    Cut,
    Link,
    LinkCondition,
    NetworkSpec,
    NetworkTrace,
    TraceStep,
)
from penstock.domain.network.delay import Delay
from penstock.domain.network.loss import Loss

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = [
    "Cut",
    "Delay",
    "Link",
    "LinkCondition",
    "Loss",
    "NetworkSpec",
    "NetworkTrace",
    "TraceStep",
]
