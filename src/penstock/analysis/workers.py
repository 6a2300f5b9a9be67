"""Work that is the same for each of many items, on Spark's executors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pyspark.sql import SparkSession

T = TypeVar("T")


class SparkWorkers:
    """Items that stay on the executors, and functions of them."""

    def __init__(
        self, spark: SparkSession, items: Sequence[Any], prepare: Callable[[Any], Any]
    ) -> None:
        context = spark.sparkContext
        slices = min(len(items), context.defaultParallelism)
        self._items = context.parallelize(list(enumerate(items)), slices).mapValues(prepare).cache()

    def each(self, function: Callable[[Any], T], numbers: Sequence[int]) -> list[T]:
        """The function of the items with these numbers, in their order."""
        chosen = set(numbers)
        found = dict(
            self._items.filter(lambda item: item[0] in chosen).mapValues(function).collect()
        )
        return [found[number] for number in numbers]
