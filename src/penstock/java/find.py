"""The Java that Kafka and Spark run on: found, and checked to be new enough. Not installed by us."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.domain.errors import MissingPart

OLDEST_VERSION = 17  # Kafka 4's brokers and Spark 4 both ask for it

INSTALL_FIX = (
    "install a Java runtime of version 17 or newer: `apt-get install openjdk-17-jre-headless` "
    "(Debian, Ubuntu), `dnf install java-17-openjdk-headless` (Fedora, RHEL), "
    "`brew install openjdk@17` (macOS), or point JAVA_HOME at one"
)


@dataclass(frozen=True)
class Java:
    """A Java executable and its version."""

    path: Path
    version: int
    version_text: str

    @property
    def digest(self) -> str:
        """For names of what is made for one version of Java only."""
        return hashlib.sha256(self.version_text.encode()).hexdigest()[:8]


def parse_version(text: str) -> int | None:
    """The feature release in the output of `java -version`; None when there is none.

    Up to Java 8 the number came second ("1.8.0_392" is 8); since 9 it comes first.
    """
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def find_java(environ: Mapping[str, str]) -> Java:
    """The Java of JAVA_HOME, else the first on PATH; MissingPart when it is absent or too old."""
    path = _locate(environ)
    try:
        # -version goes to stderr; a JAVA_TOOL_OPTIONS notice may come before it.
        done = subprocess.run(
            [path, "-version"],
            env=dict(environ),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingPart(f"{path} does not run: {error}", INSTALL_FIX) from error
    version_text = (done.stderr + done.stdout).strip()
    version = parse_version(version_text)
    if done.returncode != 0 or version is None:
        said = version_text.splitlines()[-1] if version_text else "nothing"
        raise MissingPart(
            f"{path} -version did not print a version; it printed: {said}", INSTALL_FIX
        )
    if version < OLDEST_VERSION:
        raise MissingPart(
            f"{path} is Java {version}, and Kafka and Spark need {OLDEST_VERSION} or newer",
            INSTALL_FIX,
        )
    return Java(path=path, version=version, version_text=version_text)


def _locate(environ: Mapping[str, str]) -> Path:
    home = environ.get("JAVA_HOME")
    if home:
        path = Path(home) / "bin" / "java"
        # A wrong JAVA_HOME is an error and not a reason to look elsewhere: Spark obeys it too, and
        # would then run on a different Java than the brokers.
        if not path.is_file():
            raise MissingPart(f"JAVA_HOME is {home}, but there is no {path}", INSTALL_FIX)
        return path
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is None:
        raise MissingPart("there is no Java on PATH and JAVA_HOME is not set", INSTALL_FIX)
    return Path(on_path)
