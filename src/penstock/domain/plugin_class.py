"""Whether the class of a plug-in can be used: found out when it is loaded, not in a traceback later.

Its package is not Penstock's, so a flaw is one that its author, or who installed it, can mend.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from inspect import get_annotations, isabstract
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from penstock.domain.value import Value, field_types

REPAIR = "repair that package, or uninstall it"
_TYPES = "str, int, float, bool, Literal, tuple[X, ...], Mapping[K, V], X | None or a Value"
_PLAIN = frozenset({str, int, float, bool})


class Flaw(NamedTuple):
    """What is wrong with a class, and what to do."""

    text: str
    fix: str = REPAIR


def flaw_of(plugin: Any, word: type, name: str, place: str) -> Flaw | None:
    """The first flaw of a class that is to be the kind `name` of `word`, which is at `place`."""
    if not (isinstance(plugin, type) and issubclass(plugin, word)):
        return Flaw(f"is not a subclass of {place}")
    if plugin.__dict__.get("kind") != name:
        return Flaw(f"does not have kind = {name!r}")
    if missing := _missing(plugin, word):
        return Flaw(f"does not define {', '.join(missing)}")
    return _flaw_of_fields(plugin, word) if issubclass(plugin, Value) else None


def _missing(plugin: type, word: type) -> list[str]:
    """Methods, and attributes that the abstract class only names."""
    methods = getattr(plugin, "__abstractmethods__", ()) if isabstract(plugin) else ()
    return sorted({*methods, *(n for n in _class_variables(word) if not hasattr(plugin, n))})


def _class_variables(cls: type) -> set[str]:
    hints = get_type_hints(cls, include_extras=True)
    return {name for name, hint in hints.items() if ClassVar in (hint, get_origin(hint))}


def _flaw_of_fields(plugin: type[Value], word: type) -> Flaw | None:
    try:
        return _forgotten(plugin, word) or _flaw_of_types(plugin, {plugin})
    except Exception as error:  # whatever the annotations of others do when they are read
        return Flaw(
            f"has an annotation that cannot be read: {type(error).__name__}: {error}",
            f"import what it names outside of `if TYPE_CHECKING:`; {REPAIR}",
        )


def _forgotten(plugin: type[Value], word: type) -> Flaw | None:
    """Of a class that would be taken for one with the fields of its base alone."""
    known = {*field_types(plugin), *_class_variables(plugin)}
    written = {n for c in plugin.__mro__ if issubclass(c, word) for n in get_annotations(c)}
    if not (forgotten := sorted(written - known)):
        return None
    return Flaw(
        f"has {', '.join(forgotten)}, which is not a field",
        f"put @dataclass(frozen=True, kw_only=True) above the class; {REPAIR}",
    )


def _flaw_of_types(cls: type[Value], seen: set[type]) -> Flaw | None:
    """Of its fields, and of those of the values in them, unless Penstock has these itself."""
    for name, (annotation, _) in field_types(cls).items():
        for part in _parts(annotation):
            if not (isinstance(part, type) and issubclass(part, Value)):
                shown = part.__name__ if isinstance(part, type) else str(part)
                text = f"has a field {name} of type {shown}, which is not supported in files"
                return Flaw(text, f"use {_TYPES}; {REPAIR}")
            is_ours = part.__module__.startswith("penstock.")
            if not is_ours and part not in seen and (flaw := _flaw_of_types(part, seen | {part})):
                return flaw
    return None


def _parts(annotation: Any) -> Iterator[Any]:
    """What an annotation is made of, beside what every file can hold: `specs` reads and writes
    values, and nothing else. Lists are excluded: they are not frozen."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    members = [member for member in arguments if member is not NoneType]
    if origin in (Union, UnionType) and (len(members) == 1 or _PLAIN.issuperset(members)):
        yield from (part for member in members for part in _parts(member))
    elif origin is tuple:
        yield from (
            part for argument in arguments if argument is not ... for part in _parts(argument)
        )
    elif origin is Mapping:
        yield from (part for argument in arguments for part in _parts(argument))
    elif origin is not Literal and annotation not in _PLAIN and annotation is not Any:
        yield annotation
