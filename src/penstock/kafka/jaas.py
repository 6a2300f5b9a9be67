"""Translates `sasl.jaas.config`, the login of Java clients, to librdkafka's properties.

No message contains a part of the value, since it holds the password.
"""

from __future__ import annotations

import re

_CONFIG = re.compile(
    r"\s*(?P<module>[\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(?P<options>.*?);?\s*",
    re.IGNORECASE | re.DOTALL,
)
_OPTION = re.compile(
    r"""\s*([\w.\-]+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;"']+)""", re.DOTALL
)

# Login module → option → librdkafka's name. Options not named here have no counterpart.
_USER = {"username": "sasl.username", "password": "sasl.password"}
_MODULES = {
    "PlainLoginModule": _USER,
    "ScramLoginModule": _USER,
    "OAuthBearerLoginModule": {
        "clientId": "sasl.oauthbearer.client.id",
        "clientSecret": "sasl.oauthbearer.client.secret",
        "scope": "sasl.oauthbearer.scope",
    },
    "Krb5LoginModule": {"keyTab": "sasl.kerberos.keytab", "principal": "sasl.kerberos.principal"},
}


def jaas_properties(config: str, mechanism: str) -> dict[str, str]:
    """The properties for librdkafka; a ValueError says what to write instead."""
    match = _CONFIG.fullmatch(config)
    options = None if match is None else _options(match["options"])
    if match is None or options is None:
        raise ValueError(
            "sasl.jaas.config: cannot be parsed; expected `MODULE required "
            'username="…" password="…";` or sasl.username and sasl.password instead'
        )
    module = match["module"].rpartition(".")[2]
    names = _MODULES.get(module)
    if names is None:
        raise ValueError(
            f"sasl.jaas.config: {module} exists for Java clients only; use one of "
            f"{', '.join(_MODULES)}"
        )
    if options.get("tokenauth", "").lower() == "true":
        raise ValueError(
            "sasl.jaas.config: delegation tokens (tokenauth) do not work with this client; "
            "use a user and a password"
        )
    if names is _USER and (missing := [name for name in _USER if name not in options]):
        raise ValueError(f"sasl.jaas.config: {' and '.join(missing)} missing")
    if module == "ScramLoginModule" and not mechanism.upper().startswith("SCRAM-"):
        raise ValueError("sasl.mechanism: must be SCRAM-SHA-256 or SCRAM-SHA-512 with this login")
    values = {names[name]: value for name, value in options.items() if name in names}
    if module == "PlainLoginModule" and not mechanism:
        values["sasl.mechanism"] = "PLAIN"
    if "clientId" in options:
        values["sasl.oauthbearer.method"] = "oidc"
    return values


def _options(text: str) -> dict[str, str] | None:
    """name="value" pairs, or None if there is anything else between them."""
    options: dict[str, str] = {}
    position = 0
    while match := _OPTION.match(text, position):
        options[match[1]] = _unquoted(match[2])
        position = match.end()
    return None if text[position:].strip() else options


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL) if text[0] in "\"'" else text
