"""JSON schema (draft 2020-12) of the files, from the same dataclasses that read them.

An editor completes and checks a file with it; `penstock.specs` remains the judge, since rules
between fields (high_ms > low_ms) have no place in a schema.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from penstock.domain.value import Also, Bound, Doc, Value, field_types, kinds
from penstock.specs import to_data

Schema = dict[str, Any]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean"}
_BOUNDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
}


def json_schema(cls: type[Value]) -> Schema:
    """The schema of a file that holds one value of `cls`."""
    definitions: dict[str, Schema] = {}
    root = _reference(cls, definitions)
    return {
        "$schema": _DIALECT,
        "title": cls.__name__,
        **root,
        "$defs": dict(sorted(definitions.items())),
    }


def summary(cls: type) -> str:
    """What a class is, in one line: the first of its docstring."""
    return (cls.__doc__ or "").strip().split("\n", 1)[0]


def _reference(cls: type[Value], definitions: dict[str, Schema]) -> Schema:
    if cls.__name__ not in definitions:
        definitions[cls.__name__] = {}  # a place held, for a word that contains itself
        choices = kinds(cls) if cls.kind is None else {}
        definitions[cls.__name__] = (
            _choice(cls, choices, definitions) if choices else _object(cls, definitions)
        )
    return {"$ref": f"#/$defs/{cls.__name__}"}


def _choice(
    cls: type[Value], choices: Mapping[str, type[Value]], definitions: dict[str, Schema]
) -> Schema:
    return {
        "description": summary(cls),
        "oneOf": [_reference(kind, definitions) for kind in choices.values()],
    }


def _object(cls: type[Value], definitions: dict[str, Schema]) -> Schema:
    properties: dict[str, Schema] = {}
    required: list[str] = []
    beyond: bool | Schema = False
    if cls.kind is not None:
        properties["kind"] = {"const": cls.kind}
        required.append("kind")
    for field in dataclasses.fields(cls):
        if field.name == cls.rest:
            beyond = _field(cls, field, definitions)["additionalProperties"]
            continue
        name = cls.file_name(field.name)
        properties[name] = _field(cls, field, definitions)
        if _is_required(field):
            required.append(name)
    return {
        "description": summary(cls),
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": beyond,
    }


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _field(
    cls: type[Value], field: dataclasses.Field[Any], definitions: dict[str, Schema]
) -> Schema:
    wanted, notes = field_types(cls)[field.name]
    schema = _type(wanted, definitions)
    for note in notes:
        match note:
            case Doc():
                schema["description"] = note.text
            case Bound():
                limits = dataclasses.asdict(note).items()
                schema |= {_BOUNDS[name]: limit for name, limit in limits if limit is not None}
            case Also():
                schema["enum"] = [*schema["enum"], *(text for text, _ in note.spellings)]
    if field.default is not dataclasses.MISSING:
        schema["default"] = to_data(field.default)
    elif field.default_factory is not dataclasses.MISSING:
        schema["default"] = to_data(field.default_factory())
    return schema


def _type(wanted: Any, definitions: dict[str, Schema]) -> Schema:
    if wanted in _SCALARS:
        return {"type": _SCALARS[wanted]}
    if wanted is Any:
        return {}
    arguments = get_args(wanted)
    match get_origin(wanted):
        case origin if origin is Literal:
            return {"enum": list(arguments)}
        case origin if origin in (Union, UnionType):
            return _union(arguments, definitions)
        case origin if origin is tuple:
            return {"type": "array", "items": _type(arguments[0], definitions)}
        case origin if origin is Mapping:
            return {"type": "object", "additionalProperties": _type(arguments[1], definitions)}
    return _reference(wanted, definitions)


def _union(members: tuple[Any, ...], definitions: dict[str, Schema]) -> Schema:
    if all(member in _SCALARS or member is NoneType for member in members):
        return {"type": [_SCALARS.get(member, "null") for member in members]}
    schemas = [_type(member, definitions) for member in members if member is not NoneType]
    if len(schemas) == 1 and "enum" in schemas[0]:
        return {"enum": [*schemas[0]["enum"], None]}
    return {"anyOf": [*schemas, {"type": "null"}]}
