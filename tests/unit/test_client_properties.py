"""A Java client's file works with librdkafka, and its secrets never show."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.client import ClientProperties, is_secret, redacted
from penstock.domain.errors import BadInput
from penstock.kafka.client_properties import load, parse

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def problems(text: str) -> str:
    with pytest.raises(BadInput) as caught:
        parse(text, "c.properties")
    assert "hunter2" not in str(caught.value)
    return caught.value.message


# --- the format ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a = b c ", {"a": "b c "}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a", {"a": ""}),
        ("a==b", {"a": "=b"}),
        ("# c\n! d\n\n  # e\na=b", {"a": "b"}),
        ("a=b#c", {"a": "b#c"}),
        ("a=b,\\\n    c", {"a": "b,c"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\n# not a comment", {"a": "b# not a comment"}),
        ("a\\ b\\=c=d", {"a b=c": "d"}),
        ("a=\\u00e9\\t\\x", {"a": "é\tx"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=b\\", {"a": "b"}),
    ],
)
def test_lines(text: str, expected: dict[str, str]) -> None:
    assert parse(text).values == expected


@given(st.text(st.characters(min_codepoint=32, max_codepoint=0xFFFF, codec="utf-8"), min_size=1))
def test_any_value_can_be_escaped(value: str) -> None:
    escaped = "".join(f"\\u{ord(char):04x}" for char in value)
    assert parse(f"some.name={escaped}").values == {"some.name": value}


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes("a=é".encode())
    assert load(path).values == {"a": "é"}
    path.write_bytes("a=é".encode("latin-1"))
    assert load(path).values == {"a": "é"}
    with pytest.raises(BadInput, match="no such file"):
        load(tmp_path / "none")


def test_the_last_one_counts() -> None:
    client = parse("a=1\na=2")
    assert client.values == {"a": "2"}
    assert client.warnings == ("a: is set more than once; the last value is used",)


# --- the translation -----------------------------------------------------------------------------


def test_a_file_of_librdkafka_works_as_it_is() -> None:
    text = """
    bootstrap.servers=a:9092
    security.protocol=SASL_SSL
    sasl.mechanisms=PLAIN
    sasl.username=me
    sasl.password=hunter2
    ssl.ca.location=/ca.pem
    ssl.keystore.location=/me.p12
    ssl.keystore.password=hunter2
    client.dns.lookup=use_all_dns_ips
    ssl.endpoint.identification.algorithm=https
    """
    client = parse(text)
    assert client.values == {
        "bootstrap.servers": "a:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "hunter2",
        "ssl.ca.location": "/ca.pem",
        "ssl.keystore.location": "/me.p12",
        "ssl.keystore.password": "hunter2",
        "client.dns.lookup": "use_all_dns_ips",
        "ssl.endpoint.identification.algorithm": "https",
    }
    assert client.warnings == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f'sasl.jaas.config={PLAIN} required username="me" password="hunter2";',
            {"sasl.username": "me", "sasl.password": "hunter2", "sasl.mechanism": "PLAIN"},
        ),
        (
            f"sasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={SCRAM} required \\\n"
            '  username=\'me\' \\\n  password="a\\\\"; b=c" ;',
            {
                "sasl.username": "me",
                "sasl.password": 'a"; b=c',
                "sasl.mechanism": "SCRAM-SHA-512",
            },
        ),
        (
            "sasl.mechanism=OAUTHBEARER\nsasl.jaas.config=org.apache.kafka.common.security."
            "oauthbearer.OAuthBearerLoginModule required clientId='i' clientSecret='hunter2';",
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "i",
                "sasl.oauthbearer.client.secret": "hunter2",
            },
        ),
        (
            "sasl.mechanism=GSSAPI\nsasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule "
            'required useKeyTab=true keyTab="/k" principal="p@R";',
            {
                "sasl.mechanism": "GSSAPI",
                "sasl.kerberos.keytab": "/k",
                "sasl.kerberos.principal": "p@R",
            },
        ),
        (
            "ssl.truststore.type=PEM\nssl.truststore.location=/ca.pem",
            {"ssl.ca.location": "/ca.pem"},
        ),
        ("ssl.truststore.certificates=-----BEGIN", {"ssl.ca.pem": "-----BEGIN"}),
        (
            "ssl.keystore.type=PEM\nssl.keystore.location=/me.pem\nssl.key.password=hunter2",
            {
                "ssl.key.location": "/me.pem",
                "ssl.certificate.location": "/me.pem",
                "ssl.key.password": "hunter2",
            },
        ),
        (
            "ssl.keystore.type=PKCS12\nssl.keystore.location=/me\nssl.keystore.password=hunter2\n"
            "ssl.key.password=hunter2",
            {"ssl.keystore.location": "/me", "ssl.keystore.password": "hunter2"},
        ),
        (
            "ssl.endpoint.identification.algorithm=",
            {"ssl.endpoint.identification.algorithm": "none"},
        ),
        ("max.request.size=5", {"message.max.bytes": "5"}),
    ],
)
def test_java_names_are_translated(text: str, expected: dict[str, str]) -> None:
    client = parse(text)
    assert client.values == expected
    assert client.warnings == ()
    assert "hunter2" not in repr(client) + str(client)


@pytest.mark.parametrize(
    "line",
    [
        "key.serializer=org.apache.kafka.common.serialization.StringSerializer",
        "value.deserializer=x",
        "interceptor.classes=x",
        "client.dns.lookup=default",
        "sasl.login.callback.handler.class=x",
        "ssl.enabled.protocols=TLSv1.3",
        "max.block.ms=5",
    ],
)
def test_java_only_properties_are_ignored_with_a_warning(line: str) -> None:
    client = parse(line)
    assert client.values == {}
    assert client.warnings[0].startswith(f"{line.partition('=')[0]}: ignored; ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "ssl.keystore.location=/me.jks\nssl.keystore.password=hunter2",
            "c.properties: ssl.keystore.location: a JKS store cannot be read here; convert with "
            "`keytool -importkeystore -srckeystore /me.jks -destkeystore me.p12 -deststoretype "
            "PKCS12`",
        ),
        (
            "ssl.truststore.location=/ca.jks\nssl.truststore.password=hunter2",
            "c.properties: ssl.truststore.location: a JKS store cannot be read here; write its "
            "certificates with `keytool -list -rfc -keystore /ca.jks > ca.pem`",
        ),
        ("sasl.jaas.config=hunter2", "c.properties: sasl.jaas.config: cannot be parsed"),
        (
            f"sasl.jaas.config={PLAIN} required username=me password=hunter2 hunter2;",
            "c.properties: sasl.jaas.config: cannot be parsed",
        ),
        (
            "sasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required;",
            "c.properties: sasl.jaas.config: IAMLoginModule exists for Java clients only",
        ),
        (
            f"sasl.jaas.config={PLAIN} required password='hunter2';",
            "c.properties: sasl.jaas.config: username missing",
        ),
        (
            f"sasl.jaas.config={SCRAM} required username=me password='hunter2';",
            "c.properties: sasl.mechanism: must be SCRAM-SHA-256 or SCRAM-SHA-512",
        ),
        (
            f"sasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config={SCRAM} required username=me "
            "password='hunter2' tokenauth=true;",
            "c.properties: sasl.jaas.config: delegation tokens (tokenauth) do not work",
        ),
    ],
)
def test_unusable_properties_are_refused_with_a_fix(text: str, expected: str) -> None:
    assert problems(text).startswith(expected)


def test_all_problems_are_listed() -> None:
    text = "ssl.keystore.location=/a.jks\nssl.truststore.location=/b.jks\nsasl.jaas.config=x"
    assert len(problems(text).splitlines()) == 3


def test_librdkafka_accepts_the_translation() -> None:
    text = f"""
    bootstrap.servers=127.0.0.1:1
    security.protocol=SASL_SSL
    sasl.mechanism=SCRAM-SHA-512
    sasl.jaas.config={SCRAM} required username="me" password="hunter2";
    ssl.endpoint.identification.algorithm=
    key.serializer=x
    max.request.size=1000000
    receive.buffer.bytes=65536
    """
    Producer(dict(parse(text).values))  # refuses names and values it does not know


# --- secrets -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "ssl.key.password",
        "ssl.keystore.password",
        "ssl.key.pem",
        "ssl.keystore.key",
        "sasl.jaas.config",
        "listener.name.client.scram-sha-512.sasl.jaas.config",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.private.key.pem",
        "schema.registry.basic.auth.user.info",
        "bearer.auth.token",
        "aws.secret.access.key",
        "SASL.PASSWORD",
    ],
)
def test_secrets(name: str) -> None:
    assert is_secret(name)
    client = ClientProperties({name: "hunter2"})
    assert "hunter2" not in f"{client} {client!r} {redacted(client.values)}"
    assert name in repr(client)


@pytest.mark.parametrize(
    "name",
    [
        "bootstrap.servers",
        "sasl.username",
        "sasl.mechanism",
        "key.serializer",
        "ssl.key.location",
        "ssl.certificate.pem",
        "ssl.keystore.location",
        "sasl.oauthbearer.token.endpoint.url",
    ],
)
def test_public_properties_are_shown(name: str) -> None:
    assert not is_secret(name)
    assert redacted({name: "x"}) == {name: "x"}
