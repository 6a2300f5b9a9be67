"""Files become values, values become files, and every mistake gets a line that says the fix."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spec_strategies import values

from penstock import specs
from penstock.domain.arrivals import ConstantArrivals
from penstock.domain.client import ClientProperties
from penstock.domain.cluster import ClusterSpec, TopicSpec
from penstock.domain.errors import BadInput
from penstock.domain.fault import FaultPlan
from penstock.domain.network import LinkCondition, NetworkProfile, NetworkSpec
from penstock.domain.network.delay_constant import ConstantDelay
from penstock.domain.objective import Objective
from penstock.domain.run import RunSpec
from penstock.domain.scenario import Scenario
from penstock.domain.settings import ProducerSettings
from penstock.domain.value import Value
from penstock.domain.workload import Workload
from penstock.testbed.faults.kill import Kill
from penstock.testbed.faults.slow_link import SlowLink

EXAMPLES = Path(__file__).parents[2] / "examples"


def problems(text: object, cls: type[Value]) -> list[str]:
    with pytest.raises(BadInput) as caught:
        specs.parse(text, cls, "demo.yaml")
    return caught.value.message.splitlines()


def condition(text: str) -> list[str]:
    """The problems of one link's condition, without the path to it."""
    lines = problems(f"links: [{{src: any, dst: any, condition: {text}}}]", NetworkSpec)
    prefix = "demo.yaml:1: links[0].condition."
    assert all(line.startswith(prefix) for line in lines)
    return [line.removeprefix(prefix) for line in lines]


# --- round trips ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", specs.FILE_KINDS)
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_value_survives_yaml_and_json(name: str, data: st.DataObject) -> None:
    cls = specs.FILE_KINDS[name]
    value = data.draw(values(cls))
    text = specs.dump_yaml(value)
    if specs.to_data(value):
        assert specs.parse(text, cls) == value
        assert specs.parse(specs.dump_json(value), cls, "x.json") == value
        # A reader of YAML 1.1, such as PyYAML by itself, must see the same.
        assert yaml.safe_load(text) == specs.to_data(value)
    assert specs.parse(specs.to_data(value), cls) == value


def test_the_examples_load() -> None:
    testbed = specs.load(EXAMPLES / "testbed.yaml", ClusterSpec)
    assert testbed.brokers == 3
    assert testbed.place == "namespaces"
    assert testbed.network is not None
    assert testbed.network.links[0].condition.delay == ConstantDelay(ms=10)
    profile = specs.load(EXAMPLES / "network-profile.yaml", NetworkProfile)
    assert [step.at_s for step in profile.steps] == [0, 30, 60]
    plan = specs.load(EXAMPLES / "faults.yaml", FaultPlan)
    assert [fault.kind for fault in plan.faults] == ["kill", "pause", "slow-link", "cut-link"]
    assert isinstance(plan.faults[0], Kill)
    assert isinstance(plan.faults[2], SlowLink)


def test_the_scenario_of_the_readme_is_an_example() -> None:
    text = (EXAMPLES / "scenario.yaml").read_text()
    assert f"```yaml\n{text}```" in (EXAMPLES.parent / "README.md").read_text()
    scenario = specs.load(EXAMPLES / "scenario.yaml", Scenario)
    assert scenario.cluster.place == "loopback", "it needs no root"
    apart = specs.load(EXAMPLES / "scenario-network.yaml", Scenario)
    assert apart.cluster.place == "namespaces"


def test_defaults_are_written_but_not_what_is_absent() -> None:
    assert specs.to_data(Workload(arrivals=ConstantArrivals(rate_per_s=5))) == {
        "arrivals": {"kind": "constant", "rate_per_s": 5},
        "payload": {"content": {"kind": "random"}, "size_bytes": 100},
        "producers": 1,
        "loop": "open",
        "duration_s": 10.0,
    }


def test_json_is_read_as_json(tmp_path: Path) -> None:
    path = tmp_path / "topic.json"
    path.write_text('{\n\t"name": "a", "config": {"retention.ms": 1e3}}')
    assert specs.load(path, TopicSpec) == TopicSpec(name="a", config={"retention.ms": 1000.0})


def test_yaml_is_read_as_yaml_1_2() -> None:
    topic = specs.parse("{name: on, config: {a: 1e3, b: 1:30, c: 'x'}}", TopicSpec)
    assert topic == TopicSpec(name="on", config={"a": 1000.0, "b": "1:30", "c": "x"})


def test_a_topics_configuration_is_text_for_kafka() -> None:
    text = "{name: a, config: {min.insync.replicas: 2, preallocate: true, cleanup.policy: compact}}"
    assert specs.parse(text, TopicSpec).config_text() == {
        "min.insync.replicas": "2",
        "preallocate": "true",
        "cleanup.policy": "compact",
    }


def test_anchors_and_merges_work() -> None:
    text = """
    steps:
      - {at_s: 0, links: [&slow {src: a, dst: b, condition: {rate_mbit: 1}}]}
      - {at_s: 9, links: [{<<: *slow, dst: c}]}
    """
    profile = specs.parse(text, NetworkProfile)
    assert profile.steps[1].links[0].dst == "c"
    assert profile.steps[1].links[0].condition == LinkCondition(rate_mbit=1)


@dataclass(frozen=True, kw_only=True)
class Word(Value):
    """Abstract, with a kind that the test adds after the loader has met the word."""


@dataclass(frozen=True, kw_only=True)
class EarlyWord(Word):
    kind = "early"


def test_a_kind_defined_later_is_found() -> None:
    assert specs.parse("kind: early", Word) == EarlyWord()
    assert problems("kind: late", Word) == [
        "demo.yaml:1: kind: 'late' is unknown; use one of early"
    ]

    @dataclass(frozen=True, kw_only=True)
    class LateWord(Word):
        kind = "late"

    assert specs.parse("kind: late", Word) == LateWord()


# --- problems ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{delay: {kind: constant, ms: -5}}", "delay.ms: -5 must be 0 or more"),
        ("{dealy: 1}", "dealy: unknown field; did you mean 'delay'?"),
        ("{delay_s: 1}", "delay_s: unknown field; did you mean 'delay'?"),
        (
            "{zebra: 1}",
            "zebra: unknown field; use one of delay, loss, duplicate, reorder, in_order, "
            "rate_mbit, cut",
        ),
        (
            "{rate_kbit: 1}",
            "rate_kbit: unknown field; this is given in megabits per second: use 'rate_mbit'",
        ),
        (
            "{delay: {kind: constant, s: 0.02}}",
            "delay.s: unknown field; this is given in milliseconds: use 'ms'",
        ),
        (
            "{delay: {kind: constant, ms: 20ms}}",
            "delay.ms: expected a number of milliseconds (the unit is in the name 'ms'): write 20",
        ),
        (
            "{delay: {kind: constant, ms: 0.5 s}}",
            "delay.ms: expected a number of milliseconds (the unit is in the name 'ms'): write 500",
        ),
        (
            "{delay: {kind: constant, ms: 10 MB}}",
            "delay.ms: expected a number of milliseconds (the unit is in the name 'ms'), "
            "not '10 MB'",
        ),
        (
            "{rate_mbit: 1 MB/s}",
            "rate_mbit: expected a number of megabits per second (the unit is in the name "
            "'rate_mbit'): write 8",
        ),
        (
            "{loss: {kind: bernoulli, share: 5%}}",
            "loss.share: expected a number of parts of one (the unit is in the name 'share'): "
            "write 0.05",
        ),
        ("{rate_mbit: '12'}", "rate_mbit: expected a number: write 12"),
        ("{rate_mbit: 1_000}", "rate_mbit: expected a number: write 1000"),
        ("{duplicate: lots}", "duplicate: expected a number, not 'lots'"),
        ("{duplicate: true}", "duplicate: expected a number, not true"),
        ("{rate_mbit: .inf}", "rate_mbit: must be a finite number"),
        (
            "{delay: {kind: constant}}",
            "delay.ms: missing field (one-way delay in milliseconds)",
        ),
        (
            "{delay: {kind: gauss}}",
            "delay.kind: 'gauss' is unknown; use one of constant, normal, pareto, uniform",
        ),
        (
            "{delay: {kind: [1]}}",
            "delay.kind: a list is unknown; use one of constant, normal, pareto, uniform",
        ),
        (
            "{delay: {ms: 4}}",
            "delay.kind: missing field; use one of constant, normal, pareto, uniform",
        ),
        ("{delay: 20}", "delay: expected a mapping, not 20"),
        ("{in_order: yes}", "in_order: expected true or false, not 'yes': write true"),
        ("{in_order: 1}", "in_order: expected true or false, not 1"),
        ("{in_order: null}", "in_order: expected true or false, not null"),
        (
            "{delay: {kind: uniform, low_ms: 20, high_ms: 10}}",
            "delay.high_ms: 10 must be more than low_ms (20)",
        ),
    ],
)
def test_a_mistake_in_a_condition(text: str, expected: str) -> None:
    assert condition(text) == [expected]


@pytest.mark.parametrize(
    ("cls", "text", "expected"),
    [
        (NetworkProfile, "steps: [{at_ms: 5, links: []}]", "steps[0].at_ms: unknown field; this is given in seconds: use 'at_s'"),
        (NetworkProfile, "steps: []", "steps: must have at least one step"),
        (NetworkProfile, "steps: {}", "steps: expected a list, not a mapping"),
        (Workload, "{duration: 5, arrivals: {kind: constant, rate_per_s: 5}}", "duration: unknown field; this is given in seconds: use 'duration_s'"),
        (Workload, "{payload: {size_kb: 5}, arrivals: {kind: constant, rate_per_s: 5}}", "payload.size_kb: unknown field; this is given in bytes: use 'size_bytes'"),
        (Workload, "{payload: {size_bytes: 1 KiB}, arrivals: {kind: constant, rate_per_s: 5}}", "payload.size_bytes: expected a whole number of bytes (the unit is in the name 'size_bytes'): write 1024"),
        (Workload, "{payload: {size_bytes: 1.5}, arrivals: {kind: constant, rate_per_s: 5}}", "payload.size_bytes: expected a whole number, not 1.5"),
        (Workload, "{payload: {size_bytes: 1000000000}, arrivals: {kind: constant, rate_per_s: 5}}", "payload.size_bytes: 1000000000 must be 100000000 or less"),
        (TopicSpec, "name: 12", "name: expected text, not 12: put it in quotes"),
        (TopicSpec, "name: true", "name: expected text, not true: put it in quotes"),
        (TopicSpec, "{name: a, config: {b: [1]}}", "config.b: expected text or a number or true or false, not a list"),
        (ClusterSpec, "place: moon", "place: 'moon' is unknown; use one of loopback, namespaces"),
        (ClusterSpec, "properties: {log.dirs: /tmp}", "properties.log.dirs: '/tmp' cannot be set here: set by the testbed; see `data_dir`"),
        (ClusterSpec, "network: {}", "network: needs `place: namespaces`: there is no network to shape on loopback"),
        (ClusterSpec, "[1, 2]", "expected a mapping, not a list"),
        (RunSpec, "{name: a, topic: {name: a, replication: 5}, workload: {arrivals: {kind: constant, rate_per_s: 5}}}", "topic.replication: 5 must be at most the number of brokers (3)"),
        (FaultPlan, "faults: [{kind: kill, broker: nobody}]", "faults[0].broker: 'nobody' must be a broker's id, 'controller' or 'leader of TOPIC-PARTITION'"),
        (Objective, "weights: {bandwidth: 1}", "weights.no_duplication: 0.1 makes the four weights sum to 1.7; they must sum to 1"),
    ],
)  # fmt: skip
def test_a_mistake(cls: type[Value], text: str, expected: str) -> None:
    assert problems(text, cls) == [f"demo.yaml:1: {expected}"]


def test_all_problems_are_listed_in_the_order_of_the_file() -> None:
    text = "brokers: 99\nheap_mb: 1\nprot: 1\nnetwork:\n  links:\n    - src: a\n      dst: 5\n"
    assert problems(text, ClusterSpec) == [
        "demo.yaml:1: brokers: 99 must be 16 or less",
        "demo.yaml:2: heap_mb: 1 must be 128 or more",
        "demo.yaml:3: prot: unknown field; did you mean 'port'?",
        "demo.yaml:6: network.links[0].condition: missing field",
        "demo.yaml:7: network.links[0].dst: expected text, not 5: put it in quotes",
    ]


def test_data_that_was_never_text_has_no_lines() -> None:
    assert problems({"brokers": 0}, ClusterSpec) == ["demo.yaml: brokers: 0 must be 1 or more"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "demo.yaml: is empty"),
        ("# nothing\n", "demo.yaml: is empty"),
        ("a: b: c", "demo.yaml:1:5: not valid YAML: mapping values are not allowed here"),
        ("a: 1\nb: 2\na: 3", "demo.yaml:3: a: is given twice, first on line 1"),
        ("a: &x [*x]", "demo.yaml:1:4: not valid YAML: found unconstructable recursive node"),
        ("a: 1\n---\nb: 1", "demo.yaml:2:1: not valid YAML: but found another document"),
        ("a: \x00", "demo.yaml: not valid YAML: unacceptable character #x0000: special characters are not allowed"),
        ("[" * 10_000, "demo.yaml: is nested too deeply"),
    ],
)  # fmt: skip
def test_text_that_is_not_a_document(text: str, expected: str) -> None:
    assert problems(text, ClusterSpec) == [expected]


def test_json_that_is_not_a_document() -> None:
    for text, expected in {
        "{,": "a.json:1:2: not valid JSON: Expecting property name enclosed in double quotes",
        '{"brokers": 1, "brokers": 2}': "a.json: brokers: is given twice",
        " ": "a.json: is empty",
    }.items():
        with pytest.raises(BadInput) as caught:
            specs.parse(text, ClusterSpec, "a.json")
        assert caught.value.message == expected


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"a: \xff\xfe")
    for path, expected in {
        tmp_path / "none.yaml": "no such file",
        tmp_path: "is a directory",
        binary: "is not UTF-8 text (at byte 3)",
    }.items():
        with pytest.raises(BadInput) as caught:
            specs.load(path, ClusterSpec)
        assert caught.value.message == f"{path}: {expected}"
        assert caught.value.fix


# --- producer settings, by Kafka's names ---------------------------------------------------------


def test_settings_are_spelled_by_kafkas_names() -> None:
    text = """
    acks: all
    linger.ms: 4
    batch.num.messages: 48
    max.in.flight: 5
    sasl.mechanism: PLAIN
    """
    parsed = specs.parse(text, ProducerSettings)
    assert parsed == ProducerSettings(
        acks="all",
        linger_ms=4,
        batch_num_messages=48,
        in_flight=5,
        other={"sasl.mechanism": "PLAIN"},
    )
    assert specs.to_data(parsed) == {
        "acks": "all",
        "batch.num.messages": 48,
        "linger.ms": 4,
        "max.in.flight.requests.per.connection": 5,
        "sasl.mechanism": "PLAIN",
    }


@pytest.mark.parametrize(
    ("written", "meant"),
    [("0", "0"), ("1", "1"), ("-1", "all"), ("'-1'", "all"), ("'1'", "1"), ("all", "all")],
)
def test_acks_may_be_a_number(written: str, meant: str) -> None:
    assert specs.parse(f"acks: {written}", ProducerSettings).acks == meant


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("acks: 2", "acks: 2 is unknown; use one of 0, 1, all"),
        ("acks: true", "acks: true is unknown; use one of 0, 1, all"),
        ("linger_ms: 4", "linger_ms: 4 belongs to 'linger.ms': use that name"),
        ("linger.ms: 5ms", "linger.ms: expected a number of milliseconds (the unit is in the name 'linger.ms'): write 5"),
        ("batch.num.messages: 0", "batch.num.messages: 0 must be 1 or more"),
        ("{max.in.flight: 6, enable.idempotence: true}", "max.in.flight.requests.per.connection: 6 must be at most 5 with enable.idempotence"),
        ("{linger.ms: 1, queue.buffering.max.ms: 2}", "linger.ms: 2 is given twice: queue.buffering.max.ms is another name for it"),
        ("sasl.password: hunter2", "sasl.password: [hidden] is a secret: put it in a client.properties file, since settings are stored with runs"),
        ("sasl.password: [hunter2]", "sasl.password: expected text or a number or true or false, not [hidden]"),
        ("debug: [msg]", "debug: expected text or a number or true or false, not a list"),
    ],
)  # fmt: skip
def test_a_mistake_in_settings(text: str, expected: str) -> None:
    assert problems(text, ProducerSettings) == [f"demo.yaml:1: {expected}"]


# --- the JSON writer -----------------------------------------------------------------------------


class Colour(StrEnum):
    RED = "red"


@dataclass
class Result:
    path: Path
    colours: tuple[Colour, ...]
    by_colour: dict[Colour, float]
    numbers: object


def test_json_of_results() -> None:
    numbers = [np.float64(0.5), np.int32(3), np.bool_(True), np.array([1, 2]), float("nan")]
    text = specs.dump_json(Result(Path("/a"), (Colour.RED,), {Colour.RED: 1.5}, numbers))
    assert text.endswith("}\n")
    assert text.startswith('{\n  "path": "/a",\n')
    assert json.loads(text) == {
        "path": "/a",
        "colours": ["red"],
        "by_colour": {"red": 1.5},
        "numbers": [0.5, 3, True, [1, 2], None],
    }


def test_json_of_a_client_hides_its_secrets() -> None:
    text = specs.dump_json({"client": ClientProperties({"sasl.password": "hunter2"})})
    assert "hunter2" not in text


def test_json_refuses_what_it_does_not_know() -> None:
    with pytest.raises(BadInput, match="type object cannot be written"):
        specs.dump_json(object())
