"""The toolchain of a testbed: Java, Kafka's jars and the agent, found on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.java import jars
from penstock.java.find import Java, find_java
from penstock.testbed import lease


@dataclass(frozen=True)
class Toolchain:
    """What `Cluster` needs from the machine. `root` is the directory that testbeds live under."""

    java: Java
    kafka_jars: tuple[Path, ...]
    agent_jar: Path
    root: Path
    class_archive: Path
    archive_classes: bool = False  # write the archive at exit instead of reading it

    @property
    def classpath(self) -> str:
        return ":".join(str(jar) for jar in self.kafka_jars)


def find_toolchain(
    environ: Mapping[str, str],
    root: Path | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> Toolchain:
    """Find Java and the jars; jars that are missing are fetched."""
    java = find_java(environ)
    cache = jars.default_cache_dir(environ)
    kafka_jars = jars.bundle("kafka", cache, java=java, on_progress=on_progress)
    agent = jars.agent(kafka_jars)
    return Toolchain(
        java=java,
        kafka_jars=tuple(jar for jar in kafka_jars if jar != agent),
        agent_jar=agent,
        root=root or lease.default_root(),
        class_archive=cache / f"{agent.parent.name}-java-{java.digest}.jsa",
    )
