"""Units in field names (`at_ms`) and in values ("0.5s").

Only to explain mistakes: a file gives plain numbers, and the unit is in the name of the field.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Unit:
    """A unit, what it measures, and how many of the base unit it is."""

    words: str
    dimension: str
    factor: Fraction
    # What people write after a number, in small letters, beside the name and the words.
    also: tuple[str, ...] = ()


def _unit(words: str, dimension: str, factor: str | int, *also: str) -> Unit:
    return Unit(words, dimension, Fraction(factor), also)


# By the ending of a field's name. A rate in bytes is one in bits, so that they convert.
IN_NAMES = {
    "ns": _unit("nanoseconds", "time", "1e-9"),
    "us": _unit("microseconds", "time", "1e-6", "µs"),
    "ms": _unit("milliseconds", "time", "1e-3", "msec"),
    "s": _unit("seconds", "time", 1, "sec"),
    "bytes": _unit("bytes", "size", 1, "b", "byte"),
    "kb": _unit("kilobytes", "size", 10**3),
    "mb": _unit("megabytes", "size", 10**6),
    "gb": _unit("gigabytes", "size", 10**9),
    "kbit": _unit("kilobits per second", "bit rate", 10**3, "kbit/s", "kbps"),
    "mbit": _unit("megabits per second", "bit rate", 10**6, "mbit/s", "mbps"),
    "gbit": _unit("gigabits per second", "bit rate", 10**9, "gbit/s", "gbps"),
    "bytes_per_s": _unit("bytes per second", "bit rate", 8),
    "kb_per_s": _unit("kilobytes per second", "bit rate", 8 * 10**3, "kb/s"),
    "mb_per_s": _unit("megabytes per second", "bit rate", 8 * 10**6, "mb/s"),
    "gb_per_s": _unit("gigabytes per second", "bit rate", 8 * 10**9, "gb/s"),
    "per_s": _unit("events per second", "frequency", 1, "/s", "hz"),
    "share": _unit("parts of one", "share", 1),
}

# By what people write after a number. Units that no field's name has come first.
_IN_VALUES = {
    "%": _unit("per cent", "share", "1/100"),
    "gib": _unit("gibibytes", "size", 2**30),
    "h": _unit("hours", "time", 3600),
    "kib": _unit("kibibytes", "size", 2**10),
    "mib": _unit("mebibytes", "size", 2**20),
    "min": _unit("minutes", "time", 60),
    **{text: unit for name, unit in IN_NAMES.items() for text in (name, unit.words, *unit.also)},
}

_QUANTITY = re.compile(r"([-+]?(?:\d[\d_,]*)(?:\.\d+)?(?:e[-+]?\d{1,3})?)\s*([a-zµμ%/_ ]*)", re.I)


def split_name(name: str) -> tuple[str, str | None]:
    """`at_ms` → ("at", "ms"); the unit is None if the name has none. Kafka's dots work too."""
    flat = name.replace(".", "_")
    for suffix in sorted(IN_NAMES, key=len, reverse=True):
        if flat == suffix:
            return "", suffix
        if flat.endswith(f"_{suffix}"):
            return name[: -len(suffix) - 1], suffix
    return name, None


def quantity(text: str, unit: str | None) -> Fraction | None:
    """The number that `text` ("0.5s", "1_000") is in `unit` of a name; None if it is not one."""
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        return None
    digits, written = match[1].replace("_", "").replace(",", ""), match[2].strip().lower()
    number = Fraction(digits)
    if not written:
        return number
    unit_given, unit_named = _IN_VALUES.get(written.replace("μ", "µ")), IN_NAMES.get(unit or "")
    if unit_given is None or unit_named is None or unit_given.dimension != unit_named.dimension:
        return None
    return number * unit_given.factor / unit_named.factor


def plain(number: Fraction) -> str:
    """A number as one writes it in a file: 500, 0.5."""
    return str(number.numerator) if number.denominator == 1 else repr(float(number))
