"""Prometheus metrics of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from penstock.domain.errors import BadInput
from penstock.lake.checkpoint import Blocker
from penstock.lake.landing import Landed

SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics:
    """Metrics of landed micro-batches."""

    def __init__(self, pipeline: str, registry: CollectorRegistry) -> None:
        self._pipeline = pipeline
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        histogram = partial(Histogram, buckets=SECONDS, registry=registry)
        whole, table, phase = ["pipeline"], ["pipeline", "table"], ["pipeline", "phase"]
        partition = ["pipeline", "topic", "partition"]
        self._rows = counter("penstock_rows", "Rows landed.", table)
        self._bytes = counter("penstock_read_bytes", "Bytes of keys and values read.", partition)
        text = "Offsets deleted before they were read."
        self._lost = counter("penstock_lost_offsets", text, partition)
        self._not_landed = NotLanded(pipeline, registry)
        text = "Offsets not read yet at the end of a batch."
        self._lag = gauge("penstock_lag", text, partition)
        self._batches = counter("penstock_batches", "Micro-batches landed.", whole)
        text = "Age of the oldest record of a micro-batch when it becomes readable."
        self._freshness = histogram("penstock_freshness_seconds", text, table)
        text = "Time of a lane's phase, or of the commit."
        self._phase = histogram("penstock_phase_seconds", text, phase)
        self._lanes = gauge("penstock_lanes", "Lanes of the last batch.", whole)

    def add(self, landed: Landed) -> None:
        name = self._pipeline
        self._batches.labels(name).inc()
        self._lanes.labels(name).set(len(landed.report.lanes))
        self._phase.labels(name, "commit").observe(landed.commit_s)
        for lane in landed.report.lanes:
            for phase in ("gather", "decode", "write"):
                self._phase.labels(name, phase).observe(getattr(lane, f"{phase}_s"))
            self._not_landed.reject(lane.rejects)
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

    def see(self, blocker: Blocker | None) -> None:
        """Show the present state of the source."""
        now = blocker or Blocker()
        self._not_landed.see(now.stalled_partitions, len(now.skipped_topics))


class NotLanded:
    """Records rejected, partitions that cannot be read, topics left out."""

    def __init__(self, pipeline: str, registry: CollectorRegistry) -> None:
        self._pipeline = pipeline
        gauge = partial(Gauge, labelnames=["pipeline"], registry=registry)
        text = "Records rejected, by the kind of reason."
        self._rejects = Counter("penstock_rejects", text, ["pipeline", "kind"], registry=registry)
        text = (
            "Partitions that cannot be read: no leader, or a log that ends before their position."
        )
        self._stalled = gauge("penstock_stalled_partitions", text)
        text = "Topics that match a stream and are not landed: Kafka's own and the autoscaler's."
        self._skipped = gauge("penstock_skipped_topics", text)
        self.see(0, 0)

    def reject(self, rejects: Mapping[str, int]) -> None:
        for kind, count in rejects.items():
            self._rejects.labels(self._pipeline, kind).inc(count)

    def see(self, stalled: int, skipped: int) -> None:
        self._stalled.labels(self._pipeline).set(stalled)
        self._skipped.labels(self._pipeline).set(skipped)


def serve(registry: CollectorRegistry, port: int, host: str = "127.0.0.1") -> None:
    """Serve the metrics over HTTP; by default to this machine only."""
    try:
        start_http_server(port, addr=host, registry=registry)
    except (OSError, OverflowError) as error:
        why = error.strerror if isinstance(error, OSError) else "it must be 1 to 65535"
        raise BadInput(
            f"metrics port {port} cannot be used: {why}", "choose another port"
        ) from None
