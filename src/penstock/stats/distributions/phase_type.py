"""Phase-type: the time until a Markov chain in continuous time is absorbed."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy import sparse, special

from penstock.stats.distributions.law import Floats, Law, times

# What may be left out of a sum of probabilities.
_REST = 1e-14
# Of one matrix of Poisson probabilities: 32 MB.
_CELLS = 4_000_000


class PhaseType(Law):
    """Begins in state i with probability `initial[i]` and moves on by `generator` (S0: π and D).

    `generator` has the rates between the states, and on its diagonal minus the rate of leaving;
    what a row lacks to zero is the rate of absorption. `initial` may add up to less than 1: the
    rest is absorbed at once, at time 0.
    """

    def __init__(self, initial: npt.ArrayLike, generator: npt.ArrayLike) -> None:
        self.initial, self.generator = times(initial), times(generator)
        size = self.initial.size
        if self.initial.shape != (size,) or self.generator.shape != (size, size) or not size:
            raise ValueError("initial must be a vector and generator a square matrix of its size")
        scale = np.abs(self.generator).max()
        off = self.generator - np.diag(np.diag(self.generator))
        exit_rates = -self.generator.sum(axis=1)
        if not np.all(np.isfinite(self.generator)) or off.min() < 0 or np.diag(off).any():
            raise ValueError("generator must have finite rates of at least 0 beside its diagonal")
        if np.any(exit_rates < -1e-9 * scale):
            raise ValueError("a row of generator must not add up to more than 0")
        if np.any(self.initial < 0) or not 0 < self.initial.sum() <= 1 + 1e-9:
            raise ValueError("initial must be probabilities that add up to at most 1")
        self.exit_rates = np.maximum(exit_rates, 0.0)
        self._visited = np.zeros((0, size))
        try:
            self._inverse = np.linalg.inv(-self.generator)
        except np.linalg.LinAlgError:
            self._inverse = np.full((1, 1), np.nan)
        # A state from which absorption cannot be reached.
        if not np.all(np.isfinite(self._inverse)) or self._inverse.min() < -1e-6 / scale:
            raise ValueError("absorption must be reachable from every state of generator")

    @property
    def parameters(self) -> int:
        """As many as it has entries that are not zero, less those that follow from the rest."""
        return int(np.count_nonzero(self.initial) - 1 + np.count_nonzero(self.generator))

    def pdf(self, x: npt.ArrayLike) -> Floats:
        """Without the part that is absorbed at time 0."""
        return np.where(times(x) >= 0, self._after(x, self.exit_rates), 0.0)

    def sf(self, x: npt.ArrayLike) -> Floats:
        survival = self._after(x, np.ones(self.initial.size))
        return np.where(times(x) >= 0, np.clip(survival, 0.0, 1.0), 1.0)

    def moment(self, order: int) -> float:
        vector = np.ones(self.initial.size)
        for _ in range(order):
            vector = self._inverse @ vector
        return math.factorial(order) * float(self.initial @ vector)

    def sample(self, count: int, rng: np.random.Generator) -> Floats:
        size = self.initial.size
        leaving = -np.diag(self.generator)
        # Cumulative probabilities of the next state; the last one is absorption.
        moves = np.column_stack([self.generator, self.exit_rates])
        moves[np.arange(size), np.arange(size)] = 0.0
        nexts = np.cumsum(moves / leaving[:, np.newaxis], axis=1)
        start = np.append(np.cumsum(self.initial), np.inf)
        state = np.searchsorted(start, rng.random(count), side="right")
        elapsed = np.zeros(count)
        active = np.flatnonzero(state < size)
        while active.size:
            at = state[active]
            elapsed[active] += rng.exponential(1 / leaving[at])
            draws = rng.random(active.size)
            state[active] = np.minimum((nexts[at] <= draws[:, np.newaxis]).sum(axis=1), size)
            active = active[state[active] < size]
        return elapsed

    @cached_property
    def _rate(self) -> float:
        """Of uniformisation: the fastest rate of leaving a state."""
        return float(-np.diag(self.generator).min())

    def _visits(self, steps: int) -> Floats:
        """The probabilities of the states after 0, 1, … jumps, kept for the next question."""
        if steps >= len(self._visited):
            # Chains of hundreds of phases have few moves from each.
            jump = sparse.csr_array(np.eye(self.initial.size) + self.generator / self._rate).T
            visited = np.zeros((2 * steps + 1, self.initial.size))
            visited[0] = self.initial
            for n in range(2 * steps):
                visited[n + 1] = jump @ visited[n]
                if visited[n + 1].sum() < _REST:
                    break
            self._visited = visited
        return self._visited[: steps + 1]

    def _after(self, x: npt.ArrayLike, reward: Floats) -> Floats:
        """initial · e^(generator·x) · reward, by uniformisation: sums of positive terms only, so
        that nothing cancels, however many phases there are."""
        at = np.maximum(times(x), 0.0)
        means = (self._rate * at).ravel()
        if not means.size:
            return np.asarray(at)
        most = float(means.max())
        steps = math.ceil(most + 12 * math.sqrt(most) + 40)
        rewards = self._visits(steps) @ reward
        counts = np.arange(steps + 1)
        result = np.empty_like(means)
        for first in range(0, means.size, chunk := max(1, _CELLS // (steps + 1))):
            mean = means[first : first + chunk, np.newaxis]
            logs = special.xlogy(counts, mean) - mean - special.gammaln(counts + 1)
            result[first : first + chunk] = np.exp(logs) @ rewards
        return np.asarray(result.reshape(at.shape))
