"""The traces of many runs as one DataFrame each, with a column that says which run. Read, not judged.

Before Spark sees a file, its footer is read here: a file that is cut off is refused by its name, and
the number of rows is known, by which the work is cut into pieces and the counts are checked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from penstock.domain.errors import BadInput, PenstockError
from penstock.domain.trace import TRACES
from penstock.load.journal import JOURNAL, PARQUET
from penstock.load.produce_log import FRAMING_BYTES
from penstock.load.trace_schema import schema as arrow_schema

# Those that the analysis opens; Spark reads the first three.
READ = ("sent", "received", "seen", "requests")
_TYPES: dict[str, DataType] = {
    "int16": ShortType(),
    "int32": IntegerType(),
    "int64": LongType(),
    "string": StringType(),
}


def schema(trace: str) -> StructType:
    """The columns of a trace as Spark has them, from the one description."""
    return StructType([StructField(c.name, _TYPES[c.type], c.nullable) for c in TRACES[trace]])


@dataclass(frozen=True)
class TraceFile:
    """One Parquet file of a run, described by its footer."""

    path: Path
    rows: int
    last_intended_ns: int | None = None  # of a file of `sent`
    is_packed: bool = False  # of a file of `received`: some record holds several messages


def files(directory: Path, trace: str) -> list[TraceFile]:
    """The files of one trace of a run, possibly none. BadInput if one is cut off."""
    folder = directory / trace
    left = sorted(folder.glob(f"*{JOURNAL}"))
    if left:
        raise BadInput(
            f"{left[0]}: is still a journal: the run was killed before it was converted to Parquet",
            f"recover what it holds: `penstock analyze {directory}` does, and in Python "
            "penstock.load.journal.recover(directory)",
        )
    return [_footer(path, trace) for path in sorted(folder.glob(f"*{PARQUET}"))]


def read(spark: SparkSession, trace: str, files: Sequence[tuple[int, TraceFile]]) -> DataFrame:
    """All rows of these files, each with the number of its run in the column `run`."""
    nonempty = [(number, file.path.resolve()) for number, file in files if file.rows]
    if not nonempty:
        columns = [*schema(trace).fields, StructField("run", IntegerType(), False)]
        return spark.createDataFrame([], StructType(columns))
    rows = spark.read.schema(schema(trace)).parquet(*(_literal(path) for _, path in nonempty))
    numbers = {number for number, _ in nonempty}
    if len(numbers) == 1:  # to look it up for every row would cost as much as to read it
        return rows.selectExpr("*", f"{numbers.pop()} as run")
    names = _spark_names(rows)
    # From Arrow: from a list of rows, Spark would start a Python process to read it.
    table = spark.createDataFrame(
        pa.table(
            {
                "path": [names[path] for _, path in nonempty],
                "run": pa.array([number for number, _ in nonempty], pa.int32()),
            }
        )
    )
    return (
        rows.withColumn("path", F.col("_metadata.file_path"))
        .join(F.broadcast(table), "path")
        .drop("path")
    )


@dataclass(frozen=True)
class Requests:
    """What the requests of a stretch of time carried, all tries counted."""

    count: int
    messages: int
    size_bytes: int

    @property
    def messages_each(self) -> float:
        return self.messages / self.count


def requests(
    files: Sequence[TraceFile], from_ns: int, to_ns: int, *, topic: str
) -> Requests | None:
    """The sums of a run's requests; None if none was recorded. Too few columns for a job of Spark."""
    count = messages = size_bytes = 0
    for file in files:
        with pq.ParquetFile(file.path) as opened:
            for batch in opened.iter_batches(columns=["at_ns", "messages", "size_bytes"]):
                at_ns, carried, size = (column.to_numpy() for column in batch.columns)
                inside = (at_ns >= from_ns) & (at_ns < to_ns)
                count += int(inside.sum())
                messages += int(carried[inside].sum())
                size_bytes += int(size[inside].sum())
    framing_bytes = count * (FRAMING_BYTES + len(topic))
    return Requests(count, messages, size_bytes + framing_bytes) if count else None


def _footer(path: Path, trace: str) -> TraceFile:
    try:
        with pq.ParquetFile(path) as file:
            metadata, columns = file.metadata, file.schema_arrow
    except (pa.ArrowException, OSError) as error:
        raise BadInput(
            f"{path}: is not a complete Parquet file ({str(error).splitlines()[0]})",
            "it was cut off or damaged after it was written: copy it again from the machine "
            "of the run, or repeat the run",
        ) from None
    expected = arrow_schema(trace)
    if not columns.equals(expected):
        raise BadInput(
            f"{path}: is not a trace of what was {trace}: it has {_listed(columns)}, "
            f"expected are {_listed(expected)}",
            "was it made by another version of Penstock? `versions` in run.json says which",
        )
    if trace == "sent":
        last = _largest(metadata, columns.names.index("intended_ns"))
        return TraceFile(path, metadata.num_rows, last_intended_ns=last)
    if trace == "received":
        last = _largest(metadata, columns.names.index("index"))
        return TraceFile(path, metadata.num_rows, is_packed=bool(last))
    return TraceFile(path, metadata.num_rows)


def _largest(metadata: Any, column: int) -> int | None:
    groups = (metadata.row_group(i).column(column) for i in range(metadata.num_row_groups))
    largest = [g.statistics.max for g in groups if g.statistics and g.statistics.has_min_max]
    return max(largest, default=None)


def _listed(columns: Any) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in columns)


def _literal(path: Path) -> str:
    """On the local disk, whatever Spark's default is; what it would take for a pattern, escaped."""
    return "file://" + re.sub(r"([\\*?\[\]{}])", r"\\\1", str(path))


def _spark_names(rows: DataFrame) -> dict[Path, str]:
    """Path → what `_metadata.file_path` calls it. Spark encodes some characters and not others."""
    names = {}
    for name in rows.inputFiles():
        if not name.startswith("file:/"):
            raise PenstockError(f"Spark does not read {name} from the local disk")
        path = "/" + name.removeprefix("file:").lstrip("/")
        names[Path(unquote(path))] = "file:" + path
    return names
