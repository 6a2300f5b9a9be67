"""A pipeline file made whole, a schema registry, and what a running pipeline tells."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.request import urlopen

import fastavro
import pytest
from prometheus_client import CollectorRegistry

from penstock.domain.errors import BadInput
from penstock.domain.lake.decoder import AvroDecoder
from penstock.domain.lake.report import BatchReport, LandedFile, LandedRange, LaneReport
from penstock.pipeline.lake import resolve
from penstock.pipeline.lake.decoders import decoding_of
from penstock.pipeline.lake.landing import Landed
from penstock.pipeline.lake.memory import Hindrance, Memory
from penstock.pipeline.lake.metrics import Metrics, serve
from penstock.pipeline.lake.query import with_retries
from penstock.pipeline.lake.status import Watch
from penstock.testbed.machine import free_ports

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"
OLD = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "b", "type": "string", "default": "none"}]}  # type: ignore[misc]


@pytest.fixture
def registry() -> Iterator[str]:
    """One that knows an old schema (number 7) and the latest one of a subject."""
    answers = {"/schemas/ids/7": OLD, "/subjects/r-value/versions/latest": NEW}

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.get(self.path)
            self.send_response(200 if found else 404)
            self.end_headers()
            self.wfile.write(json.dumps({"schema": json.dumps(found)} if found else {}).encode())

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def avro(number: int, schema: object, row: dict[str, object]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


# --- the file ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["raw.yaml", "events.yaml"])
def test_the_examples_can_be_run(name: str) -> None:
    wanted = resolve.load(EXAMPLES / name)
    assert Path(wanted.lake).is_absolute()
    for stream in wanted.streams:
        assert decoding_of(stream.decoder).schema.names


def test_what_stands_in_other_files_is_taken_in(tmp_path: Path) -> None:
    (tmp_path / "r.avsc").write_text(json.dumps(OLD))
    (tmp_path / "client.properties").write_text("sasl.password=quiet\nfetch.min.bytes=7\n")
    file = tmp_path / "p.yaml"
    file.write_text(
        "name: p\nbootstrap_servers: x:1\nlake: lake\nclient_properties: client.properties\n"
        "streams: [{topics: [t], table: t, decoder: {kind: avro, schema_file: r.avsc}}]\n"
    )
    wanted = resolve.load(file)
    assert wanted.lake == str(tmp_path / "lake")
    decoder = wanted.streams[0].decoder
    assert isinstance(decoder, AvroDecoder) and json.loads(decoder.schema or "") == OLD
    config, _ = resolve.client_config(wanted)
    assert config["sasl.password"] == "quiet"
    assert "quiet" not in repr(wanted)


def test_records_of_another_schema_are_read_by_the_registrys(registry: str) -> None:
    schema = resolve.latest_schema(registry, "r-value")
    decoding = decoding_of(AvroDecoder(registry=registry, subject="r-value", schema=schema))
    found = decoding.decode([avro(7, OLD, {"a": 1}), b"\1bad", avro(9, OLD, {"a": 2})])
    assert found.columns.to_pylist() == [{"a": 1, "b": "none"}]
    assert "does not begin with the number of a schema" in found.rejected[1]
    assert "schemas/ids/9" in found.rejected[2]
    (port,) = free_ports(1)
    away = decoding_of(AvroDecoder(registry=f"http://127.0.0.1:{port}", subject="r", schema=schema))
    with pytest.raises(BadInput, match="does not give schemas/ids/7"):  # no record's fault
        away.decode([avro(7, OLD, {"a": 1})])
    with pytest.raises(BadInput, match="does not give subjects/other"):
        resolve.latest_schema(registry, "other")


# --- memory -----------------------------------------------------------------------------------------


def test_what_hinders_the_source_is_told_and_forgotten(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    assert memory.hindrance() is None
    memory.write_hindrance(Hindrance(message="no broker answers"))
    assert memory.hindrance() == Hindrance(message="no broker answers")
    memory.write_hindrance(None)
    memory.write_hindrance(None)
    assert memory.hindrance() is None


@pytest.mark.parametrize(
    ("master", "tried"),
    [
        ("local", "local[1,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,1]", "local[2,1]"),
        ("spark://h:7077", "spark://h:7077"),
    ],
)
def test_a_local_master_tries_again(master: str, tried: str) -> None:
    assert with_retries(master) == tried


# --- what it tells ----------------------------------------------------------------------------------


def landed(at_ms: int, rows: int) -> Landed:
    file = LandedFile(
        table="events", path="x", rows=rows, size_bytes=1, written_ms=at_ms, stats="{}"
    )
    found = LandedRange(
        topic="t",
        partition=0,
        start=10,
        end=10 + rows,
        known_end=100,
        lost_from=7,
        rows={"events": rows},
        offset_sums={"events": "1"},
        size_bytes=rows * 100,
    )
    lane = LaneReport(
        batch=0, lane=0, files=(file,), ranges=(found,), oldest_ms=at_ms - 3000, newest_ms=at_ms
    )
    return Landed(BatchReport(batch=0, lanes=(lane,)), {"events": 1}, 0.01, at_ms, False)


def test_speeds_lag_and_freshness() -> None:
    watch = Watch("p_rejects", started_s=0.0)
    watch.add(landed(100_000, 50), now_s=5.0)
    watch.add(landed(101_000, 20), now_s=10.0)
    now = watch.status(10.0)
    assert (now.rows, now.batches, now.lost, now.lag) == (70, 2, 6, 70)
    assert now.rows_per_s == pytest.approx(7.0)
    assert now.bytes_per_s == pytest.approx(700.0)
    assert now.tables["events"].oldest_s == pytest.approx(3.0)
    later = watch.status(100.0)
    assert later.rows == 70
    assert later.rows_per_s == 0.0


def test_prometheus_is_told_the_same() -> None:
    registry = CollectorRegistry()
    metrics = Metrics("p", registry)
    (port,) = free_ports(1)
    serve(registry, port)
    metrics.add(landed(100_000, 50))
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    assert 'penstock_rows_total{pipeline="p",table="events"} 50.0' in text
    assert 'penstock_lag{partition="0",pipeline="p",topic="t"} 40.0' in text
    assert 'penstock_lost_offsets_total{partition="0",pipeline="p",topic="t"} 3.0' in text
    with pytest.raises(BadInput, match=f"--metrics-port: {port} cannot be used"):
        serve(registry, port)
