"""What `penstock` offers is complete: whoever has a public value, or writes a plug-in, finds every
type that it is made of in `penstock` too."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import Any, get_args, get_type_hints

import pytest

import penstock
from penstock.domain import plugins

PUBLIC = {name: getattr(penstock, name) for name in dir(penstock) if not name.startswith("_")}
CLASSES = {name: thing for name, thing in PUBLIC.items() if isinstance(thing, type)}
FUNCTIONS = {name: thing for name, thing in PUBLIC.items() if inspect.isfunction(thing)}
DATACLASSES = {name: thing for name, thing in CLASSES.items() if is_dataclass(thing)}
BASES: dict[str, type] = {group: plugins._word(group) for group in plugins.WORDS}


def hints(thing: Any) -> dict[str, Any]:
    """Its annotations. A name that is imported for type checkers only must be public itself."""
    try:
        return get_type_hints(thing)
    except NameError:
        return get_type_hints(thing, localns=PUBLIC)


def classes_in(hint: Any) -> Iterator[type]:
    """Every class that an annotation mentions, such as both of `Mapping[str, Estimate]`."""
    parts = hint if isinstance(hint, list) else get_args(hint)  # arguments of a callable: a list
    for part in parts:
        yield from classes_in(part)
    if isinstance(hint, type) and not parts:
        yield hint


def not_public(annotations: dict[str, Any]) -> dict[str, str]:
    """Annotation → the class of Penstock in it that `penstock` does not offer."""
    return {
        name: f"{cls.__module__}.{cls.__qualname__}"
        for name, hint in annotations.items()
        for cls in classes_in(hint)
        if cls.__module__.startswith("penstock.") and cls not in CLASSES.values()
    }


def getter(member: object) -> Callable[..., Any] | None:
    """The function behind a method or a property."""
    match member:
        case property():
            return member.fget
        case cached_property():
            return member.func
        case staticmethod() | classmethod():
            return member.__func__
    return member if inspect.isfunction(member) else None


def members(cls: type) -> dict[str, Callable[..., Any]]:
    """The public methods and properties of a class and of those of Penstock's that it is made of."""
    ours = [base for base in cls.__mro__ if base.__module__.startswith("penstock.")]
    found = {name: member for base in reversed(ours) for name, member in vars(base).items()}
    functions = {name: getter(member) for name, member in found.items()}
    return {
        name: function
        for name, function in functions.items()
        if function is not None and (not name.startswith("_") or name == "__call__")
    }


def properties(cls: type) -> dict[str, Any]:
    """Name → what it returns."""
    return {
        name: hints(function).get("return")
        for name, function in members(cls).items()
        if isinstance(inspect.getattr_static(cls, name), property | cached_property)
    }


def signatures(cls: type) -> dict[str, Any]:
    """`method(parameter)` → its type."""
    return {
        f"{name}({parameter})": hint
        for name, function in members(cls).items()
        for parameter, hint in hints(function).items()
    }


class Hidden:
    """Looks like a class of Penstock's own that is not exported."""


Hidden.__module__ = "penstock.somewhere"


@pytest.mark.parametrize("hint", [Hidden, Mapping[str, Hidden | None], Callable[[Hidden], None]])
def test_a_type_that_is_not_public_is_found_wherever_it_is(hint: Any) -> None:
    assert not_public({"field": hint}) == {"field": "penstock.somewhere.Hidden"}


@pytest.mark.parametrize("name", DATACLASSES)
def test_fields_and_properties_of_a_public_value_are_of_public_types(name: str) -> None:
    cls = DATACLASSES[name]
    own = {field.name for field in fields(cls)}
    annotations = {field: hint for field, hint in hints(cls).items() if field in own}
    assert not_public(annotations | properties(cls)) == {}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_takes_and_returns_public_types(name: str) -> None:
    assert not_public(hints(FUNCTIONS[name])) == {}


@pytest.mark.parametrize("group", BASES)
def test_every_built_in_kind_is_public(group: str) -> None:
    own = plugins._own(group).values()
    assert {kind.__name__ for kind in own if CLASSES.get(kind.__name__) is not kind} == set()


@pytest.mark.parametrize("group", BASES)
def test_whoever_writes_a_plug_in_finds_the_types_of_its_methods(group: str) -> None:
    # A base class in `domain` cannot name types of other packages; the built-in kinds do.
    base = BASES[group]
    inherited = members(base).keys()
    found = dict(signatures(base))
    for kind in plugins._own(group).values():
        found |= {
            f"{kind.__name__}.{name}": hint
            for name, hint in signatures(kind).items()
            if name.partition("(")[0] in inherited
        }
    assert not_public(found) == {}


@pytest.mark.parametrize("made", [penstock.Decider, penstock.Decoding, penstock.LoadProducer])
def test_so_does_who_writes_what_a_plug_in_makes(made: type) -> None:
    assert not_public(signatures(made)) == {}
