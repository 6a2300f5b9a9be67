"""The directory of a run, which explains itself: the one way runs are written and read back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from penstock import specs
from penstock.domain.errors import BadInput
from penstock.domain.metrics import RunMetrics
from penstock.domain.run import RUN_FORMAT, Run
from penstock.domain.value import Value
from penstock.domain.verdict import Verdict
from penstock.specs.files import write_file

RUN, METRICS, VERDICT, REPORT = "run.json", "metrics.json", "verdict.json", "report.html"
SCENARIO, CAMPAIGN, CELLS = "scenario.yaml", "campaign.json", "cells"
HISTOGRAMS = "histograms"

V = TypeVar("V", bound=Value)


def make_directory(parent: Path, name: str) -> Path:
    """A new directory for `name`; if there is one of that name, NAME-2 and so on."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"{parent}: cannot be created: {error.strerror}", "choose another `out`"
        ) from None
    number = 1
    while True:
        path = parent / (name if number == 1 else f"{name}-{number}")
        try:
            # One of two commands that start at once fails here, and takes the next number.
            path.mkdir()
            return path
        except FileExistsError:
            number += 1
        except OSError as error:
            raise BadInput(
                f"{path}: cannot be created: {error.strerror}", "choose another `out`"
            ) from None


def set_aside(path: Path) -> None:
    """What a kill left half done, or what failed before, is kept under another name."""
    if not path.exists():
        return
    number = 1
    while (aside := path.with_name(f".{path.name}-unfinished-{number}")).exists():
        number += 1
    path.rename(aside)


@dataclass(frozen=True)
class RunDirectory:
    """One run: `run.json` says what it was; traces, metrics and reports lie beside it."""

    path: Path

    def write_run(self, run: Run) -> None:
        write_file(self.path / RUN, specs.dump_json(run))

    def write_metrics(self, metrics: RunMetrics) -> None:
        write_file(self.path / METRICS, specs.dump_json(metrics))

    def write_verdict(self, verdict: Verdict) -> None:
        write_file(self.path / VERDICT, specs.dump_json(verdict))

    def run(self) -> Run:
        """What the run was. Refuses a directory of another format or none at all."""
        data = self._data(RUN, "check that it is the directory of a run")
        if not isinstance(data, dict) or data.get("format") != RUN_FORMAT:
            format_number = data.get("format") if isinstance(data, dict) else None
            raise BadInput(
                f"{self.path}: is a run of format {format_number}; this version of Penstock reads {RUN_FORMAT}",
                "use the version that wrote it (`versions` in run.json), or run it again",
            )
        return self._parse(data, Run, RUN)

    def metrics(self) -> RunMetrics:
        data = self._data(METRICS, f"analyse it first: penstock analyze {self.path}")
        return self._parse(data, RunMetrics, METRICS)

    def verdict(self) -> Verdict:
        data = self._data(VERDICT, f"analyse it first: penstock analyze {self.path}")
        return self._parse(data, Verdict, VERDICT)

    @property
    def has_metrics(self) -> bool:
        return (self.path / METRICS).exists()

    def _data(self, name: str, fix: str) -> Any:
        try:
            return json.loads((self.path / name).read_text())
        except FileNotFoundError:
            raise BadInput(f"{self.path}: has no {name}", fix) from None
        except OSError as error:
            raise BadInput(f"{self.path / name}: cannot be read: {error.strerror}") from None
        except ValueError:
            raise BadInput(
                f"{self.path / name}: is not JSON; it may have been cut off", "run it again"
            ) from None

    def _parse(self, data: Any, cls: type[V], name: str) -> V:
        return specs.parse(data, cls, source=str(self.path / name))


def find_runs(paths: Sequence[Path]) -> list[RunDirectory]:
    """The runs in these directories: a run itself, or a campaign's cells in their order."""
    if not paths:
        raise BadInput("no directory of a run is given", "name at least one, such as runs/orders")
    directories: list[RunDirectory] = []
    for path in paths:
        if (path / CELLS).is_dir():
            cells = sorted(
                cell
                for cell in (path / CELLS).iterdir()
                # What begins with a dot was set aside when the campaign was resumed.
                if (cell / RUN).exists() and not cell.name.startswith(".")
            )
            if not cells:
                raise BadInput(f"{path}: no cell of this campaign has run yet")
            directories += [RunDirectory(cell) for cell in cells]
        elif path.is_dir():
            directories.append(RunDirectory(path))
        else:
            raise BadInput(f"{path}: there is no such directory")
    seen: dict[Path, RunDirectory] = {}
    return [
        seen.setdefault(d.path.resolve(), d) for d in directories if d.path.resolve() not in seen
    ]
