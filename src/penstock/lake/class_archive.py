"""Makes a class data archive of Spark's classes, so that later sessions start faster.

Spark loads twenty thousand classes before it counts its first message; with the archive that takes
two thirds of the time. Java ignores an archive that does not match its version or the jars. Set-up
makes it once:

    python -m penstock.lake.class_archive
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from penstock.analysis.analyze import analyze
from penstock.analysis.session import class_archive, session
from penstock.analysis.spark_warm_up import make_up
from penstock.java.find import find_java
from penstock.lake.query import SPARK_CONFIG
from penstock.lake.spark_warm_up import practise
from penstock.specs.files import draft_of

_WRITES_S = 120


def main() -> None:
    archive = class_archive(find_java(os.environ))
    if archive.exists():
        return
    print("preparing Spark's classes for quick starts", flush=True)
    with draft_of(archive) as draft:
        spark = session(archive_classes=draft, config=SPARK_CONFIG)
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        with tempfile.TemporaryDirectory() as directory:
            make_up(Path(directory), is_watched=True, messages=1000)
            analyze(spark, [Path(directory)])
        practise(spark)
        spark.stop()
        # Java writes it when it exits, which it does when its standard input is closed.
        gateway.proc.stdin.close()
        gateway.proc.wait(_WRITES_S)


if __name__ == "__main__":
    main()
