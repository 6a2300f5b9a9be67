"""Random valid values of every word, made from the annotations that also check and describe them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from hypothesis import strategies as st

from penstock.domain.cluster import ClusterSpec, TopicSpec
from penstock.domain.fault import BrokerFault
from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.domain.network import NetworkProfile
from penstock.domain.objective import KpiWeights
from penstock.domain.run import RunSpec
from penstock.domain.scenario import Scenario
from penstock.domain.value import Bound, FieldError, Value, field_types, kinds

TEXT = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    [
        "on",
        "no",
        "null",
        "~",
        "1e6",
        "010",
        "1:30",
        "12",
        "0x1f",
        "1_000",
        "true",
        " a ",
        "a: b",
        "<<",
    ]
)
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: st.integers(-(10**20), 10**20),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
}
NAMES = st.from_regex(r"[a-z0-9._-]{1,20}", fullmatch=True).filter(lambda n: n.strip("."))
TABLES = st.from_regex(r"[a-z][a-z0-9_]{1,10}", fullmatch=True)
# Fields whose rules a random value hardly ever meets.
SPECIAL: dict[tuple[type, str], st.SearchStrategy[Any]] = {
    (TopicSpec, "name"): NAMES,
    (BrokerFault, "broker"): st.integers(1, 9) | st.sampled_from(["controller", "leader of a-b-0"]),
    (ClusterSpec, "controllers"): st.sampled_from([0, 1, 3]),
    (ClusterSpec, "place"): st.just("namespaces"),
    (RunSpec, "name"): st.from_regex(r"[a-z0-9][a-z0-9._-]{1,20}", fullmatch=True),
    (RunSpec, "existing"): st.none(),  # allows neither faults nor a cluster
    (Scenario, "expect"): st.just(()),  # names axes of the matrix
    (Pipeline, "name"): TABLES,
    (Pipeline, "streams"): st.deferred(
        lambda: st.lists(values(Stream), min_size=1, max_size=2)
    ).map(tuple),
    (Stream, "topics"): st.lists(NAMES, min_size=1, max_size=2).map(tuple),
    (Stream, "table"): TABLES,
}


def values(cls: type[Value]) -> st.SearchStrategy[Any]:
    """Valid values of `cls`, or of any of its kinds."""
    if cls is KpiWeights:
        thirds = st.sampled_from([(0.25, 0.25, 0.25, 0.25), (1, 0, 0, 0), (0.5, 0.3, 0.1, 0.1)])
        names = [field.name for field in dataclasses.fields(cls)]
        return thirds.map(lambda w: KpiWeights(**dict(zip(names, w, strict=True))))
    if cls.kind is None and (choices := kinds(cls)):
        return st.one_of([values(kind) for kind in choices.values()])
    drawn = st.fixed_dictionaries({}, optional={n: of_field(cls, n) for n in optional(cls)})
    required = {n: of_field(cls, n) for n in field_types(cls) if n not in optional(cls)}
    both = st.tuples(st.fixed_dictionaries(required), drawn)
    return both.map(lambda pair: made(cls, {**pair[0], **pair[1]})).filter(lambda v: v is not None)


def made(cls: type[Value], arguments: dict[str, Any]) -> Value | None:
    if cls is NetworkProfile:
        arguments["steps"] = tuple(sorted(arguments["steps"], key=lambda step: step.at_s))
    if issubclass(cls, RunSpec) and "cluster" in arguments:
        brokers = max(arguments["cluster"].brokers, arguments["topic"].replication)
        arguments["cluster"] = dataclasses.replace(arguments["cluster"], brokers=brokers)
    try:
        return cls(**arguments)
    except FieldError:
        return None


def optional(cls: type[Value]) -> list[str]:
    missing = dataclasses.MISSING
    return [
        f.name
        for f in dataclasses.fields(cls)
        if not (f.default is missing and f.default_factory is missing)
    ]


def of_field(cls: type[Value], name: str) -> st.SearchStrategy[Any]:
    for (owner, field), strategy in SPECIAL.items():
        if issubclass(cls, owner) and field == name:
            return strategy
    value_type, notes = field_types(cls)[name]
    bounds = [note for note in notes if isinstance(note, Bound)]
    return of_type(value_type, bounds[0] if bounds else None)


def of_type(value_type: Any, bound: Bound | None = None) -> st.SearchStrategy[Any]:
    if bound is not None and value_type in (int, float):
        return number(value_type, bound)
    if value_type in SCALARS:
        return SCALARS[value_type]
    if value_type is Any:
        return st.one_of(*SCALARS.values())
    arguments = get_args(value_type)
    match get_origin(value_type):
        case origin if origin is Literal:
            return st.sampled_from(arguments)
        case origin if origin in (Union, UnionType):
            return st.one_of([of_type(a, bound) for a in arguments if a is not NoneType])
        case origin if origin is tuple:
            return st.lists(of_type(arguments[0]), max_size=2).map(tuple)
        case origin if origin is Mapping:
            return st.dictionaries(NAMES, of_type(arguments[1]), max_size=3)
    return values(value_type)


def number(value_type: type, bound: Bound) -> st.SearchStrategy[Any]:
    low = bound.ge if bound.ge is not None else bound.gt
    high = bound.le if bound.le is not None else bound.lt
    if value_type is int:
        return st.integers(None if low is None else int(low), None if high is None else int(high))
    return st.floats(
        low,
        high,
        exclude_min=bound.gt is not None,
        exclude_max=bound.lt is not None,
        allow_nan=False,
        allow_infinity=False,
    )
