"""Output of every command: the outcome first, then the table, then where the evidence is.

Results go to standard output, progress and errors to standard error, so `--json` can be piped.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import rich.progress
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock import specs
from penstock.domain.progress import Progress

_out = Console(highlight=False)
if not _out.is_terminal:
    _out.width = 10_000  # a pipe has no edge to fold or cut cells at
_err = Console(stderr=True, highlight=False)
_NUMBERS = re.compile(r"[\d.,]+")
_SAME_LINE_S = 10.0


def outcome(sentence: str) -> None:
    """Print the outcome, one sentence."""
    _out.print(sentence, style="bold", markup=False, soft_wrap=True)


def conclude(sentence: str, details: Mapping[str, object], as_json: bool) -> bool:
    """The outcome as a sentence, or as JSON with all details. Whether tables may follow it."""
    if as_json:
        emit_json({"outcome": sentence, **details})
    else:
        outcome(sentence)
    return not as_json


def note(sentence: str) -> None:
    _out.print(sentence, markup=False, soft_wrap=True)


def aside(sentence: str) -> None:
    """A message during the work that is not part of the result."""
    _err.print(sentence, markup=False, soft_wrap=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """The one table renderer. Columns whose cells are numbers are set flush right."""
    cells = [["" if cell is None else _text(cell) for cell in row] for row in rows]
    numeric = [
        bool(cells) and all(row[i].lstrip("-")[:1].isdigit() or not row[i] for row in cells)
        for i in range(len(columns))
    ]
    drawn = Table(box=None, pad_edge=False, header_style="dim")
    for name, right in zip(columns, numeric, strict=True):
        drawn.add_column(
            Text(name), justify="right" if right else "left", no_wrap=not _out.is_terminal
        )
    for row in cells:
        drawn.add_row(*(Text(cell) for cell in row))  # as it is, like the header: [x] is not markup
    _out.print()
    _out.print(drawn)


def emit_json(value: object) -> None:
    sys.stdout.write(specs.dump_json(value))


def emit_json_line(value: object) -> None:
    """One object of a stream, flushed at once."""
    sys.stdout.write(specs.dump_json_line(value))
    sys.stdout.flush()


def warn(text: str) -> None:
    _err.print(text, style="yellow", markup=False, soft_wrap=True)


def error(text: str) -> None:
    _err.print(f"error: {text}", style="red", markup=False, soft_wrap=True)


def is_watched() -> bool:
    """Whether progress is on a terminal; in a log, every line stays."""
    return _err.is_terminal


@contextmanager
def progress() -> Iterator[Progress]:
    """A line with the current step; on a terminal it is one line with a spinner."""
    if _err.is_terminal:
        with _err.status("…") as status:
            yield lambda text: status.update(Text(text))
    else:
        yield Bar(None).say


class Bar:
    """Progress of long work: steps done, time left, current step."""

    def __init__(self, drawn: rich.progress.Progress | None) -> None:
        self._drawn = drawn
        self._said, self._said_s = "", -_SAME_LINE_S
        self._task = drawn.add_task("…", total=None, left="") if drawn else None

    def say(self, text: str) -> None:
        if self._drawn is not None and self._task is not None:
            self._drawn.update(self._task, description=text)
            return
        # In a log lines stay: one that differs in its numbers only comes every ten seconds.
        words, now_s = _NUMBERS.sub("", text), time.monotonic()
        if words != self._said or now_s - self._said_s >= _SAME_LINE_S:
            _err.print(text, markup=False)
            self._said, self._said_s = words, now_s

    def step(self, done: int, total: int, text: str, seconds_left: float) -> None:
        left = f"about {duration(seconds_left)} left"
        if self._drawn is None or self._task is None:
            _err.print(f"{done + 1} of {total}: {text} ({left})", markup=False)
        else:
            self._drawn.update(self._task, completed=done, total=total, description=text, left=left)


@contextmanager
def bar() -> Iterator[Bar]:
    """A progress bar with the time left; without a terminal, one line per step."""
    if not _err.is_terminal:
        yield Bar(None)
        return
    columns = (
        rich.progress.BarColumn(),
        rich.progress.MofNCompleteColumn(),
        rich.progress.TextColumn("{task.fields[left]}"),
        rich.progress.TextColumn("{task.description}", markup=False),
    )
    with rich.progress.Progress(*columns, console=_err, transient=True) as drawn:
        yield Bar(drawn)


def duration(seconds: float) -> str:
    """As text: 40 s, 3 min, 2 h 5 min."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def _text(cell: object) -> str:
    return f"{cell:.3g}" if isinstance(cell, float) else str(cell)
