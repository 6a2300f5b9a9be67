"""Whether delta-rs, pandas, DuckDB and Spark read every file of a lake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow.dataset
from deltalake import DeltaTable
from pyspark.sql import Observation, functions

from penstock.analysis.session import session

Say = Callable[[str], None]


class Unreadable:
    """Files that some reader refuses."""

    def __init__(self, lake: Path) -> None:
        self._lake = lake
        self.files: set[str] = set()
        self.shown: list[str] = []
        self.count = 0

    def look(self, tables: list[str], say: Say) -> None:
        # Delta's log is read in fifty pieces by default, which takes ten seconds per table.
        config = {"spark.databricks.delta.snapshotPartitions": "1"}
        spark = session("local[2]", app="fuzz", with_lake=True, config=config)
        readers: dict[str, Callable[[str], int]] = {
            "delta-rs": lambda f: pyarrow.dataset.dataset(f).to_table().num_rows,
            "pandas": lambda f: len(pd.read_parquet(f)),
            "duckdb": lambda f: _by_duckdb([f]),
            "spark": lambda f: _read_all(spark.read.parquet(f)),
        }
        # As a whole, which is quick; if that fails, file by file.
        whole: dict[str, Callable[[str, list[str]], int]] = {
            "delta-rs": lambda path, _: len(DeltaTable(path).to_pyarrow_table()),
            "pandas": lambda path, _: len(DeltaTable(path).to_pandas()),
            "duckdb": lambda _, files: _by_duckdb(files),
            "spark": lambda path, _: _read_all(spark.read.format("delta").load(path)),
        }
        for table in tables:
            say(f"reading {table}")
            path = str(self._lake / table)
            files = [str(f) for f in DeltaTable(path).file_uris()]
            self.count += len(files)
            rows = DeltaTable(path).to_pyarrow_dataset().count_rows()
            for name, read in whole.items():
                try:
                    if (found := read(path, files)) != rows:
                        raise ValueError(f"{found} rows instead of {rows}")
                except Exception as error:
                    self.shown.append(f"{name} does not read {table}: {str(error)[:1000]}")
                    self._find(readers[name], files)
        spark.stop()

    def _find(self, read: Callable[[str], int], files: list[str]) -> None:
        before = len(self.files)
        for file in files:
            try:
                read(file)
            except Exception:
                self.files.add(file)
        if len(self.files) == before:  # each alone can be read, and together they cannot
            self.files.update(files[:1])


def _by_duckdb(files: list[str]) -> int:
    if not files:
        return 0
    read = duckdb.sql(f"SELECT * FROM read_parquet({files})")
    assert read is not None, "a SELECT has a result"
    return int(read.to_arrow_table().num_rows)


def _read_all(frame: Any) -> int:
    """Every column of every row, and how many there are."""
    seen = Observation()
    counted = frame.observe(seen, functions.count(functions.lit(1)).alias("rows"))
    counted.write.format("noop").mode("overwrite").save()
    return int(seen.get["rows"])
