"""Describes what is wrong with a spec: the field, the value and the fix. One line per problem."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import cast

from cattrs.errors import (
    BaseValidationError,
    ClassValidationError,
    ForbiddenExtraKeysError,
    IterableValidationError,
)

from penstock.domain import plugins
from penstock.domain.client import is_secret
from penstock.domain.errors import PenstockError
from penstock.domain.value import Doc, FieldError, Value, field_types
from penstock.specs.text import Document, Place
from penstock.specs.units import IN_NAMES, plain, quantity, split_name

NUMBER, WHOLE, TEXT, TRUTH = "a number", "a whole number", "text", "true or false"
_YES = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


# For who wrote a class of another package.
_OF_OTHERS = "repair that package: it should raise penstock.FieldError for values that it refuses"

# In place of a value that is not there or need not be shown.
ABSENT = object()


class Unfit(Exception):
    """A value of another type than the wanted one."""

    def __init__(self, value: object, expected: str) -> None:
        super().__init__(expected)
        self.value = value
        self.expected = expected


def lines(error: Exception, document: Document) -> list[str]:
    """Every problem as `demo.yaml:7: path.to.field: what is wrong`, in the order of the file."""
    problems = sorted(_problems(error, ()), key=lambda problem: document.line(problem[0]) or 0)
    return [": ".join(filter(None, (document.at(p), _path(p), text))) for p, text in problems]


def _path(place: Place) -> str:
    """("links", 0, "delay") → links[0].delay"""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    return "".join(steps).removeprefix(".")


def _problems(error: Exception, place: Place) -> Iterator[tuple[Place, str]]:
    name = str(place[-1]) if place else ""
    match error:
        case ClassValidationError():
            yield from _class_problems(error, place)
        case IterableValidationError():
            with_notes, others = error.group_exceptions()
            for inner, note in with_notes:
                yield from _problems(inner, (*place, note.index))
            for inner in others:
                yield from _problems(inner, place)
        case FieldError():
            yield place, f"{_show(error.value, name)} {error.rule}".strip()
        case Unfit():
            yield place, _unfit(name, error.value, error.expected)
        case _:
            # None of ours: a hook that raised something unforeseen is our bug, not the user's.
            raise error


def _class_problems(error: ClassValidationError, place: Place) -> Iterator[tuple[Place, str]]:
    cls = cast(type[Value], error.cl)
    with_notes, others = error.group_exceptions()
    meant = set()
    for inner in others:
        if isinstance(inner, ForbiddenExtraKeysError):
            for name in sorted(map(str, inner.extra_fields)):
                known, text = _unknown(cls, name)
                meant.add(known)
                yield (*place, name), text
        elif isinstance(inner, FieldError):
            yield from _problems(inner, _field_place(cls, inner.field, place))
        elif (plugin := plugins.title(cls)) and not isinstance(
            inner, (PenstockError, BaseValidationError)
        ):
            problem = f"{type(inner).__name__}: {inner}"
            yield place, f"{plugin} cannot be made: {problem}; {_OF_OTHERS}"
        else:
            yield from _problems(inner, place)
    for inner, note in with_notes:
        at = _field_place(cls, note.name, place)
        if not isinstance(inner, KeyError):
            yield from _problems(inner, at)
        elif cls.file_name(note.name) not in meant:  # one mistake, one line
            yield at, _missing(cls, note.name)


def _field_place(cls: type[Value], field: str, place: Place) -> Place:
    """Where files write `field`, which may be a name within a field (properties.log.dirs)."""
    name, _, within = field.partition(".")
    inner = (within,) if within else ()
    return (*place, *inner) if name == cls.rest else (*place, cls.file_name(name), *inner)


def _missing(cls: type, field: str) -> str:
    docs = [note.text for note in field_types(cls)[field][1] if isinstance(note, Doc)]
    return f"missing field ({docs[0]})" if docs else "missing field"


def _unknown(cls: type[Value], name: str) -> tuple[str | None, str]:
    """The field that was probably meant, and what to say about the name that was used."""
    names = [cls.file_name(field.name) for field in fields(cls)]
    stem, _ = split_name(name)
    for known in names:
        known_stem, unit = split_name(known)
        if unit and known_stem == stem:
            words = IN_NAMES[unit].words
            return known, f"unknown field; this is given in {words}: use '{known}'"
    if close := get_close_matches(name, names, n=1):
        return close[0], f"unknown field; did you mean '{close[0]}'?"
    return None, f"unknown field; use one of {', '.join(names)}" if names else "unknown field"


def _unfit(name: str, value: object, expected: str) -> str:
    if isinstance(value, str) and expected in (NUMBER, WHOLE):
        return _unfit_number(name, value, expected)
    if isinstance(value, str) and expected == TRUTH:
        meant = _YES.get(value.lower(), value.lower())
        advice = f": write {meant}" if meant in ("true", "false") else ""
        return f"expected {expected}, not {_show(value, name)}{advice}"
    if expected == TEXT and isinstance(value, (bool, int, float)):
        return f"expected text, not {_show(value, name)}: put it in quotes"
    return f"expected {expected}, not {_show(value, name) or type(value).__name__}"


def _unfit_number(name: str, value: str, expected: str) -> str:
    """Text where a number belongs: mostly a number with its unit or in quotes."""
    _, unit = split_name(name)
    number = quantity(value, unit)
    if number is not None and expected == WHOLE and number.denominator != 1:
        number = None
    what = f"expected {expected}"
    # Without a unit of its own, it is a number but for its quotes or its separators.
    if unit is not None and quantity(value, None) is None:
        what += f" of {IN_NAMES[unit].words} (the unit is in the name '{name}')"
    instead = f", not {_show(value, name)}" if number is None else f": write {plain(number)}"
    return what + instead


def _show(value: object, name: str) -> str:
    """A value as the file has it; nothing for one too long to show, and no secrets."""
    if value is ABSENT:
        return ""
    if is_secret(name):
        return "[hidden]"
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case float() if value.is_integer():
            return str(int(value)) if abs(value) < 1e15 else repr(value)
        case int() | float():
            return str(value)
        case str():
            return repr(value if len(value) <= 60 else value[:57] + "...")
        case Value() | tuple():
            return ""
        case list():
            return "a list"
        case Mapping():
            return "a mapping"
    return type(value).__name__
