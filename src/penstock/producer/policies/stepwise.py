"""Algorithm 1 of S0 (5.5): move one parameter after the other until γ is as wanted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Annotated, Literal

from penstock.domain.value import Bound, Doc
from penstock.producer.policies.adaptive_policy import AdaptivePolicy
from penstock.producer.situation import Adjustment, Configuration, Situation

_ACKS: tuple[Literal["0", "1", "all"], ...] = ("0", "1", "all")


@dataclass(frozen=True, kw_only=True)
class StepwiseTuning(AdaptivePolicy):
    """S0's Algorithm 1: acks, then B, T_o and δ, each moved stepwise in the direction in which γ rises,
    until γ is as wanted. The document's inner loop never ends if γ cannot be reached; here a parameter
    is moved at most `most_steps` times, and no further than γ rises."""

    kind = "stepwise"
    most_steps: Annotated[int, Bound(ge=1), Doc("of each parameter, in one decision")] = 10
    batch_step: Annotated[int, Bound(ge=1), Doc("Δ of B, messages")] = 1
    timeout_step_ms: Annotated[float, Bound(gt=0), Doc("Δ of T_o")] = 500.0
    polling_step_ms: Annotated[float, Bound(gt=0), Doc("Δ of δ")] = 10.0

    def decide(self, situation: Situation) -> Adjustment:
        best = situation.now
        before = value = self._gamma(situation, best)
        for name in ("acks", "batch_messages", "message_timeout_ms", "polling_ms"):
            if name == "polling_ms" and not situation.can_poll:
                continue
            for direction in (1, -1):
                for other in islice(self._steps(best, name, direction), self.most_steps):
                    if value >= situation.target_gamma:
                        break
                    new = self._gamma(situation, other)
                    if new <= value:
                        break
                    best, value = other, new
        is_enough = value >= situation.target_gamma
        if best == situation.now:
            sentence = f"γ is {value:.3f}: " + (
                f"at least the {situation.target_gamma:g} wanted"
                if is_enough
                else "no step raises it"
            )
        else:
            sentence = (
                f"γ rises from {before:.3f} to {value:.3f} ({situation.target_gamma:g} wanted) with "
                f"{_changed(situation.now, best)}"
            )
        return Adjustment(configuration=best, sentence=sentence, is_enough=is_enough)

    @staticmethod
    def _gamma(situation: Situation, configuration: Configuration) -> float:
        return situation.predict(configuration).gamma(situation.weights)

    def _steps(self, begin: Configuration, name: str, direction: int) -> Iterator[Configuration]:
        """One step after the other in a direction, as far as values are possible."""
        if name == "acks":
            place = _ACKS.index(begin.acks) + direction
            while 0 <= place < len(_ACKS):
                yield replace(begin, acks=_ACKS[place])
                place += direction
            return
        step = {
            "batch_messages": self.batch_step,
            "message_timeout_ms": self.timeout_step_ms,
            "polling_ms": self.polling_step_ms,
        }[name]
        least = {"batch_messages": 1, "message_timeout_ms": step, "polling_ms": 0}[name]
        value = getattr(begin, name) + direction * step
        while value >= least:
            yield replace(begin, **{name: value})
            value += direction * step


def _changed(now: Configuration, then: Configuration) -> str:
    names = {
        "acks": "acks",
        "batch_messages": "batch.num.messages",
        "message_timeout_ms": "message.timeout.ms",
        "polling_ms": "a polling interval in ms of",
    }
    return ", ".join(
        f"{title} {getattr(then, name):g}" if name != "acks" else f"acks {then.acks}"
        for name, title in names.items()
        if getattr(now, name) != getattr(then, name)
    )
