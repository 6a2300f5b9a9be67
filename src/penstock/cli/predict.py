"""`penstock predict`: predicts latency, alone, along a sweep, or beside a run."""

from __future__ import annotations

import sys
from pathlib import Path

import click

import penstock
from penstock.api.prediction import Forecasts, JudgedRuns, values_of
from penstock.cli import options, output
from penstock.cli.model import model_file
from penstock.domain.errors import BadInput
from penstock.models.other_traffic import OtherTraffic
from penstock.models.path.predict import Prediction, Saturated
from penstock.report import forecasts

# The load is too high: there is no latency to predict.
_SATURATED = 10
_CLIENT = "librdkafka"


@click.command()
@click.argument("scenario", type=options.PATH, required=False)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a Kafka property (linger.ms=5) or a field of the scenario (rate_per_s=500, "
    "partitions=12); may be repeated.",
)
@click.option(
    "--sweep",
    metavar="NAME=VALUES",
    help="Predict for each of several values: linger.ms=0..100 or acks=0,1,all.",
)
@click.option(
    "--against",
    multiple=True,
    type=options.PATH,
    metavar="RUN",
    help="Predict this run, and show both side by side; may be repeated.",
)
@click.option(
    "--client",
    type=click.Choice(["librdkafka", "java"]),
    default=_CLIENT,
    show_default=True,
    help="The producers' client: how it packs requests, and its defaults.",
)
@options.latency_limits
@click.option(
    "--disk-gb",
    type=click.FloatRange(min=0, min_open=True),
    help="Also show in how many days a broker's disk of this size (GB) is full, without retention.",
)
@click.option(
    "--other-requests-per-s",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Produce requests/s of other clients, on top of the traffic during calibration.",
)
@click.option(
    "--other-mb-per-s",
    type=click.FloatRange(min=0),
    default=0.0,
    help="MB/s that other clients produce, on top of the traffic during calibration.",
)
@click.option("--plot", type=options.PATH, help="Write a page with charts to this HTML file.")
@model_file
@options.as_json
def predict(
    scenario: Path | None,
    settings: tuple[str, ...],
    sweep: str | None,
    against: tuple[Path, ...],
    client: str,
    limits_ms: tuple[float, ...],
    disk_gb: float | None,
    other_requests_per_s: float,
    other_mb_per_s: float,
    plot: Path | None,
    file: Path,
    as_json: bool,
) -> None:
    """Predict the latency of a scenario, with 90 % intervals.

    Without SCENARIO, that of the lightest calibration run is used, changed by --set and --sweep.
    Faults of a scenario are left out. Exits with 10 if the load is too high in every cell.
    """
    other = OtherTraffic(requests_per_s=other_requests_per_s, mb_per_s=other_mb_per_s)
    with output.progress() as say:
        if against:
            if scenario or settings or sweep or other or limits_ms or disk_gb or client != _CLIENT:
                raise click.UsageError(
                    "--against predicts the scenario of each run: only --model, --plot and --json "
                    "can be given with it"
                )
            judged = penstock.predict_runs(against, model=file, on_progress=say)
        else:
            predicted = penstock.predict(
                scenario,
                model=file,
                settings=dict(map(_set, settings)),
                sweep=None if sweep is None else dict([_swept(sweep)]),
                client=client,  # type: ignore[arg-type]
                other=other,
                on_progress=say,
            )
    result: Forecasts | JudgedRuns = judged if against else predicted
    page = None if plot is None else result.plot(plot)
    if as_json:
        output.emit_json(
            judged.to_data() if against else predicted.to_data(limits_ms=limits_ms, disk_gb=disk_gb)
        )
    elif against:
        _show_judged(judged)
    else:
        _show(predicted, limits_ms, disk_gb)
    if page is not None and not as_json:
        output.note(f"Plot: {page}")
    if not against and all(isinstance(one.answer, Saturated) for one in predicted):
        sys.exit(_SATURATED)


def _show(predicted: Forecasts, limits_ms: tuple[float, ...], disk_gb: float | None) -> None:
    output.outcome(predicted.outcome)
    _warn(predicted)
    every = list(predicted)
    if len(every) > 1:
        output.table(*forecasts.overview(every))
        if disk_gb is not None:
            output.table(*forecasts.until_full(every, disk_gb))
    elif isinstance(answer := every[0].answer, Prediction):
        output.table(*forecasts.latencies(answer))
        output.table(*forecasts.parts(answer))
        output.table(*forecasts.load(answer))
        output.table(*forecasts.traffic(every[0], disk_gb))
    if limits_ms:
        output.table(*forecasts.late(every, limits_ms))
    output.note(f"{forecasts.about(predicted.model)}.")


def _show_judged(judged: JudgedRuns) -> None:
    output.outcome(judged.outcome)
    for one in judged:
        output.note(f"\n{one.seen.run}")
        for note in one.forecast.outside:
            output.warn(note)
        if isinstance(one.forecast.answer, Saturated):
            output.note(f"the model says: {one.forecast.answer}")
            continue
        output.table(*forecasts.beside(one))
        output.table(*forecasts.parts_beside(one))
    output.note(f"{forecasts.about(judged.model)}.")


def _warn(predicted: Forecasts) -> None:
    for note in dict.fromkeys(note for one in predicted for note in one.outside):
        output.warn(note)


def _pair(text: str) -> tuple[str, str]:
    name, is_pair, value = text.partition("=")
    if not is_pair or not name or not value:
        raise BadInput(f"{text!r} is not NAME=VALUE", "such as linger.ms=5")
    return name.strip(), value.strip()


def _set(text: str) -> tuple[str, object]:
    name, given = _pair(text)
    values = values_of(given)
    if len(values) > 1:
        raise BadInput(f"--set {text}: several values", f"use --sweep {text}")
    return name, values[0]


def _swept(text: str) -> tuple[str, list[object]]:
    name, values = _pair(text)
    return name, values_of(values)
