"""The base class of the vocabulary: a frozen dataclass that refuses impossible values.

A field may carry a `Bound` (its range) and a `Doc` (one line for people and for the JSON schema):

    delay_ms: Annotated[float, Bound(ge=0), Doc("one way")]

Both are read from the annotation, so a value is checked however it was made (from a file or in
Python) and the schema an editor completes from says the same thing. So is the type, see
`penstock.domain.fitting`. Not a parser: see `penstock.specs.loader` for files.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import (
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from penstock.domain import plugins
from penstock.domain.errors import BadInput, unknown_choice
from penstock.domain.fitting import Fit, Unfit, exact_types, fit_of

T = TypeVar("T")


@dataclass(frozen=True)
class Bound:
    """The range of a number; the message of a violation is made from it."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def problem(self, number: float) -> str | None:
        """Why `number` is out of range, or None."""
        if isinstance(number, float) and not math.isfinite(number):
            return "must be a finite number"
        if self.ge is not None and number < self.ge:
            return f"must be {self.ge:.15g} or more"
        if self.gt is not None and number <= self.gt:
            return f"must be more than {self.gt:.15g}"
        if self.le is not None and number > self.le:
            return f"must be {self.le:.15g} or less"
        if self.lt is not None and number >= self.lt:
            return f"must be less than {self.lt:.15g}"
        return None


@dataclass(frozen=True)
class Doc:
    """One line about a field, shown in the JSON schema and in error messages."""

    text: str


@dataclass(frozen=True)
class Also:
    """Other spellings of a field, in files and in Python, each with what it means."""

    # Pairs, since an annotation must be hashable.
    spellings: tuple[tuple[str | int, str], ...]

    def meant(self, value: Any) -> Any:
        """What `value` is another spelling of, or `value`."""
        return next(
            (to for s, to in self.spellings if type(s) is type(value) and s == value), value
        )


@dataclass(frozen=True)
class Choice:
    """The field is the name of a plug-in of this group (`penstock.domain.plugins`)."""

    group: str


class FieldError(BadInput, ValueError):
    """An invalid field: its name, its value and the rule that it breaks, which is also the fix."""

    def __init__(self, field: str, value: object, rule: str) -> None:
        super().__init__(f"{field}: {value!r} {rule}")
        self.field = field
        self.value = value
        self.rule = rule


def field_types(cls: type) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Field name → (its type, what the annotation carries beside the type)."""
    return _field_types(cls)


@cache
def _field_types(cls: type) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    hints = get_type_hints(cls, include_extras=True)
    types: dict[str, tuple[Any, tuple[Any, ...]]] = {}
    for field in fields(cls):
        hint = hints[field.name]
        bare, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        types[field.name] = (bare, tuple(notes))
    return types


class _Check(NamedTuple):
    """How a field is checked."""

    field: str
    exact: frozenset[type]  # values of these types fit without a look
    fit: Fit | None
    notes: tuple[Bound | Choice, ...]


@cache
def _checks(cls: Any) -> tuple[_Check, ...]:
    return tuple(
        _Check(
            name,
            exact_types(kind),
            _fit(kind, notes) if cls.checks_types else None,
            tuple(note for note in notes if isinstance(note, (Bound, Choice))),
        )
        for name, (kind, notes) in field_types(cls).items()
    )


def _fit(kind: Any, notes: tuple[Any, ...]) -> Fit | None:
    fit = fit_of(kind)
    also = next((note for note in notes if isinstance(note, Also)), None)
    return fit if fit is None or also is None else lambda value: fit(also.meant(value))


@dataclass(frozen=True, kw_only=True)
class Value:
    """A frozen dataclass whose fields were checked when it was made: their types and bounds.

    A list where a tuple is wanted becomes one.
    """

    # A word that comes in several kinds (a delay, a fault) is an abstract Value; each kind is a
    # subclass with its name here, and files say `kind: NAME`.
    kind: ClassVar[str | None] = None

    # The group of plug-ins that has these subclasses; without, they are those that are imported.
    plugin_group: ClassVar[str | None] = None

    # The field (a mapping) that takes whatever a file says beyond the other fields, if there is
    # one; without, an unknown name in a file is a mistake.
    rest: ClassVar[str | None] = None

    # Only bounds are checked if this is False: for values that Penstock itself makes by the million.
    checks_types: ClassVar[bool] = True

    @classmethod
    def file_name(cls, field: str) -> str:
        """What files call this field."""
        return field

    @classmethod
    def from_file(cls, data: Mapping[str, object]) -> Mapping[str, object]:
        """What a file says, under the names of the fields. Values are not checked here."""
        return data

    def __post_init__(self) -> None:
        own: Any = type(self)
        for name, exact, fit, notes in _checks(own):
            value = getattr(self, name)
            if type(value) not in exact and fit is not None:
                fitting = _fitted(name, value, fit)
                if fitting is not value:
                    object.__setattr__(self, name, fitting)
                    value = fitting
            if notes:
                _check_notes(name, value, notes)

    def require(self, condition: bool, field: str, rule: str) -> None:
        """Raise a `FieldError` for `field` unless `condition` holds."""
        if not condition:
            raise FieldError(field, getattr(self, field), rule)


def _fitted(name: str, value: Any, fit: Fit) -> Any:
    try:
        return fit(value)
    except Unfit as error:
        rule = f"must be {error.expected}{error.advice}"
        raise FieldError(f"{name}{error.path}", error.shown, rule) from None


def _check_notes(name: str, value: object, notes: tuple[Bound | Choice, ...]) -> None:
    for note in notes:
        if problem := problem_of(value, note):
            raise FieldError(name, value, problem)


def fitting(argument: str, value: T, kind: Any, *notes: Bound | Choice) -> T:
    """An argument of a public function, checked as a field of the type `kind` would be."""
    fit = fit_of(kind)
    checked: T = value if fit is None else _fitted(argument, value, fit)
    _check_notes(argument, checked, notes)
    return checked


def several(argument: str, values: Iterable[T]) -> tuple[T, ...]:
    """An argument that takes several: one text or path is refused, not taken letter by letter."""
    if isinstance(values, Iterable) and not isinstance(values, (str, bytes)):
        return tuple(values)
    shown = str(values)
    raise FieldError(argument, shown, f"must be a list: write [{shown!r}]")


def problem_of(value: object, note: object) -> str | None:
    """What an annotation has against a value, or None."""
    match note:
        case Bound() if isinstance(value, (int, float)) and not isinstance(value, bool):
            return note.problem(value)
        case Choice() if isinstance(value, str) and plugins.find(note.group, value) is None:
            return unknown_choice(value, plugins.names(note.group))
    return None


def kinds(word: type[Value]) -> dict[str, type[Value]]:
    """The kinds of an abstract class, by name."""
    return plugins.every(word.plugin_group) if word.plugin_group else plugins.below(word)


def kind_names(word: type[Value]) -> list[str]:
    """Their names, without loading other packages."""
    return plugins.names(word.plugin_group) if word.plugin_group else list(plugins.below(word))


def kind_of(word: type[Value], name: str) -> type[Value] | None:
    """The kind of that name, or None."""
    kind: type[Value] | None = (
        plugins.find(word.plugin_group, name)
        if word.plugin_group
        else plugins.below(word).get(name)
    )
    return kind


Share = Annotated[float, Bound(ge=0, le=1)]
Count = Annotated[int, Bound(ge=0)]
