"""Requests one executor core per lane, on clusters that add and remove executors at run time."""

from __future__ import annotations

import os
import re

from pyspark.sql import SparkSession

# Without this, an executor of a standalone cluster takes all cores of its worker.
ONE_LANE_EACH = {"spark.executor.cores": "1"}
_ELASTIC = ("spark://", "k8s://", "yarn")


class Executors:
    """The executors of a Spark session. A lane takes one core; an executor may have several."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._scala = self._context._jsc.sc()
        self._master = self._context.master or "local"
        self._is_elastic = self._master.startswith(_ELASTIC)
        self._cores = int(self._context.getConf().get("spark.executor.cores", "1"))
        self._asked_for = 0

    @property
    def most_lanes(self) -> int | None:
        """The lanes that a local Spark can run in parallel; None for a cluster, which may grow."""
        if self._is_elastic:
            return None
        match = re.match(r"local(?:\[(\*|\d+))?", self._master)
        cores = match[1] if match else None
        return (os.cpu_count() or 1) if cores == "*" else int(cores or 1)

    @property
    def lanes(self) -> int:
        """Number of lanes that can run in parallel at the moment."""
        return self.most_lanes or self._cores * len(self._ids())

    def ask_for(self, lanes: int) -> None:
        """Request executors for this many lanes, if there are fewer; does not wait for them."""
        if self._is_elastic and (executors := self._for(lanes)) > self._asked_for:
            self._request(executors)

    def give_back(self, lanes: int) -> None:
        """Release executors beyond this many lanes; the youngest first, whose caches hold least."""
        if not self._is_elastic:
            return
        keep = self._for(lanes)
        surplus = sorted(self._ids(), key=_age)[keep:]
        for executor in surplus:
            self._scala.killExecutor(executor)
        # Killing an executor lowers Spark's target by one, so it is set to the number to keep.
        if surplus or keep < self._asked_for:
            self._request(keep)

    def _for(self, lanes: int) -> int:
        return max(1, -(-lanes // self._cores))

    def _request(self, executors: int) -> None:
        """Set the total number, including those that run."""
        jvm = self._context._jvm
        assert jvm is not None
        anywhere = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(jvm.java.util.HashMap())
        self._scala.requestTotalExecutors(executors, 0, anywhere)
        self._asked_for = executors

    def _ids(self) -> list[str]:
        """The executors that have registered and are not about to end."""
        ids = self._scala.getExecutorIds()
        return [str(ids.apply(n)) for n in range(ids.size())]


def _age(executor: str) -> int:
    """The oldest have the lowest number."""
    return int(executor) if executor.isdigit() else 0
