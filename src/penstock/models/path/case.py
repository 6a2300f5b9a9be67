"""A run with its messages, ready to be simulated any number of times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.domain.run import RunSpec
from penstock.models.path.from_run import path_arrivals, path_lines, path_spec
from penstock.models.path.physics import Physics
from penstock.models.path.simulate import PathTimes, simulate
from penstock.models.path.spec import (
    Arrivals,
    ClientName,
    Floats,
    Lines,
    PathSpec,
    SimulatedMachines,
)

LATENCIES = ("produce", "commit", "end_to_end")
# Simulated beforehand and not counted, so that queues are as long as they get.
_LEAD_S = 1.0
_LEAST_S, _MOST_S = 5.0, 120.0
# Times of linger.ms: its sawtooth must not look like a queue that grows.
_LINGERS = 12
_MOST_MESSAGES = 2_000_000


@dataclass(frozen=True)
class Case:
    """The path of a run, and the messages that go along it."""

    spec: PathSpec
    arrivals: Arrivals
    lines: Lines

    @classmethod
    def of(
        cls,
        run: RunSpec,
        messages: int,
        *,
        client: ClientName = "librdkafka",
        compression_ratio: float = 1.0,
        rate_share: float = 1.0,
        seed: int = 1,
    ) -> Case:
        """About so many messages of the run, at `rate_share` of its rate."""
        rate_per_s = rate_share * run.workload.messages_per_s
        spec = path_spec(run, client)
        least_s = max(_LEAST_S, _LINGERS * spec.linger_s)
        seconds = min(_MOST_S, max(least_s, messages / rate_per_s)) + _LEAD_S
        # Of a load that no machine carries, less time says as much.
        seconds = min(seconds, _MOST_MESSAGES / rate_per_s)
        arrivals = path_arrivals(
            run,
            seconds,
            client=client,
            compression_ratio=compression_ratio,
            rate_share=rate_share,
            seed=seed,
        )
        return cls(spec, arrivals, path_lines(run, seed))

    def simulate(self, physics: Physics, machines: SimulatedMachines, seed: int) -> PathTimes:
        return simulate(
            self.spec, self.arrivals, physics, lines=self.lines, machines=machines, seed=seed
        )


def counted(times: PathTimes) -> npt.NDArray[np.bool_]:
    """Whether a message counts: those at the start find queues that are still empty."""
    return np.asarray(times.due_s >= _LEAD_S)


def latency_ms(times: PathTimes, name: str) -> Floats:
    """One of `LATENCIES`, of the messages that count."""
    seconds = {
        "produce": times.produce_s,
        "commit": times.append_to_visible_s,
        "end_to_end": times.end_to_end_s,
    }[name]
    return 1000 * seconds[counted(times)]
