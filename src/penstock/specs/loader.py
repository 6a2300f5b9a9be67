"""Files ↔ domain values: the one loader and the one writer of YAML and JSON.

Strict: "12" is not 12, true is not 1, a name nobody knows is an error. A file with five mistakes
gets five lines, each with its field, its value and the fix.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from enum import Enum
from functools import cache, partial
from pathlib import Path
from types import GenericAlias, NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin

from cattrs import Converter
from cattrs.errors import ClassValidationError
from cattrs.gen import make_dict_structure_fn, override

from penstock.domain import plugins
from penstock.domain.client import ClientProperties, redacted
from penstock.domain.cluster import ClusterSpec, TopicSpec
from penstock.domain.errors import BadInput, unknown_choice
from penstock.domain.facts import ClusterFacts
from penstock.domain.fault import FaultPlan
from penstock.domain.grid import ExperimentGrid
from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.lake.plan import Plan
from penstock.domain.metrics import RunMetrics
from penstock.domain.network import NetworkProfile, NetworkSpec
from penstock.domain.objective import Objective
from penstock.domain.run import Run
from penstock.domain.scenario import Scenario
from penstock.domain.settings import ProducerSettings
from penstock.domain.value import (
    Also,
    FieldError,
    Value,
    field_types,
    kind_names,
    kind_of,
    problem_of,
)
from penstock.domain.workload import Workload
from penstock.specs.files import read_text
from penstock.specs.problems import ABSENT, NUMBER, TEXT, TRUTH, WHOLE, Unfit, lines
from penstock.specs.text import Document, parse_text, to_yaml

T = TypeVar("T", bound=Value)

# What a file may be about; `penstock schema NAME` prints what it may say.
FILE_KINDS: dict[str, type[Value]] = {
    "cluster": ClusterSpec,
    "experiment": ExperimentGrid,
    "facts": ClusterFacts,
    "faults": FaultPlan,
    "network": NetworkSpec,
    "metrics": RunMetrics,
    "objective": Objective,
    "pipeline": Pipeline,
    "plan": Plan,
    "run": Run,
    "scenario": Scenario,
    "settings": ProducerSettings,
    "topic": TopicSpec,
    "network-profile": NetworkProfile,
    "workload": Workload,
}


def load(path: Path, cls: type[T]) -> T:
    """Read a file as a value of `cls`: JSON if its name ends in .json, otherwise YAML."""
    return parse(read_text(path), cls, str(path))


def parse(text_or_data: object, cls: type[T], source: str = "input") -> T:
    """The same from text (JSON if `source` ends in .json) or from plain data."""
    if isinstance(text_or_data, str):
        kind = next((name for name, known in FILE_KINDS.items() if known is cls), "")
        return _structure(parse_text(text_or_data, source, kind), cls)
    return _structure(Document(source, text_or_data), cls)


def to_data(value: object) -> Any:
    """Plain data that `parse` reads back: dicts, lists, text, numbers, truth values, None.

    Defaults are written too, so that a run still explains itself when a default has changed; only
    what is absent by default and absent here (None, no entries) is left out.
    """
    match value:
        case Enum():
            return to_data(value.value)
        case None | bool():
            return value
        case str() | Path():
            return str(value)
        case ClientProperties():
            return redacted(value.values)
        case Value():
            return _value_data(value)
        case Mapping():
            return {str(to_data(key)): to_data(item) for key, item in value.items()}
        case list() | tuple():
            return [to_data(item) for item in value]
        case set() | frozenset():
            return sorted(to_data(item) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_data(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if hasattr(value, "tolist"):  # a scalar or an array of numpy, without importing it
        return to_data(value.tolist())
    if type(value) in (int, float):
        return value
    raise BadInput(f"a value of type {type(value).__name__} cannot be written as YAML or JSON")


def dump_yaml(value: object) -> str:
    """`value` as a YAML file."""
    return to_yaml(to_data(value))


def dump_json_line(value: object) -> str:
    """`value` as JSON in one line, of many that follow one another."""
    return dump_json(value, indent=None)


def dump_json(value: object, indent: int | None = 2) -> str:
    """`value` as JSON for a program: what every `--json` prints. JSON has no NaN, so it is null."""
    data = _without_nan(to_data(value))
    return json.dumps(data, indent=indent, ensure_ascii=False, allow_nan=False) + "\n"


def _without_nan(data: Any) -> Any:
    match data:
        case float() if not math.isfinite(data):
            return None
        case dict():
            return {key: _without_nan(item) for key, item in data.items()}
        case list():
            return [_without_nan(item) for item in data]
    return data


def _value_data(value: Value) -> dict[str, Any]:
    group, kind = value.plugin_group, value.kind
    if group and kind and plugins.find(group, kind) is not type(value):
        name = type(value).__qualname__  # it would be read back as another class
        raise BadInput(
            f"{name} is not the installed plug-in {kind!r} of {group}",
            "give it a `kind` of its own and an entry point: docs/plugins.md",
        )
    data: dict[str, Any] = {} if kind is None else {"kind": kind}
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        if field.name == value.rest:
            data.update(to_data(item))
        elif is_required(field) or not (item is None or item == () or item == {}):
            data[value.file_name(field.name)] = to_data(item)
    return data


def is_required(field: dataclasses.Field[Any]) -> bool:
    """Whether the field has no default."""
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


# --- from plain data to values -------------------------------------------------------------------

_SCALARS: dict[type, str] = {str: TEXT, int: WHOLE, float: NUMBER, bool: TRUTH}
_converter = Converter(detailed_validation=True, forbid_extra_keys=True)


def _structure(document: Document, cls: type[T]) -> T:
    try:
        return _converter.structure(document.data, cls)
    except Exception as error:
        if meant := _meant(document.data, cls):
            text = f"this looks like {meant}; use `{_COMMANDS[meant]}`"
            raise BadInput(f"{document.source}: {text}") from None
        raise BadInput("\n".join(lines(error, document))) from None


# Files that commands take, which are easily taken for each other.
_COMMANDS = {
    "an experiment": "penstock experiment",
    "a pipeline": "penstock pipeline run",
    "a scenario": "penstock run",
}


def _meant(data: object, cls: type[Value]) -> str | None:
    """What a file is about, if all its fields are those of another kind of file."""
    kinds: list[type[Value]] = [ExperimentGrid, Pipeline, Scenario]
    if cls not in kinds or not isinstance(data, Mapping) or _knows(cls, data):
        return None
    named = zip(_COMMANDS, kinds, strict=True)
    return next((name for name, kind in named if _knows(kind, data)), None)


def _knows(cls: type[Value], data: Mapping[object, object]) -> bool:
    return data.keys() <= {cls.file_name(field.name) for field in dataclasses.fields(cls)}


def _structure_value(data: Any, cls: type[Value]) -> Value:
    if isinstance(data, str) and cls.kind is None and kind_names(cls):
        data = {"kind": data}  # a kind by its name alone, with the defaults of its fields
    if not isinstance(data, Mapping):
        raise Unfit(data, "a mapping")
    try:
        concrete = _concrete(data, cls)
        has_kind = concrete.kind is not None
        named = concrete.from_file(
            {k: v for k, v in data.items() if not (has_kind and k == "kind")}
        )
    except FieldError as error:
        raise ClassValidationError("", [error], cls) from None
    result: Value = _class_function(cast(Any, concrete))(named, concrete)
    return result


def _concrete(data: Mapping[str, object], cls: type[Value]) -> type[Value]:
    """The class that `kind:` names; looked up each time, as a kind may be imported later."""
    name = data.get("kind", cls.kind)
    if cls.kind is not None:
        if name != cls.kind:
            raise FieldError("kind", name, unknown_choice(name, [cls.kind]))
        return cls
    if isinstance(name, str) and (kind := kind_of(cls, name)) is not None:
        return kind
    if not (choices := kind_names(cls)):
        return cls
    if "kind" not in data:
        raise FieldError("kind", ABSENT, f"missing field; use one of {', '.join(choices)}")
    raise FieldError("kind", name, unknown_choice(name, choices))


@cache
def _class_function(cls: Any) -> Any:
    hooks: dict[str, Any] = {
        # By hand, since cattrs does not see what an annotation carries beside the type.
        name: override(struct_hook=partial(_structure_field, notes=notes))
        for name, (_, notes) in field_types(cls).items()
    }
    return make_dict_structure_fn(cls, _converter, **hooks)


def _structure_field(value: Any, kind: Any, notes: tuple[object, ...]) -> Any:
    """Checks the range here too, where all problems are collected; a constructor names only one."""
    for note in notes:
        if isinstance(note, Also):
            value = note.meant(value)
    result = _converter.structure(value, kind)
    for note in notes:
        if problem := problem_of(result, note):
            raise FieldError("", value, problem)
    return result


def _same(first: object, second: object) -> bool:
    return type(first) is type(second) and first == second


def _structure_scalar(value: Any, cls: type) -> Any:
    """Exactly this type, except that a whole number is also accepted as a number."""
    if type(value) is cls and not isinstance(value, float):
        return value
    if cls is not float or type(value) not in (int, float):
        raise Unfit(value, _SCALARS[cls])
    return _finite(value)


def _finite(value: int | float) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise FieldError("", ABSENT, "must be a finite number")
    return number


def _structure_union(value: Any, union: Any) -> Any:
    """`X | None`, or one of several scalars, which is kept as it is."""
    members = [member for member in get_args(union) if member is not NoneType]
    if value is None and NoneType in get_args(union):
        return None
    if len(members) == 1:
        return _converter.structure(value, members[0])
    if type(value) not in members:
        listed = [m for m in members if m is not int or float not in members]
        raise Unfit(value, " or ".join(_SCALARS[member] for member in listed))
    return _finite(value) if isinstance(value, float) else value


def _structure_literal(value: Any, literal: Any) -> Any:
    choices = get_args(literal)
    if not any(_same(choice, value) for choice in choices):
        raise FieldError("", value, unknown_choice(value, list(choices)))
    return value


def _structure_tuple(value: Any, kind: Any) -> Any:
    if not isinstance(value, (list, tuple)):
        raise Unfit(value, "a list")
    item, _ = get_args(kind)
    items: Any = GenericAlias(list, (item,))
    return tuple(_converter.structure(value, items))


def _structure_mapping(value: Any, kind: Any) -> Any:
    if not isinstance(value, Mapping):
        raise Unfit(value, "a mapping")
    key, _ = get_args(kind)
    if key is int:  # which JSON can only say as text
        value = {int(k) if isinstance(k, str) and k.isdigit() else k: v for k, v in value.items()}
    entries: Any = GenericAlias(dict, get_args(kind))
    return _converter.structure(value, entries)


def _has_origin(*origins: object) -> Any:
    return lambda kind: get_origin(kind) in origins


for _scalar in _SCALARS:
    _converter.register_structure_hook(_scalar, _structure_scalar)
_converter.register_structure_hook_func(
    lambda kind: isinstance(kind, type) and issubclass(kind, Value), _structure_value
)
_converter.register_structure_hook_func(_has_origin(tuple), _structure_tuple)
_converter.register_structure_hook_func(_has_origin(Mapping), _structure_mapping)
_converter.register_structure_hook_func(_has_origin(Literal), _structure_literal)
_converter.register_structure_hook_func(_has_origin(Union, UnionType), _structure_union)
