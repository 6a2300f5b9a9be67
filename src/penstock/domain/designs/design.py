"""Abstract design: which combinations of the values of a matrix become cells."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.domain.value import Value

# Axis → its value, of one cell.
Combination = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Design(Value, ABC):
    """Which combinations of the values of a matrix become cells."""

    plugin_group = "penstock.designs"

    @abstractmethod
    def combinations(self, matrix: Mapping[str, Sequence[Any]], seed: int) -> list[Combination]:
        """The cells in their order, each with a value of every axis. The same for the same seed."""
