"""An adaptive policy: the abstract class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from penstock.domain.value import Value
from penstock.producer.situation import Adjustment, Situation


@dataclass(frozen=True, kw_only=True)
class AdaptivePolicy(Value, ABC):
    """Decides what an adaptive producer changes to. The producer decides when to ask it."""

    plugin_group = "penstock.adaptive_policies"

    @abstractmethod
    def decide(self, situation: Situation) -> Adjustment:
        """The configuration for this situation; the present one if nothing better is known."""
