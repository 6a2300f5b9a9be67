"""The document's rule for the latency of a producer that batches (S0, 6.2.3), kept as it is.

Symbols:

    B_S         messages in a batch at most (`batch.num.messages`)
    B_T         how long a batch waits at most (`linger.ms`), ms
    L           end-to-end latency, ms; ζ a limit, η_v(ζ) = P(L > ζ)
    L_sync      latency of messages that are sent one by one, each after the answer to the last
    α           a correction; the document suggests 0.9

The stages: B_S = 1: a gamma distribution. B_S from 2 to 10: hyper-Erlang. B_S from 11 on, where the
timer rules: uniform from L_min = min L_sync to α·L_max, L_max = max L_sync + B_T.

The first two stages are fits to latencies that were measured at the very settings in question: they
describe, and predict nothing for other settings. The third needs synchronous runs and B_T only.
Valid as far as the stages are (their limits are those of the document's network and load: delays of
15 ms each way between clients and brokers, none between brokers) and if B_T is what batches wait
for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.domain.value import FieldError
from penstock.stats.distributions import Law, Observations, Uniform
from penstock.stats.distributions.em import fit_gamma, fit_hyper_erlang

Stage = Literal["gamma", "hyper-Erlang", "uniform"]
ALPHA = 0.9
# Up to so many messages in a batch, a stage holds.
_GAMMA_UP_TO, _HYPER_ERLANG_UP_TO = 1, 10


@dataclass(frozen=True)
class SyncLatency:
    """The range of latencies of synchronous runs."""

    min_ms: float
    max_ms: float

    @classmethod
    def of(cls, measured: Observations) -> SyncLatency:
        used = measured.weights > 0
        return cls(float(measured.lower[used].min()), float(measured.upper[used].max()))


def stage(batch_messages: int) -> Stage:
    """The stage of a batch size."""
    if batch_messages < 1:
        raise FieldError("batch_messages", batch_messages, "must be 1 or more")
    if batch_messages <= _GAMMA_UP_TO:
        return "gamma"
    return "hyper-Erlang" if batch_messages <= _HYPER_ERLANG_UP_TO else "uniform"


def latency(
    batch_messages: int,
    *,
    measured: Observations | None = None,
    linger_ms: float | None = None,
    sync: SyncLatency | None = None,
    alpha: float = ALPHA,
) -> Law:
    """The distribution of L; its `sf` is η_v.

    `measured`, latencies at these settings, is needed up to 10 messages in a batch; `linger_ms` and
    `sync` above.
    """
    here = stage(batch_messages)
    if here == "uniform":
        if linger_ms is None or sync is None:
            raise FieldError(
                "sync", sync, f"and linger_ms are needed for {batch_messages} messages"
            )
        return uniform_stage(linger_ms, sync, alpha)
    if measured is None:
        raise FieldError("measured", measured, f"is needed for {batch_messages} messages")
    return fit_gamma(measured) if here == "gamma" else fit_hyper_erlang(measured)


def uniform_stage(linger_ms: float, sync: SyncLatency, alpha: float = ALPHA) -> Uniform:
    """The third stage: η_v = (αL_max − ζ) / (αL_max − L_min) (eq. 6.6)."""
    high = alpha * (sync.max_ms + linger_ms)
    if high <= sync.min_ms:
        raise FieldError(
            "linger_ms", linger_ms, f"is too short for this stage: latency is {sync.min_ms:g} ms"
        )
    return Uniform(sync.min_ms, high)
