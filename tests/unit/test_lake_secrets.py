"""Secrets of a client.properties: not in clear text on the way to lanes, not on a command line."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import cloudpickle

from penstock.analysis.session import is_on_this_machine
from penstock.domain.errors import BadInput
from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.lake import pipeline_file, query, secrets
from penstock.lake.checkpoint import Checkpoint
from penstock.lake.secrets import FileConfig
from penstock.lake.source import LaneJob, source_for

SECRET = "quiet-as-a-mouse"
PLAIN = {"bootstrap.servers": "k:9092", "fetch.min.bytes": 7}
SECURE = {**PLAIN, "sasl.username": "me", "sasl.password": SECRET}
AES = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    path = tmp_path / "client.properties"
    path.write_text(f"sasl.username=me\nsasl.password={SECRET}\n")
    return path


def pipeline(lake: Path, **fields: Any) -> Pipeline:
    return Pipeline(
        name="p",
        bootstrap_servers="k:9092",
        streams=(Stream(topics=("t",), table="t"),),
        lake=str(lake),
        settings={"fetch.min.bytes": 7},
        **fields,
    )


# --- between driver and executors -------------------------------------------------------------


def check(
    config: Any, spark: dict[str, str], is_here: bool = False, how: str = "encrypted"
) -> None:
    master = "spark://far:7077"
    secrets.check(config, spark, master=master, is_on_this_machine=is_here, lane_secrets=how)


@pytest.mark.parametrize(
    "spark",
    [
        {},
        {"spark.authenticate": "true"},  # authenticates, but does not encrypt
        {"spark.network.crypto.enabled": "true"},
        {**AES, "spark.authenticate": "false"},
        {"spark.ssl.enabled": "true"},  # Spark does not use it for RPC
        {"spark.ssl.rpc.enabled": "false"},
        {"spark.io.encryption.enabled": "true"},  # files only
    ],
)
def test_secrets_are_not_sent_where_they_could_be_read_on_the_way(spark: dict[str, str]) -> None:
    with pytest.raises(BadInput) as refused:
        check(SECURE, spark)
    assert "sasl.password" in refused.value.message
    assert "spark://far:7077" in refused.value.message
    assert SECRET not in str(refused.value)
    for fix in ("from-file", "spark.network.crypto.enabled=true", "spark.ssl.rpc.enabled=true"):
        assert fix in refused.value.fix
    check(SECURE, spark, is_here=True)
    check(SECURE, spark, how="clear-text")
    check(PLAIN, spark)


@pytest.mark.parametrize(
    "spark",
    [
        AES,
        {"spark.authenticate": "TRUE", "spark.authenticate.enableSaslEncryption": "true"},
        {"spark.ssl.rpc.enabled": "true"},
    ],
)
def test_secrets_are_sent_if_spark_encrypts_its_traffic(spark: dict[str, str]) -> None:
    check(SECURE, spark)


def test_the_check_comes_before_spark_is_given_the_job(tmp_path: Path) -> None:
    """The stand-in for a session has nothing that a job could be registered with."""
    far = SimpleNamespace(
        sparkContext=SimpleNamespace(
            master="k8s://https://127.0.0.1:6443", getConf=lambda: SimpleNamespace(getAll=list)
        )
    )
    job = LaneJob(pipeline(tmp_path), SECURE, Checkpoint(tmp_path), "id")
    with pytest.raises(BadInput, match=r"sasl\.password would be sent in clear text"):
        query.start(far, query.Prepared(job, None))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local[*]", True),
        ("local-cluster[2,1,1024]", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077", True),
        ("spark://far:7077", False),
        ("yarn", False),
        ("k8s://https://kubernetes.default.svc", False),
        ("k8s://127.0.0.1:6443", False),
        ("k8s://https://localhost:6443", False),
    ],
)
def test_whether_executors_are_on_this_machine(master: str, expected: bool) -> None:
    assert is_on_this_machine(master) is expected


def test_workers_elsewhere_reach_a_driver_that_is_not_on_loopback() -> None:
    assert is_on_this_machine("spark://localhost:7077", "127.0.0.1")
    assert not is_on_this_machine("spark://localhost:7077", "10.0.0.5")
    assert is_on_this_machine("local[2]", "10.0.0.5")


# --- read where lanes run ---------------------------------------------------------------------


def test_a_job_travels_without_the_secrets_if_lanes_read_the_file(
    tmp_path: Path, properties: Path
) -> None:
    def sent(how: str) -> tuple[bytes, Any]:
        spec = pipeline(tmp_path, client_properties=str(properties), lane_secrets=how)
        config, _ = pipeline_file.client_config(spec)
        job = LaneJob(spec, config, Checkpoint(tmp_path), "id")
        return cloudpickle.dumps(source_for(job)), config

    plain, config = sent("encrypted")
    assert SECRET.encode() in plain  # so it would be found
    quiet, same = sent("from-file")
    assert SECRET.encode() not in quiet
    assert same == config == SECURE
    arrived = pickle.loads(quiet).job
    assert arrived.config == config
    check(arrived.config, {})
    # What is read again there can be sent on just as well, as Spark does with the reader.
    assert SECRET.encode() not in cloudpickle.dumps(arrived)


def test_a_file_that_is_not_where_a_lane_runs_is_named(properties: Path) -> None:
    sent = pickle.dumps(FileConfig(str(properties), PLAIN))
    properties.unlink()
    with pytest.raises(BadInput) as refused:
        pickle.loads(sent)
    assert str(properties) in refused.value.message
    assert "from-file" in refused.value.fix


# --- what others can see ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "spark.authenticate.secret",
        "spark.ssl.rpc.keyStorePassword",
        "spark.hadoop.fs.s3a.secret.key",
        "spark.kubernetes.authenticate.oauthToken",
    ],
)
def test_a_secret_of_sparks_on_the_command_line_is_refused(name: str) -> None:
    with pytest.raises(BadInput) as refused:
        secrets.check_spark_config({"spark.executor.cores": "1", name: SECRET})
    assert name in refused.value.message and "SPARK_CONF_DIR" in refused.value.fix
    assert SECRET not in str(refused.value)


def test_settings_that_only_name_a_secret_are_taken() -> None:
    secrets.check_spark_config(
        {
            "spark.authenticate": "true",
            "spark.authenticate.secret.file": "/etc/spark/secret",
            "spark.kubernetes.executor.secrets.kafka": "/etc/kafka",
            "spark.kubernetes.driver.secretKeyRef.TOKEN": "kafka:token",
        }
    )


def test_a_job_shows_nothing_of_its_configuration(tmp_path: Path) -> None:
    assert SECRET not in repr(LaneJob(pipeline(tmp_path), SECURE, Checkpoint(tmp_path), "id"))
