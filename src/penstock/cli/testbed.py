"""`penstock testbed`: a cluster on this machine that outlives the command."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from penstock import specs
from penstock.api import testbeds
from penstock.api.testbeds import DEFAULT_NAME, StartedTestbed
from penstock.cli import broker_report, options, output
from penstock.domain.cluster import ClusterSpec
from penstock.domain.errors import BadInput, TestbedError
from penstock.domain.fault import FaultPlan
from penstock.domain.network import NetworkProfile, NetworkSpec
from penstock.domain.value import FieldError
from penstock.domain.warm_up import RequestKind, WarmUpLimits
from penstock.kafka.connection import ExistingCluster
from penstock.testbed import lease
from penstock.testbed.attached import (
    of_other_containers,
)
from penstock.testbed.fault_injector import Event, FaultInjector
from penstock.testbed.health import Health, health
from penstock.testbed.network.hosts import Network
from penstock.testbed.network.profile_player import ProfilePlayer

_SECONDS = click.FloatRange(min=0, max=3600)

_name = click.argument("name", default=DEFAULT_NAME)
_of = click.option("--name", default=DEFAULT_NAME, show_default=True, help="Name of the testbed.")


@click.group()
def testbed() -> None:
    """Start, inspect and remove Kafka clusters on this machine."""
    swept = lease.sweep(lease.default_root(), output.warn)
    if swept:
        output.warn(f"removed leftovers of a killed command: {', '.join(swept)}")


@testbed.command()
@click.argument("spec_file", required=False, type=options.PATH)
@_of
@click.option("--brokers", type=int, help="Number of brokers (1 to 16). Default: 3.")
@click.option(
    "--controllers",
    type=int,
    help="Dedicated KRaft controllers. Default: 0, brokers act as controllers.",
)
@click.option("--heap-mb", type=int, help="Java heap per broker, in MB.")
@click.option("--port", type=int, help="Port of the first broker on loopback.")
@click.option(
    "--place",
    type=click.Choice(["loopback", "namespaces"]),
    help="loopback (default): no privileges; namespaces: each broker on its own host (needs root).",
)
@click.option(
    "--security",
    type=click.Choice(["plaintext", "sasl_ssl"]),
    help="plaintext (default), or sasl_ssl: TLS and SCRAM with generated keys.",
)
@click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="Broker property by its Kafka name; may be repeated.",
)
@click.option(
    "--warm",
    is_flag=True,
    help="Warm the brokers up at full load, so that runs on this testbed need not: with the requests of SPEC_FILE if it is a scenario, else with "
    f"{RequestKind()}.",
)
@click.option(
    "--warm-limit",
    "warm_limit_s",
    type=_SECONDS,
    help="Time limit of --warm in seconds, per kind of requests. Default: the scenario's limit, "
    f"or {WarmUpLimits().limit_s:g}.",
)
@click.option("--foreground", is_flag=True, help="Stay until Ctrl-C, then remove everything.")
@options.as_json
def up(
    spec_file: Path | None,
    name: str,
    properties: tuple[str, ...],
    warm: bool,
    warm_limit_s: float | None,
    foreground: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Start a cluster.

    Its spec comes from SPEC_FILE (`penstock schema cluster`), options, or both.

    SPEC_FILE may also be a scenario; its cluster is started, for
    `penstock run SCENARIO --testbed NAME`.
    """
    base, kinds = testbeds.asked_for(spec_file)
    with output.progress() as say:
        started = testbeds.start(
            _spec(base, options, properties),
            kinds,
            name=name,
            warm=warm,
            warm_limit_s=warm_limit_s,
            stays=False,
            on_progress=say,
        )
    with ExitStack() as on_failure:
        on_failure.callback(started.cluster.stop)
        _report_up(started, name, as_json)
        if foreground:
            signal.pause()
        started.cluster.detach()
        on_failure.pop_all()  # it stays


def _report_up(started: StartedTestbed, name: str, as_json: bool) -> None:
    cluster, took_s, warmed = started.cluster, started.took_s, started.warm_ups
    properties_file = cluster.directory / "client.properties"
    sentence = (
        f"{cluster.spec.brokers} brokers are ready after {took_s:.1f} s: "
        f"{cluster.bootstrap_servers}"
    )
    if as_json:
        output.emit_json(
            {
                "name": name,
                "outcome": sentence,
                "bootstrap_servers": cluster.bootstrap_servers,
                "client_properties": properties_file,
                "ready_after_s": round(took_s, 2),
                "warm_up": [{"kind": kind, "result": done} for kind, done in warmed.items()],
                "directory": cluster.directory,
            }
        )
        return
    output.outcome(sentence)
    for kind, done in warmed.items():
        if done.sentence:
            output.warn(f"{kind}: {done.sentence}")
        else:
            output.note(f"warm:     {kind}: {done.took_s:.0f} s, {done.requests:,} requests")
    output.note(f"clients:  {properties_file}")
    if cluster.network is not None:
        output.note(f"on hosts: penstock testbed exec --name {name} producer-1 -- COMMAND")
    output.note(f"inspect:  penstock testbed status {name}")
    output.note(f"remove:   penstock testbed down {name}")


@testbed.command()
@_name
@click.option(
    "--interval",
    "interval_s",
    type=_SECONDS,
    default=1,
    show_default=True,
    help="Sampling interval for rates, in seconds.",
)
@click.option("--bootstrap-servers", help="Show an existing cluster instead.")
@click.option(
    "--client-properties",
    type=options.PATH,
    help="Kafka client.properties for that cluster.",
)
@options.as_json
def status(
    name: str,
    interval_s: float,
    bootstrap_servers: str | None,
    client_properties: Path | None,
    as_json: bool,
) -> int:
    """Show the brokers' own view. Exits with 4 if a node is down or a replica is out of sync."""
    if bootstrap_servers:
        existing = ExistingCluster(bootstrap_servers, client_properties)
        for warning in existing.warnings:
            output.warn(warning)
        state = health(existing)
        if output.conclude(state.outcome, state.to_data(), as_json):
            output.note(f"({state.unseen})")
        return _exit_code(state)
    cluster = testbeds.attach_testbed(name)
    state = health(cluster, interval_s)
    elsewhere = [other.name for other in of_other_containers()]
    if as_json:
        links = _links(cluster.network) if cluster.network else {}
        output.emit_json(
            {"name": name, **state.to_data(), "links": links, "of_other_containers": elsewhere}
        )
    else:
        broker_report.show(state)
        if elsewhere:
            output.note(f"Skipped (owned by another container): {', '.join(elsewhere)}")
    return _exit_code(state)


def _exit_code(state: Health) -> int:
    return 0 if state.is_good else TestbedError.exit_code


@testbed.command("exec", context_settings={"ignore_unknown_options": True})
@_of
@click.argument("host")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def execute(name: str, host: str, command: tuple[str, ...]) -> None:
    """Run COMMAND on a HOST of the testbed's network, such as producer-1."""
    net = testbeds.attach_testbed(name).emulated
    try:
        argv = net.command(host, command)
    except FieldError as error:
        raise BadInput(str(error)) from None
    try:
        os.execv(argv[0], argv)
    except OSError as error:
        raise BadInput(f"{command[0]} cannot be run: {error.strerror}") from None


@testbed.command()
@_name
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Remove all testbeds that `penstock testbed up` started for this user.",
)
@options.as_json
def down(name: str, everything: bool, as_json: bool) -> None:
    """Remove a cluster with its processes, networks and files."""
    if everything:
        names = testbeds.remove_testbeds()
    else:
        testbeds.remove_testbed(name)
        names = [name]
    sentence = f"Removed {', '.join(names)}." if names else "There was no testbed."
    output.conclude(sentence, {"removed": names}, as_json)


@testbed.command()
@options.file
@_of
@options.as_json
def network(file: Path, name: str, as_json: bool) -> None:
    """Apply the `links` of FILE now (`penstock schema network`); other links are unchanged."""
    links = specs.load(file, NetworkSpec).links
    with testbeds.use_testbed(name) as cluster, _naming(file):
        net = cluster.emulated
        net.set(links)
    sentence = f"{len(net.names.conditions(links))} links changed."
    output.conclude(sentence, {"links": _links(net)}, as_json)


@testbed.command()
@options.file
@_of
@options.as_json
def replay(file: Path, name: str, as_json: bool) -> None:
    """Play a network profile (`penstock schema network-profile`)."""
    profile = specs.load(file, NetworkProfile)
    with output.progress() as say, testbeds.use_testbed(name) as cluster:
        net = cluster.emulated
        with _naming(file), ProfilePlayer(net, profile) as player:
            say(f"replaying {len(profile.steps)} steps, {profile.steps[-1].at_s:g} s")
            player.join()
    sentence = f"Replayed {len(profile.steps)} steps over {profile.steps[-1].at_s:g} s."
    output.conclude(sentence, {"links": _links(net)}, as_json)


@testbed.command()
@options.file
@_of
@options.as_json
def fault(file: Path, name: str, as_json: bool) -> None:
    """Inject the faults in FILE (`penstock schema faults`) and verify each."""
    plan = specs.load(file, FaultPlan)

    def show(event: Event) -> None:
        if not as_json:
            output.note(f"{event.at_s:7.2f} s  {event.sentence} (took {event.took_s:.2f} s)")

    with (
        testbeds.use_testbed(name) as cluster,
        _naming(file),
        FaultInjector(cluster, plan.faults, on_event=show) as injector,
    ):
        injector.join()
    sentence = f"{len(plan.faults)} faults injected."
    output.conclude(sentence, {"events": injector.events}, as_json)


def _spec(base: ClusterSpec, options: dict[str, Any], properties: tuple[str, ...]) -> ClusterSpec:
    chosen = {name: value for name, value in options.items() if value is not None}
    pairs = {}
    for text in properties:
        key, equals, value = text.partition("=")
        if not equals:
            raise BadInput(f"--property {text!r} has no value", "write NAME=VALUE")
        pairs[key.strip()] = value.strip()
    try:
        return replace(base, **chosen, properties={**base.properties, **pairs})
    except FieldError as error:
        option = error.field.replace("_", "-")
        raise BadInput(f"--{option}: {error.value!r} {error.rule}") from None


def _links(net: Network) -> dict[str, Any]:
    """Every link that is not perfect or was not: its condition and what it did to packets."""
    stats = net.stats()
    return {
        f"{src} > {dst}": {"condition": condition, "packets": stats.get((src, dst))}
        for (src, dst), condition in net.conditions.items()
    }


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """A field that only the running testbed can judge is reported with the file it is in."""
    try:
        yield
    except FieldError as error:
        raise BadInput(f"{file}: {error}") from None
