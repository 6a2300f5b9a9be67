"""Contents: exact sizes, the same for a seed, and as compressible as the real thing."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import pyarrow as pa
import pytest

from penstock.domain import plugins
from penstock.domain.arrivals import ConstantArrivals
from penstock.domain.cluster import TopicSpec
from penstock.domain.content import Content
from penstock.domain.errors import BadInput
from penstock.domain.run import RunSpec
from penstock.domain.workload import Payload, Workload
from penstock.load.bodies import bodies
from penstock.runs.preflight import check

CONTENTS = {name: kind() for name, kind in plugins.every("penstock.contents").items()}
each_content = pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)


@each_content
@pytest.mark.parametrize("size_bytes", [0, 1, 92, 1000, 100_000])
def test_bodies_have_exactly_the_size_asked_for(content: Content, size_bytes: int) -> None:
    body = bodies(content, Random(secrets.randbits(64)))
    assert [len(body(size_bytes)) for _ in range(3)] == [size_bytes] * 3


@each_content
def test_a_seed_gives_the_same_text_and_another_seed_another(content: Content) -> None:
    seed = secrets.randbits(64)

    def text(seed: int) -> list[bytes]:
        body = bodies(content, Random(seed))
        return [body(200) for _ in range(20)]

    assert text(seed) == text(seed)
    assert text(seed) != text(seed + 1)
    assert len(set(text(seed))) == 20


def _ratio(name: str, size_bytes: int) -> float:
    """Of a batch of 100 kB, as a client compresses it."""
    body = bodies(CONTENTS[name], Random(secrets.randbits(64)))
    batch = b"".join(body(size_bytes) for _ in range(100_000 // size_bytes))
    return len(batch) / len(pa.compress(batch, codec="zstd", asbytes=True))


@pytest.mark.parametrize("size_bytes", [100, 1000])
def test_random_bytes_do_not_compress_and_the_others_do(size_bytes: int) -> None:
    assert _ratio("random", size_bytes) < 1.01
    # Web logs repeat whole phrases; readings and articles are mostly digits.
    assert 3 < _ratio("telemetry", size_bytes) < 12
    assert 3 < _ratio("sales", size_bytes) < 12
    assert 4 < _ratio("web-log", size_bytes) < 20


def test_records_are_what_they_claim_to_be() -> None:
    rng = Random(secrets.randbits(64))
    reading = json.loads(next(CONTENTS["telemetry"].records(rng)))
    assert {"vin", "ts", "speed_kmh", "lat", "lon"} <= reading.keys()
    line = next(CONTENTS["web-log"].records(rng)).decode()
    assert '"' in line
    assert " HTTP/1.1" in line
    assert line.endswith("\n")
    sale = next(CONTENTS["sales"].records(rng)).decode().rstrip("\n").split(";")
    assert len(sale) == 12
    assert float(sale[9]) == pytest.approx(int(sale[7]) * float(sale[8]), abs=0.01 * int(sale[7]))


@dataclass(frozen=True, kw_only=True)
class Broken(Content):
    """What the code of another package may do."""

    kind = "broken"
    way: str

    def records(self, rng: Random) -> Iterator[bytes]:
        yield b"one"
        if self.way == "text":
            yield "two"  # type: ignore[misc]
        if self.way == "raises":
            raise RuntimeError("no data today")
        while self.way == "empty":
            yield b""


@pytest.mark.parametrize(
    ("way", "problem"),
    [
        ("ends", "its records end"),
        ("text", "a record must be bytes, not str"),
        ("raises", "RuntimeError: no data today"),
        ("empty", "records in a row are empty"),
    ],
)
def test_a_content_that_does_not_work_is_named(way: str, problem: str) -> None:
    body = bodies(Broken(way=way), Random(1))
    assert body(2) == b"on"
    with pytest.raises(BadInput, match=f"content 'broken': .*{problem}"):
        body(100)


def test_it_is_found_before_anything_starts() -> None:
    spec = RunSpec(
        name="broken",
        topic=TopicSpec(name="t"),
        workload=Workload(
            arrivals=ConstantArrivals(rate_per_s=1), payload=Payload(content=Broken(way="ends"))
        ),
    )
    with pytest.raises(BadInput, match="content 'broken': its records end"):
        check(spec)
