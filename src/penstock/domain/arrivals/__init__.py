"""Load shapes: when messages are due. One file per kind.

The kinds are found by importing every module of this package, so a new one is one new file.
"""

from importlib import import_module
from pkgutil import iter_modules

from penstock.domain.arrivals.arrivals import Arrivals
from penstock.domain.arrivals.bursts import BurstArrivals
from penstock.domain.arrivals.constant import ConstantArrivals
from penstock.domain.arrivals.poisson import PoissonArrivals
from penstock.domain.arrivals.recorded import RecordedArrivals

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = [
    "Arrivals",
    "BurstArrivals",
    "ConstantArrivals",
    "PoissonArrivals",
    "RecordedArrivals",
]
