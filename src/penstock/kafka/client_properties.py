"""Translates a `client.properties` of Java clients to librdkafka's configuration.

Names of librdkafka's own pass through as they are. No message of this module contains a value
(but for the path of a key store), since any value may be a secret.

The parsing follows java.util.Properties: it is shorter than the glue to a library would be.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from penstock.domain.client import ClientProperties
from penstock.domain.errors import BadInput
from penstock.kafka.jaas import jaas_properties
from penstock.specs.files import read_text

# Java's name → librdkafka's, where only the name differs.
_RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}

# Means something inside a Java process only; without it, this client does the same or its best.
_JAVA_ONLY = re.compile(
    r"(key|value)\.(de)?serializer|interceptor\.classes|partitioner\..*|metric.*|auto\.include\..*"
    r"|security\.providers|sasl\.(login|client)\..*|sasl\.kerberos\.ticket\..*"
    r"|ssl\.(protocol|provider|enabled\.protocols|cipher\.suites|engine\.factory\.class"
    r"|(key|trust)manager\.algorithm|secure\.random\.implementation)"
    r"|buffer\.memory|max\.block\.ms|default\.api\.timeout\.ms|max\.poll\.records"
    r"|exclude\.internal\.topics"
)
_DNS_LOOKUPS = ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")

_LINE = re.compile(r"((?:[^\\=:\s]|\\.)*)\s*[=:]?\s*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def load(path: Path) -> ClientProperties:
    """Read a file and translate it."""
    # Java takes the file for Latin-1, editors write UTF-8; what is valid UTF-8 is meant as such.
    text = read_text(path, "latin-1")
    with suppress(UnicodeDecodeError):
        text = text.encode("latin-1").decode("utf-8-sig")
    return parse(text, str(path))


def parse(text: str, source: str = "client.properties") -> ClientProperties:
    """Translate the text of a file. Everything that cannot work is listed in one BadInput."""
    properties: dict[str, str] = {}
    warnings: list[str] = []
    for name, value in _entries(text):
        if name in properties:
            warnings.append(f"{name}: is set more than once; the last value is used")
        properties[name] = value
    values, problems = _translate(properties, warnings)
    if problems:
        raise BadInput("\n".join(f"{source}: {problem}" for problem in problems))
    return ClientProperties(values, tuple(warnings))


def _entries(text: str) -> Iterator[tuple[str, str]]:
    for line in _logical_lines(text):
        match = _LINE.fullmatch(line)
        if match is not None:
            yield _unescape(match[1]), _unescape(match[2])


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blank ones, with continued ones joined."""
    pending = ""
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _CONTROL.get(m[2], m[2]), text)


def _translate(properties: dict[str, str], warnings: list[str]) -> tuple[dict[str, str], list[str]]:
    """librdkafka's properties, and what cannot be translated; dropped ones go to `warnings`."""
    values: dict[str, str] = {}
    problems: list[str] = []
    rest = dict(properties)
    for part in (_truststore, _keystore, _jaas):
        try:
            values.update(part(rest))
        except ValueError as error:
            problems.append(str(error))
    for name, value in rest.items():
        if name == "client.dns.lookup" and value not in _DNS_LOOKUPS:
            warnings.append(f"{name}: ignored; this client supports {' and '.join(_DNS_LOOKUPS)}")
        elif _JAVA_ONLY.fullmatch(name):
            warnings.append(f"{name}: ignored; only Java clients use it")
        elif name == "ssl.endpoint.identification.algorithm":
            values[name] = value.strip() or "none"
        else:
            values[_RENAMED.get(name, name)] = value
    return values, problems


def _truststore(rest: dict[str, str]) -> dict[str, str]:
    """The certificates that the brokers' are checked against. Takes its properties from `rest`."""
    path = rest.pop("ssl.truststore.location", "")
    kind = _store_type(rest.pop("ssl.truststore.type", ""), path)
    rest.pop("ssl.truststore.password", "")  # certificates are public; PEM has none
    if not path:
        return {}
    if kind == "PEM":
        return {"ssl.ca.location": path}
    raise ValueError(
        f"ssl.truststore.location: a {kind} store cannot be read here; write its certificates "
        f"with `keytool -list -rfc -keystore {path} > ca.pem`, then set "
        f"ssl.truststore.type=PEM and ssl.truststore.location=ca.pem"
    )


def _keystore(rest: dict[str, str]) -> dict[str, str]:
    """The client's own key and certificate. Takes its properties from `rest`."""
    path = rest.pop("ssl.keystore.location", "")
    kind = _store_type(rest.pop("ssl.keystore.type", ""), path)
    password = rest.pop("ssl.keystore.password", "")
    if not path:
        return {}
    if kind == "PEM":  # Java keeps key and chain in one file; librdkafka reads either from it
        return {"ssl.key.location": path, "ssl.certificate.location": path}
    if kind == "PKCS12":
        rest.pop("ssl.key.password", "")  # one password for all of a PKCS12 file
        return {"ssl.keystore.location": path, "ssl.keystore.password": password}
    raise ValueError(
        f"ssl.keystore.location: a {kind} store cannot be read here; convert with `keytool "
        f"-importkeystore -srckeystore {path} -destkeystore {Path(path).stem}.p12 -deststoretype "
        "PKCS12`, then set ssl.keystore.type=PKCS12 and ssl.keystore.location to the new file"
    )


def _store_type(declared: str, path: str) -> str:
    """The declared type, or by the file's ending, since Java detects PKCS12 and JKS itself."""
    if declared.strip():
        return declared.strip().upper()
    endings = {"p12": "PKCS12", "pfx": "PKCS12", "pem": "PEM", "crt": "PEM", "cer": "PEM"}
    return endings.get(path.rpartition(".")[2].lower(), "JKS")


def _jaas(rest: dict[str, str]) -> dict[str, str]:
    config = rest.pop("sasl.jaas.config", "")
    if not config.strip():
        return {}
    return jaas_properties(config, rest.get("sasl.mechanism", ""))
