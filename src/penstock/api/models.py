"""Public API: models from runs: the fit, and its file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from penstock import specs
from penstock.api.arguments import as_path
from penstock.api.observations import read_input
from penstock.domain.errors import BadInput
from penstock.domain.progress import Progress, silent
from penstock.domain.value import several
from penstock.models import fitted
from penstock.models.fitted import MODEL_FORMAT, FittedModel
from penstock.models.observation import MeasuredReading, MeasuredSending, Observation
from penstock.models.workers import LocalWorkers, WorkerFactory
from penstock.report import model_page
from penstock.specs.files import read_text, write_file

AnyPath = str | Path

DEFAULT_MODEL = "model.json"
# A fit to fewer is over before Spark would have started and compiled the simulator.
_MANY_RUNS = 40


@dataclass(frozen=True)
class Fit:
    """A model, its file, and what more runs did to its errors."""

    model: FittedModel
    file: Path
    # Runs that were named and not used, each with the reason.
    skipped: tuple[str, ...] = ()
    # Figure → error of the earlier model on the runs that are new to it.
    blind_errors: dict[str, float] | None = None

    def to_data(self) -> dict[str, Any]:
        record = self.model.record
        return {
            "file": self.file,
            "runs": record.runs,
            "errors": record.errors,
            "errors_before": self.model.history[-1].errors if self.model.history else None,
            "blind_errors": self.blind_errors,
            "skipped": self.skipped,
            "left_out": self.model.left_out,
            "physics": self.model.path.physics,
        }

    def plot(self, file: AnyPath) -> Path:
        """Write a page with what the model knows, as tables and charts."""
        return plot_model(file, model=self.model)


def fit_model(
    runs: Sequence[AnyPath],
    *,
    model: AnyPath = DEFAULT_MODEL,
    add: bool = False,
    skip_unusable: bool = False,
    master: str = "local[*]",
    on_progress: Progress = silent,
) -> Fit:
    """Fit a model to run directories and `facts.json` files, and write it to the file `model`.

    `add`: to those that the file's model was fitted to already, too. `skip_unusable`: leave out runs
    that are not valid, cold, unsteady or not analysed, instead of refusing them. `master`: of Spark,
    which simulates the runs if there are 40 or more.
    """
    file = as_path("model", model)
    previous = new_model(file, add)
    given = read_input([as_path("runs", path) for path in several("runs", runs)], skip_unusable)
    known = 0 if previous is None else len(previous.observations)
    with _workers(known + len(given.observations), master, on_progress) as start_workers:
        return fit_observations(
            given.observations,
            file,
            readings=given.readings,
            previous=previous,
            skipped=given.skipped,
            start_workers=start_workers,
            on_progress=on_progress,
        )


@contextmanager
def _workers(runs: int, master: str, say: Progress) -> Iterator[WorkerFactory]:
    """Who simulates: this process, or Spark where there are many runs."""
    if runs < _MANY_RUNS:
        yield LocalWorkers
        return
    from penstock.analysis.session import scoped
    from penstock.analysis.workers import SparkWorkers

    say(f"starting Spark on {master} for {runs} runs")
    with scoped(master, app="penstock-fit") as spark:
        yield partial(SparkWorkers, spark)


def fit_observations(
    seen: Sequence[Observation],
    file: Path,
    *,
    sendings: Sequence[MeasuredSending] = (),
    readings: Sequence[MeasuredReading] = (),
    previous: FittedModel | None = None,
    skipped: Sequence[str] = (),
    start_workers: WorkerFactory = LocalWorkers,
    on_progress: Progress = silent,
) -> Fit:
    """Fit a model to observed runs, and write its file."""
    errors = None if previous is None else fitted.blind(previous, seen)
    known = set() if previous is None else {one.run for one in previous.observations}
    skipped = [*skipped, *(f"{one.run}: the model has it" for one in seen if one.run in known)]
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    model = fitted.fit_model(
        seen,
        made_at,
        sendings=sendings,
        readings=readings,
        previous=previous,
        start_workers=start_workers,
        say=on_progress,
    )
    write_file(file, specs.dump_json(model))
    return Fit(model, file, tuple(skipped), errors or None)


def new_model(file: Path, add: bool) -> FittedModel | None:
    """The model to add to, if any; refuses to replace a file that was not to be added to."""
    if add:
        return read_model(file)
    if file.exists():
        raise BadInput(
            f"{file}: exists already", "add to it (`add`), or choose another file (`model`)"
        )
    return None


def plot_model(file: AnyPath, *, model: AnyPath | FittedModel = DEFAULT_MODEL) -> Path:
    """Write a page with what a model knows, from which runs, and how well, as tables and charts."""
    path = as_path("file", file)
    known = model if isinstance(model, FittedModel) else read_model(model)
    write_file(path, model_page.render(known))
    return path


def read_model(path: AnyPath = DEFAULT_MODEL) -> FittedModel:
    """A model that was fitted before."""
    file = as_path("model", path)
    if not file.exists():
        raise BadInput(
            f"{file}: there is no model", "make one: penstock model calibrate, or model fit RUNS"
        )
    text = read_text(file)
    try:
        file_format = json.loads(text).get("format")
    except (ValueError, AttributeError):
        file_format = None
    if file_format != MODEL_FORMAT:
        raise BadInput(
            f"{file}: is not a model of format {MODEL_FORMAT}"
            + (f", but of format {file_format}" if isinstance(file_format, int) else ""),
            "make one: penstock model calibrate, or model fit RUNS",
        )
    return specs.load(file, FittedModel)
