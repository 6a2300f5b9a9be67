"""Predictions of scenarios, alone and beside what a run measured. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.domain.metrics import Estimate
from penstock.domain.run import RunSpec
from penstock.models.observation import Observation
from penstock.models.path.predict import PERCENTS, PredictedLatency, Prediction, Saturated
from penstock.models.reading import ReadThroughput
from penstock.models.throughput import SendThroughput
from penstock.models.traffic import PredictedTraffic


@dataclass(frozen=True)
class Forecast:
    """What a model says of one run."""

    label: str
    spec: RunSpec
    answer: Prediction | Saturated
    # Axis → value, where a scenario has a matrix.
    place: Mapping[str, str] = field(default_factory=dict)
    # What the calibration did not cover, a sentence each.
    outside: tuple[str, ...] = ()
    compression_ratio: float = 1.0
    traffic: PredictedTraffic | None = None
    # The most that one producer could send, and one consumer could read; none: not calibrated.
    most: SendThroughput | None = None
    most_read: ReadThroughput | None = None

    @property
    def prediction(self) -> Prediction | None:
        """None if the load is too high."""
        return self.answer if isinstance(self.answer, Prediction) else None

    def late_share(self, limit_ms: float) -> float | None:
        """η_v(ζ), end to end; None if the load is too high."""
        if self.prediction is None:
            return None
        return self.prediction.latencies["end_to_end"].late_share(limit_ms)


@dataclass(frozen=True)
class JudgedFigure:
    """One figure as predicted and as measured, in ms."""

    latency: str
    statistic: str
    predicted: Estimate
    measured_ms: float

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.measured_ms / self.predicted.value if self.predicted.value else float("inf")

    @property
    def is_inside(self) -> bool | None:
        """Whether the measurement lies in the 90 % interval; None: there is no interval."""
        low, high = self.predicted.low, self.predicted.high
        return None if low is None or high is None else low <= self.measured_ms <= high


@dataclass(frozen=True)
class JudgedPart:
    """The mean of a part of the end-to-end latency; None: not measured by itself."""

    name: str
    predicted_ms: float
    measured_ms: float | None


@dataclass(frozen=True)
class Judged:
    """A prediction beside the measurement of the same run."""

    forecast: Forecast
    seen: Observation
    figures: tuple[JudgedFigure, ...] = ()
    parts: tuple[JudgedPart, ...] = ()


def judge(forecast: Forecast, seen: Observation) -> Judged:
    """The prediction beside what the run measured."""
    if isinstance(forecast.answer, Saturated):
        return Judged(forecast, seen)
    answer = forecast.answer
    figures = [
        JudgedFigure(name, statistic, _statistic(answer.latencies[name], statistic), measured_ms)
        for name, latency in seen.latencies.items()
        for statistic, measured_ms in (
            ("mean", latency.mean_ms),
            *((f"{p:g}", latency.percentiles_ms[f"{p:g}"]) for p in PERCENTS),
        )
        # Append times are whole milliseconds: only their mean says something.
        if name != "commit" or statistic == "mean"
    ]
    return Judged(forecast, seen, tuple(figures), tuple(_parts(answer, seen)))


def _statistic(latency: PredictedLatency, name: str) -> Estimate:
    return latency.mean_ms if name == "mean" else latency.percentiles_ms[name]


def _parts(answer: Prediction, seen: Observation) -> list[JudgedPart]:
    """By what a run can measure, and the steps of the first part."""
    steps = {step: answer.parts_ms[step] for step in ("wait", "queue", "append")}
    appended_ms = sum(steps.values())
    # As measured: until the watcher or a consumer has it.
    visible_ms = answer.latencies["commit"].mean_ms.value
    parts = {
        "until appended": appended_ms,
        "until visible": visible_ms,
        "fetch": sum(answer.parts_ms.values()) - appended_ms - visible_ms,
    }
    rows = [JudgedPart(name, ms, seen.parts_ms.get(name)) for name, ms in parts.items()]
    inner = [JudgedPart(f"  {step}", ms, None) for step, ms in steps.items()]
    return [rows[0], *inner, *rows[1:]]
