"""Files that are whole or not there, and directories that one command has for itself."""

from __future__ import annotations

import errno
import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.domain.errors import BadInput, PenstockError


@contextmanager
def sole_owner(path: Path, *, among_equals: bool = False) -> Iterator[None]:
    """Nobody else writes into this directory meanwhile, or it is refused. Ends with the process.

    `among_equals`: others who say the same may.
    """
    descriptor = os.open(path, os.O_RDONLY)
    kind = fcntl.LOCK_SH if among_equals else fcntl.LOCK_EX
    try:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadInput(
                f"{path}: another command is at work on it", "wait for it, or end it first"
            ) from None
        yield
    finally:
        os.close(descriptor)


def write_file(path: Path, text: str) -> None:
    """Renamed into place: a reader, or a run cut off here, has the old text or the new one."""
    draft = path.with_name(f".{path.name}.draft")
    with _written(path, draft, text):
        draft.rename(path)


def create_file(path: Path, text: str) -> None:
    """The same for one that nobody has written yet. Of two who try, one gets FileExistsError."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with _written(path, draft, text):
        path.hardlink_to(draft)
    draft.unlink()


@contextmanager
def _written(path: Path, draft: Path, text: str) -> Iterator[None]:
    """The draft is on disk; what is done with it belongs to the same try."""
    try:
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        yield
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        if isinstance(error, FileExistsError):
            raise
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise PenstockError(
                f"{path}: the disk is full", "make room; what was written before is kept"
            ) from None
        raise PenstockError(f"{path}: cannot be written: {error.strerror}") from None
