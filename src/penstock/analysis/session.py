"""The one place that makes a Spark session. Local unless another master is given."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.domain.errors import BadInput
from penstock.java import jars
from penstock.java.find import Java, find_java

# Two cores work on one piece each; `analysis` keeps pieces small, so this does not depend on the
# size of a run. Another size: config={"spark.driver.memory": "4g"}.
DRIVER_MEMORY = "2g"

_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
# Spark announces it if its gateway's level is another than that of the rest.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
# A failed task or query raises; the caller reports it once, and shorter.
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
logger.streaming.name = org.apache.spark.sql.execution.streaming
logger.streaming.level = off
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
# One that was given back is not a loss.
appender.console.filter.ours.type = RegexFilter
appender.console.filter.ours.regex = .*Executor killed by driver.*
appender.console.filter.ours.onMatch = DENY
appender.console.filter.ours.onMismatch = NEUTRAL
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""


def session(
    master: str = "local[*]",
    *,
    app: str = "penstock",
    with_lake: bool = False,
    config: Mapping[str, str] = {},
    archive_classes: Path | None = None,
) -> SparkSession:
    """A session on `master`: local[N], spark://HOST:PORT, or any other that Spark knows.

    `with_lake` adds Delta. `config` is Spark's own and goes before ours. What Spark writes aside
    lies in a directory that is removed when this process ends. `archive_classes` is for
    `lake.class_archive`: Java writes what it has loaded there when it ends.
    """
    java = find_java(os.environ)
    # PySpark takes these two from the environment only. Without the first, Python workers may be
    # another Python than this one; without the second, Spark may run on another Java than Kafka.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["JAVA_HOME"] = str(java.path.resolve().parent.parent)
    scratch = Path(tempfile.mkdtemp(prefix="penstock-spark-"))
    settings = {
        **_settings(scratch, _archive_options(java, archive_classes)),
        **(_on_this_machine() if is_on_this_machine(master) else {}),
        **(_lake() if with_lake else {}),
        **config,
    }
    builder = SparkSession.builder.master(master).appName(app)
    for name, value in settings.items():
        builder = builder.config(name, value)
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    try:
        spark = builder.getOrCreate()
    except Exception as error:  # of Java's many kinds
        raise BadInput(
            f"Spark does not start on master {master!r}: {str(error).strip().splitlines()[0]}",
            "local[*] is this machine; others are spark://HOST:PORT, yarn, k8s://…",
        ) from None
    atexit.register(_end, spark)  # before the files are removed: the last registered comes first
    return spark


@contextmanager
def scoped(
    master: str = "local[*]",
    *,
    app: str = "penstock",
    with_lake: bool = False,
    config: Mapping[str, str] = {},
) -> Iterator[SparkSession]:
    """A session that ends with the block. One that this process has already is used, and stays."""
    is_ours = SparkContext._active_spark_context is None
    spark = session(master, app=app, with_lake=with_lake, config=config)
    try:
        yield spark
    finally:
        if is_ours:
            end(spark)


def end(spark: SparkSession) -> None:
    """Stop the session and its Java, so that the next may have other jars and another memory."""
    _end(spark)
    gateway = SparkContext._gateway
    if gateway is not None:
        with suppress(Exception):  # after Ctrl-C it is gone already
            gateway.shutdown()
        process = getattr(gateway, "proc", None)
        if process is not None and process.stdin is not None:
            process.stdin.close()  # which ends it
            process.wait()
    SparkContext._gateway = SparkContext._jvm = None


def class_archive(java: Java) -> Path:
    """Where the classes of this environment's Spark are kept for this Java."""
    return Path(sys.prefix) / f"spark-java-{java.digest}.jsa"


def _archive_options(java: Java, archive_classes: Path | None) -> str:
    if archive_classes is not None:
        return f"-XX:ArchiveClassesAtExit={archive_classes} -Xlog:cds=off -Xlog:cds+dynamic=off"
    archive = class_archive(java)
    if not archive.exists():
        return ""
    return f"-XX:SharedArchiveFile={archive} -Xlog:cds=off -Xlog:cds+dynamic=off"


def _settings(scratch: Path, java_options: str) -> dict[str, str]:
    log4j = scratch / "log4j2.properties"
    log4j.write_text(_LOG4J)
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile={log4j.as_uri()} -Djava.io.tmpdir={scratch} "
            # Spark makes methods of more than 8,000 bytes, which Java would not compile.
            f"-XX:-DontCompileHugeMethods -XX:+UseParallelGC -XX:-UsePerfData {java_options}"
        ),
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # The small table before the real one: full at once with keys that hardly repeat, and as
        # much code again to compile.
        "spark.sql.codegen.aggregate.map.twolevel.enabled": "false",
    }


def _on_this_machine() -> dict[str, str]:
    cores = os.cpu_count() or 1
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # Spark's own 200 are 200 tasks of a millisecond, each of which costs ten.
        "spark.sql.shuffle.partitions": str(2 * cores),
        "spark.default.parallelism": str(cores),
    }


def is_on_this_machine(master: str, driver_host: str = "127.0.0.1") -> bool:
    """Whether its executors are here, too: a Kubernetes API on loopback says nothing about pods.

    A standalone master on loopback may have workers elsewhere, which reach the driver only at an
    address that is not loopback.
    """
    if master.startswith("local"):
        return True
    url = urlsplit(master)
    loopback = ("127.0.0.1", "localhost", "::1")
    return url.scheme == "spark" and url.hostname in loopback and driver_host in loopback


def _lake() -> dict[str, str]:
    java = find_java(os.environ)
    lake_jars = jars.bundle("lake", jars.default_cache_dir(os.environ), java=java)
    return {
        # As files: a process in a network namespace reaches no registry.
        "spark.jars": ",".join(str(jar) for jar in lake_jars),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def _end(spark: SparkSession) -> None:
    with suppress(Exception):  # stopped before, or Java is gone: either way there is none left
        spark.stop()
