"""Options that several verbs share."""

from __future__ import annotations

from pathlib import Path

import click

PATH = click.Path(path_type=Path)

file = click.argument("file", type=PATH)
out = click.option(
    "--out", type=PATH, default=Path("runs"), show_default=True, help="Output directory."
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
master = click.option(
    "--master", default="local[*]", show_default=True, help="Spark master for the analysis."
)
lake_master = click.option(
    "--master", default="local[*]", show_default=True, help="Spark master that the lanes run on."
)
metrics_port = click.option(
    "--metrics-port", type=click.IntRange(1, 65535), help="Serve Prometheus metrics on this port."
)
latency_limits = click.option(
    "--latency-limit",
    "limits_ms",
    type=click.FloatRange(min=0, min_open=True),
    multiple=True,
    help="Also report the share of messages later than this many ms; may be repeated.",
)
details = click.option(
    "--details",
    is_flag=True,
    help="Print all figures, as in report.html, instead of the ten most important.",
)
metrics_host = click.option(
    "--metrics-host",
    default="127.0.0.1",
    show_default=True,
    help="Address of the metrics server; use 0.0.0.0 in a container.",
)
