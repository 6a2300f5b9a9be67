"""Messages between monitor, controller and hosts, through the topics of `topics`.

The controller writes in transactions under one id, so of two controllers Kafka fences the older
one: it cannot send commands any more. Claims decide which of the two may take over (see `claim`).
Each side reads messages of its own group only, and warns once about others.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from confluent_kafka import KafkaError, KafkaException, Producer

from penstock import specs
from penstock.autoscaler.core.actions import Send
from penstock.autoscaler.core.claim import Claimant, last_claim
from penstock.autoscaler.topics import ANSWERS, REQUEST_S, Reader, Topics, Warn, parsed
from penstock.domain.autoscaling import Claim, Command, HostAnswer, Message, SpeedMeasurement
from penstock.domain.errors import PenstockError
from penstock.kafka import client_log

# A host answers at least this often.
HEARTBEAT_S = 2.0
_FENCED = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)


class Superseded(PenstockError):
    """Another controller has taken over."""


class _Screen:
    """Filters the messages of one group."""

    def __init__(self, topics: Topics, group: str | None, warn: Warn) -> None:
        self._topic, self._group, self._warn = topics.group, group, warn
        self._is_warned = False

    def own(self, messages: Iterable[Message]) -> Iterator[Message]:
        for message in messages:
            if self._group is not None and message.group == self._group:
                yield message
            elif not self._is_warned:
                self._is_warned = True
                self._warn(
                    f"{self._topic}: messages of another group ({message.group or 'without id'}) "
                    f"are ignored: another pipeline of this name uses the topic, and neither can "
                    f"start again until one of them has another `name` (this group is "
                    f"{self._group or 'new'})"
                )


@dataclass(frozen=True)
class Past:
    """Messages from before this controller began."""

    # By host: the last command to it, and its last answer.
    commands: dict[int, Command] = field(default_factory=dict)
    answers: dict[int, HostAnswer] = field(default_factory=dict)


class ControllerLink:
    """The controller's end. `is_dry`: it only listens and does not take over; then `group` may be
    None, if the group has no id yet."""

    def __init__(
        self,
        topics: Topics,
        group: str | None,
        claimant: Claimant,
        *,
        warn: Warn = client_log.log.warning,
        is_dry: bool = False,
    ) -> None:
        assert is_dry or group is not None
        self._topics, self._group, self._claimant = topics, group or "", claimant
        self._screen = _Screen(topics, group, warn)
        self.is_dry = is_dry
        self._producer: Producer | None = None
        self._reader: Reader | None = None
        # When it last made sure that no other controller has taken over.
        self._sure_s = float("-inf")

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def begin(self) -> Past:
        """Become the controller; returns earlier messages. A process that was the controller before
        does not take over again if another one has claimed the group since: it would fence that
        one."""
        if self.is_dry:
            return self._past(list(self._screen.own(self._first_answers())))
        self._check(self._topics.latest(ANSWERS))
        own = f"penstock.{self._topics.name}.{self._group}.controller"
        self._producer = self._topics.producer(**{"transactional.id": own})
        self._producer.init_transactions(REQUEST_S)
        # No other process can write commands from here on, so the commands read now are complete.
        # If another one has claimed the group since we looked, we have fenced it; it finds that its
        # claim is still the last one, and starts over.
        messages = self._first_answers()
        self._check(messages)
        own_messages = list(self._screen.own(messages))
        past = self._past(own_messages)
        self._claimant.claim([*own_messages, *past.commands.values()])
        self.send([])
        return past

    def _first_answers(self) -> list[Message]:
        self._reader = self._topics.reader(ANSWERS)
        return list(parsed(self._reader.latest()))

    def _past(self, messages: Iterable[Message]) -> Past:
        commands: dict[int, Command] = {}
        for host in range(self._topics.count() - 1):
            for message in self._screen.own(self._topics.latest(1 + host)):
                if isinstance(message, Command) and message.verb == "hold":
                    commands[host] = message
        return Past(commands, {m.host: m for m in messages if isinstance(m, HostAnswer)})

    def _check(self, messages: Iterable[Message]) -> None:
        claim = last_claim(self._screen.own(messages))
        if self._claimant.is_superseded_by(claim):
            assert claim is not None
            raise Superseded(
                f"another controller of {self._topics.name} has taken over (term {claim.term}, "
                f"after this one's {self._claimant.term}; group {self._group})",
                "run only one; this one has stopped, and the plan stays in place",
            )

    def send(self, sends: Collection[Send]) -> None:
        """Send all of them, or none. Without any, send the claim again, since Kafka does not check
        a transaction without messages. After an error the state is unknown: start over. Raises
        `Superseded` if another controller has taken over."""
        if self._producer is None:
            return
        try:
            self._producer.begin_transaction()
            for send in sends:
                own = replace(send.command, group=self._group, term=self._claimant.term)
                self._produce(own, own.verb, 1 + send.host)
            if not sends:
                claim = Claim(
                    group=self._group,
                    term=self._claimant.term,
                    incarnation=self._claimant.incarnation,
                    at_ms=round(time.time() * 1000),
                )
                self._produce(claim, "claim", ANSWERS)
            self._producer.commit_transaction(REQUEST_S)
        except KafkaException as error:
            if error.args[0].code() not in _FENCED:
                raise
            # A successor claims the group at once. If it did not, our claim is still the last one.
            self._check(self._topics.latest(ANSWERS))
            raise PenstockError(
                f"this controller of {self._topics.name} was fenced by one that has not claimed "
                f"the group {self._group}"
            ) from None
        self._sure_s = time.monotonic()

    def _produce(self, message: Message, kind: str, partition: int) -> None:
        assert self._producer is not None
        text, key = specs.dump_json_line(message), f"{kind}.{self._group}"
        self._producer.produce(self._topics.group, text, key=key, partition=partition)

    def assure(self, within_s: float) -> None:
        """Raise `Superseded` if another controller has taken over; the last check may be `within_s`
        old."""
        if time.monotonic() - self._sure_s > within_s:
            self.send([])

    def answers(self, timeout_s: float) -> Iterator[HostAnswer]:
        """The answers that have arrived; waits for the first one."""
        assert self._reader is not None
        until_s = time.monotonic() + timeout_s
        # Claims are in the same partition, but the caller does not wait for them.
        while (text := self._reader.poll(max(0.0, until_s - time.monotonic()))) is not None:
            for message in self._screen.own(parsed([text])):
                if isinstance(message, Claim) and not self.is_dry:
                    self._check([message])
                if isinstance(message, HostAnswer):
                    self._check_term(message)
                    until_s = 0.0
                    yield message

    def _check_term(self, answer: HostAnswer) -> None:
        """A host that has heard a higher term takes no command of ours. Either another controller
        has begun, or the topic was deleted, and the claim with it: to start over finds out."""
        if answer.term > self._claimant.term and not self.is_dry:
            raise PenstockError(
                f"host {answer.host} follows a controller of term {answer.term}, and this one of "
                f"{self._topics.name} has term {self._claimant.term}"
            )


class HostLink:
    """A host's end. Made once per process, which its incarnation identifies."""

    def __init__(
        self, topics: Topics, host: int, group: str, warn: Warn = client_log.log.warning
    ) -> None:
        self._topics, self._host, self.group, self._warn = topics, host, group, warn
        self._screen = _Screen(topics, group, warn)
        self._incarnation = uuid.uuid4().hex
        # The highest term seen: a command with a lower one is from a controller that was replaced.
        self._term = 0
        self._is_warned = False
        self._commands = topics.reader(1 + host)
        self._producer = topics.producer(**{"enable.idempotence": True})

    def close(self) -> None:
        self._producer.flush(REQUEST_S)
        self._commands.close()

    def past(self) -> Command | None:
        """The last hold command; call it first. Raises if another group uses the topic."""
        self._topics.refuse_others(lambda: self.group)
        commands = [*self._current(parsed(self._commands.latest()))]
        return next((c for c in reversed(commands) if c.verb == "hold"), None)

    def command(self, timeout_s: float) -> Command | None:
        deadline_s = time.monotonic() + timeout_s
        while (text := self._commands.poll(max(0.0, deadline_s - time.monotonic()))) is not None:
            for command in self._current(parsed([text])):
                return command
        return None

    def _current(self, messages: Iterable[Message]) -> Iterator[Command]:
        for message in self._screen.own(messages):
            if not isinstance(message, Command):
                continue
            if message.incarnation not in (None, self._incarnation):
                continue
            if message.term >= self._term:
                self._term = message.term
                yield message
            elif not self._is_warned:
                self._is_warned = True
                self._warn(
                    f"host {self._host}: a command of term {message.term} is ignored, since a "
                    f"later controller has term {self._term}"
                )

    def answer(self, answer: HostAnswer) -> None:
        own = replace(answer, group=self.group, term=self._term, incarnation=self._incarnation)
        text, key = specs.dump_json_line(own), f"answer.{self.group}.{self._host}"
        self._producer.produce(self._topics.group, text, key=key, partition=ANSWERS)
        self._producer.poll(0)


class SpeedsLink:
    """Publishes measurements."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._producer = topics.producer()

    def tell(self, measurement: SpeedMeasurement) -> None:
        text = specs.dump_json_line(measurement)
        self._producer.produce(self._topics.speeds, text, key=self._topics.name)
        self._producer.poll(0)
