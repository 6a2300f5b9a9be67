"""Hand-made runs for the tests of reports: small, and every figure known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.domain.arrivals.constant import ConstantArrivals
from penstock.domain.cluster import ClusterSpec, TopicSpec
from penstock.domain.kpi import Kpi
from penstock.domain.metrics import Distribution, Estimate, MessageCounts, RunMetrics, RunSecond
from penstock.domain.objective import Objective
from penstock.domain.run import ConsumerReport, ProducerReport, Run, RunEvent, RunSpec
from penstock.domain.settings import ProducerSettings
from penstock.domain.steadiness import Steadiness
from penstock.domain.verdict import judge
from penstock.domain.warm_up import ClusterState, WarmUp
from penstock.domain.workload import Workload
from penstock.report.reported_run import ReportedRun


def estimate(value: float, half: float | None = None, batches: int = 10) -> Estimate:
    """With an interval of ± half, and batches that show about as much."""
    if half is None:
        return Estimate(value=value)
    spread = [value + half * (-1) ** i for i in range(batches)]
    return Estimate(value=value, low=value - half, high=value + half, batches=tuple(spread))


def distribution(p50_ms: float, half: float | None = 1.0, count: int = 1000) -> Distribution:
    """Ten buckets from half the median to ten times the median."""
    factors = (0.5, 0.7, 0.9, 1.0, 1.1, 1.3, 2.0, 4.0, 8.0, 10.0)
    weights = (10, 15, 15, 15, 15, 15, 10, 3, 1, 1)
    buckets = tuple(
        (int(p50_ms * f * 1e6), count * w // 100) for f, w in zip(factors, weights, strict=True)
    )
    return Distribution(
        count=count,
        mean_ms=estimate(p50_ms * 1.3, half),
        deviation_ms=p50_ms * 1.7,
        percentiles_ms={
            "50": estimate(p50_ms, half),
            "90": estimate(p50_ms * 2, half),
            "99": estimate(p50_ms * 8, half),
            "99.9": estimate(p50_ms * 10),
        },
        min_ms=p50_ms / 2,
        max_ms=p50_ms * 10,
        buckets=buckets,
    )


def metrics(
    p50_ms: float | None = 24.0,
    lost: int = 0,
    duplicated: int = 0,
    acknowledged_yet_lost: int = 0,
    half: float | None = 1.0,
    sent: int = 1000,
    seconds: tuple[RunSecond, ...] | None = None,
    steadiness: Steadiness | None = None,
    **counts: int,
) -> RunMetrics:
    delivered = sent - lost - duplicated
    arrived = p50_ms is not None
    noise = None if half is None else half / 1000
    if seconds is None:
        seconds = tuple(
            RunSecond(
                at_s=at,
                due=100,
                acknowledged=100,
                received=100,
                received_bytes=10_000,
                p50_ms=p50_ms,
                p99_ms=None if p50_ms is None else 8 * p50_ms,
                max_ms=None if p50_ms is None else 10 * p50_ms,
                lost=lost if at == 5 else 0,
            )
            for at in range(-2, 10)
        )
    parts = {}
    if p50_ms is not None:
        shares = {"waiting": 0.1, "produce": 0.6, "commit": 0.4, "fetch": 0.2, "answer": 0.9}
        parts = {name: distribution(p50_ms * share, half) for name, share in shares.items()}
    return RunMetrics(
        run="r",
        seconds_measured=10.0,
        counts=MessageCounts(
            **{
                "sent": sent,
                "acknowledged": sent - lost + acknowledged_yet_lost,
                "delivered": delivered,
                "lost": lost,
                "duplicated": duplicated,
                "copies": delivered + 2 * duplicated,
                "acknowledged_yet_lost": acknowledged_yet_lost,
                **counts,
            }
        ),
        lost_share=estimate(lost / sent if sent else 0.0, noise),
        duplicated_share=estimate(duplicated / sent if sent else 0.0, noise),
        latency=distribution(p50_ms, half) if p50_ms is not None else None,
        acknowledgement=distribution(p50_ms * 0.9, half) if p50_ms is not None else None,
        parts=parts,
        violation_share={"50": estimate(0.015, noise)} if arrived else {},
        throughput_per_s=estimate(100.0, half),
        throughput_mb_per_s=estimate(0.01, noise),
        goodput_mb_per_s=estimate(0.01, noise) if arrived else None,
        timely_mb_per_s=estimate(0.009, noise) if arrived else None,
        kpi=Kpi(
            gamma=0.917,
            bandwidth_share=None,
            bandwidth_mb_per_s=None,
            rate_share=0.9,
            best_per_s=111.0,
        ),
        steadiness=steadiness,
        seconds=seconds,
    )


def spec(name: str = "orders", **changed: Any) -> RunSpec:
    settings = changed.pop("settings", ProducerSettings(acks="1", linger_ms=5))
    return RunSpec(
        name=name,
        cluster=ClusterSpec(brokers=3),
        topic=TopicSpec(name="orders", partitions=3, replication=3),
        workload=Workload(arrivals=ConstantArrivals(rate_per_s=100.0)),
        settings=settings,
        **changed,
    )


def run(
    cell: Mapping[str, str] | None = None, repeat: int = 0, settings: Any = None, **changed: Any
) -> Run:
    of_experiment: dict[str, Any] = {
        key: changed.pop(key) for key in ("name", "objective", "timeliness_ms") if key in changed
    }
    if settings is not None:
        of_experiment["settings"] = settings
    base = Run(
        id="orders-1a2b3c",
        cell=cell or {},
        repeat=repeat,
        spec=spec(seed=1 + repeat, **of_experiment),
        started_at="2026-01-02T03:04:05+00:00",
        versions={"penstock": "0.1.0", "kafka": "4.3.1", "kernel": "6.18"},
        machine={"cores": 2, "memory_mb": 24_000, "load_average": 0.5},
        producers=(
            ProducerReport(
                producer=1,
                scheduled=1000,
                sent=1000,
                acknowledged=1000,
                failed=0,
                unknown=0,
                lag_p50_us=12.0,
                lag_p99_us=87.0,
                lag_max_us=412.0,
                queue_full_s=0.0,
                cpu_s=1.5,
            ),
        ),
        consumers=(ConsumerReport(consumer=1, received=1000, cpu_s=0.7),),
    )
    return replace(base, **changed)


def shown(
    label: str = "orders", of: RunMetrics | None = None, made: Run | None = None, **changed: Any
) -> ReportedRun:
    of = metrics() if of is None else of
    made = run(**changed) if made is None else made
    verdict = judge(made.spec.objective, of, made.invalid)
    return ReportedRun(run=made, metrics=of, verdict=verdict, label=label)


def acks(
    value: str,
    p50_ms: float,
    repeat: int = 0,
    of_run: Mapping[str, Any] | None = None,
    **of: Any,
) -> ReportedRun:
    """One cell of a matrix over acks."""
    settings = ProducerSettings(acks=value)  # type: ignore[arg-type]
    return shown(
        f"acks={value} #{repeat + 1}",
        metrics(p50_ms=p50_ms, **of),
        run({"settings.acks": value}, repeat, settings, **(of_run or {})),
    )


OBJECTIVE = Objective(latency_ms=50, violation_share=0.01, lost_share=0.001, duplicated_share=0.1)
GREW = "latency grew from 14.4 to 18.6 s: the brokers handle 1,050 of the 1,200 messages/s offered"
UNSTEADY = Steadiness(
    state="unsteady",
    sentence=GREW,
    judged_s=12.5,
    latency_first_ms=14_400.0,
    latency_last_ms=18_600.0,
    waiting_first=17,
    waiting_last=1_817,
)
STILL_WARMING = "the cluster was still warming up after 91 s: CPU per request fell by 31 %"
COLD = ClusterState(
    age_s=123.4,
    requests_served=45_678,
    warm_up=WarmUp(
        state="still warming up",
        sentence=STILL_WARMING,
        took_s=91.2,
        first_cpu_ms_per_request=9.87,
        cpu_ms_per_request=1.23,
        run_cpu_ms_per_request=1.5,
    ),
)
KILL = RunEvent(at_s=4.0, took_s=0.4, sentence="broker 2 was killed")
