"""What Prometheus may ask a pipeline."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from penstock.domain.errors import BadInput
from penstock.pipeline.lake.landing import Landed

SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics:
    """Counted from what is landed."""

    def __init__(self, pipeline: str, registry: CollectorRegistry) -> None:
        self._pipeline = pipeline
        table, partition = ["pipeline", "table"], ["pipeline", "topic", "partition"]
        one = ["pipeline"]
        self._rows = Counter("penstock_rows", "Rows landed.", table, registry=registry)
        self._bytes = Counter(
            "penstock_read_bytes", "Bytes of keys and values read.", partition, registry=registry
        )
        self._lost = Counter(
            "penstock_lost_offsets",
            "Offsets deleted before they were read.",
            partition,
            registry=registry,
        )
        self._lag = Gauge(
            "penstock_lag",
            "Offsets not read yet at the end of a batch.",
            partition,
            registry=registry,
        )
        self._batches = Counter("penstock_batches", "Micro-batches landed.", one, registry=registry)
        self._freshness = Histogram(
            "penstock_freshness_seconds",
            "Age of the oldest record of a micro-batch when it becomes readable.",
            table,
            buckets=SECONDS,
            registry=registry,
        )
        self._phase = Histogram(
            "penstock_phase_seconds",
            "Time of a lane's phase, or of the commit.",
            ["pipeline", "phase"],
            buckets=SECONDS,
            registry=registry,
        )
        self._lanes = Gauge("penstock_lanes", "Lanes of the last batch.", one, registry=registry)

    def add(self, landed: Landed) -> None:
        name = self._pipeline
        self._batches.labels(name).inc()
        self._lanes.labels(name).set(len(landed.report.lanes))
        self._phase.labels(name, "commit").observe(landed.commit_s)
        for lane in landed.report.lanes:
            for phase in ("gather", "decode", "write"):
                self._phase.labels(name, phase).observe(getattr(lane, f"{phase}_s"))
            for r in lane.ranges:
                place = (name, r.topic, str(r.partition))
                self._bytes.labels(*place).inc(r.size_bytes)
                self._lag.labels(*place).set(r.lag)
                if r.lost_from < r.start:
                    self._lost.labels(*place).inc(r.start - r.lost_from)
                for table, rows in r.rows.items():
                    self._rows.labels(name, table).inc(rows)
            if (ages_s := lane.ages_s(landed.at_ms)) is not None:
                for file in lane.files:
                    self._freshness.labels(name, file.table).observe(ages_s[0])


def serve(registry: CollectorRegistry, port: int, host: str = "127.0.0.1") -> None:
    """On this machine only, unless asked otherwise."""
    try:
        start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise BadInput(
            f"--metrics-port: {port} cannot be used: {error.strerror}", "choose another port"
        ) from None
