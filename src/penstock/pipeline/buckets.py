"""HDR buckets as Spark expressions: the same numbers as `measure.histogram`, without Python workers.

With `digits` significant digits a power of two is cut into as many steps as HdrHistogram has it
(its half count of sub-buckets): 1,024 for three digits, 128 for two. The bucket of v is numbered
(v >> shift) + shift · steps, with shift = bit_length(v) - bit_length(steps) where that is positive.
"""

from __future__ import annotations

from typing import Literal

from pyspark.sql import Column
from pyspark.sql import functions as F

Digits = Literal[2, 3]
STEPS: dict[Digits, int] = {2: 128, 3: 1024}
_MOST_BITS = 63


def bit_length(value: Column, least: int = 0, most: int = _MOST_BITS) -> Column:
    """Of a whole number that is not negative. Found by halving: Spark has no function for it.

    Its log2 is not exact near a power of two; this takes six comparisons and no conversion.
    """
    if least == most:
        return F.lit(least)
    middle = (least + most) // 2
    lower, upper = bit_length(value, least, middle), bit_length(value, middle + 1, most)
    return F.when(value < F.lit(1 << middle), lower).otherwise(upper)


def bucket(value: Column, bits: Column, is_whole: Column) -> Column:
    """The number of the bucket of `value`, whose bit length is `bits`.

    With three digits where `is_whole`, with two elsewhere.
    """
    steps = F.when(is_whole, STEPS[3]).otherwise(STEPS[2])
    step_bits = F.when(is_whole, STEPS[3].bit_length()).otherwise(STEPS[2].bit_length())
    shift = F.greatest(F.lit(0), bits - step_bits)
    # As a call by name: the function for columns takes only a fixed shift.
    return (F.call_function("shiftright", value, shift) + shift * steps).cast("int")


def rounded_down(value: int, digits: Digits) -> int:
    """The lower edge of the bucket of a value."""
    shift = max(0, value.bit_length() - STEPS[digits].bit_length())
    return value >> shift << shift
