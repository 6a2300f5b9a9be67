"""Whether a series has a trend beyond chance, although its noise is autocorrelated. Pure.

Three contrasts measure a change: a line, a decay from the beginning, a rise towards the end. How
large they are by chance depends on how slowly the series fluctuates. That is measured where the
contrasts do not look: on up to 32 cosines of low frequency, orthogonal to them. For a first-order
autoregressive noise of correlation time τ, each contrast divided by its standard error follows
Student's t; the p values for several τ, from 0 to 1/16 of the run, are averaged with the likelihood
that the cosines give each τ. The cap on τ is what "steady" means here: a latency that wanders more
slowly than that is not a property of the setting in a run of this length, and may be called
unsteady.

Sources: U. Müller, "HAC corrections for strongly autocorrelated time series" (2014), for the
autoregressive noise and its cap; E. Lazarus, D. Lewis, J. Stock and M. Watson, "HAR inference:
recommendations for practice" (2018), for the cosines and Student's t; L. Schruben, "Detecting
initialization bias in simulation output" (1982), for what is to be detected.

`steadiness` has the rates of false alarms and of detected changes, and decides what matters.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import special

Floats = npt.NDArray[np.float64]

# Of the run: how fast the decay and the rise of the contrasts are. Shorter ones react to a single
# burst at an end: 4.7 % of false alarms with 1/8, 3.8 % with 1/6. Longer ones overlook a short
# transient: one of 3 % of the run is detected in 97 % of the runs with 1/8, in 83 % with 1/6.
_DECAY = 1 / 7
# More cosines give Student's t more degrees of freedom, but reach frequencies where the noise
# differs from that of the contrasts. 24 detect growth by half in 90 % of the runs, 32 in 91.5 %.
_MOST_COSINES = 32
# Correlation times to weigh, as shares of the run. With a cap of 1/20 instead of 1/16, bursts make
# 5.1 % of false alarms instead of 4.3 %; with 1/12, 3.3 %, but a transient of 3 % of the run is
# detected in 80 % of the runs instead of 92 %.
_TAUS = (0.0, *(float(tau) for tau in np.geomspace(0.1, 1, 6) / 16))


@dataclass(frozen=True)
class _Basis:
    """What a series of n parts is multiplied with; and how the products scatter for each τ."""

    contrasts: Floats  # (3, n), each rising, with mean 0 and length 1
    cosines: Floats  # (c, n), orthogonal to the contrasts and to each other
    whitening: Floats  # (τ, c, c): makes the cosines' products independent, with variance 1
    log_determinant: Floats  # (τ,): of their covariance
    deviation: Floats  # (τ, 3): of the contrasts' products


def p_value(levels: Floats, direction: int) -> float:
    """How likely chance makes a contrast that large, for the clearest in that direction."""
    basis = _basis(len(levels))
    centred = levels - levels.mean()
    squares = float(centred @ centred)
    products = basis.contrasts @ centred
    # Rounding leaves 1e-30 of a series that is constant, or a line.
    if direction == 0 or squares < 1e-20:
        return 1.0
    freedom = len(basis.cosines)
    white = basis.whitening @ (basis.cosines @ centred)
    variance = np.maximum(1e-12 * squares, np.sum(white * white, axis=1)) / freedom
    log_likelihood = -0.5 * (basis.log_determinant + freedom * np.log(variance))
    weights = np.exp(log_likelihood - log_likelihood.max())
    t = products / (np.sqrt(variance)[:, None] * basis.deviation)
    p = weights @ (2 * special.stdtr(freedom, -np.abs(t))) / weights.sum()
    return float(np.where(np.sign(products) == direction, p, 1.0).min())


@lru_cache(maxsize=16)
def _basis(n: int) -> _Basis:
    at = (np.arange(n) + 0.5) / n
    contrasts = np.array([at, -np.exp(-at / _DECAY), np.exp((at - 1) / _DECAY)])
    contrasts -= contrasts.mean(axis=1, keepdims=True)
    contrasts /= np.linalg.norm(contrasts, axis=1, keepdims=True)
    orders = np.arange(1, min(_MOST_COSINES, n // 2) + 1)
    columns = np.vstack([np.ones(n), contrasts, np.cos(np.pi * orders[:, None] * at)])
    cosines = np.linalg.qr(columns.T)[0].T[4:]
    whitening, log_determinant, deviation = [], [], []
    for tau in _TAUS:
        gaps = np.abs(at[:, None] - at)
        covariance = np.exp(-gaps / tau) if tau else np.eye(n)
        root = np.linalg.cholesky(cosines @ covariance @ cosines.T)
        whitening.append(np.linalg.inv(root))
        log_determinant.append(2 * np.log(np.diag(root)).sum())
        deviation.append(np.sqrt(np.diag(contrasts @ covariance @ contrasts.T)))
    return _Basis(
        contrasts, cosines, np.array(whitening), np.array(log_determinant), np.array(deviation)
    )
