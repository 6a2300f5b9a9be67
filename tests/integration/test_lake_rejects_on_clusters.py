"""Records that no decoder can take, on a real cluster and a real Spark: landed as rejects, counted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lakes
import psutil
import pytest
from deltalake import DeltaTable

from penstock import specs
from penstock.domain.cluster import TopicSpec
from penstock.domain.lake.pipeline import Stream, TableBy
from penstock.kafka.waiting import wait_until
from penstock.lake.audit import audit
from penstock.lake.decoders.function import FunctionDecoder
from penstock.lake.decoders.json import JsonDecoder
from penstock.testbed.cluster import Cluster

pytestmark = pytest.mark.integration
PARTITIONS = 3
COLUMNS = {"n": "long", "kind": "string"}


@pytest.fixture
def topic(lake_cluster: Cluster, unique: Callable[[str], str]) -> str:
    name = unique("rejects")
    lake_cluster.create_topic(TopicSpec(name=name, partitions=PARTITIONS, replication=1))
    return name


class _NotUtf8(str):
    """The name of a header as a careless producer writes it; no client of ours would."""

    def encode(self, *_: object) -> bytes:
        return b"\xff\xfe"


def send_bad_header(cluster: Cluster, topic: str) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    sent = producer.send(topic, b'{"n": 1, "kind": "a"}', headers=[(_NotUtf8("h"), b"v")])
    sent.get(timeout=30)
    producer.close()


def rejects(lake: Path) -> Counter[str]:
    rows = DeltaTable(f"{lake}/test_rejects").to_pandas()
    return Counter(reason.partition(":")[0] for reason in rows["reason"])


def test_no_record_stops_or_spoils_a_pipeline(
    spark: Any, lake_cluster: Cluster, tmp_path: Path, topic: str
) -> None:
    nested = b"[" * 2000 + b"]" * 2000
    good = [b'{"n": %d, "kind": "a"}' % n for n in range(300)]
    bad = [
        b'{"n": 1, "kind": "\xff\xfe"}',
        b'{"n": 1, "kind": "\\ud800"}',
        b'{"n":\n1, "kind": ' + nested + b"}",
        b'{"n": 1, "n": 2}',
        b'{"n": 9223372036854775808}',
        b'{"n": 1, "kind": "b"}',
        b"null",
    ]
    deep = b'{"n":\n301, "kind": "a", "x": ' + nested + b"}"
    lakes.send(lake_cluster, topic, [*good[:150], *bad, deep, *good[150:], None])
    send_bad_header(lake_cluster, topic)
    stream = Stream(
        topics=(topic,),
        decoder=JsonDecoder(columns=COLUMNS),
        table_by=TableBy(column="kind", tables={"a": "as"}),
    )
    pipeline = lakes.pipeline(lake_cluster, tmp_path, topic, streams=(stream,))
    landed = lakes.land(spark, pipeline)
    expected = {
        "not-utf8": 1,
        "not-json": 2,
        "wrong-type": 2,
        "duplicate-key": 1,
        "no-table": 2,
        "bad-header": 1,
    }
    assert rejects(tmp_path) == expected
    reported: Counter[str] = Counter()
    for lane in (lane for one in landed for lane in one.report.lanes):
        reported.update(lane.rejects)
    assert reported == expected
    rows = spark.read.format("delta").load(f"{tmp_path}/as")
    assert sorted(row.n for row in rows.select("n").collect()) == [*range(300), 301]
    assert len(DeltaTable(f"{tmp_path}/as").to_pandas()) == 301
    assert lakes.in_tables(pipeline) == lakes.in_topic(lake_cluster, topic, PARTITIONS)
    assert audit(spark, pipeline).problems == ()


def test_a_function_that_loops_exits_or_eats_memory_costs_its_record_only(
    spark: Any, lake_cluster: Cluster, tmp_path: Path, topic: str
) -> None:
    good = [b"{'n': %d}" % n for n in range(200)]
    bad = {
        b"__import__('os')._exit(3)": "decoder-died",
        b"__import__('time').sleep(3600)": "too-slow",
        b"[bytearray(1 << 24) for _ in range(1 << 20)]": "too-much-memory",
        b"[1]": "function-failed",
        b"{'n': [1]}": "wrong-type",
    }
    lakes.send(lake_cluster, topic, [*good[:100], *bad, *good[100:], b"None"])
    stream = Stream(
        topics=(topic,),
        decoder=FunctionDecoder(function="builtins:eval", columns=COLUMNS),
        table="events",
    )
    pipeline = lakes.pipeline(
        lake_cluster,
        tmp_path,
        topic,
        streams=(stream,),
        record_seconds=1.0,
        record_memory_mb=128,
    )
    lakes.land(spark, pipeline, timeout_s=120)
    assert rejects(tmp_path) == Counter(bad.values())
    table = DeltaTable(f"{tmp_path}/events").to_pyarrow_table()
    assert sorted(table.column("n").to_pylist()) == [*range(200)]
    result = audit(spark, pipeline)
    assert (result.problems, result.topics[0].ignored) == ((), 1)


def test_above_the_second_share_the_command_stops_with_the_kinds(
    spark: Any, lake_cluster: Cluster, tmp_path: Path, topic: str
) -> None:
    lakes.send(lake_cluster, topic, [b'{"n": 1}'] * 60 + [b"no JSON"] * 40)
    stream = Stream(topics=(topic,), decoder=JsonDecoder(columns=COLUMNS), table="events")
    pipeline = lakes.pipeline(
        lake_cluster, tmp_path / "lake", topic, streams=(stream,), rejects_stop_share=0.3
    )
    file = tmp_path / "pipeline.yaml"
    file.write_text(specs.dump_yaml(pipeline))
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", "pipeline", "run", str(file), "--json"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 6, done.stderr
    report = json.loads(done.stdout)
    assert report["rejects"] == {"not-json": 40} and "rejects_stop_share" in report["stopped_by"]
    assert "40 not-json" in done.stderr and "test_rejects" in done.stderr
    assert lakes.in_tables(pipeline).total() == 100, "what was landed stays landed"
    assert audit(spark, pipeline).problems == ()


def test_no_decoder_process_is_left(
    spark: Any, lake_cluster: Cluster, tmp_path: Path, topic: str
) -> None:
    """Of a command; the tests' own Spark keeps its workers, and they keep theirs."""
    lakes.send(lake_cluster, topic, [b"{'n': 1}"] * 10)
    stream = Stream(
        topics=(topic,),
        decoder=FunctionDecoder(function="builtins:eval", columns=COLUMNS),
        table="events",
    )
    pipeline = lakes.pipeline(lake_cluster, tmp_path / "lake", topic, streams=(stream,))
    file = tmp_path / "pipeline.yaml"
    file.write_text(specs.dump_yaml(pipeline))
    before = decoders()
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", "pipeline", "run", str(file), "--once"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert lakes.in_tables(pipeline).total() == 10
    wait_until(lambda: decoders() <= before, timeout_s=30, what="the decoder processes to end")


def decoders() -> set[int]:
    pids = set()
    for process in psutil.process_iter(["cmdline"]):
        if "penstock.lake.isolated" in (process.info["cmdline"] or ()):
            pids.add(process.pid)
    return pids
