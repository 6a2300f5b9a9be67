"""A fitted model with where it came from: what `model.json` holds. Pure.

The file has the observations that the model was fitted to, so that more runs can be added later, and each
earlier fit with its errors, so that one sees whether they helped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from penstock.domain.errors import BadInput
from penstock.domain.run import RunSpec
from penstock.domain.value import Doc, Value
from penstock.models.calibration import LeftOutRun, Say, errors, fit
from penstock.models.observation import MeasuredReading, MeasuredSending, Observation
from penstock.models.path.predict import PathModel
from penstock.models.ranges import beyond
from penstock.models.reading import FittedReading, can_fit_reading, fit_reading
from penstock.models.throughput import LEAST_POINTS, FittedRequestInterval, fit_sending
from penstock.models.workers import LocalWorkers, WorkerFactory

# A file of another format is refused, with its number.
MODEL_FORMAT = 1
# What must be the same in all runs of a model.
_VERSIONS = ("kafka", "librdkafka")
_MACHINE = ("cores", "memory_mb", "processor")
# Latency and statistic → its name in a summary of errors.
_SUMMARY = {
    "produce_mean": ("produce", "mean"),
    "produce_p99": ("produce", "99"),
    "end_to_end_mean": ("end_to_end", "mean"),
    "end_to_end_p99": ("end_to_end", "99"),
}


@dataclass(frozen=True, kw_only=True)
class FitRecord(Value):
    """One fit: on what, and how well."""

    made_at: Annotated[str, Doc("ISO 8601, UTC")]
    runs: int
    errors: Annotated[
        Mapping[str, float],
        Doc("figure → typical error on left-out runs: median of exp|ln(measured / predicted)| − 1"),
    ]


@dataclass(frozen=True, kw_only=True)
class FittedModel(Value):
    """The model of one machine and cluster (`model.json`)."""

    format: int = MODEL_FORMAT
    made_at: Annotated[str, Doc("ISO 8601, UTC")]
    path: PathModel
    observations: Annotated[tuple[Observation, ...], Doc("the runs that it was fitted to")]
    left_out: Annotated[
        tuple[LeftOutRun, ...], Doc("how each run was predicted by a fit of the others")
    ]
    history: Annotated[tuple[FitRecord, ...], Doc("earlier fits, the oldest first")] = ()
    sendings: Annotated[
        tuple[MeasuredSending, ...], Doc("runs whose producers always had more to send")
    ] = ()
    sending: Annotated[
        FittedRequestInterval | None,
        Doc("[f_p] fitted to those: the interval of requests by their size"),
    ] = None
    readings: Annotated[
        tuple[MeasuredReading, ...], Doc("of consumers that always had more to read")
    ] = ()
    reading: Annotated[
        FittedReading | None, Doc("[f_c] fitted to those: the interval of answers by their size")
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(
            self.format == MODEL_FORMAT,
            "format",
            f"must be {MODEL_FORMAT}: this file is of another version; calibrate again",
        )
        self.require(bool(self.observations), "observations", "must hold the runs of the fit")

    @property
    def machine(self) -> Mapping[str, str | int | float]:
        return self.observations[0].machine

    @property
    def versions(self) -> Mapping[str, str]:
        return self.observations[0].versions

    @property
    def record(self) -> FitRecord:
        """This fit, as a later one keeps it."""
        return FitRecord(
            made_at=self.made_at, runs=len(self.observations), errors=summary(self.left_out)
        )

    def outside(self, run: RunSpec) -> tuple[str, ...]:
        """What of a run no calibration run covered, and by how much, a sentence each."""
        notes = outside(run, [one.spec for one in self.observations])
        unseen = [
            f"latency {what}: no run of the calibration measured it"
            for name, what in (("produce", "until acknowledged"), ("end_to_end", "end to end"))
            if not any(name in one.latencies for one in self.observations)
        ]
        return (*unseen, *notes)


def fit_model(
    observations: Sequence[Observation],
    made_at: str,
    *,
    sendings: Sequence[MeasuredSending] = (),
    readings: Sequence[MeasuredReading] = (),
    previous: FittedModel | None = None,
    start_workers: WorkerFactory = LocalWorkers,
    say: Say = lambda _: None,
) -> FittedModel:
    """Fit a model to runs, and to those of an earlier model if there is one. `sendings`: runs whose
    producers always had more to send; `readings`: of consumers that always had more to read.
    `start_workers`: where the runs are simulated."""
    known = () if previous is None else previous.observations
    seen = {one.run for one in known}
    every = (*known, *(one for one in observations if one.run not in seen))
    names = [one.run for one in every]
    if twice := {name for name in names if names.count(name) > 1}:
        raise BadInput(f"{min(twice)}: the run is given twice", "name every run directory once")
    saturated = (*(() if previous is None else previous.sendings), *sendings)
    behind = () if previous is None else previous.readings
    behind = (*behind, *(one for one in readings if one not in behind))
    check_alike([*every, *behind])
    first = every[0]
    # Of a cluster elsewhere, nobody knows the machines.
    cores = int(first.machine.get("cores", 0)) if first.is_local else 0
    fitted = fit(every, cores=cores, is_shared=first.is_local, start_workers=start_workers, say=say)
    return FittedModel(
        made_at=made_at,
        path=fitted.model,
        observations=every,
        left_out=fitted.left_out,
        history=() if previous is None else (*previous.history, previous.record),
        sendings=saturated,
        sending=fit_sending(saturated) if len(saturated) >= LEAST_POINTS else None,
        readings=behind,
        reading=fit_reading(behind) if can_fit_reading(behind) else None,
    )


def summary(left_out: Sequence[LeftOutRun]) -> dict[str, float]:
    """Figure → the typical error, as a share."""
    typical_errors = {}
    for name, (latency, statistic) in _SUMMARY.items():
        logs = [
            abs(of_latency[statistic])
            for one in left_out
            if (of_latency := one.errors.get(latency)) and statistic in of_latency
        ]
        if logs:
            typical_errors[name] = float(np.expm1(np.median(logs)))
    return typical_errors


def blind(model: FittedModel, observations: Iterable[Observation]) -> dict[str, float]:
    """The typical errors of a model on runs that it has not seen."""
    seen = {one.run for one in model.observations}
    return summary(
        [
            LeftOutRun(run=one.run, errors=errors(model.path, one))
            for one in observations
            if one.run not in seen
        ]
    )


def check_alike(observations: Sequence[Observation | MeasuredReading]) -> None:
    """Refuse runs of different machines, clusters or versions: one model is of one of each. What is not
    known of a run may be anything."""
    if not observations:
        raise BadInput("there are no runs to fit a model to", "name run directories")
    first, *rest = observations
    for other in rest:
        for what, mine, theirs in (
            *((name, first.versions.get(name), other.versions.get(name)) for name in _VERSIONS),
            *((name, first.machine.get(name), other.machine.get(name)) for name in _MACHINE),
            ("cluster", _where(first), _where(other)),
        ):
            if mine != theirs and None not in (mine, theirs):
                raise BadInput(
                    f"{other.run} was measured with {what} {theirs}, {first.run} with {mine}: a "
                    "model is of one machine, cluster and version",
                    "fit one model for each",
                )


def _where(one: Observation | MeasuredReading) -> str | None:
    if isinstance(one, MeasuredReading):
        return None
    return "on this machine" if one.is_local else one.cluster or "elsewhere"


# --- the range of a calibration ----------------------------------------------------------------------

_NUMBERS: Mapping[str, Callable[[RunSpec], float]] = {
    "messages/s": lambda run: run.workload.messages_per_s,
    "bytes per message": lambda run: run.workload.payload.mean_bytes,
    "partitions": lambda run: run.topic.partitions,
    "replicas": lambda run: run.topic.replication,
    "brokers": lambda run: run.cluster.brokers,
    "producers": lambda run: run.workload.producers,
    "consumers": lambda run: run.consumers.count,
}
_KINDS: Mapping[str, Callable[[RunSpec], str]] = {
    "compression.type": lambda run: run.settings.compression_type or "none",
    "cluster.security": lambda run: run.cluster.security,
    "cluster.heap_mb": lambda run: str(run.cluster.heap_mb),
    "cluster.properties": lambda run: _listed(run.cluster.properties),
    "topic.config": lambda run: _listed(run.topic.config),
}


def _listed(properties: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={properties[name]}" for name in sorted(properties)) or "none"


def outside(run: RunSpec, calibrated: Sequence[RunSpec]) -> tuple[str, ...]:
    """What of a run no calibration run covered, and by how much, a sentence each."""
    notes = []
    for what, number in _NUMBERS.items():
        values = [number(one) for one in calibrated]
        note = beyond(what, number(run), min(values), max(values), "of the calibration")
        if note is not None:
            notes.append(note)
    for what, kind in _KINDS.items():
        kinds = sorted({kind(one) for one in calibrated})
        if kind(run) not in kinds:
            notes.append(
                f"{what}={kind(run)}: the calibration has only {', '.join(kinds)}, so the effect is "
                "not known"
            )
    return tuple(notes)
