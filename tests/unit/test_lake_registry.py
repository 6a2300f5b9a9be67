"""Writers' schemas of a registry: what it gives, refuses or does not have, and what asking costs."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.domain.errors import LaneBlocked
from penstock.domain.value import FieldError
from penstock.lake.decoded import Limits
from penstock.lake.decoders import Decoding, decoding_of
from penstock.lake.decoders import registry as registry_module
from penstock.lake.decoders.avro import AvroDecoder, AvroDecoding
from penstock.lake.isolated.isolation import DecoderHost
from penstock.lake.rejection import Rejection, RejectKind
from penstock.testbed.machine import free_ports

OLD: dict[str, Any] = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
# With fields that the reader does not have.
LONGER = {
    **OLD,
    "fields": [
        *OLD["fields"],
        {"name": "n", "type": {"type": "array", "items": "null"}},
        {"name": "t", "type": "string"},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A"]}},
    ],
}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "b", "type": "string", "default": "none"}]}


@dataclass
class Registry:
    """What it answers (a schema, a code of HTTP, or several in turn), how often it was asked, and by
    how many at once."""

    answers: dict[int, Any]
    address: str = ""
    asked: Counter[int] = field(default_factory=Counter)
    takes_s: float = 0.0
    asking: int = 0
    most_asking: int = 0


@pytest.fixture
def registry() -> Iterator[Registry]:
    state = Registry(
        {7: json.dumps(OLD), 8: '"string"', 9: "{", 10: '["null"]', 11: json.dumps(NEW)}
    )

    lock = threading.Lock()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            number = int(self.path.rpartition("/")[2])
            with lock:
                state.asked[number] += 1
                state.asking += 1
                state.most_asking = max(state.most_asking, state.asking)
            time.sleep(state.takes_s)
            text = state.answers.get(number, 404)
            if isinstance(text, list):
                text = text.pop(0)
            with lock:
                state.asking -= 1
            self.send_response(text if isinstance(text, int) else 200)
            self.end_headers()
            answer = {"error_code": 40403} if isinstance(text, int) else {"schema": text}
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None: ...

    class Server(ThreadingHTTPServer):
        request_queue_size = 64

    server = Server(("127.0.0.1", 0), Answer)
    state.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


def registered(address: str) -> Decoding:
    """Its process ends when it is forgotten."""
    decoder = AvroDecoder(registry=address, subject="r", schema=json.dumps(NEW))
    return decoding_of(decoder, DecoderHost(Limits()))


def head(number: int) -> bytes:
    return b"\0" + number.to_bytes(4, "big")


def test_a_schema_that_is_not_a_record_rejects_its_own_records_only(registry: Registry) -> None:
    decoding = registered(registry.address)
    values = [
        head(7) + b"\x02",
        head(8) + b"\x02x",
        head(9) + b"\x02",
        head(10) + b"\x00",
        head(11) + b"\x04\x02x",
        head(12) + b"\x02",
        b"\x01bad",
        b"\0\0",
        b"",
        None,
    ]
    decoded = decoding.decode(values)
    assert decoded.columns.to_pylist() == [
        {"a": 1, "b": "none"},
        {"a": 2, "b": "x"},
        {"a": None, "b": None},
    ]
    kinds = [decoded.rejected[i].kind for i in (1, 2, 3, 5, 6, 7, 8)]
    assert kinds == [RejectKind.UNKNOWN_SCHEMA] * 4 + [RejectKind.NOT_AVRO] * 3
    assert str(decoded.rejected[5]) == "unknown-schema: the registry has no schema 12"
    assert "not an Avro record" in decoded.rejected[1].detail


NO_12 = Rejection(RejectKind.UNKNOWN_SCHEMA, "the registry has no schema 12")


def test_a_registry_is_asked_again_for_what_it_did_not_have_but_less_and_less(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr(registry_module, "time", SimpleNamespace(monotonic=lambda: now_s))
    client = registry_module.Registry(registry.address)
    request_times_s: list[float] = []
    for now_s in range(1000, 1200):
        assert client.schemas([7, 12]) == {7: json.dumps(OLD), 12: NO_12}
        if registry.asked[12] > len(request_times_s):
            request_times_s.append(now_s - 1000)
    assert request_times_s == [0, 10, 30, 70, 130, 190] and registry.asked[7] == 1
    registry.answers[12] = "new"
    now_s = 1250
    assert client.schemas([12]) == {12: "new"}


def test_what_a_registry_does_not_give_is_forgotten_in_the_end(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody can make up numbers."""
    now_s = 1000.0
    monkeypatch.setattr(registry_module, "time", SimpleNamespace(monotonic=lambda: now_s))
    decoding = registered(registry.address)
    for now_s in (1000.0, 2000.0):
        decoding.decode([head(int(now_s) + n) for n in range(20)])
    assert isinstance(decoding, AvroDecoding) and decoding._registry is not None
    assert len(decoding._registry._missing) == 20 and len(decoding._isolated._known) <= 20


def test_many_numbers_are_asked_for_at_once_and_each_once(registry: Registry) -> None:
    registry.takes_s = 0.02
    client = registry_module.Registry(registry.address)
    for _ in range(2):
        schemas = client.schemas(range(1000, 1300))
        assert len(schemas) == 300 and all(isinstance(why, Rejection) for why in schemas.values())
    assert set(registry.asked.values()) == {1}
    assert 8 <= registry.most_asking <= 16


def test_a_number_that_is_refused_rejects_its_own_records_only(registry: Registry) -> None:
    registry.answers |= {5: 403, 6: 403}
    decoding = registered(registry.address)
    good = head(7) + b"\x02"
    for number in (5, 6):  # with one that is answered, and after that alone
        both: list[bytes | None] = [head(number) + b"\x02", good]
        values = both[: 7 - number]
        decoded = decoding.decode(values)
        assert len(decoded.columns) == len(values) - 1
        detail = f"the registry refuses access to schema {number} (HTTP 403)"
        assert decoded.rejected == {0: Rejection(RejectKind.UNKNOWN_SCHEMA, detail)}


def test_a_refused_lane_rejects_no_record(registry: Registry) -> None:
    registry.answers |= {5: 403, 6: 401}
    client = registry_module.Registry(registry.address)
    for numbers in ([5], [6], [5, 6]):
        with pytest.raises(LaneBlocked, match=r"did not return schemas/ids/.*HTTP Error 40[13]"):
            client.schemas(numbers)
    client.schemas([7])
    with pytest.raises(LaneBlocked, match="HTTP Error 401"):
        client.schemas([5, 6])


def test_a_registry_that_was_asked_too_often_is_waited_for(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "_PAUSE_S", 0.01)
    registry.answers[5] = [429, 429, "text"]
    assert registry_module.Registry(registry.address).schemas([5]) == {5: "text"}
    registry.answers[6] = 429
    with pytest.raises(LaneBlocked, match="HTTP Error 429"):
        registry_module.Registry(registry.address).schemas([6])


def test_a_registry_that_is_away_is_not_asked_for_all_that_wait(registry: Registry) -> None:
    registry.answers |= dict.fromkeys(range(1000, 3000), 500)
    registry.takes_s = 0.02
    with pytest.raises(LaneBlocked, match="HTTP Error 500"):
        registry_module.Registry(registry.address).schemas(range(1000, 3000))
    requests = registry.asked.total()
    assert requests < 200 and registry.asking == 0


@pytest.mark.parametrize(
    "address",
    [
        "http://user:hunter2@host:8081",
        "http://user:hun/ter2@host",
        "http://hunter2@host",
        "user:hunter2@host",
        "ftp://user:hunt@er2@host",
    ],
)
def test_a_password_in_the_address_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(FieldError, match=r"host.*Penstock sends no credentials") as caught:
        AvroDecoder(registry=address, subject="r")
    assert "hun" not in str(caught.value) and "er2" not in str(caught.value)
    with pytest.raises(FieldError, match="must begin with http"):
        AvroDecoder(registry="host:8081", subject="r")


def test_a_field_that_the_reader_lacks_is_checked_too(registry: Registry) -> None:
    """Fastavro skips it: over the end of the bytes, or for hours."""
    registry.answers[13] = json.dumps(LONGER)
    decoding = registered(registry.address)
    good = head(13) + b"\x04\x00\x02x\x00"
    values: list[bytes | None] = [
        good,
        head(13) + b"\x04" + b"\x80" * 8 + b"\x20\0\x02x\x00",  # 2⁶⁰ items
        head(13) + b"\x04\x00\x64x",
        head(13) + b"\x04\x00\x02x\x01",
        good,
    ]
    decoded = decoding.decode(values)
    assert [row["a"] for row in decoded.columns.to_pylist()] == [2, 2]
    assert [decoded.rejected[i].kind for i in (1, 2, 3)] == [RejectKind.NOT_AVRO] * 3


@pytest.mark.parametrize("answer", ["away", "500", "200", "404", "410"])
def test_an_unreachable_registry_rejects_no_record(answer: str) -> None:
    (port,) = free_ports(1)

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(int(answer))
            self.end_headers()
            # As a proxy answers; a registry answers in JSON, also for what it does not have.
            self.wfile.write(b"<html>")

        def log_message(self, *_: object) -> None: ...

    decoding = registered(f"http://127.0.0.1:{port}")
    if answer == "away":
        with pytest.raises(LaneBlocked, match="did not return schemas/ids/7"):
            decoding.decode([head(7) + b"\x02"])
        return
    with HTTPServer(("127.0.0.1", port), Answer) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with pytest.raises(LaneBlocked, match="did not return schemas/ids/7"):
            decoding.decode([head(7) + b"\x02"])
        thread.join()
