"""Ways to break the tables of a pipeline that an audit must find. Each changes a copy of a lake.

Every break is done with tools that a mistaken colleague has: delta-rs, an editor, `rm`. What is drawn
at random comes from the generator that is passed in.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from penstock.domain.lake.pipeline import Pipeline

Break = Callable[[Pipeline, random.Random], None]


def _path(pipeline: Pipeline, table: str) -> str:
    return str(Path(pipeline.lake) / table)


def _some_table(pipeline: Pipeline, rng: random.Random) -> str:
    return rng.choice(pipeline.tables)


def _some_row(path: str, rng: random.Random) -> tuple[pa.Table, str]:
    """One row of a table, and a predicate that finds it."""
    file = rng.choice(DeltaTable(path).file_uris())
    rows = pa.parquet.read_table(file)
    row = rows.slice(rng.randrange(len(rows)), 1)
    where = {
        name: row.column(name)[0].as_py()
        for name in ("kafka_topic", "kafka_partition", "kafka_offset")
    }
    return row, _predicate(where)


def _predicate(where: Mapping[str, Any]) -> str:
    return " AND ".join(
        f"{name} = '{value}'" if isinstance(value, str) else f"{name} = {value}"
        for name, value in where.items()
    )


def row_removed(pipeline: Pipeline, rng: random.Random) -> None:
    path = _path(pipeline, _some_table(pipeline, rng))
    _, found = _some_row(path, rng)
    DeltaTable(path).delete(found)


def row_doubled(pipeline: Pipeline, rng: random.Random) -> None:
    path = _path(pipeline, _some_table(pipeline, rng))
    row, _ = _some_row(path, rng)
    write_deltalake(path, row, mode="append")


def row_doubled_in_another_table(pipeline: Pipeline, rng: random.Random) -> None:
    source, target = rng.sample(pipeline.tables, 2)
    row, _ = _some_row(_path(pipeline, source), rng)
    write_deltalake(_path(pipeline, target), row, mode="append")


def row_moved_to_another_table(pipeline: Pipeline, rng: random.Random) -> None:
    source, target = rng.sample(pipeline.tables, 2)
    row, found = _some_row(_path(pipeline, source), rng)
    write_deltalake(_path(pipeline, target), row, mode="append")
    DeltaTable(_path(pipeline, source)).delete(found)


def offset_altered(pipeline: Pipeline, rng: random.Random) -> None:
    path = _path(pipeline, _some_table(pipeline, rng))
    _, found = _some_row(path, rng)
    DeltaTable(path).update(
        {"kafka_offset": f"kafka_offset + {rng.randint(1, 10**9)}"}, predicate=found
    )


def two_offsets_altered(pipeline: Pipeline, rng: random.Random) -> None:
    """One up, one down: their sum stays."""
    path = _path(pipeline, _some_table(pipeline, rng))
    first, one = _some_row(path, rng)
    where = {name: first.column(name)[0].as_py() for name in ("kafka_topic", "kafka_partition")}
    offset = first.column("kafka_offset")[0].as_py()
    neighbours = (
        DeltaTable(path)
        .to_pyarrow_dataset()
        .to_table(
            columns=["kafka_offset"],
            filter=(pc.field("kafka_topic") == where["kafka_topic"])
            & (pc.field("kafka_partition") == where["kafka_partition"])
            & (pc.field("kafka_offset") != offset),
        )
    )
    other = neighbours.column(0)[rng.randrange(len(neighbours))].as_py()
    by = 10**7
    table = DeltaTable(path)
    table.update({"kafka_offset": f"kafka_offset + {by}"}, predicate=one)
    two = _predicate({**where, "kafka_offset": other})
    table.update({"kafka_offset": f"kafka_offset - {by}"}, predicate=two)


def foreign_rows(pipeline: Pipeline, rng: random.Random) -> None:
    """Rows of a partition that the pipeline never read."""
    path = _path(pipeline, _some_table(pipeline, rng))
    row, _ = _some_row(path, rng)
    place = row.schema.get_field_index("kafka_partition")
    other = row.set_column(place, row.schema.field(place), pa.array([9999], pa.int32()))
    write_deltalake(path, other, mode="append")


def file_missing(pipeline: Pipeline, rng: random.Random) -> None:
    path = _path(pipeline, _some_table(pipeline, rng))
    Path(rng.choice(DeltaTable(path).file_uris()).removeprefix("file://")).unlink()


def older_version_restored(pipeline: Pipeline, rng: random.Random) -> None:
    path = _path(pipeline, _some_table(pipeline, rng))
    table = DeltaTable(path)
    table.restore(max(1, table.version() - rng.randint(3, 8)))


def all_set_back(pipeline: Pipeline, rng: random.Random) -> None:
    """The ledger to what it was before some micro-batches, and the tables with it."""
    path = _path(pipeline, pipeline.ledger_table)
    ledger = DeltaTable(path)
    last, rows = ledger.version(), ledger.count()
    # A compaction is a version, too, and changes no row.
    earlier = [v for v in range(max(1, last - 10), last) if DeltaTable(path, v).count() < rows]
    ledger.restore(rng.choice(earlier))
    landed = DeltaTable(path).to_pyarrow_table(columns=["topic", "partition", "end_offset"])
    ends = landed.group_by(["topic", "partition"]).aggregate([("end_offset", "max")]).to_pylist()
    kept = " OR ".join(
        f"({_predicate({'kafka_topic': end['topic'], 'kafka_partition': end['partition']})} "
        f"AND kafka_offset < {end['end_offset_max']})"
        for end in ends
    )
    for table in (*pipeline.tables, pipeline.rejects_table):
        DeltaTable(_path(pipeline, table)).delete(f"NOT ({kept})")


def commit_replaced(pipeline: Pipeline, rng: random.Random) -> None:
    """By one that adds nothing, as an overwriting log store would."""
    path = _path(pipeline, _some_table(pipeline, rng))
    log = Path(path) / "_delta_log"
    newest_checkpoint = max(
        (int(f.name.split(".")[0]) for f in log.glob("*.checkpoint.parquet")), default=0
    )
    for file in sorted(log.glob("*.json"), reverse=True):
        if not file.stem.isdigit() or int(file.stem) <= newest_checkpoint:
            continue
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        if any("add" in action for action in actions):
            kept = [action for action in actions if "add" not in action]
            file.write_text("\n".join(json.dumps(action) for action in kept))
            return
    older_version_restored(pipeline, rng)  # everything is in the checkpoint: the next best thing


def ledger_row_removed(pipeline: Pipeline, rng: random.Random) -> None:
    path, row = _ledger_row(pipeline, rng)
    DeltaTable(path).delete(_ledger_predicate(row))


def last_ledger_row_removed(pipeline: Pipeline, rng: random.Random) -> None:
    """Of a partition, with its records: nothing after it shows that it was there."""
    path, row = _ledger_row(pipeline, rng)
    topic, partition = (row.column(name)[0].as_py() for name in ("topic", "partition"))
    own = (pc.field("topic") == topic) & (pc.field("partition") == partition)
    starts = DeltaTable(path).to_pyarrow_table(columns=["topic", "partition", "start_offset"])
    last = pc.max(starts.filter(own).column("start_offset")).as_py()
    where = {"topic": topic, "partition": partition}
    DeltaTable(path).delete(f"{_predicate(where)} AND start_offset >= {last}")
    records = _predicate({f"kafka_{name}": value for name, value in where.items()})
    for table in (*pipeline.tables, pipeline.rejects_table):
        DeltaTable(_path(pipeline, table)).delete(f"{records} AND kafka_offset >= {last}")


def ledger_row_overlapping(pipeline: Pipeline, rng: random.Random) -> None:
    path, row = _ledger_row(pipeline, rng)
    write_deltalake(path, row, mode="append")


def ledger_row_altered(pipeline: Pipeline, rng: random.Random) -> None:
    path, row = _ledger_row(pipeline, rng)
    DeltaTable(path).update({"rows": "rows + 1"}, predicate=_ledger_predicate(row))


def _ledger_row(pipeline: Pipeline, rng: random.Random) -> tuple[str, pa.Table]:
    path = _path(pipeline, pipeline.ledger_table)
    rows = DeltaTable(path).to_pyarrow_table()
    rows = rows.filter(pc.field("rows") > 0)
    return path, rows.slice(rng.randrange(len(rows)), 1)


def _ledger_predicate(row: pa.Table) -> str:
    names = ("topic", "partition", "start_offset")
    return _predicate({name: row.column(name)[0].as_py() for name in names})


BREAKS: Mapping[str, Break] = {
    "row removed": row_removed,
    "row doubled": row_doubled,
    "row doubled in another table": row_doubled_in_another_table,
    "row moved to another table": row_moved_to_another_table,
    "offset altered": offset_altered,
    "two offsets altered, their sum kept": two_offsets_altered,
    "foreign rows": foreign_rows,
    "file missing": file_missing,
    "older version restored": older_version_restored,
    "ledger and tables set back together": all_set_back,
    "commit replaced": commit_replaced,
    "ledger row removed": ledger_row_removed,
    "last ledger row of a partition removed": last_ledger_row_removed,
    "ledger row overlapping": ledger_row_overlapping,
    "ledger row altered": ledger_row_altered,
}
