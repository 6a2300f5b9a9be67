"""`penstock autoscaler`: the fewest lanes that keep up with the write rate."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import click
from prometheus_client import CollectorRegistry

from penstock import specs
from penstock.api.autoscaling import autoscale
from penstock.api.kubernetes import manifests
from penstock.autoscaler.consumer import joined
from penstock.autoscaler.manifests import KubernetesPlace
from penstock.cli import events, options, output
from penstock.lake import pipeline_file
from penstock.lake.metrics import serve


@click.group()
def autoscaler() -> None:
    """Scale lanes with the write rate."""


@autoscaler.command()
@options.file
@click.option("--dry-run", is_flag=True, help="Print decisions and reasons; send no commands.")
@click.option(
    "--consumers",
    is_flag=True,
    help="Run plain consumers instead of Spark, on this machine.",
)
@options.metrics_port
@options.metrics_host
@options.as_json
def run(
    file: Path,
    dry_run: bool,
    consumers: bool,
    metrics_port: int | None,
    metrics_host: str,
    as_json: bool,
) -> None:
    """Scale the lanes of the pipeline of FILE.

    For a pipeline that runs with `--autoscale outside`. With --json, every decision and warning is a line
    of JSON. With --consumers, exits with 6 if more records were rejected than
    `rejects_stop_share` allows, and with 7 if a consumer found lost offsets.
    """
    registry = CollectorRegistry()
    if metrics_port is not None:
        serve(registry, metrics_port, metrics_host)
    try:
        autoscale(
            file,
            consumers=consumers,
            dry_run=dry_run,
            registry=registry,
            on_event=events.show_json if as_json else events.show,
            on_warning=output.warn,
        )
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C, SIGTERM
        what = (
            "The consumers end after their cycle"
            if consumers
            else "The pipeline keeps its current plan"
        )
        if dry_run:
            what = "Nothing was changed"
        sentence = f"Stopped. {what}."
        if as_json:
            output.emit_json_line({"event": "end", "outcome": sentence})
        else:
            output.outcome(sentence)


@autoscaler.command(hidden=True)
@options.file
@click.option("--number", type=int, required=True, help="Number in the group: 0, 1, …")
def consumer(file: Path, number: int) -> None:
    """Internal: started by `autoscaler run --consumers`."""
    ended = threading.Event()
    with joined(pipeline_file.load(file), number, output.warn) as served:
        # Not earlier: before it serves, a signal ends it at once.
        signal.signal(signal.SIGTERM, lambda *_: ended.set())
        signal.signal(signal.SIGINT, lambda *_: ended.set())
        served.serve(ended)


@autoscaler.command(name="manifests")
@options.file
@click.option("--image", required=True, help="Container image with Penstock and Spark.")
@click.option("--namespace", default="default", show_default=True, help="Kubernetes namespace.")
@click.option(
    "--claim",
    default="lake",
    show_default=True,
    help="Volume claim of the lake; all pods mount it.",
)
@click.option("--secret", help="Secret with the client.properties, if FILE names one.")
def render(file: Path, image: str, namespace: str, claim: str, secret: str | None) -> None:
    """Print Kubernetes manifests: driver, RBAC and executor pod template."""
    place = KubernetesPlace(image=image, namespace=namespace, claim=claim, secret=secret)
    for manifest in manifests(file, place):
        click.echo("---")
        click.echo(specs.dump_yaml(manifest), nl=False)
