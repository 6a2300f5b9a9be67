"""The fate of each packet of one link: lost, delayed, reordered, duplicated. Pure and repeatable.

Each feature draws from a random stream of its own, so that the same seed loses the same packets
whatever the delay is, and two runs differ only in what was changed between them.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from penstock.domain.network.condition import LinkCondition

NS_PER_MS = 1_000_000


class LinkFates:
    """The draws of one link under one condition, in the order of its packets.

    Functions and not methods, and None where nothing needs to be drawn: this is asked for every
    packet, and a tenth of a microsecond counts.
    """

    __slots__ = ("copied", "due_ns", "lost", "skips", "wait_ns")

    def __init__(self, condition: LinkCondition, stream: str) -> None:
        def rng(feature: str) -> Random:
            return Random(f"{stream}:{feature}")

        self.lost: Callable[[], bool] | None = None
        if condition.cut:
            self.lost = lambda: True
        elif condition.loss is not None:
            self.lost = condition.loss.sampler(rng("loss"))
        # Every packet waits just this long (and then order is kept by itself) …
        self.wait_ns: int | None = None
        # … or it is due at a time that depends on the draw.
        self.due_ns: Callable[[int], int] | None = None
        if condition.delay is not None:
            fixed_ms = condition.delay.fixed_ms
            if fixed_ms is not None and not condition.reorder:
                self.wait_ns = round(fixed_ms * NS_PER_MS)
            else:
                self.due_ns = _due(condition.delay.sampler(rng("delay")), condition.in_order)
        self.skips = _share(condition.reorder, rng("reorder"))
        self.copied = _share(condition.duplicate, rng("duplicate"))


def _share(share: float, rng: Random) -> Callable[[], bool] | None:
    random = rng.random
    return (lambda: random() < share) if share else None


def _due(delay_ms: Callable[[], float], in_order: bool) -> Callable[[int], int]:
    if not in_order:
        return lambda now_ns: now_ns + int(delay_ms() * NS_PER_MS)
    last_ns = 0

    def due_in_order(now_ns: int) -> int:
        nonlocal last_ns
        last_ns = max(last_ns, now_ns + int(delay_ms() * NS_PER_MS))
        return last_ns

    return due_in_order
