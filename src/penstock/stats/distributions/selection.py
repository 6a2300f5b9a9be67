"""The distribution that fits best, by AIC, with what it was compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from penstock.stats.distributions import em
from penstock.stats.distributions.law import Law
from penstock.stats.distributions.observations import Observations

FITS: Mapping[str, Callable[[Observations], Law]] = {
    "gamma": em.fit_gamma,
    "lognormal": em.fit_lognormal,
    "uniform": em.fit_uniform,
    "hyper-Erlang": em.fit_hyper_erlang,
}


@dataclass(frozen=True)
class Candidate:
    """A fitted distribution. `aic` = 2·parameters − 2·log-likelihood; lower is better."""

    name: str
    law: Law
    log_likelihood: float
    aic: float
    distance: float  # the largest difference of both distribution functions


@dataclass(frozen=True)
class Selection:
    """All candidates, the best first."""

    candidates: tuple[Candidate, ...]

    @property
    def best(self) -> Candidate:
        return self.candidates[0]

    @property
    def reason(self) -> str:
        """Why the best was chosen, in one sentence."""
        best, *others = self.candidates
        sentence = (
            f"{best.name} ({best.law.parameters} parameters, off by at most {best.distance:.4f})"
        )
        if not others:
            return sentence
        listed = ", ".join(f"{other.name} by {other.aic - best.aic:,.0f}" for other in others)
        return f"{sentence}; its AIC is lower than that of {listed}"


def select(data: Observations, names: Sequence[str] = tuple(FITS)) -> Selection:
    """Fit each of these distributions; the one with the lowest AIC is the best.

    AIC takes observations for independent. Messages of one run are not: for them, reduce the
    weights to the effective number, or the comparison favours many branches.
    """
    coarse = data.coarse()
    candidates = []
    for name in names:
        law = FITS[name](coarse)
        likelihood = coarse.log_likelihood(law)
        aic = 2 * law.parameters - 2 * likelihood
        candidates.append(Candidate(name, law, likelihood, aic, data.distance(law)))
    return Selection(tuple(sorted(candidates, key=lambda candidate: candidate.aic)))
