"""The brokers' own metrics as tables."""

from __future__ import annotations

from penstock.cli import output
from penstock.domain.broker_view import BrokerRates, BrokerView
from penstock.testbed.health import Health


def show(health: Health) -> None:
    """Print the outcome, what the brokers use, and the times of their requests."""
    output.outcome(health.outcome)
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
        [_use_row(view, health.rates[broker]) for broker, view in health.views.items()],
    )
    output.table(
        ["broker", "request", "/s", "queue ms", "local ms", "remote ms", "total ms", "p99 ms"],
        [
            row
            for broker, view in health.views.items()
            for row in _time_rows(view, health.rates[broker])
        ],
    )
    output.note("Means cover this interval; p99 covers the last minutes.")


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
