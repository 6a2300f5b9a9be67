"""An archive of Spark's classes, parsed and verified once, that every later session maps in.

Spark loads twenty thousand classes before it counts its first message; with the archive that takes
two thirds of the time. Java ignores an archive that does not fit its version or the jars, so it
can only help. Made once, by set-up:

    python -m penstock.pipeline.class_archive
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from penstock.java import find_java
from penstock.pipeline.analysis import analyze
from penstock.pipeline.lake.query import SPARK_CONFIG
from penstock.pipeline.lake.rehearsal import practise
from penstock.pipeline.rehearsal import make_up
from penstock.pipeline.session import class_archive, session

_WRITES_S = 120


def main() -> None:
    archive = class_archive(find_java(os.environ))
    if archive.exists():
        return
    print("preparing Spark's classes for quick starts", flush=True)
    draft = archive.with_suffix(".draft")
    try:
        spark = session(archive_classes=draft, config=SPARK_CONFIG)
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        with tempfile.TemporaryDirectory() as directory:
            make_up(Path(directory), is_watched=True, messages=1000)
            analyze(spark, [Path(directory)])
        practise(spark)
        spark.stop()
        # Java writes it when it ends, which it does when nobody speaks to it any more.
        gateway.proc.stdin.close()
        gateway.proc.wait(_WRITES_S)
        draft.rename(archive)
    finally:
        draft.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
