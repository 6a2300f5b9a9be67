"""Options that several verbs have, worded once."""

from __future__ import annotations

import click

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
master = click.option("--master", default="local[*]", help="Spark master of the analysis.")
metrics_port = click.option(
    "--metrics-port", type=int, help="Serve Prometheus metrics on this port."
)
latency_limits = click.option(
    "--latency-limit",
    "limits_ms",
    type=float,
    multiple=True,
    help="Count what is later than this many ms, beside the objective's limit.",
)
metrics_host = click.option(
    "--metrics-host",
    default="127.0.0.1",
    show_default=True,
    help="The address on which they are served: 0.0.0.0 for a container.",
)
