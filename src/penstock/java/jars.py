"""The pinned jars (Kafka, the lake, a connector to compare with), fetched once and then verified.

`jars.lock`, beside this file, names every jar with its checksum. A bundle is a directory in the
cache that holds exactly the files of its lock: it is complete and right, or it is fetched again.
`ivy.py` does the fetching.

    python -m penstock.java.jars fetch kafka lake     fetch what is missing
    python -m penstock.java.jars lock                 resolve the roots again and rewrite jars.lock
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.domain.errors import BadInput, FetchFailed, PenstockError
from penstock.domain.progress import Progress, silent
from penstock.java import ivy
from penstock.java.find import Java, find_java
from penstock.java.ivy import Coordinates

LOCK_FILE = Path(__file__).with_name("jars.lock")


@dataclass(frozen=True)
class Jar:
    """One pinned file of a bundle."""

    filename: str
    coordinates: Coordinates
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Bundle:
    """Jars that are used together. `roots` are asked for; `jars` is what they resolved to.

    `exclude` names dependencies (organisation:name, as regular expressions) that we do without.
    `beside_pyspark` leaves out whatever PySpark's own jar directory has already.
    """

    name: str
    roots: tuple[Coordinates, ...]
    exclude: tuple[str, ...]
    transitive: bool
    beside_pyspark: bool
    jars: tuple[Jar, ...]

    @property
    def directory(self) -> str:
        """The bundle's name in the cache; it changes with the content, so versions never mix."""
        digest = hashlib.sha256("\n".join(jar.sha256 for jar in self.jars).encode())
        return f"{self.name}-{digest.hexdigest()[:12]}"


Fetch = Callable[[Bundle, Path, Path, Progress], None]
"""Puts a bundle's files into a directory: (bundle, directory, java, progress)."""


def default_cache_dir(environ: Mapping[str, str]) -> Path:
    """The default directory for jars, by the XDG convention."""
    base = environ.get("XDG_CACHE_HOME")
    root = Path(base) if base else Path(environ.get("HOME") or Path.home()) / ".cache"
    return root / "penstock" / "jars"


def bundle(
    name: str,
    cache_dir: Path,
    *,
    java: Java,
    on_progress: Progress | None = None,
    lock_file: Path = LOCK_FILE,
    fetch: Fetch | None = None,
) -> tuple[Path, ...]:
    """The verified jar files of a bundle, fetched when missing or damaged."""
    pinned = _pinned(name, read_lock(lock_file))
    target = cache_dir / pinned.directory
    if find_damage(pinned, target) is None:
        return _paths(pinned, target)
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with _exclusive(cache_dir / f".{name}.lock"):
            # Another process may have fetched it while we waited.
            if find_damage(pinned, target) is not None:
                _refetch(pinned, target, java.path, on_progress or silent, fetch or _fetch_with_ivy)
    except OSError as error:
        raise FetchFailed(
            f"cannot write the {name} jars into {cache_dir}: {error}",
            "free some space, or set XDG_CACHE_HOME to a directory that can be written",
        ) from error
    return _paths(pinned, target)


def agent(kafka_jars: Iterable[Path]) -> Path:
    """The Jolokia agent among the kafka bundle's jars: read a broker's JMX over HTTP with it."""
    return next(path for path in kafka_jars if path.name.startswith("jolokia-agent-jvm-"))


def read_lock(lock_file: Path = LOCK_FILE) -> dict[str, Bundle]:
    """The bundles of a lock file, by name."""
    content: dict[str, dict[str, Any]] = json.loads(lock_file.read_text())
    return {name: _parse_bundle(name, entry) for name, entry in content.items()}


def find_damage(pinned: Bundle, directory: Path) -> str | None:
    """The first difference between a directory and the lock, as a phrase; None when there is none.

    Every file is hashed every time: 45 MB take a tenth of a second, and a jar that changed under
    us would otherwise show up as a broker that fails in a way nobody can explain.
    """
    if not directory.is_dir():
        return "it has not been fetched"
    present = {path.name for path in directory.iterdir()}
    for jar in pinned.jars:
        if jar.filename not in present:
            return f"{jar.filename} is missing"
        path = directory / jar.filename
        size_bytes = path.stat().st_size
        if size_bytes != jar.size_bytes:
            return f"{jar.filename} has {size_bytes} bytes; the lock has {jar.size_bytes}"
        sha256 = _sha256(path)
        if sha256 != jar.sha256:
            return f"{jar.filename} has SHA-256 {sha256} where the lock has {jar.sha256}"
    unlisted = present - {jar.filename for jar in pinned.jars}
    return f"{min(unlisted)} is not in the lock" if unlisted else None


def _parse_bundle(name: str, entry: Mapping[str, Any]) -> Bundle:
    return Bundle(
        name=name,
        roots=tuple(Coordinates.parse(root) for root in entry["roots"]),
        exclude=tuple(entry["exclude"]),
        transitive=entry["transitive"],
        beside_pyspark=entry["beside_pyspark"],
        jars=tuple(
            Jar(filename, Coordinates.parse(jar["from"]), jar["size_bytes"], jar["sha256"])
            for filename, jar in sorted(entry["files"].items())
        ),
    )


def _bundle_as_json(pinned: Bundle) -> dict[str, Any]:
    return {
        "roots": [str(root) for root in pinned.roots],
        "exclude": list(pinned.exclude),
        "transitive": pinned.transitive,
        "beside_pyspark": pinned.beside_pyspark,
        "files": {
            jar.filename: {
                "from": str(jar.coordinates),
                "size_bytes": jar.size_bytes,
                "sha256": jar.sha256,
            }
            for jar in pinned.jars
        },
    }


def _pinned(name: str, bundles: Mapping[str, Bundle]) -> Bundle:
    if name not in bundles:
        raise BadInput(f"there is no bundle of jars '{name}'", f"use one of {', '.join(bundles)}")
    return bundles[name]


def _paths(pinned: Bundle, directory: Path) -> tuple[Path, ...]:
    return tuple(directory / jar.filename for jar in pinned.jars)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """One process at a time. The kernel lets go when a process dies, so no stale lock can remain."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _refetch(pinned: Bundle, target: Path, java: Path, progress: Progress, fetch: Fetch) -> None:
    """Fetch beside the target, check, then rename: a reader sees the old state or the new one."""
    # We hold the bundle's lock, so these were left by a process that was killed.
    for leftover in target.parent.glob(f".{pinned.name}-*.partial"):
        shutil.rmtree(leftover, ignore_errors=True)
    staging = Path(
        tempfile.mkdtemp(prefix=f".{pinned.name}-", suffix=".partial", dir=target.parent)
    )
    try:
        fresh = staging / "fresh"
        fresh.mkdir()
        fetch(pinned, fresh, java, progress)
        damage = find_damage(pinned, fresh)
        if damage is not None:
            raise FetchFailed(
                f"the downloaded {pinned.name} jars do not match jars.lock: {damage}",
                "run it again; if it fails again, the mirror serves other files than Maven Central",
            )
        if target.exists():
            target.rename(staging / "damaged")
        fresh.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _fetch_with_ivy(pinned: Bundle, directory: Path, java: Path, progress: Progress) -> None:
    total = len(pinned.jars)
    ivy.fetch(
        pinned.name,
        [jar.coordinates for jar in pinned.jars],
        directory,
        java,
        lambda seen: progress(f"{pinned.name} jars: {seen} of {total}"),
    )


# --- Maintenance ----------------------------------------------------------------------------------


def rewrite_lock(lock_file: Path, java: Path, progress: Progress) -> None:
    """Resolve every bundle's roots again and write what came. Review the difference."""
    resolved = [_resolve(old, java, progress) for old in read_lock(lock_file).values()]
    content = {pinned.name: _bundle_as_json(pinned) for pinned in resolved}
    lock_file.write_text(json.dumps(content, indent=2) + "\n")


def _resolve(asked: Bundle, java: Path, progress: Progress) -> Bundle:
    """The bundle with its jars resolved again from its roots, and their checksums as they came."""
    progress(f"resolving {asked.name}")
    with tempfile.TemporaryDirectory() as scratch:
        came = ivy.resolve(
            asked.name,
            asked.roots,
            Path(scratch),
            java,
            exclude=asked.exclude,
            transitive=asked.transitive,
        )
        jars = [
            Jar(path.name, coordinates, path.stat().st_size, _sha256(path))
            for path, coordinates in came.items()
        ]
    if asked.beside_pyspark:
        has = {_artifact_name(path.name) for path in ivy.pyspark_jar_dir().glob("*.jar")}
        jars = [jar for jar in jars if jar.coordinates.name not in has]
    return replace(asked, jars=tuple(sorted(jars, key=lambda jar: jar.filename)))


def _artifact_name(filename: str) -> str:
    """`jackson-core` of `jackson-core-2.21.2.jar`: what stands before the version."""
    return re.sub(r"-\d[^/]*\.jar$", "", filename)


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """`python -m penstock.java.jars`: for the set-up script and for version bumps."""
    parser = argparse.ArgumentParser(prog="python -m penstock.java.jars")
    verbs = parser.add_subparsers(dest="verb", required=True)
    fetch_verb = verbs.add_parser("fetch", help="fetch the bundles that are missing or damaged")
    fetch_verb.add_argument("bundles", nargs="+", metavar="BUNDLE")
    fetch_verb.add_argument("--cache", type=Path, default=default_cache_dir(environ))
    verbs.add_parser("lock", help="resolve the roots in jars.lock again and rewrite it")
    options = parser.parse_args(arguments)

    def show(line: str) -> None:
        if sys.stderr.isatty():
            print(f"\r{line}\033[K", end="", file=sys.stderr, flush=True)

    try:
        java = find_java(environ)
        if options.verb == "lock":
            rewrite_lock(LOCK_FILE, java.path, show)
            return 0
        for name in options.bundles:
            paths = bundle(name, options.cache, java=java, on_progress=show)
            size_mb = sum(path.stat().st_size for path in paths) / 1e6
            show("")
            print(f"{name}: {len(paths)} jars, {size_mb:.0f} MB, in {paths[0].parent}")
    except PenstockError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
