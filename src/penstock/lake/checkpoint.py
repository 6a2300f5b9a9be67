"""The checkpoint directory of a pipeline: its state between micro-batches and restarts.

pipeline.json    the pipeline that it belongs to
reports/N.json   what the lanes of micro-batch N did: written once, before any table changes
reports/N.landed all tables have micro-batch N
plan.json        which lane reads which partitions, if there is an autoscaler
source.json      what blocks the source at the moment
spark/           Spark's own files: orders, and which of them are done
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from penstock import specs
from penstock.domain.errors import BadInput, PenstockError
from penstock.domain.lake.order import Order
from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.lake.plan import Plan
from penstock.domain.lake.report import BatchReport
from penstock.domain.value import Doc, Value
from penstock.specs.files import create_file, write_file

# The directory in which each plain consumer (without Spark) has its own checkpoint.
CONSUMERS = "consumers"
RELAND = "reland"
FORMAT = 2
_REPORTS_KEPT = 20
REPLACED = (
    "this process was replaced while it was paused or disconnected: end it, and run only one "
    "process per checkpoint"
)


@dataclass(frozen=True, kw_only=True)
class Identity(Value):
    """The pipeline that a checkpoint belongs to. `id` is random and unique to the checkpoint; it
    names the writer in Delta's transactions."""

    format: int = FORMAT
    id: str
    name: str
    lake: str

    @classmethod
    def new(cls, pipeline: Pipeline) -> Identity:
        lake = str(Path(pipeline.lake).resolve())
        return cls(id=uuid.uuid4().hex, name=pipeline.name, lake=lake)

    def check_owner(self, pipeline: Pipeline, path: Path) -> None:
        """Raise unless it is this pipeline's. `path` of the checkpoint."""
        lake = str(Path(pipeline.lake).resolve())
        if (self.name, self.lake) != (pipeline.name, lake):
            raise BadInput(
                f"{path}: is the checkpoint of the pipeline {self.name} into {self.lake}, and this "
                f"one is {pipeline.name} into {lake}",
                "give each pipeline its own `checkpoint`",
            )


@dataclass(frozen=True, kw_only=True)
class Blocker(Value):
    """Why the source makes no order; with `is_final`, it will not recover by itself.

    Without a message the source is working, and only the other fields matter.
    """

    message: str = ""
    fix: str = ""
    since_ms: Annotated[int, Doc("Unix time")] = 0
    is_final: bool = False
    stalled_partitions: Annotated[int, Doc("that cannot be read at the moment")] = 0
    skipped_topics: Annotated[
        tuple[str, ...], Doc("that match a stream, but are Kafka's or the autoscaler's own")
    ] = ()


def read_identity(file: Path) -> Identity:
    try:
        data = json.loads(file.read_text())
        written = data.get("format")
    except (ValueError, AttributeError) as error:
        fix = "restore the checkpoint as a whole"
        raise BadInput(f"{file}: is not the identity of a pipeline ({error})", fix) from None
    if written != FORMAT:
        raise BadInput(
            f"{file}: has format {written}; this version of Penstock reads {FORMAT}",
            "use the version that wrote it, or land under another `name`",
        )
    return specs.parse(data, Identity, str(file))


@dataclass(frozen=True)
class Checkpoint:
    """The directory. The driver and the source's own process both use it."""

    path: Path

    @property
    def spark(self) -> Path:
        return self.path / "spark"

    def open(self, pipeline: Pipeline) -> Identity:
        """Create it, or check that it belongs to this pipeline."""
        file = self.path / "pipeline.json"
        if (self.path / CONSUMERS).exists():
            raise BadInput(
                f"{self.path}: belongs to plain consumers; Spark cannot continue from it",
                "continue with penstock autoscaler run --consumers, or use another name and lake",
            )
        try:
            (self.path / "reports").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(
                f"{self.path}: cannot be created: {error.strerror}", "choose another `checkpoint`"
            ) from None
        if not file.exists():
            if self.spark.exists() or any((self.path / "reports").iterdir()):
                raise BadInput(
                    f"{self.path}: is not the checkpoint of a pipeline",
                    "choose another `checkpoint`",
                )
            identity = Identity.new(pipeline)
            write_file(file, specs.dump_json(identity))
            return identity
        identity = self.identity()
        identity.check_owner(pipeline, self.path)
        # Reports without Spark's files: Spark would start over with used numbers.
        if self.newest_report > self.newest_order:
            raise BadInput(
                f"{self.spark}: is missing, or older than the rest of the checkpoint",
                "restore the checkpoint as a whole",
            )
        return identity

    def identity(self) -> Identity:
        file = self.path / "pipeline.json"
        if not file.exists():
            raise BadInput(f"{self.path}: no pipeline has used this checkpoint yet")
        return read_identity(file)

    # --- orders, written by Spark ----------------------------------------------------------------

    @property
    def newest_order(self) -> int:
        """Its number; -1 if there is none."""
        orders = (f.name for f in (self.spark / "offsets").glob("*"))
        return max((int(name) for name in orders if name.isdigit()), default=-1)

    def known_topics(self) -> Collection[str]:
        """The topics of the newest order."""
        with suppress(OSError, ValueError, LookupError, TypeError):  # the file is Spark's, not ours
            lines = (self.spark / "offsets" / str(self.newest_order)).read_text().splitlines()
            return Order.from_offset(json.loads(lines[-1])).topic_ids.keys()
        return ()

    # --- reports -----------------------------------------------------------------------------

    def write_report(self, report: BatchReport) -> None:
        """Write it once. From then on it is final, if the ledger accepts it."""
        file = self._file(report.batch, "json")
        newest = self.newest_report
        # Whether the file exists is not enough: after a long pause it may have been deleted again.
        if newest > report.batch:
            raise PenstockError(
                f"{file}: another process wrote the report of micro-batch {newest} already",
                REPLACED,
            )
        try:
            create_file(file, specs.dump_json(report))
        except FileExistsError:
            raise PenstockError(
                f"{file}: another process landed this micro-batch", REPLACED
            ) from None
        old = report.batch - _REPORTS_KEPT
        for kind in ("json", "landed"):
            self._file(old, kind).unlink(missing_ok=True)

    @property
    def newest_report(self) -> int:
        """Its number; -1 if there is none."""
        return max(self._numbers("json"), default=-1)

    def report(self, batch: int) -> BatchReport | None:
        file = self._file(batch, "json")
        with suppress(FileNotFoundError):  # an old one may be removed at any moment
            return specs.parse(file.read_text(encoding="utf-8"), BatchReport, str(file))
        return None

    def reports(self) -> list[BatchReport]:
        """The last twenty, which include all that are not landed yet."""
        reports = (self.report(batch) for batch in sorted(self._numbers("json")))
        return [report for report in reports if report is not None]

    def note_landed(self, batch: int) -> None:
        """Note that all tables have it. The audit uses this to tell what is missing."""
        with suppress(OSError):  # without it the audit only knows less
            self._file(batch, "landed").touch()

    @property
    def newest_landed(self) -> int:
        """The newest micro-batch with rows that all tables have; -1 if there is none."""
        return max(self._numbers("landed"), default=-1)

    def can_complete(self, batch: int) -> bool:
        """Whether the next start would land this micro-batch, or it is landed already."""
        # In this order: a report is removed only after its micro-batch was landed.
        return self._file(batch, "json").exists() or self.newest_landed >= batch

    def _file(self, batch: int, kind: str) -> Path:
        return self.path / "reports" / f"{batch}.{kind}"

    def _numbers(self, kind: str) -> Iterator[int]:
        """The numbers of the files of this kind in reports/."""
        stems = (f.stem for f in (self.path / "reports").glob(f"*.{kind}"))
        return (int(stem) for stem in stems if stem.isdigit())

    # --- the plan ----------------------------------------------------------------------------

    def write_plan(self, plan: Plan) -> None:
        write_file(self.path / "plan.json", specs.dump_json(plan))

    def plan(self) -> Plan | None:
        file = self.path / "plan.json"
        return specs.load(file, Plan) if file.exists() else None

    # --- what blocks the source ----------------------------------------------------------------

    def write_blocker(self, blocker: Blocker | None) -> None:
        file = self.path / "source.json"
        if blocker is None:
            file.unlink(missing_ok=True)
        else:
            write_file(file, specs.dump_json(blocker))

    def blocker(self) -> Blocker | None:
        with suppress(FileNotFoundError):  # it may be removed at any moment
            text = (self.path / "source.json").read_text()
            return specs.parse(text, Blocker, "source.json")
        return None

    # --- the request to stop -------------------------------------------------------------------

    def ask_to_stop(self, must_stop: bool) -> None:
        """With True, no further micro-batch begins."""
        if must_stop:
            (self.path / "stop").touch()
        else:
            (self.path / "stop").unlink(missing_ok=True)

    @property
    def is_asked_to_stop(self) -> bool:
        return (self.path / "stop").exists()


class OrderlessCheckpoint(Checkpoint):
    """A checkpoint without Spark: it has reports but no orders."""

    @property
    def newest_order(self) -> int:
        return self.newest_report


def reland_checkpoint(pipeline: Pipeline) -> Checkpoint:
    """The checkpoint of relands."""
    return OrderlessCheckpoint(Path(pipeline.checkpoint_path) / RELAND)


def checkpoints(pipeline: Pipeline) -> dict[str, Checkpoint]:
    """All checkpoints of this pipeline by id: that of Spark or those of plain consumers, and that
    of relands."""
    own = Checkpoint(Path(pipeline.checkpoint_path))
    consumers = (Checkpoint(path) for path in (own.path / CONSUMERS).glob("[0-9]*"))
    return {
        checkpoint.identity().id: checkpoint
        for checkpoint in (own, *consumers, reland_checkpoint(pipeline))
        if (checkpoint.path / "pipeline.json").exists()
    }
