"""The agent in every broker that answers reads of its JMX metrics over HTTP (Jolokia).

It listens on the loopback of the broker's own host, so it is reached from inside that and never
crosses the emulated network. It knows one user and allows nothing but reads and a garbage collection:
JMX could run code.
"""

from __future__ import annotations

import base64
import http.client
import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.domain.errors import TestbedError
from penstock.testbed.security import write_private

CONFIG_FILE = "agent.properties"
_USER = "penstock"
_MEMORY = "java.lang:type=Memory"
_POLICY = f"""\
<?xml version="1.0" encoding="utf-8"?>
<restrict>
  <commands><command>read</command></commands>
  <allow><mbean><name>{_MEMORY}</name><operation>gc</operation></mbean></allow>
</restrict>
"""


def write_config(directory: Path, port: int) -> None:
    """What the agent of one node is started with, readable by its user only."""
    policy = directory / "agent-policy.xml"
    policy.write_text(_POLICY)
    text = (
        f"host=127.0.0.1\nport={port}\nuser={_USER}\npassword={secrets.token_urlsafe(24)}\n"
        f"policyLocation={policy.as_uri()}\ndiscoveryEnabled=false\n"
    )
    write_private(directory / CONFIG_FILE, text.encode())


def read(
    directory: Path, mbeans: Sequence[tuple[str, Sequence[str]]], timeout_s: float
) -> dict[str, Mapping[str, Any]] | None:
    """The attributes of MBeans, by their names; None if nobody listens (yet).

    A metric is absent until the first request of its class, and then from the answer too.
    """
    questions = [
        {"type": "read", "mbean": mbean, "attribute": list(attributes)}
        for mbean, attributes in mbeans
    ]
    answers = _ask(directory, questions, timeout_s)
    if answers is None:
        return None
    # Answers come in the order of the questions; they echo the names in another spelling.
    return {
        mbean: answer["value"]
        for (mbean, _), answer in zip(mbeans, answers, strict=True)
        if answer["status"] == 200
    }


def collect_garbage(directory: Path, timeout_s: float) -> None:
    """A full collection; returns when it is done, or at once if nobody listens."""
    collect = {"type": "exec", "mbean": _MEMORY, "operation": "gc"}
    for answer in _ask(directory, [collect], timeout_s) or ():
        if answer["status"] != 200:
            raise TestbedError(
                f"the agent of {directory.name} did not collect garbage: {answer.get('error')}"
            )


def _ask(
    directory: Path, questions: Sequence[Mapping[str, Any]], timeout_s: float
) -> list[Mapping[str, Any]] | None:
    """An answer to each; None if nobody listens."""
    config = dict(line.split("=", 1) for line in (directory / CONFIG_FILE).read_text().splitlines())
    login = base64.b64encode(f"{config['user']}:{config['password']}".encode()).decode()
    connection = http.client.HTTPConnection("127.0.0.1", int(config["port"]), timeout=timeout_s)
    try:
        connection.request(
            "POST",
            "/jolokia/",
            json.dumps(questions),
            {"Content-Type": "application/json", "Authorization": f"Basic {login}"},
        )
        response = connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise TestbedError(f"the agent of {directory.name} answered {response.status}")
        answers = json.loads(body)
        if not isinstance(answers, list):
            raise TestbedError(f"the agent of {directory.name} refused: {answers.get('error')}")
    except ConnectionRefusedError:
        return None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise TestbedError(f"{directory.name} does not answer: {error}") from None
    finally:
        connection.close()
    return answers
