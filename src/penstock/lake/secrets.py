"""Passes the secrets of a client.properties to lanes on other machines.

A lane's job is pickled and sent from the driver to the executors, and Spark's traffic is clear text
unless it is configured otherwise. So by default a job with secrets is refused on such a cluster. It
can also be sent without them: then every process reads the file where it runs.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.domain.client import is_secret
from penstock.domain.errors import BadInput
from penstock.kafka import client_properties

# Names that say `secret` and hold none: a path, or the name of a Kubernetes Secret.
_NOT_SECRET = re.compile(r"\.file$|^spark\.kubernetes\.(driver|executor)\.secret(s|KeyRef)\.")


class FileConfig(dict[str, Any]):
    """A client configuration that is pickled as the path of its file, without what is in it."""

    def __init__(self, path: str, more: Mapping[str, Any]) -> None:
        super().__init__({**client_properties.load(Path(path)).values, **more})
        self._path, self._more = path, dict(more)

    def __reduce__(self) -> tuple[Any, ...]:
        return _read_again, (self._path, self._more)


def _read_again(path: str, more: Mapping[str, Any]) -> FileConfig:
    try:
        return FileConfig(path, more)
    except BadInput as error:
        raise BadInput(
            f"{error.message} (on {socket.gethostname()}, where a part of the pipeline runs)",
            "with `lane_secrets: from-file`, client_properties must be at the same path on every "
            "machine that lanes run on",
        ) from None


def check(
    config: Mapping[str, Any],
    spark_config: Mapping[str, str],
    *,
    master: str,
    is_on_this_machine: bool,
    lane_secrets: str,
) -> None:
    """Raise BadInput if lanes would be sent secrets in clear text. Pure."""
    if is_on_this_machine or lane_secrets == "clear-text" or isinstance(config, FileConfig):
        return
    secrets = sorted(name for name in config if is_secret(name))
    if not secrets or is_encrypted(spark_config):
        return
    raise BadInput(
        f"client_properties: {', '.join(secrets)} would be sent in clear text to the executors of "
        f"{master}",
        "put the file at the same path on every machine that lanes run on and set `lane_secrets: "
        "from-file`; or let Spark encrypt its traffic (spark.authenticate=true with "
        "spark.network.crypto.enabled=true, or spark.ssl.rpc.enabled=true); or, on a network that "
        "you trust, set `lane_secrets: clear-text`",
    )


def is_encrypted(spark_config: Mapping[str, str]) -> bool:
    """Whether Spark encrypts the traffic between driver and executors."""

    def is_on(name: str) -> bool:
        return spark_config.get(name, "").strip().lower() == "true"

    # `spark.ssl.enabled` is not enough: for RPC, Spark does not inherit it.
    ciphers = ("spark.network.crypto.enabled", "spark.authenticate.enableSaslEncryption")
    is_own = is_on("spark.authenticate") and any(map(is_on, ciphers))
    return is_on("spark.ssl.rpc.enabled") or is_own


def check_spark_config(spark_config: Mapping[str, str]) -> None:
    """Raise BadInput for a secret among the settings that a user gives for Spark: PySpark puts them
    on Java's command line."""
    for name in spark_config:
        if is_secret(name) and not _NOT_SECRET.search(name):
            raise BadInput(
                f"{name}: would be on Spark's command line, which every user of this machine can "
                "read",
                "put it into spark-defaults.conf, and its directory into the environment variable "
                "SPARK_CONF_DIR",
            )
