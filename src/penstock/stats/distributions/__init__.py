"""Distributions of times: density, distribution function, moments, quantiles, samples; and fits.

law            the abstract class
common         gamma, uniform, lognormal
hyper_erlang   Erlang distributions and mixtures of them
phase_type     time until absorption of a Markov chain, the general case
observations   weighted histograms with a censored tail: what fits are made from
em             fits by likelihood (expectation-maximisation)
moments        fits by two or three moments
selection      the best of several fits by AIC, with the comparison

Times have the unit of the parameters; rates are per that unit.
"""

from penstock.stats.distributions.common import Gamma, Lognormal, Uniform
from penstock.stats.distributions.hyper_erlang import HyperErlang
from penstock.stats.distributions.law import Law
from penstock.stats.distributions.observations import Observations
from penstock.stats.distributions.phase_type import PhaseType

__all__ = [
    "Gamma",
    "HyperErlang",
    "Law",
    "Lognormal",
    "Observations",
    "PhaseType",
    "Uniform",
]
