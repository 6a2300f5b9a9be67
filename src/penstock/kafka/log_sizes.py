"""Sizes of the logs of partitions, from the brokers (DescribeLogDirs).

librdkafka does not have this request, so another client, kafka-python, is used; see also
`kafka.quotas`. It gets the same configuration as far as it supports it. Where it does not
(Kerberos, OAuth), or the cluster refuses (it requires DESCRIBE on the cluster), sizes are not known
and `problem` says why. Then the size of decoded records is used instead.
"""

from __future__ import annotations

import ssl
from collections.abc import Collection, Mapping
from typing import Any

from penstock.domain.lake.partition import Partition

_TIMEOUT_MS = 5000
_PLAIN_SASL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class LogSizes:
    """Asks the brokers on every call; `problem` says why sizes are not known."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.problem: str | None = None
        self._options: dict[str, Any] | None = None
        self._client: Any = None
        try:
            self._options = kafka_python_options(config)
        except OSError as error:  # such as certificates in a directory, which only librdkafka reads
            self.problem = f"kafka-python cannot use the certificates: {error}"
            return
        if self._options is None:
            self.problem = f"kafka-python does not support {mechanism_of(config)}"

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def of(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Bytes of the largest replica; partitions whose size is not known are left out."""
        if self._options is None or not partitions:
            return {}
        # Imported here since it takes a third of a second, which other callers need not wait for.
        from kafka import KafkaAdminClient
        from kafka.errors import KafkaError, for_code

        try:
            if self._client is None:
                self._client = KafkaAdminClient(**self._options)
            topics: dict[str, list[int]] = {}
            for topic, number in partitions:
                topics.setdefault(topic, []).append(number)
            answers = self._client.describe_log_dirs(topics)
        except KafkaError as error:
            self.close()
            self.problem = str(error)
            return {}
        self.problem = None
        sizes: dict[Partition, int] = {}
        for directory in (d for answer in answers for d in answer["log_dirs"]):
            if directory["error_code"]:
                self.problem = for_code(directory["error_code"]).__name__
            for topic in directory["topics"]:
                for log in topic["partitions"]:
                    if not log["is_future_key"]:  # a replica that is being moved to another disk
                        name = Partition(topic["name"], log["partition_index"])
                        sizes[name] = max(sizes.get(name, 0), log["partition_size"])
        return sizes


def mechanism_of(config: Mapping[str, Any]) -> str:
    """The SASL mechanism, by either of librdkafka's names or its default."""
    return str(config.get("sasl.mechanism") or config.get("sasl.mechanisms") or "GSSAPI")


def kafka_python_options(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """librdkafka's names → kafka-python's; None if it cannot log in that way."""
    protocol = str(config.get("security.protocol", "PLAINTEXT")).upper()
    options: dict[str, Any] = {
        "bootstrap_servers": str(config["bootstrap.servers"]).split(","),
        "security_protocol": protocol,
        "request_timeout_ms": _TIMEOUT_MS,
        "client_id": "penstock-monitor",
    }
    if protocol.startswith("SASL"):
        mechanism = mechanism_of(config)
        if mechanism not in _PLAIN_SASL:
            return None
        options |= {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": config.get("sasl.username"),
            "sasl_plain_password": config.get("sasl.password"),
        }
    if protocol.endswith("SSL"):
        options["ssl_context"] = _ssl_context(config)
    return options


def _ssl_context(config: Mapping[str, Any]) -> ssl.SSLContext:
    context = ssl.create_default_context(
        cafile=config.get("ssl.ca.location"), cadata=config.get("ssl.ca.pem")
    )
    if str(config.get("ssl.endpoint.identification.algorithm", "https")).lower() != "https":
        context.check_hostname = False
    if str(config.get("enable.ssl.certificate.verification", True)).lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if (certificate := config.get("ssl.certificate.location")) is not None:
        key, password = config.get("ssl.key.location"), config.get("ssl.key.password")
        context.load_cert_chain(certificate, key, password)
    return context
