"""`penstock pipeline`: topics to the lake, and the proof that they are there."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click
from prometheus_client import CollectorRegistry

from penstock.autoscaler.metrics import Metrics as AutoscalerMetrics
from penstock.cli import events, evidence, options, output
from penstock.cli.capacity import capacity
from penstock.domain.errors import BadInput
from penstock.domain.lake.pipeline import Pipeline
from penstock.pipeline.lake import query, resolve
from penstock.pipeline.lake.audit import audit as carry_out_audit
from penstock.pipeline.lake.compact import compact as carry_out_compaction
from penstock.pipeline.lake.executors import ONE_LANE_EACH
from penstock.pipeline.lake.landing import Landed
from penstock.pipeline.lake.metrics import Metrics, serve
from penstock.pipeline.lake.query import Running
from penstock.pipeline.lake.scaling import scaled
from penstock.pipeline.lake.status import Status, Watch
from penstock.pipeline.session import session
from penstock.progress import Progress

_LOOK_S = 1.0
# How often a line is written that stays.
_LOG_S = 30.0

_file = click.argument("file", type=click.Path(path_type=Path))


@click.group()
def pipeline() -> None:
    """Land topics in Delta tables, exactly once, and prove it."""


pipeline.add_command(capacity)


@pipeline.command()
@_file
@click.option("--master", default="local[*]", help="Spark master that the lanes run on.")
@click.option("--once", is_flag=True, help="Land what the topics hold now, then end.")
@options.metrics_port
@options.metrics_host
@click.option(
    "--autoscale",
    type=click.Choice(["inside", "outside"]),
    help="Lanes follow the write speed, as decided here or by `penstock autoscaler run`.",
)
@click.option("--conf", "conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark's.")
@options.as_json
def run(
    file: Path,
    master: str,
    once: bool,
    metrics_port: int | None,
    metrics_host: str,
    autoscale: str | None,
    conf: tuple[str, ...],
    as_json: bool,
) -> None:
    """Land the topics of FILE until stopped; SIGTERM or Ctrl-C lets the micro-batch finish."""
    wanted = resolve.load(file)
    config, warnings = resolve.client_config(wanted)
    for warning in warnings:
        output.warn(f"{wanted.client_properties}: {warning}")
    registry = CollectorRegistry()
    metrics = Metrics(wanted.name, registry)
    if metrics_port is not None:
        serve(registry, metrics_port, metrics_host)
    watch = Watch(wanted.rejects_table, time.monotonic())

    with query.owned(wanted), output.progress() as say:
        prepared = query.prepare(wanted, config)
        query.check_topics(prepared)
        say("starting Spark")
        spark = session(
            query.with_retries(master),
            app=f"penstock-{wanted.name}",
            config={
                **query.SPARK_CONFIG,
                **(ONE_LANE_EACH if autoscale else {}),
                **_settings(conf),
            },
        )
        on_event = events.to_all(
            partial(events.show, note=output.aside), AutoscalerMetrics(wanted.name, registry).add
        )
        with scaled(autoscale, spark, prepared, on_event) as tell_autoscaler:

            def tell(landed: Landed) -> None:
                watch.add(landed, time.monotonic())
                metrics.add(landed)
                tell_autoscaler(landed)

            running = query.start(spark, prepared, only_what_is_there=once, tell=tell)
            try:
                _follow(running, watch, say)
            except (KeyboardInterrupt, SystemExit):  # Ctrl-C, SIGTERM
                say("finishing the micro-batch")
                running.stop()
    if hindrance := running.hindrance:  # as of a topic that was not there when it ended
        output.warn(f"{hindrance.message}; {hindrance.fix}")
    _conclude(wanted, watch.status(time.monotonic()), as_json)


@pipeline.command()
@_file
@click.option("--master", default="local[*]", help="Spark master of the audit.")
@options.as_json
def audit(file: Path, master: str, as_json: bool) -> None:
    """Prove from ledger and tables that every offset is there exactly once.

    Exits with 10 if it is not so.
    """
    wanted = resolve.load(file)
    with output.progress() as say:
        say("starting Spark")
        spark = session(master, app="penstock-audit", with_lake=True)
        say(f"reading the tables of {wanted.name}")
        found = carry_out_audit(spark, wanted)
    if as_json:
        output.emit_json({"outcome": found.sentence, "is_clean": found.is_clean, **asdict(found)})
    else:
        output.outcome(found.sentence)
        output.table(
            ("topic", "partitions", "records", "ignored", "gaps", "lost"),
            [
                (t.topic, t.partitions, *(f"{n:,}" for n in (t.records, t.ignored, t.gaps, t.lost)))
                for t in found.topics
            ],
        )
        output.table(
            ("table", "rows"), [(name, f"{rows:,}") for name, rows in sorted(found.rows.items())]
        )
        for problem in found.problems:
            output.note(f"- {problem}")
    sys.exit(0 if found.is_clean else evidence.VERDICT_EXIT)


@pipeline.command()
@_file
@click.option("--master", default="local[*]", help="Spark master of the compaction.")
@click.option("--file-mb", type=int, default=128, help="Join files up to this size.")
@click.option(
    "--vacuum-hours", type=int, help="Also remove files that no version of these hours needs."
)
@options.as_json
def compact(file: Path, master: str, file_mb: int, vacuum_hours: int | None, as_json: bool) -> None:
    """Join the many small files of a pipeline's tables. It may run meanwhile."""
    if file_mb < 1:
        raise BadInput(f"--file-mb: {file_mb} must be 1 or more")
    if vacuum_hours is not None and vacuum_hours < 1:
        raise BadInput(
            f"--vacuum-hours: {vacuum_hours} must be 1 or more",
            "younger files may belong to a micro-batch that is still being landed",
        )
    wanted = resolve.load(file)
    with output.progress() as say:
        say("starting Spark")
        spark = session(master, app="penstock-compact", with_lake=True)
        done = []
        for one in carry_out_compaction(spark, wanted, file_mb * 1_000_000, vacuum_hours):
            say(f"{one.table}: {one.files_before} → {one.files_after} files")
            done.append(one)
    before = sum(one.files_before for one in done)
    after = sum(one.files_after for one in done)
    sentence = f"{before:,} files of {wanted.name} became {after:,}."
    if as_json:
        output.emit_json({"outcome": sentence, "tables": [asdict(one) for one in done]})
        return
    output.outcome(sentence)
    output.table(
        ("table", "files before", "after", "size"),
        [(o.table, o.files_before, o.files_after, _mb(o.size_bytes)) for o in done],
    )


def _settings(conf: tuple[str, ...]) -> dict[str, str]:
    for given in conf:
        if "=" not in given:
            raise BadInput(f"--conf: {given!r} must be NAME=VALUE")
    return {name: value for name, _, value in (given.partition("=") for given in conf)}


def _follow(running: Running, watch: Watch, say: Progress) -> None:
    """Until it ends by itself."""
    told_s = float("-inf")
    while not running.wait(_LOOK_S):
        now_s = time.monotonic()
        if hindrance := running.hindrance:
            say(hindrance.message)
        elif output.is_watched() or now_s - told_s >= _LOG_S:
            say(_line(watch.status(now_s)))
            told_s = now_s


def _line(now: Status) -> str:
    """What stands on the terminal while it runs."""
    fresh = ", ".join(
        f"{table} {status.oldest_s:.1f} s"
        for table, status in now.tables.items()
        if status.oldest_s is not None
    )
    troubles = f"; {now.last_troubles[0]}" if now.last_troubles else ""
    return (
        f"{now.rows:,} rows landed, {now.rows_per_s:,.0f} rows/s, "
        f"{_mb(now.bytes_per_s)}/s, lag {now.lag:,}"
        f"{'; oldest when readable: ' + fresh if fresh else ''}{troubles}"
    )


def _conclude(wanted: Pipeline, now: Status, as_json: bool) -> None:
    sentence = f"{now.rows:,} rows landed in {now.batches:,} micro-batches, lag {now.lag:,}."
    if now.lost:
        sentence += f" {now.lost:,} offsets were deleted before they were read."
    if now.rejected:
        sentence += f" {now.rejected:,} records were rejected: see {wanted.rejects_table}."
    if as_json:
        output.emit_json({"outcome": sentence, "lake": wanted.lake, **asdict(now)})
        return
    output.outcome(sentence)
    output.table(("table", "rows"), [(name, f"{t.rows:,}") for name, t in now.tables.items()])
    output.note(f"Prove it: penstock pipeline audit; tables in {wanted.lake}")


def _mb(size_bytes: float) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"
