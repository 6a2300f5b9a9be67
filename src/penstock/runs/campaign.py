"""A campaign: runs the cells of a scenario one after the other; resumable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from penstock import specs
from penstock.domain.errors import BadInput, TestbedError
from penstock.domain.progress import Progress, silent
from penstock.domain.run import RUN_FORMAT, Run
from penstock.domain.scenario import Scenario
from penstock.kafka.connection import KafkaCluster
from penstock.runs import preflight
from penstock.runs.clusters import Clusters, prepare
from penstock.runs.execute import Place, execute, new_run
from penstock.runs.matrix import Cell, cells
from penstock.runs.resuming import Step, in_steps, read_about
from penstock.runs.run_directory import (
    CAMPAIGN,
    CELLS,
    RUN,
    SCENARIO,
    RunDirectory,
    make_directory,
    set_aside,
)
from penstock.runs.warm_up import kind_of
from penstock.specs.files import sole_owner, write_file
from penstock.testbed.toolchain import Toolchain

# What a cell takes beside its load: processes, the end of the topic, reading what is left.
_BEYOND_S = 12.0


@dataclass(frozen=True)
class Campaign:
    """A scenario and the directory that its runs go to. One cell makes a single run."""

    scenario: Scenario
    cells: tuple[Cell, ...]
    path: Path

    @property
    def is_single(self) -> bool:
        return not self.scenario.matrix and self.scenario.repeats == 1

    def directory(self, cell: Cell) -> RunDirectory:
        return RunDirectory(self.path if self.is_single else self.path / CELLS / cell.folder)

    @property
    def directories(self) -> list[RunDirectory]:
        """The directories of the cells that were begun."""
        directories = [self.directory(cell) for cell in self.cells]
        return [directory for directory in directories if (directory.path / RUN).exists()]


def create(scenario: Scenario, source: str, parent: Path, text: str | None = None) -> Campaign:
    """A new directory for the scenario; `text` is the file as the user wrote it."""
    planned = cells(scenario, source)
    for cell in planned:
        try:
            preflight.check(cell.spec)
        except BadInput as error:
            raise BadInput(f"{source}: {error.message}", error.fix) from None
    path = make_directory(parent, scenario.name)
    campaign = Campaign(scenario, planned, path)
    write_file(path / SCENARIO, text if text is not None else specs.dump_yaml(scenario))
    if not campaign.is_single:
        (path / CELLS).mkdir()
        write_file(path / CAMPAIGN, specs.dump_json({"format": RUN_FORMAT, "scenario": scenario}))
    return campaign


def reopen(path: Path) -> Campaign:
    """The campaign in a directory, to resume it."""
    data = read_about(path, CAMPAIGN, "a campaign", RUN_FORMAT)
    scenario = specs.parse(data["scenario"], Scenario, source=str(path / CAMPAIGN))
    return Campaign(scenario, cells(scenario, str(path / CAMPAIGN)), path)


def to_do(campaign: Campaign, retry_failed: bool = False) -> list[Cell]:
    """The cells that are not done yet; unfinished runs are set aside, not deleted."""
    left = []
    for cell in campaign.cells:
        directory = campaign.directory(cell)
        if (directory.path / RUN).exists():
            status = directory.run().status
            if status == "complete" or (status == "failed" and not retry_failed):
                continue
        left.append(cell)
    return left


def carry_on(
    campaign: Campaign,
    *,
    toolchain: Toolchain | None = None,
    testbed: str | None = None,
    clusters: Clusters | None = None,
    retry_failed: bool = False,
    before_load: Callable[[], object] = lambda: None,
    after_load: Callable[[KafkaCluster, Run], object] = lambda *_: None,
    on_progress: Progress = silent,
    on_step: Callable[[Step], None] = lambda _: None,
) -> list[Run]:
    """Carry out what is left to do. `before_load` is called when the first cluster is ready: what
    else must be prepared has to be done by then, so as not to disturb the measurement. `after_load`
    is called after each run that was not cut short, while its topic is still there. `testbed` names
    a testbed that runs already, and is used and kept; `clusters`: those of several campaigns."""
    runs: list[Run] = []
    is_prepared = False
    own = Clusters(toolchain, campaign.scenario.fresh_cluster, testbed, on_progress)
    with sole_owner(campaign.path), own if clusters is None else nullcontext(clusters) as clusters:
        left = to_do(campaign, retry_failed)
        clusters.check([cell.spec for cell in left])
        for cell in in_steps(left, _planned_s, on_step):
            directory = campaign.directory(cell)
            if not campaign.is_single:  # whose directory was made for it
                set_aside(directory.path)
                directory.path.mkdir()
            place = Place(cell.values, cell.repeat, cell.is_again)
            try:
                with clusters.of(cell.spec) as cluster:
                    if not is_prepared:
                        before_load()
                        is_prepared = True
                    warmed = prepare(cluster, cell.spec, on_progress)
                    run = execute(
                        cell.spec,
                        cluster,
                        directory,
                        place=place,
                        warm_up=warmed,
                        after_load=after_load,
                        on_progress=on_progress,
                    )
            except TestbedError as error:
                # The cluster did not come up: kept with its reason, like any failure of a cell.
                run = new_run(cell.spec, directory, place, None)
                run = replace(run, status="failed", reason=str(error))
                directory.write_run(run)
            runs.append(run)
    return runs


def _planned_s(left: Sequence[Cell]) -> float:
    """By the schedule of each."""
    run_specs = [cell.spec for cell in left]
    planned_s = sum(e.warm_up_s + e.workload.duration_s + _BEYOND_S for e in run_specs)
    # Each kind of requests is warmed up once, and may take as long as it is allowed to.
    return planned_s + sum({kind_of(e): e.cluster_warm_up.limit_s for e in run_specs}.values())
