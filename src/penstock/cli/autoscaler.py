"""`penstock autoscaler`: the fewest lanes that keep up with what is written."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import click
from prometheus_client import CollectorRegistry

from penstock import specs
from penstock.autoscaler.channel import HostLink, Superseded, Topics
from penstock.autoscaler.consumer import PlainConsumer, check, owned
from penstock.autoscaler.manifests import Place, manifests
from penstock.autoscaler.metrics import Metrics
from penstock.autoscaler.run import Keeper, PipelineKeeper, ProcessKeeper, run_for_good
from penstock.cli import events, options, output
from penstock.domain.errors import BadInput
from penstock.pipeline.lake import resolve
from penstock.pipeline.lake.metrics import serve

_file = click.argument("file", type=click.Path(path_type=Path))


@click.group()
def autoscaler() -> None:
    """Let lanes follow the write speed of their topics."""


@autoscaler.command()
@_file
@click.option("--dry-run", is_flag=True, help="Say what would be done, and why; command nobody.")
@click.option(
    "--consumers",
    is_flag=True,
    help="Without Spark: start and end plain consumers on this machine.",
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
    """Watch the topics of FILE and command its pipeline, which runs with --autoscale outside.

    With --json, every decision and warning is a line of JSON.
    """
    wanted = resolve.load(file)
    config, warnings = resolve.client_config(wanted)
    for warning in warnings:
        output.warn(f"{wanted.client_properties}: {warning}")
    settings = wanted.autoscaling
    if consumers:
        check(wanted)
    registry = CollectorRegistry()
    metrics = Metrics(wanted.name, registry)
    if metrics_port is not None:
        serve(registry, metrics_port, metrics_host)
    tell = events.to_all(events.show_json if as_json else events.show, metrics.add)
    topics = Topics(wanted.name, config, most_hosts=settings.most_lanes if consumers else 1)
    topics.make(output.warn)
    keeper: Keeper = ProcessKeeper(file, tell) if consumers else PipelineKeeper()
    is_succeeded = False
    try:
        run_for_good(
            wanted,
            config,
            topics,
            keeper,
            is_host_per_lane=consumers,
            ended=threading.Event(),
            tell=tell,
            is_dry=dry_run,
        )
    except Superseded:
        is_succeeded = True
        raise
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C, SIGTERM
        what = "The plan holds without it"
        if consumers and not dry_run:
            what = "Its consumers end with their cycle"
        sentence = f"Stopped. {what}."
        if as_json:
            output.emit_json_line({"event": "end", "outcome": sentence})
        else:
            output.outcome(sentence)
    finally:
        if not is_succeeded:  # else its consumers are the other one's now
            keeper.close()


@autoscaler.command()
@_file
@click.option("--number", type=int, required=True, help="Which one of the group: 0, 1, …")
def consumer(file: Path, number: int) -> None:
    """One plain consumer of FILE's topics, commanded by `penstock autoscaler run --consumers`."""
    wanted = resolve.load(file)
    config, _ = resolve.client_config(wanted)
    settings = wanted.autoscaling
    topics = Topics(wanted.name, config, most_hosts=settings.most_lanes)
    # There may be more than now, of a time when most_lanes was higher.
    if not 0 <= number < topics.count() - 1:
        raise BadInput(
            f"--number: {number} is none of the {settings.most_lanes} of autoscaling.most_lanes"
        )
    with owned(wanted, number):
        served = PlainConsumer(wanted, config, number, HostLink(topics, number))
        ended = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: ended.set())
        signal.signal(signal.SIGINT, lambda *_: ended.set())
        try:
            while not (ended.is_set() or served.is_dismissed):
                served.serve_once()
        finally:
            served.close()


@autoscaler.command(name="manifests")
@_file
@click.option("--image", required=True, help="A container image with Penstock and Spark in it.")
@click.option("--namespace", default="default", help="Where it is to run.")
@click.option("--claim", default="lake", help="A volume claim for the lake; all pods mount it.")
@click.option("--secret", help="A Secret that has the client.properties, if FILE names one.")
def render(file: Path, image: str, namespace: str, claim: str, secret: str | None) -> None:
    """Print what Kubernetes needs to run FILE: driver, rights, executors' template."""
    place = Place(image=image, namespace=namespace, claim=claim, secret=secret)
    for manifest in manifests(resolve.load(file), place):
        click.echo("---")
        click.echo(specs.dump_yaml(manifest), nl=False)
