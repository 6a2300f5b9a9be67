"""Hyper-Erlang: a mixture of Erlang distributions, one branch each.

Dense in the distributions on (0, ∞): with enough branches and phases it comes as close as one wants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy import special

from penstock.stats.distributions.common import gamma_density
from penstock.stats.distributions.law import Floats, Law, positive, times
from penstock.stats.distributions.phase_type import PhaseType


@dataclass(frozen=True)
class HyperErlang(Law):
    """Branch i is taken with `probabilities[i]`: `phases[i]` exponential times of `rates[i]`."""

    probabilities: tuple[float, ...]
    phases: tuple[int, ...]
    rates: tuple[float, ...]

    def __post_init__(self) -> None:
        if not 0 < len(self.probabilities) == len(self.phases) == len(self.rates):
            raise ValueError("probabilities, phases and rates must have one entry per branch")
        for probability, phases, rate in self._branches:
            if phases != int(phases):
                raise ValueError(f"phases must be whole numbers, not {phases!r}")
            positive(probability=probability, phases=phases, rate=rate)
        # Published tables are rounded.
        if abs(sum(self.probabilities) - 1) > 1e-4:
            raise ValueError(f"probabilities must add up to 1, not {sum(self.probabilities)!r}")
        total = sum(self.probabilities)
        object.__setattr__(self, "probabilities", tuple(p / total for p in self.probabilities))
        object.__setattr__(self, "phases", tuple(int(n) for n in self.phases))

    @classmethod
    def erlang(cls, phases: int, rate: float) -> Self:
        """An Erlang distribution: one branch."""
        return cls((1.0,), (phases,), (rate,))

    @property
    def _branches(self) -> list[tuple[float, int, float]]:
        return list(zip(self.probabilities, self.phases, self.rates, strict=True))

    @property
    def parameters(self) -> int:
        # Of each branch its probability, phases and rate; the probabilities add up to one.
        return 3 * len(self.phases) - 1

    def pdf(self, x: npt.ArrayLike) -> Floats:
        at = times(x)
        return np.asarray(sum(p * gamma_density(at, n, rate) for p, n, rate in self._branches))

    def sf(self, x: npt.ArrayLike) -> Floats:
        at = np.maximum(times(x), 0)
        return np.asarray(sum(p * special.gammaincc(n, rate * at) for p, n, rate in self._branches))

    def cdf(self, x: npt.ArrayLike) -> Floats:
        at = np.maximum(times(x), 0)
        return np.asarray(sum(p * special.gammainc(n, rate * at) for p, n, rate in self._branches))

    def moment(self, order: int) -> float:
        return float(sum(p * special.poch(n, order) / rate**order for p, n, rate in self._branches))

    def sample(self, count: int, rng: np.random.Generator) -> Floats:
        branch = rng.choice(len(self.phases), size=count, p=self.probabilities)
        return rng.gamma(np.asarray(self.phases)[branch], 1 / np.asarray(self.rates)[branch])

    def to_phase_type(self) -> PhaseType:
        """The same distribution as a Markov chain, with a state per phase."""
        size = sum(self.phases)
        initial, generator = np.zeros(size), np.zeros((size, size))
        first = 0
        for probability, phases, rate in self._branches:
            initial[first] = probability
            states = np.arange(first, first + phases)
            generator[states, states] = -rate
            generator[states[:-1], states[1:]] = rate
            first += phases
        return PhaseType(initial, generator)
