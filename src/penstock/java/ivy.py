"""Apache Ivy, which fetches jars from the public Maven repository, without looking at `jars.lock`.

PySpark carries Ivy, so Java and pip are all that a machine needs; Ivy knows the repository, so no
address is written here.
"""

from __future__ import annotations

import importlib.util
import os
import re
import selectors
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from penstock.domain.errors import BadInput, FetchFailed, MissingPart

STALL_S = 90.0  # longer than Ivy's own read timeout below, so that its better message comes first

RETRY_FIX = (
    "check that this machine reaches the public Maven repository (behind a proxy: "
    "JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT'), then run it again"
)


@dataclass(frozen=True)
class Coordinates:
    """What a jar is called in a Maven repository."""

    organisation: str
    name: str
    revision: str
    classifier: str = ""

    @classmethod
    def parse(cls, text: str) -> Coordinates:
        parts = text.split(":")
        if len(parts) not in (3, 4) or not all(parts):
            raise BadInput(f"'{text}' is not organisation:name:revision[:classifier]")
        return cls(*parts)

    def __str__(self) -> str:
        parts = (self.organisation, self.name, self.revision, self.classifier)
        return ":".join(part for part in parts if part)


# Without POMs Ivy asks for exactly the files in the lock: 10 s instead of 60 s for kafka.
_FETCH_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="public"/>
  <timeout-constraints>
    <timeout-constraint name="patient" connectionTimeout="10000" readTimeout="60000"/>
  </timeout-constraints>
  <resolvers>
    <ibiblio name="public" m2compatible="true" usepoms="false" timeoutConstraint="patient"/>
  </resolvers>
</ivysettings>
"""


def fetch(
    name: str,
    artifacts: Sequence[Coordinates],
    into: Path,
    java: Path,
    on_download: Callable[[int], None],
) -> None:
    """Download exactly these jars, without resolving anything; `on_download` counts from 1."""
    seen = 0

    def count(line: str) -> None:
        nonlocal seen
        if line.startswith("downloading "):
            seen += 1
            on_download(seen)

    with tempfile.TemporaryDirectory(dir=into.parent) as scratch:
        settings = Path(scratch, "settings.xml")
        settings.write_text(_FETCH_SETTINGS)
        _run(
            _module(name, [_exact_dependency(coordinates) for coordinates in artifacts]),
            Path(scratch),
            f"{into}/[artifact]-[revision](-[classifier]).[ext]",
            java,
            on_line=count,
            options=["-settings", str(settings)],
        )


def resolve(
    name: str,
    roots: Sequence[Coordinates],
    into: Path,
    java: Path,
    *,
    exclude: Sequence[str] = (),
    transitive: bool = True,
) -> dict[Path, Coordinates]:
    """Download the roots and, if `transitive`, all they need at run time; what came.

    A root with a classifier comes alone: its POM speaks for the plain jar.
    """
    dependencies = [
        _rooted_dependency(root) if transitive and not root.classifier else _exact_dependency(root)
        for root in roots
    ]
    out = into / "resolved"
    with tempfile.TemporaryDirectory(dir=into) as scratch:
        _run(
            _module(name, dependencies + [_exclude(text) for text in exclude]),
            Path(scratch),
            f"{out}/[organisation]/[module]/[revision]/[artifact]-[revision](-[classifier]).[ext]",
            java,
        )
    return {path: _coordinates_of(path, out) for path in out.rglob("*.jar")}


def pyspark_jar_dir() -> Path:
    """PySpark's jar directory, found without importing PySpark (which takes most of a second)."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise MissingPart(
            "PySpark is not installed, whose Ivy fetches the jars",
            "pip install 'penstock[analysis]', or run scripts/setup in a checkout",
        )
    return Path(spec.origin).parent / "jars"


def _ivy_jar() -> Path:
    jars = sorted(pyspark_jar_dir().glob("ivy-*.jar"))
    if not jars:
        raise MissingPart(f"there is no Ivy in {pyspark_jar_dir()}", "run scripts/setup again")
    return jars[-1]


def _module(name: str, entries: Sequence[str]) -> str:
    body = "\n".join(f"    {entry}" for entry in entries)
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">\n'
        f'  <info organisation="penstock" module={quoteattr(name)}/>\n'
        '  <configurations><conf name="default"/></configurations>\n'
        f"  <dependencies>\n{body}\n  </dependencies>\n"
        "</ivy-module>\n"
    )


def _attributes(**values: str) -> str:
    return " ".join(f"{name}={quoteattr(value)}" for name, value in values.items())


def _dependency(of: Coordinates) -> str:
    named = _attributes(org=of.organisation, name=of.name, rev=of.revision)
    return f"<dependency {named}"


def _rooted_dependency(of: Coordinates) -> str:
    return f'{_dependency(of)} conf="default->runtime,master"/>'


def _exact_dependency(of: Coordinates) -> str:
    classifier = f" m:classifier={quoteattr(of.classifier)}" if of.classifier else ""
    return (
        f'{_dependency(of)} transitive="false" conf="default->default">'
        f'<artifact name={quoteattr(of.name)} type="jar" ext="jar"{classifier}/></dependency>'
    )


def _exclude(text: str) -> str:
    organisation, name = text.split(":")
    return f"<exclude {_attributes(org=organisation, module=name, matcher='regexp')}/>"


def _coordinates_of(path: Path, out: Path) -> Coordinates:
    organisation, name, revision, filename = path.relative_to(out).parts
    classifier = filename.removeprefix(f"{name}-{revision}").removesuffix(".jar").removeprefix("-")
    return Coordinates(organisation, name, revision, classifier)


def _run(
    module: str,
    scratch: Path,
    pattern: str,
    java: Path,
    *,
    on_line: Callable[[str], None] = lambda _: None,
    options: Sequence[str] = (),
) -> None:
    module_file = scratch / "ivy.xml"
    module_file.write_text(module)
    command = [str(java), "-cp", str(_ivy_jar()), "org.apache.ivy.Main", *options]
    command += ["-ivy", str(module_file), "-cache", str(scratch / "cache"), "-confs", "default"]
    command += ["-retrieve", pattern, "-types", "jar", "bundle"]
    code, lines = _run_until_quiet(command, on_line, STALL_S)
    if code is None:
        lines.append(f"no data for {STALL_S:.0f} s; stopped")
    if code != 0:
        raise FetchFailed(
            "the jars could not be fetched:\n"
            + "\n".join(f"    {line}" for line in _useful(lines)),
            RETRY_FIX,
        )


def _run_until_quiet(
    command: Sequence[str], on_line: Callable[[str], None], stall_s: float
) -> tuple[int | None, list[str]]:
    """Run a command; its exit code (None: it said nothing for `stall_s` and was killed) and lines.

    Ivy tries every file before it gives up. A network that swallows packets would keep it, and
    the user, waiting ten seconds for each of fifty jars.
    """
    lines: list[str] = []
    rest = b""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    with process, selectors.DefaultSelector() as selector:
        assert process.stdout is not None
        selector.register(process.stdout, selectors.EVENT_READ)
        try:
            while selector.select(stall_s):
                chunk = os.read(process.stdout.fileno(), 65536)
                *whole, rest = (rest + chunk).split(b"\n") if chunk else (rest, b"")
                for raw in whole:
                    lines.append(raw.decode(errors="replace").strip())
                    on_line(lines[-1])
                if not chunk:
                    return process.wait(), lines
            return None, lines
        finally:
            process.kill()  # no effect on one that has ended; needed for Ctrl-C and for a stall


def _useful(lines: Sequence[str], most: int = 4) -> list[str]:
    """The few lines of Ivy's output that say why: causes if it names any, else what is missing.

    Ivy repeats a cause for every file, differing only in the address.
    """
    missing = re.compile(r"^::|^module not found")
    cause = re.compile(
        r"not found|failed|error|exception|refused|timed? ?out|unable|stopped", re.IGNORECASE
    )
    causes = [
        re.sub(r"( at)? url[= ]\S+", "", line)
        for line in lines
        if cause.search(line) and not missing.search(line)
    ]
    telling = causes or list(filter(missing.search, lines)) or list(filter(None, lines))
    return list(dict.fromkeys(telling))[-most:]
