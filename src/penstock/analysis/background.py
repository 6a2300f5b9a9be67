"""A Spark session for an analysis that starts beside something else."""

from __future__ import annotations

import threading

from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.analysis.analyze import warm
from penstock.analysis.session import end, is_on_this_machine, session


class BackgroundSpark:
    """A Spark session that starts beside something else, and is warm when it is asked for.

    Not warm on other machines, which could not read the files of a warm-up.
    """

    def __init__(self, master: str) -> None:
        self._master = master
        self._is_ours = SparkContext._active_spark_context is None
        self._session: SparkSession | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._start, name="spark", daemon=True)
        self._thread.start()

    def _start(self) -> None:
        try:
            self._session = session(self._master)
            if is_on_this_machine(self._master):
                warm(self._session)
        except BaseException as error:  # must reach the caller, not die with the thread
            self._error = error

    def get(self) -> SparkSession:
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._session is not None
        return self._session

    def stop(self) -> None:
        # One that is still starting ends with this process, which it hangs on by a pipe.
        if self._session is not None and self._is_ours:
            end(self._session)
