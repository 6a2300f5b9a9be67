"""JSON schema (draft 2020-12) of the files, from the same dataclasses that read them.

An editor completes and checks a file with it; `penstock.specs.loader` remains the judge, since rules
between fields (high_ms > low_ms) have no place in a schema.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from penstock.domain import plugins
from penstock.domain.value import Also, Bound, Choice, Doc, Value, field_types, kinds
from penstock.specs.loader import is_required, to_data

Schema = dict[str, Any]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean"}
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


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
    """The first line of a class's docstring."""
    return (cls.__doc__ or "").strip().split("\n", 1)[0]


def _reference(cls: type[Value], definitions: dict[str, Schema]) -> Schema:
    name = _name(cls, definitions)
    if name not in definitions:
        definitions[name] = _Definition(cls)  # a place held, for a word that contains itself
        choices = kinds(cls) if cls.kind is None else {}
        either = {"oneOf": [_reference(kind, definitions) for kind in choices.values()]}
        # By its name alone, if all of its fields have defaults.
        short = [n for n, k in choices.items() if not any(map(is_required, dataclasses.fields(k)))]
        if short:
            either["oneOf"].append({"enum": short})
        content = either if choices else _object(cls, definitions)
        definitions[name].update({"description": summary(cls), **content})
    return {"$ref": f"#/$defs/{name}"}


class _Definition(dict[str, Any]):
    """The schema of a class."""

    def __init__(self, cls: type[Value]) -> None:
        super().__init__()
        self.cls = cls


def _name(cls: type[Value], definitions: dict[str, Schema]) -> str:
    """The name of the class; with its module if another class has that name."""
    taken = definitions.get(cls.__name__)
    if isinstance(taken, _Definition) and taken.cls is not cls:
        return f"{cls.__module__}.{cls.__qualname__}"
    return cls.__name__


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
        if is_required(field):
            required.append(name)
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": beyond,
    }


def _field(
    cls: type[Value], field: dataclasses.Field[Any], definitions: dict[str, Schema]
) -> Schema:
    kind, notes = field_types(cls)[field.name]
    schema = _type(kind, definitions)
    for note in notes:
        match note:
            case Doc():
                schema["description"] = note.text
            case Bound():
                limits = dataclasses.asdict(note).items()
                schema |= {_BOUNDS[name]: limit for name, limit in limits if limit is not None}
            case Choice():
                schema["enum"] = list(plugins.every(note.group))
            case Also():
                schema["enum"] = [*schema["enum"], *(text for text, _ in note.spellings)]
    if field.default is not dataclasses.MISSING:
        schema["default"] = to_data(field.default)
    elif field.default_factory is not dataclasses.MISSING:
        schema["default"] = to_data(field.default_factory())
    return schema


def _type(kind: Any, definitions: dict[str, Schema]) -> Schema:
    if kind in _SCALARS:
        return {"type": _SCALARS[kind]}
    if kind is Any:
        return {}
    arguments = get_args(kind)
    match get_origin(kind):
        case origin if origin is Literal:
            return {"enum": list(arguments)}
        case origin if origin in (Union, UnionType):
            return _union(arguments, definitions)
        case origin if origin is tuple:
            return {"type": "array", "items": _type(arguments[0], definitions)}
        case origin if origin is Mapping:
            return {"type": "object", "additionalProperties": _type(arguments[1], definitions)}
    return _reference(kind, definitions)


def _union(members: tuple[Any, ...], definitions: dict[str, Schema]) -> Schema:
    if all(member in _SCALARS or member is NoneType for member in members):
        return {"type": [_SCALARS.get(member, "null") for member in members]}
    schemas = [_type(member, definitions) for member in members if member is not NoneType]
    if len(schemas) == 1 and "enum" in schemas[0]:
        return {"enum": [*schemas[0]["enum"], None]}
    return {"anyOf": [*schemas, {"type": "null"}]}
