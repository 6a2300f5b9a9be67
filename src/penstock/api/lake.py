"""Public API: audit, compact and reland a lake."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from penstock.api.landing import AnyPipeline, load
from penstock.domain.errors import BadInput
from penstock.domain.progress import Progress, silent
from penstock.domain.value import Bound, fitting, several
from penstock.lake.ownership import owned
from penstock.lake.rejection import RejectKind

if TYPE_CHECKING:
    from penstock.lake.audit import Audit
    from penstock.lake.compact import Compacted
    from penstock.lake.reland import Relanded


def audit(
    pipeline: AnyPipeline, *, master: str = "local[*]", on_progress: Progress = silent
) -> Audit:
    """Prove from ledger and tables that every offset is landed exactly once."""
    from penstock.analysis.session import scoped
    from penstock.lake.audit import audit

    checked = load(pipeline)
    on_progress("starting Spark")
    with scoped(master, app="penstock-audit", with_lake=True) as spark:
        on_progress(f"reading the tables of {checked.name}")
        return audit(spark, checked)


def compact(
    pipeline: AnyPipeline,
    *,
    file_mb: int = 128,
    vacuum_hours: int | None = None,
    gone_writers: Collection[str] = (),
    on_progress: Progress = silent,
) -> tuple[Compacted, ...]:
    """Join small files into large ones, table by table; the pipeline may keep running.

    `vacuum_hours`: also delete files that no table version of the last `vacuum_hours` uses.
    """
    from penstock.lake.compact import compact

    fitting("file_mb", file_mb, int, Bound(ge=1))
    fitting("vacuum_hours", vacuum_hours, int | None)
    if vacuum_hours is not None and vacuum_hours < 1:
        raise BadInput(
            f"vacuum_hours: {vacuum_hours} must be 1 or more",
            "younger files may belong to a micro-batch that is still being landed",
        )
    gone_writers = several("gone_writers", gone_writers)
    checked = load(pipeline)
    on_progress(f"compacting the tables of {checked.name}")
    done = []
    for compacted in compact(checked, file_mb * 1_000_000, vacuum_hours, gone_writers):
        on_progress(f"{compacted.table}: {compacted.files_before} → {compacted.files_after} files")
        done.append(compacted)
    return tuple(done)


def reland(
    pipeline: AnyPipeline,
    *,
    topics: Sequence[str] = (),
    kinds: Sequence[str] = (),
    dry_run: bool = False,
    on_progress: Progress = silent,
) -> Relanded:
    """Land rejected records again, after the decoder or the schema was fixed.

    The pipeline must not be running. `kinds`: only records rejected for these kinds of reasons.
    """
    from penstock.lake.reland import reland

    topics, kinds = several("topics", topics), several("kinds", kinds)
    checked = load(pipeline)
    unknown = set(kinds) - {str(kind) for kind in RejectKind}
    if unknown:
        raise BadInput(
            f"kinds: unknown {', '.join(sorted(unknown))}",
            f"choose from {', '.join(str(kind) for kind in RejectKind)}",
        )
    with nullcontext() if dry_run else owned(checked):
        on_progress(f"reading {checked.rejects_table}")
        return reland(
            checked,
            topics=topics,
            kinds=[RejectKind(kind) for kind in kinds],
            is_dry=dry_run,
            on_progress=on_progress,
        )
