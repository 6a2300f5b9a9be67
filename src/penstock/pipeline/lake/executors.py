"""As many executors as there are lanes, on clusters that give and take them while a query runs."""

from __future__ import annotations

import os
import re

from pyspark.sql import SparkSession

_ELASTIC = ("spark://", "k8s://", "yarn")


class Executors:
    """Of one Spark session. A lane takes one core, so an executor with several runs several."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._scala = self._context._jsc.sc()
        self._master = self._context.master or "local"
        self._is_elastic = self._master.startswith(_ELASTIC)
        # Without it, an executor of a standalone cluster has all cores of its worker.
        self._cores = int(self._context.getConf().get("spark.executor.cores", "1"))
        self._asked_for = 0

    @property
    def most_lanes(self) -> int | None:
        """What a local Spark can run side by side; a cluster says it when it is asked."""
        if self._is_elastic:
            return None
        found = re.match(r"local(?:\[(\*|\d+))?", self._master)
        asked = found[1] if found else None
        return (os.cpu_count() or 1) if asked == "*" else int(asked or 1)

    @property
    def lanes(self) -> int:
        """That can run side by side just now."""
        return self.most_lanes or self._cores * len(self._ids())

    def ask_for(self, lanes: int) -> None:
        """Ask for as many, if there are fewer; they come when they come."""
        wanted = -(-lanes // self._cores)
        known = max(len(self._ids()), self._asked_for)
        if self._is_elastic and wanted > known:
            self._scala.requestExecutors(wanted - known)
            self._asked_for = wanted

    def give_back(self, lanes: int) -> None:
        """Those that are not needed; the youngest go, with the least in their caches."""
        if not self._is_elastic:
            return
        keep = max(1, -(-lanes // self._cores))
        for surplus in sorted(self._ids(), key=_age)[keep:]:
            self._scala.killExecutor(surplus)
        self._asked_for = min(self._asked_for, keep)

    def _ids(self) -> list[str]:
        """Of those that run, but for the driver."""
        found = self._scala.env().blockManager().master().getMemoryStatus().keys().iterator()
        ids = []
        while found.hasNext():
            name = str(found.next().executorId())
            if name != "driver":
                ids.append(name)
        return ids


def _age(executor: str) -> int:
    """The oldest have the lowest number."""
    return int(executor) if executor.isdigit() else 0
