"""A decision: what is to be done, why, and the numbers behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from penstock.domain.value import Doc, Value


@dataclass(frozen=True, kw_only=True)
class Decision(Value):
    """The same sentence on the command line, on the page and in the log."""

    action: Annotated[str, Doc("what to do, in the imperative")]
    reason: Annotated[str, Doc("why, in one sentence with its numbers")]
    numbers: Mapping[str, float] = field(default_factory=dict)

    def sentence(self) -> str:
        return f"{self.action}: {self.reason}"
