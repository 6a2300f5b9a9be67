"""`penstock testbed`: a cluster on this machine that outlives the command."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from penstock import client_properties as kafka_properties
from penstock import specs
from penstock.cli import broker_report, options, output
from penstock.domain.cluster import ClusterSpec
from penstock.domain.errors import BadInput, TestbedError
from penstock.domain.fault import FaultPlan
from penstock.domain.network import NetworkSpec, NetworkTrace
from penstock.domain.scenario import Scenario
from penstock.domain.value import FieldError
from penstock.domain.warm_up import RequestKind, WarmUp, WarmUpLimits
from penstock.measure import schedule
from penstock.measure.matrix import cells
from penstock.measure.warm_up import kind_of, warm_up
from penstock.spec_text import parse_text, read_text
from penstock.testbed import lease
from penstock.testbed.attached import attach, find, sole_user
from penstock.testbed.cluster import Cluster
from penstock.testbed.connection import ExistingCluster
from penstock.testbed.faults import Event, FaultInjector
from penstock.testbed.network.hosts import Network
from penstock.testbed.network.trace import TracePlayer
from penstock.testbed.observe import observe
from penstock.testbed.parts import find_parts

DEFAULT_NAME = "testbed"

_SECONDS = click.FloatRange(min=0, max=3600)

_name = click.argument("name", default=DEFAULT_NAME)
_of = click.option("--name", default=DEFAULT_NAME, show_default=True, help="Which testbed.")
_file = click.argument("file", type=click.Path(path_type=Path))


@click.group()
def testbed() -> None:
    """Start, look at and remove a real Kafka cluster on this machine."""
    swept = lease.sweep(lease.default_root())
    if swept:
        output.warn(f"removed what a killed command had left: {', '.join(swept)}")


@testbed.command()
@click.argument("spec_file", required=False, type=click.Path(path_type=Path))
@click.option("--name", default=DEFAULT_NAME, show_default=True, help="To tell testbeds apart.")
@click.option("--brokers", type=int, help="Number of brokers (1 to 16).")
@click.option("--controllers", type=int, help="Separate controllers; 0: the brokers are.")
@click.option("--heap-mb", type=int, help="Java heap per broker.")
@click.option("--port", type=int, help="First port on loopback.")
@click.option("--place", type=click.Choice(["loopback", "namespaces"]))
@click.option("--security", type=click.Choice(["plaintext", "sasl_ssl"]))
@click.option(
    "--property", "properties", multiple=True, metavar="NAME=VALUE", help="Any broker property."
)
@click.option(
    "--warm",
    is_flag=True,
    help="Warm the brokers up: with the requests of SPEC_FILE if it is a scenario, else with "
    f"{RequestKind()}.",
)
@click.option(
    "--warm-limit",
    "warm_limit_s",
    type=_SECONDS,
    help="Seconds for --warm, at most, for each kind of requests. Default: as the scenario says, "
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
    """Start a cluster, from a SPEC_FILE (`penstock schema cluster`), options, or both.

    SPEC_FILE may be a scenario, too: its cluster is started, for
    `penstock run SCENARIO --testbed NAME`.
    """
    if warm_limit_s is not None and not warm:
        raise BadInput("--warm-limit needs --warm", "add it, or leave both out")
    base, to_warm = _asked_for(spec_file)
    spec = _spec(base, options, properties)
    usual = RequestKind(replication=min(RequestKind.replication, spec.brokers))
    to_warm = to_warm or {usual: WarmUpLimits()}
    with output.progress() as say:
        parts = find_parts(os.environ, on_progress=say)
        cluster = Cluster(spec, parts=parts, name=name, on_progress=say)
        began = time.monotonic()
        cluster.start()
        took_s = time.monotonic() - began
    with _kept_until_detached(cluster):
        warmed: dict[RequestKind, WarmUp] = {}
        if warm:
            with output.progress() as say:
                for kind, limits in to_warm.items():
                    done = warm_up(cluster, kind, _limited(limits, warm_limit_s), say)
                    if done is not None:  # else another kind covers it
                        warmed[kind] = done
        _report_up(cluster, name, took_s, warmed, as_json)
        if foreground:
            signal.pause()
        cluster.detach()


@contextmanager
def _kept_until_detached(cluster: Cluster) -> Iterator[None]:
    """Whatever ends the block early also ends the cluster."""
    try:
        yield
    except BaseException:
        cluster.stop()
        raise


def _report_up(
    cluster: Cluster,
    name: str,
    took_s: float,
    warmed: Mapping[RequestKind, WarmUp],
    as_json: bool,
) -> None:
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
    output.note(f"look:     penstock testbed status {name}")
    output.note(f"remove:   penstock testbed down {name}")


@testbed.command()
@_name
@click.option("--interval", "interval_s", type=_SECONDS, default=1, help="Seconds for the rates.")
@click.option("--bootstrap-servers", help="Look at an existing cluster instead.")
@click.option(
    "--client-properties",
    type=click.Path(path_type=Path),
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
    """Show the brokers' own view. Exits with 4 if a broker is down or a copy lags."""
    if bootstrap_servers:
        return _status_of_existing(bootstrap_servers, client_properties, as_json)
    cluster = _attach(name)
    before = observe(cluster)
    time.sleep(interval_s)  # the time over which rates are taken; nothing is awaited
    health = broker_report.examine(cluster, before, observe(cluster))
    if as_json:
        links = _links(cluster.network) if cluster.network else {}
        output.emit_json({"name": name, **health.as_json(), "links": links})
    else:
        health.show()
    return 0 if health.is_good else TestbedError.exit_code


def _status_of_existing(servers: str, properties: Path | None, as_json: bool) -> int:
    given = kafka_properties.load(properties) if properties else None
    for warning in given.warnings if given else ():
        output.warn(warning)
    cluster = ExistingCluster(servers, given)
    brokers = cluster.check_reachable()
    lagging = cluster.admin.out_of_sync()
    sentence = f"{len(brokers)} brokers answer; " + (
        f"{len(lagging)} partitions lag, such as {lagging[0]}."
        if lagging
        else "every copy is in sync."
    )
    if as_json:
        output.emit_json({"outcome": sentence, "brokers": sorted(brokers), "out_of_sync": lagging})
    else:
        output.outcome(sentence)
        output.note("(timings and processes can be seen on a testbed only)")
    return 4 if lagging else 0


@testbed.command("exec", context_settings={"ignore_unknown_options": True})
@_of
@click.argument("host")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def execute(name: str, host: str, command: tuple[str, ...]) -> None:
    """Run COMMAND on a HOST of the testbed's network, such as producer-1."""
    net = _attach(name).emulated
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
@click.option("--all", "everything", is_flag=True, help="Every detached testbed of this user.")
@options.as_json
def down(name: str, everything: bool, as_json: bool) -> None:
    """Remove a cluster with its processes, networks and files."""
    held = [h for h in lease.leases(lease.default_root()) if lease.is_detached(h)]
    chosen = held if everything else [find(name)]
    names = [one.name for one in chosen]
    for one in chosen:
        with sole_user(one):
            lease.release(one)
    sentence = f"Removed {', '.join(names)}." if names else "There was no testbed."
    output.conclude(sentence, {"removed": names}, as_json)


@testbed.command()
@_file
@_of
@options.as_json
def network(file: Path, name: str, as_json: bool) -> None:
    """Change links now: the `links` of a FILE (`penstock schema network`). Others stay."""
    cluster = _attach(name)
    net = cluster.emulated
    links = specs.load(file, NetworkSpec).links
    with _naming(file), sole_user(cluster.held):
        net.set(links)
    sentence = f"{len(net.names.conditions(links))} links changed."
    output.conclude(sentence, {"links": _links(net)}, as_json)


@testbed.command()
@_file
@_of
@options.as_json
def replay(file: Path, name: str, as_json: bool) -> None:
    """Let the network change as a trace FILE says (`penstock schema trace`)."""
    cluster = _attach(name)
    net = cluster.emulated
    trace = specs.load(file, NetworkTrace)
    with _naming(file):
        for step in trace.steps:
            net.names.conditions(step.links)  # a name that is wrong in the last step, too
    with output.progress() as say, sole_user(cluster.held), TracePlayer(net, trace) as player:
        say(f"replaying {len(trace.steps)} steps, {trace.steps[-1].at_s:g} s")
        player.join()
    sentence = f"Replayed {len(trace.steps)} steps over {trace.steps[-1].at_s:g} s."
    output.conclude(sentence, {"links": _links(net)}, as_json)


@testbed.command()
@_file
@_of
@options.as_json
def fault(file: Path, name: str, as_json: bool) -> None:
    """Carry out the faults of a file (`penstock schema faults`), each checked to take effect."""
    cluster = _attach(name)
    plan = specs.load(file, FaultPlan)

    def show(event: Event) -> None:
        if not as_json:
            output.note(f"{event.at_s:7.2f} s  {event.sentence} (took {event.took_s:.2f} s)")

    with (
        _naming(file),
        sole_user(cluster.held),
        FaultInjector(cluster, plan.faults, on_event=show) as injector,
    ):
        injector.join()
    sentence = f"{len(plan.faults)} faults struck."
    output.conclude(sentence, {"events": injector.events}, as_json)


def _asked_for(file: Path | None) -> tuple[ClusterSpec, dict[RequestKind, WarmUpLimits]]:
    """The cluster of a file; and of a scenario what to warm it up for, each once, and how far."""
    if file is None:
        return ClusterSpec(), {}
    data = parse_text(read_text(file), str(file)).data
    if not (isinstance(data, Mapping) and "workload" in data):
        return specs.load(file, ClusterSpec), {}
    scenario = schedule.resolve_scenario(specs.load(file, Scenario), file.parent)
    if scenario.existing is not None:
        raise BadInput(
            f"{file}: uses a cluster of your own (`existing`), so there is none to start",
            "run it: penstock run",
        )
    experiments = [cell.experiment for cell in cells(scenario, str(file))]
    return scenario.cluster, {kind_of(one): one.cluster_warm_up for one in experiments}


def _limited(limits: WarmUpLimits, limit_s: float | None) -> WarmUpLimits:
    return limits if limit_s is None else replace(limits, limit_s=limit_s)


def _spec(base: ClusterSpec, options: dict[str, Any], properties: tuple[str, ...]) -> ClusterSpec:
    given = {name: value for name, value in options.items() if value is not None}
    pairs = {}
    for text in properties:
        key, equals, value = text.partition("=")
        if not equals:
            raise BadInput(f"--property {text!r} has no value", "write NAME=VALUE")
        pairs[key.strip()] = value.strip()
    try:
        return replace(base, **given, properties={**base.properties, **pairs})
    except FieldError as error:
        option = error.field.replace("_", "-")
        raise BadInput(f"--{option}: {error.value!r} {error.fix}") from None


def _links(net: Network) -> dict[str, Any]:
    """Every link that is not perfect or was not: its condition and what it did to packets."""
    stats = net.stats()
    return {
        f"{src} > {dst}": {"condition": condition, "packets": stats.get((src, dst))}
        for (src, dst), condition in net.conditions.items()
    }


def _attach(name: str) -> Cluster:
    return attach(name, find_parts(os.environ))


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """A field that only the running testbed can judge is reported with the file it is in."""
    try:
        yield
    except FieldError as error:
        raise BadInput(f"{file}: {error}") from None
