"""Finding Java: which one is taken, and what is said when it cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.domain.errors import MissingPart
from penstock.java.find import find_java, parse_version

OPENJDK_17 = 'openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)'


def fake_java(directory: Path, says: str, code: int = 0) -> Path:
    """An executable that answers `-version` on stderr, as the real one does."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "java"
    path.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{says}\nEND\nexit {code}\n")
    path.chmod(0o755)
    return path


def environ(path: Path, **more: str) -> dict[str, str]:
    return {"PATH": f"{path}:/usr/bin:/bin", **more}


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (OPENJDK_17, 17),
        ('java version "1.8.0_392"\nJava(TM) SE Runtime Environment', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ('openjdk version "11.0.2" 2019-01-15', 11),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "17.0.1" 2021-10-19', 17),
        ("", None),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
    ],
)
def test_version_is_read_from_what_java_says(text: str, version: int | None) -> None:
    assert parse_version(text) == version


def test_java_on_path_is_found(tmp_path: Path) -> None:
    path = fake_java(tmp_path, OPENJDK_17)
    java = find_java(environ(tmp_path))
    assert (java.path, java.version) == (path, 17)
    assert java.version_text == OPENJDK_17


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    fake_java(tmp_path / "on-path", OPENJDK_17)
    at_home = fake_java(tmp_path / "home" / "bin", 'openjdk version "21.0.1" 2023-10-17')
    java = find_java(environ(tmp_path / "on-path", JAVA_HOME=str(tmp_path / "home")))
    assert (java.path, java.version) == (at_home, 21)


def test_wrong_java_home_is_named_and_not_passed_over(tmp_path: Path) -> None:
    fake_java(tmp_path, OPENJDK_17)
    with pytest.raises(MissingPart, match="JAVA_HOME is /nowhere"):
        find_java(environ(tmp_path, JAVA_HOME="/nowhere"))


def test_too_old_java_is_refused_with_what_to_install(tmp_path: Path) -> None:
    fake_java(tmp_path, 'openjdk version "11.0.2" 2019-01-15')
    with pytest.raises(MissingPart, match="is Java 11, and Kafka and Spark need 17") as caught:
        find_java(environ(tmp_path))
    assert "apt-get install openjdk-17-jre-headless" in caught.value.fix


def test_no_java_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(MissingPart, match="no Java on PATH") as caught:
        find_java({"PATH": str(tmp_path)})
    assert "apt-get install openjdk-17-jre-headless" in caught.value.fix


def test_java_that_fails_is_quoted(tmp_path: Path) -> None:
    fake_java(tmp_path, "Unable to locate a Java Runtime.", code=1)
    with pytest.raises(MissingPart, match="Unable to locate a Java Runtime"):
        find_java(environ(tmp_path))
