"""A partition of a topic, by name."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from penstock.domain.value import FieldError


class Partition(NamedTuple):
    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"

    @classmethod
    def parse(cls, text: str) -> Partition:
        """The inverse of `str`: orders-0. Topic names may contain dashes."""
        topic, dash, number = text.rpartition("-")
        if not (topic and dash and number.isdigit()):
            raise ValueError("must be TOPIC-NUMBER, such as orders-0")
        return cls(topic, int(number))


def check_name(field: str, name: str) -> None:
    """Refuse a field's text that does not name a partition."""
    try:
        Partition.parse(name)
    except ValueError as error:
        raise FieldError(field, name, str(error)) from None


def listed(partitions: Collection[Partition]) -> str:
    """The names of the first three, for messages."""
    names = [str(p) for p in sorted(partitions)[:3]]
    return ", ".join(names + ["…"] * (len(partitions) > 3))
