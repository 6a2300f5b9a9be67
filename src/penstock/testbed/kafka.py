"""How Kafka's own programs are called: the broker, and the tool that formats its storage."""

from __future__ import annotations

import re
import secrets
import shutil
import subprocess
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path

from penstock.domain.errors import TestbedError
from penstock.testbed.agent import CONFIG_FILE
from penstock.testbed.security import write_private
from penstock.testbed.toolchain import Toolchain

LOG_CONFIG_FILE, HOSTS_FILE = "log4j2.properties", "hosts"
# Console only: the process's output is its log file. Log4j's own shutdown hook would silence the
# broker just when an orderly shutdown begins.
LOG_CONFIG = """\
status = error
shutdownHook = disable
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %m (%c{1})%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
logger.clients.name = org.apache.kafka.clients
logger.clients.level = warn
logger.jolokia.name = org.jolokia
logger.jolokia.level = error
"""


def broker_command(
    toolchain: Toolchain, directory: Path, heap_mb: int, observe: bool, hosts_file: Path | None
) -> list[str]:
    """The command line of one node. `directory` holds its `server.properties`."""
    return [
        str(toolchain.java.path),
        f"-Xmx{heap_mb}m",
        f"-Xms{min(heap_mb, 256)}m",
        # Several brokers share this machine: one collector thread each instead of one per core.
        "-XX:+UseSerialGC",
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:-UsePerfData",
        "-Djava.awt.headless=true",
        "-Djava.net.preferIPv4Stack=true",
        # Compression libraries unpack themselves there, and a killed JVM does not tidy up.
        f"-Djava.io.tmpdir={directory}",
        f"-Dlog4j2.configurationFile={directory.parent / LOG_CONFIG_FILE}",
        *(
            [f"-javaagent:{toolchain.agent_jar}=config={directory / CONFIG_FILE}"]
            if observe
            else []
        ),
        # In a namespace nobody answers for names: TLS asks for that of every address it sees, and
        # waits five seconds each time.
        *([f"-Djdk.net.hosts.file={hosts_file}"] if hosts_file else []),
        *_class_archive(toolchain),
        "-cp",
        toolchain.classpath,
        "kafka.Kafka",
        str(directory / "server.properties"),
    ]


def _class_archive(toolchain: Toolchain) -> list[str]:
    if toolchain.archive_classes:
        return [f"-XX:ArchiveClassesAtExit={toolchain.class_archive}"]
    if toolchain.class_archive.exists():
        return [
            f"-XX:SharedArchiveFile={toolchain.class_archive}",
            "-Xlog:cds=off",
            "-Xlog:cds+dynamic=off",
        ]
    return []


def format_storage(
    toolchain: Toolchain,
    nodes: list[tuple[Path, Path]],
    node_ids: list[int],
    scram: str | None,
    environment: Mapping[str, str],
) -> str:
    """Prepare every node's data directory; the cluster's id.

    `nodes` are (properties file, data directory). Kafka's tool takes a second of a core for each
    node and writes the same feature levels everywhere, so it formats the first; the others get
    a copy with their own ids.
    """
    cluster_id = random_uuid()
    properties, first_data = nodes[0]
    command = [
        str(toolchain.java.path),
        "-Xshare:auto",
        "-XX:TieredStopAtLevel=1",
        f"-Dlog4j2.configurationFile={properties.parent.parent / LOG_CONFIG_FILE}",
        f"-Djava.io.tmpdir={properties.parent}",
        "-cp",
        toolchain.classpath,
        "kafka.tools.StorageTool",
        "format",
        "-t",
        cluster_id,
        "-c",
        str(properties),
    ]
    if scram is not None:
        # In a file: an argument is visible to everyone, and even salted it is enough to log in.
        arguments = properties.with_name("scram-user")
        write_private(arguments, f"--add-scram\n{scram}\n".encode())
        command.append(f"@{arguments}")
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    if done.returncode != 0:
        lines = [
            line
            for line in (done.stdout + done.stderr).splitlines()
            if line.strip() and not re.match(r"\s+at ", line)
        ]
        raise TestbedError(
            "Kafka refused these properties:\n  " + "\n  ".join(lines[-6:]),
            "correct the `properties` of the cluster; names and values are Kafka's",
        )
    meta = (first_data / "meta.properties").read_text()
    for (_, data), node_id in list(zip(nodes, node_ids, strict=True))[1:]:
        shutil.copytree(first_data, data, dirs_exist_ok=True)
        own = re.sub(r"(?m)^node\.id=.*$", f"node.id={node_id}", meta)
        own = re.sub(r"(?m)^directory\.id=.*$", f"directory.id={random_uuid()}", own)
        (data / "meta.properties").write_text(own)
    return cluster_id


def random_uuid() -> str:
    """A Kafka uuid: 16 bytes in URL-safe base64. One that begins with '-' would be an option."""
    while True:
        text = urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
        if not text.startswith("-"):
            return text
