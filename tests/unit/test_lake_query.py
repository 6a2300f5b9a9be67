"""A query whose Java process is gone: a message that says so, not a trace of Py4J's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from penstock.domain.errors import PenstockError
from penstock.lake.checkpoint import Checkpoint
from penstock.lake.query import Running


class Dead:
    """A query as Py4J shows it once Java was killed."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        raise self._error


@pytest.mark.parametrize(
    "error",
    [Py4JNetworkError("no answer"), Py4JError("o187.isActive"), ConnectionRefusedError(111)],
)
def test_the_end_of_java_is_reported(tmp_path: Path, error: Exception) -> None:
    running = Running(Dead(error), Checkpoint(tmp_path))  # type: ignore[arg-type]
    with pytest.raises(PenstockError, match="Java process has ended"):
        running.wait(0.1)
    with pytest.raises(PenstockError, match="Java process has ended"):
        running.stop()
