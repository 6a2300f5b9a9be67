"""Nodes and their properties, without starting any."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.domain.cluster import RESERVED_PROPERTIES, ClusterSpec, TopicSpec
from penstock.domain.hosts import host_names, node_roles
from penstock.domain.network import NetworkSpec
from penstock.domain.value import FieldError
from penstock.testbed.nodes import (
    Node,
    SecurityFiles,
    client_properties,
    node_properties,
    render_properties,
)

KEYS = SecurityFiles(Path("ca.pem"), Path("node.pem"), "penstock", "s3cret")


def make_node(node_id: int = 1, broker: bool = True, controller: bool = True) -> Node:
    return Node(node_id, broker, controller, "127.0.0.1", 9092, 9093, 8778)


@pytest.mark.parametrize(("brokers", "voters"), [(1, 1), (2, 1), (3, 3), (5, 3), (16, 3)])
def test_combined_controllers_are_an_odd_number(brokers: int, voters: int) -> None:
    roles = node_roles(ClusterSpec(brokers=brokers))
    assert sum(controller for _, _, controller in roles) == voters
    assert all(broker for _, broker, _ in roles)


def test_dedicated_controllers_are_not_brokers() -> None:
    roles = node_roles(ClusterSpec(brokers=2, controllers=3))
    assert [(i, broker) for i, broker, controller in roles if controller] == [
        (101, False),
        (102, False),
        (103, False),
    ]
    assert host_names(ClusterSpec(brokers=2, controllers=1)).controllers == ("controller-101",)


def test_a_mere_controller_has_no_client_listener() -> None:
    node = make_node(101, broker=False)
    properties = node_properties(ClusterSpec(controllers=1), node, (node,), Path("d"), KEYS)
    assert properties["listeners"] == "CONTROLLER://127.0.0.1:9093"
    assert "inter.broker.listener.name" not in properties
    assert not any("jaas" in name for name in properties)


def test_given_properties_win_over_defaults() -> None:
    spec = ClusterSpec(properties={"offsets.topic.num.partitions": 3, "a.switch": True})
    properties = node_properties(spec, make_node(), (make_node(),), Path("d"), None)
    assert properties["offsets.topic.num.partitions"] == "3"
    assert properties["a.switch"] == "true"


@pytest.mark.parametrize("name", sorted(RESERVED_PROPERTIES))
def test_what_makes_the_testbed_cannot_be_set(name: str) -> None:
    with pytest.raises(FieldError, match="cannot be set here"):
        ClusterSpec(properties={name: "x"})


def test_copies_fit_the_brokers() -> None:
    for brokers in (1, 2, 3, 16):
        spec = ClusterSpec(brokers=brokers)
        properties = node_properties(spec, make_node(), (make_node(),), Path("d"), None)
        assert int(properties["offsets.topic.replication.factor"]) <= brokers
        assert int(properties["transaction.state.log.min.isr"]) <= brokers
    for copies in (3, "3"):
        with pytest.raises(FieldError, match="at most the number of brokers"):
            ClusterSpec(brokers=2, properties={"default.replication.factor": copies})
    with pytest.raises(FieldError, match=r"replication: 4 must be at most"):
        TopicSpec(name="t", replication=4).check_fits(3)


def test_an_even_number_of_controllers_is_refused() -> None:
    with pytest.raises(FieldError, match="must be odd"):
        ClusterSpec(controllers=2)


def test_a_network_needs_hosts() -> None:
    with pytest.raises(FieldError, match="place: namespaces"):
        ClusterSpec(network=NetworkSpec())


def test_the_password_is_not_in_the_text_form() -> None:
    assert "s3cret" not in repr(KEYS)
    assert "s3cret" in client_properties("b:1", KEYS)["sasl.jaas.config"]


def test_nothing_becomes_a_line_of_its_own() -> None:
    assert render_properties({"a": "C:\\x"}) == "a=C:\\\\x\n"
    assert render_properties({"a": "1\nnode.id=9"}) == "a=1\\nnode.id=9\n"
    assert render_properties({"a=b": "1"}) == "a\\=b=1\n"


@pytest.mark.parametrize("name", ["ssl.key.password", "sasl.jaas.config"])
def test_secrets_do_not_belong_in_a_spec(name: str) -> None:
    with pytest.raises(FieldError, match="is a secret") as caught:
        ClusterSpec(properties={name: "s3cret"})
    assert "s3cret" not in str(caught.value)
    with pytest.raises(FieldError, match="is a secret"):
        TopicSpec(name="t", config={name: "s3cret"})
