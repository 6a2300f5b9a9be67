"""`penstock model`: calibrates models, fits them to runs, shows what they know."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

import penstock
from penstock import specs
from penstock.api.models import DEFAULT_MODEL, Fit
from penstock.cli import options, output
from penstock.domain.cluster import ClusterSpec
from penstock.domain.run import Existing
from penstock.models.calibration import LEAST_RUNS
from penstock.models.fitted import FittedModel
from penstock.models.path.physics import Physics
from penstock.report import forecasts, formatting
from penstock.specs import to_data
from penstock.specs.schema import json_schema

F = TypeVar("F", bound=Callable[..., Any])


def _model_file(help_text: str) -> Callable[[F], F]:
    return click.option(
        "--model",
        "file",
        type=options.PATH,
        default=Path(DEFAULT_MODEL),
        show_default=True,
        help=help_text,
    )


model_file = _model_file("Model file to read.")
_new_model_file = _model_file("Model file to write; must not exist unless --add is given.")
_add = click.option(
    "--add", is_flag=True, help="Add to the runs that the model in the file was fitted to."
)


@click.group()
def model() -> None:
    """Fit models to measured runs, for predictions."""


@model.command()
@click.option(
    "--cluster", type=options.PATH, help="Spec of the cluster to start; default: 3 brokers."
)
@click.option("--testbed", help="Use this testbed, started by `penstock testbed up`.")
@click.option("--bootstrap-servers", help="Use this existing cluster: HOST:PORT, …")
@click.option(
    "--client-properties",
    type=options.PATH,
    help="With an existing cluster: its client.properties.",
)
@click.option(
    "--rate-cap",
    type=click.FloatRange(min=0, min_open=True),
    help="On an existing cluster, send at most this many messages/s.  [default: 200]",
)
@click.option("--saturate", is_flag=True, help="On an existing cluster, send without a rate cap.")
@click.option(
    "--throughput",
    is_flag=True,
    help="Also measure the highest rates of one producer and of one consumer; 4 minutes more.",
)
@click.option(
    "--runs",
    "most_runs",
    type=click.IntRange(min=LEAST_RUNS + 1),
    help="Make at most this many runs; the first is made twice. --throughput comes on top.",
)
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Repeat all runs this many times, to average out what varies between runs.",
)
@_new_model_file
@_add
@options.out
@options.master
@options.as_json
def calibrate(
    cluster: Path | None,
    testbed: str | None,
    bootstrap_servers: str | None,
    client_properties: Path | None,
    rate_cap: float | None,
    saturate: bool,
    throughput: bool,
    most_runs: int | None,
    repeats: int,
    file: Path,
    add: bool,
    out: Path,
    master: str,
    as_json: bool,
) -> None:
    """Measure a few short runs, chosen to tell costs apart, and fit a model to them.

    By default, starts a cluster of three brokers on this machine and removes it afterwards. Takes 5 to
    8 minutes on two cores. Exits with 4 if a run fails.
    """
    if client_properties is not None and bootstrap_servers is None:
        raise click.UsageError("--client-properties needs --bootstrap-servers")
    existing = None
    if bootstrap_servers is not None:
        existing = Existing(
            bootstrap_servers=bootstrap_servers,
            client_properties=None if client_properties is None else str(client_properties),
        )
    with output.progress() as say:
        calibrated = penstock.calibrate(
            cluster=None if cluster is None else specs.load(cluster, ClusterSpec),
            testbed=testbed,
            existing=existing,
            model=file,
            add=add,
            most_runs=most_runs,
            repeats=repeats,
            rate_cap_per_s=rate_cap,
            saturate=saturate,
            throughput=throughput,
            out=out,
            master=master,
            on_progress=say,
        )
    _show_fit(calibrated.fit, as_json)


@model.command()
@click.argument("runs", nargs=-1, required=True, type=options.PATH)
@click.option(
    "--skip-unusable",
    is_flag=True,
    help="Leave out runs that are invalid, cold, not steady, not tested or not analysed, instead of "
    "refusing them.",
)
@_new_model_file
@_add
@click.option(
    "--master",
    default="local[*]",
    show_default=True,
    help="Spark master that simulates the runs if there are 40 or more.",
)
@options.as_json
def fit(
    runs: tuple[Path, ...],
    skip_unusable: bool,
    file: Path,
    add: bool,
    master: str,
    as_json: bool,
) -> None:
    """Fit a model to RUNS: directories of runs or campaigns, and facts.json of experiments."""
    with output.progress() as say:
        fitted = penstock.fit_model(
            runs, model=file, add=add, skip_unusable=skip_unusable, master=master, on_progress=say
        )
    _show_fit(fitted, as_json)


@model.command()
@model_file
@click.option("--plot", type=options.PATH, help="Write a page with charts to this HTML file.")
@options.as_json
def show(file: Path, plot: Path | None, as_json: bool) -> None:
    """Show what a model knows, from which runs, and how well."""
    fitted = penstock.read_model(file)
    if plot is not None:
        penstock.plot_model(plot, model=fitted)
    if as_json:
        output.emit_json(fitted)
        return
    output.outcome(f"{forecasts.about(fitted)}.")
    _tables(fitted)
    output.table(*_physics(fitted))
    if plot is not None:
        output.note(f"Plot: {plot}")


def _show_fit(fit: Fit, as_json: bool) -> None:
    fitted = fit.model
    record = fitted.record
    error = record.errors.get("end_to_end_p99")
    sentence = f"Fitted to {record.runs} runs" + (
        f"; p99 end to end of left-out runs: median error {formatting.quantity(error, 'share')}."
        if error is not None
        else "."
    )
    if not output.conclude(sentence, fit.to_data(), as_json):
        return
    for skipped in fit.skipped:
        output.warn(f"left out: {skipped}")
    _tables(fitted)
    if fit.blind_errors:
        shown = ", ".join(
            f"{name.replace('_', ' ')} {formatting.quantity(value, 'share')}"
            for name, value in fit.blind_errors.items()
        )
        output.note(f"The earlier model predicted the new runs with errors of {shown} (median).")
    output.note(f"Model: {fit.file}")


def _tables(fitted: FittedModel) -> None:
    output.table(*forecasts.errors(fitted.record, fitted.history[-1] if fitted.history else None))
    output.table(*forecasts.left_out(fitted))
    if fitted.reading is not None:
        output.table(*forecasts.readings(fitted, fitted.reading))


def _physics(fitted: FittedModel) -> tuple[list[str], list[list[str]]]:
    """The parameters that are not zero, with their meaning."""
    about = json_schema(Physics)["$defs"]["Physics"]["properties"]
    rows = [
        [name, f"{value:.3g}", about[name]["description"]]
        for name, value in to_data(fitted.path.physics).items()
        if value
    ]
    return ["parameter", "value", "meaning"], rows
