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

from penstock.domain.client import ClientProperties, redacted
from penstock.domain.cluster import ClusterSpec, TopicSpec
from penstock.domain.errors import BadInput
from penstock.domain.facts import ClusterFacts
from penstock.domain.fault import FaultPlan
from penstock.domain.grid import ExperimentGrid
from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.lake.plan import Plan
from penstock.domain.metrics import RunMetrics
from penstock.domain.network import NetworkSpec, NetworkTrace
from penstock.domain.objective import Objective
from penstock.domain.run import Run
from penstock.domain.scenario import Scenario
from penstock.domain.settings import ProducerSettings
from penstock.domain.value import Also, Bound, FieldError, Value, field_types, kinds
from penstock.domain.workload import Workload
from penstock.spec_problems import ABSENT, NUMBER, TEXT, TRUTH, WHOLE, Unfit, lines, unknown_choice
from penstock.spec_text import Document, parse_text, read_text, to_yaml

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
    "trace": NetworkTrace,
    "workload": Workload,
}


def load(path: Path, cls: type[T]) -> T:
    """Read a file as a value of `cls`: JSON if its name ends in .json, otherwise YAML."""
    return _structure(parse_text(read_text(path), str(path)), cls)


def parse(text_or_data: object, cls: type[T], source: str = "input") -> T:
    """The same from text (JSON if `source` ends in .json) or from plain data."""
    if isinstance(text_or_data, str):
        return _structure(parse_text(text_or_data, source), cls)
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
    raise TypeError(f"{type(value).__name__} cannot be written as YAML or JSON")


def dump_yaml(value: object) -> str:
    """`value` as a YAML file."""
    return to_yaml(to_data(value))


def dump_json(value: object) -> str:
    """`value` as JSON for a program: what every `--json` prints. JSON has no NaN, so it is null."""
    return _json(value, indent=2)


def dump_json_line(value: object) -> str:
    """The same in one line, of many that follow one another."""
    return _json(value, indent=None)


def _json(value: object, indent: int | None) -> str:
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
    data: dict[str, Any] = {} if value.kind is None else {"kind": value.kind}
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        if field.name == value.rest:
            data.update(to_data(item))
        elif not _is_absent(item, field):
            data[value.file_name(field.name)] = to_data(item)
    return data


def _is_absent(item: object, field: dataclasses.Field[Any]) -> bool:
    has_default = not (
        field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    )
    return has_default and (item is None or item == () or item == {})


# --- from plain data to values -------------------------------------------------------------------

_SCALARS: dict[type, str] = {str: TEXT, int: WHOLE, float: NUMBER, bool: TRUTH}
_converter = Converter(detailed_validation=True, forbid_extra_keys=True)


def _structure(document: Document, cls: type[T]) -> T:
    try:
        return _converter.structure(document.data, cls)
    except Exception as error:
        raise BadInput("\n".join(lines(error, document))) from None


def _structure_value(data: Any, cls: type[Value]) -> Value:
    if not isinstance(data, Mapping):
        raise Unfit(data, "a mapping")
    try:
        concrete = _concrete(data, cls)
        named = concrete.from_file({k: v for k, v in data.items() if not _is_kind(k, concrete)})
    except FieldError as error:
        raise ClassValidationError("", [error], cls) from None
    result: Value = _class_function(cast(Any, concrete))(named, concrete)
    return result


def _is_kind(key: object, cls: type[Value]) -> bool:
    return key == "kind" and cls.kind is not None


def _concrete(data: Mapping[str, object], cls: type[Value]) -> type[Value]:
    """The class that `kind:` asks for; asked anew each time, for a kind may be imported later."""
    choices = kinds(cls) if cls.kind is None else {cls.kind: cls}
    if not choices or ("kind" not in data and cls.kind is not None):
        return cls
    if "kind" not in data:
        raise FieldError("kind", ABSENT, f"missing field; use one of {', '.join(choices)}")
    name = data["kind"]
    if not isinstance(name, str) or name not in choices:
        raise FieldError("kind", name, unknown_choice(name, list(choices)))
    return choices[name]


@cache
def _class_function(cls: Any) -> Any:
    hooks: dict[str, Any] = {
        # By hand, since cattrs does not see what an annotation carries beside the type.
        name: override(struct_hook=partial(_structure_field, notes=notes))
        for name, (_, notes) in field_types(cls).items()
    }
    return make_dict_structure_fn(cls, _converter, **hooks)


def _structure_field(value: Any, wanted: Any, notes: tuple[object, ...]) -> Any:
    """Checks the range here too, where all problems are collected; a constructor names only one."""
    for note in notes:
        if isinstance(note, Also):
            value = next((to for text, to in note.spellings if _same(text, value)), value)
    result = _converter.structure(value, wanted)
    if isinstance(result, (int, float)) and not isinstance(result, bool):
        for note in notes:
            if isinstance(note, Bound) and (problem := note.problem(result)):
                raise FieldError("", value, problem)
    return result


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other


def _structure_scalar(value: Any, cls: type) -> Any:
    """Exactly this type, except that a whole number does where any number is wanted."""
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
        shown = [m for m in members if m is not int or float not in members]
        raise Unfit(value, " or ".join(_SCALARS[member] for member in shown))
    return _finite(value) if isinstance(value, float) else value


def _structure_literal(value: Any, literal: Any) -> Any:
    choices = get_args(literal)
    if not any(_same(choice, value) for choice in choices):
        raise FieldError("", value, unknown_choice(value, list(choices)))
    return value


def _structure_tuple(value: Any, wanted: Any) -> Any:
    if not isinstance(value, (list, tuple)):
        raise Unfit(value, "a list")
    item, _ = get_args(wanted)
    items: Any = GenericAlias(list, (item,))
    return tuple(_converter.structure(value, items))


def _structure_mapping(value: Any, wanted: Any) -> Any:
    if not isinstance(value, Mapping):
        raise Unfit(value, "a mapping")
    key, _ = get_args(wanted)
    if key is int:  # which JSON can only say as text
        value = {int(k) if isinstance(k, str) and k.isdigit() else k: v for k, v in value.items()}
    entries: Any = GenericAlias(dict, get_args(wanted))
    return _converter.structure(value, entries)


def _has_origin(*origins: object) -> Any:
    return lambda wanted: get_origin(wanted) in origins


for _scalar in _SCALARS:
    _converter.register_structure_hook(_scalar, _structure_scalar)
_converter.register_structure_hook_func(
    lambda wanted: isinstance(wanted, type) and issubclass(wanted, Value), _structure_value
)
_converter.register_structure_hook_func(_has_origin(tuple), _structure_tuple)
_converter.register_structure_hook_func(_has_origin(Mapping), _structure_mapping)
_converter.register_structure_hook_func(_has_origin(Literal), _structure_literal)
_converter.register_structure_hook_func(_has_origin(Union, UnionType), _structure_union)
