"""The schemas: well made, agreeing with the loader, and printed by the command."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spec_strategies import values

from penstock import specs
from penstock.cli.schema import schema as command
from penstock.domain.cluster import ClusterSpec
from penstock.domain.errors import BadInput
from penstock.domain.network import NetworkSpec
from penstock.domain.settings import ProducerSettings
from penstock.specs.schema import json_schema

TYPES: dict[str, Any] = {
    "string": str,
    "boolean": bool,
    "null": type(None),
    "object": dict,
    "array": list,
    "integer": int,
    "number": (int, float),
}
KNOWN = {
    "$schema", "$ref", "$defs", "title", "description", "default", "type", "const", "enum",
    "properties", "required", "additionalProperties", "items", "oneOf", "anyOf",
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
}  # fmt: skip


def is_valid(data: Any, schema: Any, defs: dict[str, Any]) -> bool:
    """The part of draft 2020-12 that our schemas use; any other keyword fails the test."""
    if isinstance(schema, bool):
        return schema
    assert set(schema) <= KNOWN
    return all(
        is_met(data, keyword, constraint, schema, defs)
        for keyword, constraint in schema.items()
        if keyword not in ("$schema", "$defs", "title", "description", "default")
    )


def is_met(data: Any, keyword: str, constraint: Any, schema: Any, defs: dict[str, Any]) -> bool:
    number = isinstance(data, (int, float)) and not isinstance(data, bool)
    match keyword:
        case "$ref":
            return is_valid(data, defs[constraint.removeprefix("#/$defs/")], defs)
        case "type":
            return any(
                has_type(data, name)
                for name in ([constraint] if isinstance(constraint, str) else constraint)
            )
        case "const":
            return bool(data == constraint)
        case "enum":
            return any(type(data) is type(choice) and data == choice for choice in constraint)
        case "oneOf":
            return sum(is_valid(data, choice, defs) for choice in constraint) == 1
        case "anyOf":
            return any(is_valid(data, choice, defs) for choice in constraint)
        case "minimum":
            return not number or data >= constraint
        case "exclusiveMinimum":
            return not number or data > constraint
        case "maximum":
            return not number or data <= constraint
        case "exclusiveMaximum":
            return not number or data < constraint
        case "items":
            return not isinstance(data, list) or all(is_valid(d, constraint, defs) for d in data)
        case "required":
            return not isinstance(data, dict) or set(constraint) <= set(data)
        case "properties":
            return not isinstance(data, dict) or all(
                is_valid(data[name], constraint[name], defs)
                for name in constraint.keys() & data.keys()
            )
        case "additionalProperties":
            return not isinstance(data, dict) or all(
                is_valid(data[name], constraint, defs)
                for name in data.keys() - schema.get("properties", {}).keys()
            )
    raise AssertionError(keyword)


def has_type(data: Any, name: str) -> bool:
    if isinstance(data, bool):
        return name == "boolean"
    return isinstance(data, TYPES[name])


def check(data: Any, cls: Any) -> bool:
    schema = json_schema(cls)
    return is_valid(data, schema, schema["$defs"])


@pytest.mark.parametrize("name", specs.FILE_KINDS)
@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_we_write_is_valid(name: str, data: st.DataObject) -> None:
    cls = specs.FILE_KINDS[name]
    written = specs.to_data(data.draw(values(cls)))
    assert check(written, cls)
    if cls.rest is None:
        assert not check({**written, "no such field": 1}, cls)


@pytest.mark.parametrize("name", specs.FILE_KINDS)
def test_every_reference_leads_somewhere(name: str) -> None:
    schema = json_schema(specs.FILE_KINDS[name])
    text = json.dumps(schema)
    for part in text.split('"#/$defs/')[1:]:
        assert part.split('"')[0] in schema["$defs"]
    assert all(d["description"] for d in schema["$defs"].values())


@pytest.mark.parametrize(
    "data",
    [
        {"brokers": 0},
        {"brokers": "3"},
        {"brokers": True},
        {"place": "moon"},
        {"network": 5},
        {"network": {"links": [{"src": "a", "dst": "b"}]}},
        {"network": {"links": [{"src": "a", "dst": "b", "condition": {"delay": {"kind": "x"}}}]}},
        {"network": {"links": [{"src": "a", "dst": "b", "condition": {"delay": {"ms": 5}}}]}},
        {"properties": {"a": [1]}},
    ],
)
def test_schema_and_loader_refuse_the_same(data: dict[str, Any]) -> None:
    assert not check(data, ClusterSpec)
    with pytest.raises(BadInput):
        specs.parse({"place": "namespaces", **data}, ClusterSpec)


def test_settings_have_kafkas_names() -> None:
    schema = json_schema(ProducerSettings)["$defs"]["ProducerSettings"]
    assert schema["properties"]["linger.ms"] == {
        "type": ["number", "null"],
        "minimum": 0,
        "maximum": 900_000,
        "description": "linger.ms",
        "default": None,
    }
    assert "max.in.flight.requests.per.connection" in schema["properties"]
    assert "other" not in schema["properties"]
    assert schema["additionalProperties"] == {"type": ["string", "integer", "number", "boolean"]}
    for acks in ("0", "1", "all", 0, 1, -1, "-1"):
        assert check({"acks": acks}, ProducerSettings)
        specs.parse({"acks": acks}, ProducerSettings)
    assert not check({"acks": 2}, ProducerSettings)


def test_kinds_become_a_choice() -> None:
    defs = json_schema(NetworkSpec)["$defs"]
    names = [choice["$ref"].rpartition("/")[2] for choice in defs["Delay"]["oneOf"]]
    assert {"ConstantDelay", "NormalDelay", "ParetoDelay", "UniformDelay"} <= set(names)
    assert defs["ParetoDelay"]["properties"]["kind"] == {"const": "pareto"}
    assert defs["ParetoDelay"]["required"] == ["kind", "scale_ms", "shape"]
    assert defs["ParetoDelay"]["properties"]["max_ms"] == {
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": 60_000,
        "description": "longest one-way delay",
        "default": 30_000,
    }


@pytest.mark.parametrize("name", specs.FILE_KINDS)
def test_the_command_prints_a_schema(name: str) -> None:
    result = CliRunner().invoke(command, [name])
    assert result.exit_code == 0
    printed = json.loads(result.output)
    assert printed["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert printed["title"] == specs.FILE_KINDS[name].__name__


def test_the_command_lists_the_kinds() -> None:
    listing = CliRunner().invoke(command, []).output
    assert all(name in listing for name in specs.FILE_KINDS)
    as_json = json.loads(CliRunner().invoke(command, ["--json"]).output)
    assert as_json["topic"] == "A topic to be created."
    assert set(as_json) == set(specs.FILE_KINDS)


def test_the_command_refuses_an_unknown_name() -> None:
    result = CliRunner().invoke(command, ["tpoic"])
    assert isinstance(result.exception, BadInput)
    assert "'tpoic' is not a kind of file" in str(result.exception)
    assert "use one of cluster, experiment" in result.exception.fix
