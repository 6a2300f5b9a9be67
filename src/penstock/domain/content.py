"""Content of messages: the abstract word; the kinds are in `load.contents`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from penstock.domain import plugins
from penstock.domain.value import Value


@dataclass(frozen=True, kw_only=True)
class Content(Value, ABC):
    """An endless stream of records, as one source would write them."""

    plugin_group = "penstock.contents"

    @abstractmethod
    def records(self, rng: Random) -> Iterator[bytes]: ...


def random_content() -> Content:
    """The default."""
    content: Content = plugins.get("penstock.contents", "random")()
    return content
