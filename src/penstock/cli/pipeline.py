"""`penstock pipeline`: lands topics in the lake, and audits it."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Literal

import click
from prometheus_client import CollectorRegistry

from penstock.api import lake as api
from penstock.api import landing
from penstock.api.landing import Listener
from penstock.cli import events, options, output
from penstock.cli.capacity import capacity
from penstock.cli.evidence import VERDICT_EXIT
from penstock.domain.errors import BadInput
from penstock.domain.progress import Progress
from penstock.lake.metrics import serve
from penstock.lake.rejection import RejectKind
from penstock.lake.rejects import top
from penstock.lake.status import PipelineStatus

# How often a line is written that stays.
_LOG_S = 30.0


@click.group()
def pipeline() -> None:
    """Land topics in Delta tables, exactly once, and prove it."""


pipeline.add_command(capacity)


@pipeline.command()
@options.file
@options.lake_master
@click.option(
    "--once", is_flag=True, help="Land the records that are in the topics now, then exit."
)
@options.metrics_port
@options.metrics_host
@click.option(
    "--autoscale",
    type=click.Choice(["inside", "outside"]),
    help="Scale lanes with the write rate: `inside` decides in this process, `outside` takes plans "
    "from `penstock autoscaler run`.",
)
@click.option(
    "--conf", "conf", multiple=True, metavar="NAME=VALUE", help="Spark configuration property."
)
@options.as_json
def run(
    file: Path,
    master: str,
    once: bool,
    metrics_port: int | None,
    metrics_host: str,
    autoscale: Literal["inside", "outside"] | None,
    conf: tuple[str, ...],
    as_json: bool,
) -> None:
    """Land the topics of FILE until stopped.

    SIGTERM or Ctrl-C lets the micro-batch finish. Exits with 6 if more records were rejected
    than `rejects_stop_share` allows.
    """
    spark_config = _settings(conf)
    registry = CollectorRegistry()
    checked = landing.load(file)
    if metrics_port is not None:
        serve(registry, metrics_port, metrics_host)
    with output.progress() as say:
        summary = landing.land(
            checked,
            once=once,
            autoscale=autoscale,
            master=master,
            spark_config=spark_config,
            registry=registry,
            listener=Listener(
                progress=say,
                warning=output.warn,
                status=_StatusLine(say).show,
                event=partial(events.show, note=output.aside),
            ),
        )
    if as_json:
        output.emit_json(summary.to_data())
    else:
        output.outcome(summary.outcome)
        tables = summary.status.tables.items()
        output.table(("table", "rows"), [(name, f"{t.rows:,}") for name, t in tables])
        output.note(f"Verify with: penstock pipeline audit {file}; tables in {checked.lake}")
    summary.check()


@pipeline.command()
@options.file
@click.option("--master", default="local[*]", show_default=True, help="Spark master of the audit.")
@options.as_json
def audit(file: Path, master: str, as_json: bool) -> None:
    """Verify from ledger and tables that every offset was landed exactly once.

    Exits with 10 if it finds a problem.
    """
    with output.progress() as say:
        result = api.audit(file, master=master, on_progress=say)
    details = {"is_clean": result.is_clean, **asdict(result)}
    if output.conclude(result.sentence, details, as_json):
        output.table(
            ("topic", "partitions", "records", "ignored", "gaps", "lost", "truncated"),
            [
                (
                    t.topic,
                    t.partitions,
                    *(f"{n:,}" for n in (t.records, t.ignored, t.gaps, t.lost, t.truncated)),
                )
                for t in result.topics
            ],
        )
        output.table(
            ("table", "rows"), [(name, f"{rows:,}") for name, rows in sorted(result.rows.items())]
        )
        for line in (*result.problems, *result.half_landed):
            output.note(f"- {line}")
    sys.exit(0 if result.is_clean else VERDICT_EXIT)


@pipeline.command()
@options.file
@click.option(
    "--file-mb",
    type=click.IntRange(min=1),
    default=128,
    show_default=True,
    help="Target size of a file in MB.",
)
@click.option(
    "--vacuum-hours",
    type=click.IntRange(min=1),
    help="Also delete files that no table version of the last N hours uses.",
)
@click.option(
    "--gone-writer",
    "gone_writers",
    multiple=True,
    metavar="ID",
    help="ID of a writer whose checkpoint was deleted: the vacuum may remove its files that no "
    "commit names. They may be the only copy of their records. May be repeated.",
)
@options.as_json
def compact(
    file: Path, file_mb: int, vacuum_hours: int | None, gone_writers: tuple[str, ...], as_json: bool
) -> None:
    """Join small files into large ones. The pipeline may keep running."""
    checked = landing.load(file)
    with output.progress() as say:
        done = api.compact(
            checked,
            file_mb=file_mb,
            vacuum_hours=vacuum_hours,
            gone_writers=gone_writers,
            on_progress=say,
        )
    for why in dict.fromkeys(table.strays_kept for table in done if table.strays_kept):
        output.warn(f"vacuum kept unreferenced files that may still be needed: {why}")
    before = sum(table.files_before for table in done)
    after = sum(table.files_after for table in done)
    sentence = f"Compacted {checked.name}: {before:,} files → {after:,}."
    if output.conclude(sentence, {"tables": [asdict(table) for table in done]}, as_json):
        output.table(
            ("table", "files before", "after", "size"),
            [(o.table, o.files_before, o.files_after, _mb(o.size_bytes)) for o in done],
        )


@pipeline.command()
@options.file
@click.option(
    "--topic", "topics", multiple=True, help="Only records of this topic; may be repeated."
)
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice([str(kind) for kind in RejectKind]),
    help="Only records rejected for this kind of reason; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be landed; change nothing.")
@options.as_json
def reland(
    file: Path, topics: tuple[str, ...], kinds: tuple[str, ...], dry_run: bool, as_json: bool
) -> None:
    """Land rejected records again, after the decoder or the schema was fixed.

    Stop the pipeline first. Records that are rejected again stay in the table of rejects.
    """
    with output.progress() as say:
        done = api.reland(file, topics=topics, kinds=kinds, dry_run=dry_run, on_progress=say)
    would = "would be" if dry_run else "were"
    sentence = f"{done.moved:,} of {done.tried:,} rejected records {would} landed."
    if done.ignored:
        sentence += f" {done.ignored:,} of them {would} dropped by `ignore`."
    if done.without_stream:
        sentence += f" {done.without_stream:,} belong to topics that no stream reads any more."
    if not output.conclude(sentence, {"is_dry_run": dry_run, **asdict(done)}, as_json):
        return
    if done.landed:
        output.table(("table", "rows"), [(t, f"{n:,}") for t, n in sorted(done.landed.items())])
    if done.rejected:
        output.table(
            ("still rejected for", "records"),
            [(kind, f"{n:,}") for kind, n in sorted(done.rejected.items())],
        )


def _settings(conf: tuple[str, ...]) -> dict[str, str]:
    for setting in conf:
        if "=" not in setting:
            raise BadInput(f"--conf: {setting!r} must be NAME=VALUE")
    return {name: value for name, _, value in (setting.partition("=") for setting in conf)}


class _StatusLine:
    """The status line on a terminal; in a log, a line now and then."""

    def __init__(self, say: Progress) -> None:
        self._say = say
        self._shown_s = float("-inf")

    def show(self, now: PipelineStatus) -> None:
        now_s = time.monotonic()
        if output.is_watched() or now_s - self._shown_s >= _LOG_S:
            self._say(_line(now))
            self._shown_s = now_s


def _line(now: PipelineStatus) -> str:
    """The status line of a running pipeline."""
    fresh = ", ".join(
        f"{table} {status.oldest_s:.1f} s"
        for table, status in now.tables.items()
        if status.oldest_s is not None
    )
    rejected = f"; {now.rejected:,} rejected: {top(now.rejects)}" if now.rejected else ""
    troubles = f"; {now.last_troubles[0]}" if now.last_troubles else ""
    return (
        f"{now.rows:,} rows landed, {now.rows_per_s:,.0f} rows/s, "
        f"{_mb(now.bytes_per_s)}/s, lag {now.lag:,}"
        f"{'; oldest when readable: ' + fresh if fresh else ''}{rejected}{troubles}"
    )


def _mb(size_bytes: float) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"
