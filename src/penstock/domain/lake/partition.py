"""A partition of a topic, by name."""

from __future__ import annotations

from typing import NamedTuple


class Partition(NamedTuple):
    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"

    @classmethod
    def parse(cls, text: str) -> Partition:
        """The other way: orders-0. Topics may have dashes of their own."""
        topic, dash, number = text.rpartition("-")
        if not (topic and dash and number.isdigit()):
            raise ValueError("must be TOPIC-NUMBER, such as orders-0")
        return cls(topic, int(number))
