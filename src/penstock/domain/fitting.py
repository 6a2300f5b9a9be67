"""Whether a Python value fits the annotation of a field: the annotations that values use, no more.

Text, numbers, truth values, `X | None`, `Literal`, `tuple[X, ...]`, `Mapping[K, V]` and classes; what
else an annotation may say is not checked. An int is also a float, a bool is not a number, and a
number of numpy becomes one. A list or another sequence becomes a tuple, but text is never a sequence.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from penstock.domain import plugins

# Returns what the field gets: the value itself, or what was made of it (a tuple, a plain number).
Fit = Callable[[Any], Any]


class Unfit(Exception):
    """A value that does not fit; `path` leads to it within the field."""

    def __init__(self, value: object, expected: str, path: str = "", advice: str = "") -> None:
        super().__init__(expected)
        self.value, self.expected, self.path, self.advice = value, expected, path, advice

    def within(self, step: object) -> Unfit:
        return Unfit(self.value, self.expected, f".{step}{self.path}", self.advice)

    @property
    def shown(self) -> object:
        """The value, if it is short and cannot be a secret."""
        is_short = isinstance(self.value, str) and len(self.value) <= 60
        return self.value if is_short else _hidden(self.value)


class _Of:
    def __init__(self, kind: type) -> None:
        self._kind = kind

    def __repr__(self) -> str:
        return f"a value of type {self._kind.__name__}"


def fit_of(annotation: Any) -> Fit | None:
    """What checks values of this annotation; None if every value fits."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return fit_of(arguments[0])
    if origin in (Union, UnionType):
        return _union(annotation)
    if origin is Literal:
        return _literal(arguments)
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return _tuple(arguments[0])
        return _fixed_tuple(arguments)
    if origin is Mapping:
        return _mapping(*arguments)
    if annotation in _SCALARS:
        return _scalar(annotation)
    if annotation in (None, NoneType):
        return _none
    if annotation is Any or not isinstance(annotation, type):
        return None
    return _instance(annotation)


def _is_whole(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _is_truth(value: object) -> bool:
    return isinstance(value, bool) or type(value).__name__ == "bool"  # numpy's


# Type → what it is called, the exact types that fit, what other values must satisfy.
_SCALARS: dict[Any, tuple[str, frozenset[type], Callable[[object], bool]]] = {
    str: ("text", frozenset({str}), lambda value: isinstance(value, str)),
    int: ("a whole number", frozenset({int}), _is_whole),
    float: ("a number", frozenset({int, float}), _is_number),
    bool: ("True or False", frozenset({bool}), _is_truth),
}


def _scalar(kind: type) -> Fit:
    name, exact, fits = _SCALARS[kind]

    def fit(value: Any) -> Any:
        if type(value) in exact:
            return value
        if fits(value):  # a number of numpy, a fraction: the field gets a plain one
            return kind(value)
        raise Unfit(value, name)

    return fit


def _none(value: Any) -> Any:
    if value is not None:
        raise Unfit(value, "None")
    return value


def _instance(kind: type) -> Fit:
    # An abstract word, such as Arrivals, is never made itself.
    is_word = bool(getattr(kind, "plugin_group", None)) and bool(
        getattr(kind, "__abstractmethods__", None)
    )
    article = "an" if kind.__name__.startswith(tuple("AEIO")) else "a"
    expected = f"a kind of {kind.__name__}" if is_word else f"{article} {kind.__name__}"

    def fit(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        raise Unfit(value, expected, advice=_example(value, kind) if is_word else "")

    return fit


def _example(value: Any, word: Any) -> str:
    """What to write instead of the name of a kind, or of its class."""
    named = plugins.find(word.plugin_group, value) if isinstance(value, str) else value
    if isinstance(named, type) and issubclass(named, word):
        return f": write {named.__name__}(…)"
    return f": {', '.join(plugins.names(word.plugin_group))}"


def _literal(choices: tuple[Any, ...]) -> Fit:
    expected = f"one of {', '.join(map(repr, choices))}"
    texts = frozenset(choice for choice in choices if type(choice) is str)

    def fit(value: Any) -> Any:
        if type(value) is str and value in texts:
            return value
        if any(type(choice) is type(value) and choice == value for choice in choices):
            return value
        raise Unfit(value, expected)

    return fit


def _union(annotation: Any) -> Fit | None:
    members = get_args(annotation)
    fits = [fit_of(member) for member in members if member is not NoneType]
    has_none = NoneType in members
    if any(fit is None for fit in fits):
        return None
    exact = exact_types(annotation)

    def fit(value: Any) -> Any:
        if type(value) in exact or (value is None and has_none):
            return value
        unfits = []
        for one in fits:
            assert one is not None
            try:
                return one(value)
            except Unfit as error:
                unfits.append(error)
        if len(unfits) == 1:
            raise unfits[0]
        named = dict.fromkeys(unfit.expected for unfit in unfits)
        if float in members:
            named.pop("a whole number", None)
        raise Unfit(value, " or ".join(named))

    return fit


def exact_types(annotation: Any) -> frozenset[type]:
    """The types whose values fit as they are; a fast way past most values."""
    if annotation in _SCALARS:
        return _SCALARS[annotation][1]
    if get_origin(annotation) in (Union, UnionType):
        return frozenset[type]().union(*map(exact_types, get_args(annotation)))
    return frozenset({NoneType}) if annotation is NoneType else frozenset()


def _each(annotation: Any) -> Callable[[Sequence[Any], Sequence[Any]], list[Any] | None]:
    """Checks items (named for messages by the first argument); returns them if one was changed."""
    fit, exact = fit_of(annotation), exact_types(annotation)

    def each(names: Sequence[Any], items: Sequence[Any]) -> list[Any] | None:
        if fit is None or exact.issuperset(map(type, items)):
            return None
        fitting = []
        for name, item in zip(names, items, strict=True):
            try:
                fitting.append(fit(item))
            except Unfit as error:
                raise error.within(name) from None
        is_same = all(new is old for new, old in zip(fitting, items, strict=True))
        return None if is_same else fitting

    return each


def _sequence(value: Any) -> tuple[Any, ...]:
    if isinstance(value, tuple):
        return value
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray)):
        return tuple(value)
    advice = f": write [{value!r}]" if isinstance(value, str) and len(value) <= 60 else ""
    raise Unfit(value, "a list or a tuple", advice=advice)


def _tuple(annotation: Any) -> Fit:
    each = _each(annotation)

    def fit(value: Any) -> Any:
        if value == ():
            return value
        items = _sequence(value)
        fitting = each(range(len(items)), items)
        return items if fitting is None else tuple(fitting)

    return fit


def _fixed_tuple(annotations: tuple[Any, ...]) -> Fit:
    fits = [fit_of(annotation) for annotation in annotations]
    exacts = [exact_types(annotation) for annotation in annotations]

    def fit(value: Any) -> Any:
        items = _sequence(value)
        if len(items) != len(fits):
            raise Unfit(value, f"{len(fits)} items")
        if all(type(item) in types for item, types in zip(items, exacts, strict=True)):
            return items
        return tuple(
            item if one is None else one(item) for one, item in zip(fits, items, strict=True)
        )

    return fit


def _mapping(key: Any, item: Any) -> Fit:
    each_key, each_item = _each(key), _each(item)

    def fit(value: Any) -> Any:
        if type(value) is not dict and not isinstance(value, Mapping):
            raise Unfit(value, "a mapping")
        if not value:
            return value
        names, items = list(value), list(value.values())
        each_key(names, names)
        try:
            fitting = each_item(names, items)
        except Unfit as error:
            error.value = _hidden(error.value)
            raise
        return value if fitting is None else dict(zip(names, fitting, strict=True))

    return fit


def _hidden(value: object) -> object:
    """Its type. Entries of a mapping may be properties of a client, and text in them a secret."""
    return (
        value if value is None or isinstance(value, (bool, int, float, _Of)) else _Of(type(value))
    )
