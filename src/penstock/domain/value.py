"""The base of every word in the vocabulary: a frozen dataclass that refuses impossible values.

A field may carry a `Bound` (its range) and a `Doc` (one line for people and for the JSON schema):

    delay_ms: Annotated[float, Bound(ge=0), Doc("one way")]

Both are read from the annotation, so a value is checked however it was made (from a file or in
Python) and the schema an editor completes from says the same thing. Not a parser: see
`penstock.specs` for files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, ClassVar, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Bound:
    """The range of a number; the message of a violation is made from it."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def problem(self, number: float) -> str | None:
        """What is wrong with `number`, or None."""
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
    """Other spellings that files may use for a field, each with what it means."""

    # Pairs, since an annotation must be hashable.
    spellings: tuple[tuple[str | int, str], ...]


class FieldError(ValueError):
    """A field whose value cannot be: says the field, the value and what would be right."""

    def __init__(self, field: str, value: object, fix: str) -> None:
        super().__init__(f"{field}: {value!r} {fix}")
        self.field = field
        self.value = value
        self.fix = fix


def field_types(cls: type) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Field name → (its type, what the annotation carries beside the type)."""
    return _field_types(cls)


@cache
def _field_types(cls: type) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    hints = get_type_hints(cls, include_extras=True)
    result: dict[str, tuple[Any, tuple[Any, ...]]] = {}
    for field in fields(cls):
        hint = hints[field.name]
        if get_origin(hint) is Annotated:
            bare, *notes = get_args(hint)
            result[field.name] = (bare, tuple(notes))
        else:
            result[field.name] = (hint, ())
    return result


@dataclass(frozen=True, kw_only=True)
class Value:
    """A frozen dataclass whose bounded fields were checked when it was made."""

    # A word that comes in several kinds (a delay, a fault) is an abstract Value; each kind is a
    # subclass with its name here, and files say `kind: NAME`.
    kind: ClassVar[str | None] = None

    # The field (a mapping) that takes whatever a file says beyond the other fields, if there is
    # one; without, an unknown name in a file is a mistake.
    rest: ClassVar[str | None] = None

    @classmethod
    def file_name(cls, field: str) -> str:
        """What files call this field."""
        return field

    @classmethod
    def from_file(cls, data: Mapping[str, object]) -> Mapping[str, object]:
        """What a file says, under the names of the fields. Values are not checked here."""
        return data

    def __post_init__(self) -> None:
        for name, (_, notes) in field_types(type(self)).items():
            number = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, (int, float)):
                continue
            for note in notes:
                if isinstance(note, Bound) and (problem := note.problem(number)):
                    raise FieldError(name, number, problem)

    def require(self, condition: bool, field: str, fix: str) -> None:
        """Raise a `FieldError` for `field` unless `condition` holds."""
        if not condition:
            raise FieldError(field, getattr(self, field), fix)


def kinds(word: type[Value]) -> dict[str, type[Value]]:
    """The kinds of an abstract word, by name, as far as their modules are imported."""
    found: dict[str, type[Value]] = {}
    for subclass in word.__subclasses__():
        # Of its own: a kind refined by a subclass is still one kind.
        if name := vars(subclass).get("kind"):
            found[name] = subclass
        found.update(kinds(subclass))
    return dict(sorted(found.items()))


Share = Annotated[float, Bound(ge=0, le=1)]
NonNegative = Annotated[float, Bound(ge=0)]
Positive = Annotated[float, Bound(gt=0)]
Count = Annotated[int, Bound(ge=0)]
PositiveCount = Annotated[int, Bound(ge=1)]
