"""Decoder processes: one record that loops, exits or eats memory costs itself only."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lake_functions
import psutil
import pyarrow as pa
import pytest

from penstock.domain.errors import BadInput, LaneBlocked
from penstock.lake.decoded import Limits
from penstock.lake.decoders import Decoding, decoding_of
from penstock.lake.decoders.avro import AvroDecoder
from penstock.lake.decoders.function import FunctionDecoder
from penstock.lake.isolated import isolation, wire
from penstock.lake.isolated.isolation import DecoderHost
from penstock.lake.isolated.process import Recipe
from penstock.lake.rejection import RejectKind

LIMITS = Limits(record_s=2.0, record_memory_mb=128)


def function(name: str, host: DecoderHost | None = None) -> Decoding:
    """Its process ends when it, and the host, are forgotten."""
    words = FunctionDecoder(function=f"lake_functions:{name}", columns=lake_functions.COLUMNS)
    return decoding_of(words, host or DecoderHost(LIMITS))


@pytest.fixture(scope="module")
def acting() -> Iterator[Decoding]:
    host = DecoderHost(LIMITS)
    yield function("act", host)
    host.close()


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def ids(decoding: Decoding, values: list[bytes | None]) -> list[int | None]:
    """Of a decoding that rejects none."""
    decoded = decoding.decode(values)
    assert not decoded.rejected
    return list(decoded.columns.column("id").to_pylist())


CASES: list[tuple[str, Any]] = [
    ("list", (RejectKind.FUNCTION_FAILED, "returned list instead of a dict")),
    ("text", (RejectKind.FUNCTION_FAILED, "returned str instead of a dict")),
    ("bytes key", (RejectKind.FUNCTION_FAILED, "b'id', which is not text")),
    ("int key", (RejectKind.FUNCTION_FAILED, "key 1, which is not text")),
    ("tuple key", (RejectKind.FUNCTION_FAILED, "which is not text")),
    ("none key", (RejectKind.FUNCTION_FAILED, "which is not text")),
    ("other key", {"id": 1}),
    ("struct list", (RejectKind.WRONG_TYPE, "s: got list instead of a dict")),
    ("struct items", (RejectKind.WRONG_TYPE, "s: got list instead of a dict")),
    ("struct bytes key", (RejectKind.WRONG_TYPE, "b'a', which is not text")),
    ("float", (RejectKind.WRONG_TYPE, "id: ")),
    ("whole float", (RejectKind.WRONG_TYPE, "id: ")),
    ("bool", (RejectKind.WRONG_TYPE, "id: got a boolean")),
    ("large", (RejectKind.WRONG_TYPE, "")),
    ("large float", (RejectKind.WRONG_TYPE, "share: ")),
    ("text for list", (RejectKind.WRONG_TYPE, "l: got str")),
    ("float in list", (RejectKind.WRONG_TYPE, "l: ")),
    ("surrogate", (RejectKind.FUNCTION_FAILED, "ValueError: bad \\ud800 text [31m next line")),
    ("unspeakable", (RejectKind.FUNCTION_FAILED, "Unspeakable")),
    ("long text", (RejectKind.FUNCTION_FAILED, "ValueError: xxx")),
    ("penstock", (RejectKind.FUNCTION_FAILED, "BadInput: this is not the pipeline's fault")),
    ("recursion", (RejectKind.FUNCTION_FAILED, "RecursionError")),
    ("sys.exit", (RejectKind.FUNCTION_FAILED, "SystemExit: 3")),
    ("interrupt", (RejectKind.FUNCTION_FAILED, "KeyboardInterrupt")),
    ("print", {"id": 5}),
    ("input", {"id": 0}),
    ("exit", (RejectKind.DECODER_DIED, "ended the decoder process (exit code 3)")),
    ("crash", (RejectKind.DECODER_DIED, "ended the decoder process (signal SIGSEGV)")),
    ("sleep", (RejectKind.TOO_SLOW, "took longer than 2 s")),
    ("loop", (RejectKind.TOO_SLOW, "took longer than 2 s")),
    ("memory", (RejectKind.TOO_MUCH_MEMORY, "exhausted the memory of 128 MB")),
]


@pytest.mark.parametrize(("name", "expected"), CASES)
def test_a_record_costs_itself_only(acting: Decoding, name: str, expected: Any) -> None:
    decoded = acting.decode([b"1", name.encode(), b"2", None, b"3"])
    rows = [{k: v for k, v in row.items() if v} for row in decoded.columns.to_pylist()]
    first, second, third = ({"id": n, "s": {"a": n}} for n in (1, 2, 3))
    if isinstance(expected, dict):
        assert rows == [first, {k: v for k, v in expected.items() if v}, second, {}, third]
        return
    kind, words = expected
    assert rows == [first, second, {}, third]
    assert set(decoded.rejected) == {1}
    assert decoded.rejected[1].kind is kind
    text = str(decoded.rejected[1])
    assert words in text and len(text) <= 500 and text.isprintable()


def test_several_of_them_in_parts_of_any_size(
    acting: Decoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "_MOST_RECORDS", 3)
    bad = {1: b"exit", 2: b"list", 5: b"crash", 6: b"exit", 11: b"struct list"}
    values: list[bytes | None] = [bad.get(i, str(i).encode()) for i in range(12)]
    decoded = acting.decode(values)
    assert decoded.columns.column("id").to_pylist() == [i for i in range(12) if i not in bad]
    assert set(decoded.rejected) == set(bad)


def test_a_schema_that_ends_the_process_rejects_its_own_records() -> None:
    recipe = Recipe("lake_functions:FragileRows", {}, pa.schema([("id", pa.int64())]))
    isolated = DecoderHost(LIMITS).add(recipe)
    values: list[bytes | None] = [b"1", b"2", b"3", b"2", b"1"]
    for _ in range(2):  # the second time it is known
        decoded = isolated.decode(values, {1: "a", 2: "die", 3: "abc"})
        assert decoded.columns.column("id").to_pylist() == [1, 3, 1]
        assert {str(why) for why in decoded.rejected.values()} == {
            "unknown-schema: schema 2 cannot be parsed: it ended the decoder process (exit code 5)"
        }
        assert set(decoded.rejected) == {1, 3}


def test_a_process_that_somebody_kills_rejects_no_record(tmp_path: Path) -> None:
    decoding = function("slow_once")
    trap = tmp_path / "trap"
    trap.touch()
    values: list[bytes | None] = [b"a", str(trap).encode(), b"c"]
    assert ids(decoding, values) == [1, 1, 1]
    assert not trap.exists()


def test_a_process_that_is_stopped_for_a_while_rejects_no_record() -> None:
    """As with a machine that has too much to do; the process is ready, and gets no processor."""
    decoding = function("stop_itself", DecoderHost(Limits(record_s=0.3, record_memory_mb=128)))
    assert ids(decoding, [b"a", b"stop", b"c"]) == [1, 1, 1]


def test_a_process_that_died_between_two_batches_is_replaced() -> None:
    decoding = function("pid")
    [first] = ids(decoding, [b"x"])
    assert first is not None
    os.kill(first, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(first)], timeout=10)
    [second, third] = ids(decoding, [b"x", b"y"])
    assert second == third != first


def test_one_that_grows_is_replaced_before_its_memory_ends() -> None:
    decoding = function("hoard")
    for _ in range(5):
        assert len(ids(decoding, [b"x"] * 50)) == 50


def test_a_record_that_fits_alone_lands_whatever_others_took() -> None:
    columns = {"id": "long", "bin": "binary"}
    words = FunctionDecoder(function="lake_functions:take_mb", columns=columns)
    decoding = decoding_of(words, DecoderHost(LIMITS))
    assert ids(decoding, [b"100"]) == [100]
    assert ids(decoding, [*[b"5 row"] * 9, b"100", b"1"]) == [*[5] * 9, 100, 1]
    assert ids(decoding, [b"50 kept", b"100 hidden"]) == [50, 100]
    assert ids(decoding, [b"30 row"] * 3) == [30] * 3  # fit alone, and not together
    decoded = decoding.decode([b"1", b"200", b"2"])
    assert decoded.columns.column("id").to_pylist() == [1, 2]
    assert str(decoded.rejected[1]) == "too-much-memory: exhausted the memory of 128 MB"


def test_a_function_that_returns_in_a_fork_too_changes_no_answer() -> None:
    before = children()
    host = DecoderHost(LIMITS)
    decoding = function("fork", host)
    assert ids(decoding, [b"fork", b"ab"]) == [4, 2]
    forked = [psutil.Process(pid) for pid in children() - before]
    psutil.wait_procs(forked, timeout=1.0)  # so that the new process returns, too
    for length in range(3):
        assert ids(decoding, [b"x" * length, b"y"]) == [length, 1]
    host.close()


def test_an_answer_to_another_request_is_not_used() -> None:
    words = FunctionDecoder(function="lake_functions:answer_itself", columns={"id": "long"})
    decoding = decoding_of(words, DecoderHost(LIMITS))
    assert ids(decoding, [b"a"]) == [1]
    decoded = decoding.decode([b"b", b"answer", b"c"])
    assert decoded.columns.column("id").to_pylist() == [1, 1]
    assert decoded.rejected[1].kind is RejectKind.DECODER_DIED
    assert "it has the number 1 instead of" in decoded.rejected[1].detail


def test_a_message_has_a_number() -> None:
    with pytest.raises(ValueError, match="number 3 instead of 4"):
        wire.unpacked(bytearray(b"".join(wire.packed(3, {}, pa.table({})))), 4)


def test_it_is_the_same_process_from_batch_to_batch_and_ends_with_its_owner() -> None:
    before = children()
    host = DecoderHost(LIMITS)
    decoding = function("pid", host)
    [first], [second] = ids(decoding, [b"x"]), ids(decoding, [b"y"])
    assert first == second and children() - before == {first}
    host.close()
    assert children() == before
    decoding.start()
    assert children() != before
    del decoding, host
    gc.collect()
    assert children() == before


def test_streams_share_it() -> None:
    before = children()
    host = DecoderHost(LIMITS)
    first, second = function("pid", host), function("slow_once", host)
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
    third = decoding_of(AvroDecoder(schema=json.dumps(schema)), host)
    [pid] = ids(first, [b"x"])
    assert ids(second, [b"x"]) == [1] and ids(third, [b"\x0e"]) == [7]
    assert children() - before == {pid}
    assert ids(first, [b"x"]) == [pid]
    host.close()


SCRIPT = """
import os, sys
from penstock.lake.decoders.avro import AvroDecoder
from penstock.lake.decoders.function import FunctionDecoder
from penstock.lake.decoders import decoding_of
from penstock.lake.decoded import Limits
from penstock.lake.isolated.isolation import DecoderHost
decoder = FunctionDecoder(function="lake_functions:pid", columns={"id": "long"})
decoding = decoding_of(decoder, DecoderHost(Limits()))
print(decoding.decode([b"x"]).columns.column("id")[0].as_py(), flush=True)
sys.stdin.read(1)
END
"""


@pytest.mark.parametrize("end", ["pass", "os._exit(1)", "os.kill(os.getpid(), 9)"])
def test_it_ends_with_the_process_that_has_it(end: str) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.replace("END", end)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert owner.stdout is not None
    decoder = psutil.Process(int(owner.stdout.readline()))
    owner.communicate(b"x")
    assert psutil.wait_procs([decoder], timeout=10)[1] == []


def test_signals_to_everybody_do_not_end_it() -> None:
    """As systemd sends them, while the lane finishes its micro-batch."""
    decoding = function("pid")
    [first] = ids(decoding, [b"x"])
    assert first is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(first, number)
    assert ids(decoding, [b"x"]) == [first]


def test_an_unusable_function_is_reported_before_decoding() -> None:
    host = DecoderHost(LIMITS)
    good = function("pid", host)
    bad = decoding_of(FunctionDecoder(function="no.such:thing", columns={"a": "long"}), host)
    for one in (good, bad):  # they share a process, and the one that fails is named
        with pytest.raises(BadInput, match=r"no\.such:thing cannot be used: ModuleNotFoundError"):
            one.start()
    with pytest.raises(BadInput, match="COLUMNS is not a function"):
        function("COLUMNS").start()


def test_a_process_that_does_not_start_rejects_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    decoding = function("pid")
    monkeypatch.setattr(sys, "executable", "/bin/false")
    for use in (decoding.start, lambda: decoding.decode([b"x"])):
        with pytest.raises(LaneBlocked, match=r"did not start: .*exit code 1"):
            use()
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(LaneBlocked, match="cannot be started"):
        decoding.decode([b"x"])


def test_what_a_record_becomes_does_not_depend_on_its_neighbours(acting: Decoding) -> None:
    """All that do not end the process, in one batch: Arrow would take the first struct's keys for
    those of all."""
    deadly = {"exit", "crash", "sleep", "loop", "memory"}
    values: list[bytes | None] = [name.encode() for name, _ in CASES if name not in deadly]
    together = acting.decode([*values, b"4"])
    assert together.columns.to_pylist()[-1]["s"] == {"a": 4}
    rows = iter(together.columns.to_pylist())
    for place, value in enumerate(values):
        alone = acting.decode([value])
        if place in together.rejected:
            assert json.dumps(str(alone.rejected[0])) == json.dumps(str(together.rejected[place]))
        else:
            assert alone.columns.to_pylist() == [next(rows)]
