"""What controllers and hosts of a group read and write: groups apart, and one controller at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from fake_topics import FakeTopics, Log

from penstock.autoscaler import topics as topics_module
from penstock.autoscaler.channel import ControllerLink, HostLink, Superseded
from penstock.autoscaler.core.actions import Send
from penstock.autoscaler.core.claim import Claimant, last_claim
from penstock.autoscaler.topics import Topics
from penstock.domain.autoscaling import Claim, Command, HostAnswer
from penstock.domain.errors import BadInput, PenstockError

OURS, THEIRS = "a" * 32, "b" * 32
HOLD = Command(version=3, lanes={1: ("t-0", "t-1")})


def controller(
    log: Log, name: str, group: str = OURS, warnings: list[str] | None = None
) -> tuple[ControllerLink, Claimant]:
    """That has begun."""
    claimant = Claimant(name)
    sink = list[str]() if warnings is None else warnings
    link = ControllerLink(FakeTopics(log), group, claimant, warn=sink.append)
    link.begin()
    return link, claimant


def again(log: Log, claimant: Claimant, group: str = OURS) -> ControllerLink:
    """The same process, after it could not reach Kafka."""
    return ControllerLink(FakeTopics(log), group, claimant)


def host(log: Log, number: int = 1, group: str = OURS, **kw: Any) -> HostLink:
    return HostLink(FakeTopics(log), number, group, **kw)


def drained(link: ControllerLink) -> list[HostAnswer]:
    return list(link.answers(0.0))


def claims(log: Log) -> list[tuple[int, str]]:
    return [(m.term, m.incarnation) for m in log.messages(0) if isinstance(m, Claim)]


# --- what they say ------------------------------------------------------------------------------------


def test_commands_and_answers_say_whose_they_are() -> None:
    log = Log()
    first, _ = controller(log, "one")
    first.send([Send(1, HOLD)])
    served = host(log)
    command = served.past()
    assert command is not None
    assert (command.lanes, command.version, command.group, command.term) == (HOLD.lanes, 3, OURS, 1)
    served.answer(HostAnswer(host=1, version=3, lanes=HOLD.lanes))
    (answer,) = drained(first)
    assert (answer.group, answer.term, answer.version) == (OURS, 1, 3)
    assert len(answer.incarnation) == 32
    later = host(log)
    later.answer(HostAnswer(host=1))
    (other,) = drained(first)
    assert other.incarnation != answer.incarnation


def test_a_command_for_one_process_of_a_host_is_obeyed_by_that_one_only() -> None:
    log = Log()
    first, _ = controller(log, "one")
    old, new = host(log), host(log)
    for served in (old, new):
        served.past()
    old.answer(HostAnswer(host=1))
    (answer,) = drained(first)
    first.send([Send(1, Command(verb="end", incarnation=answer.incarnation))])
    command = old.command(0.0)
    assert command is not None and command.verb == "end"
    assert new.command(0.0) is None


def test_a_new_controller_knows_the_last_command_to_each_host_and_its_last_answer() -> None:
    log = Log()
    first, _ = controller(log, "one")
    served = host(log)
    for version in (3, 4):
        first.send([Send(1, Command(version=version)), Send(1, Command(verb="tell"))])
        served.answer(HostAnswer(host=1, version=version))
    past = ControllerLink(FakeTopics(log), OURS, Claimant("two")).begin()
    assert {n: c.version for n, c in past.commands.items()} == {1: 4}
    assert {n: a.version for n, a in past.answers.items()} == {1: 4}


def test_a_dry_controller_writes_nothing_and_takes_nobodys_place() -> None:
    log = Log()
    first, _ = controller(log, "one")
    before = log.size, dict(log.epochs)
    dry = ControllerLink(FakeTopics(log), OURS, Claimant("dry"), is_dry=True)
    dry.begin()
    dry.send([Send(1, HOLD)])
    dry.assure(0.0)
    assert (log.size, dict(log.epochs)) == before
    first.send([Send(1, HOLD)])  # it is still the controller
    assert drained(dry) == []


def test_a_dry_controller_of_a_group_without_id_takes_no_answer_for_its_own() -> None:
    log, warnings = Log(), list[str]()
    dry = ControllerLink(FakeTopics(log), None, Claimant("dry"), warn=warnings.append, is_dry=True)
    assert dry.begin().answers == {}
    host(log, group=OURS).answer(HostAnswer(host=1))
    host(log, group="").answer(HostAnswer(host=1))
    assert drained(dry) == []
    assert len(warnings) == 1 and OURS in warnings[0]


# --- groups apart -------------------------------------------------------------------------------------


def test_a_topic_that_another_group_uses_is_refused_with_what_to_do() -> None:
    log = Log()
    host(log, group=THEIRS).answer(HostAnswer(host=1, at_ms=1_800_000_000_000))
    with pytest.raises(BadInput) as refused:
        FakeTopics(log).prepare(lambda: OURS)
    assert refused.value.message.startswith("penstock.p.group: another pipeline of the name p")
    assert f"group {THEIRS}, last heard of at 2027-01-15 08:00:00+00:00" in refused.value.message
    assert "another `name`" in refused.value.fix
    assert "delete the topics penstock.p.group and penstock.p.speeds" in refused.value.fix
    with pytest.raises(BadInput, match="this pipeline's group is new"):
        FakeTopics(log).prepare(lambda: None)
    with pytest.raises(BadInput, match="another pipeline"):
        host(log, group=OURS).past()
    FakeTopics(log).prepare(lambda: THEIRS)


def test_a_controller_that_has_not_commanded_anybody_yet_is_enough_to_refuse_another_group() -> (
    None
):
    log = Log()
    controller(log, "theirs", THEIRS)
    with pytest.raises(BadInput, match="another pipeline"):
        FakeTopics(log).prepare(lambda: OURS)


def test_an_id_that_is_made_while_the_topic_is_read_is_not_taken_for_another_group() -> None:
    """A pipeline and its controller may be started at once, and the controller finds the id late."""
    log, ids = Log(), list[str]()

    class Slow(FakeTopics):
        def latest(self, partition: int) -> Any:
            ids.append(OURS)
            host(log).answer(HostAnswer(host=0))
            return super().latest(partition)

    Slow(log).prepare(lambda: ids[0] if ids else None)


def test_while_no_broker_answers_it_waits_and_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics_module, "_PAUSE_S", 0.0)
    log, warnings = Log(), list[str]()
    log.is_away = True
    tries = iter(range(3))

    class BrokersUnavailable(FakeTopics):
        def _is_there(self) -> bool:
            log.is_away = next(tries) < 2
            return True

    BrokersUnavailable(log).prepare(lambda: OURS, warnings.append)
    assert warnings == ["no broker answers, so the autoscaler waits: no broker answers"]
    assert list(tries) == []


def test_a_topic_that_may_not_be_read_is_not_waited_for() -> None:
    class Forbidden(FakeTopics):
        def reader(self, partition: int) -> Any:
            raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "forbidden"))

    with pytest.raises(PenstockError, match=r"penstock.p.group: cannot be read: forbidden"):
        Forbidden(Log()).prepare(lambda: OURS)


def test_groups_that_began_at_once_ignore_each_other_and_warn_once() -> None:
    log, warnings = Log(), list[str]()
    ours, _ = controller(log, "ours", OURS, warnings)
    theirs, _ = controller(log, "theirs", THEIRS)
    ours.send([Send(1, HOLD)])
    theirs.send([Send(1, Command(version=9, lanes={1: ("t-5",)}))])
    host_warnings = list[str]()
    served = host(log, warn=host_warnings.append)
    command = served.command(0.0)
    assert command is not None and command.lanes == HOLD.lanes
    assert served.command(0.0) is None
    foreign = host(log, group=THEIRS)
    for version in (1, 2, 3):
        foreign.answer(HostAnswer(host=1, version=version))
    served.answer(HostAnswer(host=1, version=3))
    assert [answer.version for answer in drained(ours)] == [3]
    for texts in (host_warnings, warnings):
        assert len(texts) == 1 and texts[0].startswith(
            "penstock.p.group: messages of another group"
        )
    # Neither fences the other, and neither's commands replace the other's when the log is compacted.
    ours.send([])
    keys = [key for key, _ in log.partitions[2]]
    assert len(set(keys)) == len(keys) == 2


# --- one controller at a time ---------------------------------------------------------------------------


def test_a_new_process_takes_over_and_the_older_one_ends() -> None:
    log = Log()
    first, _ = controller(log, "one")
    second, _ = controller(log, "two")
    with pytest.raises(Superseded, match="another controller of p has taken over"):
        first.send([Send(1, HOLD)])
    second.send([Send(1, HOLD)])
    assert claims(log) == [(1, "one"), (2, "two")]


def test_a_controller_that_was_cut_off_ends_instead_of_fencing_its_successor() -> None:
    log = Log()
    first, claimant = controller(log, "one")
    log.is_away = True
    with pytest.raises(KafkaException):
        first.send([Send(1, HOLD)])
    log.is_away = False
    second, _ = controller(log, "two")
    with pytest.raises(Superseded, match="term 2, after this one's 1"):
        again(log, claimant).begin()
    second.send([Send(1, HOLD)])
    assert claims(log) == [(1, "one"), (2, "two")]


def test_a_disconnected_controller_continues_if_not_replaced() -> None:
    log = Log()
    _, claimant = controller(log, "one")
    back = again(log, claimant)
    back.begin()
    back.send([Send(1, HOLD)])
    assert claims(log) == [(1, "one"), (2, "one")]


def test_a_successor_that_is_fenced_by_one_that_comes_back_just_then_wins() -> None:
    log = Log()
    _, claimant = controller(log, "one")
    begun: list[ControllerLink] = []
    successor = Claimant("two")

    def begin() -> None:
        begun.append(again(log, successor))
        begun[0].begin()

    # Between the look at the claim and the fencing.
    log.before_init = begin
    with pytest.raises(Superseded):
        again(log, claimant).begin()
    with pytest.raises(PenstockError, match="has not claimed the group") as fenced:
        begun[0].send([Send(1, HOLD)])
    assert not isinstance(fenced.value, Superseded)
    back = again(log, successor)
    back.begin()
    back.send([Send(1, HOLD)])


def test_a_controller_that_failed_to_write_its_claim_does_not_take_over_later() -> None:
    log = Log()
    controller(log, "one")
    claimant = Claimant("two")

    class Fails(FakeTopics):
        def producer(self, **more: Any) -> Any:
            client = super().producer(**more)
            client.commit_transaction = self._away
            return client

        def _away(self, timeout_s: float) -> None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    with pytest.raises(KafkaException):
        ControllerLink(Fails(log), OURS, claimant).begin()
    third, _ = controller(log, "three")
    with pytest.raises(Superseded):
        again(log, claimant).begin()
    third.send([])


def test_a_controller_that_reads_another_claim_ends_before_it_sends_anything() -> None:
    log = Log()
    first, _ = controller(log, "one")
    controller(log, "two")
    with pytest.raises(Superseded):
        drained(first)


def test_a_controller_finds_out_that_it_was_replaced_also_if_it_has_nothing_to_send() -> None:
    log = Log()
    first, _ = controller(log, "one")
    written = len(log.partitions[0])
    first.assure(60.0)  # it has just begun
    assert len(log.partitions[0]) == written
    controller(log, "two")
    first.assure(60.0)
    with pytest.raises(Superseded):
        first.assure(0.0)


def test_a_host_ignores_commands_of_a_controller_that_was_replaced() -> None:
    log, warnings = Log(), list[str]()
    first, _ = controller(log, "one")
    served = host(log, warn=warnings.append)
    assert served.past() is None
    second, _ = controller(log, "two")
    second.send([Send(1, Command(verb="tell"))])
    # Kafka's fencing would refuse these.
    for version in (8, 9):
        stale = Command(group=OURS, term=1, version=version, lanes={1: ("t-9",)})
        log.write(2, f"hold.{OURS}", stale)
    second.send([Send(1, HOLD)])
    commands = [served.command(0.0), served.command(0.0), served.command(0.0)]
    assert [(c.verb, c.version, c.term) for c in commands if c] == [("tell", 0, 2), ("hold", 3, 2)]
    assert warnings == [
        "host 1: a command of term 1 is ignored, since a later controller has term 2"
    ]
    served.answer(HostAnswer(host=1, version=3))
    assert [a.term for a in drained(second)] == [2]
    assert first is not second


def test_after_the_topic_was_deleted_a_controller_takes_a_term_that_hosts_accept() -> None:
    log = Log()
    for name in ("one", "two", "three"):
        link, _ = controller(log, name)
    link.send([Send(1, HOLD)])
    served = host(log)
    assert served.past() is not None  # it follows term 3
    log.partitions.clear()
    served._commands = FakeTopics(log).reader(2)
    claimant = Claimant("four")
    link = again(log, claimant)
    link.begin()
    assert claimant.term == 1
    served.answer(HostAnswer(host=1, version=3))
    with pytest.raises(PenstockError, match="host 1 follows a controller of term 3"):
        drained(link)
    link = again(log, claimant)
    link.begin()
    assert claimant.term == 4
    link.send([Send(1, Command(version=4))])
    command = served.command(0.0)
    assert command is not None and command.version == 4


def test_claims_of_equal_terms_end_the_one_that_finds_another() -> None:
    mine, other = Claim(term=2, incarnation="one"), Claim(term=2, incarnation="two")
    assert Claimant("one", 2).is_superseded_by(other)
    assert not Claimant("one", 2).is_superseded_by(mine)
    assert not Claimant("one", 3).is_superseded_by(other)
    assert not Claimant("one", 0).is_superseded_by(other)  # a new process takes over
    assert not Claimant("one", 2).is_superseded_by(None)
    assert last_claim([Claim(term=4, incarnation="a"), HostAnswer(host=0), other]) == Claim(
        term=4, incarnation="a"
    )


# --- the topics themselves ------------------------------------------------------------------------------


class Done:
    """A future that is done."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def result(self, timeout: float = 0.0) -> Any:
        if isinstance(self._value, Exception):
            raise self._value
        return self._value


class Admin:
    """Of a cluster that has these topics; `policy` is the group topic's, or why it is not told."""

    def __init__(self, policy: str | Exception, **partitions: int) -> None:
        self.topics = {f"penstock.p.{name}": n for name, n in partitions.items()}
        self.policy = policy
        self.made: list[str] = []

    def list_topics(self, topic: str | None = None, timeout: float = 0.0) -> Any:
        metadata = {
            name: SimpleNamespace(partitions=dict.fromkeys(range(n)))
            for name, n in self.topics.items()
        }
        return SimpleNamespace(topics=metadata)

    def describe_configs(self, resources: list[Any], **_: Any) -> dict[Any, Done]:
        setting = self.policy
        policy = (
            setting
            if isinstance(setting, Exception)
            else {"cleanup.policy": SimpleNamespace(value=setting)}
        )
        return {resources[0]: Done(policy)}

    def create_topics(self, new: list[Any], **_: Any) -> dict[str, Done]:
        for topic in new:
            self.topics[topic.topic] = topic.num_partitions
            self.made.append(f"{topic.topic} {topic.config.get('cleanup.policy')}")
        return {topic.topic: Done(None) for topic in new}

    def create_partitions(self, wider: list[Any]) -> dict[str, Done]:
        self.topics[wider[0].topic] = wider[0].new_total_count
        return {wider[0].topic: Done(None)}


def topics(admin: Admin) -> Topics:
    group_topics = Topics("p", {"bootstrap.servers": "kafka:9092"}, 3)
    group_topics.__dict__["_admin"] = admin
    return group_topics


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_group_topic_that_would_lose_commands_is_refused_with_the_command_that_corrects_it(
    policy: str,
) -> None:
    admin = Admin(policy, group=2, speeds=1)
    with pytest.raises(
        BadInput, match=f"cleanup.policy is {policy} and must be compact"
    ) as refused:
        topics(admin).make()
    assert refused.value.fix == (
        "kafka-configs.sh --bootstrap-server kafka:9092 --alter --entity-type topics "
        "--entity-name penstock.p.group --add-config cleanup.policy=compact"
    )
    assert admin.topics["penstock.p.group"] == 2  # left as it was


def test_missing_topics_are_made_and_too_few_partitions_become_more() -> None:
    admin = Admin("compact")
    topics(admin).make()
    assert admin.made == ["penstock.p.group compact", "penstock.p.speeds None"]
    assert admin.topics == {"penstock.p.group": 4, "penstock.p.speeds": 1}
    admin = Admin("compact", group=2, speeds=1)
    topics(admin).make()
    assert admin.topics["penstock.p.group"] == 4


def test_a_policy_that_may_not_be_seen_is_warned_about() -> None:
    warnings: list[str] = []
    error = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not authorized"))
    topics(Admin(error, group=4, speeds=1)).make(warnings.append)
    assert warnings == [
        "penstock.p.group: whether it is compacted cannot be checked: not authorized"
    ]
