"""Defaults of an Avro schema, from JSON to what fastavro would have read.

Fastavro takes them as they stand in the schema: milliseconds for a timestamp, text for bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from penstock.lake.isolated.avro_logical import converter

_BITS = {"int": 31, "long": 63}
# As Java writes them: JSON has no such numbers.
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")


def convert_defaults(schema: Any) -> None:
    """Convert all defaults of a parsed schema. Raises ValueError if one does not fit its type."""
    types: Mapping[str, Any] = schema["__named_schemas"]
    found = []
    for record in types.values():
        for field in record.get("fields", ()):
            if "default" in field:
                try:
                    found.append((field, _value(field["type"], field["default"], types)))
                except (ValueError, OverflowError) as error:
                    raise ValueError(
                        f"the default of {record['name']}.{field['name']} does not fit its type: "
                        f"{error}"
                    ) from None
    for field, value in found:  # at the end, since a record's default may use those of its fields
        field["default"] = value


def _value(schema: Any, default: Any, types: Mapping[str, Any]) -> Any:
    if isinstance(schema, list):
        return _of_union(schema, default, types)
    if isinstance(schema, str) and schema in types:
        return _value(types[schema], default, types)
    kind = schema["type"] if isinstance(schema, dict) else schema
    match kind:
        case "array":
            _require(isinstance(default, list), default, "an array")
            return [_value(schema["items"], item, types) for item in default]
        case "map":
            _require(isinstance(default, dict), default, "a map")
            return {key: _value(schema["values"], item, types) for key, item in default.items()}
        case "record" | "error":
            _require(isinstance(default, dict), default, "a record")
            return {f["name"]: _of_field(f, default, types) for f in schema["fields"]}
        case "enum":
            _require(default in schema["symbols"], default, f"one of {schema['symbols']}")
            return default
    value = _plain(kind, schema, default)
    convert = converter(schema)
    if convert is None:
        return value
    if schema["logicalType"] == "decimal":
        number = int.from_bytes(value, "big", signed=True)
        digits = schema["precision"]
        _require(abs(number) < 10**digits, default, f"a decimal of {digits} digits")
    return convert(value, schema, None)


def _of_union(kinds: list[Any], default: Any, types: Mapping[str, Any]) -> Any:
    """By the first type that it fits; since Avro 1.12 this need not be the union's first."""
    for kind in kinds:
        try:
            return _value(kind, default, types)
        except (ValueError, OverflowError):
            continue
    raise ValueError(f"{default!r} is of no type of the union")


def _of_field(field: Any, defaults: Mapping[str, Any], types: Mapping[str, Any]) -> Any:
    if field["name"] in defaults:
        return _value(field["type"], defaults[field["name"]], types)
    if "default" not in field:
        raise ValueError(f"it has no field {field['name']}")
    return _value(field["type"], field["default"], types)


def _plain(kind: str, schema: Any, default: Any) -> Any:
    is_number = isinstance(default, (int, float)) and not isinstance(default, bool)
    match kind:
        case "null":
            _require(default is None, default, "null")
        case "boolean":
            _require(isinstance(default, bool), default, "a boolean")
        case "int" | "long":
            _require(is_number and isinstance(default, int), default, f"a number of type {kind}")
            end = 1 << _BITS[kind]
            _require(-end <= default < end, default, f"a number of type {kind}")
        case "float" | "double":
            _require(is_number or default in _NOT_FINITE, default, f"a number of type {kind}")
            code = "<f" if kind == "float" else "<d"
            return struct.unpack(code, struct.pack(code, float(default)))[0]
        case "string":
            _require(isinstance(default, str), default, "text")
            default.encode()  # raises UnicodeEncodeError, a ValueError, for a lone surrogate
        case "bytes" | "fixed":
            _require(isinstance(default, str), default, "text")
            made = default.encode("latin-1")  # one byte per character
            size = schema["size"] if kind == "fixed" else len(made)
            _require(len(made) == size, default, f"of {size} bytes")
            return made
    return default


def _require(is_so: bool, default: Any, what: str) -> None:
    if not is_so:
        raise ValueError(f"{default!r} is not {what}")
