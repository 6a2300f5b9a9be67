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


@click.command()
@click.argument("scenario", type=options.PATH, required=False)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Change a Kafka property or a field of the scenario; may be repeated.",
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
    default="librdkafka",
    show_default=True,
    help="The producers' client; they pack requests differently.",
)
@click.option(
    "--limit",
    "limits_ms",
    type=click.FloatRange(min=0, min_open=True),
    multiple=True,
    help="Also show the share of messages later than this many ms; may be repeated.",
)
@click.option(
    "--disk-gb",
    type=click.FloatRange(min=0, min_open=True),
    help="Also show when a broker's disk of so many 10⁹ bytes is full.",
)
@click.option(
    "--other-requests",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Other producers send so many requests/s meanwhile, more than during the calibration.",
)
@click.option(
    "--other-mb",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Other producers send so many MB/s meanwhile, more than during the calibration.",
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
    other_requests: float,
    other_mb: float,
    plot: Path | None,
    file: Path,
    as_json: bool,
) -> None:
    """Predict the latency of SCENARIO by a model, with 90 % intervals.

    Without SCENARIO, that of the lightest calibration run is used, changed by --set and --sweep.
    Exits with 10 if the load is above what the cluster can carry.
    """
    other = OtherTraffic(requests_per_s=other_requests, mb_per_s=other_mb)
    with output.progress() as say:
        if against:
            if scenario or settings or sweep or other:
                raise click.UsageError("--against takes the scenario of the run: leave out others")
            judged = penstock.predict_runs(against, model=file, on_progress=say)
        else:
            found = penstock.predict(
                scenario,
                model=file,
                settings={name: values_of(text)[0] for name, text in map(_pair, settings)},
                sweep=None if sweep is None else dict([_swept(sweep)]),
                client=client,  # type: ignore[arg-type]
                other=other,
                on_progress=say,
            )
    result: Forecasts | JudgedRuns = judged if against else found
    page = None if plot is None else result.plot(plot)
    if as_json:
        output.emit_json(result.to_data())
    elif against:
        _show_judged(judged)
    else:
        _show(found, limits_ms, disk_gb)
    if page is not None and not as_json:
        output.note(f"Plot: {page}")
    if not against and all(isinstance(one.answer, Saturated) for one in found):
        sys.exit(_SATURATED)


def _show(found: Forecasts, limits_ms: tuple[float, ...], disk_gb: float | None) -> None:
    output.outcome(found.outcome)
    _warn(found)
    every = list(found)
    if len(every) > 1:
        output.table(*forecasts.overview(every))
    elif isinstance(answer := every[0].answer, Prediction):
        output.table(*forecasts.latencies(answer))
        output.table(*forecasts.parts(answer))
        output.table(*forecasts.load(answer))
        output.table(*forecasts.traffic(every[0], disk_gb))
    if limits_ms:
        output.table(*forecasts.late(every, limits_ms))
    output.note(f"{forecasts.about(found.model)}.")


def _show_judged(judged: JudgedRuns) -> None:
    output.outcome(judged.outcome)
    for one in judged:
        output.note(f"\n{one.seen.run}")
        if isinstance(one.forecast.answer, Saturated):
            output.note(f"the model says: {one.forecast.answer}")
            continue
        output.table(*forecasts.beside(one))
        output.table(*forecasts.parts_beside(one))
    output.note(f"{forecasts.about(judged.model)}.")


def _warn(found: Forecasts) -> None:
    for note in dict.fromkeys(note for one in found for note in one.outside):
        output.warn(f"beyond the calibration: {note}")


def _pair(text: str) -> tuple[str, str]:
    name, is_pair, value = text.partition("=")
    if not is_pair or not name or not value:
        raise BadInput(f"{text!r} is not NAME=VALUE", "such as linger.ms=5")
    return name.strip(), value.strip()


def _swept(text: str) -> tuple[str, list[object]]:
    name, values = _pair(text)
    return name, values_of(values)
