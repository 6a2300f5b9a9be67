"""The Delta tables of a pipeline: creates, checks and commits to them.

Each commit has the writer's id and the number of the micro-batch (Delta's `txn`), so a repeated one
is recognised. Delta refuses a commit if another one with the same id was made since the table was
read: of two processes that try it, one fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.schema import PrimitiveType
from deltalake.transaction import AddAction

from penstock.domain.errors import BadInput, PenstockError
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.lake.report import LandedFile
from penstock.lake.checkpoint import REPLACED

_SUM = pa.decimal128(38, 0)
LEDGER_COLUMNS = pa.schema(
    [
        # The id of the checkpoint that landed the row; `batch` is the writer's number.
        ("writer", pa.string()),
        ("batch", pa.int64()),
        ("lane", pa.int32()),
        # True: nothing was read. Rejects were moved to their tables, and `rows` is the change.
        ("is_move", pa.bool_()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        # [start_offset, end_offset) was read.
        ("start_offset", pa.int64()),
        ("end_offset", pa.int64()),
        # Records from here to start_offset were deleted before they were read.
        ("lost_from", pa.int64()),
        # The topic lost its records from here to lost_from after they were landed.
        ("truncated_from", pa.int64()),
        # Of the last record read, and the offset after that record if it is not end_offset.
        ("leader_epoch", pa.int32()),
        ("epoch_end", pa.int64()),
        ("rows", pa.int64()),
        ("ignored", pa.int64()),
        ("gaps", pa.int64()),
        ("bytes", pa.int64()),
        (
            "tables",
            pa.list_(
                pa.struct([("table", pa.string()), ("rows", pa.int64()), ("offset_sum", _SUM)])
            ),
        ),
        ("landed_at", pa.timestamp("us", tz="UTC")),
    ]
)
# Writing a checkpoint takes longer than a commit, so it is done rarely.
_CONFIGURATION = {"delta.checkpointInterval": "50"}
# The property that names a table's owner: NAME/ID, the pipeline's name and its ledger's id. The name
# alone is not enough: a re-created ledger is empty, so everything would be landed again.
OWNER = "penstock.pipeline"
_FORGETTING = "delta.setTransactionRetentionDuration"
# All plain consumers of a group commit to one ledger; Delta's default of 15 tries is too low.
_COMMIT_TRIES = 100


def landed_table(pipeline: Pipeline, name: str) -> str:
    """The path of a table of the pipeline. Raises if it does not exist yet."""
    path = Path(pipeline.lake) / name
    if not (path / "_delta_log").is_dir():
        raise BadInput(
            f"{path}: the table does not exist", "run the pipeline first: penstock pipeline run"
        )
    return str(path)


def active_files(table: DeltaTable) -> dict[str, int]:
    """Path → bytes of the files that make up the table as it was opened."""
    actions = pa.table(table.get_add_actions())
    paths, sizes = (actions.column(name).to_pylist() for name in ("path", "size_bytes"))
    return dict(zip(paths, sizes, strict=True))


def position_of(partition: Partition) -> str:
    """The id of the ledger's transaction whose version is the position of the partition."""
    return f"position/{partition}"


def owner_of(pipeline: Pipeline, ledger: DeltaTable) -> str:
    """The value of `OWNER` in the tables of this pipeline."""
    return f"{pipeline.name}/{ledger.metadata().id}"


def writers_in(ledger: DeltaTable) -> set[str]:
    """All writers that have rows in this ledger."""
    rows = ledger.to_pyarrow_dataset().to_table(columns=["writer"])
    return set(rows.column("writer").unique().to_pylist())


# The transaction of ledger and rejects whose version is the number of the last move.
MOVES = "moves"


class OpenTable:
    """A table that stays open, since opening one reads all of its log.

    It caches the transactions that it looked up (each lookup reads the end of the log) and those
    that it made, until another process commits.
    """

    def __init__(self, path: Path, handle: DeltaTable, schema: Schema) -> None:
        self.path = path
        self._handle = handle
        self._schema = schema
        self._known: dict[str, int | None] = {}
        # The version for which the cache is valid.
        self._known_at = handle.version()

    @property
    def has_rows(self) -> bool:
        return bool(self._handle.file_uris())

    def refresh(self) -> None:
        """Read the latest version."""
        with self._reaching():
            self._handle.update_incremental()
        if self._handle.version() != self._known_at:
            self._known.clear()
            self._known_at = self._handle.version()

    def transaction(self, app: str) -> int | None:
        """The version of this transaction, as of the last `refresh`."""
        if app not in self._known:
            with self._reaching():
                self._known[app] = self._handle.transaction_version(app)
        return self._known[app]

    def add(self, files: Sequence[LandedFile], transactions: Mapping[str, int]) -> None:
        """Commit these files. Fails if one of the transactions was made since `refresh`."""
        made = [Transaction(app, at) for app, at in transactions.items()]
        properties = CommitProperties(max_commit_retries=_COMMIT_TRIES, app_transactions=made)
        with self._reaching():
            self._handle.create_write_transaction(
                [AddAction(f.path, f.size_bytes, {}, f.written_ms, True, f.stats) for f in files],
                mode="append",
                schema=self._schema,
                commit_properties=properties,
            )
        self._known |= transactions
        # If another commit (of a compaction) came in between, `refresh` finds another version.
        self._known_at = self._handle.version() + 1

    def remove(self, places: pa.Table, transactions: Mapping[str, int]) -> None:
        """Commit the removal of the rows at these places: topic, partition, offset."""
        same = " AND ".join(f"there.{name} = gone.{name}" for name in places.column_names)
        made = [Transaction(app, at) for app, at in transactions.items()]
        properties = CommitProperties(app_transactions=made)
        with self._reaching():
            merge = self._handle.merge(places, same, "gone", "there", commit_properties=properties)
            done = merge.when_matched_delete().execute()
        if not done["num_target_rows_deleted"]:  # then Delta commits nothing, not even the txn
            self.add([], transactions)
            return
        self._known |= transactions
        self._known_at = self._handle.version()

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except CommitFailedError as error:
            raise PenstockError(
                f"{self.path}: another process landed the same rows at the same time: {error}",
                REPLACED,
            ) from None
        except (DeltaError, OSError) as error:
            raise PenstockError(
                f"{self.path}: cannot be committed to: {error}",
                "free disk space or grant write access; the next start continues from here",
            ) from None


class Tables:
    """The tables that one writer lands into."""

    def __init__(self, lake: Path, writer: str) -> None:
        self.writer = writer
        self._lake = lake
        self._open: dict[str, OpenTable] = {}

    def __getitem__(self, table: str) -> OpenTable:
        if table not in self._open:
            # A half-landed micro-batch may name a table that the pipeline file no longer has.
            path = self._lake / table
            try:
                handle = DeltaTable(str(path))
            except DeltaError as error:
                raise PenstockError(
                    f"{path}: cannot be read, and a micro-batch for it is not landed yet: {error}",
                    "restore the table, and start the pipeline again",
                ) from None
            self._open[table] = OpenTable(path, handle, handle.schema())
        return self._open[table]

    def landed(self, table: str) -> int:
        """The last micro-batch of this writer that the table has; -1 if there is none."""
        batch = self[table].transaction(self.writer)
        return -1 if batch is None else batch

    def prepare(self, pipeline: Pipeline, schemas: Mapping[str, pa.Schema]) -> None:
        """Create the ledger and missing tables. Refuse tables with other columns, or with rows that
        are not in this pipeline's ledger: they would be duplicates or unaccounted for."""
        ledger = self._prepared(pipeline.ledger_table, LEDGER_COLUMNS, {})
        owner = owner_of(pipeline, ledger)
        # Existing tables first: if one is refused, none was created.
        for table in sorted(schemas, key=lambda t: not (self._lake / t).exists()):
            handle = self._prepared(table, schemas[table], {OWNER: owner})
            _claim(self._lake / table, handle, owner, ledger)

    def _prepared(
        self, table: str, columns: pa.Schema, properties: Mapping[str, str]
    ) -> DeltaTable:
        schema = Schema.from_arrow(columns)
        path = self._lake / table
        try:
            handle = DeltaTable(str(path))
        except TableNotFoundError:
            handle = _make(path, schema, properties)
        except DeltaError as error:
            raise BadInput(f"{path}: cannot be read as a Delta table: {error}") from None
        _check(path, handle, schema)
        self._open[table] = OpenTable(path, handle, schema)
        return handle

    def check_checkpoint(self, ledger: str, order: int) -> None:
        """Refuse a checkpoint that does not belong to the tables of a pipeline on Spark. With a new
        one everything would be landed again; the micro-batches of an older one would be skipped,
        since their numbers are in the tables already."""
        if self[ledger].has_rows and self.landed(ledger) < 0:
            raise BadInput(
                f"{self[ledger].path}: holds rows already, but the pipeline's checkpoint is new",
                "restore the checkpoint that they were landed with, or land into other tables "
                "under another name",
            )
        for table, handle in self._open.items():
            if (done := self.landed(table)) > order:
                raise BadInput(
                    f"{handle.path}: has micro-batch {done} of this pipeline, but the checkpoint is "
                    f"at {order}: it is older than the tables",
                    "restore the checkpoint that belongs to them, or land into other tables under "
                    "another name",
                )


def _claim(path: Path, table: DeltaTable, owner: str, ledger: DeltaTable) -> None:
    """Mark the table as this pipeline's, or raise: the ledger knows only its own tables' rows."""
    present = table.metadata().configuration.get(OWNER)
    if present == owner:
        return
    if present is not None:
        raise BadInput(
            f"{path}: belongs to another pipeline or ledger: its property {OWNER} is {present}, but "
            f"this pipeline's is {owner}",
            "land into another table; if it is the same pipeline, keep its name and restore its "
            "ledger",
        )
    # A table with micro-batches of the ledger's writers was created before tables were marked.
    if table.file_uris() and all(
        table.transaction_version(writer) is None for writer in writers_in(ledger)
    ):
        raise BadInput(
            f"{path}: holds rows already, which are not this pipeline's", "land into another table"
        )
    try:
        table.alter.set_table_properties({OWNER: owner}, raise_if_not_exists=False)
    except CommitFailedError:  # another process changed it at the same time
        table.update_incremental()
        _claim(path, table, owner, ledger)
    except (DeltaError, OSError) as error:
        raise BadInput(
            f"{path}: cannot be marked as the pipeline's: {error}", "grant write access"
        ) from None


def _make(path: Path, schema: Schema, properties: Mapping[str, str]) -> DeltaTable:
    if path.exists() and any(f for f in path.iterdir() if f.name != "_delta_log"):
        raise BadInput(f"{path}: exists and is not a Delta table", "choose another table or lake")
    try:
        return DeltaTable.create(
            str(path),
            schema,
            mode="error",
            name=path.name,
            configuration={**_CONFIGURATION, **properties},
            raise_if_key_not_exists=False,  # Delta does not know ours
        )
    except (DeltaError, OSError) as error:
        if DeltaTable.is_deltatable(str(path)):  # plain consumers may start at the same time
            return DeltaTable(str(path))
        raise BadInput(
            f"{path}: the table cannot be created: {error}", "check `lake` and grant write access"
        ) from None


def check_columns(lake: Path, schemas: Mapping[str, pa.Schema]) -> None:
    """Raise if `Tables.prepare` would refuse the columns of an existing table. Only reads."""
    for table, columns in schemas.items():
        if (lake / table / "_delta_log").is_dir():
            _check(lake / table, DeltaTable(str(lake / table)), Schema.from_arrow(columns))


def _type(kind: object) -> str:
    return kind.type if isinstance(kind, PrimitiveType) else str(kind)


def _check(path: Path, table: DeltaTable, schema: Schema) -> None:
    there = {f.name: f.type for f in table.schema().fields}
    ours = {f.name: f.type for f in schema.fields}
    if odd := sorted(n for n in {*there, *ours} if str(there.get(n)) != str(ours.get(n))):
        differences = "; ".join(
            f"{n}: is {_type(there.get(n, 'missing'))}, should be {_type(ours.get(n, 'absent'))}"
            for n in odd
        )
        raise BadInput(
            f"{path}: has other columns ({differences})",
            "land into another table, or correct the decoder's columns",
        )
    if table.metadata().partition_columns:
        raise BadInput(
            f"{path}: is partitioned, which lanes do not support", "land into another table"
        )
    if _FORGETTING in table.metadata().configuration:
        raise BadInput(
            f"{path}: its property {_FORGETTING} lets Delta delete the positions of landed records",
            f"remove it: ALTER TABLE … UNSET TBLPROPERTIES ('{_FORGETTING}')",
        )
    if features := table.protocol().writer_features:
        raise BadInput(
            f"{path}: requires the writer features {', '.join(features)}, which lanes do not support",
            "land into another table",
        )
