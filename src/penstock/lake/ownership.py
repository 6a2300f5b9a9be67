"""Locks: one process per checkpoint, and one per ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.domain.errors import PenstockError
from penstock.domain.lake.pipeline import Pipeline
from penstock.specs.files import locked, sole_owner


@contextmanager
def owned(pipeline: Pipeline, *, among_equals: bool = False) -> Iterator[None]:
    """Hold the locks of this pipeline; raises if another process holds them.

    Locks keep users from running two pipelines that read the same records. The ledger keeps a
    record from being landed twice (see `landing`), also where locks do not reach.

    `among_equals`: processes that all set it share the locks, as plain consumers do.
    """
    checkpoint = Path(pipeline.checkpoint_path)
    ledger = Path(pipeline.lake) / pipeline.ledger_table
    # Beside the ledger and not in it: a table's directory belongs to Delta's tools. The dot
    # distinguishes it from checkpoints, whose names begin with a letter or digit.
    lock = Path(pipeline.lake) / "_pipelines" / f".{pipeline.name}.lock"
    for path in (checkpoint, lock.parent):
        make_directory(path)
    # The ledger's as well, in case the same pipeline is started with another checkpoint.
    with (
        sole_owner(checkpoint, among_equals=among_equals),
        locked(lock, ledger, among_equals=among_equals),
    ):
        yield


def make_directory(path: Path) -> None:
    """Create it and its parents, if needed."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PenstockError(
            f"{path}: cannot be created: {error.strerror}", "check `lake` and `checkpoint`"
        ) from None
