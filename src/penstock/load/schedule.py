"""When each message is due: a workload's arrivals as an array, fixed before the load begins."""

from __future__ import annotations

from itertools import islice, takewhile
from random import Random

import numpy as np
import numpy.typing as npt

from penstock.domain.arrivals import Arrivals
from penstock.domain.errors import BadInput
from penstock.domain.value import FieldError
from penstock.domain.workload import MOST_MESSAGES_PER_PRODUCER, Workload

_BLOCK = 1 << 16


def check(workload: Workload, length_s: float) -> None:
    """Refuse a schedule that would not fit into memory, before it is made."""
    arrivals = workload.arrivals
    try:
        expected = arrivals.mean_per_s * length_s
    except FieldError as error:
        raise BadInput(f"arrivals.{error}", "give its times as `at_s`") from None
    if not expected >= 0:  # nor a number
        raise BadInput(
            f"arrivals: {arrivals.kind} has {arrivals.mean_per_s} messages/s",
            "mean_per_s of a plug-in must be 0 or more",
        )
    # A stream that varies may have a few more; `due_ns` checks again.
    if expected > MOST_MESSAGES_PER_PRODUCER:
        raise _too_many(expected)


def due_ns(arrivals: Arrivals, length_s: float, rng: Random) -> npt.NDArray[np.int64]:
    """When the messages of one producer are due, in ns from its start, up to `length_s`."""
    # Not one time more than is asked for is drawn: the next one may be long in coming.
    times = takewhile(length_s.__gt__, arrivals.times_s(rng))
    blocks: list[npt.NDArray[np.int64]] = []
    count = 0
    while True:
        block = np.fromiter(islice(times, _BLOCK), dtype=np.float64)
        blocks.append(np.rint(block * 1e9).astype(np.int64))
        count += len(block)
        if count > MOST_MESSAGES_PER_PRODUCER:
            raise _too_many(count)
        if len(block) < _BLOCK:
            return np.concatenate(blocks)


def _too_many(count: float) -> BadInput:
    return BadInput(
        f"one producer would have {count:,.0f} messages to send; the limit is "
        f"{MOST_MESSAGES_PER_PRODUCER:,}",
        "use more producers, a lower rate or a shorter duration",
    )


def random_stream(seed: int, producer: int, purpose: str) -> Random:
    """Random numbers of one purpose: to draw more of one kind changes no other."""
    return Random(f"{seed}.{producer}.{purpose}")
