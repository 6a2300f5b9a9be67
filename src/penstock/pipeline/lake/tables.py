"""The Delta tables of a pipeline: made, checked, and added to, one micro-batch per transaction.

Each commit bears the pipeline's id and the number of the micro-batch (Delta's `txn`), so one that
is made again is seen to be there, and of two who would make it, one fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from penstock.domain.errors import BadInput, PenstockError
from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.lake.report import LandedFile

_BATCH = "penstock.batch"
# How far back a commit is looked for that was made before a crash.
_RECENT = 1000
# Readers need one checkpoint and what follows; to write one takes longer than to commit.
_CONFIGURATION = {"delta.checkpointInterval": "50"}


def landed_table(pipeline: Pipeline, name: str) -> str:
    """Where a table of the pipeline is, for those who need one that was landed into."""
    path = Path(pipeline.lake) / name
    if not (path / "_delta_log").is_dir():
        raise BadInput(
            f"{path}: there is no such table", "run the pipeline first: penstock pipeline run"
        )
    return str(path)


class Tables:
    """Handles of tables, kept open: to open one reads all of its log."""

    def __init__(self, lake: Path, pipeline_id: str) -> None:
        self._lake = lake
        self._id = pipeline_id
        self._open: dict[str, DeltaTable] = {}
        self._schemas: dict[str, Schema] = {}

    def prepare(self, schemas: Mapping[str, pa.Schema], *, must_be_empty: bool) -> None:
        """Make those that are missing; refuse those that have other columns.

        `must_be_empty`: the pipeline is new, so what they hold would be landed again, or is of
        somebody else and in no ledger of ours.
        """
        for table, columns in schemas.items():
            wanted = Schema.from_arrow(columns)
            path = self._lake / table
            try:
                found = DeltaTable(str(path))
            except TableNotFoundError:
                found = self._make(table, wanted)
            except DeltaError as error:
                raise BadInput(f"{path}: is no Delta table that can be read: {error}") from None
            _check(path, found, wanted)
            if must_be_empty and found.file_uris():
                raise BadInput(
                    f"{path}: holds rows already, and the pipeline's checkpoint is new",
                    "restore the checkpoint that they were landed with, or land into other tables",
                )
            self._open[table], self._schemas[table] = found, wanted

    def _make(self, table: str, schema: Schema) -> DeltaTable:
        path = self._lake / table
        if path.exists() and any(path.iterdir()):
            raise BadInput(
                f"{path}: is there already, and is no Delta table", "choose another table or lake"
            )
        try:
            return DeltaTable.create(
                str(path), schema, mode="error", name=table, configuration=_CONFIGURATION
            )
        except (DeltaError, OSError) as error:
            raise BadInput(
                f"{path}: the table cannot be made: {error}", "check `lake` and the right to write"
            ) from None

    def check_not_ahead(self, order: int) -> None:
        """A checkpoint older than the tables would have its numbers taken for done."""
        for table, handle in self._open.items():
            done = handle.transaction_version(self._id)
            if done is not None and done > order:
                raise BadInput(*_older(self._lake / table, done, order))

    def land(
        self, table: str, files: Sequence[LandedFile], batch: int, *, may_be_there: bool
    ) -> int:
        """Make these files part of the table; the version that has them.

        `may_be_there`: they were landed in an earlier life, perhaps; then they are not added again.
        """
        handle = self._open[table]
        try:
            handle.update_incremental()
            done = handle.transaction_version(self._id)
            if done == batch and may_be_there:
                return self._version_of(handle, batch)
            if done is not None and done >= batch:
                raise PenstockError(*_older(self._lake / table, done, batch))
            if may_be_there:
                self._check_files(table, files)
            before = handle.version()
            handle.create_write_transaction(
                [AddAction(f.path, f.size_bytes, {}, f.written_ms, True, f.stats) for f in files],
                mode="append",
                schema=self._schemas[table],
                commit_properties=CommitProperties(
                    custom_metadata={_BATCH: self._name_of(batch)},
                    app_transactions=[Transaction(self._id, batch)],
                ),
            )
            handle.update_incremental()
        except CommitFailedError as error:
            raise PenstockError(
                f"{self._lake / table}: somebody else commits for this pipeline: {error}",
                "let only one pipeline run on a checkpoint",
            ) from None
        except (DeltaError, OSError) as error:
            raise PenstockError(
                f"{self._lake / table}: cannot be committed to: {error}",
                "make room or give the right to write; the pipeline goes on where it was",
            ) from None
        # Unless somebody else (a compaction) came in between, it is the next one.
        after = handle.version()
        return after if after == before + 1 else self._version_of(handle, batch)

    def _check_files(self, table: str, files: Sequence[LandedFile]) -> None:
        """They were written in an earlier life; somebody may have tidied up since."""
        for file in files:
            path = self._lake / table / file.path
            if not path.is_file() or path.stat().st_size != file.size_bytes:
                raise PenstockError(
                    f"{path}: was written for a micro-batch that is not committed yet, and is gone",
                    "restore it; its records were read and are nowhere else in the lake",
                )

    def _name_of(self, batch: int) -> str:
        return f"{self._id}/{batch}"

    def _version_of(self, handle: DeltaTable, batch: int) -> int:
        for commit in handle.history(_RECENT):
            if commit.get(_BATCH) == self._name_of(batch):
                return int(commit["version"])
        return -1  # older than the log remembers


def _older(path: Path, done: int, order: int) -> tuple[str, str]:
    return (
        f"{path}: has micro-batch {done} of this pipeline, and its checkpoint is at {order}: it is "
        "older than the tables",
        "restore the checkpoint that belongs to them, or land into other tables under another name",
    )


def _check(path: Path, found: DeltaTable, wanted: Schema) -> None:
    there = {f.name: f.type for f in found.schema().fields}
    ours = {f.name: f.type for f in wanted.fields}
    if there != ours:
        odd = sorted(
            name for name in {*there, *ours} if str(there.get(name)) != str(ours.get(name))
        )
        if odd:
            shown = "; ".join(
                f"{n}: is {there.get(n, 'missing')}, should be {ours.get(n, 'absent')}" for n in odd
            )
            raise BadInput(
                f"{path}: has other columns ({shown})",
                "land into another table, or correct the decoder's columns",
            )
    if found.metadata().partition_columns:
        raise BadInput(f"{path}: is partitioned, which lanes do not write", "choose another table")
    features = found.protocol().writer_features
    if features:
        raise BadInput(
            f"{path}: asks its writers for {', '.join(features)}, which lanes do not have",
            "land into another table",
        )
