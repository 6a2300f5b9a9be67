"""An existing cluster: bootstrap servers and a Kafka `client.properties`, secrets kept apart."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.domain.value import FieldError

# What must never be shown: the value of any property whose name says so. A name that ends in `key`
# holds a key itself (ssl.keystore.key); `key.serializer` or `ssl.key.location` do not.
_SECRET = re.compile(
    r"passw|passphrase|secret|jaas|token$|user\.info$|[._]key(\.pem)?$|oauthbearer\.config$",
    re.IGNORECASE,
)


def is_secret(name: str) -> bool:
    """Whether the value of this property must not be shown."""
    return bool(_SECRET.search(name))


def redacted(properties: Mapping[str, object]) -> dict[str, object]:
    """The properties without secrets, for logs and run directories."""
    return {name: "[hidden]" if is_secret(name) else value for name, value in properties.items()}


@dataclass(frozen=True)
class ClientProperties:
    """How to reach a cluster. Its text form hides the secrets, so it may end up in any log."""

    values: Mapping[str, str]
    # What the file said that has no meaning for this client, one sentence each.
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"ClientProperties({redacted(self.values)})"


def check_properties(
    field: str, properties: Mapping[str, object], secret_fix: str, reserved: Mapping[str, str] = {}
) -> None:
    """Refuse secrets, which do not belong into a spec, and names that are reserved: name → why."""
    for name, value in properties.items():
        if is_secret(name):
            raise FieldError(f"{field}.{name}", "[hidden]", secret_fix)
        if name in reserved:
            raise FieldError(f"{field}.{name}", value, f"cannot be set here: {reserved[name]}")


def property_text(value: str | int | float | bool) -> str:
    """The value of a property as Kafka writes it: true, not Python's True."""
    return str(value).lower() if isinstance(value, bool) else str(value)
