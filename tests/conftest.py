"""What all tests share: one cluster per session, and skips that say why (on CI: failures)."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import pytest

from penstock.domain.cluster import ClusterSpec
from penstock.domain.errors import MissingPart, PenstockError
from penstock.domain.network import NetworkSpec
from penstock.testbed.cluster import Cluster
from penstock.testbed.toolchain import Toolchain, find_toolchain

# How long an example takes says something about the machine, not about the code.
hypothesis.settings.register_profile("penstock", deadline=None)
hypothesis.settings.load_profile("penstock")

IS_ROOT = os.geteuid() == 0
# Kafka's own are 9 s and 2 s, which every test that kills a broker would wait for.
DEAD_SOON = {"broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 500}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without a part, the tests that need it are skipped with the reason; on CI they run and fail."""
    if os.environ.get("CI") == "true":
        return
    reasons = {}
    if not IS_ROOT:
        reasons["root"] = "needs root: network namespaces and packet queues"
    elif shutil.which("ip") is None or not shutil.which("iptables-legacy", path="/usr/sbin:/sbin"):
        reasons["root"] = "needs iproute2 and iptables (`make setup` installs them)"
    try:
        find_toolchain(os.environ)
    except PenstockError as error:
        reasons["integration"] = f"no cluster can be started: {error.message}"
    for item in items:
        for marker, reason in reasons.items():
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    return find_toolchain(os.environ)


@pytest.fixture(scope="session")
def cluster(toolchain: Toolchain) -> Iterator[Cluster]:
    """The one cluster that tests share. Use `topic` for a name of your own; leave it healthy."""
    network = NetworkSpec(producers=2, consumers=1) if IS_ROOT else None
    spec = ClusterSpec(
        brokers=3,
        place="namespaces" if IS_ROOT else "loopback",
        network=network,
        properties=DEAD_SOON,
    )
    with Cluster(spec, toolchain=toolchain, name=f"tests-{os.getpid()}") as shared:
        yield shared


@pytest.fixture(scope="session")
def lake_cluster(toolchain: Toolchain, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster that Spark's processes reach: those of `cluster` may be in namespaces."""
    if not IS_ROOT:
        yield request.getfixturevalue("cluster")
        return
    # What is to be compacted or deleted is looked for every 15 s or 5 min otherwise.
    soon = {
        "log.cleaner.backoff.ms": 200,
        "log.retention.check.interval.ms": 500,
        "log.initial.task.delay.ms": 500,
    }
    spec = ClusterSpec(brokers=3, properties={**DEAD_SOON, **soon})
    with Cluster(spec, toolchain=toolchain, name=f"lake-tests-{os.getpid()}") as shared:
        yield shared


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The one Spark session that tests share. Leave nothing in it."""
    # A second that other tests need not wait for.
    from penstock.analysis.session import session
    from penstock.lake import query

    try:
        shared = session(
            query.with_retries("local[2]"), app="tests", with_lake=True, config=query.SPARK_CONFIG
        )
    except MissingPart as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"no Spark can be started: {error.message}")
    yield shared
    shared.stop()


@pytest.fixture
def unique() -> Callable[[str], str]:
    """A name that no other test has."""
    return lambda stem: f"{stem}-{uuid.uuid4().hex[:8]}"
