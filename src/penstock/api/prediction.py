"""Public API: predictions of scenarios, and beside what a run measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from penstock import specs
from penstock.api.arguments import as_path
from penstock.api.models import DEFAULT_MODEL, read_model
from penstock.api.observations import observation
from penstock.domain.cluster import ClusterSpec
from penstock.domain.errors import BadInput
from penstock.domain.progress import Progress, silent
from penstock.domain.run import RunSpec
from penstock.domain.scenario import Scenario
from penstock.domain.settings import ProducerSettings
from penstock.domain.value import fitting, several
from penstock.load import scenario_file
from penstock.load.compressibility import compression_ratio
from penstock.models.fitted import FittedModel, check_alike
from penstock.models.forecast import Forecast, Judged, judge
from penstock.models.other_traffic import OtherTraffic
from penstock.models.path import predict as path_prediction
from penstock.models.path.predict import MESSAGES, Prediction, Saturated
from penstock.models.path.spec import ClientName
from penstock.models.reading import ReadThroughput, most_read
from penstock.models.throughput import SendThroughput, full_batch, most_sent
from penstock.models.traffic import traffic
from penstock.report import forecast_page, forecasts
from penstock.runs.matrix import cells
from penstock.runs.run_directory import find_runs
from penstock.specs.files import write_file

AnyPath = str | Path

# A sweep is to be drawn at once: fewer messages per point, and no refits for the interval.
_SWEEP_MESSAGES = 4_000
_SWEEP_POINTS = 16
# A range that spans more than this is divided by factors, not by steps.
_WIDE = 20.0
NO_OTHER = OtherTraffic()
_WITHOUT_FAULTS = "faults: left out; the prediction is of the time outside of them"
_FREE_BYTES = "other MB/s: the calibration found no CPU cost per byte, so they have no effect"
_JAVAS_COSTS = "client java: its CPU costs are not calibrated; those of librdkafka are used"
_OF_CONSUMERS = ("fetch.", "max.partition.fetch")


@dataclass(frozen=True)
class Forecasts:
    """Predictions of one scenario: of its run, or of each cell of its matrix."""

    model: FittedModel
    every: tuple[Forecast, ...]
    # The axis of a sweep.
    over: str | None = None

    def __iter__(self) -> Iterator[Forecast]:
        return iter(self.every)

    @property
    def outcome(self) -> str:
        return forecasts.outcome(self.every, self.over)

    def to_data(
        self, limits_ms: Sequence[float] = (), disk_gb: float | None = None
    ) -> dict[str, Any]:
        """As JSON has it; with the share of messages later than limits, and when disks are full."""
        return {
            "outcome": self.outcome,
            "over": self.over,
            "model": self.model.record,
            "forecasts": [
                {
                    **_data(one),
                    "late_shares": {f"{ms:g}": one.late_share(ms) for ms in limits_ms},
                    "days_until_full": None
                    if disk_gb is None or one.traffic is None
                    else one.traffic.days_until_full(disk_gb),
                }
                for one in self.every
            ],
        }

    def plot(self, file: AnyPath) -> Path:
        """Write the page with tables and charts."""
        path = as_path("file", file)
        write_file(path, forecast_page.render(self.every, self.model, self.over))
        return path


@dataclass(frozen=True)
class JudgedRuns:
    """Predictions beside the measurements of the same runs."""

    model: FittedModel
    every: tuple[Judged, ...]

    def __iter__(self) -> Iterator[Judged]:
        return iter(self.every)

    @property
    def outcome(self) -> str:
        return forecasts.judged_outcome(self.every)

    def to_data(self) -> dict[str, Any]:
        return {
            "outcome": self.outcome,
            "model": self.model.record,
            "runs": [
                {
                    "run": one.seen.run,
                    **_data(one.forecast),
                    "figures": [
                        {
                            "latency": figure.latency,
                            "statistic": figure.statistic,
                            "predicted_ms": figure.predicted,
                            "measured_ms": figure.measured_ms,
                            "is_inside": figure.is_inside,
                        }
                        for figure in one.figures
                    ],
                    "parts": [
                        {
                            "part": part.name.strip(),
                            "predicted_ms": part.predicted_ms,
                            "measured_ms": part.measured_ms,
                        }
                        for part in one.parts
                    ],
                }
                for one in self.every
            ],
        }

    def plot(self, file: AnyPath) -> Path:
        """Write the page with tables and charts."""
        path = as_path("file", file)
        write_file(path, forecast_page.render_judged(self.every, self.model))
        return path


def predict(
    scenario: AnyPath | Scenario | None = None,
    *,
    model: AnyPath | FittedModel = DEFAULT_MODEL,
    settings: Mapping[str, object] | None = None,
    sweep: Mapping[str, Sequence[object]] | None = None,
    client: ClientName = "librdkafka",
    other: OtherTraffic = NO_OTHER,
    on_progress: Progress = silent,
) -> Forecasts:
    """Predict the latency of a scenario, or of every cell of its matrix.

    `settings`: Kafka property, or another field of the scenario → its value, instead of the file's.
    `sweep`: one such name → the values to predict in turn. Without a scenario, that of the lightest
    calibration run is changed. `other`: what others send to the cluster, on top of the traffic that it
    had during the calibration. Faults of the scenario are left out.
    """
    fitting("settings", settings, Mapping[str, Any] | None)
    fitting("sweep", sweep, Mapping[str, Any] | None)
    fitting("client", client, ClientName)
    fitting("other", other, OtherTraffic)
    fitted = model if isinstance(model, FittedModel) else read_model(model)
    base = _scenario(scenario, fitted)
    if sweep and len(sweep) > 1:
        raise BadInput(f"sweep: {', '.join(sweep)}: one name at a time", "give the others fixed")
    changed = {axis(name): (value,) for name, value in (settings or {}).items()}
    swept = {axis(name): several(f"sweep.{name}", values) for name, values in (sweep or {}).items()}
    matrix = {**base.matrix, **changed, **swept}
    asked = replace(base, matrix=matrix, repeats=1, repeat_first=False, expect=())
    path = fitted.path
    if swept:
        path = replace(path, others=())
    found = []
    every = cells(asked, "scenario")
    for number, cell in enumerate(every):
        if len(every) > 1:
            on_progress(f"predicting {number + 1} of {len(every)}")
        shown = {name: text for name, text in cell.values.items() if len(matrix[name]) > 1}
        one = forecast(
            replace(fitted, path=path),
            _predictable(cell.spec, fitted),
            client=client,
            other=other,
            messages=_SWEEP_MESSAGES if swept else MESSAGES,
        )
        label = ", ".join(f"{name}={text}" for name, text in shown.items()) or base.name
        notes = (_WITHOUT_FAULTS,) if cell.spec.faults else ()
        found.append(replace(one, label=label, place=shown, outside=(*notes, *one.outside)))
    return Forecasts(fitted, tuple(found), next(iter(swept), None))


def predict_runs(
    paths: Sequence[AnyPath],
    *,
    model: AnyPath | FittedModel = DEFAULT_MODEL,
    on_progress: Progress = silent,
) -> JudgedRuns:
    """Predict runs that were measured, and show both side by side."""
    places = [as_path("paths", path) for path in several("paths", paths)]
    fitted = model if isinstance(model, FittedModel) else read_model(model)
    judged = []
    for directory in find_runs(places):
        on_progress(f"predicting {directory.path}")
        seen = observation(directory)
        check_alike([*fitted.observations, seen])
        predicted = forecast(fitted, seen.spec, ratio=seen.compression_ratio)
        judged.append(judge(predicted, seen))
    return JudgedRuns(fitted, tuple(judged))


def forecast(
    model: FittedModel,
    spec: RunSpec,
    *,
    client: ClientName = "librdkafka",
    other: OtherTraffic = NO_OTHER,
    messages: int = MESSAGES,
    ratio: float | None = None,
) -> Forecast:
    """Predict one run. `ratio`: how far its messages compress; measured on its content if not given."""
    codec = spec.settings.compression_type
    path = other.beside(model.path, spec.topic.replication)

    def predicted(ratio: float) -> Prediction | Saturated:
        return path_prediction.predict(
            path, spec, client=client, compression_ratio=ratio, messages=messages
        )

    answer = predicted(ratio or 1.0)
    if ratio is None and codec not in (None, "none"):
        # What batches compress to depends on how large they are; where messages wait, they are full.
        batch = full_batch(spec) if isinstance(answer, Saturated) else answer.batch_messages
        ratio = compression_ratio(spec.workload, codec, batch, spec.seed)
        answer = predicted(ratio)
    read = _most_read(model, spec, answer)
    most, notes = _most_sent(model, spec, ratio or 1.0, client)
    return Forecast(
        spec.name,
        spec,
        answer,
        outside=(
            *((_JAVAS_COSTS,) if client == "java" else ()),
            *((_FREE_BYTES,) if other.mb_per_s and not model.path.physics.broker_byte else ()),
            *model.outside(spec),
            *notes,
            *(() if read is None else read.outside),
        ),
        compression_ratio=ratio or 1.0,
        traffic=None if isinstance(answer, Saturated) else traffic(spec, answer, ratio or 1.0),
        most=most,
        most_read=read,
    )


def _predictable(spec: RunSpec, model: FittedModel) -> RunSpec:
    """The run without its faults; of an existing cluster, with as many brokers as the model's has."""
    if spec.existing is not None:
        brokers = model.observations[0].spec.cluster.brokers
        spec = replace(spec, existing=None, cluster=ClusterSpec(brokers=brokers))
    return replace(spec, faults=())


def _most_sent(
    model: FittedModel, spec: RunSpec, ratio: float, client: ClientName
) -> tuple[SendThroughput | None, tuple[str, ...]]:
    """The most that a producer could send, and what of it the calibration did not cover."""
    if model.sending is None:
        return None, ()
    try:
        most = most_sent(model.sending, spec, ratio, client=client)
    except BadInput as error:
        return None, (f"highest rate of a producer: {error.message}",)
    size = float(most.request_bytes.max())
    outside = model.sending.outside(spec.topic.partitions, size)
    return most, () if outside is None else (f"highest rate of a producer: {outside}",)


def _most_read(
    model: FittedModel, spec: RunSpec, answer: Prediction | Saturated
) -> ReadThroughput | None:
    """What a consumer would read that is behind, of the batches that the run sends."""
    is_compressed = spec.settings.compression_type not in (None, "none")
    # What decompressing costs was not measured.
    if model.reading is None or isinstance(answer, Saturated) or is_compressed:
        return None
    return most_read(model.reading, spec, answer.batch_messages)


def axis(name: str) -> str:
    """A Kafka property by its place in a scenario; other names are places already."""
    if name in _PRODUCER:
        return f"settings.{name}"
    if name.startswith(_OF_CONSUMERS):
        return f"consumers.settings.{name}"
    return _SHORT.get(name, name)


def values_of(text: str) -> list[object]:
    """The values of a sweep: 0..100, 1..1000 (by factors), or 0,5,10."""
    begin, is_range, end = text.partition("..")
    if not is_range:
        return [_value(part) for part in text.split(",")]
    try:
        low, high = float(begin), float(end)
    except ValueError:
        raise BadInput(f"{text}: is not a range", "use LOW..HIGH, such as 0..100") from None
    if not low < high or not np.isfinite([low, high]).all():
        raise BadInput(f"{text}: must be two numbers, the smaller one first")
    if low > 0 and high / low > _WIDE:
        points = np.geomspace(low, high, _SWEEP_POINTS)
    else:
        points = np.linspace(low, high, _SWEEP_POINTS)
    is_whole = all(number == int(number) for number in (low, high)) and (high - low > 1 or low >= 1)
    if is_whole:
        return list(dict.fromkeys(round(point) for point in points.tolist()))
    return [float(f"{point:.4g}") for point in points.tolist()]


def _value(text: str) -> object:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text, text)


_PRODUCER = {ProducerSettings.file_name(name) for name in ProducerSettings.__dataclass_fields__}
# Fields that people ask for by a short name.
_SHORT = {
    "rate_per_s": "workload.arrivals.rate_per_s",
    "size_bytes": "workload.payload.size_bytes",
    "producers": "workload.producers",
    "partitions": "topic.partitions",
    "replication": "topic.replication",
    "consumers": "consumers.count",
}


def _scenario(scenario: AnyPath | Scenario | None, model: FittedModel) -> Scenario:
    if isinstance(scenario, Scenario):
        return scenario_file.completed(scenario)
    if scenario is None:
        lightest = min(model.observations, key=lambda one: one.messages_per_s)
        return specs.parse(specs.to_data(lightest.spec), Scenario, "model")
    return scenario_file.load(as_path("scenario", scenario, Scenario))


def _data(one: Forecast) -> dict[str, Any]:
    answer = one.answer
    return {
        "label": one.label,
        "place": one.place,
        "outside": one.outside,
        "compression_ratio": one.compression_ratio,
        "traffic": one.traffic,
        "most": None
        if one.most is None
        else {
            "messages_per_s": one.most.messages_per_s,
            "sent_mb_per_s": float(one.most.bytes_per_s.sum()) / 1e6,
            "payload_share": one.most.payload_share,
            "limited_by": one.most.limited_by,
        },
        "most_read": one.most_read,
        **(
            {"saturated": answer, "reason": str(answer)}
            if isinstance(answer, Saturated)
            else {"prediction": answer}
        ),
    }
