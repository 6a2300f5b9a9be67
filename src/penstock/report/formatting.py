"""Figures as text: three significant digits, the unit, the interval. Not for JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence

from penstock.domain.metrics import Estimate

NOTHING = "–"  # there is no such figure
NOT_STEADY = "not steady"  # the run has such a figure, and its setting has not

# How people write each unit.
UNITS = {"ms": "ms", "share": "%", "per_s": "/s", "mb_per_s": "MB/s", "s": "s", "": ""}


def significant(number: float, digits: int = 3) -> str:
    """1234.5 → 1,234; 24.10 → 24.1; 0.01234 → 0.0123. Never 1e-05."""
    if not math.isfinite(number):
        return NOTHING
    if number == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(number))))
    text = f"{number:,.{min(places, 12)}f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    # Below the twelfth place a figure is nothing, whatever its sign.
    return "0" if text in ("-0", "0") else text.replace("-", "−")


def count(number: int) -> str:
    return f"{number:,}"


def bare(number: float | None, unit: str) -> str:
    """Without the unit, for a column that has it in its head. Shares are in per cent."""
    if number is None:
        return NOTHING
    return significant(number * 100 if unit == "share" else number)


def quantity(number: float | None, unit: str) -> str:
    return NOTHING if number is None else f"{bare(number, unit)} {UNITS[unit]}".rstrip()


def column(title: str, unit: str) -> str:
    """The head of a column of bare numbers."""
    # Without a number before it, "/s" alone does not tell what is counted.
    return f"{title}, {'messages/s' if unit == 'per_s' else UNITS[unit]}"


def interval(low: float | None, high: float | None, unit: str) -> str:
    if low is None or high is None:
        return ""
    return f"[{bare(low, unit)}, {bare(high, unit)}]"


def estimate(figure: Estimate | None, unit: str) -> str:
    """41 ms [37, 46]; without the brackets there was too little to tell."""
    if figure is None:
        return NOTHING
    return f"{quantity(figure.value, unit)} {interval(figure.low, figure.high, unit)}".rstrip()


def difference(number: float, unit: str) -> str:
    """With its sign: +24 ms, −0.3 points."""
    sign = "+" if number > 0 else ""
    # "+1 %" of two shares would read as a change by a hundredth.
    written = "points" if unit == "share" else UNITS[unit]
    return f"{sign}{bare(number, unit)} {written}".rstrip()


def ratio(new: float, old: float) -> str:
    """×2.0, or +3 % where the two are close; nothing where there is no ratio to give."""
    if old <= 0 or new <= 0:
        return ""
    times = new / old
    if not math.isfinite(times):
        return ""
    if 0.8 < times < 1.25:
        change = 100 * (times - 1)
        return f"{'+' if change > 0 else ''}{significant(change, 2)} %"
    return f"×{times:.1f}" if 1 <= times < 10 else f"×{significant(times, 2)}"


def share(part: int, whole: int) -> str:
    return quantity(part / whole, "share") if whole else NOTHING


def listed(words: Sequence[str]) -> str:
    """a, b and c."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"
