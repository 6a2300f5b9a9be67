"""The jar cache: what is returned is always what the lock names, whatever happened to the cache."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.domain.errors import BadInput, FetchFailed
from penstock.domain.progress import Progress
from penstock.java import ivy, jars
from penstock.java.find import Java
from penstock.java.jars import Bundle

CONTENT = {"alpha-1.0.jar": b"alpha" * 1000, "beta-2.0.jar": b"beta" * 1000}
NO_JAVA = Java(Path("java-is-not-run-here"), 17, "")


@dataclass
class FakeRegistry:
    """Stands in for Ivy: hands out `content`, and counts how often it was asked."""

    content: dict[str, bytes] = field(default_factory=lambda: dict(CONTENT))
    fetches: int = 0

    def __call__(self, bundle: Bundle, directory: Path, java: Path, progress: Progress) -> None:
        self.fetches += 1
        for filename, data in self.content.items():
            progress(filename)
            (directory / filename).write_bytes(data)


@pytest.fixture
def lock_file(tmp_path: Path) -> Path:
    files = {
        name: {
            "from": f"org.example:{name.split('-')[0]}:1.0",
            "size_bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        for name, data in CONTENT.items()
    }
    entry = {
        "roots": ["org.example:alpha:1.0"],
        "exclude": [],
        "transitive": True,
        "beside_pyspark": False,
        "files": files,
    }
    path = tmp_path / "jars.lock"
    path.write_text(json.dumps({"toy": entry}))
    return path


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def get(lock_file: Path, cache_dir: Path, registry: jars.Fetch) -> tuple[Path, ...]:
    return jars.bundle("toy", cache_dir, java=NO_JAVA, lock_file=lock_file, fetch=registry)


def fake_java(directory: Path, script: str) -> Java:
    path = directory / "java"
    path.write_text(f"#!/bin/sh\n{script}")
    path.chmod(0o755)
    return Java(path, 17, "")


def contents(paths: tuple[Path, ...]) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in paths}


def left_behind(cache_dir: Path) -> list[str]:
    return sorted(path.name for path in cache_dir.iterdir() if path.name != ".toy.lock")


def test_first_use_fetches_and_second_use_does_not(lock_file: Path, cache_dir: Path) -> None:
    registry = FakeRegistry()
    first = get(lock_file, cache_dir, registry)
    assert contents(first) == CONTENT
    assert get(lock_file, cache_dir, registry) == first
    assert registry.fetches == 1
    assert left_behind(cache_dir) == [first[0].parent.name]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[7] ^= 1
    path.write_bytes(data)


def add_a_neighbour(path: Path) -> None:
    path.with_name("unlisted-1.0.jar").write_bytes(b"not ours")


@pytest.mark.parametrize("harm", [truncate, flip_a_byte, add_a_neighbour, Path.unlink])
def test_damaged_cache_is_fetched_again(
    harm: Callable[[Path], None], lock_file: Path, cache_dir: Path
) -> None:
    registry = FakeRegistry()
    paths = get(lock_file, cache_dir, registry)
    harm(paths[0])
    again = get(lock_file, cache_dir, registry)
    assert registry.fetches == 2
    assert contents(again) == CONTENT
    assert {path.name for path in again[0].parent.iterdir()} == set(CONTENT)
    assert left_behind(cache_dir) == [again[0].parent.name]


def test_half_written_fetch_of_a_killed_process_is_cleared(
    lock_file: Path, cache_dir: Path
) -> None:
    half = cache_dir / ".toy-killed.partial" / "fresh"
    half.mkdir(parents=True)
    (half / "alpha-1.0.jar").write_bytes(b"alp")
    paths = get(lock_file, cache_dir, FakeRegistry())
    assert contents(paths) == CONTENT
    assert left_behind(cache_dir) == [paths[0].parent.name]


@pytest.mark.parametrize(
    ("sent", "complaint"),
    [
        ({**CONTENT, "beta-2.0.jar": b"evil" * 1000}, "beta-2.0.jar has SHA-256"),
        ({**CONTENT, "beta-2.0.jar": b"short"}, "beta-2.0.jar has 5 bytes"),
        ({"alpha-1.0.jar": CONTENT["alpha-1.0.jar"]}, "beta-2.0.jar is missing"),
        ({**CONTENT, "gamma-3.0.jar": b"gamma"}, "gamma-3.0.jar is not in the lock"),
    ],
)
def test_what_is_not_pinned_is_refused_and_nothing_stays(
    sent: dict[str, bytes], complaint: str, lock_file: Path, cache_dir: Path
) -> None:
    with pytest.raises(FetchFailed, match=complaint):
        get(lock_file, cache_dir, FakeRegistry(sent))
    assert left_behind(cache_dir) == []


def test_refused_fetch_leaves_the_next_one_free_to_succeed(
    lock_file: Path, cache_dir: Path
) -> None:
    with pytest.raises(FetchFailed):
        get(lock_file, cache_dir, FakeRegistry({}))
    assert contents(get(lock_file, cache_dir, FakeRegistry())) == CONTENT


def test_two_at_once_fetch_once(lock_file: Path, cache_dir: Path) -> None:
    # Each call opens the lock file anew, and flock excludes open files, not processes: threads will do.
    inside = threading.Event()
    proceed = threading.Event()
    registry = FakeRegistry()

    def slow(bundle: Bundle, directory: Path, java: Path, progress: Progress) -> None:
        inside.set()
        assert proceed.wait(10), "the second caller was never started"
        registry(bundle, directory, java, progress)

    results: list[tuple[Path, ...]] = []
    first = threading.Thread(target=lambda: results.append(get(lock_file, cache_dir, slow)))
    first.start()
    assert inside.wait(10), "the first caller never began to fetch"
    second = threading.Thread(target=lambda: results.append(get(lock_file, cache_dir, registry)))
    second.start()
    proceed.set()
    first.join(10)
    second.join(10)
    assert registry.fetches == 1
    assert [contents(paths) for paths in results] == [CONTENT, CONTENT]


def test_unreachable_registry_is_quoted_and_nothing_stays(
    tmp_path: Path, lock_file: Path, cache_dir: Path
) -> None:
    # A java that says what Ivy says without a network. The text is Ivy 2.5.3's own.
    java = fake_java(
        tmp_path,
        "echo ':: resolving dependencies :: penstock#toy;working@vm'\n"
        "echo '\tHost repository.example not found. url=alpha-1.0.jar'\n"
        "echo '\t\tmodule not found: org.example#alpha;1.0'\n"
        "echo '\tHost repository.example not found. url=beta-2.0.jar'\n"
        "echo '\t\t:: org.example#alpha;1.0: not found'\n"
        "exit 1\n",
    )
    with pytest.raises(FetchFailed) as caught:
        jars.bundle("toy", cache_dir, java=java, lock_file=lock_file)
    assert caught.value.message.splitlines()[1:] == ["    Host repository.example not found."]
    assert "https.proxyHost" in caught.value.fix
    assert left_behind(cache_dir) == []


def test_silent_fetcher_is_stopped(
    tmp_path: Path, lock_file: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ivy, "STALL_S", 0.2)
    java = fake_java(tmp_path, "echo downloading alpha\nexec sleep 60\n")
    with pytest.raises(FetchFailed, match=r"no data for .*; stopped"):
        jars.bundle("toy", cache_dir, java=java, lock_file=lock_file)
    assert left_behind(cache_dir) == []


def test_an_unwritable_cache_is_reported(tmp_path: Path, lock_file: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    with pytest.raises(FetchFailed, match="cannot write the toy jars"):
        get(lock_file, in_the_way / "cache", FakeRegistry())


def test_unknown_bundle_names_the_known_ones(lock_file: Path, cache_dir: Path) -> None:
    with pytest.raises(BadInput, match="there is no bundle of jars 'tyo'") as caught:
        jars.bundle("tyo", cache_dir, java=NO_JAVA, lock_file=lock_file)
    assert "toy" in caught.value.fix


def test_progress_is_reported(lock_file: Path, cache_dir: Path) -> None:
    progress: list[str] = []
    jars.bundle(
        "toy",
        cache_dir,
        java=NO_JAVA,
        on_progress=progress.append,
        lock_file=lock_file,
        fetch=FakeRegistry(),
    )
    assert progress == list(CONTENT)


def test_changed_lock_gets_its_own_directory(lock_file: Path, cache_dir: Path) -> None:
    old = get(lock_file, cache_dir, FakeRegistry())
    content = json.loads(lock_file.read_text())
    newer = b"alpha, newer"
    content["toy"]["files"]["alpha-1.0.jar"] |= {
        "size_bytes": len(newer),
        "sha256": hashlib.sha256(newer).hexdigest(),
    }
    lock_file.write_text(json.dumps(content))
    new = get(lock_file, cache_dir, FakeRegistry({**CONTENT, "alpha-1.0.jar": newer}))
    # Brokers that run on the old jars keep them.
    assert contents(old) == CONTENT
    assert contents(new)["alpha-1.0.jar"] == newer


def test_shipped_lock_pins_what_the_product_needs() -> None:
    bundles = jars.read_lock()
    assert set(bundles) == {"kafka", "lake", "jvm-connector"}
    for pinned in bundles.values():
        resolved = {jar.coordinates for jar in pinned.jars}
        assert set(pinned.roots) <= resolved, "run `python -m penstock.java.jars lock`"
        assert all(len(jar.sha256) == 64 for jar in pinned.jars)
    kafka = [Path(jar.filename) for jar in bundles["kafka"].jars]
    assert jars.agent(kafka).name.endswith("-javaagent.jar")


def test_cache_directory_follows_xdg() -> None:
    home = {"HOME": "/home/ada"}
    assert jars.default_cache_dir(home) == Path("/home/ada/.cache/penstock/jars")
    assert jars.default_cache_dir({**home, "XDG_CACHE_HOME": "/big"}) == Path("/big/penstock/jars")
