"""As many executors as there are lanes, on clusters that give and take them while a query runs."""

from __future__ import annotations

import os
import re

from pyspark.sql import SparkSession

# Else an executor of a standalone cluster takes all cores of its worker.
ONE_LANE_EACH = {"spark.executor.cores": "1"}
_ELASTIC = ("spark://", "k8s://", "yarn")


class Executors:
    """Of one Spark session. A lane takes one core, so an executor with several runs several."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._scala = self._context._jsc.sc()
        self._master = self._context.master or "local"
        self._is_elastic = self._master.startswith(_ELASTIC)
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
        if self._is_elastic and (wanted := self._for(lanes)) > self._asked_for:
            self._request(wanted)

    def give_back(self, lanes: int) -> None:
        """Those that are not needed; the youngest go, with the least in their caches."""
        if not self._is_elastic:
            return
        keep = self._for(lanes)
        surplus = sorted(self._ids(), key=_age)[keep:]
        for executor in surplus:
            self._scala.killExecutor(executor)
        # Each that is killed lowers what Spark asks for, by one: it is to be as many as are kept.
        if surplus or keep < self._asked_for:
            self._request(keep)

    def _for(self, lanes: int) -> int:
        return max(1, -(-lanes // self._cores))

    def _request(self, executors: int) -> None:
        """So many in all: those that there are, too."""
        jvm = self._context._jvm
        assert jvm is not None
        anywhere = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(jvm.java.util.HashMap())
        self._scala.requestTotalExecutors(executors, 0, anywhere)
        self._asked_for = executors

    def _ids(self) -> list[str]:
        """Of those that have registered and are not about to end."""
        found = self._scala.getExecutorIds()
        return [str(found.apply(n)) for n in range(found.size())]


def _age(executor: str) -> int:
    """The oldest have the lowest number."""
    return int(executor) if executor.isdigit() else 0
