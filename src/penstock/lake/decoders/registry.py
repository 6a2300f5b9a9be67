"""Client of a schema registry. The lane calls it, since its decoder process does no I/O.

Any producer can name any schema number in a record. No record is rejected without an answer for its
number, so all numbers are requested: many at once, and those that the registry does not have not
again for a while.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from penstock.domain.errors import BadInput, LaneBlocked
from penstock.lake.rejection import Rejection, RejectKind

_TIMEOUT_S = 10
_REQUESTS_AT_ONCE = 16
# Numbers handed to the threads at a time: millions would take much memory.
_MOST_WAITING = 1000
# Time until a missing schema is requested again, since it may be registered meanwhile: at first,
# and at most; it doubles each time.
_UNKNOWN_S, _MOST_UNKNOWN_S = 10.0, 60.0
# Answers that mean that the schema does not exist, or cannot exist.
_UNKNOWN_CODES = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.GONE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)
_MOST_ERROR_BYTES = 1 << 16
# After HTTP 429 (too many requests): seconds until the next try, and number of tries.
_PAUSE_S, _PAUSES = 1.0, 30


@dataclass(frozen=True)
class _Missing:
    """Why the registry did not return a schema, when that was, and for how long it is valid."""

    why: Rejection
    at_s: float
    for_s: float


class Registry:
    """Caches schemas: the schema of a number never changes."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._known: dict[int, str] = {}
        self._missing: dict[int, _Missing] = {}
        # Whether it has ever answered for a number: with a schema, or that there is none.
        self._has_answered = False

    def schemas(self, numbers: Iterable[int]) -> dict[int, str | Rejection]:
        """Number → schema text, or why there is none. Raises `LaneBlocked` without an answer."""
        asked = list(numbers)
        now_s = time.monotonic()
        self._missing = {  # kept for longer than it is valid, so that this time can double
            n: missing
            for n, missing in self._missing.items()
            if now_s - missing.at_s < 2 * missing.for_s
        }
        believed = {
            n for n, missing in self._missing.items() if now_s - missing.at_s < missing.for_s
        }
        self._ask_for([n for n in asked if n not in self._known and n not in believed])
        return {n: self._known[n] if n in self._known else self._missing[n].why for n in asked}

    def _ask_for(self, numbers: Sequence[int]) -> None:
        refused: dict[int, _NotGiven] = {}
        # Closed on the first failure, so that waiting requests are cancelled.
        with closing(_answers(self._address, numbers)) as answers:
            for number, answer in answers:
                if isinstance(answer, str):
                    self._known[number] = answer
                elif answer.code in _UNKNOWN_CODES and answer.is_from_registry:
                    self._miss(number, f"the registry has no schema {number}")
                elif answer.code == HTTPStatus.FORBIDDEN:
                    refused[number] = answer
                    continue
                else:
                    raise _blocked(answer)
                self._has_answered = True
        for number, answer in refused.items():
            if not self._has_answered:  # the registry may refuse every request of this lane
                raise _blocked(answer)
            self._miss(number, f"the registry refuses access to schema {number} (HTTP 403)")

    def _miss(self, number: int, why: str) -> None:
        last = self._missing.get(number)
        for_s = min(2 * last.for_s, _MOST_UNKNOWN_S) if last else _UNKNOWN_S
        rejection = Rejection(RejectKind.UNKNOWN_SCHEMA, why)
        self._missing[number] = _Missing(rejection, time.monotonic(), for_s)


class _NotGiven(BadInput):
    """The registry returned an error. `code`: HTTP status; None: another kind of error."""

    def __init__(self, path: str, error: Exception) -> None:
        super().__init__(
            f"the schema registry did not return {path}: {error}", "check `registry` and `subject`"
        )
        self.code = error.code if isinstance(error, urllib.error.HTTPError) else None
        # A registry says so in JSON. A proxy in front of it, or a wrong path, answers otherwise.
        self.is_from_registry = self.code is not None and _has_error_code(error)


def _has_error_code(answer: Any) -> bool:
    try:
        return "error_code" in json.loads(answer.read(_MOST_ERROR_BYTES))
    except Exception:  # not JSON, not an object, or the connection broke
        return False


def latest_schema(registry: str, subject: str) -> str:
    """The latest schema of a subject, as text."""
    return _ask(registry, f"subjects/{urllib.parse.quote(subject, safe='')}/versions/latest")


def _blocked(error: BadInput) -> LaneBlocked:
    return LaneBlocked(
        error.message,
        "check `registry`, then start the pipeline again: nothing of this micro-batch was landed",
    )


def _answers(
    address: str, numbers: Sequence[int]
) -> Generator[tuple[int, str | _NotGiven], None, None]:
    """The answers, in the order of the numbers."""

    def answer(number: int) -> str | _NotGiven:
        try:
            return _ask(address, f"schemas/ids/{number}")
        except _NotGiven as error:
            return error

    pool = ThreadPoolExecutor(_REQUESTS_AT_ONCE)
    try:
        for start in range(0, len(numbers), _MOST_WAITING):
            part = numbers[start : start + _MOST_WAITING]
            yield from zip(part, pool.map(answer, part), strict=True)
    except RuntimeError as error:  # no thread can be started: not a record's fault
        raise LaneBlocked(f"the schema registry cannot be asked: {error}", "free memory") from None
    finally:
        pool.shutdown(cancel_futures=True)


def _ask(registry: str, path: str, pauses: int = _PAUSES) -> str:
    try:
        with urllib.request.urlopen(f"{registry.rstrip('/')}/{path}", timeout=_TIMEOUT_S) as answer:
            return str(json.load(answer)["schema"])
    except Exception as error:  # whatever it answers is not a record's fault
        refusal = _NotGiven(path, error)
    if refusal.code != HTTPStatus.TOO_MANY_REQUESTS or not pauses:
        raise refusal
    time.sleep(_PAUSE_S)
    return _ask(registry, path, pauses - 1)
