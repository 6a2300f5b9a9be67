"""How Kafka's programs are called, without calling them."""

from __future__ import annotations

import base64
from pathlib import Path

from penstock.java.find import Java
from penstock.testbed.kafka import broker_command, random_uuid
from penstock.testbed.toolchain import Toolchain


def test_a_uuid_is_never_taken_for_an_option() -> None:
    uuids = {random_uuid() for _ in range(2000)}  # one in 64 would begin with '-'
    assert len(uuids) == 2000
    assert not any(uuid.startswith("-") for uuid in uuids)
    assert all(len(base64.urlsafe_b64decode(f"{uuid}==")) == 16 for uuid in uuids)


def make_toolchain(archive: Path) -> Toolchain:
    return Toolchain(
        Java(Path("java"), 17, "17"), (Path("k.jar"),), Path("a.jar"), Path("r"), archive
    )


def test_the_archive_is_used_if_it_is_there(tmp_path: Path) -> None:
    archive = tmp_path / "kafka.jsa"
    without = broker_command(make_toolchain(archive), tmp_path, 384, True, None)
    archive.touch()
    having = broker_command(make_toolchain(archive), tmp_path, 384, True, None)
    assert not any("SharedArchiveFile" in word for word in without)
    assert f"-XX:SharedArchiveFile={archive}" in having


def test_no_secret_is_on_the_command_line(tmp_path: Path) -> None:
    command = broker_command(make_toolchain(tmp_path / "none"), tmp_path, 384, True, None)
    agent = next(word for word in command if word.startswith("-javaagent"))
    assert agent == f"-javaagent:a.jar=config={tmp_path / 'agent.properties'}"
