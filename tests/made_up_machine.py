"""A machine that exists only in the simulator, and runs as it would measure them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.domain.arrivals import PoissonArrivals
from penstock.domain.broker_view import RequestClass
from penstock.domain.cluster import ClusterSpec, TopicSpec
from penstock.domain.network import Link, LinkCondition, NetworkSpec
from penstock.domain.network.delay_constant import ConstantDelay
from penstock.domain.run import RunSpec
from penstock.domain.settings import ProducerSettings
from penstock.domain.workload import Payload, Workload
from penstock.models.calibration import LeftOutRun
from penstock.models.fitted import FittedModel
from penstock.models.observation import BrokerWork, MeasuredLatency, Observation
from penstock.models.path.physics import Physics
from penstock.models.path.predict import (
    LatencyScatter,
    PathModel,
    Prediction,
    Scatter,
    predict,
)

# Of a request, whatever its class: of it, two thirds to handle it, the rest to answer.
REQUEST_S = 3e-4
MESSAGE_S, CLIENT_REQUEST_S, READER_REQUEST_S = 2e-5, 2e-4, 1e-4
PHYSICS = Physics(
    client_produce=MESSAGE_S,
    client_request=CLIENT_REQUEST_S / 2,
    client_answer=CLIENT_REQUEST_S / 2,
    broker_request=2e-4,
    broker_answer=1e-4,
    follower_fetch=1.4e-4,
    follower_answer=0.7e-4,
    follower_append=0.9e-4,
    reader_fetch=2e-4,
    reader_answer=1e-4,
    reader_request=READER_REQUEST_S,
    wake=1.5e-4,
    spread=0.3,
)
MODEL = PathModel(physics=PHYSICS, cores=2)


def run_spec(
    rate_per_s: float = 200, *, delay_ms: float = 0.0, size_bytes: int = 100, **settings: Any
) -> RunSpec:
    condition = LinkCondition(delay=ConstantDelay(ms=delay_ms))
    network = NetworkSpec(links=(Link(src="any", dst="any", condition=condition),))
    return RunSpec(
        name="a",
        cluster=ClusterSpec(place="namespaces", network=network),
        topic=TopicSpec(name="t", partitions=3, replication=3),
        workload=Workload(
            arrivals=PoissonArrivals(rate_per_s=rate_per_s), payload=Payload(size_bytes=size_bytes)
        ),
        settings=ProducerSettings(**{"linger_ms": 0, **settings}),
        visibility="off",
    )


def observed(spec: RunSpec, model: PathModel = MODEL) -> Observation:
    """What a run of that spec would measure on that machine."""
    answer = predict(model, spec, messages=6_000, seed=7)
    assert isinstance(answer, Prediction), answer
    requests, rate = answer.requests_per_s, answer.messages_per_s
    producer = MESSAGE_S * rate + CLIENT_REQUEST_S * requests
    consumer = READER_REQUEST_S * requests
    assert answer.cpu_share is not None
    return Observation(
        run=f"run-{spec.workload.messages_per_s:.0f}-{spec.settings.acks}-{spec.settings.linger_ms}",
        spec=spec,
        messages_per_s=rate,
        latencies={
            name: MeasuredLatency(
                count=6_000,
                mean_ms=latency.mean_ms.value,
                percentiles_ms={p: e.value for p, e in latency.percentiles_ms.items()},
            )
            for name, latency in answer.latencies.items()
        },
        parts_ms={
            "until appended": sum(answer.parts_ms[p] for p in ("wait", "queue", "append")),
            "until visible": answer.parts_ms["replicate"],
            "fetch": answer.parts_ms["fetch"],
        },
        produce_requests_per_s=requests,
        producer_cores=producer,
        consumer_cores=consumer,
        brokers=BrokerWork(
            cores=max(1e-3, 2 * answer.cpu_share - producer - consumer),
            requests_per_s=dict(zip(RequestClass, (requests, 2 * requests, requests), strict=True)),
            local_ms=dict.fromkeys(RequestClass, 0.1),
            bytes_in_per_s=rate * 110,
        ),
        versions={"kafka": "4.3.1", "librdkafka": "2.16.0"},
        machine={"cores": 2, "memory_mb": 24_000, "processor": "made up"},
    )


# Three runs of it, and a model that was fitted to them.
RUNS = tuple(
    observed(run_spec(rate, acks=acks, linger_ms=linger))
    for rate, acks, linger in ((100, "all", 0), (300, "1", 0), (2_000, "all", 5))
)
SCATTER = LatencyScatter(
    body=Scatter(machine=0.1, settings=0.01), tail=Scatter(machine=0.2, settings=0.02)
)
FITTED = FittedModel(
    made_at="2026-11-18T10:00:00+00:00",
    path=replace(MODEL, scatter={"produce": SCATTER, "commit": SCATTER, "end_to_end": SCATTER}),
    observations=RUNS,
    left_out=tuple(
        LeftOutRun(run=one.run, errors={"end_to_end": {"mean": 0.1, "99": -0.2}}) for one in RUNS
    ),
)
