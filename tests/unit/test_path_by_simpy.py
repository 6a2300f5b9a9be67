"""The path simulator against a second one: the same rules, written down once more with SimPy.

Nothing is random here but the arrivals, so both must agree on every message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import simpy

from penstock.models.path.physics import Physics
from penstock.models.path.simulate import simulate
from penstock.models.path.spec import UNLIMITED, Arrivals, Line, Lines, PathSpec

MESSAGES = 1_500
# One-way delays in s: producer, brokers, consumer. No sum of some equals a sum of others, so no two
# events fall together.
CLIENT_S, BROKER_S, READER_S = 0.0031, 0.00173, 0.00517
HANDLE_S, ANSWER_S, FETCH_S, STORE_S = 0.00041, 0.00013, 0.00019, 0.00023

Process = Generator[Any, Any, None]


@dataclass
class Request:
    messages: list[int]
    answered: simpy.Event


@dataclass
class Path:
    """One producer, one partition with three replicas, one consumer."""

    spec: PathSpec
    due_s: list[float]
    env: simpy.Environment = field(default_factory=simpy.Environment)

    def __post_init__(self) -> None:
        env, count = self.env, len(self.due_s)
        self.answered, self.readable, self.received = (np.full(count, np.nan) for _ in range(3))
        self.pending: deque[tuple[float, int]] = deque()
        self.log: list[int] = []
        self.stored = [0, 0]
        self.is_full_window = simpy.Container(env, capacity=self.spec.in_flight + 1)
        self.window = simpy.Resource(env, capacity=self.spec.in_flight)
        self.connection = simpy.Resource(env, capacity=1)
        self.arrived, self.appended, self.advanced = env.event(), env.event(), env.event()

    def run(self) -> None:
        env = self.env
        env.process(self.arrive())
        env.process(self.form())
        for number in range(2):
            env.process(self.follow(number))
        reader = env.process(self.read())
        env.run(until=reader)

    @property
    def high_watermark(self) -> int:
        return min(self.stored)

    def _fire(self, name: str) -> None:
        event = getattr(self, name)
        setattr(self, name, self.env.event())
        event.succeed()

    # --- the producer

    def arrive(self) -> Process:
        for number, due_s in enumerate(self.due_s):
            yield self.env.timeout(due_s - self.env.now)
            self.pending.append((due_s, number))
            self._fire("arrived")

    def form(self) -> Process:
        """Requests, each when a batch is due and the window has room for it or for one to wait."""
        env, spec = self.env, self.spec
        while True:
            yield self.is_full_window.put(1)
            while not self.pending:
                yield self.arrived
            while len(self.pending) < spec.batch_messages:
                left_s = self.pending[0][0] + spec.linger_s - env.now
                if left_s <= 1e-12:
                    break
                yield env.timeout(left_s) | self.arrived
            count = min(len(self.pending), spec.batch_messages)
            env.process(
                self.send(Request([self.pending.popleft()[1] for _ in range(count)], env.event()))
            )

    def send(self, request: Request) -> Process:
        env = self.env
        with self.window.request() as room:
            yield room
            yield env.timeout(CLIENT_S)
            env.process(self.handle(request))
            yield request.answered
        yield self.is_full_window.get(1)

    # --- the broker

    def handle(self, request: Request) -> Process:
        env = self.env
        with self.connection.request() as turn:
            yield turn
            yield env.timeout(HANDLE_S)
            self.log += request.messages
            end = len(self.log)
            self._fire("appended")
            while self.spec.acks == "all" and self.high_watermark < end:
                yield self.advanced
            yield env.timeout(ANSWER_S)
        yield env.timeout(CLIENT_S)
        self.answered[request.messages] = env.now
        request.answered.succeed()

    def follow(self, number: int) -> Process:
        env, has = self.env, 0
        while True:
            yield env.timeout(BROKER_S)
            if has > self.stored[number]:
                before = self.high_watermark
                self.stored[number] = has
                if self.high_watermark > before:
                    self.readable[self.log[before : self.high_watermark]] = env.now
                    self._fire("advanced")
            while len(self.log) == has:
                yield self.appended
            # What is appended while the answer is made goes with the next.
            has = len(self.log)
            yield env.timeout(FETCH_S + BROKER_S + STORE_S)

    # --- the consumer

    def read(self) -> Process:
        env, position = self.env, 0
        while position < len(self.due_s):
            yield env.timeout(READER_S)
            while self.high_watermark == position:
                yield self.advanced
            end = self.high_watermark
            yield env.timeout(READER_S)
            self.received[self.log[position:end]] = env.now
            position = end


@pytest.mark.parametrize("acks", ["1", "all"])
@pytest.mark.parametrize(
    ("linger_s", "batch_messages", "in_flight", "per_s"),
    [
        (0.0, 1, UNLIMITED, 100),
        (0.0, 1, 1, 60),
        (0.0, 10_000, 1, 900),
        (0.005, 10_000, UNLIMITED, 700),
        (0.02, 7, 2, 400),
        (0.05, 30, 5, 2_000),
    ],
)
def test_both_agree_on_every_message(
    acks: Any, linger_s: float, batch_messages: int, in_flight: int, per_s: float
) -> None:
    rng = np.random.default_rng(5)
    due_s = 1 + np.cumsum(rng.exponential(1 / per_s, MESSAGES))
    spec = PathSpec(
        acks=acks, linger_s=linger_s, batch_messages=batch_messages, in_flight=in_flight
    )
    second = Path(spec, due_s.tolist())
    second.run()
    none = np.zeros(MESSAGES, np.int64)
    first = simulate(
        spec,
        Arrivals(due_s, none, none, np.full(MESSAGES, 100.0)),
        Physics(
            broker_request=HANDLE_S,
            broker_answer=ANSWER_S,
            follower_fetch=FETCH_S,
            follower_append=STORE_S,
        ),
        lines=Lines(
            *(
                Line.constant(s)
                for s in (CLIENT_S, CLIENT_S, BROKER_S, BROKER_S, READER_S, READER_S)
            )
        ),
    )
    assert first.readable_s == pytest.approx(second.readable, abs=1e-9)
    assert first.received_s == pytest.approx(second.received, abs=1e-9)
    assert first.answered_s == pytest.approx(second.answered, abs=1e-9)
