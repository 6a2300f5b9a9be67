"""Text files read with clear errors and written whole or not at all; locks of one command."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from penstock.domain.errors import BadInput, PenstockError

LOCK = ".lock"


def sole_owner(path: Path, *, among_equals: bool = False) -> AbstractContextManager[None]:
    """Lock a directory against other writers, or raise. The lock ends with the process.

    `among_equals`: others who say the same may.
    """
    return locked(path / LOCK, path, among_equals=among_equals)


@contextmanager
def locked(file: Path, subject: Path, *, among_equals: bool = False) -> Iterator[None]:
    """Hold the lock of `subject`, or refuse. The lock file is created if needed, and stays.

    An open file description lock. Over NFS it holds on all machines, as flock on a directory does
    not. A plain POSIX lock would too, but this process would lose it by closing any other
    descriptor of the same file.
    """
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise _cannot_lock(file, error) from None
    kind = fcntl.F_RDLCK if among_equals else fcntl.F_WRLCK
    # struct flock: type, whence, start, length (0: all of it), pid (0 for this kind of lock).
    request = struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 0, 0)
    try:
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise _cannot_lock(file, error) from None
            raise BadInput(
                f"{subject}: in use by another command", "wait for it, or stop it"
            ) from None
        yield
    finally:
        os.close(descriptor)


def _cannot_lock(file: Path, error: OSError) -> PenstockError:
    return PenstockError(
        f"{file}: cannot be locked: {error.strerror}",
        "check write permission and that the file system supports locks",
    )


def read_text(path: Path, encoding: str = "utf-8-sig") -> str:
    """The text of a file, or a BadInput that says why not."""
    try:
        return path.read_text(encoding)
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file", "check the name and the directory") from None
    except IsADirectoryError:
        raise BadInput(f"{path}: is a directory", "name a file in it") from None
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path}: is not UTF-8 text (at byte {error.start})", "save it as UTF-8"
        ) from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from None


def write_file(path: Path, text: str) -> None:
    """Renamed into place: a reader, or a run cut off here, has the old text or the new one."""
    with _explained(path):
        with draft_of(path) as draft:
            _write_through(draft, text)
        _sync_directory(path.parent)


def create_file(path: Path, text: str) -> None:
    """The same for a file that does not exist yet. Of two writers, one gets FileExistsError."""
    # Not named after `path`, whose name may be as long as a name can be.
    draft = path.with_name(f".{uuid.uuid4().hex}")
    with _explained(path):
        try:
            _write_through(draft, text)
            path.hardlink_to(draft)
        finally:
            with suppress(OSError):
                draft.unlink()
        _sync_directory(path.parent)


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """Where to write what takes the place of `path` when the block ends; removed if it fails.

    Nothing is forced to disk: for files that need not survive a power failure, or of others.
    """
    draft = path.with_name(f".{path.name}.draft")
    try:
        yield draft
        draft.rename(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise


def _write_through(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    """Without it a power failure may take the new name away, though the text is on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise PenstockError(
                f"{path}: the disk is full", "free disk space; earlier files are kept"
            ) from None
        raise PenstockError(f"{path}: cannot be written: {error.strerror}") from None
