"""Errors of Penstock, as a tree. Every error says what happened and what to do about it.

    PenstockError            exit code 1   any other error
    ├── BadInput             exit code 2   a file, an option or a value that cannot be used
    ├── MissingPart          exit code 3   the machine lacks something (Java, root, a kernel feature)
    ├── TestbedError         exit code 4   the cluster or its network did not do what was asked
    │   └── FaultDidNotTake  exit code 4   a fault was injected but had no effect
    ├── FetchFailed          exit code 5   a download failed or does not match its pinned hash
    ├── TooManyRejects       exit code 6   a pipeline rejected more records than `rejects_stop_share` allows
    ├── GroupStopped         exit code 7   a plain consumer met something that a person must decide (lost offsets)
    └── LaneBlocked          exit code 1   a lane is blocked by an external failure

A verdict ("the objective is not met") is a result and not an error; it exits with 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import ClassVar


class PenstockError(Exception):
    """Base class: `message` says what happened, `fix` what to do."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message}\n  fix: {self.fix}" if self.fix else self.message


class BadInput(PenstockError):
    """A file, an option or a value that cannot be used."""

    exit_code = 2


class MissingPart(PenstockError):
    """The machine lacks something that was asked for."""

    exit_code = 3


class TestbedError(PenstockError):
    """The cluster or its network did not do what was asked."""

    __test__ = False  # pytest collects classes called Test*
    exit_code = 4


class FaultDidNotTake(TestbedError):
    """A fault was injected but had no effect, so a run would prove nothing."""


class FetchFailed(PenstockError):
    """A download failed, or does not match its pinned hash."""

    exit_code = 5


class TooManyRejects(PenstockError):
    """A pipeline rejected more of its records than `rejects_stop_share` allows."""

    exit_code = 6


class GroupStopped(PenstockError):
    """A plain consumer met something that a person must decide, such as lost offsets.

    Its exit code tells the controller not to restart it, and to stop the group.
    """

    exit_code = 7


class LaneBlocked(PenstockError):
    """A lane is blocked by an external failure, such as a schema registry that does not answer.

    A failure caused by a record rejects that record instead.
    """


def unknown_choice(value: object, choices: Sequence[str]) -> str:
    """What to do instead of a choice that does not exist."""
    close = get_close_matches(str(value), choices, n=1)
    hint = f" (did you mean '{close[0]}'?)" if close else ""
    return f"is unknown; use one of {', '.join(choices)}{hint}"
