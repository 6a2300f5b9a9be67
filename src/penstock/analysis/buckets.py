"""HDR buckets in SQL: the same numbers as `stats.histogram`, without Python workers.

With `digits` significant digits a power of two is cut into as many steps as HdrHistogram has it
(its half count of sub-buckets): 1,024 for three digits, 128 for two. The bucket of v is numbered
(v >> shift) + shift · steps, with shift = bit_length(v) - bit_length(steps) where that is positive.
"""

from __future__ import annotations

from typing import Literal

Digits = Literal[2, 3]
STEPS: dict[Digits, int] = {2: 128, 3: 1024}
# A bucket does not depend on the bits of what is smaller; beyond 2 hours speed does not matter.
_FEW_BITS, _MANY_BITS = STEPS[2].bit_length(), 43


def bit_length(value: str) -> str:
    """Of a whole number that is not negative; of one below 128: 8, which makes no difference here.

    Found by halving, for Spark has no function for it: five comparisons.
    """
    return _halved(value, _FEW_BITS, _MANY_BITS + 1)


def _halved(value: str, least: int, most: int) -> str:
    if least > _MANY_BITS:
        # The logarithm is not exact near a power of two, but then what it leaves is 0 or 2, not 1.
        power = f"int(floor(log2({value})))"
        return f"{power} + int(shiftright({value}, {power}))"
    if least == most:
        return str(least)
    middle = (least + most) // 2
    lower, upper = _halved(value, least, middle), _halved(value, middle + 1, most)
    return f"if({value} < {1 << middle}L, {lower}, {upper})"


def bucket(value: str, bits: str, has_three_digits: str) -> str:
    """The number of the bucket of `value`, whose bit length is `bits`; of three digits or of two."""
    few, many = STEPS[2], STEPS[3]
    shift = f"greatest(0, {bits} - if({has_three_digits}, {many.bit_length()}, {few.bit_length()}))"
    return f"shiftright({value}, {shift}) + {shift} * if({has_three_digits}, {many}L, {few}L)"


def rounded_down(value: int, digits: Digits) -> int:
    """The lower edge of the bucket of a value."""
    shift = max(0, value.bit_length() - STEPS[digits].bit_length())
    return value >> shift << shift
