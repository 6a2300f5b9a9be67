"""A pipeline file made whole, a schema registry, and what a running pipeline tells."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import fastavro
import pytest
from prometheus_client import CollectorRegistry

from penstock.api import landing
from penstock.domain.errors import BadInput, LaneBlocked
from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.domain.lake.report import BatchReport, LandedFile, LandedRange, LaneReport
from penstock.lake import pipeline_file
from penstock.lake.checkpoint import Blocker, Checkpoint
from penstock.lake.decoded import Limits
from penstock.lake.decoders import decoding_of
from penstock.lake.decoders.avro import AvroDecoder
from penstock.lake.decoders.registry import latest_schema
from penstock.lake.isolated.isolation import DecoderHost
from penstock.lake.landing import Landed
from penstock.lake.metrics import Metrics, serve
from penstock.lake.query import with_retries
from penstock.lake.status import Watch
from penstock.testbed.machine import free_ports

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"
OLD: dict[str, Any] = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "b", "type": "string", "default": "none"}]}


@pytest.fixture
def registry() -> Iterator[str]:
    """One that knows an old schema (number 7) and the latest one of a subject."""
    answers = {"/schemas/ids/7": OLD, "/subjects/r-value/versions/latest": NEW}

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            schema = answers.get(self.path)
            self.send_response(200 if schema else 404)
            self.end_headers()
            answer = {"schema": json.dumps(schema)} if schema else {"error_code": 40403}
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def avro(number: int, schema: dict[str, Any], row: dict[str, object]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


# --- the file ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["raw.yaml", "events.yaml"])
def test_the_examples_can_be_run(name: str) -> None:
    pipeline = pipeline_file.load(EXAMPLES / name)
    assert Path(pipeline.lake).is_absolute()
    for stream in pipeline.streams:
        assert decoding_of(stream.decoder, DecoderHost(Limits())).schema.names


def test_what_stands_in_other_files_is_taken_in(tmp_path: Path) -> None:
    (tmp_path / "r.avsc").write_text(json.dumps(OLD))
    (tmp_path / "client.properties").write_text("sasl.password=quiet\nfetch.min.bytes=7\n")
    file = tmp_path / "p.yaml"
    file.write_text(
        "name: p\nbootstrap_servers: x:1\nlake: lake\nclient_properties: client.properties\n"
        "streams: [{topics: [t], table: t, decoder: {kind: avro, schema_file: r.avsc}}]\n"
    )
    pipeline = pipeline_file.load(file)
    assert pipeline.lake == str(tmp_path / "lake")
    decoder = pipeline.streams[0].decoder
    assert isinstance(decoder, AvroDecoder) and json.loads(decoder.schema or "") == OLD
    config, _ = pipeline_file.client_config(pipeline)
    assert config["sasl.password"] == "quiet"
    assert "quiet" not in repr(pipeline)


def test_a_value_is_made_whole_like_a_file(
    registry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "r.avsc").write_text(json.dumps(OLD))
    monkeypatch.chdir(tmp_path)
    by_file = AvroDecoder(schema_file="r.avsc")
    by_subject = AvroDecoder(registry=registry, subject="r-value")
    value = Pipeline(
        name="p",
        bootstrap_servers="x:1",
        lake="lake",
        client_properties="client.properties",
        streams=(
            Stream(topics=("t",), table="t", decoder=by_file),
            Stream(topics=("u",), table="u", decoder=by_subject),
        ),
    )
    whole = landing.load(value)
    assert whole.lake == str(tmp_path / "lake")
    assert whole.client_properties == str(tmp_path / "client.properties")
    schemas = [getattr(stream.decoder, "schema", None) for stream in whole.streams]
    assert [json.loads(schema or "null") for schema in schemas] == [OLD, NEW]
    # Again, by those who got the loaded value: nothing is read a second time.
    (tmp_path / "r.avsc").unlink()
    assert landing.load(whole) == whole


def test_records_of_another_schema_are_read_by_the_registrys(registry: str) -> None:
    schema = latest_schema(registry, "r-value")
    decoding = decoding_of(
        AvroDecoder(registry=registry, subject="r-value", schema=schema), DecoderHost(Limits())
    )
    decoded = decoding.decode([avro(7, OLD, {"a": 1}), b"\1bad", avro(9, OLD, {"a": 2})])
    assert decoded.columns.to_pylist() == [{"a": 1, "b": "none"}]
    assert "does not begin with the number of a schema" in decoded.rejected[1].detail
    assert "the registry has no schema 9" in decoded.rejected[2].detail
    (port,) = free_ports(1)
    words = AvroDecoder(registry=f"http://127.0.0.1:{port}", subject="r", schema=schema)
    away = decoding_of(words, DecoderHost(Limits()))
    with pytest.raises(LaneBlocked, match="did not return schemas/ids/7"):  # no record's fault
        away.decode([avro(7, OLD, {"a": 1})])
    with pytest.raises(BadInput, match="did not return subjects/other"):
        latest_schema(registry, "other")


# --- checkpoint -------------------------------------------------------------------------------------


def test_obstacles_of_the_source_are_reported_until_they_end(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.blocker() is None
    checkpoint.write_blocker(Blocker(message="no broker answers"))
    assert checkpoint.blocker() == Blocker(message="no broker answers")
    checkpoint.write_blocker(None)
    checkpoint.write_blocker(None)
    assert checkpoint.blocker() is None


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
    landed_range = LandedRange(
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
        batch=0,
        lane=0,
        files=(file,),
        ranges=(landed_range,),
        oldest_ms=at_ms - 3000,
        newest_ms=at_ms,
        rejects={"not-json": 2, "no-table": 1},
    )
    return Landed(BatchReport(batch=0, lanes=(lane,)), 0.01, at_ms, False)


def test_speeds_lag_and_freshness() -> None:
    watch = Watch("p_rejects", started_s=0.0)
    watch.add(landed(100_000, 50), now_s=5.0)
    watch.add(landed(101_000, 20), now_s=10.0)
    now = watch.status(10.0)
    assert (now.rows, now.batches, now.lost, now.lag) == (70, 2, 6, 70)
    assert now.rows_per_s == pytest.approx(7.0)
    assert now.bytes_per_s == pytest.approx(700.0)
    assert now.tables["events"].oldest_s == pytest.approx(3.0)
    assert now.rejects == {"not-json": 4, "no-table": 2}
    later = watch.status(100.0)
    assert later.rows == 70
    assert later.rows_per_s == 0.0


def test_prometheus_has_the_same_figures() -> None:
    registry = CollectorRegistry()
    metrics = Metrics("p", registry)
    (port,) = free_ports(1)
    serve(registry, port)
    metrics.add(landed(100_000, 50))
    metrics.see(Blocker(stalled_partitions=2, skipped_topics=("__consumer_offsets",)))
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    assert 'penstock_rows_total{pipeline="p",table="events"} 50.0' in text
    assert 'penstock_lag{partition="0",pipeline="p",topic="t"} 40.0' in text
    assert 'penstock_rejects_total{kind="not-json",pipeline="p"} 2.0' in text
    assert 'penstock_lost_offsets_total{partition="0",pipeline="p",topic="t"} 3.0' in text
    assert 'penstock_stalled_partitions{pipeline="p"} 2.0' in text
    assert 'penstock_skipped_topics{pipeline="p"} 1.0' in text
    with pytest.raises(BadInput, match=f"metrics port {port} cannot be used"):
        serve(registry, port)


@pytest.mark.parametrize("field", ["lake", "checkpoint"])
def test_an_object_store_is_refused_instead_of_taken_for_a_directory(
    field: str, tmp_path: Path
) -> None:
    places = {"lake": "lake", field: "s3://bucket/place"}
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        "name: shop\nbootstrap_servers: 'somewhere:9092'\nstreams: [{topics: [t], table: t}]\n"
        + "".join(f"{name}: {place!r}\n" for name, place in places.items())
    )
    with pytest.raises(BadInput, match=rf"{field}: .*object stores are not supported yet"):
        pipeline_file.load(file)
