"""How fast the machine is just now: the CPU time that a fixed piece of work takes.

On a shared machine a neighbour on the same core slows everything down by a fifth, for seconds or
minutes, and no load average shows it. Latencies follow. Runs that differ for this reason differ in
this figure too.
"""

from __future__ import annotations

import time

_STEPS = 10_000  # half a millisecond


def work_ms() -> float:
    """CPU time of this thread, so that waiting for a core does not count."""
    began_ns = time.thread_time_ns()
    number = 1
    for _ in range(_STEPS):
        number = (number * 31 + 7) & 0xFFFF
    return (time.thread_time_ns() - began_ns) / 1e6
