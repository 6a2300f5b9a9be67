"""Public API: run scenarios; analyze and compare run directories."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.api.arguments import as_path
from penstock.api.evidence import Evidence, count_outcomes, findings_of, read_back
from penstock.domain.errors import BadInput
from penstock.domain.progress import Progress, silent
from penstock.domain.run import Run
from penstock.domain.scenario import Scenario
from penstock.domain.shapes import Finding
from penstock.domain.value import FieldError, several
from penstock.kafka.connection import KafkaCluster
from penstock.load import scenario_file
from penstock.report.comparison import Comparison
from penstock.report.comparison import compare as compare_runs
from penstock.report.page import render
from penstock.runs import campaign as campaigns
from penstock.runs import openmessaging
from penstock.runs.campaign import Campaign
from penstock.runs.resuming import Step
from penstock.runs.run_directory import CAMPAIGN, REPORT, find_runs
from penstock.specs.files import read_text, write_file
from penstock.testbed.attached import find

AnyPath = str | Path


def run(
    scenario: AnyPath | Scenario,
    *,
    out: AnyPath = "runs",
    driver: AnyPath | None = None,
    testbed: str | None = None,
    latency_limits_ms: Sequence[float] = (),
    master: str = "local[*]",
    on_progress: Progress = silent,
) -> Evidence:
    """Run a scenario, or with a matrix a campaign: load, faults, network; then analyse the
    messages, judge the objective, and write the report.

    `scenario` is a file, a workload file of the OpenMessaging Benchmark (`driver`: its driver file),
    or a value. `testbed`: use and keep the testbed of this name that `penstock testbed up` started.
    """
    check(testbed, latency_limits_ms)
    campaign = begin(scenario, out=out, driver=driver, on_warning=on_progress)
    return carry_on(
        campaign,
        testbed=testbed,
        latency_limits_ms=latency_limits_ms,
        master=master,
        on_progress=on_progress,
    )


def resume(
    directory: AnyPath,
    *,
    retry_failed: bool = False,
    testbed: str | None = None,
    latency_limits_ms: Sequence[float] = (),
    master: str = "local[*]",
    on_progress: Progress = silent,
) -> Evidence:
    """Run the remaining cells of the campaign in this directory."""
    return carry_on(
        campaigns.reopen(as_path("directory", directory)),
        retry_failed=retry_failed,
        testbed=testbed,
        latency_limits_ms=latency_limits_ms,
        master=master,
        on_progress=on_progress,
    )


def check(testbed: str | None, latency_limits_ms: Sequence[float]) -> None:
    """Refuse a testbed that does not run and limits that cannot be, before anything is made."""
    for limit_ms in several("latency_limits_ms", latency_limits_ms):
        if not (isinstance(limit_ms, int | float) and 0 < limit_ms < math.inf):
            raise FieldError("latency_limits_ms", limit_ms, "must be a number of ms above 0")
    if testbed is not None:
        find(testbed)


def begin(
    scenario: AnyPath | Scenario,
    *,
    out: AnyPath = "runs",
    driver: AnyPath | None = None,
    on_warning: Progress = silent,
) -> Campaign:
    """Check the scenario and create the directory of its runs; nothing is started."""
    out = as_path("out", out)
    if isinstance(scenario, Scenario):
        return campaigns.create(scenario_file.completed(scenario), scenario.name, out)
    file = as_path("scenario", scenario, Scenario)
    if openmessaging.is_workload(file):
        translated = openmessaging.load(
            file, as_path("driver", driver) if driver is not None else None
        )
        for note in translated.notes:
            on_warning(f"{file}: {note}")
        return campaigns.create(translated.scenario, str(file), out)
    if driver is not None:
        raise BadInput(
            f"{file} is not a workload of the OpenMessaging Benchmark", "remove `driver`"
        )
    return campaigns.create(scenario_file.load(file), str(file), out, text=read_text(file))


def carry_on(
    campaign: Campaign,
    *,
    retry_failed: bool = False,
    testbed: str | None = None,
    latency_limits_ms: Sequence[float] = (),
    master: str = "local[*]",
    after_load: Callable[[KafkaCluster, Run], object] = lambda *_: None,
    on_progress: Progress = silent,
    on_step: Callable[[Step], None] = lambda _: None,
) -> Evidence:
    """Run the cells, then analyse all of them at once, then write the report."""
    from penstock.analysis.background import BackgroundSpark

    check(testbed, latency_limits_ms)
    # It takes ten seconds to start: while the cluster starts, and never under load.
    spark = BackgroundSpark(master)
    try:
        campaigns.carry_on(
            campaign,
            retry_failed=retry_failed,
            testbed=testbed,
            before_load=spark.get,
            after_load=after_load,
            on_progress=on_progress,
            on_step=on_step,
        )
        directories = campaign.directories
        limits_ms = (*latency_limits_ms, *campaign.scenario.limits_ms)
        runs = count_outcomes(spark.get(), directories, limits_ms, on_progress)
    finally:
        spark.stop()
    evidence = Evidence(runs, tuple(directories), findings_of(campaign, runs)).check()
    on_progress("writing the report")
    return _reported(evidence, campaign.path)


def analyze(
    paths: Sequence[AnyPath],
    *,
    latency_limits_ms: Sequence[float] = (),
    master: str = "local[*]",
    on_progress: Progress = silent,
) -> Evidence:
    """Analyse the messages of runs or campaigns again, from their traces.

    The traces of a killed run are recovered first. Writes metrics.json, verdict.json, histograms
    and report.html into the directories.
    """
    from penstock.analysis.session import scoped

    check(None, latency_limits_ms)
    places = [as_path("paths", path) for path in several("paths", paths)]
    directories = find_runs(places)
    for directory in directories:
        directory.run()  # fails before Spark starts if it is not a run
    known = {path: campaigns.reopen(path) for path in places if (path / CAMPAIGN).exists()}
    expected = (limit for campaign in known.values() for limit in campaign.scenario.limits_ms)
    on_progress("starting Spark")
    with scoped(master) as spark:
        runs = count_outcomes(spark, directories, (*latency_limits_ms, *expected), on_progress)
    Evidence(runs, tuple(directories)).check()
    findings: list[Finding] = []
    reports: list[Path] = []
    for path in places:
        within = tuple(d for d in directories if d.path == path or path in d.path.parents)
        ids = {directory.run().id for directory in within}
        own = tuple(reported for reported in runs if reported.run.id in ids)
        expected_here = findings_of(known[path], own) if path in known else ()
        if own:
            reports += _reported(Evidence(own, within, expected_here), path).reports
        findings += expected_here
    return Evidence(runs, tuple(directories), tuple(findings), tuple(reports))


@dataclass(frozen=True)
class Compared:
    """Runs compared with the first of them."""

    evidence: Evidence
    comparison: Comparison
    left_out: tuple[str, ...]
    """Runs that failed or were interrupted, each with the reason."""


_ENDED = {"failed": "failed", "interrupted": "was interrupted"}


def compare(
    paths: Sequence[AnyPath],
    *,
    report: AnyPath | None = None,
    master: str = "local[*]",
    on_progress: Progress = silent,
) -> Compared:
    """Compare runs or campaigns with the first of them; `report`: write it there as one page."""
    from penstock.analysis.session import scoped

    every = find_runs([as_path("paths", path) for path in several("paths", paths)])
    complete = [directory for directory in every if directory.run().status == "complete"]
    left_out = tuple(
        f"{directory.path}: skipped: the run {_ENDED[status]}"
        for directory in every
        if (status := directory.run().status) != "complete"
    )
    if new := [directory for directory in complete if not directory.has_metrics]:
        on_progress("starting Spark")
        with scoped(master) as spark:
            count_outcomes(spark, new, (), on_progress)
    runs = read_back(complete)
    comparison = compare_runs(runs)
    evidence = Evidence(runs, tuple(every))
    if report is not None:
        write_file(as_path("report", report), render(runs, "Comparison", drift=evidence.drift))
    return Compared(evidence, comparison, left_out)


def _reported(evidence: Evidence, path: Path) -> Evidence:
    """Write the report page into the directory of the runs."""
    report, title = path / REPORT, path.resolve().name
    page = render(evidence.runs, title, evidence.findings, evidence.failed, evidence.drift)
    write_file(report, page)
    return replace(evidence, reports=(report,))
