"""The two sides that a number may have to stay between. Shared by shapes; not a shape itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from penstock.domain.value import Doc, Value


@dataclass(frozen=True, kw_only=True)
class Limits(Value):
    """At least one of `at_least` and `at_most`; both are allowed values themselves."""

    at_least: Annotated[float | None, Doc("smallest accepted value")] = None
    at_most: Annotated[float | None, Doc("largest accepted value")] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.at_least, self.at_most
        self.require(low is not None or high is not None, "at_least", "or `at_most` must be given")
        if low is not None and high is not None:
            self.require(low <= high, "at_most", f"must not be less than at_least ({low:g})")

    def allow(self, number: float) -> bool:
        return (self.at_least is None or number >= self.at_least) and (
            self.at_most is None or number <= self.at_most
        )

    @property
    def expectation(self) -> str:
        """In words, to continue a sentence."""
        if self.at_least is None:
            return f"at most {self.at_most:g}"
        if self.at_most is None:
            return f"at least {self.at_least:g}"
        return f"{self.at_least:g} to {self.at_most:g}"
