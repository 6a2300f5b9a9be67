"""What a pipeline remembers between micro-batches and lives: the directory of its checkpoint.

pipeline.json    whose it is
reports/N.json   what the lanes of micro-batch N did: written once, before any table changes
plan.json        which partitions on which lane, if somebody plans
source.json      what hinders the source just now
spark/           Spark's own: orders, and which are done
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection
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
from penstock.files import create_file, write_file

# Where consumers without Spark have their memories, each its own.
CONSUMERS = "consumers"
FORMAT = 1
_REPORTS_KEPT = 20


@dataclass(frozen=True, kw_only=True)
class Identity(Value):
    """Whose checkpoint it is. `id` is new with every checkpoint: Delta's transactions bear it."""

    format: int = FORMAT
    id: str
    name: str
    lake: str


@dataclass(frozen=True, kw_only=True)
class Hindrance(Value):
    """Why the source gives nothing to do; with `is_final`, nor ever will by itself."""

    message: str
    fix: str = ""
    since_ms: Annotated[int, Doc("Unix time")] = 0
    is_final: bool = False


@dataclass(frozen=True)
class Memory:
    """The directory. Used by the driver and by the source's process beside it."""

    path: Path

    @property
    def spark(self) -> Path:
        return self.path / "spark"

    def open(self, pipeline: Pipeline) -> tuple[Identity, bool]:
        """Make it, or check that it belongs to this pipeline; whether it was made."""
        lake = str(Path(pipeline.lake).resolve())
        file = self.path / "pipeline.json"
        if (self.path / CONSUMERS).exists():
            raise BadInput(
                f"{self.path}: is the checkpoint of plain consumers, which Spark cannot go on from",
                "go on with penstock autoscaler run --consumers, or use another name and lake",
            )
        try:
            (self.path / "reports").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(
                f"{self.path}: cannot be made: {error.strerror}", "choose another `checkpoint`"
            ) from None
        if not file.exists():
            if self.spark.exists() or any((self.path / "reports").iterdir()):
                raise BadInput(
                    f"{self.path}: is no checkpoint of a pipeline", "choose another `checkpoint`"
                )
            made = Identity(id=uuid.uuid4().hex, name=pipeline.name, lake=lake)
            write_file(file, specs.dump_json(made))
            return made, True
        found = self.identity()
        if (found.name, found.lake) != (pipeline.name, lake):
            raise BadInput(
                f"{self.path}: is the checkpoint of the pipeline {found.name} into {found.lake}, "
                f"and this one is {pipeline.name} into {lake}",
                "give each pipeline a `checkpoint` of its own",
            )
        self._check_whole()
        return found, False

    def _check_whole(self) -> None:
        """Reports without Spark's part would have it begin anew, under numbers that are used up."""
        if self.newest_report > self.newest_order:
            raise BadInput(
                f"{self.spark}: is missing, or older than the rest of the checkpoint",
                "restore the checkpoint as a whole",
            )

    def identity(self) -> Identity:
        file = self.path / "pipeline.json"
        if not file.exists():
            raise BadInput(f"{self.path}: no pipeline has run here yet")
        data = json.loads(file.read_text())
        if data.get("format") != FORMAT:
            raise BadInput(
                f"{file}: is of format {data.get('format')}, and this Penstock knows {FORMAT}",
                "use the Penstock that made it",
            )
        return specs.parse(data, Identity, str(file))

    # --- orders, which are Spark's ---------------------------------------------------------------

    @property
    def newest_order(self) -> int:
        """Its number; -1 if there is none."""
        orders = (f.name for f in (self.spark / "offsets").glob("*"))
        return max((int(name) for name in orders if name.isdigit()), default=-1)

    def known_topics(self) -> Collection[str]:
        """Those of the newest order."""
        with suppress(OSError, ValueError, LookupError, TypeError):  # the file is Spark's, not ours
            lines = (self.spark / "offsets" / str(self.newest_order)).read_text().splitlines()
            return Order.from_offset(json.loads(lines[-1])).topic_ids.keys()
        return ()

    # --- reports -----------------------------------------------------------------------------

    def write_report(self, report: BatchReport) -> None:
        """From here on the micro-batch happened as it says."""
        file = self._report(report.batch)
        try:
            create_file(file, specs.dump_json(report))
        except FileExistsError:
            raise PenstockError(
                f"{file}: somebody else landed this micro-batch",
                "let only one pipeline run on a checkpoint",
            ) from None
        old = self._report(report.batch - _REPORTS_KEPT)
        old.unlink(missing_ok=True)

    @property
    def newest_report(self) -> int:
        """Its number; -1 if there is none."""
        reports = (f.stem for f in (self.path / "reports").glob("*.json"))
        return max((int(stem) for stem in reports if stem.isdigit()), default=-1)

    def report(self, batch: int) -> BatchReport | None:
        file = self._report(batch)
        return specs.load(file, BatchReport) if file.exists() else None

    def _report(self, batch: int) -> Path:
        return self.path / "reports" / f"{batch}.json"

    # --- the plan ----------------------------------------------------------------------------

    def write_plan(self, plan: Plan) -> None:
        write_file(self.path / "plan.json", specs.dump_json(plan))

    def plan(self) -> Plan | None:
        file = self.path / "plan.json"
        return specs.load(file, Plan) if file.exists() else None

    # --- what hinders the source ---------------------------------------------------------------

    def write_hindrance(self, hindrance: Hindrance | None) -> None:
        file = self.path / "source.json"
        if hindrance is None:
            file.unlink(missing_ok=True)
        else:
            write_file(file, specs.dump_json(hindrance))

    def hindrance(self) -> Hindrance | None:
        with suppress(FileNotFoundError):  # it may be removed at any moment
            text = (self.path / "source.json").read_text()
            return specs.parse(text, Hindrance, "source.json")
        return None

    # --- the request to stop -------------------------------------------------------------------

    def ask_to_stop(self, wanted: bool) -> None:
        """No further micro-batch begins while it is asked for."""
        if wanted:
            (self.path / "stop").touch()
        else:
            (self.path / "stop").unlink(missing_ok=True)

    @property
    def is_asked_to_stop(self) -> bool:
        return (self.path / "stop").exists()
