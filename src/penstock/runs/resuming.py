"""Long work in steps that can be resumed: the cells of a campaign, the points of an experiment."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from penstock.domain.errors import BadInput


class Labelled(Protocol):
    """What can be shown on a progress bar."""

    @property
    def label(self) -> str: ...


T = TypeVar("T", bound=Labelled)


@dataclass(frozen=True)
class Step:
    """How far the work is, for a bar with the time left."""

    done: int
    total: int
    label: str
    seconds_left: float


def in_steps(
    items: Sequence[T], planned_s: Callable[[Sequence[T]], float], on_step: Callable[[Step], None]
) -> Iterator[T]:
    """The items, each announced before it is given. The time left is what those so far took for as
    many; before the first has ended, `planned_s` of all."""
    began_s = time.monotonic()
    for done, item in enumerate(items):
        left = items[done:]
        spent_s = time.monotonic() - began_s
        seconds_left = spent_s / done * len(left) if done else planned_s(left)
        on_step(Step(done, len(items), item.label, seconds_left))
        yield item


def read_about(path: Path, name: str, what: str, expected_format: int) -> dict[str, Any]:
    """The file that says what is done in a directory; an error if this Penstock cannot resume it."""
    try:
        data = json.loads((path / name).read_text())
    except FileNotFoundError:
        raise BadInput(
            f"{path}: is not {what}",
            f"it has no {name}; name the directory that was created for it",
        ) from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{path / name}: cannot be read: {error}") from None
    format_number = data.get("format") if isinstance(data, dict) else None
    if format_number != expected_format:
        raise BadInput(
            f"{path}: is {what} of format {format_number}; this version of Penstock reads {expected_format}",
            "resume with the version of Penstock that started it",
        )
    return dict(data)
