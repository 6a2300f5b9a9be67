"""How large the logs of partitions are, from the brokers (DescribeLogDirs).

librdkafka does not ask this, so it is the one thing that another client, kafka-python, is used for.
It is given the same configuration as far as it knows such things; where it does not (Kerberos,
OAuth), or the cluster does not allow the question (it wants DESCRIBE on the cluster), sizes are not
known and the reason is told. Then a record is taken to be as large as the lanes find it.
"""

from __future__ import annotations

import ssl
from collections.abc import Collection, Mapping
from typing import Any

from penstock.domain.lake.partition import Partition

_TIMEOUT_MS = 5000
_PLAIN_SASL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class LogSizes:
    """Asks again and again; `problem` says why it does not know."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.problem: str | None = None
        self._options: dict[str, Any] | None = None
        self._client: Any = None
        try:
            self._options = _options(config)
        except OSError as error:  # such as certificates in a directory, which only librdkafka reads
            self.problem = f"the client that asks for it cannot use the certificates: {error}"
            return
        if self._options is None:
            self.problem = f"the client that asks for it cannot do {config.get('sasl.mechanism')}"

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def of(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Bytes; of replicas that differ the largest. Those that are not known are left out."""
        if self._options is None or not partitions:
            return {}
        # Here, as it takes a third of a second, which those that never ask need not wait.
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
        found: dict[Partition, int] = {}
        for directory in (d for answer in answers for d in answer["log_dirs"]):
            if directory["error_code"]:
                self.problem = for_code(directory["error_code"]).__name__
            for topic in directory["topics"]:
                for log in topic["partitions"]:
                    if not log["is_future_key"]:  # a copy that is on its way to another disk
                        name = Partition(topic["name"], log["partition_index"])
                        found[name] = max(found.get(name, 0), log["partition_size"])
        return found


def _options(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """librdkafka's names → kafka-python's; None if it cannot log in that way."""
    protocol = str(config.get("security.protocol", "PLAINTEXT")).upper()
    options: dict[str, Any] = {
        "bootstrap_servers": str(config["bootstrap.servers"]).split(","),
        "security_protocol": protocol,
        "request_timeout_ms": _TIMEOUT_MS,
        "client_id": "penstock-monitor",
    }
    if protocol.startswith("SASL"):
        mechanism = str(config.get("sasl.mechanism") or config.get("sasl.mechanisms") or "GSSAPI")
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
