"""Load shapes: when messages are due. One file per kind.

A new one is one new file here (`domain.plugins`).
"""

from penstock.domain.arrivals.arrivals import Arrivals
from penstock.domain.arrivals.bursts import BurstArrivals
from penstock.domain.arrivals.constant import ConstantArrivals
from penstock.domain.arrivals.poisson import PoissonArrivals
from penstock.domain.arrivals.recorded import RecordedArrivals

__all__ = ["Arrivals", "BurstArrivals", "ConstantArrivals", "PoissonArrivals", "RecordedArrivals"]
