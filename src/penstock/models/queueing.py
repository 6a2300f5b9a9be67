"""M/PH/1: one server, Poisson arrivals, phase-type service times, first come first served.

Symbols (S0, 3.1 and 4.2.4):

    λ       arrivals per unit of time
    π, D    initial vector and generator of the service time S (`PhaseType`)
    e       the vector of ones
    ρ       λ·E[S], the share of time in which the server is busy
    M       λ·(λI − λeπ − D)⁻¹; x₀ = 1 − ρ
    E[N]    x₀·π·M·(I − M)⁻²·e, requests in the system; E[R] = E[N]/λ, their time in it (Little)

Assumptions: arrivals are Poisson and single, service times are independent of each other and of
arrivals, the queue is unlimited. A batched producer fulfils none of these (its requests are few,
regular and limited in flight); the document's model is kept to be compared with.
Valid for ρ < 1. The document finds means within 10 % if requests are more than 0.4 s apart.

The distribution is not in the document. A request that finds the server busy waits for a residual
service time, and with probability ρ for another one, and so on: a geometric sum of equilibrium
residuals, PH(π(−D)⁻¹/E[S], D). So waiting time and time in the system are phase-type again
(Asmussen, Applied Probability and Queues, III.5 and VIII.5).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.domain.errors import BadInput
from penstock.domain.value import FieldError
from penstock.stats.distributions import PhaseType


@dataclass(frozen=True)
class QueueMPh1:
    """An M/PH/1 queue in equilibrium. Times have the unit of `service`."""

    arrivals_per_unit: float
    service: PhaseType

    def __post_init__(self) -> None:
        if not 0 < self.arrivals_per_unit < np.inf:
            raise FieldError("arrivals_per_unit", self.arrivals_per_unit, "must be above 0")
        if self.load >= 1:
            raise BadInput(
                f"the queue grows without bound: {self.arrivals_per_unit:g} requests arrive per "
                f"unit of time, and {1 / self.service.mean:g} can be served",
                f"offer less than {1 / self.service.mean:g}, or serve faster",
            )

    @property
    def load(self) -> float:
        """ρ."""
        return self.arrivals_per_unit * self.service.mean

    @property
    def mean_requests(self) -> float:
        """E[N], by the document's formula."""
        size = self.service.initial.size
        eye, ones = np.eye(size), np.ones(size)
        rate = self.arrivals_per_unit
        back = np.outer(ones, self.service.initial)
        ratio = rate * np.linalg.inv(rate * eye - rate * back - self.service.generator)
        sums = np.linalg.inv(eye - ratio)
        return (1 - self.load) * float(self.service.initial @ ratio @ sums @ sums @ ones)

    @property
    def mean_time(self) -> float:
        """E[R], from arrival to the end of service."""
        return self.mean_requests / self.arrivals_per_unit

    @property
    def waiting(self) -> PhaseType:
        """The time from arrival to the start of service; 0 with probability 1 − ρ."""
        return PhaseType(self._start_busy, self._waiting_generator)

    @property
    def sojourn(self) -> PhaseType:
        """The time from arrival to the end of service: percentiles, and the violation rate `sf`."""
        service, size = self.service, self.service.initial.size
        generator = np.zeros((2 * size, 2 * size))
        generator[:size, :size] = self._waiting_generator
        generator[:size, size:] = (1 - self.load) * np.outer(service.exit_rates, service.initial)
        generator[size:, size:] = service.generator
        initial = np.concatenate([self._start_busy, (1 - self.load) * service.initial])
        return PhaseType(initial, generator)

    @property
    def _start_busy(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """ρ times the initial vector of the residual service time."""
        residual = np.linalg.solve(-self.service.generator.T, self.service.initial)
        return np.asarray(self.load * residual / residual.sum())

    @property
    def _waiting_generator(self) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        return np.asarray(
            self.service.generator + np.outer(self.service.exit_rates, self._start_busy)
        )


def pollaczek_khinchine(arrivals_per_unit: float, mean: float, second_moment: float) -> float:
    """The mean time in an M/G/1 queue, whatever the service times: E[S] + λE[S²] / (2(1 − ρ))."""
    load = arrivals_per_unit * mean
    if not 0 <= load < 1:
        raise FieldError("arrivals_per_unit", arrivals_per_unit, f"must be below {1 / mean:g}")
    return mean + arrivals_per_unit * second_moment / (2 * (1 - load))
