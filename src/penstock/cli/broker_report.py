"""The brokers' own metrics, as a verdict, a table and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.cli import output
from penstock.domain.broker_view import BrokerRates, BrokerView, rates
from penstock.testbed.cluster import Cluster


@dataclass(frozen=True)
class Health:
    """The state of a cluster, and the recent activity of its brokers."""

    bootstrap_servers: str
    views: Mapping[int, BrokerView]
    rates: Mapping[int, BrokerRates | None]
    out_of_sync: list[str]
    down: list[str]  # nodes that do not run or do not answer, controllers included

    @property
    def is_good(self) -> bool:
        return not (self.down or self.out_of_sync)

    @property
    def sentence(self) -> str:
        if self.down:
            return f"Not running: {', '.join(self.down)}."
        if self.out_of_sync:
            return f"{len(self.out_of_sync)} partitions lag, such as {self.out_of_sync[0]}."
        return f"All {len(self.views)} brokers run and all replicas are in sync."

    def as_json(self) -> dict[str, Any]:
        return {
            "outcome": self.sentence,
            "healthy": self.is_good,
            "bootstrap_servers": self.bootstrap_servers,
            "down": self.down,
            "out_of_sync": self.out_of_sync,
            "brokers": list(self.views.values()),
            "rates": [rate for rate in self.rates.values() if rate is not None],
        }

    def show(self) -> None:
        output.outcome(self.sentence)
        output.table(
            [
                "broker",
                "state",
                "leads",
                "lagging",
                "in MB/s",
                "out MB/s",
                "cores",
                "MB",
                "handles",
            ],
            [_use_row(view, self.rates[broker]) for broker, view in self.views.items()],
        )
        output.table(
            ["broker", "request", "/s", "queue ms", "local ms", "remote ms", "total ms", "p99 ms"],
            [
                row
                for broker, view in self.views.items()
                for row in _time_rows(view, self.rates[broker])
            ],
        )
        output.note("Means cover this interval; p99 covers the last minutes.")


def examine(
    cluster: Cluster, before: Mapping[int, BrokerView], after: Mapping[int, BrokerView]
) -> Health:
    """Judge a cluster by two observations."""
    down = [node.name for node in cluster.nodes if not cluster.process(node.id).is_running]
    down += [f"broker {b} ({v.state})" for b, v in after.items() if v.state in _UNWELL]
    return Health(
        bootstrap_servers=cluster.bootstrap_servers,
        views=after,
        rates={broker: rates(before[broker], after[broker]) for broker in after},
        out_of_sync=cluster.admin.out_of_sync(),
        down=down,
    )


_UNWELL = ("paused", "starting")


def _use_row(view: BrokerView, rate: BrokerRates | None) -> list[object]:
    use, own = view.process, view.own
    return [
        view.broker,
        view.state,
        own.leaders if own else None,
        own.under_replicated_partitions if own else None,
        f"{rate.bytes_in_per_s / 1e6:.2f}" if rate else None,
        f"{rate.bytes_out_per_s / 1e6:.2f}" if rate else None,
        f"{rate.cpu_cores:.2f}" if rate else None,
        use.resident_bytes // 2**20 if use else None,
        use.open_handles if use else None,
    ]


def _time_rows(view: BrokerView, rate: BrokerRates | None) -> list[list[object]]:
    if rate is None or view.own is None:
        return []

    def ms(mean: float | None) -> str | None:
        return None if mean is None else f"{mean:.2f}"

    return [
        [
            view.broker,
            request.name.lower().replace("_", " "),
            f"{times.per_s:.1f}",
            ms(times.queue_ms),
            ms(times.local_ms),
            ms(times.remote_ms),
            ms(times.total_ms),
            f"{view.own.requests[request].total.p99_ms:.1f}",
        ]
        for request, times in rate.requests.items()
    ]
