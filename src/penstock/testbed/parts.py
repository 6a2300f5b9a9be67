"""The parts a testbed is made of: Java, Kafka's jars, the agent; where they are on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock import jars
from penstock.java import Java, find_java
from penstock.testbed import lease


@dataclass(frozen=True)
class Parts:
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


def find_parts(
    environ: Mapping[str, str],
    root: Path | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> Parts:
    """Find Java and the jars; jars that are missing are fetched."""
    java = find_java(environ)
    cache = jars.default_cache_dir(environ)
    found = jars.bundle("kafka", cache, java=java, on_progress=on_progress)
    agent = jars.agent(found)
    return Parts(
        java=java,
        kafka_jars=tuple(jar for jar in found if jar != agent),
        agent_jar=agent,
        root=root or lease.default_root(),
        class_archive=cache / f"{agent.parent.name}-java-{java.digest}.jsa",
    )
