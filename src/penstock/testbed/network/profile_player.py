"""Plays a network profile back: conditions change at the times of its steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from penstock.domain.network.condition import HostNames, Link, NetworkProfile
from penstock.domain.value import FieldError, fitting


@runtime_checkable
class Settable(Protocol):
    """What a profile is played on: a `Network`, or a stand-in that records the calls."""

    names: HostNames

    def set(self, links: tuple[Link, ...], *, seed: str | None = None) -> None: ...


class ProfilePlayer:
    """Applies the steps of a profile from a thread of its own. Play it once.

    Each step draws from the profile's seed and its own number, so the same profile gives the n-th
    packet after a step the same fate in every run.
    """

    def __init__(
        self,
        network: Settable,
        profile: NetworkProfile,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        if not isinstance(network, Settable):
            raise FieldError("network", network, "must be a network, such as cluster.emulated")
        # A host that only the last step gets wrong is refused before the first one is applied.
        fitting("profile", profile, NetworkProfile).check_hosts(network.names)
        self._network = network
        self._profile = profile
        self._clock_s = clock_s
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._play, name="network profile", daemon=True)
        # (when a step was meant, when it was in effect), in seconds from the start
        self.applied: list[tuple[float, float]] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Skip the steps that are not applied yet; the network stays as it is."""
        self._stopping.set()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; whether it was reached. Raises what went wrong in a step."""
        self._thread.join(timeout_s)
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return not self._thread.is_alive()

    def __enter__(self) -> ProfilePlayer:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stop()
        try:
            self.join()
        except Exception:
            # The failure inside the block came first and says more.
            if kind is None:
                raise

    def _play(self) -> None:
        start_s = self._clock_s()
        try:
            for number, step in enumerate(self._profile.steps):
                while (left_s := step.at_s - (self._clock_s() - start_s)) > 0:
                    if self._stopping.wait(left_s):
                        return
                if self._stopping.is_set():
                    return
                self._network.set(step.links, seed=f"{self._profile.seed}.{number}")
                self.applied.append((step.at_s, self._clock_s() - start_s))
        except BaseException as error:  # surfaces in join, on the thread that can act on it
            self._error = error
